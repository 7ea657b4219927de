import { promisify } from "node:util";
import { PetStatus } from "../../proto/gen/petstore/inventory/v1/inventory.ts";
import { header } from "../support/answers.ts";
import { request } from "../support/http.ts";
import { applyDifference, readDifference } from "../support/list-difference.ts";
import { suiteStack } from "../support/stack.ts";
import { startSystem } from "../support/system.ts";

const stack = suiteStack();
const [pets, writers, changesOfWriter, readers] = [60, 4, 200, 6];

test("under writes, the list of any ETag and a difference give the list of the other ETag", async () => {
  const system = await startSystem({
    gateways: 2,
    seed: Array.from({ length: pets }, (_, i) => ({ petId: BigInt(i), quantity: 1, status: "available" })),
  });
  stack.defer(() => system.close());
  const { client, gateways } = system;
  const [create, update, remove] = [
    promisify(client.createInventoryItem.bind(client)),
    promisify(client.updateInventory.bind(client)),
    promisify(client.removeInventoryItem.bind(client)),
  ];
  const headers = { authorization: `Bearer ${system.keys.enterprise}` };
  const any = <T>(items: readonly T[]) => items[Math.floor(Math.random() * items.length)]!;
  const get = (path: string) => request(any(gateways).listen, { path, headers });

  /** The list of each ETag that was read, or that a difference has led to. */
  const lists = new Map<string, string>();
  let agreements = 0;
  const note = (etag: string, list: string) => {
    const known = lists.get(etag);
    if (known !== undefined) agreements += 1;
    expect({ etag, list }).toEqual({ etag, list: known ?? list });
    lists.set(etag, list);
  };

  let writing = writers;
  const write = async () => {
    for (let i = 0; i < changesOfWriter; i++) {
      const petId = BigInt(Math.floor(Math.random() * 2 * pets));
      const item = { petId, quantity: Math.floor(Math.random() * 1e6), status: PetStatus.PET_STATUS_SOLD };
      const change = any([() => create(item), () => update(item as never), () => remove({ petId })]);
      await change().catch(() => {}); // refused for an entry that is there, or is not
    }
    writing -= 1;
  };
  const readList = async () => {
    const answer = await get("/v1/inventory");
    note(header(answer, "ETag"), answer.text);
  };
  const readChanges = async (since: string) => {
    const list = lists.get(since)!;
    const answer = await get(`/v1/inventory/changes?since=${encodeURIComponent(since)}`);
    expect(answer.status).toBe(200);
    const difference = readDifference(answer.text);
    note(difference.etag, applyDifference(list, difference));
  };
  const read = async () => {
    while (writing > 0) {
      await Promise.all([readList(), readChanges(any([...lists.keys()]))]);
      await readChanges([...lists.keys()].at(-1)!);
    }
  };

  await readList();
  await Promise.all([...Array.from({ length: writers }, write), ...Array.from({ length: readers }, read)]);
  for (const since of [...lists.keys()].slice(0, 50)) await readChanges(since);
  await readList();
  expect(lists.size).toBeGreaterThan(100);
  expect(agreements).toBeGreaterThan(100);

  // A gateway that starts now has to ask for what was removed before.
  const young = await system.startGateway();
  for (const [since, list] of [...lists].slice(0, 20)) {
    const path = `/v1/inventory/changes?since=${encodeURIComponent(since)}`;
    const difference = readDifference((await request(young.listen, { path, headers })).text);
    note(difference.etag, applyDifference(list, difference));
  }
}, 120_000);
