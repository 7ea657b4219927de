import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { Redis } from "ioredis";
import { createAuthority } from "./certificates.ts";
import { freePort } from "./ports.ts";
import { type RedisServer, startRedisServer } from "./redis-server.ts";
import type { Stack } from "./stack.ts";
import { until } from "./until.ts";

const slots = 16_384;
const waitMs = 20_000;

/** Waits until Redis is in the state that the tests need. */
const eventually = (check: () => Promise<boolean>) => until(check, { withinMs: waitMs, everyMs: 20 });

export interface RedisCluster {
  /** Of all nodes, as the setting takes it. */
  readonly url: string;
  readonly nodes: readonly RedisServer[];
  /** Makes the replica of the first master the master, by plan. */
  failOver(): Promise<void>;
}

/** Starts a cluster of three masters, each with a third of the slots. */
export async function startRedisCluster(stack: Stack, { withReplicas = false } = {}): Promise<RedisCluster> {
  // A node that does not answer for a second counts as down. It joins again by the file that it keeps.
  const args = ["--cluster-enabled", "yes", "--cluster-node-timeout", "1000", "--repl-diskless-sync-delay", "0"];
  const nodes: RedisServer[] = [];
  for (let i = 0; i < (withReplicas ? 6 : 3); i++) {
    const node = await startRedisServer({ port: await freeClusterPort(), args });
    stack.defer(() => node.stop());
    nodes.push(node);
  }
  const clients = nodes.map(({ url }) => new Redis(url));
  stack.defer(() => {
    for (const client of clients) client.disconnect();
  });
  const masters = clients.slice(0, 3);
  for (const [i, client] of clients.entries()) {
    await client.call("CLUSTER", "SET-CONFIG-EPOCH", i + 1);
    if (i > 0) await client.call("CLUSTER", "MEET", "127.0.0.1", nodes[0]!.port);
  }
  for (const [i, client] of masters.entries()) {
    const from = Math.ceil((i * slots) / masters.length);
    const to = Math.ceil(((i + 1) * slots) / masters.length);
    await client.call("CLUSTER", "ADDSLOTS", ...Array.from({ length: to - from }, (_, slot) => from + slot));
  }
  const known = new RegExp(`cluster_state:ok[^]*cluster_known_nodes:${nodes.length}\\b`);
  await eventually(async () => {
    const infos = await Promise.all(clients.map((client) => client.call("CLUSTER", "INFO")));
    return infos.every((info) => known.test(`${info}`));
  });
  for (const [i, client] of clients.slice(3).entries()) {
    await client.call("CLUSTER", "REPLICATE", `${await masters[i]!.call("CLUSTER", "MYID")}`);
    await eventually(async () => /master_link_status:up/.test(await client.info("replication")));
  }
  return {
    url: nodes.map(({ url }) => url).join(","),
    nodes,
    failOver: async () => {
      await clients[3]!.call("CLUSTER", "FAILOVER");
      await becomesMaster(clients[3]!);
    },
  };
}

export interface RedisSentinel {
  /** As the setting takes it. */
  readonly url: string;
  /** The one that is master at first, and its replica. */
  readonly servers: readonly [RedisServer, RedisServer];
  /** Makes the replica the master, by plan. */
  failOver(): Promise<void>;
}

/** Starts a master, a replica, and a sentinel that promotes the replica half a second after the master has gone. */
export async function startRedisSentinel(stack: Stack, password: string): Promise<RedisSentinel> {
  const args = ["--requirepass", password, "--masterauth", password, "--repl-diskless-sync-delay", "0"];
  const master = await startRedisServer({ args });
  stack.defer(() => master.stop());
  const replica = await startRedisServer({ args: [...args, "--replicaof", "127.0.0.1", `${master.port}`] });
  stack.defer(() => replica.stop());
  const watcher = new Redis(replica.url, { password });
  stack.defer(() => watcher.disconnect());
  await eventually(async () => /master_link_status:up/.test(await watcher.info("replication")));

  const sentinel = await startRedisServer({
    readyText: "+monitor master",
    argsIn: async (folder, port) => {
      const file = join(folder, "sentinel.conf"); // the sentinel rewrites it
      const lines = [
        "bind 127.0.0.1",
        `port ${port}`,
        `dir ${folder}`,
        `requirepass ${password}`,
        `sentinel monitor shop 127.0.0.1 ${master.port} 1`,
        `sentinel auth-pass shop ${password}`,
        "sentinel down-after-milliseconds shop 500",
        "sentinel failover-timeout shop 2000",
      ];
      await writeFile(file, `${lines.join("\n")}\n`);
      return [file, "--sentinel"];
    },
  });
  stack.defer(() => sentinel.stop());
  const client = new Redis(sentinel.port, { password });
  await eventually(async () =>
    JSON.stringify(await client.call("SENTINEL", "replicas", "shop")).includes(`${replica.port}`),
  );
  stack.defer(() => client.disconnect());
  return {
    url: `sentinel://:${password}@127.0.0.1:${sentinel.port}/shop`,
    servers: [master, replica],
    failOver: async () => {
      await client.call("SENTINEL", "FAILOVER", "shop");
      await becomesMaster(watcher);
    },
  };
}

const becomesMaster = (client: Redis) =>
  eventually(async () => (await client.info("replication")).includes("role:master"));

export interface TlsRedis {
  /** With the host name, as the certificate is not for the address. */
  readonly url: string;
  /** Path of the certificate of the authority that signed the server's. */
  readonly ca: string;
  readonly server: RedisServer;
}

/** Starts a server that speaks only TLS, with a certificate that only clients with `ca` trust. */
export async function startTlsRedis(stack: Stack): Promise<TlsRedis> {
  const authority = await createAuthority(stack);
  const { ca, cert, key } = await authority.issue({ names: ["DNS:localhost"] });
  const port = await freePort();
  const server = await startRedisServer({
    port,
    args: [
      ...["--port", "0", "--tls-port", `${port}`, "--tls-auth-clients", "no"],
      ...["--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", ca],
    ],
  });
  stack.defer(() => server.stop());
  return { url: `rediss://localhost:${port}`, ca, server };
}

/** The nodes of a cluster talk to each other on the port 10,000 above, which must not be an ephemeral one either. */
async function freeClusterPort(): Promise<number> {
  for (;;) {
    const port = await freePort();
    if (port + 10_000 < 32_768) return port;
  }
}
