// A plain model of the stock, and random changes to compare it with the real one.
import fc from "fast-check";
import type { Change, ChangeGroup, OnceRecord, Outcome } from "../../inventory-svc/stock/change.ts";
import { type ListedItem, maxPetId, maxQuantity, minPetId, petStatuses } from "../../proto/pet.ts";

/** Every kind of outcome, sorted. A comparison proves something only when all of them occur. */
export const outcomeKinds: readonly Outcome["kind"][] = [
  "already_exists",
  "done",
  "group_refused",
  "id_reused",
  "insufficient_stock",
  "not_found",
  "quantity_overflow",
  "replayed",
  "revision_mismatch",
];

/** A change whose expected revision is filled in when its turn comes. */
export type Plan = Omit<Change, "expectedRevisions"> & { readonly expects: "anything" | "current" | "other" };

export interface Model {
  readonly rows: Map<bigint, ListedItem>;
  readonly records: Map<string, OnceRecord>;
  revision: bigint;
}

export const emptyModel = (revision: bigint): Model => ({ rows: new Map(), records: new Map(), revision });

/** Applies the changes of a group to the model, one after the other. @returns an outcome for each */
export function perform(model: Model, { changes, isAllOrNothing }: ChangeGroup): Outcome[] {
  const isNew = (change: Change) => !model.records.has(change.once?.id ?? "");
  const isReused = changes.some((change, i) => {
    const once = change.once;
    if (once && changes.some((other, j) => j !== i && other.once?.id === once.id)) return true;
    const first = model.records.get(once?.id ?? "");
    return first && (first.fingerprint !== once!.fingerprint || first.item.petId !== change.petId);
  });
  const isPart = isAllOrNothing && changes.some(isNew) && !changes.every(isNew);
  if (isReused || isPart) return changes.map(() => ({ kind: "id_reused" }));
  const copy = { rows: new Map(model.rows), records: new Map(model.records), revision: model.revision };
  const outcomes = changes.map((change) => performOne(model, change));
  const refused = outcomes.findIndex(({ kind }) => kind !== "done" && kind !== "replayed");
  if (!isAllOrNothing || refused === -1) return outcomes;
  for (const name of ["rows", "records"] as const) model[name].clear();
  for (const [petId, row] of copy.rows) model.rows.set(petId, row);
  for (const [id, record] of copy.records) model.records.set(id, record);
  model.revision = copy.revision;
  return outcomes.map((outcome, i) => (i === refused ? outcome : { kind: "group_refused" }));
}

function performOne(model: Model, change: Change): Outcome {
  const before = model.rows.get(change.petId);
  const exists = before !== undefined && !before.removed;
  const once = change.once;
  const first = model.records.get(once?.id ?? "");
  if (first) return { kind: "replayed", item: first.item };
  if (change.kind === "create" ? exists : !exists && change.kind !== "put") {
    return { kind: exists ? "already_exists" : "not_found" };
  }
  if (
    (change.kind === "update" || change.kind === "adjust") &&
    change.expectedRevisions?.includes(before!.revision) === false
  ) {
    return { kind: "revision_mismatch", item: before! };
  }
  const quantity = change.kind === "adjust" ? before!.quantity + change.delta : undefined;
  if (quantity !== undefined && quantity < 0) return { kind: "insufficient_stock", item: before! };
  if (quantity !== undefined && quantity > maxQuantity) return { kind: "quantity_overflow", item: before! };
  const after = {
    petId: change.petId,
    quantity: quantity ?? ("quantity" in change ? change.quantity : undefined) ?? before!.quantity,
    status: ("status" in change ? change.status : undefined) ?? before!.status,
    removed: change.kind === "remove",
  };
  if (stateOf(after) !== stateOf(before)) {
    model.revision += 1n;
    model.rows.set(change.petId, { ...after, revision: model.revision });
  }
  const item = model.rows.get(change.petId)!;
  if (once) model.records.set(once.id, { ...once, item });
  return { kind: "done", item };
}

const stateOf = (row: Omit<ListedItem, "revision"> | undefined) =>
  row && `${row.quantity} ${row.status} ${row.removed}`;

const petId = fc.constantFrom(minPetId, -1n, 0n, 7n, maxPetId);
const quantity = fc.constantFrom(0, 1, 5, maxQuantity);
const status = fc.constantFrom(...petStatuses);
const expects = fc.constantFrom("anything", "current", "other");
const delta = fc.constantFrom(1, -1, 4, -maxQuantity, maxQuantity);
const once = (delta: number) =>
  fc.constantFrom("a", "A", "b", "c", "d", "e").map((id) => ({ id, fingerprint: `${delta}` }));
/** Adjustments that occur more than once. Random values would hardly ever repeat one. */
const repeated = fc.constantFrom(
  { kind: "adjust", petId: 7n, delta: 1, once: { id: "a", fingerprint: "1" } },
  { kind: "adjust", petId: 7n, delta: -1, once: { id: "b", fingerprint: "-1" } },
  { kind: "adjust", petId: minPetId, delta: 4, once: { id: "c", fingerprint: "4" } },
);

/** Updates that happen once. */
const keyed = fc
  .record({ petId, quantity, expects, key: fc.constantFrom("k", "l"), fingerprint: fc.constantFrom("x", "x", "y") })
  .map(({ key, fingerprint, ...update }) => {
    return { kind: "update", ...update, once: { id: `acme ${key} ${update.petId}`, fingerprint } };
  });

const adjustment = delta.chain((delta) =>
  fc.record({ kind: fc.constant("adjust"), petId, delta: fc.constant(delta), once: once(delta), expects }),
);

/** Any change. There are few entries and request ids, so that changes meet. */
export const plan = fc.oneof(
  { weight: 3, arbitrary: fc.record({ kind: fc.constant("update"), petId, quantity, expects }) },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant("update"), petId, status, expects }) },
  { weight: 2, arbitrary: adjustment },
  { weight: 3, arbitrary: repeated },
  { weight: 2, arbitrary: keyed },
  { weight: 3, arbitrary: fc.record({ kind: fc.constant("create"), petId, quantity, status }) },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant("remove"), petId }) },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant("put"), petId, quantity, status }) },
) as fc.Arbitrary<Plan>;

/** Changes of one caller, to be settled when their turn comes. */
export interface PlannedGroup {
  readonly plans: readonly Plan[];
  readonly isAllOrNothing: boolean;
}

/** Any change, alone or with others of its caller. */
export const groupOf = (one: fc.Arbitrary<Plan>): fc.Arbitrary<PlannedGroup> =>
  fc.record({
    plans: fc.oneof(
      { weight: 3, arbitrary: one.map((plan) => [plan]) },
      { weight: 1, arbitrary: fc.array(one, { minLength: 2, maxLength: 4 }) },
    ),
    isAllOrNothing: fc.boolean(),
  });

/** Fills in the expected revisions of a group. */
export function settleGroup({ plans, isAllOrNothing }: PlannedGroup, model: Model): ChangeGroup {
  const changes = plans.map((plan) => settle(plan, model));
  return { changes, origin: { actor: { kind: "operator" } }, isAllOrNothing };
}

/** Fills in the expected revision of a change: the current one of its entry, or another. */
export function settle({ expects, ...change }: Plan, { rows }: Model): Change {
  const current = rows.get(change.petId)?.revision ?? 1n;
  if (!["update", "adjust"].includes(change.kind) || (expects ?? "anything") === "anything") return change as Change;
  return { ...change, expectedRevisions: [expects === "current" ? current : current - 1n, -1n] } as Change;
}
