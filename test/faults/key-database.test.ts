import { setTimeout as delay } from "node:timers/promises";
import { expectError, header, readLimits } from "../support/answers.ts";
import { type DatabaseServer, startPrivateDatabaseServer } from "../support/database-server.ts";
import { type Response, request } from "../support/http.ts";
import { type RedisServer, startRedisServer } from "../support/redis-server.ts";
import { suiteStack } from "../support/stack.ts";
import { type System, startSystem } from "../support/system.ts";
import { until as untilTrue } from "../support/until.ts";

const second = 1_000;

describe("keys", () => {
  const stack = suiteStack();
  let database: DatabaseServer;
  let redis: RedisServer;
  let system: System;

  beforeAll(async () => {
    database = await startPrivateDatabaseServer();
    stack.defer(() => database.stop());
    redis = await startRedisServer();
    stack.defer(() => redis.stop());
    const shared = process.env.TEST_MYSQL_SERVER_URL;
    process.env.TEST_MYSQL_SERVER_URL = database.url("");
    system = await startSystem({
      database: "mysql",
      gateways: 2,
      gatewayEnv: { LOG_LEVEL: "fatal", REDIS_URL: redis.url, GATEWAY_REPLICAS: "2" },
      inventoryEnv: { LOG_LEVEL: "fatal" },
    });
    process.env.TEST_MYSQL_SERVER_URL = shared;
    stack.defer(() => system.close());
  });

  /** Requests a path that does not exist, so that the gateway answers alone: 404 for a valid key. */
  const use = (key: string, gateway = 0) =>
    request(system.gateways[gateway]!.listen, { path: "/v1/nothing", headers: { authorization: `Bearer ${key}` } });

  const until = (check: () => Promise<boolean>, withinMs: number) => untilTrue(check, { withinMs, everyMs: 50 });

  test.each([
    ["killed", "SIGKILL"],
    ["frozen", "SIGSTOP"],
  ] as const)(
    "with their database %s work for 8 s, then fail, and work again once it is back",
    async (_how, signal) => {
      const { key } = await system.issueKey({ plan: "enterprise" });
      expect((await use(key)).status).toBe(404);
      await database.kill(signal);
      const awayMs = Date.now();
      const asked: Promise<{ afterMs: number; tookMs: number; answer: Response }>[] = [];
      while (Date.now() - awayMs < 11 * second) {
        const afterMs = Date.now() - awayMs;
        asked.push(use(key).then((answer) => ({ afterMs, tookMs: Date.now() - awayMs - afterMs, answer })));
        await delay(100);
      }
      for (const { afterMs, tookMs, answer } of await Promise.all(asked)) {
        // The age of a look-up counts from its start, which was before the database went away.
        if (afterMs < 7 * second) expect({ afterMs, status: answer.status }).toEqual({ afterMs, status: 404 });
        if (afterMs >= 8 * second) expectError(answer, 503, "service_unavailable");
        if (answer.status === 503) {
          expect(header(answer, "Retry-After")).toBe("1");
          expect(readLimits(answer).limit).toBe(60); // the limit of the address: the account of the key is unknown
        }
        expect(tookMs).toBeLessThan(2.5 * second);
      }
      if (signal === "SIGKILL") await database.restart();
      else await database.kill("SIGCONT");
      await until(async () => (await use(key)).status === 404, 10 * second);
    },
  );

  test("that are revoked while Redis is down are refused within 10 s, without a notice", async () => {
    const { key, keyId } = await system.issueKey({ plan: "enterprise" });
    for (const gateway of [0, 1]) expect((await use(key, gateway)).status).toBe(404);
    await redis.kill("SIGKILL");
    const revoked = await system.runKeys("revoke", keyId);
    const revokedMs = Date.now();
    expect(revoked).toMatchObject({ code: 0, stderr: expect.stringContaining("up to 10 s") });
    await redis.restart();
    for (const gateway of [0, 1]) await until(async () => (await use(key, gateway)).status === 401, 10 * second);
    expect(Date.now() - revokedMs).toBeLessThan(10 * second);
  });

  test("that are revoked after Redis is back are refused within a second", async () => {
    const heard = async () => {
      const { key, keyId } = await system.issueKey({ plan: "enterprise" });
      for (const gateway of [0, 1]) expect((await use(key, gateway)).status).toBe(404);
      await system.runKeys("revoke", keyId);
      await delay(second);
      return (await use(key)).status === 401 && (await use(key, 1)).status === 401;
    };
    await until(heard, 10 * second);
    await redis.restart();
    await until(heard, 10 * second);
  });
});
