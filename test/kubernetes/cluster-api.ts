/** Asks the API of a Kubernetes cluster. */
import { readFile } from "node:fs/promises";
import { setTimeout as delay } from "node:timers/promises";
import { Agent, request } from "undici";

/** What a client of the API has to know. */
export interface ClusterAccess {
  readonly url: string;
  /** Path of the certificate of the authority. */
  readonly ca: string;
  /** Of the account that asks. */
  readonly token: string;
}

/** An object of the cluster. Only its head is typed. */
export interface ClusterObject {
  readonly metadata: {
    readonly name: string;
    readonly namespace: string;
    readonly uid: string;
    readonly resourceVersion: string;
    readonly labels: Readonly<Record<string, string>>;
    readonly annotations?: Readonly<Record<string, string>>;
    readonly deletionTimestamp?: string;
  };
  // biome-ignore lint/suspicious/noExplicitAny: a tree of any shape
  readonly [part: string]: any;
}

export interface ClusterApi extends ClusterAccess {
  /** @returns undefined when there is no such object */
  get(path: string): Promise<ClusterObject | undefined>;
  list(path: string): Promise<ClusterObject[]>;
  /** Makes the object of a path, or changes the parts of it that were made here before. */
  apply(path: string, object: object): Promise<void>;
  /** @throws Error with the status of a refusal */
  create(path: string, object: object): Promise<ClusterObject>;
  /** Merges a change into an object (RFC 7396). It does nothing to an object that is gone. */
  merge(path: string, change: object): Promise<void>;
  remove(path: string, options?: object): Promise<void>;
  /** Calls back for each object of a list, and then for each change, until the stack ends. */
  watch(path: string, onChange: (object: ClusterObject, isGone: boolean) => void): Promise<void>;
}

export async function openClusterApi(stack: AsyncDisposableStack, access: ClusterAccess): Promise<ClusterApi> {
  const dispatcher = new Agent({ connect: { ca: await readFile(access.ca) }, bodyTimeout: 0 });
  const ended = new AbortController();
  stack.defer(async () => {
    ended.abort();
    await dispatcher.destroy();
  });
  const send = (method: "GET" | "POST" | "PATCH" | "DELETE", path: string, body?: object, type = "json") =>
    request(`${access.url}${path}`, {
      method,
      dispatcher,
      signal: ended.signal,
      headers: { authorization: `Bearer ${access.token}`, "content-type": `application/${type}` },
      body: body === undefined ? null : JSON.stringify(body),
    });
  // biome-ignore lint/suspicious/noExplicitAny: a tree of any shape
  const ask = async (...args: Parameters<typeof send>): Promise<any> => {
    const { statusCode, body } = await send(...args);
    const answer = await body.json();
    if (statusCode === 404) return undefined;
    if (statusCode >= 300) throw new Error(`${args[0]} ${args[1]}: ${statusCode} ${JSON.stringify(answer)}`);
    return answer;
  };

  /** @returns the version from which a watch has to go on */
  async function follow(path: string, from: string, onEvent: (object: ClusterObject, isGone: boolean) => void) {
    const { statusCode, body } = await send("GET", `${path}?watch=1&resourceVersion=${from}`);
    let rest = "";
    let version = from;
    body.setEncoding("utf8");
    for await (const chunk of body) {
      const lines = (rest + chunk).split("\n");
      rest = lines.pop()!;
      for (const { type, object } of lines.map((line) => JSON.parse(line))) {
        if (type === "ERROR") throw new Error(`GET ${path}: ${object.message}`);
        version = object.metadata.resourceVersion;
        onEvent(object, type === "DELETED");
      }
    }
    if (statusCode !== 200) throw new Error(`GET ${path}: ${statusCode} ${rest}`);
    return version;
  }

  return {
    ...access,
    get: (path) => ask("GET", path),
    list: async (path) => (await ask("GET", path)).items,
    apply: async (path, object) => {
      await ask("PATCH", `${path}?fieldManager=tests&force=true`, object, "apply-patch+yaml"); // JSON is YAML
    },
    create: (path, object) => ask("POST", path, object),
    merge: async (path, change) => void (await ask("PATCH", path, change, "merge-patch+json")),
    remove: async (path, options) => void (await ask("DELETE", path, options)),
    watch: async (path, onChange) => {
      const { items, metadata } = await ask("GET", path);
      for (const item of items) onChange(item, false);
      const goOn = async () => {
        // A server ends a watch after some minutes.
        for (let version = metadata.resourceVersion; !ended.signal.aborted; await delay(10)) {
          version = await follow(path, version, onChange);
        }
      };
      goOn().catch((error) => {
        if (!ended.signal.aborted) throw error;
      });
    },
  };
}
