import { setTimeout as delay } from "node:timers/promises";
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
  type InventoryItem,
  InventoryServiceService,
  type ListInventoryRequest,
  ListInventoryResponse,
  PetStatus,
} from "../../proto/gen/petstore/inventory/v1/inventory.ts";
import { suiteStack } from "../../test/support/stack.ts";
import { openStockClient } from "./stock-client.ts";

const stack = suiteStack();

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

function open(address: string, callTimeoutMs: number) {
  const client = openStockClient({ address, callTimeoutMs, keyedTimeoutMs: 5_000, onCheck: () => {} });
  stack.defer(() => client.close());
  return client;
}

const part = (petId: bigint, fields: Partial<InventoryItem> = {}) => {
  const item = { petId, quantity: 2, status: PetStatus.PET_STATUS_SOLD, revision: 3n, ...fields };
  return ListInventoryResponse.fromPartial({ epoch: "e", revision: 9n, items: [item] });
};

test("the list comes in the parts that the service sends, and an abandoned read ends there too", async () => {
  const cancelled = Promise.withResolvers<void>();
  const asked: (bigint | undefined)[] = [];
  const listInventory: handleServerStreamingCall<ListInventoryRequest, ListInventoryResponse> = (call) => {
    call.on("cancelled", cancelled.resolve);
    asked.push(call.request.afterPetId);
    call.write(part(1n, { removed: true })); // and more to come
  };
  const client = open(await serve({ listInventory }), 120_000);
  const parts = [];
  for await (const each of client.load(-7n)) {
    parts.push(each);
    break;
  }
  const items = [{ petId: 1n, quantity: 2, status: "sold", revision: 3n, removed: true }];
  expect(parts).toEqual([{ position: { epoch: "e", revision: 9n }, items }]);
  expect(asked).toEqual([-7n]);
  await cancelled.promise;
});

test("a load takes as long as its parts keep coming, and ends when none comes in time", async () => {
  const callTimeoutMs = 1_500;
  const cancelled = Promise.withResolvers<void>();
  const listInventory: handleServerStreamingCall<ListInventoryRequest, ListInventoryResponse> = async (call) => {
    call.on("cancelled", cancelled.resolve);
    for (let petId = 1n; petId <= 5n; petId++) {
      await delay(callTimeoutMs / 3);
      call.write(part(petId));
    }
  };
  const client = open(await serve({ listInventory }), callTimeoutMs);
  let parts = 0;
  const load = async () => {
    for await (const _part of client.load(undefined)) parts += 1;
  };
  await expect(load()).rejects.toMatchObject({ code: "timeout" });
  expect(parts).toBe(5);
  await cancelled.promise;
});

test("an answer to a check ends once it has 10,000 changes, and says that there are more", async () => {
  const checkInventory: handleBidiStreamingCall<CheckInventoryRequest, CheckInventoryResponse> = (call) => {
    call.sendMetadata(new Metadata());
    call.once("data", () => {
      for (let revision = 1_000n; revision <= 20_000n; revision += 1_000n) {
        const items = Array.from({ length: 1_000 }, (_, i) => {
          return { petId: revision - BigInt(i), quantity: 1, status: PetStatus.PET_STATUS_SOLD, revision };
        });
        call.write(CheckInventoryResponse.fromPartial({ epoch: "e", revision, items, more: revision < 20_000n }));
      }
    });
  };
  const client = open(await serve({ checkInventory }), 20_000);
  const report = { progress: () => {}, setback: () => {} };
  const changes = await client.changesAfter({ epoch: "e", revision: 0n }, report);
  if (changes.kind === "reset") throw new Error("it is no reset");
  expect([changes.position.revision, changes.items.length, changes.more]).toEqual([10_000n, 10_000, true]);
});
