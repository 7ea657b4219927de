import {
  type handleBidiStreamingCall,
  type handleServerStreamingCall,
  Metadata,
  Server,
  ServerCredentials,
  type UntypedServiceImplementation,
} from "@grpc/grpc-js";
import {
  type CheckInventoryRequest,
  CheckInventoryResponse,
  InventoryServiceService,
  type ListInventoryRequest,
  ListInventoryResponse,
  PetStatus,
} from "../../proto/gen/petstore/inventory/v1/inventory.ts";
import { suiteStack } from "../../test/support/cleanup.ts";
import { openStockClient } from "./stock-client.ts";

const stack = suiteStack();

/** What the service answers to a check, in two messages. */
const removals = [
  { petId: 6n, revision: 7n },
  { petId: 7n, revision: 8n },
];
const changes = { kind: "changes", position: { epoch: "e", revision: 9n }, changed: [], removed: removals };

/** A service that ends its first streams of checks without an answer, as one that stops does, or is silent there. */
async function startService(failures: number, fault: "ends" | "is silent" = "ends"): Promise<string> {
  let streams = 0;
  const checkInventory: handleBidiStreamingCall<CheckInventoryRequest, CheckInventoryResponse> = (call) => {
    streams += 1;
    call.sendMetadata(new Metadata());
    if (streams <= failures) return fault === "ends" ? call.end() : undefined;
    call.on("data", ({ epoch }) => {
      for (const { petId, revision } of removals) {
        const part = { removedPetIds: [petId], removedRevisions: [revision], more: revision < 8n };
        call.write(CheckInventoryResponse.fromPartial({ epoch, revision: 9n, ...part }));
      }
    });
    call.on("end", () => call.end());
  };
  return serve({ checkInventory });
}

/** Serves these calls. @returns their address */
async function serve(calls: UntypedServiceImplementation): Promise<string> {
  const server = new Server();
  server.addService(InventoryServiceService, calls);
  const port = await new Promise<number>((resolve, reject) => {
    server.bindAsync("127.0.0.1:0", ServerCredentials.createInsecure(), (error, bound) =>
      error ? reject(error) : resolve(bound),
    );
  });
  stack.defer(() => server.forceShutdown());
  return `127.0.0.1:${port}`;
}

function open(address: string, { callTimeoutMs = 5_000, loadTimeoutMs = 5_000 } = {}) {
  const client = openStockClient({ address, callTimeoutMs, keyedTimeoutMs: 5_000, loadTimeoutMs, onCheck: () => {} });
  stack.defer(() => client.close());
  return client;
}

const position = { epoch: "e", revision: 5n };

test("changes are asked for again when the service ends the stream, and each time is a setback", async () => {
  const client = open(await startService(3));
  const setbacks: unknown[] = [];
  const report = { progress: () => {}, setback: (error: unknown) => setbacks.push(error) };
  expect(await client.changesAfter(position, report)).toEqual(changes);
  expect(setbacks).toMatchObject(Array(3).fill({ code: "service_unavailable" }));
});

test("changes are taken from all messages of the answer, each of which but the last is reported", async () => {
  const client = open(await startService(0));
  const progress = import.meta.jest.fn();
  expect(await client.changesAfter(position, { progress, setback: () => {} })).toEqual(changes);
  expect(progress).toHaveBeenCalledTimes(1);
});

test("a check without an answer is given up after the time of a call, and the next one is asked", async () => {
  const client = open(await startService(1, "is silent"), { callTimeoutMs: 900, loadTimeoutMs: 120_000 });
  const ask = () => client.changesAfter(position, { progress: () => {}, setback: () => {} });
  await expect(ask()).rejects.toMatchObject({ code: "timeout" });
  expect(await ask()).toEqual(changes);
});

test("the list comes in the parts that the service sends, and a read that is given up ends at the service too", async () => {
  const cancelled = Promise.withResolvers<void>();
  const listInventory: handleServerStreamingCall<ListInventoryRequest, ListInventoryResponse> = (call) => {
    call.on("cancelled", cancelled.resolve);
    const items = [{ petId: 1n, quantity: 2, status: PetStatus.PET_STATUS_SOLD, revision: 3n }];
    call.write(ListInventoryResponse.fromPartial({ epoch: "e", revision: 9n, items })); // and more to come
  };
  const client = open(await serve({ listInventory }), { loadTimeoutMs: 120_000 });
  const parts = [];
  for await (const part of client.load()) {
    parts.push(part);
    break;
  }
  expect(parts).toMatchObject([{ position: { epoch: "e", revision: 9n }, items: [{ petId: 1n, quantity: 2 }] }]);
  await cancelled.promise;
});
