import type { ClientReadableStream } from "@grpc/grpc-js";
import type { WatchInventoryResponse } from "../../proto/gen/petstore/inventory/v1/inventory.ts";
import { request } from "../support/http.ts";
import { runScript } from "../support/processes.ts";
import { suiteStack } from "../support/stack.ts";
import { type System, startSystem } from "../support/system.ts";

describe("the change feed", () => {
  const stack = suiteStack();
  let system: System;
  const watches: ClientReadableStream<WatchInventoryResponse>[] = [];

  beforeAll(async () => {
    system = await startSystem({
      seed: [{ petId: 1n, quantity: 1, status: "available" }],
      inventoryEnv: { DRAIN_SECONDS: "600" }, // a stop that waits for a watch outlasts its test
    });
    stack.defer(() => system.close());
  });
  afterEach(() => {
    for (const watch of watches.splice(0)) watch.cancel();
  });

  function watchFrom(position: { epoch: string; revision: bigint }) {
    const watch = system.client.watchInventory(position);
    watch.on("error", () => {}); // a cancelled stream ends with an error
    watches.push(watch);
    const messages = (watch as AsyncIterable<WatchInventoryResponse>)[Symbol.asyncIterator]();
    return async () => (await messages.next()).value as WatchInventoryResponse;
  }
  const change = (petId: bigint, quantity: number) =>
    request(system.address, {
      method: "PATCH",
      path: `/v1/inventory/${petId}`,
      headers: { authorization: `Bearer ${system.keys.enterprise}`, "content-type": "application/json" },
      body: `{"quantity":${quantity}}`,
    });
  const here = async () => {
    for await (const { epoch, revision } of system.client.listInventory({}) as AsyncIterable<WatchInventoryResponse>) {
      return { epoch, revision };
    }
    throw new Error("the list has no position");
  };

  test("sends its position at once, then every change as it happens", async () => {
    const position = await here();
    const next = watchFrom(position);
    expect(await next()).toMatchObject({ ...position, items: [] });
    await change(1n, 5);
    expect(await next()).toMatchObject({
      revision: position.revision + 1n,
      items: [{ petId: 1n, quantity: 5, removed: false }],
    });
    await new Promise((resolve) => system.client.removeInventoryItem({ petId: 1n }, resolve));
    expect(await next()).toMatchObject({ items: [{ petId: 1n, removed: true }] });
    await new Promise((resolve) => system.client.createInventoryItem({ petId: 1n, quantity: 2, status: 1 }, resolve));
    expect(await next()).toMatchObject({ items: [{ petId: 1n, quantity: 2, removed: false }] });
  });

  test("continues from a position without a gap", async () => {
    const position = await here();
    for (let quantity = 10; quantity < 20; quantity++) await change(1n, quantity);
    const message = await watchFrom(position)();
    expect(message).toMatchObject({ revision: position.revision + 10n, items: [{ petId: 1n, quantity: 19 }] });
  });

  test("answers a position of another stock with a reset, and ends", async () => {
    const next = watchFrom({ epoch: "another", revision: 0n });
    expect(await next()).toMatchObject({ reset: true });
    expect(await next()).toBeUndefined();
  });

  test("resets watches after npm run stock -- restored, and gateways load the list again", async () => {
    const path = "/v1/inventory";
    const headers = { authorization: `Bearer ${system.keys.enterprise}` };
    const before = await request(system.address, { path, headers });
    const next = watchFrom(await here());
    await next();
    const env = { INVENTORY_DATABASE_URL: system.databaseUrls.inventory };
    expect((await runScript({ script: "inventory-svc/cli/stock.ts", args: ["restored"], env })).code).toBe(0);
    expect(await next()).toMatchObject({ reset: true });
    const after = await request(system.address, {
      path,
      headers: { ...headers, "if-none-match": String(before.headers.etag) },
    });
    expect(after.status).toBe(200);
    expect(after.text).toBe(before.text);
  });

  test("does not delay the stop of the service", async () => {
    const next = watchFrom(await here());
    await next(); // so the watch is under way
    await system.inventory.kill("SIGTERM");
    expect(await system.inventory.exited).toBe(0);
  });
});
