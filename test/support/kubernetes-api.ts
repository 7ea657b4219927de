import { createServer, type IncomingMessage } from "node:http";
import { text } from "node:stream/consumers";
import { parse } from "yaml";
import { listenOn } from "../../runtime/admin.ts";
import type { Manifest } from "./helm.ts";

type Stored = Manifest & { metadata: { namespace: string; uid: string; resourceVersion: string } };

/** What Helm does to the objects of a cluster, without anything that acts on them. */
export interface KubernetesApi {
  readonly url: string;
  get(kind: string, name: string): Stored;
  /** Makes an object, or merges a change into it, as an operator or a controller would. */
  apply(kind: string, name: string, change: object): void;
}

/** The kinds of the chart, by the path of their API. */
const kinds: Readonly<Record<string, readonly string[]>> = {
  "api/v1": ["ConfigMap", "Service", "Secret", "Pod"],
  "apis/apps/v1": ["Deployment"],
  "apis/autoscaling/v2": ["HorizontalPodAutoscaler"],
  "apis/policy/v1": ["PodDisruptionBudget"],
  "apis/networking.k8s.io/v1": ["NetworkPolicy"],
  "apis/batch/v1": ["Job"],
};

const pluralOf = (kind: string) => `${kind.toLowerCase().replace(/y$/, "ie")}s`;
const kindOf = new Map(Object.values(kinds).flatMap((all) => all.map((kind) => [pluralOf(kind), kind] as const)));

/**
 * Serves the part of a Kubernetes API by which Helm keeps its releases and the objects of a chart. It stores what it is
 * given and merges patches, which is the same as a strategic merge for all but lists. No controller runs behind it: no
 * pods, no autoscaler, no defaults and no admission.
 */
export async function startKubernetesApi(stack: AsyncDisposableStack): Promise<KubernetesApi> {
  const objects = new Map<string, Stored>();
  let versions = 0;
  const keyOf = (kind: string, name: string) => `${kind}/${name}`;
  const store = (kind: string, object: Manifest) => {
    const key = keyOf(kind, object.metadata.name);
    const uid = objects.get(key)?.metadata.uid ?? `uid-${versions}`;
    const metadata = { ...object.metadata, namespace: "default", uid, resourceVersion: String(++versions) };
    const stored: Stored = { ...object, metadata };
    objects.set(key, stored);
    return stored;
  };

  const answer = async (request: IncomingMessage): Promise<object | undefined> => {
    const { pathname, searchParams } = new URL(request.url!, "http://api");
    const path = pathname.slice(1);
    const found = discover(path);
    if (found) return found;
    const [, plural = "", name] = /\/namespaces\/default\/(\w+)(?:\/(.+))?$/.exec(path) ?? [];
    const kind = kindOf.get(plural);
    if (kind === undefined) return undefined;
    const stored = name === undefined ? undefined : objects.get(keyOf(kind, name));
    switch (request.method) {
      case "POST":
      case "PUT":
        return store(kind, parse(await text(request)));
      case "PATCH":
        return store(kind, merged(stored, parse(await text(request))) as Manifest);
      case "DELETE":
        objects.delete(keyOf(kind, name!));
        return stored;
      default:
        if (name !== undefined) return stored;
        return {
          kind: `${kind}List`,
          apiVersion: "v1",
          items: [...objects].flatMap(([key, object]) => {
            return key.startsWith(`${kind}/`) && hasLabels(object, searchParams.get("labelSelector")) ? object : [];
          }),
        };
    }
  };

  const server = createServer(async (request, response) => {
    const body = await answer(request);
    const missing = { kind: "Status", apiVersion: "v1", status: "Failure", reason: "NotFound", code: 404 };
    response.writeHead(body ? 200 : 404, { "content-type": "application/json" }).end(JSON.stringify(body ?? missing));
  });
  const url = `http://${await listenOn(server, { host: "127.0.0.1", port: 0 })}`;
  stack.defer(() => {
    server.close();
    server.closeAllConnections();
  });
  return {
    url,
    get: (kind, name) => objects.get(keyOf(kind, name))!,
    apply: (kind, name, change) => {
      const before = objects.get(keyOf(kind, name)) ?? { apiVersion: "v1", kind, metadata: { name } };
      store(kind, merged(before, change) as Manifest);
    },
  };
}

/** What the API says of itself. @returns undefined for the path of an object */
function discover(path: string): object | undefined {
  if (path === "version") return { major: "1", minor: "31", gitVersion: "v1.31.0" };
  if (path === "api") return { kind: "APIVersions", versions: ["v1"] };
  if (path === "apis") {
    const groups = Object.keys(kinds).flatMap((each) => {
      const [, name, version] = /^apis\/(.+)\/(.+)$/.exec(each) ?? [];
      if (name === undefined) return [];
      const only = { groupVersion: `${name}/${version}`, version };
      return { name, versions: [only], preferredVersion: only };
    });
    return { kind: "APIGroupList", apiVersion: "v1", groups };
  }
  const known = kinds[path];
  if (!known) return undefined;
  return {
    kind: "APIResourceList",
    apiVersion: "v1",
    groupVersion: path.replace(/^apis?\//, ""),
    resources: known.map((kind) => ({
      kind,
      name: pluralOf(kind),
      singularName: kind.toLowerCase(),
      namespaced: true,
      verbs: ["create", "delete", "get", "list", "patch", "update"],
    })),
  };
}

function hasLabels({ metadata }: Stored, selector: string | null): boolean {
  const wanted = (selector ?? "").split(",").filter((each) => each !== "");
  return wanted.every((each) => {
    const [name = "", value] = each.split("=");
    return metadata.labels?.[name] === value;
  });
}

/** Merges a change into a value, as RFC 7396 says: null removes a member. */
function merged(value: unknown, change: unknown): unknown {
  if (typeof change !== "object" || change === null || Array.isArray(change)) return change;
  const result: Record<string, unknown> = { ...Object(value) };
  for (const [name, part] of Object.entries(change)) {
    if (part === null) delete result[name];
    else result[name] = merged(result[name], part);
  }
  return result;
}
