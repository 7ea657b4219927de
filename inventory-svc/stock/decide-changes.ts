/** Decides what each change of a batch does to the stock. Pure: no database, no clock. */
import { type ChangeKind, itemFields, type ListedItem, maxQuantity } from "../../proto/pet.ts";
import type { Change, ChangeGroup, LedgerChange, OnceRecord, Origin, Outcome } from "./change.ts";

/** The result of a batch. */
export interface BatchResult {
  /** For each group, the outcomes of its changes, in order. */
  readonly outcomes: readonly (readonly Outcome[])[];
  /** The rows to write: the latest state of every entry that changed. */
  readonly rowsToWrite: readonly ListedItem[];
  /** Each change that was made, also one that happens once and changed nothing. */
  readonly ledgerChanges: readonly LedgerChange[];
  /** The revision of the stock after the last change. */
  readonly revision: bigint;
}

/** The stock before a batch, as far as the batch concerns it. */
export interface BatchInput {
  /** The entries that the changes name, tombstones included. */
  readonly rows: Iterable<ListedItem>;
  /** The records of the ids that the changes name. */
  readonly records: Iterable<OnceRecord>;
  /** The revision of the stock before the first change. */
  readonly revision: bigint;
  /** The lowest id in the ledger if that is below 0, otherwise 0. */
  readonly lowestId: bigint;
}

/**
 * Decides changes one after the other, as if each were alone. A change that changes something takes the next revision,
 * so that two states of an entry never share one. A change that would leave everything as it is takes none.
 */
export function decideChanges(input: BatchInput, groups: readonly ChangeGroup[]): BatchResult {
  const stock = new WorkingStock(input);
  const outcomes = groups.map((group) => stock.apply(group));
  const { revision, ledgerChanges } = stock;
  return { outcomes, rowsToWrite: latestOf(ledgerChanges), ledgerChanges, revision };
}

/** The latest state of every entry that was changed. */
function latestOf(ledgerChanges: readonly LedgerChange[]): ListedItem[] {
  const changed = ledgerChanges.filter(({ id }) => id > 0n);
  return [...new Map(changed.map(({ after }) => [after.petId, after])).values()];
}

/** The stock as the changes so far have left it, and what the ledger will have of them. */
class WorkingStock {
  readonly ledgerChanges: LedgerChange[] = [];
  revision: bigint;
  #lowestId: bigint;
  readonly #rows = new Map<bigint, ListedItem>();
  readonly #onceRecords = new Map<string, OnceRecord>();

  constructor({ rows, records, revision, lowestId }: BatchInput) {
    this.revision = revision;
    this.#lowestId = lowestId;
    for (const row of rows) this.#rows.set(row.petId, row);
    for (const record of records) this.#onceRecords.set(record.id, record);
  }

  apply(group: ChangeGroup): Outcome[] {
    const { changes } = group;
    const ids = changes.flatMap((change) => change.once?.id ?? []);
    const known = ids.filter((id) => this.#onceRecords.has(id)).length;
    // The clean-up may delete some records of a group first. Those that are left must not answer half a repeat.
    const isPart = group.isAllOrNothing && known > 0 && known < changes.length;
    const isReused = isPart || new Set(ids).size < ids.length || changes.some((change) => this.#isReused(change));
    if (isReused) return changes.map(() => ({ kind: "id_reused" }));
    return group.isAllOrNothing ? this.#makeAll(group) : changes.map((change) => this.#make(change, group.origin));
  }

  #isReused(change: Change): boolean {
    const once = change.once;
    const first = once && this.#onceRecords.get(once.id);
    return first !== undefined && (first.fingerprint !== once?.fingerprint || first.item.petId !== change.petId);
  }

  /** Makes the changes on a copy of what they concern, and takes its result over if none is refused. */
  #makeAll({ changes, origin }: ChangeGroup): Outcome[] {
    const rows = changes.flatMap(({ petId }) => this.#rows.get(petId) ?? []);
    const records = changes.flatMap((change) => this.#onceRecords.get(change.once?.id ?? "") ?? []);
    const trial = new WorkingStock({ rows, records, revision: this.revision, lowestId: this.#lowestId });
    const outcomes = trial.apply({ changes, origin }); // each by itself: refusals are looked for afterwards
    const refused = outcomes.findIndex(({ kind }) => kind !== "done" && kind !== "replayed");
    if (refused !== -1) return outcomes.map((outcome, i) => (i === refused ? outcome : { kind: "group_refused" }));
    for (const change of trial.ledgerChanges) this.#record(change);
    return outcomes;
  }

  /** A repeat gets the answer of the first time, whatever has become of the entry since. Refusals are not recorded. */
  #make(change: Change, origin: Origin): Outcome {
    const once = change.once;
    const first = once && this.#onceRecords.get(once.id);
    if (first) return { kind: "replayed", item: first.item };
    const row = this.#rows.get(change.petId);
    const before = row?.removed ? undefined : row;
    const decided = decide(change, before);
    if ("kind" in decided) return decided;
    const isChanged = !isSame(decided, before);
    const id = isChanged ? this.revision + 1n : this.#lowestId - 1n;
    const after = isChanged ? { ...decided, revision: id } : before!;
    if (isChanged || once) {
      this.#record({ id, kind: changeKindOf(change), before, after, once, reason: change.reason, origin });
    }
    return { kind: "done", item: after };
  }

  #record(change: LedgerChange): void {
    const { id, after, once } = change;
    this.ledgerChanges.push(change);
    this.#rows.set(after.petId, after);
    if (once) this.#onceRecords.set(once.id, { ...once, item: after });
    if (id > 0n) this.revision = id;
    else this.#lowestId = id;
  }
}

/** An entry as a change leaves it, before it has the revision. */
type State = Omit<ListedItem, "revision">;
type Refusal = Exclude<Outcome, { kind: "done" | "replayed" }>;

function decide(change: Change, entry: ListedItem | undefined): State | Refusal {
  switch (change.kind) {
    case "create":
      return entry ? { kind: "already_exists" } : stateOf(change);
    case "put":
      return stateOf(change);
    case "remove":
      return entry ? { ...entry, removed: true } : { kind: "not_found" };
    case "update":
    case "adjust":
      if (!entry) return { kind: "not_found" };
      if (change.expectedRevisions?.includes(entry.revision) === false) {
        return { kind: "revision_mismatch", item: entry };
      }
      if (change.kind === "adjust") return adjusted(entry, change.delta);
      return { ...entry, quantity: change.quantity ?? entry.quantity, status: change.status ?? entry.status };
  }
}

/** The entry that a change makes. */
function stateOf({ kind: _kind, reason: _reason, ...entry }: Extract<Change, { kind: "create" | "put" }>): State {
  return { ...entry, removed: false };
}

function adjusted(entry: ListedItem, delta: number): State | Refusal {
  const quantity = entry.quantity + delta;
  if (quantity < 0) return { kind: "insufficient_stock", item: entry };
  if (quantity > maxQuantity) return { kind: "quantity_overflow", item: entry };
  return { ...entry, quantity };
}

function isSame(state: State, entry: ListedItem | undefined): boolean {
  return entry?.removed === state.removed && itemFields.every((name) => entry[name] === state[name]);
}

function changeKindOf(change: Change): ChangeKind {
  if (change.kind === "update") return change.quantity === undefined ? "status" : "set";
  return change.kind === "put" ? "import" : change.kind;
}
