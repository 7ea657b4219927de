import { chmod, chown, copyFile, mkdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { stringify } from "yaml";
import { createAuthority } from "../support/certificates.ts";
import { type Helm, type Manifest, openHelm } from "../support/helm.ts";
import { request } from "../support/http.ts";
import { connectMysql } from "../support/mysql-client.ts";
import { suiteStack, temporaryFolder } from "../support/stack.ts";
import { until } from "../support/until.ts";
import { baseImages, makeBaseImages } from "./base-images.ts";
import { type Engine, openEngine } from "./container-engine.ts";
import { buildImages, imageName, projectRoot, targets } from "./product-images.ts";

const chart = join(projectRoot, "deploy/chart");
const network = "petstore-chart";
const registry = "localhost/petstore-chart";

/**
 * Plays the chart's pods with Podman. Four things are not Podman's and are put in their place: a job is played as its
 * pod, one pod of each Deployment runs, the Secrets of cert-manager are folders, and the probes are asked by the test.
 * `npm run test:containers` runs it.
 */
(process.env.FAULTS === "long" ? describe : describe.skip)("pods", () => {
  const stack = suiteStack();
  let engine: Engine;
  let helm: Helm;
  let folder: string;

  beforeAll(async () => {
    engine = await openEngine(stack);
    if (engine.isDocker) return;
    await buildImages(engine);
    await makeBaseImages(engine, ["mysql", "valkey"]);
    for (const target of targets)
      await engine.docker(["tag", imageName(target), `${registry}/petstore-${target}:test`]);
    helm = await openHelm(chart);
    stack.defer(() => helm.remove());
    const temporary = await temporaryFolder("chart");
    stack.defer(() => temporary.remove());
    folder = temporary.path;
    await engine.docker(["network", "create", network]);
    const server = (name: string, ...rest: string[]) =>
      engine.docker(["run", "--detach", `--name=${name}`, `--network=${network}`, ...rest]);
    await server("mysql", "--env=MYSQL_ROOT_PASSWORD=root", baseImages.mysql, "--mysqlx=OFF");
    await server("valkey", baseImages.valkey, "valkey-server", "--protected-mode", "no");
  }, 3_600_000);

  test.each(["staging", "production"])(
    "the pods of the chart, run by Podman with values of %s, migrate, serve over TLS and stop",
    async (name) => {
      if (engine.isDocker) return void console.warn("Docker's engine plays no pods");
      await engine.docker(["pod", "rm", "--all", "--force"]); // those of the other values
      const values = { image: { registry, tag: "test" } };
      const manifests = await helm.render(`${chart}/values-${name}.yaml`, values);
      const database = `mysql://root:root@mysql:3306/${name}`;
      await makeDatabases(name);
      const urls = { GATEWAY_DATABASE_URL: `${database}_keys`, INVENTORY_DATABASE_URL: `${database}_stock` };
      const secrets: Record<string, Record<string, string>> = {
        "petstore-migrate": urls,
        "petstore-inventory-svc": { INVENTORY_DATABASE_URL: urls.INVENTORY_DATABASE_URL },
        "petstore-gateway": {
          GATEWAY_DATABASE_URL: urls.GATEWAY_DATABASE_URL,
          KEY_PEPPER: "a-pepper-that-only-the-tests-know",
          REDIS_URL: "redis://valkey:6379",
        },
      };
      for (const [secret, values] of Object.entries(secrets)) await makeSecret(secret, values);
      const certificates = await makeCertificates(manifests, name);

      const job = manifests.find(({ kind }) => kind === "Job")!;
      await play(podOf(job), manifests, certificates);
      const migration = `${job.metadata.name}-migrate`;
      expect((await engine.docker(["wait", migration])).trim()).toBe("0");
      expect(await engine.docker(["logs", migration])).toContain("inventory: up 0001");

      const addresses: Record<string, string> = {};
      for (const tier of ["inventory-svc", "gateway"]) {
        const deployment = manifests.find(
          ({ kind, metadata }) => kind === "Deployment" && metadata.name === `petstore-${tier}`,
        )!;
        const { startupProbe, readinessProbe, livenessProbe, ports } = deployment.spec.template.spec.containers[0];
        const address = await play(podOf(deployment), manifests, certificates);
        addresses[tier] = address;
        const admin = `${address}:${ports.find((port: { name: string }) => port.name === "admin").containerPort}`;
        for (const { httpGet } of [startupProbe, livenessProbe, readinessProbe]) {
          const passes = () =>
            request(admin, { path: httpGet.path }).then(
              ({ status }) => status === 200,
              () => false,
            );
          await until(passes, { withinMs: 60_000, everyMs: 250 });
        }
        const [container] = JSON.parse(await engine.docker(["container", "inspect", `petstore-${tier}-${tier}`]));
        expect(container.HostConfig.ReadonlyRootfs).toBe(true);
        const status = await readFile(`/proc/${container.State.Pid}/status`, "utf8");
        expect(status).toMatch(/^Uid:\s+1000\s.*^CapEff:\s+0+$.*^NoNewPrivs:\s+1$/ms);
      }

      const tools = (...command: string[]) => engine.docker(["exec", "petstore-gateway-gateway", "node", ...command]);
      const issued = JSON.parse(
        await tools("/app/dist/gateway/accounts/cli/keys.js", "issue", "--account", "a", "--json"),
      );
      expect(issued.key).toMatch(name === "staging" ? /^ps_staging_/ : /^ps_live_/);
      const headers = { authorization: `Bearer ${issued.key}` };
      const list = await request(`${addresses.gateway}:8080`, { path: "/v1/inventory", headers });
      expect({ status: list.status, body: list.json() }).toEqual({ status: 200, body: [] });

      for (const tier of ["gateway", "inventory-svc"]) {
        await engine.docker(["stop", "--time=35", `petstore-${tier}-${tier}`]);
        const [{ State }] = JSON.parse(await engine.docker(["container", "inspect", `petstore-${tier}-${tier}`]));
        expect({ tier, code: State.ExitCode }).toEqual({ tier, code: 0 });
      }
    },
    600_000,
  );

  /** Makes the two databases, when the server is there. */
  async function makeDatabases(name: string): Promise<void> {
    const url = `mysql://root:root@${await addressOf("mysql")}:3306/`;
    const connects = () =>
      connectMysql(url).then(
        (connection) => connection.end().then(() => true),
        () => false,
      );
    await until(connects, { withinMs: 120_000, everyMs: 250 });
    const connection = await connectMysql(url);
    for (const part of ["keys", "stock"]) {
      await connection.query(`CREATE DATABASE ${name}_${part} CHARACTER SET utf8mb4`);
    }
    await connection.end();
  }

  async function addressOf(container: string): Promise<string> {
    const format = `--format={{(index .NetworkSettings.Networks "${network}").IPAddress}}`;
    return (await engine.docker(["container", "inspect", format, container])).trim();
  }

  /** Makes a Secret as Podman 4 keeps it. */
  async function makeSecret(name: string, values: Readonly<Record<string, string>>): Promise<void> {
    const data = Object.entries(values).map(([key, value]) => [key, Buffer.from(value).toString("base64")]);
    const file = join(folder, `${name}.json`);
    await writeFile(file, JSON.stringify(Object.fromEntries(data)));
    await engine.tryDocker(["secret", "rm", name]);
    await engine.docker(["secret", "create", name, file]);
  }

  /** @returns the folder of each Secret that cert-manager would fill, by its name */
  async function makeCertificates(manifests: readonly Manifest[], variant: string): Promise<Map<string, string>> {
    const authority = await createAuthority(stack);
    const folders = new Map<string, string>();
    for (const { kind, spec } of manifests) {
      if (kind !== "Certificate") continue;
      const names = [
        ...spec.uris.map((uri: string) => `URI:${uri}`),
        ...(spec.dnsNames ?? []).map((dns: string) => `DNS:${dns}`),
      ];
      const files = await authority.issue({ names });
      const place = join(folder, variant, spec.secretName);
      await mkdir(place, { recursive: true, mode: 0o755 });
      for (const [source, file] of [
        [files.cert, "tls.crt"],
        [files.key, "tls.key"],
        [files.ca, "ca.crt"],
      ] as const) {
        await copyFile(source, join(place, file));
        await chown(join(place, file), 0, 1000);
        await chmod(join(place, file), 0o440);
      }
      folders.set(spec.secretName, place);
    }
    return folders;
  }

  /** Starts a pod beside the ConfigMaps of the chart. @returns its address */
  async function play(
    pod: object & { metadata: { name: string } },
    manifests: readonly Manifest[],
    certificates: Map<string, string>,
  ) {
    const text = JSON.stringify(pod, (key, value) => {
      if (/^(startup|liveness|readiness)Probe$/.test(key)) return undefined;
      const secret = value?.secret?.secretName;
      if (secret === undefined) return value;
      return { name: value.name, hostPath: { path: certificates.get(secret), type: "Directory" } };
    });
    const maps = manifests.filter(({ kind }) => kind === "ConfigMap").map((map) => stringify(map));
    const file = join(folder, "pod.yaml");
    await writeFile(file, [...maps, stringify(JSON.parse(text))].join("---\n"));
    // The name of the headless Service.
    const alias = pod.metadata.name.endsWith("inventory-svc") ? `:alias=${pod.metadata.name}-headless` : "";
    await engine.docker(["kube", "play", `--network=${network}${alias}`, file]);
    const infra = (await engine.docker(["pod", "inspect", "--format={{.InfraContainerID}}", pod.metadata.name])).trim();
    return await addressOf(infra);
  }
});

/** Without annotations, of which Podman 4 takes only short ones. */
function podOf({ metadata, spec }: Manifest) {
  const { template } = spec;
  return {
    apiVersion: "v1",
    kind: "Pod",
    metadata: { labels: template.metadata.labels, name: metadata.name },
    spec: template.spec,
  };
}
