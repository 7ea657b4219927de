import { Cluster, Redis, type RedisOptions } from "ioredis";

/** Longest wait for an answer of Redis, and for a connection. A caller waits for it once, then the breaker is open. */
const commandTimeoutMs = 200;
const connectTimeoutMs = 1_000;

/** In a cluster, how often and after how long a command is sent again whose node has just gone. */
const redirections = 3;
const redirectionDelayMs = 50;

/** How old the knowledge of a cluster's nodes gets. */
const nodesRefreshMs = 5_000;

const retryStrategy = (attempts: number) => Math.min(50 * attempts, 1_000);

const options = {
  commandTimeout: commandTimeoutMs,
  connectTimeout: connectTimeoutMs,
  // A connection whose other end is gone without a word (its machine, or a firewall's memory of it) would be kept for a
  // quarter of an hour, and the server that took its place never be found.
  socketTimeout: connectTimeoutMs,
  sentinelCommandTimeout: connectTimeoutMs,
  enableOfflineQueue: false,
  maxRetriesPerRequest: 0,
  retryStrategy,
  // A master that a failover has made a replica refuses writes: its name or its sentinels know the new one.
  reconnectOnError: ({ message }: Error) => message.startsWith("READONLY"),
} satisfies RedisOptions;

/** Where a URL of Redis leads. */
interface Target {
  readonly kind: "server" | "cluster" | "sentinel";
  readonly hosts: readonly { readonly host: string; readonly port: number }[];
  readonly tls: boolean;
  /** Of the master, for Sentinel. */
  readonly name: string;
  readonly username: string | undefined;
  readonly password: string | undefined;
  readonly db: number;
}

/** True for what `connectRedis` takes. */
export function isRedisUrl(text: string): boolean {
  try {
    return readTarget(text) !== undefined;
  } catch {
    return false;
  }
}

/**
 * Connects to Redis or Valkey. Nothing waits for the connection: a command that finds none fails at once.
 *
 * @param url `redis://` or `rediss://` (TLS) with `user:password@host:port/db`; several, parted by commas, for a
 *   cluster, all with the user and password of the first; `sentinel://user:password@host:port,host:port/name/db` for
 *   Sentinel, with the name of the master, and a password that the sentinels may ask for too
 */
export function connectRedis(url: string): Redis | Cluster {
  const target = readTarget(url);
  if (target === undefined) throw new TypeError("not a URL of Redis");
  const { kind, hosts, tls, name, username, password, db } = target;
  const account = { ...(username && { username }), ...(password && { password }), ...(tls && { tls: {} }) };
  switch (kind) {
    case "server":
      return new Redis({ ...options, ...hosts[0]!, ...account, db });
    case "sentinel": {
      // A server without a password takes any from its default user, so that the sentinels may have one or not.
      const sentinelPassword = username === undefined ? password : undefined;
      return new Redis({
        ...options,
        ...account,
        db,
        name,
        sentinels: [...hosts],
        ...(sentinelPassword && { sentinelPassword }),
      });
    }
    case "cluster":
      return new Cluster([...hosts], {
        redisOptions: { ...options, ...account },
        enableOfflineQueue: false,
        clusterRetryStrategy: retryStrategy,
        maxRedirections: redirections,
        retryDelayOnFailover: redirectionDelayMs,
        retryDelayOnClusterDown: 0, // it takes seconds, and what was given up is not to be done later
        slotsRefreshInterval: nodesRefreshMs,
        // Certificates are for names, not for what they resolve to.
        ...(tls && { dnsLookup: (address, done) => done(null, address) }),
      });
  }
}

/**
 * Resolves when Redis takes a write for what this key stands for. A PING tells less: a replica answers it, a full
 * server does, and in a cluster the nodes that are still there.
 */
export async function probe(redis: Redis | Cluster, key: string): Promise<void> {
  await redis.set(`petstore:probe:{${key}}`, "", "PX", 1_000); // in braces: of the same node
}

/** What may follow the hosts of each kind. */
const paths = {
  server: /^(?:\/(?<db>\d{0,4}))?$/,
  cluster: /^(?:\/0?)*$/,
  sentinel: /^(?:\/(?<name>[^/]*)(?:\/(?<db>\d{0,4}))?)?$/,
} as const;

const defaultPorts = { server: 6379, cluster: 6379, sentinel: 26379 } as const;

/** @returns undefined, or throws, for what is no URL of Redis */
function readTarget(text: string): Target | undefined {
  const isSentinel = text.startsWith("sentinel://");
  const urls = text.split(",").map((part, i) => new URL(isSentinel && i > 0 ? `sentinel://${part}` : part));
  const { protocol, username, password } = urls[0]!;
  const kind = isSentinel ? "sentinel" : urls.length > 1 ? "cluster" : "server";
  const path = paths[kind].exec(urls.map(({ pathname }) => pathname).join(""));
  const areAlike = urls.every(
    (url) => url.protocol === protocol && url.hostname !== "" && url.search + url.hash === "",
  );
  if (!areAlike || path === null || !/^(rediss?|sentinel):$/.test(protocol)) return undefined;
  return {
    kind,
    hosts: urls.map(({ hostname, port }) => ({
      host: hostname.replace(/^\[|\]$/g, ""),
      port: Number(port || defaultPorts[kind]),
    })),
    tls: protocol === "rediss:",
    name: decodeURIComponent(path.groups?.name || "mymaster"),
    username: decodeURIComponent(username) || undefined,
    password: decodeURIComponent(password) || undefined,
    db: Number(path.groups?.db || 0),
  };
}
