import { once } from "node:events";
import { connect, createServer } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import { Cluster, Redis } from "ioredis";
import { newAccount } from "../support/accounts.ts";
import { createSqliteDatabase, dropDatabase } from "../support/databases.ts";
import { LoopClock } from "../support/loop-clock.ts";
import { freePort } from "../support/ports.ts";
import { runScript } from "../support/processes.ts";
import { type RedisCluster, startRedisCluster, startRedisSentinel } from "../support/redis-deployments.ts";
import {
  admittedOf,
  areNoticesSent,
  ask,
  guardLeaves,
  isBack,
  isExact,
  newName,
  type Pair,
  startReplica,
  until,
  whileNear,
} from "../support/redis-replicas.ts";
import { type RedisServer, startRedisServer } from "../support/redis-server.ts";
import { type Stack, suiteStack } from "../support/stack.ts";

/** Declares the tests that hold for every kind of Redis. */
function actAsOne(start: (stack: Stack) => Promise<{ readonly url: string }>): { readonly pair: Pair } {
  const stack = suiteStack();
  const opened = {} as { url: string; pair: Pair };
  beforeAll(async () => {
    const { url } = await start(stack);
    opened.url = url;
    opened.pair = [startReplica(stack, url), startReplica(stack, url)];
    await until(() => isBack(opened.pair));
  });

  test("Redis lets two replicas admit exactly the limit of each of 30 callers", async () => {
    const admitted = await whileNear(opened.pair, async () => {
      const callers = Array.from({ length: 30 }, () => newAccount());
      return [await admittedOf(opened.pair, callers), await admittedOf(opened.pair, callers)];
    });
    expect(admitted).toEqual([Array(30).fill(50), Array(30).fill(0)]);
  });

  test("Redis has one guard for what an account asks about itself at either replica", async () => {
    const left = await whileNear(opened.pair, () => guardLeaves(opened.pair));
    expect(left).toEqual(Array(20).fill("59,58"));
  });

  test("Redis carries the notices of each replica to both", async () => {
    await until(() => areNoticesSent(opened.pair)); // repeated, as one that Redis gets too late is lost
  });

  test("Redis carries the notices of the command line to both replicas", async () => {
    const databaseUrl = await createSqliteDatabase();
    stack.defer(() => dropDatabase(databaseUrl));
    const env = { GATEWAY_DATABASE_URL: databaseUrl, KEY_PEPPER: "k".repeat(32), REDIS_URL: opened.url };
    const keys = (...args: string[]) => runScript({ script: "gateway/accounts/cli/keys.ts", args, env });
    const { keyId } = JSON.parse((await keys("issue", "--account", "acme", "--json")).stdout);
    expect(await keys("revoke", keyId)).toMatchObject({ code: 0, stderr: "" });
    await until(async () => opened.pair.every(({ heard }) => heard.includes(keyId)));
  });

  test("Redis adds up the refusals at both replicas, for many keys at once", async () => {
    const { pair } = opened;
    const found = await whileNear(pair, async () => {
      const keyIds = Array.from({ length: 30 }, newName);
      const refusals = new Map(keyIds.map((keyId) => [keyId, 11]));
      const counts: number[] = [];
      for (const replica of [0, 1, 0, 1] as const) {
        counts.push((await pair[replica].shareStrikes!(refusals, 30)).length);
      }
      return counts;
    });
    expect(found).toEqual([0, 0, 30, 0]); // after the third they begin again
  });

  return opened;
}

describe("a Redis with a password and a database number", () => {
  const password = "p@ss/w:rd%,";
  let server: RedisServer;
  let admin: Redis;
  const opened = actAsOne(async (stack) => {
    server = await startRedisServer({ args: ["--requirepass", password] });
    stack.defer(() => server.stop());
    admin = new Redis(server.port, { password });
    stack.defer(() => admin.disconnect());
    return { url: `redis://:${encodeURIComponent(password)}@127.0.0.1:${server.port}/3` };
  });

  test("everything is in the database of that number, under keys that all expire", async () => {
    await ask(opened.pair[0], newAccount());
    expect(await admin.info("keyspace")).toMatch(/^# Keyspace\r\ndb3:keys=(\d+),expires=\1,/);
  });

  test("a Redis with a password works for a user that has only the rights that a gateway needs", async () => {
    const stack = new AsyncDisposableStack();
    const rules = ["on", `>${password}`, "~petstore:*", "&petstore:*", "-@all"];
    const commands = ["hello", "info", "select", "client", "ping", "time", "get", "set", "incrby", "expire", "pttl"];
    const scripts = ["hmget", "hset", "del", "pexpire", "eval", "evalsha", "publish", "subscribe"];
    await admin.call("ACL", "SETUSER", "gate", ...rules, ...[...commands, ...scripts].map((name) => `+${name}`));
    const url = `redis://gate:${encodeURIComponent(password)}@127.0.0.1:${server.port}/3`;
    const pair: Pair = [startReplica(stack, url), startReplica(stack, url)];
    await until(() => isBack(pair));
    expect(await whileNear(pair, () => guardLeaves(pair))).toEqual(Array(20).fill("59,58"));
    await stack.disposeAsync();
  });

  test("a guard of an account admits at each of two replicas half of its limit while Redis is away", async () => {
    const stack = new AsyncDisposableStack();
    const { guards } = startReplica(stack, `redis://:wrong@127.0.0.1:${server.port}/3`);
    const id = newName();
    let admitted = 0;
    for (let i = 0; i < 70; i++) if ((await guards.ownAccount.charge(id)).admitted) admitted += 1;
    await stack.disposeAsync();
    expect(admitted).toBe(30);
  });

  test("a Redis with a password counts as away when it refuses the password", async () => {
    const stack = new AsyncDisposableStack();
    const replica = startReplica(stack, `redis://:wrong@127.0.0.1:${server.port}/3`);
    expect((await ask(replica, newAccount())).states[0]!.remaining).toBe(24); // half of the limit, less this request
    expect(replica.logged).toEqual(["Redis is away: this replica admits its share of the limits"]);
    await stack.disposeAsync();
  });
});

describe("a Redis behind a name", () => {
  const stack = suiteStack();

  test("a name that leads to another server is looked up again when the old one refuses writes", async () => {
    const [first, second] = [await startRedisServer(), await startRedisServer()];
    for (const server of [first, second]) stack.defer(() => server.stop());
    let port = first.port;
    const name = createServer((socket) => {
      const upstream = connect(port, "127.0.0.1");
      for (const end of [socket, upstream]) end.on("error", () => {});
      socket.pipe(upstream).pipe(socket);
    });
    const url = `redis://127.0.0.1:${await freePort()}`;
    await once(name.listen(Number(new URL(url).port), "127.0.0.1"), "listening");
    stack.defer(() => void name.close());
    const pair: Pair = [startReplica(stack, url), startReplica(stack, url)];
    await until(() => isBack(pair));

    port = second.port; // for new connections
    const admin = new Redis(first.url);
    stack.defer(() => admin.disconnect());
    await admin.replicaof("127.0.0.1", second.port);
    await until(() => isExact(pair));
    const counted = new Redis(second.url);
    stack.defer(() => counted.disconnect());
    expect(await counted.dbsize()).toBeGreaterThanOrEqual(20);
  });
});

describe("a Redis Cluster of three masters", () => {
  let cluster: RedisCluster;
  const opened = actAsOne(async (stack) => {
    cluster = await startRedisCluster(stack);
    return cluster;
  });

  const counted = async ({ url }: RedisServer) => {
    const client = new Redis(url);
    const size = await client.dbsize();
    client.disconnect();
    return size;
  };

  test("a Redis Cluster spreads the counts over all of its nodes", async () => {
    await admittedOf(
      opened.pair,
      Array.from({ length: 30 }, () => newAccount()),
    );
    for (const node of cluster.nodes) expect(await counted(node)).toBeGreaterThan(0);
  });

  test("a Redis Cluster is found through any of its nodes", async () => {
    const stack = new AsyncDisposableStack();
    const one = `${cluster.nodes[2]!.url},redis://127.0.0.1:1`;
    const pair: Pair = [startReplica(stack, one), opened.pair[1]];
    await until(() => isBack(pair));
    await stack.disposeAsync();
  });

  test("a cluster that cannot add up the refusals of one key names the others with too many", async () => {
    const share = opened.pair[0].shareStrikes!;
    const keyIds = Array.from({ length: 30 }, newName);
    const broken = newName();
    const client = new Cluster([{ host: "127.0.0.1", port: cluster.nodes[0]!.port }]);
    await client.lpush(`petstore:refused:${broken}`, "no text, which the script needs");
    await client.quit();
    expect(await share(new Map([broken, ...keyIds].map((keyId) => [keyId, 30])), 30)).toEqual(keyIds);
    await until(() => isBack(opened.pair)); // the failed command has made Redis count as away
  });

  test.each([
    ["killed", "SIGKILL"],
    ["frozen", "SIGSTOP"],
  ] as const)(
    "a cluster with a node %s leaves no request undecided, and counts exactly once it is back",
    async (_how, signal) => {
      const { pair } = opened;
      const node = cluster.nodes[1]!;
      for (const { logged } of pair) logged.length = 0;
      await node.kill(signal);
      const { longestMs, admitted } = await underLoad(pair, async () => {
        await until(async () => pair.every(({ logged }) => logged.length > 0));
        await delay(2_000); // time for the cluster to notice
      });
      expect(longestMs).toBeLessThan(1_000);
      expect(Math.max(...admitted)).toBeLessThanOrEqual(100);
      // The whole cluster counts as away while one node is away, so that no further request waits for that node.
      for (const { logged } of pair)
        expect(logged).toEqual(["Redis is away: this replica admits its share of the limits"]);
      if (signal === "SIGKILL") await node.restart();
      else await node.kill("SIGCONT");
      await until(() => isBack(pair));
    },
  );
});

describe("a Redis behind Sentinel", () => {
  actAsOne((stack) => startRedisSentinel(stack, "secret"));
});

describe.each([
  ["killed", "SIGKILL"],
  ["frozen", "SIGSTOP"],
] as const)("a Redis behind Sentinel whose master is %s", (_how, signal) => {
  const stack = suiteStack();

  test("the other server counts while the master is away, and even after the first one is back", async () => {
    const { url, servers } = await startRedisSentinel(stack, "secret");
    const [master, replica] = servers;
    const pair: Pair = [startReplica(stack, url), startReplica(stack, url)];
    await until(() => isBack(pair));
    await master.kill(signal);
    const { longestMs, admitted } = await underLoad(pair, () =>
      until(async () => (await roleOf(replica)) === "master"),
    );
    expect(longestMs).toBeLessThan(1_000);
    expect(Math.max(...admitted)).toBeLessThanOrEqual(100);
    await until(() => isBack(pair));
    if (signal === "SIGKILL") await master.restart();
    else await master.kill("SIGCONT");
    const exactness = await whileNear(pair, async () => {
      const exact: boolean[] = [];
      for (let i = 0; i < 10; i++) {
        exact.push(await isExact(pair));
        await delay(50);
      }
      return exact;
    });
    expect(exactness).toEqual(Array(10).fill(true));
  });

  async function roleOf({ port }: RedisServer): Promise<string | undefined> {
    const client = new Redis(port, { password: "secret" });
    const role = /role:(\w+)/.exec(await client.info("replication"))?.[1];
    client.disconnect();
    return role;
  }
});

/**
 * Sends requests of 30 callers until `disturb` is over.
 * @returns the number of admitted requests of each caller, and the longest wait
 */
async function underLoad(pair: Pair, disturb: () => Promise<void>) {
  const callers = Array.from({ length: 30 }, () => newAccount());
  const admitted = callers.map(() => 0);
  using clock = new LoopClock();
  let longestMs = 0;
  let isRunning = true;
  const load = (async () => {
    for (let turn = 0; isRunning; turn++) {
      const burst = callers.map(async (caller, i) => {
        const startedMs = clock.nowMs;
        if ((await ask(pair[(turn + i) % 2]!, caller)).admitted) admitted[i]! += 1;
        longestMs = Math.max(longestMs, clock.nowMs - startedMs);
      });
      await Promise.all([...burst, delay(10)]);
    }
  })();
  await disturb();
  isRunning = false;
  await load;
  return { admitted, longestMs };
}
