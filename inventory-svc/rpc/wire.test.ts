import { PetStatus } from "../../proto/gen/petstore/inventory/v1/inventory.ts";
import { maxExpectedRevisions } from "../../proto/pet.ts";
import { readAdjustment, readGroup, readPetIds, readQuantity, readStatus, readUpdate } from "./wire.ts";

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

test("quantities and deltas that are all or nothing need a key, so that a repeat finds them all", () => {
  const set = { petId: 7n, quantity: 5, delta: undefined, requestId: "", expectedRevisions: [], reason: undefined };
  const take = { ...set, petId: 8n, quantity: undefined, delta: -2, requestId: "order:1" };
  const read = (changes: object[], allOrNothing = true) =>
    readGroup({ changes, allOrNothing, deadlineMs: 1_000 } as never, { kind: "internal" }).changes.length;
  expect(() => read([set, take])).toThrow(fieldOf("idempotency_key"));
  expect([read([set]), read([take]), read([set, take], false)]).toEqual([1, 1, 2]);
});

// Ids and fingerprints are kept for a day and longer. Another form would make changes twice, or refuse their repeats.
describe("what makes a change happen once is the same text in every version:", () => {
  const set = { petId: 7n, quantity: 5, delta: undefined, requestId: "", expectedRevisions: [], reason: undefined };
  const take = { ...set, petId: 8n, quantity: undefined, delta: -2 };
  const idempotencyKey = { account: "acme", key: "k", fingerprint: "" };
  const group = { deadlineMs: 1_000, idempotencyKey, allOrNothing: false, originRequestId: "r" };
  const onceOf = (more: object) => {
    return readGroup({ ...group, ...more } as never, { kind: "internal" }).changes.map(({ once }) => once);
  };

  test("changes that stand alone have the key and their petId, each with a hash of its own", () => {
    const expecting = { ...set, expectedRevisions: [3n, 4n] };
    expect(onceOf({ changes: [set, take] })).toEqual([
      { id: "acme k 7", fingerprint: "_P_5seO2HWlz0Y8eW9kgLkJ-4oSmiqw6M2jk-9JQ-Eo" },
      { id: "acme k 8", fingerprint: "u3zRD3h9p5ZCRhCMwiVgsCeXCD6kUNqjTGfIlCNLDTg" },
    ]);
    expect(onceOf({ changes: [expecting] })).toEqual([
      { id: "acme k 7", fingerprint: "7aEcDgLMSf60lvYFNGcwzrEsInmfsF9hajAXrCWPXps" },
    ]);
  });

  test("changes that are all or nothing have the key and their place, and share one hash", () => {
    expect(onceOf({ changes: [set, take], allOrNothing: true })).toEqual([
      { id: "acme k #0", fingerprint: "UW1znkPXY8Sugm_KTX6dnkuP1uChomIdnxgvSsFZriE" },
      { id: "acme k #1", fingerprint: "UW1znkPXY8Sugm_KTX6dnkuP1uChomIdnxgvSsFZriE" },
    ]);
  });

  test("a fingerprint that comes with the key is kept as it is", () => {
    expect(onceOf({ changes: [set], idempotencyKey: { ...idempotencyKey, fingerprint: "f" } })).toEqual([
      { id: "acme k 7", fingerprint: "f" },
    ]);
  });

  test("an adjustment by its request_id has that id, and its delta as the fingerprint", () => {
    const adjustment = { petId: 8n, delta: -2, requestId: "order:1", expectedRevisions: [], reason: undefined };
    const once = { id: "order:1", fingerprint: "-2", adjustmentId: "order:1" };
    expect(readAdjustment(adjustment)).toMatchObject({ once });
  });
});
