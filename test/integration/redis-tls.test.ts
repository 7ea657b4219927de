import { readFile } from "node:fs/promises";
import { setTimeout as delay } from "node:timers/promises";
import { Redis } from "ioredis";
import { readLimits } from "../support/answers.ts";
import { request } from "../support/http.ts";
import { startTlsRedis, type TlsRedis } from "../support/redis-deployments.ts";
import { until } from "../support/redis-replicas.ts";
import { suiteStack } from "../support/stack.ts";
import { type System, startSystem } from "../support/system.ts";

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
