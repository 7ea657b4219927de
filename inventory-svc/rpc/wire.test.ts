import { PetStatus } from "../../proto/gen/petstore/inventory/v1/inventory.ts";
import { maxExpectedRevisions } from "../../proto/pet.ts";
import { readPetIds, readQuantity, readStatus, readUpdate } from "./wire.ts";

const ids = (count: number) => Array.from({ length: count }, (_, i) => BigInt(i));
const update = { petId: 7n, quantity: 5, expectedRevisions: [] };
const fieldOf = (field: string) => expect.objectContaining({ errorReason: "INVALID_FIELD", field });

test("an update carries every revision that its caller expects, and none when it names none", () => {
  const read = { kind: "update", petId: 7n, quantity: 5 };
  expect(readUpdate(update)).toEqual({ ...read, expectedRevisions: undefined });
  const several = { ...update, expectedRevisions: [3n, 4n, 9n] };
  expect(readUpdate(several)).toEqual({ ...read, expectedRevisions: [3n, 4n, 9n] });
});

test("an update may expect as many revisions as the contract allows, and one more is refused", () => {
  const expecting = (count: number) => () => readUpdate({ ...update, expectedRevisions: ids(count) });
  expect(expecting(maxExpectedRevisions)().expectedRevisions).toHaveLength(maxExpectedRevisions);
  expect(expecting(maxExpectedRevisions + 1)).toThrow(fieldOf("expected_revisions"));
});

test("a look-up may name 1,000 different ids, repeats aside, and one more is refused", () => {
  expect(readPetIds([...ids(1_000), 5n])).toEqual(ids(1_000));
  expect(() => readPetIds(ids(1_001))).toThrow(fieldOf("pet_ids"));
});

test("a refusal of a quantity or a status names the field, and the quantity 0 is none", () => {
  expect(readQuantity(0)).toBe(0);
  expect(() => readQuantity(-1)).toThrow(fieldOf("quantity"));
  expect(() => readQuantity(undefined)).toThrow(fieldOf("quantity"));
  expect(readStatus(PetStatus.PET_STATUS_UNSPECIFIED, "sold")).toBe("sold");
  expect(() => readStatus(PetStatus.PET_STATUS_UNSPECIFIED)).toThrow(fieldOf("status"));
  expect(() => readStatus(99 as PetStatus, "sold")).toThrow(fieldOf("status"));
});
