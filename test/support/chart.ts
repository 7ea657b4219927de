import { readFileSync } from "node:fs";
import { join } from "node:path";
import { parseAllDocuments } from "yaml";
import type { TlsFiles } from "../../runtime/tls-files.ts";
import { type Authority, createAuthority } from "./certificates.ts";
import { type Helm, type Manifest, openHelm, type Values } from "./helm.ts";
import { suiteStack } from "./stack.ts";

export const chartFolder = join(import.meta.dirname, "../../deploy/chart");
export const pepper = "0123456789abcdef0123456789abcdef";
const routed = settings({ GATEWAY_SERVERS: "https://petstore.example/v1" });

/** Ports and peers that all differ from the defaults. */
export const destinations = {
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

/** What operators may give to the pods of a tier besides. */
export const besides = {
  podAnnotations: { "example.com/inject": "false" },
  nodeSelector: { "example.com/pool": "petstore" },
  tolerations: [{ key: "example.com/pool", operator: "Exists", effect: "NoSchedule" }],
  affinity: {
    podAntiAffinity: {
      requiredDuringSchedulingIgnoredDuringExecution: [
        { topologyKey: "kubernetes.io/hostname", labelSelector: { matchLabels: { app: "batch" } } },
      ],
    },
  },
  priorityClassName: "important",
  extraEnv: [{ name: "OTEL_TRACES_EXPORTER", value: "otlp" }],
  extraVolumes: [{ name: "authorities", configMap: { name: "authorities" } }],
  extraVolumeMounts: [{ name: "authorities", mountPath: "/authorities", readOnly: true }],
};
export const digest = `sha256:${"0123456789abcdef".repeat(4)}`;

/** Sets of values that together render everything that the chart can render. */
export const variants: Readonly<Record<string, readonly Values[]>> = {
  "default values": [],
  staging: [`${chartFolder}/values-staging.yaml`],
  production: [`${chartFolder}/values-production.yaml`],
  "an Ingress": [routed, { ingress: { className: "public", tlsSecret: "petstore-tls", annotations: { a: "b" } } }],
  "other sources": [{ networkPolicy: { gatewayFrom: [{ ipBlock: { cidr: "10.1.0.0/16" } }], metricsFrom: [] } }],
  "other destinations": [{ networkPolicy: destinations }],
  "no TLS": [{ tls: { issuerRef: { name: "" } } }],
  "callers with roles": [
    { tls: { callers: { "spiffe://petstore/back-office": "admin", "dns:reports.internal": "reader" } } },
  ],
  "what pods get besides": [
    {
      gateway: besides,
      "inventory-svc": besides,
      migrate: besides,
      monitoring: { enabled: true, sources: "https://docs.example/" },
    },
  ],
  "what pods get besides, without TLS": [{ gateway: besides, tls: { issuerRef: { name: "" } } }],
  "images by digest": [{ image: { registry: "registry.example", digests: { gateway: digest, migrate: digest } } }],
  "a private registry": [{ image: { registry: "registry.example:5000/a", tag: "1.2", pullSecrets: ["pull"] } }],
};

/** Reads the objects that operators make by hand from docs/operations/kubernetes.md. */
export function documentedObjects(): Manifest[] {
  const text = readFileSync(join(chartFolder, "../../docs/operations/kubernetes.md"), "utf8");
  const files = text.matchAll(/^```yaml\n(.*?)^```/gms);
  return [...files].flatMap(([, file]) => parseAllDocuments(file!).map((document) => document.toJS()));
}

/** Returns the job that operators run commands with. */
export function commandJob(): Manifest {
  return documentedObjects().find(({ kind }) => kind === "Job")!;
}

/** Renders every variant of the chart before the tests of a suite. */
export function suiteChart() {
  const stack = suiteStack();
  const rendered = new Map<string, Manifest[]>();
  /** The files in a pod's folder /tls by the name of its Certificate, issued for the names in that Certificate. */
  const tlsFiles = new Map<string, TlsFiles>();
  let helm: Helm;
  const each = () => [...rendered.values()];
  beforeAll(async () => {
    helm = await openHelm(chartFolder);
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
  return { rendered, each, all, deployment, container, environment, helm: () => helm };
}

interface Probe {
  readonly httpGet: { readonly path: string; readonly port: string };
}
export interface Container {
  readonly ports: readonly { readonly name: string; readonly containerPort: number }[];
  readonly envFrom: readonly { readonly configMapRef: { readonly name: string } }[];
  readonly env: readonly { readonly name: string }[];
  readonly startupProbe: Probe;
  readonly livenessProbe: Probe;
  readonly readinessProbe: Probe;
}
export function settings(some: Readonly<Record<string, unknown>>): object {
  return { gateway: { settings: some } };
}
