import { Cluster, type ClusterOptions, Redis, type RedisOptions } from "ioredis";

/** Longest wait for an answer of Redis, and for a connection. A caller waits for it once, then the breaker is open. */
const commandTimeoutMs = 200;
const connectTimeoutMs = 1_000;

const options = {
  commandTimeout: commandTimeoutMs,
  connectTimeout: connectTimeoutMs,
  enableOfflineQueue: false,
  maxRetriesPerRequest: 0,
  retryStrategy: (attempts: number) => Math.min(50 * attempts, 1_000),
} satisfies RedisOptions;

const clusterOptions = {
  redisOptions: options,
  enableOfflineQueue: false,
  clusterRetryStrategy: options.retryStrategy,
} satisfies ClusterOptions;

/** True for what `connectRedis` takes. */
export function isRedisUrl(text: string): boolean {
  return text.split(",").every((part, i) => {
    const isFollowing = i > 0 && text.startsWith("sentinel://");
    const url = isFollowing ? `redis://${part}` : part;
    return URL.canParse(url) && /^(rediss?|sentinel):$/.test(new URL(url).protocol);
  });
}

/**
 * Connects to Redis or Valkey. Nothing waits for the connection: a command that finds none fails at once.
 *
 * @param url `redis://` or `rediss://` (TLS) with `user:password@host:port/db`; several, parted by commas, for a
 *   cluster; `sentinel://host:port,host:port/name-of-the-master` for Sentinel
 */
export function connectRedis(url: string): Redis | Cluster {
  if (url.startsWith("sentinel://")) return connectSentinel(url);
  const urls = url.split(",");
  if (urls.length === 1) return new Redis(url, options);
  const { username, password, protocol } = new URL(urls[0]!);
  return new Cluster(urls, {
    ...clusterOptions,
    redisOptions: {
      ...options,
      ...(username && { username: decodeURIComponent(username) }),
      ...(password && { password: decodeURIComponent(password) }),
      ...(protocol === "rediss:" && { tls: {} }),
    },
  });
}

function connectSentinel(url: string): Redis {
  const [, credentials, hosts = "", name = "mymaster"] =
    /^sentinel:\/\/(?:([^@]*)@)?([^/]*)(?:\/(.*))?$/.exec(url) ?? [];
  const [username, password] = (credentials ?? "").split(":").map(decodeURIComponent);
  return new Redis({
    ...options,
    name,
    sentinels: hosts.split(",").map((host) => {
      const { hostname, port } = new URL(`redis://${host}`);
      return { host: hostname, port: Number(port || 26379) };
    }),
    ...(username && { username }),
    ...(password && { password }),
  });
}
