import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { connect, createServer } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import { Cluster, Redis } from "ioredis";
import { pino } from "pino";
import { Registry } from "prom-client";
import { AccountGuard, GuardMemory, keyedUpdateLimit } from "../../gateway/admission/account-guard.ts";
import { redisState, type SharedState } from "../../gateway/admission/shared-state.ts";
import { MemoryWindows } from "../../gateway/limits/memory-windows.ts";
import { quotaWindows } from "../../gateway/limits/plan-windows.ts";
import { newAccount } from "../support/accounts.ts";
import { readLimits } from "../support/answers.ts";
import { createSqliteDatabase, dropDatabase } from "../support/databases.ts";
import { request } from "../support/http.ts";
import { LoopClock } from "../support/loop-clock.ts";
import { freePort } from "../support/ports.ts";
import { runScript } from "../support/processes.ts";
import {
  type RedisCluster,
  startRedisCluster,
  startRedisSentinel,
  startTlsRedis,
  type TlsRedis,
} from "../support/redis-deployments.ts";
import { type RedisServer, startRedisServer } from "../support/redis-server.ts";
import { type Stack, suiteStack } from "../support/stack.ts";
import { type System, startSystem } from "../support/system.ts";
import { until as untilTrue } from "../support/until.ts";

const until = (check: () => Promise<boolean>, withinMs = 15_000) => untilTrue(check, { withinMs, everyMs: 20 });

const windows = quotaWindows({ perMinute: 50, perDay: 1_000 });
let names = 0;
const newName = () => `name-${++names}`;

/** The part of a gateway that uses Redis. */
interface Replica extends SharedState {
  /** The ids in the notices that it received. */
  readonly heard: string[];
  /** The messages that it logged. */
  readonly logged: string[];
  /** The reasons that it gave for what it logged. */
  readonly reasons: string[];
}

function startReplica(stack: Stack, url: string): Replica {
  const [heard, logged, reasons]: [string[], string[], string[]] = [[], [], []];
  const write = (line: string) => {
    const { msg, reason } = JSON.parse(line);
    logged.push(msg);
    if (reason !== undefined) reasons.push(reason);
  };
  const log = pino({ level: "info" }, { write });
  const memory = new MemoryWindows({ maxAccounts: 10_000, gateways: 2, now: Date.now });
  const limits = { memory, keyedUpdatesPerDay: 1_000, onRefused: () => {} };
  const state = redisState({ ...limits, redisUrl: url, gateways: 2, log, metrics: new Registry() });
  stack.defer(() => state.close());
  state.onNotice((id) => heard.push(id));
  return { ...state, heard, logged, reasons };
}

type Pair = readonly [Replica, Replica];

const ask = async (replica: Replica, caller: string) => replica.limiter.decide(caller, windows);

/** Sends 80 requests of each caller at once, half to each replica. @returns the number admitted of each caller */
async function admittedOf(pair: Pair, callers: readonly string[]): Promise<number[]> {
  const decisions = callers.map((caller) =>
    Promise.all(Array.from({ length: 80 }, (_, i) => ask(pair[i % 2]!, caller))),
  );
  return (await Promise.all(decisions)).map((each) => each.filter(({ admitted }) => admitted).length);
}

/** Whether each replica counts what the other admits, for enough callers to reach all nodes of a cluster. */
async function isExact([a, b]: Pair): Promise<boolean> {
  const left = await Promise.all(
    Array.from({ length: 20 }, async () => {
      const caller = newAccount();
      const states = [await ask(a, caller), await ask(b, caller), await ask(a, caller)];
      return states.map((decision) => decision.windows[0]!.remaining).join();
    }),
  );
  return left.every((each) => each === "49,48,47");
}

async function areNoticesSent([a, b]: Pair): Promise<boolean> {
  const id = newName();
  a.notify(id);
  for (let i = 0; i < 50 && !b.heard.includes(id); i++) await delay(10);
  return b.heard.includes(id);
}

async function isBack(pair: Pair): Promise<boolean> {
  return (await isExact(pair)) && (await areNoticesSent(pair));
}

/** What the guard of accounts leaves 20 accounts that ask once at each replica. */
async function guardLeaves(pair: Pair): Promise<string[]> {
  const ask = async (replica: Replica, id: string) =>
    (await replica.guards.ownAccount.charge(id)).windows[0]!.remaining;
  return await Promise.all(
    Array.from({ length: 20 }, async () => {
      const id = newName();
      return `${await ask(pair[0], id)},${await ask(pair[1], id)}`;
    }),
  );
}

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
    const callers = Array.from({ length: 30 }, () => newAccount());
    expect(await admittedOf(opened.pair, callers)).toEqual(Array(30).fill(50));
    expect(await admittedOf(opened.pair, callers)).toEqual(Array(30).fill(0));
  });

  test("Redis has one guard for what an account asks about itself at either replica", async () => {
    expect(await guardLeaves(opened.pair)).toEqual(Array(20).fill("59,58"));
  });

  test("Redis carries the notices of each replica to both", async () => {
    const { pair } = opened;
    const ids = [newName(), newName()];
    pair[0].notify(ids[0]!);
    pair[1].notify(ids[1]!);
    await until(async () => pair.every(({ heard }) => ids.every((id) => heard.includes(id))));
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
    const keyIds = Array.from({ length: 30 }, newName);
    const refusals = new Map(keyIds.map((keyId) => [keyId, 11]));
    for (const [replica, found] of [
      [0, []],
      [1, []],
      [0, keyIds],
      [1, []], // it has begun again
    ] as const) {
      expect(await pair[replica].shareRefusals!(refusals, 30)).toEqual(found);
    }
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
    expect(await guardLeaves(pair)).toEqual(Array(20).fill("59,58"));
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
    expect((await ask(replica, newAccount())).windows[0]!.remaining).toBe(24); // half of the limit, less this request
    expect(replica.logged).toEqual(["Redis is away: this replica admits its share of the limits"]);
    await stack.disposeAsync();
  });
});

test("a guard on Redis charges nothing for what it refuses, and a smaller request passes", async () => {
  await using stack = new AsyncDisposableStack();
  const server = await startRedisServer();
  stack.defer(() => server.stop());
  const replicas = [startReplica(stack, server.url), startReplica(stack, server.url)];
  for (const replica of replicas) await until(() => isCounting(replica));
  const id = newName();
  const charge = async (replica: number, cost: number) => {
    const { admitted, windows: of } = await replicas[replica]!.guards.keyedUpdates.charge(id, cost);
    return [admitted, of[0]!.remaining];
  };
  expect(await charge(0, 600)).toEqual([true, 400]);
  for (const replica of [0, 1]) expect(await charge(replica, 600)).toEqual([false, 0]);
  expect(await charge(1, 399)).toEqual([true, 1]);
  expect(await charge(0, 2)).toEqual([false, 0]);
  expect(await charge(0, 1)).toEqual([true, 0]);
  for (const replica of [0, 1]) expect(await charge(replica, 1)).toEqual([false, 0]);
});

test.each(["redis", "memory"])(
  "large requests that a guard on %s refuses keep out no small ones meanwhile",
  async (kind) => {
    await using stack = new AsyncDisposableStack();
    const server = await startRedisServer();
    stack.defer(() => server.stop());
    const replica = startReplica(stack, server.url);
    await until(() => isCounting(replica));
    const alone = new AccountGuard(new GuardMemory(keyedUpdateLimit(1_000)), () => {});
    const guard = kind === "redis" ? replica.guards.keyedUpdates : alone;
    const id = newName();
    await guard.charge(id, 950);
    const costs = Array.from({ length: 70 }, (_, i) => (i % 7 === 3 ? 1 : 100));
    const decisions = await Promise.all(costs.map((cost) => guard.charge(id, cost)));
    expect(decisions.map(({ admitted }) => admitted)).toEqual(costs.map((cost) => cost === 1));
  },
);

test("a Redis that went away while nobody asked is logged with what its address answers now", async () => {
  await using stack = new AsyncDisposableStack();
  const server = await startRedisServer();
  stack.defer(() => server.stop());
  const replica = startReplica(stack, server.url);
  await until(async () => (await ask(replica, newAccount())).windows[0]!.remaining === 49);
  replica.reasons.length = 0;
  await server.kill("SIGKILL");
  await delay(500); // time to be refused a new connection
  await ask(replica, newAccount());
  expect(replica.reasons).toEqual([expect.stringContaining("ECONNREFUSED")]);
});

test("a Redis that loses its data twice has the counts again before a new gateway is asked", async () => {
  await using stack = new AsyncDisposableStack();
  const server = await startRedisServer();
  stack.defer(() => server.stop());
  const replicas = Array.from({ length: 3 }, () => startReplica(stack, server.url));
  const caller = newAccount();
  const few = quotaWindows({ perMinute: 1_000, perDay: 12 });
  const admitted: number[] = [];
  for (const { limiter } of replicas) {
    await until(async () => (await limiter.peek(caller, few)).windows[1]!.remaining === 12 - (admitted[0] ?? 0));
    const decisions = await Promise.all(Array.from({ length: 16 }, () => limiter.decide(caller, few)));
    admitted.push(decisions.filter((decision) => decision.admitted).length);
    await server.restart();
    await until(() => isCountedBy(server, caller));
  }
  expect(admitted).toEqual([12, 0, 0]);
});

test("a frozen Redis delays all that use it by one time-out, and after that nothing", async () => {
  await using stack = new AsyncDisposableStack();
  const server = await startRedisServer();
  stack.defer(() => server.stop());
  const replica = startReplica(stack, server.url);
  const { limiter, guards, shareRefusals } = replica;
  await until(() => isCounting(replica));
  const useAll = () => [
    Promise.resolve(limiter.decide(newAccount(), windows)),
    Promise.resolve(limiter.peek(newAccount(), windows)),
    guards.ownAccount.charge(newName()),
    guards.rotations.charge(newName()),
    guards.keyedUpdates.charge(newName(), 100),
    shareRefusals!(new Map([[newName(), 1]]), 30),
  ];
  await server.kill("SIGSTOP");
  const waiting = useAll();
  await delay(150);
  const later = useAll();
  await Promise.race(waiting);
  const turns = async () => {
    for (let turn = 0; turn < 20; turn++) await new Promise(setImmediate);
    return "waits";
  };
  const all = Promise.all([...waiting, ...later, ...useAll()]);
  expect(await Promise.race([all, turns()])).not.toBe("waits");
  replica.notify("not sent");
  await server.kill("SIGCONT");
  await until(async () => (await isCounting(replica)) && (await areNoticesSent([replica, replica])));
});

/** Whether the counts of a replica reach Redis. */
async function isCounting(replica: Replica): Promise<boolean> {
  return (await ask(replica, newAccount())).windows[0]!.remaining === 49;
}

/** Whether a server has the counts of a caller. */
async function isCountedBy({ url }: RedisServer, caller: string): Promise<boolean> {
  const client = new Redis(url);
  const found = await client.exists(`petstore:counts:1:${caller}`);
  client.disconnect();
  return found === 1;
}

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
    const share = opened.pair[0].shareRefusals!;
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
    for (let i = 0; i < 10; i++) {
      expect(await isExact(pair)).toBe(true);
      await delay(50);
    }
    expect(
      await admittedOf(
        pair,
        Array.from({ length: 10 }, () => newAccount()),
      ),
    ).toEqual(Array(10).fill(50));
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

describe("a Redis with TLS", () => {
  const stack = suiteStack();
  let tls: TlsRedis;
  let system: System;
  let admin: Redis;

  beforeAll(async () => {
    tls = await startTlsRedis(stack);
    admin = new Redis(tls.url, { tls: { ca: await readFile(tls.ca, "utf8") } });
    stack.defer(() => admin.disconnect());
    system = await startSystem({
      gateways: 2,
      gatewayEnv: { REDIS_URL: tls.url, GATEWAY_REPLICAS: "2", NODE_EXTRA_CA_CERTS: tls.ca },
    });
    stack.defer(() => system.close());
  });

  const get = (gateway: number, key: string) =>
    request(system.gateways[gateway % 2]!.listen, {
      path: "/v1/inventory",
      headers: { authorization: `Bearer ${key}` },
    });
  const counts = async () => {
    const { key } = await system.issueKey({ plan: "free" });
    return [readLimits(await get(0, key)).remaining, readLimits(await get(1, key)).remaining].join();
  };

  test("a certificate of a private authority is trusted by both gateways with NODE_EXTRA_CA_CERTS", async () => {
    await until(async () => (await counts()) === "59,58");
    const { key } = await system.issueKey({ plan: "enterprise", limits: { perMinute: 50, perDay: 1_000 } });
    const answers = await Promise.all(Array.from({ length: 80 }, (_, i) => get(i, key)));
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(50);
  });

  test("carries the notice of a revocation by the command line", async () => {
    const { key, keyId } = await system.issueKey();
    for (const gateway of [0, 1]) expect((await get(gateway, key)).status).toBe(200);
    expect(await system.runKeys("revoke", keyId)).toMatchObject({ code: 0, stderr: "" });
    await until(async () => (await get(0, key)).status === 401 && (await get(1, key)).status === 401, 2_000);
  });

  test("is not trusted without NODE_EXTRA_CA_CERTS: the gateway logs it and admits its share", async () => {
    const stranger = await system.startGateway({ NODE_EXTRA_CA_CERTS: "" });
    const { key } = await system.issueKey({ plan: "free" });
    const headers = { authorization: `Bearer ${key}` };
    const answer = await request(stranger.listen, { path: "/v1/inventory", headers });
    expect(answer.status).toBe(200);
    expect(readLimits(answer).remaining).toBe(29);
    expect(stranger.output()).toContain("Redis is away");
    await stranger.stop();
  });

  test("still counts while it refuses notices, and carries them again once it accepts them", async () => {
    await admin.call("ACL", "SETUSER", "default", "resetchannels");
    await admin.call("CLIENT", "KILL", "TYPE", "pubsub");
    await delay(1_500);
    expect(await counts()).toBe("59,58");
    await admin.call("ACL", "SETUSER", "default", "allchannels");
    await until(async () => {
      const reply = await admin.call("PUBSUB", "NUMSUB", "petstore:keys");
      return (reply as [string, number])[1] === 2;
    });
    for (const gateway of system.gateways) expect(gateway.output()).not.toMatch(/unhandled/i);
  });
});
