import { Redis } from "ioredis";
import { Pool } from "undici";
import { scopes } from "../../gateway/accounts/keys/principal.ts";
import { LoopClock } from "../support/loop-clock.ts";
import { type RedisServer, startRedisServer } from "../support/redis-server.ts";
import { suiteStack } from "../support/stack.ts";
import { type System, startSystem } from "../support/system.ts";
import { until as untilTrue } from "../support/until.ts";

/** Waits longer than other tests, because each check sends requests. */
const until = (check: () => boolean | Promise<boolean>) => untilTrue(check, { withinMs: 12_000, everyMs: 20 });

/** How often all gateways can be asked in a second on an idle machine, with a pause between; a busy one gets longer. */
const roundsOfASecond = 40;

interface Answer {
  readonly status: number;
  readonly limit: number;
  readonly remaining: number;
  readonly code: string | undefined;
  readonly text: string;
  readonly tookMs: number;
}

describe("three gateways over one Redis", () => {
  const stack = suiteStack();
  let redis: RedisServer;
  let system: System;
  let pools: Pool[];
  const clock = new LoopClock();
  stack.use(clock);

  beforeAll(async () => {
    redis = await startRedisServer();
    stack.defer(() => redis.stop());
    system = await startSystem({
      gateways: 3,
      gatewayEnv: {
        REDIS_URL: redis.url,
        GATEWAY_REPLICAS: "3",
        LOG_LEVEL: "warn",
        BAN_LADDER_MINUTES: "1,2",
        KEY_ROTATION: "1",
      },
    });
    stack.defer(() => system.close());
    pools = system.gateways.map(({ listen }) => new Pool(`http://${listen}`, { connections: 64 }));
    stack.defer(async () => void (await Promise.all(pools.map((pool) => pool.close()))));
  });

  const get = (gateway: number, key: string, path = "/v1/inventory") => send(gateway, key, "GET", path);

  async function send(gateway: number, key: string, method: "GET" | "POST", path: string): Promise<Answer> {
    const startedMs = clock.nowMs;
    const { statusCode, headers, body } = await pools[gateway % 3]!.request({
      method,
      path,
      headers: { authorization: `Bearer ${key}` },
    });
    const text = await body.text();
    return {
      status: statusCode,
      limit: Number(headers["x-ratelimit-limit"]),
      remaining: Number(headers["x-ratelimit-remaining"]),
      code: statusCode < 300 ? undefined : (JSON.parse(text) as { code: string }).code,
      text,
      tookMs: clock.nowMs - startedMs,
    };
  }

  /** Sends requests to all gateways for about a second, until the answers of one round pass. */
  async function untilAll(key: string, passes: (answer: Answer) => boolean, path?: string): Promise<void> {
    let answers: Answer[] = [];
    for (let round = 0; round < roundsOfASecond; round++) {
      answers = await Promise.all([0, 1, 2].map((gateway) => get(gateway, key, path)));
      if (answers.every(passes)) return;
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    throw new Error(`after ${roundsOfASecond} rounds: ${JSON.stringify(answers)}`);
  }

  /** Is refused at each gateway, and waits for the time within which further refusals do not count. */
  async function beRefused(key: string): Promise<void> {
    for (const gateway of [0, 1, 2]) expect((await get(gateway, key)).status).toBe(429);
    const toldAtMs = Date.now();
    await until(() => Date.now() > toldAtMs + 1_000);
  }

  test("admit exactly 300 of a limit of 300 over 64 connections, each with its own remaining count", async () => {
    const { key } = await system.issueKey({ plan: "pro" });
    const answers: Answer[] = [];
    let sent = 0;
    await Promise.all(
      Array.from({ length: 64 }, async () => {
        while (sent < 900) answers.push(await get(sent++, key));
      }),
    );
    const passed = answers.filter(({ status }) => status === 200);
    expect(passed).toHaveLength(300);
    expect(new Set(passed.map(({ remaining }) => remaining)).size).toBe(300);
    expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([200, 429]));
  });

  test("lower the remaining count by one with each request, whichever of them answers", async () => {
    const { key } = await system.issueKey({ plan: "free" });
    const counts: number[] = [];
    for (let i = 0; i < 60; i++) counts.push((await get(i, key)).remaining);
    expect(counts).toEqual(Array.from({ length: 60 }, (_, i) => 59 - i));
  });

  test("show what is left of a limit without a charge, the same at all, 60 times a minute together", async () => {
    const { key } = await system.issueKey({ plan: "free" });
    for (let i = 0; i < 20; i++) await get(i, key);
    for (let i = 0; i < 60; i++) {
      const { status, remaining, text } = await get(i, key, "/v1/rate_limit");
      expect({ status, remaining }).toEqual({ status: 200, remaining: 40 });
      expect(JSON.parse(text).windows).toMatchObject([{ used: 20 }, { used: 20, remaining: 980 }]);
    }
    for (let i = 0; i < 33; i++) {
      expect(await get(i, key, "/v1/rate_limit")).toMatchObject({ status: 429, limit: 60, remaining: 0 });
    }
    const answers = await Promise.all(Array.from({ length: 50 }, (_, i) => get(i, key)));
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(40);
  });

  test("ask Redis little for what accounts may ask about themselves, and nothing beyond it", async () => {
    const admin = new Redis(redis.url);
    stack.defer(() => admin.disconnect());
    const commands = async () => {
      const calls = (await admin.info("commandstats")).matchAll(/cmdstat_(?!info|ping|publish)\S+:calls=(\d+)/g);
      return [...calls].reduce((sum, [, count]) => sum + Number(count), 0);
    };
    const { key } = await system.issueKey({ plan: "free" });
    const before = await commands();
    const statuses: number[] = [];
    for (let i = 0; i < 1_000; i++)
      statuses.push((await get(0, key, i % 2 === 0 ? "/v1/rate_limit" : "/v1/usage")).status);
    expect(statuses).toEqual([...Array(60).fill(200), ...Array(940).fill(429)]);
    expect((await commands()) - before).toBeLessThanOrEqual(60 * 7 + 10);
  });

  test("ban a key at all of them within a second of its refusals, and accept it after unban", async () => {
    const { key, keyId } = await system.issueKey({ plan: "enterprise", limits: { perMinute: 5, perDay: 1_000 } });
    for (let i = 0; i < 5; i++) expect((await get(i, key)).status).toBe(200);
    await beRefused(key);
    // Each gateway refuses about ten requests: only their sum leads to a ban.
    for (let i = 0; i < 33; i++) expect((await get(i, key)).status).toBe(429);
    await untilAll(key, ({ code }) => code === "api_key_banned");

    const { stdout } = await system.runKeys("bans", "--json");
    expect(JSON.parse(stdout)).toContainEqual(expect.objectContaining({ keyId, step: 1 }));
    expect((await system.runKeys("unban", keyId)).code).toBe(0);
    await untilAll(key, ({ code }) => code !== "api_key_banned");
  });

  test("ban a family's keys together, and end within a second what a rotation at one of them ends", async () => {
    const limits = { perMinute: 5, perDay: 1_000 };
    const { key } = await system.issueKey({ plan: "enterprise", limits, scopes });
    const rotate = async (gateway: number, old: string): Promise<string> => {
      const { status, text } = await send(gateway, old, "POST", "/v1/keys/rotate");
      expect(status).toBe(201);
      return JSON.parse(text).key;
    };
    const second = await rotate(0, key);
    for (const gateway of [0, 1, 2]) expect((await get(gateway, second, "/v1/rate_limit")).status).toBe(200);
    const third = await rotate(1, second);
    await untilAll(key, ({ status }) => status === 401, "/v1/rate_limit");
    for (const gateway of [0, 1, 2]) expect((await get(gateway, third, "/v1/rate_limit")).status).toBe(200);
    while ((await get(0, third)).status === 200);
    await beRefused(third);
    // Each key alone is refused too seldom, and so is each gateway alone.
    for (let i = 0; i < 33; i++) await get(i, i % 2 === 0 ? second : third);
    for (const each of [second, third]) await untilAll(each, ({ code }) => code === "api_key_banned");
  });

  test("all refuse a revoked key within a second", async () => {
    const { key, keyId } = await system.issueKey({ plan: "enterprise" });
    await untilAll(key, ({ status }) => status === 200);
    expect((await system.runKeys("revoke", keyId)).code).toBe(0);
    await untilAll(key, ({ status }) => status === 401);
  });

  test("all apply a changed plan within a second and keep the count", async () => {
    const { key, account } = await system.issueKey({ plan: "free" });
    for (let i = 0; i < 10; i++) await get(i, key);
    expect((await system.runKeys("plan", "--account", account, "--plan", "pro")).code).toBe(0);
    await untilAll(key, ({ remaining }) => remaining > 60 && remaining < 290);
  });

  test.each([
    ["killed", "SIGKILL"],
    ["frozen", "SIGSTOP"],
  ] as const)(
    "with Redis %s under load answer no request with 5xx or late, and then count exactly again",
    async (_how, signal) => {
      const { key } = await system.issueKey({ plan: "business" });
      const answers: Answer[] = [];
      const own: Answer[] = [];
      let isRunning = true;
      const load = Array.from({ length: 6 }, async (_, i) => {
        while (isRunning) {
          answers.push(await get(i, key));
          await new Promise((resolve) => setTimeout(resolve, 5));
        }
      });
      const warns = (text: string) => system.gateways.every(({ output }) => output().split(text).length > outputs);
      const outputs = system.gateways[0]!.output().split("Redis is away").length;
      await until(() => answers.length > 30);
      await redis.kill(signal);
      await until(() => warns("Redis is away"));
      for (let i = 0; i < 3; i++) own.push(await get(i, key, "/v1/rate_limit"));
      if (signal === "SIGSTOP") await redis.kill("SIGCONT");
      else await redis.restart();
      for (let i = 0; i < 3; i++) own.push(await get(i, key, "/v1/rate_limit"));
      const beforeRecovery = answers.length;
      await until(() => answers.length > beforeRecovery + 100);
      isRunning = false;
      await Promise.all(load);
      expect(own.map(({ status }) => status)).toEqual(Array(6).fill(200));
      expect(answers.filter(({ status }) => status >= 500)).toEqual([]);
      expect(Math.max(...[...answers, ...own].map(({ tookMs }) => tookMs))).toBeLessThan(1_000);

      // Exact again: what one gateway admits, the next one counts.
      await until(async () => {
        const fresh = (await system.issueKey({ plan: "free" })).key;
        const counts = [await get(0, fresh), await get(1, fresh), await get(2, fresh)].map(
          ({ remaining }) => remaining,
        );
        return counts.join() === "59,58,57";
      });
    },
  );

  test("are joined by one without Redis, which refuses a revoked key within 10 s", async () => {
    const lonely = await system.startGateway({ REDIS_URL: "" });
    const pool = new Pool(`http://${lonely.listen}`);
    stack.defer(() => pool.close());
    const { key, keyId } = await system.issueKey({ plan: "enterprise" });
    const status = async () => {
      const { statusCode, body } = await pool.request({
        method: "HEAD",
        path: "/v1/inventory",
        headers: { authorization: `Bearer ${key}` },
      });
      await body.dump();
      return statusCode;
    };
    expect(await status()).toBe(200);
    await system.runKeys("revoke", keyId);
    const revokedMs = Date.now();
    await until(async () => (await status()) === 401);
    expect(Date.now() - revokedMs).toBeLessThan(10_000);
  });
});
