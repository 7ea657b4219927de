import type { ListedItem } from "../../../proto/pet.ts";
import { InvariantError } from "../../../runtime/invariant.ts";
import { editChunk, makeChunk } from "./chunk.ts";

const item = (petId: bigint, revision = 1n): ListedItem => {
  return { petId, quantity: 5, status: "sold", revision, removed: false };
};

test("a chunk whose bytes would not be those of its entries is never made", () => {
  const chunk = makeChunk([1n, 2n, 3n].map((petId) => item(petId)));
  expect(editChunk(chunk, [item(2n, 2n)]).json).toEqual(chunk.json);
  const damaged = { ...chunk, offsets: chunk.offsets.with(3, 100) };
  expect(() => editChunk(damaged, [item(9n, 2n)])).toThrow(InvariantError);
});
