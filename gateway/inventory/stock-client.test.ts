import { type handleBidiStreamingCall, Server, ServerCredentials } from "@grpc/grpc-js";
import {
  type CheckInventoryRequest,
  CheckInventoryResponse,
  InventoryServiceService,
} from "../../proto/gen/petstore/inventory/v1/inventory.ts";
import { suiteStack } from "../../test/support/cleanup.ts";
import { openStockClient } from "./stock-client.ts";

const stack = suiteStack();

/** A service that ends its first streams of checks without an answer, as one that stops does, or is silent there. */
async function startService(failures: number, fault: "ends" | "is silent" = "ends"): Promise<string> {
  let streams = 0;
  const checkInventory: handleBidiStreamingCall<CheckInventoryRequest, CheckInventoryResponse> = (call) => {
    streams += 1;
    if (streams <= failures) return fault === "ends" ? call.end() : undefined;
    call.on("data", ({ epoch }) => {
      const answer = { epoch, revision: 9n, removedPetIds: [7n], removedRevisions: [8n] };
      call.write(CheckInventoryResponse.fromPartial(answer));
    });
    call.on("end", () => call.end());
  };
  const server = new Server();
  server.addService(InventoryServiceService, { checkInventory });
  const port = await new Promise<number>((resolve, reject) => {
    server.bindAsync("127.0.0.1:0", ServerCredentials.createInsecure(), (error, bound) =>
      error ? reject(error) : resolve(bound),
    );
  });
  stack.defer(() => server.forceShutdown());
  return `127.0.0.1:${port}`;
}

test("older removals are asked for again when the service ends the stream, as the changes are", async () => {
  const client = openStockClient({
    address: await startService(3),
    ...{ callTimeoutMs: 5_000, keyedTimeoutMs: 5_000, loadTimeoutMs: 5_000 },
    onCheck: () => {},
  });
  stack.defer(() => client.close());
  const setbacks: unknown[] = [];
  const report = { progress: () => {}, setback: (error: unknown) => setbacks.push(error) };
  const removed = await client.removedAfter({ epoch: "e", revision: 5n }, 1_000, report);
  expect(removed).toEqual([{ petId: 7n, revision: 8n }]);
  expect(setbacks).toHaveLength(3);
});

test("a question for older removals is given up after the time of a call without an answer, and the next one is asked", async () => {
  const client = openStockClient({
    address: await startService(1, "is silent"),
    ...{ callTimeoutMs: 1_000, keyedTimeoutMs: 5_000, loadTimeoutMs: 120_000 },
    onCheck: () => {},
  });
  stack.defer(() => client.close());
  const ask = () => client.removedAfter({ epoch: "e", revision: 5n }, 1_000, { progress: () => {}, setback: () => {} });
  await expect(ask()).rejects.toMatchObject({ code: "service_unavailable" });
  expect(await ask()).toEqual([{ petId: 7n, revision: 8n }]);
});
