import { existsSync, globSync, readFileSync } from "node:fs";
import { parse } from "yaml";
import {
  chartFolder,
  commandJob,
  documentedObjects,
  pepper,
  settings,
  suiteChart,
  variants,
} from "../test/support/chart.ts";
import type { Manifest } from "../test/support/helm.ts";
import { nameOf, schemaFaults, unknownMembers } from "../test/support/kubernetes.ts";
import { rulesFile } from "../test/support/prometheus.ts";

describe("the Helm chart", () => {
  const { each, all, helm } = suiteChart();

  test.each(Object.entries(variants))("helm lint accepts the chart with %s", async (_, values) => {
    await helm().lint(...values);
  });

  test("the chart has the version of the sources", () => {
    const { version } = JSON.parse(readFileSync(new URL("../package.json", import.meta.url), "utf8"));
    const text = readFileSync(`${chartFolder}/Chart.yaml`, "utf8");
    expect(text).toContain(`\nversion: ${version}\n`);
    expect(text).toContain(`\nappVersion: ${version}\n`);
  });

  describe("rendered objects", () => {
    test("every object of the chart matches the schema of its API, in every variant", async () => {
      expect(await schemaFaults(each().flat())).toEqual([]);
    });

    test("no object of the chart has a member that its API does not know and would drop", async () => {
      expect(await unknownMembers(each().flat())).toEqual([]);
    });

    test("the checks of the chart's objects find a wrong type and an unknown member", async () => {
      const broken = (change: (deployment: Manifest) => void) => {
        const [deployment] = structuredClone(all("production", "Deployment"));
        change(deployment!);
        return [deployment!];
      };
      expect(await schemaFaults(broken(({ spec }) => (spec.replicas = "3")))).toHaveLength(1);
      expect(await unknownMembers(broken(({ spec }) => (spec.template.spec.containers[0].probe = {})))).toHaveLength(1);
    });

    test("every object of the chart is rendered once", () => {
      for (const manifests of each()) {
        const names = manifests.map(nameOf);
        expect(names).toEqual([...new Set(names)]);
      }
    });

    test("no Secret and no secret setting is rendered", () => {
      for (const manifests of each()) {
        expect(manifests.map(({ kind }) => kind)).not.toContain("Secret");
        for (const { data = {} } of manifests) {
          expect(Object.keys(data).filter((name) => /DATABASE_URL|PEPPER|REDIS_URL/.test(name))).toEqual([]);
        }
      }
    });
  });

  test("the chart has the tested rules, and its jobs have the names that the rules select", () => {
    const [rules] = all("production", "PrometheusRule");
    const jobs = all("production", "PodMonitor").map(({ spec }) => spec.selector.matchLabels[spec.jobLabel]);
    expect(jobs).toEqual(["gateway", "inventory-svc"]);
    const text = readFileSync(rulesFile, "utf8").replaceAll("{job", '{namespace="default",job');
    expect(rules!.spec).toEqual(parse(text));
    expect(text.match(/\bjob=/g)).toHaveLength(text.match(/\{namespace="default",job=/g)!.length);
    const [addressed] = all("what pods get besides", "PrometheusRule");
    expect(addressed!.spec).toEqual(parse(text.replaceAll("runbook_url: ", "runbook_url: https://docs.example/")));
  });

  describe("the migration", () => {
    test("runs before the pods of a version, with its own database account", () => {
      const [job] = all("production", "Job");
      expect(job!.metadata.annotations).toMatchObject({ "helm.sh/hook": "pre-install,pre-upgrade" });
      const secrets = job!.spec.template.spec.containers[0].env.map(
        (variable: Variable) => variable.valueFrom.secretKeyRef,
      );
      expect(secrets).toEqual([
        { name: "petstore-migrate", key: "GATEWAY_DATABASE_URL" },
        { name: "petstore-migrate", key: "INVENTORY_DATABASE_URL" },
      ]);
    });
  });

  test("the job for commands in kubernetes.md has the pod of the migration, and real programs", async () => {
    const command = commandJob();
    const [migration] = all("default values", "Job");
    const podOf = ({ spec }: Manifest) => spec.template.spec;
    const [{ name, image, command: program, env, envFrom, volumeMounts, ...container }] = podOf(command).containers;
    const { containers, ...pod } = podOf(migration!);
    const volumes = [{ name: "tmp", emptyDir: {} }];
    expect(podOf(command)).toEqual({ ...pod, volumes, containers: expect.anything() });
    expect(containers[0]).toMatchObject(container);
    const [policy] = all("default values", "NetworkPolicy").filter(({ metadata }) => /command$/.test(metadata.name));
    expect(policy!.metadata.annotations).toBeUndefined(); // that of a hook would be gone after the installation
    expect(command.spec.template.metadata.labels).toEqual(policy!.spec.podSelector.matchLabels);
    expect(env).toEqual(expect.arrayContaining(containers[0].env));
    const settings = all("default values", "ConfigMap").map(({ metadata }) => ({
      configMapRef: { name: metadata.name },
    }));
    expect(settings).toEqual(expect.arrayContaining(envFrom));
    const text = readFileSync(`${chartFolder}/../../docs/operations/kubernetes.md`, "utf8");
    const programs = new Set(text.match(/(?<=\/app\/dist\/)[\w/-]+(?=\.js)/g));
    expect([...programs].map((path) => existsSync(`${chartFolder}/../../${path}.ts`))).toEqual([true, true, true]);
  });

  test("the objects in kubernetes.md are valid, and the issuer that they make is that of the chart", async () => {
    const objects = documentedObjects();
    expect(await schemaFaults(objects)).toEqual([]);
    expect(await unknownMembers(objects)).toEqual([]);
    const [certificate] = objects.filter(({ kind }) => kind === "Certificate");
    const issuerOf = (secretName: string) =>
      objects.find(({ kind, spec }) => kind === "Issuer" && spec.ca?.secretName === secretName);
    const { metadata } = issuerOf(certificate!.spec.secretName)!;
    expect(certificate!.spec.isCA).toBe(true);
    expect(all("default values", "Certificate").map(({ spec }) => spec.issuerRef.name)).toEqual([
      metadata.name,
      metadata.name,
    ]);
  });

  test("each helm command of the documents about the release names its namespace", () => {
    const folder = `${chartFolder}/../..`;
    const files = globSync("{README.md,docs/**/*.md,deploy/chart/*.{md,yaml}}", { cwd: folder });
    const texts = files.map((file) => readFileSync(`${folder}/${file}`, "utf8"));
    const commands = texts.flatMap((text) => text.match(/helm \w+ (--install )?petstore\b[^`\n]*/g) ?? []);
    expect(commands.length).toBeGreaterThan(10);
    expect(commands.filter((command) => !/ -n petstore/.test(command))).toEqual([]);
  });

  describe("values", () => {
    test.each<[string, object, string]>([
      ["an unknown setting", settings({ GATEWAY_LISTEN: "0.0.0.0:80" }), "GATEWAY_LISTEN"],
      ["a secret among the settings", settings({ KEY_PEPPER: pepper }), "KEY_PEPPER"],
      ["an old secret among the settings", settings({ KEY_PEPPER_OLD: pepper }), "KEY_PEPPER_OLD"],
      ["a setting that is not text", settings({ BAN_REFUSALS_PER_MINUTE: 1_000_000 }), "BAN_REFUSALS_PER_MINUTE"],
      ["a number that is too large", settings({ BAN_REFUSALS_PER_MINUTE: "1000001" }), "BAN_REFUSALS_PER_MINUTE"],
      [
        "a number that is too small",
        { "inventory-svc": { settings: { INVENTORY_MAX_BATCH: "0" } } },
        "INVENTORY_MAX_BATCH",
      ],
      ["a day that does not exist", settings({ PETS_SUNSET_AT: "2027-02-30" }), "PETS_SUNSET_AT"],
      ["an address that does not exist", settings({ TRUSTED_PROXIES: "10.0.0.256" }), "TRUSTED_PROXIES"],
      ["an unknown plan", settings({ PLAN_LIMITS: "gold=1/2" }), "PLAN_LIMITS"],
      ["a drain that is all delay", settings({ DRAIN_SECONDS: "5" }), "DRAIN_DELAY_SECONDS must be less"],
      ["a base address without /v1", settings({ GATEWAY_SERVERS: "https://petstore.example/" }), "GATEWAY_SERVERS"],
      ["an environment that keys cannot carry", settings({ GATEWAY_KEY_ENV: "Live" }), "GATEWAY_KEY_ENV"],
      ["an unknown log level", settings({ LOG_LEVEL: "loud" }), "LOG_LEVEL"],
      ["a drain time that is not a number", settings({ DRAIN_SECONDS: "long" }), "DRAIN_SECONDS"],
      ["an unknown value", { gateway: { replica: 3 } }, "replica"],
      ["a minimum of zero replicas", { gateway: { replicas: { min: 0 } } }, "min"],
      ["a maximum below the minimum", { gateway: { replicas: { max: 2 } } }, "max must not be below min"],
      ["a secret without a name", { "inventory-svc": { secret: "" } }, "secret"],
      ["a database without peers", { networkPolicy: { database: { to: [] } } }, "to"],
      ["DNS without peers", { networkPolicy: { dns: { to: [] } } }, "to"],
      ["a port above 65535", { networkPolicy: { redis: { ports: [6379, 263790] } } }, "ports"],
      ["one port in place of the list", { networkPolicy: { redis: { port: 26379 } } }, "port"],
      ["an invalid peer", { networkPolicy: { metricsFrom: [{ namespace: "monitoring" }] } }, "namespace"],
      ["a digest that is none", { image: { digests: { gateway: "latest" } } }, "gateway"],
      ["a variable without a name", { gateway: { extraEnv: [{ value: "a" }] } }, "name"],
      ["a mount without a path", { migrate: { extraVolumeMounts: [{ name: "a" }] } }, "mountPath"],
      ["an address of the runbooks without a slash", { monitoring: { sources: "https://docs.example" } }, "sources"],
      ["an unknown role", { tls: { callers: { "spiffe://petstore/back-office": "root" } } }, "callers"],
      ["certificates for less than an hour", { tls: { duration: "30m" } }, "duration"],
      ["a route without a host", { ingress: { className: "public" } }, "a route needs a host"],
    ])("helm rejects %s and names it", async (_, values, name) => {
      await expect(helm().render(values)).rejects.toThrow(new RegExp(`Error: [^]*\\b${name}\\b`));
    });
  });
});

interface Variable {
  readonly valueFrom: { readonly secretKeyRef: unknown };
}
