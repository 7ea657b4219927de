import { status } from "@grpc/grpc-js";
import { statusOfReason } from "../../inventory-svc/rpc/rpc-error.ts";
import { PetStatus } from "../../proto/gen/petstore/inventory/v1/inventory.ts";
import { minPetId } from "../../proto/pet.ts";
import type { ErrorReason } from "../../proto/reasons.ts";
import { describeEachDatabase } from "../support/databases.ts";
import { type Inventory, refusalOf } from "../support/grpc.ts";
import { serveStock } from "../support/inventory-service.ts";
import type { OpenStock } from "../support/open-stock.ts";
import { suiteStack } from "../support/stack.ts";
import { range } from "../support/stock-changes.ts";

const { PET_STATUS_UNSPECIFIED, PET_STATUS_AVAILABLE, PET_STATUS_SOLD } = PetStatus;

describeEachDatabase("refusals over gRPC", (url) => {
  const stack = suiteStack();
  let inventory: Inventory;
  let stock: OpenStock;
  beforeAll(async () => {
    ({ inventory, stock } = await serveStock(stack, url()));
  });
  beforeEach(() => stock.empty());

  const sold = PET_STATUS_SOLD;
  const noEntry = "there is no entry 9";
  const noRemoved = "there is no entry 2";
  const required = "quantity is required";
  const bounds = "quantity must be from 0 to 2147483647";
  /** Entry 1 is at revision 1, and entry 2 is removed. */
  test.each<[string, () => Promise<unknown>, keyof typeof status, string]>([
    ["get of an unknown id", () => inventory.get({ petId: 9n }), "NOT_FOUND", noEntry],
    ["get of a removed entry", () => inventory.get({ petId: 2n }), "NOT_FOUND", noRemoved],
    ["update of an unknown id", () => inventory.update({ petId: 9n, quantity: 1 }), "NOT_FOUND", noEntry],
    ["update of a removed entry", () => inventory.update({ petId: 2n, quantity: 1 }), "NOT_FOUND", noRemoved],
    ["remove of an unknown id", () => inventory.remove({ petId: 9n }), "NOT_FOUND", noEntry],
    ["remove of a removed entry", () => inventory.remove({ petId: 2n }), "NOT_FOUND", noRemoved],
    [
      "create of an existing entry",
      () => inventory.create({ petId: 1n, quantity: 5, status: sold }),
      "ALREADY_EXISTS",
      "there is an entry 1 already",
    ],
    [
      "update at another revision",
      () => inventory.update({ petId: 1n, quantity: 5, expectedRevisions: [7n] }),
      "ABORTED",
      "entry 1 is at revision 1, not at one that is expected",
    ],
    [
      "update at none of several revisions",
      () => inventory.update({ petId: 1n, quantity: 5, expectedRevisions: [7n, 0n, 2n] }),
      "ABORTED",
      "entry 1 is at revision 1, not at one that is expected",
    ],
    [
      "update at 21 revisions",
      () =>
        inventory.update({
          petId: 1n,
          quantity: 5,
          expectedRevisions: Array.from({ length: 21 }, (_, i) => BigInt(i)),
        }),
      "INVALID_ARGUMENT",
      "expected_revisions must be at most 20",
    ],
    [
      "update at revision 0",
      () => inventory.update({ petId: 1n, quantity: 5, expectedRevisions: [0n] }),
      "ABORTED",
      "entry 1 is at revision 1, not at one that is expected",
    ],
    [
      "update of an unknown id at a revision",
      () => inventory.update({ petId: 9n, quantity: 5, expectedRevisions: [1n] }),
      "NOT_FOUND",
      noEntry,
    ],
    ["update without a quantity", () => inventory.update({ petId: 1n }), "INVALID_ARGUMENT", required],
    ["update to a negative quantity", () => inventory.update({ petId: 1n, quantity: -1 }), "INVALID_ARGUMENT", bounds],
    ["update of an unknown id without a quantity", () => inventory.update({ petId: 9n }), "INVALID_ARGUMENT", required],
    ["create without a quantity", () => inventory.create({ petId: 3n, status: sold }), "INVALID_ARGUMENT", required],
    [
      "create with a negative quantity",
      () => inventory.create({ petId: 3n, quantity: -2_147_483_648, status: sold }),
      "INVALID_ARGUMENT",
      bounds,
    ],
    [
      "create with an unknown status",
      () => inventory.create({ petId: 3n, quantity: 1, status: 9 as PetStatus }),
      "INVALID_ARGUMENT",
      "status must be a PetStatus",
    ],
    [
      "setStatus to an unknown status",
      () => inventory.setStatus({ petId: 1n, status: 9 as PetStatus }),
      "INVALID_ARGUMENT",
      "status must be a PetStatus",
    ],
    [
      "setStatus without a status",
      () => inventory.setStatus({ petId: 1n, status: PET_STATUS_UNSPECIFIED }),
      "INVALID_ARGUMENT",
      "status must be a PetStatus",
    ],
    [
      "adjustments that name an entry twice",
      () => inventory.batchAdjust({ adjustments: [1, 2].map((delta) => ({ petId: 1n, delta })), requestId: "twice" }),
      "INVALID_ARGUMENT",
      "adjustments must name each pet_id once",
    ],
    ["setStatus of an unknown id", () => inventory.setStatus({ petId: 9n, status: sold }), "NOT_FOUND", noEntry],
    [
      "setStatus at another revision",
      () => inventory.setStatus({ petId: 1n, status: sold, expectedRevision: 2n }),
      "ABORTED",
      "entry 1 is at revision 1, not at one that is expected",
    ],
    [
      "adjustment without a delta",
      () => inventory.adjust({ petId: 1n, requestId: "a" }),
      "INVALID_ARGUMENT",
      "delta is required",
    ],
    [
      "adjustment by 0",
      () => inventory.adjust({ petId: 1n, delta: 0, requestId: "a" }),
      "INVALID_ARGUMENT",
      "delta must not be 0",
    ],
    ...["", "a b", "a/b", "é", "a\n", "x".repeat(65)].map(
      (requestId): [string, () => Promise<unknown>, keyof typeof status, string] => [
        `adjustment under the request id ${JSON.stringify(requestId)}`,
        () => inventory.adjust({ petId: 1n, delta: 1, requestId }),
        "INVALID_ARGUMENT",
        "request_id must be 1 to 64 of A-Z a-z 0-9 _ . : -",
      ],
    ),
    ...["", "a b", "x".repeat(65)].map(
      (idempotencyKey): [string, () => Promise<unknown>, keyof typeof status, string] => [
        `update under the key ${JSON.stringify(idempotencyKey)}`,
        () => inventory.update({ petId: 1n, quantity: 1, idempotencyKey }),
        "INVALID_ARGUMENT",
        "idempotency_key must be 1 to 64 of A-Z a-z 0-9 _ . : -",
      ],
    ),
    [
      "adjustment of an unknown id",
      () => inventory.adjust({ petId: 9n, delta: 1, requestId: "a" }),
      "NOT_FOUND",
      noEntry,
    ],
    [
      "adjustment of a removed entry",
      () => inventory.adjust({ petId: 2n, delta: 1, requestId: "a" }),
      "NOT_FOUND",
      noRemoved,
    ],
    [
      "adjustment to a negative quantity",
      () => inventory.adjust({ petId: 1n, delta: -5, requestId: "a" }),
      "FAILED_PRECONDITION",
      "entry 1 has only 4 left",
    ],
    [
      "adjustment by the lowest int32",
      () => inventory.adjust({ petId: 1n, delta: -2_147_483_648, requestId: "a" }),
      "FAILED_PRECONDITION",
      "entry 1 has only 4 left",
    ],
    [
      "adjustment to more than the maximum",
      () => inventory.adjust({ petId: 1n, delta: 2_147_483_644, requestId: "a" }),
      "OUT_OF_RANGE",
      "entry 1 has 4 already, and no more than 2147483647 may be",
    ],
    [
      "batchGet of more than 1,000 ids",
      () => inventory.batchGet({ petIds: range(1, 1_001) }),
      "INVALID_ARGUMENT",
      "pet_ids must be at most 1000",
    ],
  ])("%s is refused with its reason and changes nothing", async (_what, call, code, details) => {
    await stock.store.write([
      { kind: "create", petId: 1n, quantity: 4, status: "available" },
      { kind: "create", petId: 2n, quantity: 4, status: "available" },
      { kind: "remove", petId: 2n },
    ]);
    await expect(call()).rejects.toMatchObject({ code: status[code], details });
    const { reason, domain, fields, resource, retryDelayMs } = await refusalOf(call());
    expect(status[statusOfReason[reason as ErrorReason]]).toBe(code);
    expect(domain).toBe("petstore.inventory.v1");
    expect(fields !== undefined).toBe(code === "INVALID_ARGUMENT");
    expect(resource !== undefined).toBe(code === "NOT_FOUND" || code === "ALREADY_EXISTS");
    expect(retryDelayMs).toBeUndefined(); // the same call would be refused again
    expect(await stock.store.position()).toMatchObject({ revision: 3n });
    const listed = (await inventory.list()).flatMap(({ items }) => items);
    expect(listed.filter(({ removed }) => !removed)).toEqual([
      { petId: 1n, quantity: 4, status: PET_STATUS_AVAILABLE, revision: 1n, removed: false },
    ]);
  });
  test.each<[ErrorReason, () => Promise<unknown>, object]>([
    [
      "INVALID_FIELD",
      () => inventory.update({ petId: 1n, quantity: -1 }),
      { metadata: { field: "quantity" }, fields: ["quantity"] },
    ],
    [
      "REQUEST_ID_REUSED",
      () => inventory.adjust({ petId: 1n, delta: 2, requestId: "once" }),
      { metadata: { request_id: "once" }, fields: ["request_id"] },
    ],
    [
      "KEY_REUSED",
      () => inventory.update({ petId: 1n, quantity: 6, idempotencyKey: "k" }),
      { metadata: { pet_id: "1" }, fields: ["idempotency_key"] },
    ],
    [
      "ENTRY_NOT_FOUND",
      () => inventory.get({ petId: minPetId }),
      { metadata: { pet_id: String(minPetId) }, resource: `petstore.inventory.v1.InventoryItem ${minPetId}` },
    ],
    [
      "ENTRY_EXISTS",
      () => inventory.create({ petId: 1n, quantity: 1, status: PET_STATUS_SOLD }),
      { metadata: { pet_id: "1" }, resource: "petstore.inventory.v1.InventoryItem 1" },
    ],
    [
      "REVISION_MISMATCH",
      () => inventory.update({ petId: 1n, quantity: 1, expectedRevisions: [1n] }),
      { metadata: { pet_id: "1", revision: "2" } },
    ],
    [
      "INSUFFICIENT_STOCK",
      () => inventory.adjust({ petId: 1n, delta: -6, requestId: "other" }),
      { metadata: { pet_id: "1", revision: "2", quantity: "5" } },
    ],
    [
      "QUANTITY_OVERFLOW",
      () => inventory.adjust({ petId: 1n, delta: 2_147_483_647, requestId: "other" }),
      { metadata: { pet_id: "1", revision: "2", quantity: "5" } },
    ],
  ])("the details of the error %s name what it concerns", async (reason, call, details) => {
    await inventory.create({ petId: 1n, quantity: 4, status: PET_STATUS_SOLD });
    await inventory.adjust({ petId: 1n, delta: 1, requestId: "once" });
    await inventory.update({ petId: 1n, quantity: 5, idempotencyKey: "k" });
    expect(await refusalOf(call())).toEqual({
      code: status[statusOfReason[reason]],
      reason,
      domain: "petstore.inventory.v1",
      metadata: {},
      fields: undefined,
      resource: undefined,
      retryDelayMs: undefined,
      ...details,
    });
  });
});
