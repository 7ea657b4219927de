import fc from "fast-check";
import { applyChanges, type Change, type Outcome } from "./changes.ts";
import { maxPetId, maxQuantity, minPetId, petStatuses, type StockRow } from "./item.ts";

const present: StockRow = { petId: 7n, quantity: 3, status: "pending", revision: 4n, removed: false };
const tombstone: StockRow = { ...present, removed: true };
const made: StockRow = { petId: 7n, quantity: 5, status: "sold", revision: 11n, removed: false };
const states: Record<string, StockRow[]> = { present: [present], removed: [tombstone], unknown: [] };
const changes: Record<Change["kind"], Change> = {
  update: { kind: "update", petId: 7n, quantity: 5 },
  create: { kind: "create", petId: 7n, quantity: 5, status: "sold" },
  remove: { kind: "remove", petId: 7n },
  put: { kind: "put", petId: 7n, quantity: 5, status: "sold" },
};

describe("a change", () => {
  test.each<[Change["kind"], string, StockRow]>([
    ["update", "present", { ...present, quantity: 5, revision: 11n }],
    ["create", "removed", made],
    ["create", "unknown", made],
    ["remove", "present", { ...tombstone, revision: 11n }],
    ["put", "present", made],
    ["put", "removed", made],
    ["put", "unknown", made],
  ])("%s of an entry that is %s takes the next revision", (kind, state, row) => {
    expect(applyChanges(states[state]!, [changes[kind]], 10n)).toEqual({
      outcomes: [{ kind: "done", item: row }],
      written: [row],
      revision: 11n,
    });
  });

  test.each<[Change["kind"], string, Outcome["kind"]]>([
    ["update", "removed", "not_found"],
    ["update", "unknown", "not_found"],
    ["create", "present", "already_exists"],
    ["remove", "removed", "not_found"],
    ["remove", "unknown", "not_found"],
  ])("%s of an entry that is %s changes nothing: %s", (kind, state, refusal) => {
    const refused = { outcomes: [{ kind: refusal }], written: [], revision: 10n };
    expect(applyChanges(states[state]!, [changes[kind]], 10n)).toEqual(refused);
  });

  test.each<[string, Change]>([
    ["update", { kind: "update", petId: 7n, quantity: 3 }],
    ["put", { kind: "put", petId: 7n, quantity: 3, status: "pending" }],
  ])("%s to what already holds succeeds and takes no revision", (_kind, change) => {
    const same = { outcomes: [{ kind: "done", item: present }], written: [], revision: 10n };
    expect(applyChanges([present], [change], 10n)).toEqual(same);
  });

  test("an update that expects another revision is refused with the entry as it stands, even to the same quantity", () => {
    const change: Change = { kind: "update", petId: 7n, quantity: 3, expectedRevision: 3n };
    const refused = { outcomes: [{ kind: "revision_mismatch", item: present }], written: [], revision: 10n };
    expect(applyChanges([present], [change], 10n)).toEqual(refused);
  });

  test("of two updates that expect the same revision, in one batch, one happens", () => {
    const change = (quantity: number): Change => ({ kind: "update", petId: 7n, quantity, expectedRevision: 4n });
    const { outcomes, written } = applyChanges([present], [change(8), change(9)], 10n);
    expect(outcomes.map(({ kind }) => kind)).toEqual(["done", "revision_mismatch"]);
    expect(written).toEqual([{ ...present, quantity: 8, revision: 11n }]);
  });

  test("no changes change nothing", () => {
    expect(applyChanges([present], [], 10n)).toEqual({ outcomes: [], written: [], revision: 10n });
  });
});

/** A change before it is known at which revision its entry will be. */
type Plan = Omit<Change, "expectedRevision"> & { readonly expects: "anything" | "current" | "other" };

interface Model {
  readonly rows: Map<bigint, StockRow>;
  revision: bigint;
}

/** Does one change to the plain map. @returns the outcome */
function perform(model: Model, change: Change): Outcome {
  const before = model.rows.get(change.petId);
  const exists = before !== undefined && !before.removed;
  if (change.kind === "create" ? exists : !exists && change.kind !== "put") {
    return { kind: exists ? "already_exists" : "not_found" };
  }
  if (change.kind === "update" && (change.expectedRevision ?? before!.revision) !== before!.revision) {
    return { kind: "revision_mismatch", item: before! };
  }
  const after = {
    petId: change.petId,
    quantity: "quantity" in change ? change.quantity : before!.quantity,
    status: "status" in change ? change.status : before!.status,
    removed: change.kind === "remove",
  };
  if (stateOf(after) !== stateOf(before)) {
    model.revision += 1n;
    model.rows.set(change.petId, { ...after, revision: model.revision });
  }
  return { kind: "done", item: model.rows.get(change.petId)! };
}

const stateOf = (row: Omit<StockRow, "revision"> | undefined) => row && `${row.quantity} ${row.status} ${row.removed}`;

const petId = fc.constantFrom(minPetId, -1n, 0n, 7n, maxPetId);
const quantity = fc.constantFrom(0, 1, 5, maxQuantity);
const status = fc.constantFrom(...petStatuses);
const expects = fc.constantFrom("anything", "current", "other");
const plan = fc.oneof(
  { weight: 3, arbitrary: fc.record({ kind: fc.constant("update"), petId, quantity, expects }) },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant("create"), petId, quantity, status }) },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant("remove"), petId }) },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant("put"), petId, quantity, status }) },
) as fc.Arbitrary<Plan>;

/** The change with the revision that its entry has, or does not have, when its turn comes. */
function settle({ expects, ...change }: Plan, { rows }: Model): Change {
  const current = rows.get(change.petId)?.revision ?? 1n;
  if (change.kind !== "update" || expects === "anything") return change as Change;
  return { ...change, expectedRevision: expects === "current" ? current : current - 1n } as Change;
}

describe("batches of any changes", () => {
  test("amount to the same as one change at a time on a plain map", () => {
    const kinds = new Map<string, number>();
    fc.assert(
      fc.property(
        fc.array(fc.array(plan, { maxLength: 12 }), { maxLength: 6 }),
        fc.bigInt(0n, 99n),
        (batches, start) => {
          const model: Model = { rows: new Map(), revision: start };
          const table = new Map<bigint, StockRow>();
          for (const plans of batches) {
            const before = model.revision;
            const expected = plans.map((each) => {
              const change = settle(each, model);
              return { change, outcome: perform(model, change), revision: model.revision };
            });
            const batch = expected.map(({ change }) => change);
            const named = new Set(batch.map((change) => change.petId));
            const { outcomes, written, revision } = applyChanges(
              [...table.values()].filter((row) => named.has(row.petId)),
              batch,
              before,
            );
            for (const { kind } of outcomes) kinds.set(kind, (kinds.get(kind) ?? 0) + 1);

            // Each caller gets what it would have got alone, and each effective change one revision of its own.
            expect(outcomes).toEqual(expected.map(({ outcome }) => outcome));
            expect(revision).toBe(model.revision);
            // What is written is the last state of each entry that changed in this batch, once, and of no other.
            const changed = [...model.rows.values()].filter((row) => row.revision > before);
            expect(new Map(written.map((row) => [row.petId, row]))).toEqual(
              new Map(changed.map((row) => [row.petId, row])),
            );
            expect(written).toHaveLength(changed.length);
            for (const row of written) table.set(row.petId, row);
            expect(table).toEqual(model.rows);
          }
        },
      ),
      { numRuns: 500 },
    );
    // The check above is worth something only if all kinds of outcome came up.
    expect([...kinds.keys()].sort()).toEqual(["already_exists", "done", "not_found", "revision_mismatch"]);
  });

  test("two states of the stock never share a revision", () => {
    fc.assert(
      fc.property(fc.array(plan, { maxLength: 40 }), (plans) => {
        const rows = new Map<bigint, StockRow>();
        let revision = 0n;
        for (const each of plans) {
          const standing = rows.get(each.petId);
          const applied = applyChanges(standing ? [standing] : [], [settle(each, { rows, revision })], revision);
          expect(applied.revision - revision).toBe(BigInt(applied.written.length));
          for (const row of applied.written) {
            expect(row.revision).toBe(revision + 1n);
            expect({ ...row, revision: 0n }).not.toEqual({ ...standing, revision: 0n });
            rows.set(row.petId, row);
          }
          revision = applied.revision;
        }
      }),
    );
  });
});
