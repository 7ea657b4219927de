import { once } from "node:events";
import { createServer, type IncomingMessage, request, type ServerResponse } from "node:http";
import { text } from "node:stream/consumers";
import { listenOn } from "../../runtime/admin.ts";
import { callApi } from "../support/api.ts";
import { type LocalGateway, startLocalGateway, TestClock } from "../support/local-gateway.ts";
import { connectMysql } from "../support/mysql-client.ts";
import { suiteStack } from "../support/stack.ts";
import { type System, startSystem } from "../support/system.ts";
import { until } from "../support/until.ts";

const stack = suiteStack();

test.each([
  ["a PATCH", "PATCH", "/v1/inventory/1", '{"quantity":7}'],
  ["many updates", "POST", "/v1/inventory/updates", '[{"petId":1,"quantity":7}]'],
  ["a rotation", "POST", "/v1/keys/rotate", "[]"], // whose body would be refused
])(
  "%s of a key that was revoked before its body arrived is 401 and changes nothing",
  async (_what, method, path, body) => {
    const system = await startSystem({ gateways: 0, seed: [{ petId: 1n, quantity: 100, status: "available" }] });
    stack.defer(() => system.close());
    const clock = new TestClock();
    const gateway = await startLocalGateway({ ...system.gatewayEnv, KEY_ROTATION: "1" }, clock.now);
    stack.defer(() => gateway.close());
    const scopes = ["inventory:read", "inventory:write", "keys:rotate"] as const;
    const { key, keyId } = await system.issueKey({ plan: "enterprise", scopes });
    const read = (token: string) =>
      callApi(gateway.address, { path: "/v1/inventory", headers: { authorization: `Bearer ${token}` } });
    expect((await read(key)).status).toBe(200);

    const headers = {
      authorization: `Bearer ${key}`,
      "content-type": "application/json",
      "content-length": body.length,
    };
    const update = request(`http://${gateway.address}${path}`, { method, headers });
    const answered = new Promise<string>((resolve, reject) => {
      update.on("error", reject).on("response", async (response) => {
        resolve(`${response.statusCode} ${await text(response)}`);
      });
    });
    update.write(body.slice(0, -1));
    expect((await read(key)).status).toBe(200); // so the head above has been admitted
    await system.runKeys("revoke", keyId);
    clock.advance(10_000);
    update.end(body.slice(-1));
    expect(await answered).toMatch(/^401 .*"invalid_api_key"/);
    expect((await read(system.keys.enterprise)).text).toContain('"quantity":100');
  },
);

test.each([
  ["away", "SIGKILL"],
  ["frozen", "SIGSTOP"],
] as const)(
  "requests of a key that is revoked while the service is %s read and change nothing",
  async (_how, signal) => {
    const system = await startSystem({ gateways: 0, seed: [{ petId: 1n, quantity: 100, status: "available" }] });
    stack.defer(() => system.close());
    const clock = new TestClock();
    const gateway = await startLocalGateway({ ...system.gatewayEnv, INVENTORY_TIMEOUT_MS: "60000" }, clock.now);
    stack.defer(() => gateway.close());
    const { key, keyId } = await system.issueKey({ plan: "enterprise" });
    const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" };
    const call = (path: string, options = {}) => callApi(gateway.address, { path, headers, ...options });
    const since = encodeURIComponent((await call("/v1/inventory")).headers.etag as string);

    await system.inventory.kill(signal);
    await call("/v1/rate_limit"); // so the gateway has noticed that a connection ended, and sends no call on it
    const requests = [
      call("/v1/inventory"),
      call("/v1/inventory/1"),
      call(`/v1/inventory/changes?since=${since}`),
      call("/v1/inventory/changes?since=restored-1"), // would be 410
      call("/v1/inventory/4040/history"), // would be 404
      call("/v1/inventory/1", { method: "PATCH", body: '{"quantity":7}' }),
    ];
    expect((await call("/v1/rate_limit")).status).toBe(200); // so those above have been admitted
    const arrivedMs = performance.now();
    await system.runKeys("revoke", keyId);
    clock.advance(10_000);
    await until(() => performance.now() - arrivedMs > 2_000); // shorter waits are part of the 10 s of a revocation
    if (signal === "SIGSTOP") await system.inventory.kill("SIGCONT");
    else await system.restartInventory();
    const answers = await Promise.all(requests);
    expect(answers.map(({ status }) => status)).toEqual([401, 401, 401, 401, 401, 503]);
    headers.authorization = `Bearer ${system.keys.enterprise}`;
    expect((await call("/v1/inventory")).text).toContain('"quantity":100');
  },
);

describe("a passed-through request", () => {
  let system: System;
  let clock: TestClock;
  let gateway: LocalGateway;
  /** Goes on with what the upstream has answered with a first part. */
  let goOn: (() => void)[] = [];
  let begin: (response: ServerResponse) => void;

  beforeAll(async () => {
    system = await startSystem({ gateways: 0 });
    stack.defer(() => system.close());
    const upstream = createServer((incoming, response) => {
      begin(response);
      goOn.push(() => {
        if (incoming.url === "/pets/4") response.writeHead(404);
        if (incoming.url === "/pets/5") response.destroy(); // would be 502
        response.end("secret");
      });
    });
    const address = await listenOn(upstream, { host: "127.0.0.1", port: 0 });
    stack.defer(() => {
      upstream.close();
      upstream.closeAllConnections();
    });
    clock = new TestClock();
    const env = { ...system.gatewayEnv, PETS_UPSTREAM_URL: `http://${address}`, UPSTREAM_TIMEOUT_MS: "60000" };
    gateway = await startLocalGateway(env, clock.now);
    stack.defer(() => gateway.close());
  });

  /**
   * Sends requests whose answers wait for the upstream, revokes the key of all but the last one, and lets the upstream
   * go on once the look-ups of both keys are too old.
   */
  async function outlastRevocation(...paths: string[]): Promise<IncomingMessage[]> {
    goOn = [];
    const { key, keyId } = await system.issueKey({ plan: "enterprise" });
    const answers = [...paths, paths[0]!].map(async (path, i) => {
      const token = i < paths.length ? key : system.keys.enterprise;
      const sent = request(`http://${gateway.address}${path}`, { headers: { authorization: `Bearer ${token}` } });
      return ((await once(sent.end(), "response")) as [IncomingMessage])[0];
    });
    await until(() => goOn.length === answers.length);
    const arrivedMs = performance.now();
    await system.runKeys("revoke", keyId);
    clock.advance(10_000);
    await until(() => performance.now() - arrivedMs > 2_000); // shorter waits are part of the 10 s of a revocation
    for (const each of goOn) each();
    return await Promise.all(answers);
  }

  test("is answered 401 when its key was revoked before the upstream answered", async () => {
    begin = () => {};
    const answers = await outlastRevocation("/v1/pets/7", "/v1/pets/4", "/v1/pets/5");
    expect(answers.map(({ statusCode }) => statusCode)).toEqual([401, 401, 401, 200]);
    expect(await Promise.all(answers.map(text))).toEqual([
      expect.stringContaining("invalid_api_key"),
      expect.stringContaining("invalid_api_key"),
      expect.stringContaining("invalid_api_key"),
      "secret",
    ]);
  });

  test("gets no more of a body that goes on when its key was revoked", async () => {
    begin = (response) => void response.write("begun ");
    const [revoked, other] = (await outlastRevocation("/v1/pets/7")) as [IncomingMessage, IncomingMessage];
    let received = "";
    revoked.on("data", (piece) => {
      received += piece;
    });
    await new Promise((resolve) => revoked.on("error", resolve).on("end", resolve));
    expect([received, revoked.complete]).toEqual(["begun ", false]);
    expect(await text(other)).toBe("begun secret");
  });
});

test("a key that is revoked while it waits for its account's use is 401", async () => {
  const system = await startSystem({ gateways: 0, database: "mysql" });
  stack.defer(() => system.close());
  const clock = new TestClock();
  const gateway = await startLocalGateway(system.gatewayEnv, clock.now);
  stack.defer(() => gateway.close());
  const database = await connectMysql(system.databaseUrls.gateway);
  stack.defer(() => database.end());
  const { key, keyId } = await system.issueKey({ plan: "enterprise" });
  const { key: banned, accountId } = await system.issueKey({ plan: "enterprise" });
  const read = (path: string, token: string) =>
    callApi(gateway.address, { path, headers: { authorization: `Bearer ${token}` } });
  await database.query("LOCK TABLES account_minutes WRITE");
  const answers = [key, banned, system.keys.enterprise].map((token) => read("/v1/usage", token));
  await until(async () => (await read("/v1/rate_limit", key)).status === 200); // so those above have been admitted
  const arrivedMs = performance.now();
  const other = await connectMysql(system.databaseUrls.gateway);
  await other.query("UPDATE api_keys SET revoked_at = ? WHERE id = ?", [clock.now(), keyId]);
  await other.query("UPDATE api_keys SET banned_until = ? WHERE account_id = ?", [clock.now() + 60_000, accountId]);
  await other.end();
  clock.advance(10_000);
  await until(() => performance.now() - arrivedMs > 2_500);
  await database.query("UNLOCK TABLES");
  // A banned key may still ask what its account has done.
  expect((await Promise.all(answers)).map(({ status }) => status)).toEqual([401, 200, 200]);
});
