import { PetStatus, type WatchInventoryResponse } from "../proto/gen/petstore/inventory/v1/inventory.ts";
import type { Position } from "../proto/pet.ts";
import { InventoryError } from "./inventory-error.ts";
import { follow } from "./watch.ts";

const from = { epoch: "e", revision: 10n };
const entry = (petId: bigint, status: PetStatus) => ({
  petId,
  quantity: 1,
  status,
  revision: petId,
  removed: false,
});

/** Answers each watch with the next of these lists of messages, and ends it. */
function service(...answers: Partial<WatchInventoryResponse>[][]) {
  const asked: Position[] = [];
  const open = async function* (position: Position) {
    asked.push(position);
    for (const message of answers[asked.length - 1] ?? []) {
      yield { epoch: "e", revision: 0n, items: [], reset: false, ...message };
    }
  };
  return { asked, open };
}

test("a watch fails at an entry that it cannot read, with no event for its message and no retry", async () => {
  const { asked, open } = service([
    { revision: 11n, items: [entry(11n, PetStatus.PET_STATUS_SOLD)] },
    { revision: 13n, items: [entry(12n, PetStatus.PET_STATUS_SOLD), entry(13n, 99 as never)] },
  ]);
  const seen: bigint[] = [];
  const watch = async () => {
    for await (const event of follow(open, from, {})) if (event.kind === "changes") seen.push(event.position.revision);
  };
  await expect(watch()).rejects.toThrow(InventoryError);
  expect(seen).toEqual([11n]);
  expect(asked).toEqual([from]);
});

test("a watch that breaks continues after the last event", async () => {
  const { asked, open } = service([{ revision: 11n }, { revision: 12n }], [{ revision: 13n }, { reset: true }]);
  const kinds: string[] = [];
  for await (const { kind } of follow(open, from, {})) kinds.push(kind);
  expect(kinds).toEqual(["changes", "changes", "changes", "reset"]);
  expect(asked).toEqual([from, { epoch: "e", revision: 12n }]);
});

test.each([
  ["the reason of the signal", "CANCELLED"],
  ["a break that comes at the same time", "UNAVAILABLE"],
] as const)("a watch that is ended reports no break when its stream fails with %s", async (_what, code) => {
  const end = new AbortController();
  const closed = new InventoryError("CANCELLED", "the client was closed");
  const open = async function* () {
    yield { epoch: "e", revision: 11n, items: [], reset: false };
    end.abort(closed);
    throw code === "CANCELLED" ? closed : new InventoryError(code, "");
  };
  const breaks: unknown[] = [];
  const onBreak = (error: unknown) => void breaks.push(error);
  await expect(Array.fromAsync(follow(open, from, { signal: end.signal, onBreak }))).rejects.toBe(closed);
  expect(breaks).toEqual([]);
});
