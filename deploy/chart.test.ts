import { readFileSync } from "node:fs";
import { join } from "node:path";
import { pino } from "pino";
import { Registry } from "prom-client";
import { parse } from "yaml";
import { readGatewayConfig } from "../gateway/config.ts";
import { readInventoryConfig } from "../inventory-svc/config.ts";
import { startAdmin } from "../runtime/admin.ts";
import type { TlsFiles } from "../runtime/tls-files.ts";
import { type Authority, createAuthority } from "../test/support/certificates.ts";
import { type Helm, type Manifest, openHelm, type Values } from "../test/support/helm.ts";
import { nameOf, schemaFaults, unknownMembers } from "../test/support/kubernetes.ts";
import { rulesFile } from "../test/support/prometheus.ts";
import { suiteStack } from "../test/support/stack.ts";

const chart = join(import.meta.dirname, "chart");
const pepper = "0123456789abcdef0123456789abcdef";
const routed = settings({ GATEWAY_SERVERS: "https://petstore.example/v1" });

/** Ports and peers that all differ from the defaults. */
const destinations = {
  dns: {
    ports: [5353],
    to: [{ namespaceSelector: { matchLabels: { "kubernetes.io/metadata.name": "openshift-dns" } } }],
  },
  database: { ports: [6446, 6447], to: [{ podSelector: { matchLabels: { app: "router" } } }] },
  redis: {
    ports: [6380, 26379],
    to: [
      { namespaceSelector: {}, podSelector: { matchLabels: { app: "redis" } } },
      { ipBlock: { cidr: "10.2.0.0/16" } },
    ],
  },
  upstreams: { ports: [8080], to: [{ podSelector: { matchLabels: { app: "pets" } } }] },
};

/** Sets of values that together render everything that the chart can render. */
const variants: Readonly<Record<string, readonly Values[]>> = {
  "default values": [],
  staging: [`${chart}/values-staging.yaml`],
  production: [`${chart}/values-production.yaml`],
  "an Ingress": [routed, { ingress: { className: "public", tlsSecret: "petstore-tls", annotations: { a: "b" } } }],
  "other sources": [{ networkPolicy: { gatewayFrom: [{ ipBlock: { cidr: "10.1.0.0/16" } }], metricsFrom: [] } }],
  "other destinations": [{ networkPolicy: destinations }],
  "no TLS": [{ tls: { issuerRef: { name: "" } } }],
  "callers with roles": [
    { tls: { callers: { "spiffe://petstore/back-office": "admin", "dns:reports.internal": "reader" } } },
  ],
  "a private registry": [{ image: { registry: "registry.example:5000/a", tag: "1.2", pullSecrets: ["pull"] } }],
};

describe("the Helm chart", () => {
  const stack = suiteStack();
  const rendered = new Map<string, Manifest[]>();
  /** The files in a pod's folder /tls by the name of its Certificate, issued for the names in that Certificate. */
  const tlsFiles = new Map<string, TlsFiles>();
  let helm: Helm;
  const each = () => [...rendered.values()];

  beforeAll(async () => {
    helm = await openHelm(chart);
    stack.defer(() => helm.remove());
    for (const [name, values] of Object.entries(variants)) rendered.set(name, await helm.render(...values));
    const authority: Authority = await createAuthority(stack);
    for (const { metadata, spec } of all("production", "Certificate")) {
      const names = [
        ...spec.uris.map((uri: string) => `URI:${uri}`),
        ...(spec.dnsNames ?? []).map((n: string) => `DNS:${n}`),
      ];
      tlsFiles.set(metadata.name, await authority.issue({ names }));
    }
  });

  test.each(Object.entries(variants))("helm lint accepts the chart with %s", async (_, values) => {
    await helm.lint(...values);
  });

  test("the chart has the version of the sources", () => {
    const { version } = JSON.parse(readFileSync(new URL("../package.json", import.meta.url), "utf8"));
    const text = readFileSync(`${chart}/Chart.yaml`, "utf8");
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

  describe("references between objects", () => {
    const workloads = (manifests: Manifest[]) => manifests.filter(({ kind }) => /^(Deployment|Job)$/.test(kind));
    const selectedBy = (manifests: Manifest[], labels: Readonly<Record<string, string>>) =>
      workloads(manifests).filter(({ spec }) => isSubset(labels, spec.template.metadata.labels));
    const portNames = ({ spec }: Manifest) =>
      spec.template.spec.containers.flatMap((c: Container) => c.ports.map(({ name }) => name));

    test("every selector of the chart selects one workload", () => {
      for (const manifests of each()) {
        const selecting = manifests.flatMap((manifest): [string, Record<string, string>][] => {
          const { kind, spec } = manifest;
          const name = nameOf(manifest);
          if (kind === "Service") return [[name, spec.selector]];
          if (kind === "NetworkPolicy") return [[name, spec.podSelector.matchLabels]];
          if (/^(Deployment|PodDisruptionBudget|PodMonitor)$/.test(kind)) return [[name, spec.selector.matchLabels]];
          return [];
        });
        expect(selecting.length).toBeGreaterThanOrEqual(9);
        for (const [name, labels] of selecting) {
          const found = selectedBy(manifests, labels).map(
            ({ metadata }) => metadata.labels["app.kubernetes.io/component"],
          );
          expect([name, found]).toEqual([name, [labels["app.kubernetes.io/component"]]]);
        }
        for (const { spec } of manifests.filter(({ kind }) => kind === "Deployment")) {
          for (const { labelSelector } of spec.template.spec.topologySpreadConstraints) {
            expect(labelSelector).toEqual(spec.selector);
          }
        }
      }
    });

    test("every port name of the chart is one that a container has", () => {
      for (const manifests of each()) {
        for (const { kind, spec } of manifests) {
          if (kind === "Service") {
            const [workload] = selectedBy(manifests, spec.selector);
            for (const { targetPort } of spec.ports) expect(portNames(workload!)).toContain(targetPort);
          }
          if (kind === "PodMonitor") {
            const [workload] = selectedBy(manifests, spec.selector.matchLabels);
            for (const { port } of spec.podMetricsEndpoints) expect(portNames(workload!)).toContain(port);
          }
          if (kind === "NetworkPolicy" && spec.ingress) {
            const [workload] = selectedBy(manifests, spec.podSelector.matchLabels);
            for (const { port } of spec.ingress.flatMap((rule: Rule) => rule.ports)) {
              expect(portNames(workload!)).toContain(port);
            }
          }
          if (kind === "Deployment") {
            for (const { startupProbe, livenessProbe, readinessProbe } of spec.template.spec.containers) {
              for (const probe of [startupProbe, livenessProbe, readinessProbe])
                expect(probe.httpGet.port).toBe("admin");
            }
          }
        }
      }
    });

    test("the targets of scalers, the backends of routes and the ConfigMaps of pods exist", () => {
      const names = (manifests: Manifest[]) => manifests.map(nameOf);
      for (const manifests of each()) {
        for (const { kind, spec } of manifests) {
          if (kind === "HorizontalPodAutoscaler") {
            expect(names(manifests)).toContain(`${spec.scaleTargetRef.kind}/${spec.scaleTargetRef.name}`);
          }
          const backends =
            kind === "Ingress"
              ? spec.rules.map((rule: IngressRule) => rule.http.paths[0]!.backend.service)
              : kind === "HTTPRoute"
                ? spec.rules[0].backendRefs
                : [];
          for (const { name, port } of backends) {
            const service = manifests.find((manifest) => nameOf(manifest) === `Service/${name}`);
            expect(service?.spec.ports).toContainEqual(
              expect.objectContaining(typeof port === "number" ? { port } : port),
            );
          }
        }
        for (const { spec } of workloads(manifests)) {
          for (const { envFrom = [] } of spec.template.spec.containers) {
            for (const { configMapRef } of envFrom)
              expect(names(manifests)).toContain(`ConfigMap/${configMapRef.name}`);
          }
        }
      }
    });

    test("gateways connect to the headless Service, whose name resolves to the addresses of ready pods", () => {
      const service = all("production", "Service").find(({ spec }) => spec.clusterIP === "None")!;
      expect(service.spec.publishNotReadyAddresses).toBe(false);
      const { INVENTORY_ADDRESS } = environment("production", "gateway");
      expect(INVENTORY_ADDRESS).toBe(`dns:///${service.metadata.name}:${service.spec.ports[0].port}`);
      expect(service.spec.ports[0].port).toBe(
        Number(environment("production", "inventory-svc").INVENTORY_LISTEN!.split(":")[1]),
      );
    });

    test("certificates are mounted where the settings expect them, with names that the other tier accepts", () => {
      for (const tier of ["gateway", "inventory-svc"]) {
        const { volumes, containers } = deployment("production", tier).spec.template.spec;
        const certificate = all("production", "Certificate").find(
          ({ metadata }) => metadata.name === `petstore-${tier}`,
        )!;
        expect(volumes).toEqual([
          { name: "tls", secret: { secretName: certificate.spec.secretName, defaultMode: 0o440 } },
        ]);
        expect(containers[0].volumeMounts).toEqual([{ name: "tls", mountPath: "/tls", readOnly: true }]);
      }
      const [gateway, service] = all("production", "Certificate");
      const { INVENTORY_TLS_ROLES } = environment("production", "inventory-svc");
      expect(INVENTORY_TLS_ROLES).toBe(`${gateway!.spec.uris[0]}=writer`);
      const { GATEWAY_INVENTORY_TLS_SERVER_NAME } = environment("production", "gateway");
      expect(service!.spec.dnsNames).toContain(GATEWAY_INVENTORY_TLS_SERVER_NAME);
      expect(environment("callers with roles", "inventory-svc").INVENTORY_TLS_ROLES).toBe(
        `${INVENTORY_TLS_ROLES},dns:reports.internal=reader,spiffe://petstore/back-office=admin`,
      );
    });

    test("without an issuer no certificate is rendered, and INVENTORY_INSECURE is set", () => {
      expect(all("no TLS", "Certificate")).toEqual([]);
      expect(deployment("no TLS", "gateway").spec.template.spec.volumes).toBeUndefined();
      expect(environment("no TLS", "inventory-svc").INVENTORY_INSECURE).toBe("1");
      expect(environment("production", "inventory-svc").INVENTORY_INSECURE).toBe("0");
    });

    test("the hosts of routes are the hosts of the base addresses", async () => {
      expect(all("an Ingress", "Ingress")[0]!.spec.rules.map((rule: IngressRule) => rule.host)).toEqual([
        "petstore.example",
      ]);
      const servers = "https://petstore.example/v1, https://api.petstore.example:8443/shop/v1";
      const manifests = await helm.render(settings({ GATEWAY_SERVERS: servers }), {
        httpRoute: { parentRefs: [{ name: "public" }] },
      });
      expect(manifests.find(({ kind }) => kind === "HTTPRoute")!.spec.hostnames).toEqual([
        "petstore.example",
        "api.petstore.example",
      ]);
    });

    test("routes wait longer for an answer than a request may wait for a change", () => {
      const [ingress] = all("an Ingress", "Ingress");
      expect(ingress!.metadata.annotations).toEqual({
        a: "b",
        "nginx.ingress.kubernetes.io/proxy-read-timeout": "100", // seconds; the longest wait is 90
      });
      for (const variant of ["staging", "production"]) {
        const [route] = all(variant, "HTTPRoute");
        expect(route!.spec.rules.map(({ timeouts }: RouteRule) => timeouts)).toEqual([{ request: "0s" }]); // no limit
      }
    });
  });

  describe("pods", () => {
    test.each(["gateway", "inventory-svc"] as const)("%s accepts the settings of its pods", (tier) => {
      for (const variant of Object.keys(variants)) {
        const read = tier === "gateway" ? readGatewayConfig : readInventoryConfig;
        expect(() => read(environment(variant, tier))).not.toThrow();
      }
    });

    test.each(["gateway", "inventory-svc"] as const)("%s listens on the ports of its container", (tier) => {
      const [listen, admin] = Object.entries(environment("production", tier)).flatMap(([name, value]) =>
        name.endsWith("_LISTEN") ? [[name, Number(value!.split(":")[1])] as const] : [],
      );
      const ports = container("production", tier).ports.map(({ containerPort }) => containerPort);
      expect(listen![0]).not.toContain("ADMIN");
      expect([listen![1], admin![1]]).toEqual(ports);
    });

    test("the probes use paths that the admin port answers", async () => {
      const admin = await startAdmin({
        listen: { host: "127.0.0.1", port: 0 },
        metrics: new Registry(),
        ready: async () => [],
        log: pino({ level: "silent" }),
      });
      try {
        for (const { startupProbe, livenessProbe, readinessProbe } of [container("production", "gateway")]) {
          for (const probe of [startupProbe, livenessProbe, readinessProbe]) {
            const response = await fetch(`http://${admin.address}${probe.httpGet.path}`);
            expect([probe.httpGet.path, response.status]).toEqual([probe.httpGet.path, 200]);
          }
          expect(readinessProbe.httpGet.path).toBe("/readyz");
          expect(livenessProbe.httpGet.path).toBe("/livez");
        }
      } finally {
        await admin.close();
      }
    });

    test("every pod meets the restricted Pod Security Standard and has a read-only file system", () => {
      for (const manifests of each()) {
        const pods = manifests.flatMap(({ kind, spec }) =>
          /^(Deployment|Job)$/.test(kind) ? [spec.template.spec] : [],
        );
        expect(pods).toHaveLength(3);
        for (const pod of pods) {
          expect(pod).toMatchObject({
            automountServiceAccountToken: false,
            enableServiceLinks: false,
            securityContext: { runAsNonRoot: true, seccompProfile: { type: "RuntimeDefault" } },
          });
          for (const { securityContext, resources } of pod.containers) {
            expect(securityContext).toEqual({
              allowPrivilegeEscalation: false,
              readOnlyRootFilesystem: true,
              capabilities: { drop: ["ALL"] },
            });
            for (const bound of [resources.requests, resources.limits]) {
              expect(Object.keys(bound).sort()).toEqual(["cpu", "memory"]);
            }
          }
        }
      }
    });

    test("a pod starts before the one it replaces stops, and a stopping pod has time for its drain", () => {
      for (const tier of ["gateway", "inventory-svc"]) {
        const { spec } = deployment("production", tier);
        expect(spec.strategy.rollingUpdate).toEqual({ maxSurge: 1, maxUnavailable: 0 });
        const drainSeconds = Number(environment("production", tier).DRAIN_SECONDS);
        expect(spec.template.spec.terminationGracePeriodSeconds).toBeGreaterThan(drainSeconds);
        const budget = all("production", "PodDisruptionBudget").find(({ metadata }) => metadata.name.endsWith(tier))!;
        expect(budget.spec.maxUnavailable).toBe(1);
      }
    });

    test("each tier has at least three pods, or the number that the values fix", () => {
      const scalers = all("default values", "HorizontalPodAutoscaler");
      expect(scalers.map(({ spec }) => spec.minReplicas)).toEqual([3, 3]);
      // A number here would override the scaler at each upgrade.
      expect(deployment("default values", "gateway").spec.replicas).toBeUndefined();
      expect(all("staging", "HorizontalPodAutoscaler")).toEqual([]);
      expect(deployment("staging", "gateway").spec.replicas).toBe(2);
    });

    test.each<[string, string, ...Values[]]>([
      ["gateway", "3 to 5", "--set=gateway.replicas.max=5"],
      ["inventory-svc", "3", "--set=inventory-svc.replicas.max=3"],
      ["gateway", "2 to 4", `${chart}/values-staging.yaml`, "--set=gateway.replicas.max=4"],
    ])(
      "%s has %s replicas when the command line changes one number of the values",
      async (tier, expected, ...values) => {
        const manifests = await helm.render(...values);
        const spec = (kind: string) =>
          manifests.find((manifest) => nameOf(manifest) === `${kind}/petstore-${tier}`)?.spec;
        const scaler = spec("HorizontalPodAutoscaler");
        const { replicas } = spec("Deployment");
        expect(scaler ? `${scaler.minReplicas} to ${scaler.maxReplicas}` : `${replicas}`).toBe(expected);
        expect(replicas === undefined).toBe(scaler !== undefined);
      },
    );

    test("GATEWAY_REPLICAS is the largest number of gateways, so that shares never exceed the limits", () => {
      for (const variant of ["default values", "staging"]) {
        const scaler = all(variant, "HorizontalPodAutoscaler").find(({ metadata }) =>
          metadata.name.endsWith("gateway"),
        );
        const { spec } = deployment(variant, "gateway");
        const most = (scaler?.spec.maxReplicas ?? spec.replicas) + spec.strategy.rollingUpdate.maxSurge;
        expect(Number(environment(variant, "gateway").GATEWAY_REPLICAS)).toBe(most);
      }
    });

    test("pods are replaced when their settings change, and not otherwise", async () => {
      const sums = async (...values: Values[]) =>
        (await helm.render(...values))
          .filter(({ kind }) => kind === "Deployment")
          .map(({ spec }) => spec.template.metadata.annotations["checksum/settings"]);
      const [gateway, inventory] = await sums();
      expect(await sums({ migrate: { secret: "other" } })).toEqual([gateway, inventory]);
      const [otherGateway, sameInventory] = await sums(settings({ LOG_LEVEL: "warn" }));
      expect(otherGateway).not.toBe(gateway);
      expect(sameInventory).toBe(inventory);
    });
  });

  test("the chart has the tested rules, and its jobs have the names that the rules select", () => {
    const [rules] = all("production", "PrometheusRule");
    const jobs = all("production", "PodMonitor").map(({ spec }) => spec.selector.matchLabels[spec.jobLabel]);
    expect(jobs).toEqual(["gateway", "inventory-svc"]);
    expect(rules!.spec).toEqual(parse(readFileSync(rulesFile, "utf8")));
  });

  describe("the migration", () => {
    test("the migration runs before the pods of a version, with its own database account", () => {
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

  describe("network policies", () => {
    const policy = (tier: string, variant = "production") =>
      all(variant, "NetworkPolicy").find(({ metadata }) => metadata.name.endsWith(tier))!;
    /** Returns true when a pod with `labels` in the same namespace may connect to a tier's port. */
    const mayReach = (tier: string, port: string, labels: Record<string, string>) =>
      policy(tier).spec.ingress.some(
        (rule: Rule) =>
          rule.ports.some((open) => open.port === port) &&
          (rule.from === undefined ||
            rule.from.some(
              ({ podSelector, namespaceSelector }) =>
                podSelector && !namespaceSelector && isSubset(podSelector.matchLabels, labels),
            )),
      );
    const labelsOf = (tier: string) => deployment("production", tier).spec.template.metadata.labels;

    test("only gateways and labelled callers can reach gRPC, and no pod of the namespace reaches an admin port", () => {
      expect(mayReach("inventory-svc", "grpc", labelsOf("gateway"))).toBe(true);
      expect(mayReach("inventory-svc", "grpc", { "petstore-inventory/caller": "true" })).toBe(true);
      expect(mayReach("inventory-svc", "grpc", { app: "other" })).toBe(false);
      expect(mayReach("inventory-svc", "admin", labelsOf("gateway"))).toBe(false);
      expect(mayReach("gateway", "http", { app: "other" })).toBe(true);
      expect(mayReach("gateway", "admin", { app: "other" })).toBe(false);
    });

    test("a pod can connect only to what it uses", () => {
      const portsOut = (tier: string) =>
        policy(tier, "default values").spec.egress.flatMap((rule: Rule & { to: unknown[] }) => {
          expect(rule.to.length).toBeGreaterThan(0);
          return rule.ports.map(({ port }) => port);
        });
      expect(portsOut("gateway")).toEqual([53, 53, "grpc", 3306, 6379, 80, 443]);
      expect(portsOut("inventory-svc")).toEqual([53, 53, 3306]);
      expect(portsOut("migrate")).toEqual([53, 53, 3306]);
      for (const { spec } of all("production", "NetworkPolicy"))
        expect(spec.policyTypes).toEqual(["Ingress", "Egress"]);
    });

    test("pods can connect to the ports and peers of the values, and to DNS by UDP and TCP", () => {
      const { dns, database, redis, upstreams } = destinations;
      const names = {
        to: dns.to,
        ports: [
          { protocol: "UDP", port: 5353 },
          { protocol: "TCP", port: 5353 },
        ],
      };
      const out = ({ ports, to }: Destination) => ({ to, ports: ports.map((port) => ({ port })) });
      const egress = (tier: string) => policy(tier, "other destinations").spec.egress;
      const [first, second, ...others] = egress("gateway");
      expect(first).toEqual(names);
      expect(second.to).toEqual([{ podSelector: policy("inventory-svc").spec.podSelector }]);
      expect(others).toEqual([out(database), out(redis), out(upstreams)]);
      expect(egress("inventory-svc")).toEqual([names, out(database)]);
      expect(egress("migrate")).toEqual([names, out(database)]);
    });

    test("the example values allow the pods of their upstreams, at the ports that these pods listen on", () => {
      const { PETS_UPSTREAM_URL, ORDERS_UPSTREAM_URL } = environment("production", "gateway");
      for (const variant of ["production", "staging"]) {
        const { to, ports } = policy("gateway", variant).spec.egress.at(-1);
        expect(ports).toEqual([{ port: 8080 }]);
        expect(to).toEqual(
          [PETS_UPSTREAM_URL!, ORDERS_UPSTREAM_URL!].map((url) => {
            const [name, namespace] = new URL(url).hostname.split(".");
            return {
              namespaceSelector: { matchLabels: { "kubernetes.io/metadata.name": namespace } },
              podSelector: { matchLabels: { "app.kubernetes.io/name": name } },
            };
          }),
        );
      }
    });
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
      ["an unknown role", { tls: { callers: { "spiffe://petstore/back-office": "root" } } }, "callers"],
      ["a route without a host", { ingress: { className: "public" } }, "a route needs a host"],
    ])("helm rejects %s and names it", async (_, values, name) => {
      await expect(helm.render(values)).rejects.toThrow(new RegExp(`Error: [^]*\\b${name}\\b`));
    });
  });

  const all = (variant: string, kind: string) => rendered.get(variant)!.filter((manifest) => manifest.kind === kind);
  const deployment = (variant: string, tier: string) =>
    all(variant, "Deployment").find(({ metadata }) => metadata.name === `petstore-${tier}`)!;
  const container = (variant: string, tier: string): Container =>
    deployment(variant, tier).spec.template.spec.containers[0];

  /** Returns the environment of a tier's process, with made-up values for its secrets. */
  function environment(variant: string, tier: string): NodeJS.ProcessEnv {
    const { envFrom, env } = container(variant, tier);
    const settings = envFrom.map(({ configMapRef }) =>
      all(variant, "ConfigMap").find(({ metadata }) => metadata.name === configMapRef.name),
    );
    const data: Record<string, string> = Object.assign({}, ...settings.map((map) => map!.data));
    const files = tlsFiles.get(`petstore-${tier}`)!;
    const mounted: Record<string, string> = {
      "/tls/tls.crt": files.cert,
      "/tls/tls.key": files.key,
      "/tls/ca.crt": files.ca,
    };
    const secrets: Record<string, string> = {
      KEY_PEPPER: pepper,
      REDIS_URL: "redis://redis.example:6379",
      GATEWAY_DATABASE_URL: "mysql://u:p@db.example:3306/keys",
      INVENTORY_DATABASE_URL: "mysql://u:p@db.example:3306/stock",
    };
    return {
      ...Object.fromEntries(Object.entries(data).map(([name, value]) => [name, mounted[value] ?? value])),
      ...Object.fromEntries(env.map(({ name }) => [name, secrets[name]])),
    };
  }
});

interface Probe {
  readonly httpGet: { readonly path: string; readonly port: string };
}
interface Container {
  readonly ports: readonly { readonly name: string; readonly containerPort: number }[];
  readonly envFrom: readonly { readonly configMapRef: { readonly name: string } }[];
  readonly env: readonly { readonly name: string }[];
  readonly startupProbe: Probe;
  readonly livenessProbe: Probe;
  readonly readinessProbe: Probe;
}
interface Variable {
  readonly valueFrom: { readonly secretKeyRef: unknown };
}
interface Selector {
  readonly matchLabels: Readonly<Record<string, string>>;
}
interface Rule {
  readonly ports: readonly { readonly port: string | number }[];
  readonly from?: readonly { readonly podSelector?: Selector; readonly namespaceSelector?: Selector }[];
}
interface Destination {
  readonly ports: readonly number[];
  readonly to: readonly unknown[];
}
interface IngressRule {
  readonly host: string;
  readonly http: {
    readonly paths: readonly { readonly backend: { readonly service: { name: string; port: unknown } } }[];
  };
}

interface RouteRule {
  readonly timeouts?: { readonly request?: string; readonly backendRequest?: string };
}

function settings(some: Readonly<Record<string, unknown>>): object {
  return { gateway: { settings: some } };
}

function isSubset(some: Readonly<Record<string, string>>, all: Readonly<Record<string, string>>): boolean {
  return Object.entries(some).every(([name, value]) => all[name] === value);
}
