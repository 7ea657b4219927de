// What becomes of updates that lie in the socket of an inventory service while it stands still.
import { callApi } from "../support/api.ts";
import { callerOf, startInventoryService } from "../support/inventory-service.ts";
import { suiteStack } from "../support/stack.ts";
import { startSystem } from "../support/system.ts";
import { until } from "../support/until.ts";

const stack = suiteStack();

test("an update that got 504 from a frozen service undoes no newer one when the service goes on", async () => {
  const pets = [1n, 2n].map((petId) => ({ petId, quantity: 100, status: "available" as const }));
  const system = await startSystem({ seed: pets, gatewayEnv: { INVENTORY_TIMEOUT_MS: "1500" } });
  stack.defer(() => system.close());
  const patch = async (petId: number, quantity: number) => {
    const { status } = await callApi(system.address, {
      path: `/v1/inventory/${petId}`,
      method: "PATCH",
      headers: { authorization: `Bearer ${system.keys.enterprise}`, "content-type": "application/json" },
      body: JSON.stringify({ quantity }),
    });
    return status;
  };
  const other = await startInventoryService(stack, system.databaseUrls.inventory);
  const inventory = callerOf(stack, other);

  await until(async () => (await patch(2, 1)) === 200); // opens the stream: the next update reaches the socket
  await system.inventory.kill("SIGSTOP");
  stack.defer(() => system.inventory.kill("SIGCONT"));
  expect(await patch(1, 7)).toBe(504);
  expect(await inventory.update({ petId: 1n, quantity: 8 })).toMatchObject({ item: { quantity: 8 } });
  await system.inventory.kill("SIGCONT");
  await until(async () => (await patch(2, 2)) === 200); // the service writes in the order of arrival
  expect(await system.stored(1n)).toMatchObject({ quantity: 8 });
});
