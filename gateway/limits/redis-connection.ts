/** Connects to Redis or Valkey: one server, a cluster, or servers behind Sentinel. */
import { once } from "node:events";
import { Cluster, Redis, type RedisOptions } from "ioredis";
import { inTime } from "../../runtime/event-loop.ts";
import { answerTimeoutMs, redisInTime } from "./redis-breaker.ts";

const connectTimeoutMs = 1_000;

/** In a cluster, how often and after what time a command is sent again when its node has just left. */
const redirections = 3;
const redirectionDelayMs = 50;

/** Time after which the list of a cluster's nodes is read again. */
const nodesRefreshMs = 5_000;

const retryStrategy = (attempts: number) => Math.min(50 * attempts, 1_000);

const options = {
  commandTimeout: connectTimeoutMs,
  connectTimeout: connectTimeoutMs,
  // Without it, a connection whose other end has silently gone (a lost machine, an entry that a firewall has dropped)
  // would be kept for a quarter of an hour, and the server that took its place would not be found.
  socketTimeout: connectTimeoutMs,
  sentinelCommandTimeout: connectTimeoutMs,
  enableOfflineQueue: false,
  maxRetriesPerRequest: 0,
  retryStrategy,
  // A failover has made this master a replica, which refuses writes. A new connection finds the new master.
  reconnectOnError: ({ message }: Error) => message.startsWith("READONLY"),
} satisfies RedisOptions;

/** The servers and the credentials that a URL of Redis names. */
interface Target {
  readonly kind: "server" | "cluster" | "sentinel";
  readonly hosts: readonly { readonly host: string; readonly port: number }[];
  readonly tls: boolean;
  /** The name of the master, for Sentinel. */
  readonly name: string;
  readonly username: string | undefined;
  readonly password: string | undefined;
  readonly db: number;
}

/**
 * Connects to Redis or Valkey. Nothing waits for the connection: a command without one fails at once.
 *
 * @param url `redis://` or `rediss://` (TLS) with `user:password@host:port/db`; several comma-separated ones for a
 *   cluster, all with the user and password of the first; `sentinel://user:password@host:port,host:port/name/db` for
 *   Sentinel, with the name of the master. Without a user the sentinels get the password, too
 * @throws TypeError for any other text
 */
export function connectRedis(url: string): Redis | Cluster {
  const target = readTarget(url);
  if (target === undefined) throw new TypeError("not a Redis URL");
  const { kind, hosts, tls, name, username, password, db } = target;
  const account = { ...(username && { username }), ...(password && { password }), ...(tls && { tls: {} }) };
  switch (kind) {
    case "server":
      return new Redis({ ...options, ...hosts[0]!, ...account, db });
    case "sentinel": {
      // Sentinels without a password accept any from their default user, so they may have one or not.
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
        // A cluster that is down stays down for seconds, and a command that was given up must not run later.
        retryDelayOnClusterDown: 0,
        slotsRefreshInterval: nodesRefreshMs,
        slotsRefreshTimeout: answerTimeoutMs, // otherwise a frozen node holds up the search for the new master
        // Certificates name hosts, not the addresses that they resolve to.
        ...(tls && { dnsLookup: (address, done) => done(null, address) }),
      });
  }
}

/** True for a URL that `connectRedis` takes. */
export function isRedisUrl(text: string): boolean {
  try {
    return readTarget(text) !== undefined;
  } catch {
    return false;
  }
}

/**
 * Resolves when the node of this key takes a write. A PING would prove less: replicas, full servers and the remaining
 * nodes of a cluster answer it too.
 */
export async function probe(redis: Redis | Cluster, key: string): Promise<void> {
  await redisInTime(redis.set(`petstore:probe:{${key}}`, "", "PX", 1_000)); // the braces put it on the same node
}

/** The longest wait for a first connection: the connection to a sentinel, and then to the master. */
const firstConnectionMs = 2 * connectTimeoutMs;

/** Resolves when a new connection takes a write; rejects with the first reason why it cannot be made. */
export async function firstAnswer(redis: Redis | Cluster): Promise<void> {
  const ready = once(redis, "ready"); // which rejects at "error"
  await inTime(ready, firstConnectionMs, () => new Error(`no connection within ${firstConnectionMs} ms`));
  await probe(redis, "start");
}

/** What may follow the hosts, for each kind. */
const paths = {
  server: /^(?:\/(?<db>\d{0,4}))?$/,
  cluster: /^(?:\/0?)*$/,
  sentinel: /^(?:\/(?<name>[^/]*)(?:\/(?<db>\d{0,4}))?)?$/,
} as const;

const defaultPorts = { server: 6379, cluster: 6379, sentinel: 26379 } as const;

/** Reads a URL of Redis. For any other text it returns undefined or throws. */
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
