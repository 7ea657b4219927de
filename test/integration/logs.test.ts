import { openDatabase } from "../../runtime/database/open.ts";
import { type RawResponse, rawRequest, request } from "../support/http.ts";
import { madeUpKey } from "../support/made-keys.ts";
import { suiteStack } from "../support/stack.ts";
import { type System, startSystem } from "../support/system.ts";
import { until } from "../support/until.ts";

describe("the logs of both tiers", () => {
  const stack = suiteStack();
  let system: System;
  beforeAll(async () => {
    system = await startSystem({
      seed: [{ petId: 1n, quantity: 1, status: "available" }],
      gatewayEnv: { LOG_LEVEL: "trace", ADDRESS_GUARD_PER_MINUTE: "1000" },
      inventoryEnv: { LOG_LEVEL: "trace" },
    });
    stack.defer(() => system.close());
  });

  const output = () => `${system.gateways[0]!.output()}\n${system.inventory.output()}`;
  /** Waits for the gateway's line about a request. */
  async function lineOf(requestId: string): Promise<Record<string, unknown>> {
    const lines = () =>
      output()
        .split("\n")
        .filter((line) => line.includes(`"requestId":"${requestId}"`));
    await until(() => lines().some((line) => /"msg":"request( malformed)?"/.test(line)));
    const found = lines().filter((line) => /"msg":"request( malformed)?"/.test(line));
    expect(found).toHaveLength(1);
    return JSON.parse(found[0]!);
  }
  const idOf = (headers: RawResponse["headers"] | Record<string, unknown>) => String(headers["x-request-id"]);

  test("have one JSON line for each request, with the ids of its account and key", async () => {
    const { key, keyId } = await system.issueKey({ plan: "pro" });
    const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" };
    const body = JSON.stringify({ quantity: 3 });
    const updated = await request(system.address, { path: "/v1/inventory/1", method: "PATCH", headers, body });
    expect(await lineOf(idOf(updated.headers))).toMatchObject({
      name: "gateway",
      level: "info",
      time: expect.stringMatching(/^\d{4}-\d\d-\d\dT/),
      method: "PATCH",
      route: "updateInventory",
      status: 200,
      whole: true,
      durationMs: expect.any(Number),
      account: expect.stringMatching(/^acc_/),
      keyId,
    });
    const missing = await request(system.address, { path: "/v1/inventory/404", headers });
    expect(await lineOf(idOf(missing.headers))).toMatchObject({ status: 404, code: "not_found", keyId });
  });

  test("have a line for a request that is refused before any handler", async () => {
    for (const [bytes, status, code] of [
      ["nonsense\r\n\r\n", 400, "invalid_request"],
      ["GET /v1/inventory HTTP/1.1\r\n\r\n", 400, "invalid_request"],
      ["CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n", 405, "method_not_allowed"],
      [`GET / HTTP/1.1\r\nHost: a\r\nX-Long: ${"x".repeat(17_000)}\r\n\r\n`, 431, "payload_too_large"],
    ] as const) {
      const response = await rawRequest(system.address, bytes);
      expect(await lineOf(idOf(response.headers))).toMatchObject({ level: "info", status, code });
    }
    const { text } = await request(system.adminAddress, { path: "/metrics" });
    for (const line of ['{status="400"} 2', '{status="405"} 1', '{status="431"} 1']) {
      expect(text).toContain(`gateway_malformed_requests_total${line}`);
    }
  });

  test("never contain a key, however it was sent", async () => {
    const good = system.keys.business;
    const unknown = madeUpKey();
    const wrong = `${good.slice(0, -1)}${good.endsWith("0") ? "1" : "0"}`;
    const keys = [good, unknown, wrong];
    let last = "";
    for (const key of keys) {
      for (const authorization of [`Bearer ${key}`, `bearer  ${key}`, key, `Basic ${key}`, `Bearer ${key} ${key}`]) {
        await request(system.address, { path: "/v1/pets/1", headers: { authorization } });
      }
      const headers = { authorization: `Bearer ${key}`, "x-api-key": key, "x-request-id": key, cookie: key };
      for (const path of [
        `/v1/inventory?key=${key}`,
        `/v1/inventory/${key}`,
        `/v1/pets/${key}`,
        `/v1/${key}`,
        `/${key}`,
      ]) {
        const body = `{"quantity": "${key}"`;
        await request(system.address, { path, headers });
        await request(system.address, { path, headers, method: "PATCH", body });
      }
      const twice = `Authorization: Bearer ${key}\r\n`.repeat(2);
      await rawRequest(system.address, `GET /v1/inventory HTTP/1.1\r\nHost: a\r\n${twice}Connection: close\r\n\r\n`);
      await rawRequest(system.address, `GET /v1/inventory HTTP/1.1\r\nAuthorization: Bearer ${key}\r\n\r\n`);
      await rawRequest(system.address, `GET /v1/inventory HTTP/1.1\r\nHost: a\r\nBad Header ${key}\r\n\r\n`);
      last = idOf((await rawRequest(system.address, `${key}\r\n\r\n`)).headers);
    }
    await lineOf(last);
    for (const key of keys) {
      const [, , secret] = key.split("_") as [string, string, string];
      expect(output()).not.toContain(secret.slice(0, -6));
    }
  });
});

test("bans that cannot be stored share a line of the log each second", async () => {
  await using stack = new AsyncDisposableStack();
  const system = await startSystem({ gatewayEnv: { BAN_REFUSALS_PER_MINUTE: "1" } });
  stack.defer(() => system.close());
  const limits = { perMinute: 1, perDay: 1_000 };
  const keys = await Promise.all(Array.from({ length: 20 }, () => system.issueKey({ plan: "enterprise", limits })));
  const askAll = () =>
    Promise.all(
      keys.map(async ({ key }) => {
        const answer = await request(system.address, {
          path: "/v1/inventory",
          headers: { authorization: `Bearer ${key}` },
        });
        return answer.status;
      }),
    );
  expect(await askAll()).toEqual(Array(20).fill(200));
  const db = openDatabase(system.gatewayEnv.GATEWAY_DATABASE_URL!);
  stack.defer(() => db.destroy());
  await db.schema.renameTable("api_keys", "api_keys_away");
  expect(await askAll()).toEqual(Array(20).fill(429));
  const counts = () => {
    const lines = system.gateways[0]!.output().split("\n");
    return lines.filter((line) => line.includes("a ban could not be stored")).map((line) => JSON.parse(line).count);
  };
  await until(() => counts().reduce((sum, count) => sum + count, 0) >= 20);
  expect(counts().length).toBeLessThan(20);
});
