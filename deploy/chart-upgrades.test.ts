// What an upgrade of the release asks a cluster for. A stand-in keeps the objects, and nothing acts on them.
import { chartFolder } from "../test/support/chart.ts";
import { type Helm, openHelm } from "../test/support/helm.ts";
import { type KubernetesApi, startKubernetesApi } from "../test/support/kubernetes-api.ts";
import { suiteStack } from "../test/support/stack.ts";

const stack = suiteStack();
let helm: Helm;
let api: KubernetesApi;

beforeAll(async () => {
  helm = await openHelm(chartFolder);
  stack.defer(() => helm.remove());
});

beforeEach(async () => {
  api = await startKubernetesApi(stack);
  for (const name of ["petstore-gateway", "petstore-inventory-svc"]) api.apply("Secret", name, { data: { a: "YQ==" } });
});

const fixed = (count: number) => ({ gateway: { replicas: { min: count, max: count } } });
const upgrade = async (...values: object[]) => {
  const cluster = ["--kube-apiserver", api.url, "--kube-token", "none", "--namespace", "default"];
  const args = ["--install", "petstore", chartFolder, "--no-hooks", "--disable-openapi-validation", ...cluster];
  await helm.run("upgrade", args, { tls: { issuerRef: { name: "" } } }, ...values);
};
const gateway = () => api.get("Deployment", "petstore-gateway");
const replicas = () => gateway().spec.replicas;
const bounds = () => {
  const { minReplicas, maxReplicas } = api.get("HorizontalPodAutoscaler", "petstore-gateway").spec;
  return [minReplicas, maxReplicas];
};
const annotations = () => gateway().spec.template.metadata.annotations;

test("a first installation begins with the least number of pods, not with one", async () => {
  await upgrade();
  expect([replicas(), bounds()]).toEqual([3, [3, 9]]);
});

test("an upgrade from a fixed number to a range keeps the pods that run", async () => {
  await upgrade(fixed(4));
  expect([replicas(), bounds()]).toEqual([4, [4, 4]]);
  await upgrade();
  expect([replicas(), bounds()]).toEqual([4, [3, 9]]);
});

test("an upgrade keeps the number that the autoscaler has chosen", async () => {
  await upgrade();
  api.apply("Deployment", "petstore-gateway", { spec: { replicas: 7 } });
  await upgrade({ image: { tag: "2.0.0" } });
  expect(replicas()).toBe(7);
  expect(gateway().spec.template.spec.containers[0].image).toBe("petstore-gateway:2.0.0");
});

test("an upgrade to other bounds moves the number into them, and to a fixed number to that", async () => {
  await upgrade();
  api.apply("Deployment", "petstore-gateway", { spec: { replicas: 7 } });
  await upgrade({ gateway: { replicas: { max: 5 } } });
  expect([replicas(), bounds()]).toEqual([5, [3, 5]]);
  await upgrade(fixed(2));
  expect([replicas(), bounds()]).toEqual([2, [2, 2]]);
});

test("an upgrade starts no pods of a tier that an operator has stopped", async () => {
  await upgrade();
  api.apply("Deployment", "petstore-gateway", { spec: { replicas: 0 } });
  await upgrade({ image: { tag: "2.0.0" } });
  expect(replicas()).toBe(0);
});

test("a changed secret of a tier replaces its pods at the upgrade, and is not shown", async () => {
  await upgrade();
  const before = annotations();
  await upgrade();
  expect(annotations()).toEqual(before);
  api.apply("Secret", "petstore-inventory-svc", { data: { a: "Yg==" } });
  await upgrade();
  expect(annotations()).toEqual(before);
  api.apply("Secret", "petstore-gateway", { data: { a: "Yg==" } });
  await upgrade();
  expect(annotations()).toEqual({ ...before, "checksum/secret": expect.stringMatching(/^[0-9a-f]{64}$/) });
  expect(annotations()["checksum/secret"]).not.toBe(before["checksum/secret"]);
});
