import fc from "fast-check";
import { type ListedItem, maxQuantity, petStatuses } from "../../proto/pet.ts";
import { asGroup } from "../../test/support/stock-changes.ts";
import {
  emptyModel,
  groupOf,
  outcomeKinds,
  perform,
  plan,
  settle,
  settleGroup,
} from "../../test/support/stock-model.ts";
import type { Change, ChangeGroup, LedgerChange, OnceRecord, Outcome } from "./change.ts";
import { decideChanges } from "./decide-changes.ts";

const present: ListedItem = { petId: 7n, quantity: 3, status: "pending", revision: 4n, removed: false };
const tombstone: ListedItem = { ...present, removed: true };
const made: ListedItem = { petId: 7n, quantity: 5, status: "sold", revision: 11n, removed: false };
const states: Record<string, ListedItem[]> = { present: [present], removed: [tombstone], unknown: [] };
const changes: Record<Change["kind"], Change> = {
  update: { kind: "update", petId: 7n, quantity: 5 },
  adjust: { kind: "adjust", petId: 7n, delta: 2, once: { id: "a", fingerprint: "2" } },
  create: { kind: "create", petId: 7n, quantity: 5, status: "sold" },
  remove: { kind: "remove", petId: 7n },
  put: { kind: "put", petId: 7n, quantity: 5, status: "sold" },
};

/** Decides changes to a stock at revision 10, each in a group of its own. */
const decide = (rows: ListedItem[], changes: readonly Change[], records: readonly OnceRecord[] = []) => {
  const groups = changes.map((change) => asGroup([change]));
  const { outcomes, ledgerChanges, ...rest } = decideChanges({ rows, records, revision: 10n, lowestId: 0n }, groups);
  return { outcomes: outcomes.flat(), recorded: ledgerChanges.flatMap(onceRecordOf), ...rest };
};
/** What a row of the ledger answers repeats with. */
const onceRecordOf = ({ once, after }: LedgerChange): OnceRecord[] => (once ? [{ ...once, item: after }] : []);
const unchanged = { rowsToWrite: [], recorded: [], revision: 10n };

describe("changes", () => {
  test.each<[Change["kind"], string, ListedItem]>([
    ["update", "present", { ...present, quantity: 5, revision: 11n }],
    ["adjust", "present", { ...present, quantity: 5, revision: 11n }],
    ["create", "removed", made],
    ["create", "unknown", made],
    ["remove", "present", { ...tombstone, revision: 11n }],
    ["put", "present", made],
    ["put", "removed", made],
    ["put", "unknown", made],
  ])("the %s of an entry that is %s takes the next revision", (kind, state, row) => {
    expect(decide(states[state]!, [changes[kind]])).toEqual({
      outcomes: [{ kind: "done", item: row }],
      rowsToWrite: [row],
      recorded: kind === "adjust" ? [{ id: "a", fingerprint: "2", item: row }] : [],
      revision: 11n,
    });
  });

  test.each<[Change["kind"], string, Outcome["kind"]]>([
    ["update", "removed", "not_found"],
    ["update", "unknown", "not_found"],
    ["adjust", "removed", "not_found"],
    ["adjust", "unknown", "not_found"],
    ["create", "present", "already_exists"],
    ["remove", "removed", "not_found"],
    ["remove", "unknown", "not_found"],
  ])("the %s of an entry that is %s changes nothing and has the outcome %s", (kind, state, refusal) => {
    expect(decide(states[state]!, [changes[kind]])).toEqual({ ...unchanged, outcomes: [{ kind: refusal }] });
  });

  test.each<[string, Change]>([
    ["update of the quantity", { kind: "update", petId: 7n, quantity: 3 }],
    ["update of the status", { kind: "update", petId: 7n, status: "pending" }],
    ["put", { kind: "put", petId: 7n, quantity: 3, status: "pending" }],
  ])("the %s to the current state succeeds and takes no revision", (_kind, change) => {
    expect(decide([present], [change])).toEqual({ ...unchanged, outcomes: [{ kind: "done", item: present }] });
  });

  test.each(petStatuses.flatMap((from) => petStatuses.filter((to) => to !== from).map((to) => [from, to] as const)))(
    "the status changes from %s to %s and the quantity stays",
    (from, to) => {
      const { rowsToWrite } = decide([{ ...present, status: from }], [{ kind: "update", petId: 7n, status: to }]);
      expect(rowsToWrite).toEqual([{ ...present, status: to, revision: 11n }]);
    },
  );

  test.each<[string, Partial<Change>]>([
    ["the quantity", { quantity: 3 }],
    ["the status", { status: "pending" }],
  ])("an update of %s that expects another revision is refused with the entry, change or not", (_what, fields) => {
    const change = { kind: "update", petId: 7n, ...fields, expectedRevisions: [3n, 5n] } as Change;
    const refused = { ...unchanged, outcomes: [{ kind: "revision_mismatch", item: present }] };
    expect(decide([present], [change])).toEqual(refused);
  });

  test("an update that expects one of several revisions is made while the entry is at one of them", () => {
    const change: Change = { kind: "update", petId: 7n, quantity: 8, expectedRevisions: [3n, 4n] };
    expect(decide([present], [change]).rowsToWrite).toEqual([{ ...present, quantity: 8, revision: 11n }]);
  });

  test("one of two updates in a batch that expect the same revision is refused", () => {
    const change = (quantity: number): Change => ({ kind: "update", petId: 7n, quantity, expectedRevisions: [4n] });
    const { outcomes, rowsToWrite } = decide([present], [change(8), change(9)]);
    expect(outcomes.map(({ kind }) => kind)).toEqual(["done", "revision_mismatch"]);
    expect(rowsToWrite).toEqual([{ ...present, quantity: 8, revision: 11n }]);
  });

  test("an empty batch changes nothing", () => {
    expect(decide([present], [])).toEqual({ ...unchanged, outcomes: [] });
  });
});

describe("adjustments", () => {
  const adjust = (requestId: string, delta: number, petId = 7n): Change => ({
    kind: "adjust",
    petId,
    delta,
    once: { id: requestId, fingerprint: String(delta) },
  });
  const first: OnceRecord = { id: "a", fingerprint: "2", item: { ...present, quantity: 90, revision: 8n } };

  test.each<[number, number, Outcome["kind"]]>([
    [3, -3, "done"],
    [3, -4, "insufficient_stock"],
    [0, -1, "insufficient_stock"],
    [maxQuantity, -maxQuantity, "done"],
    [maxQuantity, -maxQuantity - 1, "insufficient_stock"],
    [0, maxQuantity, "done"],
    [1, maxQuantity, "quantity_overflow"],
    [maxQuantity, 1, "quantity_overflow"],
  ])("an adjustment of the quantity %i by %i has the outcome %s", (quantity, delta, kind) => {
    const row = { ...present, quantity };
    const { outcomes, rowsToWrite, recorded } = decide([row], [adjust("a", delta)]);
    const item = kind === "done" ? { ...row, quantity: quantity + delta, revision: 11n } : row;
    expect(outcomes).toEqual([{ kind, item }]);
    expect(rowsToWrite).toEqual(kind === "done" ? [item] : []);
    expect(recorded).toHaveLength(rowsToWrite.length); // a refusal is not recorded
  });

  test.each(Object.keys(states))(
    "an adjustment that is repeated has its first result while the entry is %s",
    (state) => {
      const replayed = { ...unchanged, outcomes: [{ kind: "replayed", item: first.item }] };
      expect(decide(states[state]!, [adjust("a", 2)], [first])).toEqual(replayed);
    },
  );

  test.each([
    ["delta", adjust("a", 3)],
    ["petId", adjust("a", 2, 8n)],
  ])("an adjustment is refused when its request id belongs to an adjustment with another %s", (_what, change) => {
    const rows = [present, { ...present, petId: 8n }];
    const refused = { ...unchanged, outcomes: [{ kind: "id_reused" }] };
    expect(decide(rows, [change], [first])).toEqual(refused);
  });

  test("an adjustment that is repeated in one batch happens once, and the others happen too", () => {
    const batch = [adjust("b", 2), adjust("b", 2), adjust("c", 2), adjust("b", 5), adjust("B", 2)];
    const { outcomes, rowsToWrite, recorded, revision } = decide([present], batch);
    const at = (quantity: number, revision: bigint) => ({ ...present, quantity, revision });
    expect(outcomes).toEqual([
      { kind: "done", item: at(5, 11n) },
      { kind: "replayed", item: at(5, 11n) },
      { kind: "done", item: at(7, 12n) },
      { kind: "id_reused" },
      { kind: "done", item: at(9, 13n) },
    ]);
    expect(rowsToWrite).toEqual([at(9, 13n)]);
    expect(recorded.map(({ id, item }) => [id, item.quantity])).toEqual([
      ["b", 5],
      ["c", 7],
      ["B", 9],
    ]);
    expect(revision).toBe(13n);
  });

  test("an adjustment that was refused is decided again, even in the same batch", () => {
    const { outcomes } = decide([present], [adjust("b", -4), adjust("c", 1), adjust("b", -4)]);
    expect(outcomes.map(({ kind }) => kind)).toEqual(["insufficient_stock", "done", "done"]);
  });
});

describe("updates that happen once", () => {
  const once = { id: "acme k 7", fingerprint: "x" };
  const keyed = (quantity: number, more: Partial<Extract<Change, { kind: "update" }>> = {}): Change => {
    return { kind: "update", petId: 7n, quantity, once, ...more };
  };
  const first: OnceRecord = { ...once, item: { ...present, quantity: 90, revision: 8n } };

  test("an update is recorded with the entry as it leaves it, also when it changes nothing", () => {
    const changed = { ...present, quantity: 5, revision: 11n };
    expect(decide([present], [keyed(5)])).toMatchObject({
      recorded: [{ ...once, item: changed }],
      rowsToWrite: [changed],
    });
    const same = decide([present], [keyed(3)]);
    expect(same).toEqual({
      outcomes: [{ kind: "done", item: present }],
      rowsToWrite: [],
      recorded: [{ ...once, item: present }],
      revision: 10n,
    });
  });

  test.each(Object.keys(states))(
    "an update has its first result again while the entry is %s, whatever it expects",
    (state) => {
      const replayed = { ...unchanged, outcomes: [{ kind: "replayed", item: first.item }] };
      expect(decide(states[state]!, [keyed(90, { expectedRevisions: [1n] })], [first])).toEqual(replayed);
    },
  );

  test("an update that happens once is decided again when it was refused", () => {
    const batch = [keyed(5, { expectedRevisions: [1n] }), keyed(5, { expectedRevisions: [4n] }), keyed(5)];
    const { outcomes, recorded } = decide([present], batch);
    expect(outcomes.map(({ kind }) => kind)).toEqual(["revision_mismatch", "done", "replayed"]);
    expect(recorded).toHaveLength(1);
  });

  test("a group is refused as a whole when one has another request's id, and the next one is not", () => {
    const other = (petId: bigint): Change => {
      return { kind: "update", petId, quantity: 1, once: { id: `acme k ${petId}`, fingerprint: "y" } };
    };
    const rows = [present, { ...present, petId: 8n }, { ...present, petId: 9n }];
    const groups = [[other(8n), other(7n), other(9n)], [{ kind: "update", petId: 9n, quantity: 2 } as const]].map(
      asGroup,
    );
    const { outcomes, rowsToWrite, ledgerChanges } = decideChanges(
      { rows, records: [first], revision: 10n, lowestId: 0n },
      groups,
    );
    expect(outcomes.map((group) => group.map(({ kind }) => kind))).toEqual([Array(3).fill("id_reused"), ["done"]]);
    expect(rowsToWrite).toEqual([{ ...present, petId: 9n, quantity: 2, revision: 11n }]);
    expect(ledgerChanges.flatMap(onceRecordOf)).toEqual([]);
  });

  test("a group that names one id twice is refused as a whole, whether or not it is recorded", () => {
    for (const records of [[], [first]]) {
      const groups = [asGroup([keyed(5), keyed(6)])];
      const { outcomes, rowsToWrite } = decideChanges(
        { rows: [present], records, revision: 10n, lowestId: 0n },
        groups,
      );
      expect(outcomes).toEqual([[{ kind: "id_reused" }, { kind: "id_reused" }]]);
      expect(rowsToWrite).toEqual([]);
    }
  });

  test("an update is refused after another request with its id in the batch, even an idle one", () => {
    const { outcomes } = decide([present], [keyed(3), keyed(3, { once: { ...once, fingerprint: "y" } })]);
    expect(outcomes.map(({ kind }) => kind)).toEqual(["done", "id_reused"]);
  });
});

describe("changes that are all or nothing", () => {
  const adjust = (petId: bigint, delta: number): Change => {
    return { kind: "adjust", petId, delta, once: { id: `acme k #${petId}`, fingerprint: "x" } };
  };
  const rows = [present, { ...present, petId: 8n }];
  const all = (changes: readonly Change[]): ChangeGroup => ({ ...asGroup(changes), isAllOrNothing: true });

  test("one refusal refuses all, and neither entries nor records nor the revision change", () => {
    const groups = [all([adjust(7n, -2), adjust(8n, -4), adjust(9n, 1)]), all([adjust(7n, -3), adjust(8n, 1)])];
    const { outcomes, ledgerChanges, revision } = decideChanges(
      { rows, records: [], revision: 10n, lowestId: 0n },
      groups,
    );
    const refused = { kind: "insufficient_stock", item: rows[1] };
    expect(outcomes[0]).toEqual([{ kind: "group_refused" }, refused, { kind: "group_refused" }]);
    expect(outcomes[1]!.map((outcome) => "item" in outcome && outcome.item.quantity)).toEqual([0, 4]);
    expect(ledgerChanges.map(({ id, once }) => [id, once?.id])).toEqual([
      [11n, "acme k #7"],
      [12n, "acme k #8"],
    ]);
    expect(revision).toBe(12n);
  });

  test("a repeat has the first results, also beside an entry that has gone", () => {
    const groups = [all([adjust(7n, -2), adjust(8n, 1)]), asGroup([{ kind: "remove", petId: 8n }])];
    const { outcomes } = decideChanges({ rows, records: [], revision: 10n, lowestId: 0n }, [...groups, groups[0]!]);
    expect(outcomes[2]).toEqual(outcomes[0]!.map((outcome) => ({ ...outcome, kind: "replayed" })));
  });

  test("a repeat of which some records are deleted already makes nothing, not even the rest", () => {
    const group = all([adjust(7n, -2), adjust(8n, 1)]);
    const first = decideChanges({ rows, records: [], revision: 10n, lowestId: 0n }, [group]);
    for (const left of first.ledgerChanges.map(onceRecordOf)) {
      const { outcomes, ledgerChanges } = decideChanges({ rows, records: left, revision: 12n, lowestId: 0n }, [group]);
      expect([outcomes, ledgerChanges]).toEqual([[[{ kind: "id_reused" }, { kind: "id_reused" }]], []]);
    }
  });
});

describe("batches", () => {
  test("of any changes have the same result as one change at a time on a plain map", () => {
    const kinds = new Map<string, number>();
    fc.assert(
      fc.property(
        fc.array(fc.array(groupOf(plan), { maxLength: 12 }), { maxLength: 6 }),
        fc.bigInt(0n, 99n),
        (batches, start) => {
          const model = emptyModel(start);
          const table = new Map<bigint, ListedItem>();
          const records = new Map<string, OnceRecord>();
          let lowestId = 0n;
          for (const plans of batches) {
            const before = model.revision;
            const expected = plans.map((each) => {
              const group = settleGroup(each, model);
              return { group, outcomes: perform(model, group) };
            });
            const groups = expected.map(({ group }) => group);
            const named = new Set(groups.flatMap(({ changes }) => changes.map(({ petId }) => petId)));
            const rows = [...table.values()].filter((row) => named.has(row.petId));
            const { outcomes, rowsToWrite, ledgerChanges, revision } = decideChanges(
              { rows, records: records.values(), revision: before, lowestId },
              groups,
            );
            for (const { kind } of outcomes.flat()) kinds.set(kind, (kinds.get(kind) ?? 0) + 1);

            // Each caller gets the same outcome as without a batch, and each effective change has its own revision.
            expect(outcomes).toEqual(expected.map((each) => each.outcomes));
            expect(revision).toBe(model.revision);
            // The batch writes one row for each changed entry, with its latest state.
            const changed = [...model.rows.values()].filter((row) => row.revision > before);
            expect(new Map(rowsToWrite.map((row) => [row.petId, row]))).toEqual(
              new Map(changed.map((row) => [row.petId, row])),
            );
            expect(rowsToWrite).toHaveLength(changed.length);
            // The ledger leads from each state to the next one, revision by revision.
            const made = ledgerChanges.filter(({ id }) => id > 0n);
            expect(made.map(({ id }) => id)).toEqual(made.map((_, i) => before + BigInt(i) + 1n));
            for (const { before: found, after } of made) {
              const row = table.get(after.petId);
              expect(found).toEqual(row?.removed ? undefined : row);
              table.set(after.petId, after);
            }
            expect(table).toEqual(model.rows);
            const others = ledgerChanges.filter(({ id }) => id < 0n);
            expect(others.map(({ id }) => id)).toEqual(others.map((_, i) => lowestId - BigInt(i) - 1n));
            lowestId -= BigInt(others.length);
            for (const record of ledgerChanges.flatMap(onceRecordOf)) {
              expect(records.has(record.id)).toBe(false);
              records.set(record.id, record);
            }
            expect(records).toEqual(model.records);
          }
        },
      ),
      { numRuns: 500 },
    );
    // The check above proves little unless every kind of outcome occurred.
    expect([...kinds.keys()].sort()).toEqual(outcomeKinds);
  });

  test("of any changes never give two states of the stock the same revision", () => {
    fc.assert(
      fc.property(fc.array(plan, { maxLength: 40 }), (plans) => {
        const model = emptyModel(0n);
        for (const each of plans) {
          const { rows, records, revision } = model;
          const input = { rows: rows.values(), records: records.values(), revision, lowestId: 0n };
          const result = decideChanges(input, [asGroup([settle(each, model)])]);
          expect(result.revision - revision).toBe(BigInt(result.rowsToWrite.length));
          for (const row of result.rowsToWrite) {
            expect(row.revision).toBe(revision + 1n);
            expect({ ...row, revision: 0n }).not.toEqual({ ...rows.get(row.petId), revision: 0n });
            rows.set(row.petId, row);
          }
          for (const record of result.ledgerChanges.flatMap(onceRecordOf)) records.set(record.id, record);
          model.revision = result.revision;
        }
      }),
    );
  });
});
