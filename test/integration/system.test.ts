import { request } from "../support/http.ts";
import { suiteStack } from "../support/stack.ts";
import { type System, startSystem } from "../support/system.ts";

describe("a system of a suite", () => {
  const stack = suiteStack();
  let system: System;
  beforeAll(async () => {
    system = await startSystem({
      database: "mysql",
      gateways: 2,
      seed: [{ petId: 9_223_372_036_854_775_807n, quantity: 1, status: "sold" }],
    });
    stack.defer(() => system.close());
  });

  const list = (address: string, key: string) =>
    request(address, { path: "/v1/inventory", headers: { authorization: `Bearer ${key}` } });

  test("runs on MySQL/MariaDB, with several gateways and a key for each plan", async () => {
    for (const { listen } of [...system.gateways, await system.startGateway()]) {
      for (const key of Object.values(system.keys)) {
        expect((await list(listen, key)).json()).toEqual([
          { petId: 9_223_372_036_854_775_807n, quantity: 1, status: "sold" },
        ]);
      }
    }
  });

  test("can restart its inventory service on the same address and data after kill -9", async () => {
    const { listen, kill } = system.inventory;
    await kill("SIGKILL");
    const restarted = await system.restartInventory();
    expect(restarted.listen).toBe(listen);
    expect(await system.stored(9_223_372_036_854_775_807n)).toMatchObject({ quantity: 1 });
    expect(await system.stored(1n)).toBeUndefined();
  });

  test("has no process left once it is closed", async () => {
    const short = await startSystem();
    const { pid } = short.inventory;
    await short.close();
    await expect(list(short.address, short.keys.free)).rejects.toMatchObject({ code: "ECONNREFUSED" });
    expect(() => process.kill(pid, 0)).toThrow("ESRCH");
  });

  test("that cannot start rejects with the reason", async () => {
    await expect(startSystem({ gatewayEnv: { PLAN_LIMITS: "nonsense" } })).rejects.toThrow(/PLAN_LIMITS/);
  });
});
