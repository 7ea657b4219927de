import { type Container, commandJob, destinations, settings, suiteChart } from "../test/support/chart.ts";
import type { Manifest } from "../test/support/helm.ts";
import { nameOf } from "../test/support/kubernetes.ts";

describe("network of the chart", () => {
  const { each, all, deployment, environment, helm } = suiteChart();

  describe("references between objects", () => {
    const workloads = (manifests: Manifest[]) =>
      [...manifests, commandJob()].filter(({ kind }) => /^(Deployment|Job)$/.test(kind));
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
            ({ spec }) => spec.template.metadata.labels["app.kubernetes.io/component"],
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

    test("gateways connect to the headless Service, whose name has the addresses of ready pods", () => {
      const service = all("production", "Service").find(({ spec }) => spec.clusterIP === "None")!;
      expect(service.spec.publishNotReadyAddresses).toBe(false);
      const { INVENTORY_ADDRESS } = environment("production", "gateway");
      expect(INVENTORY_ADDRESS).toBe(`dns:///${service.metadata.name}:${service.spec.ports[0].port}`);
      expect(service.spec.ports[0].port).toBe(
        Number(environment("production", "inventory-svc").INVENTORY_LISTEN!.split(":")[1]),
      );
    });

    test("certificates are where the settings expect them, with names that the other tier accepts", () => {
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
      const manifests = await helm().render(settings({ GATEWAY_SERVERS: servers }), {
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

    test("only gateways and labelled callers reach gRPC, and no pod of the namespace an admin port", () => {
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
      expect(portsOut("command")).toEqual([53, 53, 3306, 6379]);
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
      expect(egress("command")).toEqual([names, out(database), out(redis)]);
    });

    test("the example values allow the pods of their upstreams, at the ports of these pods", () => {
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
});

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

function isSubset(some: Readonly<Record<string, string>>, all: Readonly<Record<string, string>>): boolean {
  return Object.entries(some).every(([name, value]) => all[name] === value);
}
