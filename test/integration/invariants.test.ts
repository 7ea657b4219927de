// What both tiers do in a state that must never be.
import { expectError } from "../support/answers.ts";
import { callApi } from "../support/api.ts";
import { request } from "../support/http.ts";
import { openStock } from "../support/open-stock.ts";
import { suiteStack } from "../support/stack.ts";
import { type System, startSystem } from "../support/system.ts";

const stack = suiteStack();

async function start(inventoryScript?: string): Promise<System> {
  const system = await startSystem({
    seed: [1n, 2n].map((petId) => ({ petId, quantity: 1, status: "available" })),
    ...(inventoryScript && { inventoryScript }),
  });
  stack.defer(() => system.close());
  return system;
}

const headers = ({ keys }: System) => ({
  authorization: `Bearer ${keys.enterprise}`,
  "content-type": "application/json",
});
const list = (system: System) => callApi(system.address, { path: "/v1/inventory", headers: headers(system) });
const setFirst = (system: System, quantity: number) => {
  const body = JSON.stringify({ quantity });
  return callApi(system.address, { method: "PATCH", path: "/v1/inventory/1", headers: headers(system), body });
};
/** The failures of invariants that a process shows at its admin address, by text. */
async function failures(admin: string): Promise<Record<string, number>> {
  const { text } = await request(admin, { path: "/metrics" });
  const lines = text.matchAll(/^invariant_failures_total\{text="(.*)"\} (\d+)$/gm);
  return Object.fromEntries(Array.from(lines, ([, of, count]) => [of, Number(count)]));
}

test("a service whose head has gone back counts it, answers no call and is not ready", async () => {
  const system = await start();
  expect((await setFirst(system, 5)).status).toBe(200);
  const { db, close } = openStock(system.databaseUrls.inventory);
  stack.defer(close);
  const [before] = await db("stock_head").select("revision");
  expect(await failures(system.inventory.admin)).toEqual({});

  await db("stock_head").update({ revision: 1 });
  const text = "the revision of the stock never goes back within an epoch";
  for (const answer of [await list(system), await setFirst(system, 6)]) expectError(answer, 500, "internal_error");
  expect((await request(system.inventory.admin, { path: "/readyz" })).status).toBe(503);
  expect((await failures(system.inventory.admin))[text]).toBeGreaterThanOrEqual(3);

  await db("stock_head").update({ revision: before.revision + 10n });
  expect((await setFirst(system, 7)).status).toBe(200);
  expect((await list(system)).text).toContain('{"petId":1,"quantity":7,"status":"available"}');
});

test("a gateway that is told of an older list counts it and refuses the reads", async () => {
  const system = await start("test/faults/backward-service.ts");
  expect((await setFirst(system, 13)).status).toBe(200);
  expect(await failures(system.adminAddress)).toEqual({});
  expectError(await list(system), 500, "internal_error");
  expect(await failures(system.adminAddress)).toEqual({ "the list never goes back within an epoch": 1 });

  expect((await setFirst(system, 14)).status).toBe(200);
  expect((await list(system)).text).toContain('{"petId":1,"quantity":14,"status":"available"}');
});
