import { setTimeout as delay } from "node:timers/promises";
import { createInventoryClient } from "../../client/index.ts";
import { expectError, expectOutage } from "../support/answers.ts";
import { type DatabaseServer, startPrivateDatabaseServer } from "../support/database-server.ts";
import { type Response, request } from "../support/http.ts";
import { startInventoryService } from "../support/inventory-service.ts";
import { startLink } from "../support/link.ts";
import { openMigratedStock } from "../support/open-stock.ts";
import { suiteStack } from "../support/stack.ts";
import { type System, startSystem } from "../support/system.ts";

const deadlineMs = 1_000;

describe("outages", () => {
  const stack = suiteStack();
  let database: DatabaseServer;
  let system: System;

  beforeAll(async () => {
    database = await startPrivateDatabaseServer();
    stack.defer(() => database.stop());
    const shared = process.env.TEST_MYSQL_SERVER_URL;
    process.env.TEST_MYSQL_SERVER_URL = database.url("");
    system = await startSystem({
      database: "mysql",
      seed: [{ petId: 7n, quantity: 1, status: "available" }],
      inventoryEnv: { LOG_LEVEL: "fatal", INVENTORY_DATABASE_TIMEOUT_MS: "700", INVENTORY_LISTEN: "127.0.0.1:0" },
      gatewayEnv: { LOG_LEVEL: "fatal", INVENTORY_TIMEOUT_MS: String(deadlineMs) },
    });
    process.env.TEST_MYSQL_SERVER_URL = shared;
    stack.defer(() => system.close());
  });

  const headers = () => ({ authorization: `Bearer ${system.keys.enterprise}`, "content-type": "application/json" });
  const get = () => request(system.address, { path: "/v1/inventory", headers: headers() });
  const patch = (quantity: number) =>
    request(system.address, {
      method: "PATCH",
      path: "/v1/inventory/7",
      headers: headers(),
      body: `{"quantity":${quantity}}`,
    });

  /** Expects 503 or 504 in time. */
  async function expectRefusal(send: () => Promise<Response>): Promise<void> {
    const startedMs = performance.now();
    const answer = await send();
    expect(performance.now() - startedMs).toBeLessThan(deadlineMs + 1_000);
    expectOutage(answer);
    expect(answer.headers["x-ratelimit-limit"]).toBeDefined();
  }

  /** Retries until the answer is 200 again: the part that came back may need a moment. */
  async function expectRecovery(quantity: number): Promise<void> {
    const untilMs = Date.now() + 10_000;
    for (;;) {
      const answer = await patch(quantity);
      if (answer.status === 200) break;
      if (Date.now() > untilMs) throw new Error(`no recovery: ${answer.status} ${answer.text}`);
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
    expect((await get()).json()).toEqual([{ petId: 7, quantity, status: "available" }]);
  }

  const killDatabase = { break: () => database.kill("SIGKILL"), mend: () => database.restart() };
  const freezeDatabase = { break: () => database.kill("SIGSTOP"), mend: () => database.kill("SIGCONT") };
  const killService = {
    break: () => system.inventory.kill("SIGKILL"),
    mend: async () => void (await system.restartInventory()),
  };
  const freezeService = {
    break: () => system.inventory.kill("SIGSTOP"),
    mend: () => system.inventory.kill("SIGCONT"),
  };

  test.each([
    ["inventory-svc is killed", killService, 11],
    ["inventory-svc is frozen", freezeService, 12],
    ["the database is killed", killDatabase, 13],
    ["the database is frozen", freezeDatabase, 14],
  ])(
    "an outage in which %s gives 503 or 504 in time, and ends without a restart of others",
    async (_what, fault, quantity) => {
      await expectRecovery(quantity - 10);
      await fault.break();
      await expectRefusal(get);
      await expectRefusal(() => patch(99));
      await expectRefusal(get);
      await fault.mend();
      await expectRecovery(quantity);
    },
  );

  test("callers are refused in the order of arrival while the service is frozen, waiting reads too", async () => {
    await expectRecovery(1);
    await freezeService.break();
    const refused: string[] = [];
    const send = async (name: string, ask: () => Promise<Response>) => {
      expectError(await ask(), 504, "timeout");
      refused.push(name);
    };
    const callers = [];
    for (const [name, ask] of [
      ["a read", get],
      ["a read during its check", get],
      ["an update after both", () => patch(99)],
    ] as const) {
      callers.push(send(name, ask));
      await delay(deadlineMs * 0.3);
    }
    await Promise.all(callers);
    expect(refused).toEqual(["a read", "a read during its check", "an update after both"]);
    await freezeService.mend();
    await expectRecovery(2);
  });

  test("an outage of the key database gives a new key 503 or 504 with the limit headers", async () => {
    const { key } = await system.issueKey({ plan: "pro" });
    await database.kill("SIGKILL");
    await expectRefusal(() =>
      request(system.address, { path: "/v1/inventory", headers: { authorization: `Bearer ${key}` } }),
    );
    await database.restart();
    await expectRecovery(20);
  });
});

/** What the log says of an error. */
interface ErrorLine {
  readonly code: string | number;
  readonly err: { readonly message: string; readonly cause?: { readonly message: string } };
  readonly count: number;
}

test("callers that come while the service is away for a moment wait for it, and get no 5xx", async () => {
  await using stack = new AsyncDisposableStack();
  const seed = [{ petId: 7n, quantity: 1, status: "available" }] as const;
  const system = await startSystem({ seed, gatewayEnv: { INVENTORY_TIMEOUT_MS: "20000" } });
  stack.defer(() => system.close());
  const headers = { authorization: `Bearer ${system.keys.enterprise}`, "content-type": "application/json" };
  expect((await request(system.address, { path: "/v1/inventory", headers })).status).toBe(200);
  await system.inventory.kill("SIGKILL");
  const update = { method: "PATCH", path: "/v1/inventory/7", headers, body: '{"quantity":42}' };
  const held = Promise.all([
    request(system.address, update),
    request(system.address, { path: "/v1/inventory", headers }),
  ]);
  await system.restartInventory();
  expect((await held).map(({ status }) => status)).toEqual([200, 200]);
  expect(await system.stored(7n)).toMatchObject({ quantity: 42 });
}, 60_000);

test("updates go on while two of three services cannot reach their database", async () => {
  await using stack = new AsyncDisposableStack();
  const database = await startPrivateDatabaseServer();
  stack.defer(() => database.stop());
  const url = await database.createDatabase();
  const { store } = await openMigratedStock(stack, url);
  await store.write([{ kind: "create", petId: 7n, quantity: 1, status: "available" }]);
  const link = await startLink(stack, database.port);
  const detour = Object.assign(new URL(url), { port: link.port }).href;
  const urls = [detour, url, detour];
  const services = await Promise.all(urls.map((each) => startInventoryService(stack, each, { LOG_LEVEL: "fatal" })));
  link.cut();
  const address = `ipv4:${services.map(({ listen }) => listen).join()}`;
  // The first stream of a client leads to any of the services.
  for (let quantity = 10; quantity < 18; quantity++) {
    const inventory = createInventoryClient({ address });
    stack.defer(() => inventory.close());
    expect(await inventory.update({ petId: 7n, quantity })).toMatchObject({ quantity });
  }
}, 60_000);

test("an outage of the database costs a tier a line a second for each kind of error, all counted", async () => {
  await using stack = new AsyncDisposableStack();
  const database = await startPrivateDatabaseServer();
  stack.defer(() => database.stop());
  const shared = process.env.TEST_MYSQL_SERVER_URL;
  process.env.TEST_MYSQL_SERVER_URL = database.url("");
  const env = { LOG_LEVEL: "error" };
  const gatewayEnv = { ...env, INVENTORY_TIMEOUT_MS: "300" }; // how long a gateway holds callers in an outage
  const system = await startSystem({ database: "mysql", gatewayEnv, inventoryEnv: env });
  process.env.TEST_MYSQL_SERVER_URL = shared;
  stack.defer(() => system.close());
  const headers = { authorization: `Bearer ${system.keys.enterprise}` };
  const get = () => request(system.address, { path: "/v1/inventory", headers });
  expect((await get()).status).toBe(200);
  await database.kill("SIGKILL");
  stack.defer(() => database.restart()); // its databases are dropped in the end

  const startedMs = performance.now();
  const seconds = 3;
  let refused = 0;
  const callers = Array.from({ length: 64 }, async () => {
    while (performance.now() < startedMs + seconds * 1_000) if ((await get()).status >= 500) refused += 1;
  });
  await Promise.all(callers);
  expect(refused).toBeGreaterThan(300);
  await system.gateways[0]!.stop(); // logs what is only counted so far
  await system.inventory.stop();
  const tookSeconds = (performance.now() - startedMs) / 1_000;

  const ofGateway = errorLines(system.gateways[0]!.output());
  const ofService = errorLines(system.inventory.output());
  for (const lines of [ofGateway, ofService]) {
    const kinds = Map.groupBy(lines, kindOfLine);
    expect(kinds.size).toBeLessThan(5);
    for (const ofKind of kinds.values()) expect(ofKind.length).toBeLessThanOrEqual(tookSeconds + 2);
  }
  const sum = (lines: readonly ErrorLine[]) => lines.reduce((total, { count }) => total + count, 0);
  expect(sum(ofGateway)).toBe(refused);
  expect(sum(ofService)).toBeGreaterThan(ofService.length); // fewer than requests, because these share checks
}, 60_000);

function errorLines(output: string): ErrorLine[] {
  const lines = output.split("\n").filter((line) => line.includes('"level":"error"'));
  return lines.map((line) => JSON.parse(line));
}

function kindOfLine({ code, err: { message, cause } }: ErrorLine): string {
  return `${code} ${message} ${cause?.message}`.replace(/\d+/g, "");
}
