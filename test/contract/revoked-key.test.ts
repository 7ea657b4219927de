import { request } from "node:http";
import { text } from "node:stream/consumers";
import { callApi } from "../support/api.ts";
import { startLocalGateway, TestClock } from "../support/local-gateway.ts";
import { suiteStack } from "../support/stack.ts";
import { startSystem } from "../support/system.ts";
import { until } from "../support/until.ts";

const stack = suiteStack();

test.each([
  ["a PATCH", "PATCH", "/v1/inventory/1", '{"quantity":7}'],
  ["many updates", "POST", "/v1/inventory/updates", '[{"petId":1,"quantity":7}]'],
])(
  "%s of a key that was revoked before its body arrived is 401 and changes nothing",
  async (_what, method, path, body) => {
    const system = await startSystem({ gateways: 0, seed: [{ petId: 1n, quantity: 100, status: "available" }] });
    stack.defer(() => system.close());
    const clock = new TestClock();
    const gateway = await startLocalGateway(system.gatewayEnv, clock.now);
    stack.defer(() => gateway.close());
    const { key, keyId } = await system.issueKey({ plan: "enterprise" });
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
    const sentMs = performance.now();
    const requests = [
      call("/v1/inventory"),
      call("/v1/inventory/1"),
      call(`/v1/inventory/changes?since=${since}`),
      call("/v1/inventory/1", { method: "PATCH", body: '{"quantity":7}' }),
    ];
    expect((await call("/v1/rate_limit")).status).toBe(200); // so those above have been admitted
    await system.runKeys("revoke", keyId);
    clock.advance(10_000);
    await until(() => performance.now() - sentMs > 2_000); // shorter waits are part of the 10 s of a revocation
    if (signal === "SIGSTOP") await system.inventory.kill("SIGCONT");
    else await system.restartInventory();
    const answers = await Promise.all(requests);
    expect(answers.map(({ status }) => status)).toEqual([401, 401, 401, 503]);
    headers.authorization = `Bearer ${system.keys.enterprise}`;
    expect((await call("/v1/inventory")).text).toContain('"quantity":100');
  },
);
