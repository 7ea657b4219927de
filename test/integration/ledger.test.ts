// Checks that the ledger alone tells every state of the stock, and keeps each change as long as it has to.

import fc from "fast-check";
import type { Change, ChangeGroup } from "../../inventory-svc/stock/change.ts";
import { ledgerKeptMsOf } from "../../inventory-svc/stock/cleanup.ts";
import { StockHistory } from "../../inventory-svc/stock/stock-history.ts";
import type { HistoryChange } from "../../inventory-svc/stock/stock-rows.ts";
import { StockStore } from "../../inventory-svc/stock/stock-store.ts";
import type { ListedItem } from "../../proto/pet.ts";
import { describeEachDatabase } from "../support/databases.ts";
import { startInventoryService } from "../support/inventory-service.ts";
import { deleteOldChanges, type OpenStock, openMigratedStock } from "../support/open-stock.ts";
import { suiteStack } from "../support/stack.ts";
import { adjust, create, kinds, range, remove, update } from "../support/stock-changes.ts";
import { emptyModel, groupOf, perform, plan, settleGroup } from "../support/stock-model.ts";
import { until } from "../support/until.ts";

const hourMs = 60 * 60_000;

/** The entries of a stock as texts, by petId. */
type State = ReadonlyMap<bigint, string>;
const textOf = ({ quantity, status }: { quantity: number; status: string }) => `${quantity} ${status}`;
const stateOf = (rows: Iterable<ListedItem>): State =>
  new Map([...rows].filter(({ removed }) => !removed).map((row) => [row.petId, `${textOf(row)} r${row.revision}`]));

describeEachDatabase("the ledger of the stock", (url) => {
  const stack = suiteStack();
  let stock: OpenStock;
  let history: StockHistory;
  beforeAll(async () => {
    stock = await openMigratedStock(stack, url());
    history = new StockHistory(stock.db);
  });
  beforeEach(() => stock.empty());

  const write = async (group: ChangeGroup, store = stock.store) => [
    ...(await store.writeWanted([{ group, isWanted: () => true }])).values(),
  ];
  /** Reads all that is kept, in pages, the oldest change first. */
  async function readAll(petId?: bigint): Promise<HistoryChange[]> {
    const found: HistoryChange[] = [];
    for (let before: bigint | undefined; ; before = found.at(-1)!.revision) {
      const page = await history.before(before, petId, 37);
      found.push(...page);
      if (page.length < 37) return found.toReversed();
    }
  }
  const ids = () => stock.db("stock_ledger").orderBy("id").pluck<bigint[]>("id");
  const age = (byMs: number, ...of: bigint[]) =>
    stock
      .db("stock_ledger")
      .whereIn("id", of as never[])
      .decrement("made_at", byMs);
  /** An update that happens once and changes nothing, of an entry that has this quantity. */
  const same = (key: string, petId: bigint, quantity: number): Change => ({
    kind: "update",
    petId,
    quantity,
    once: { id: `acme ${key} ${petId}`, fingerprint: "x" },
  });

  test("reading it alone gives the stock at any revision, entry for entry, after random changes", async () => {
    const model = emptyModel(0n);
    const states = new Map<bigint, State>([[0n, new Map()]]);
    for (const planned of fc.sample(groupOf(plan), { numRuns: 400, seed: 17 })) {
      const group = settleGroup(planned, model);
      const [outcomes] = await write(group);
      expect(kinds(outcomes!)).toEqual(kinds(perform(model, group)));
      states.set(model.revision, stateOf(model.rows.values()));
    }
    const changes = await readAll();
    expect(changes.map(({ revision }) => revision)).toEqual(range(1, Number(model.revision)));

    const rebuilt = new Map<bigint, string>();
    let compared = 0;
    for (const { petId, revision, before, after } of changes) {
      expect(before && textOf(before)).toBe(rebuilt.get(petId)?.replace(/ r\d+$/, ""));
      if (after) rebuilt.set(petId, `${textOf(after)} r${revision}`);
      else rebuilt.delete(petId);
      const state = states.get(revision);
      if (state === undefined) continue; // within a group
      expect(rebuilt).toEqual(state);
      compared += 1;
    }
    expect(compared).toBeGreaterThan(100);
    for (const petId of new Set(changes.map((change) => change.petId))) {
      expect(await readAll(petId)).toEqual(changes.filter((change) => change.petId === petId));
    }
  });

  test("what is left of it leads back from the present stock to any revision within the kept time", async () => {
    const states = new Map<bigint, string[]>();
    await stock.store.write(range(1, 5).map((petId) => create(petId, 100)));
    const present = async () => (await stock.store.rowsAfter(undefined, 10)).filter(({ removed }) => !removed);
    const textsOf = (rows: Iterable<[bigint, string]>) => [...rows].map(([petId, text]) => `${petId} ${text}`).sort();
    for (let n = 0; n < 40; n++) {
      const petId = BigInt((n % 5) + 1);
      await stock.store.write([n % 11 === 10 ? remove(petId) : { kind: "put", petId, quantity: n, status: "sold" }]);
      const { revision } = await stock.store.position();
      states.set(revision, textsOf((await present()).map((row) => [row.petId, textOf(row)])));
    }
    const old = (await ids()).slice(0, 25);
    await age(31 * 24 * hourMs, ...old);
    await deleteOldChanges(stock.retention, ledgerKeptMsOf(30));
    const kept = await readAll();
    expect(kept[0]!.revision).toBe(old.at(-1)! + 1n);

    const undone = new Map((await present()).map((row) => [row.petId, textOf(row)]));
    for (const { petId, revision, before } of kept.toReversed()) {
      expect(textsOf(undone)).toEqual(states.get(revision));
      if (before) undone.set(petId, textOf(before));
      else undone.delete(petId);
    }
    expect(textsOf(undone)).toEqual(states.get(old.at(-1)!));
  });

  test("it keeps both kinds of rows for the same time, and deletes both in bounded steps", async () => {
    await stock.store.write([create(1n, 5)]);
    for (const key of ["a", "b", "c", "d", "e"]) await stock.store.write([same(key, 1n, 5), same(`${key}-2`, 1n, 5)]);
    await stock.store.write(range(1, 5).map((n) => update(1n, Number(n) + 50)));
    expect(await ids()).toEqual([...range(-10, -1), ...range(1, 6)]);
    await age(31 * 24 * hourMs, ...range(-7, -1), ...range(1, 4));
    await age(29 * 24 * hourMs, ...range(-10, -8), ...range(5, 6));
    const { retention } = stock;
    expect(await retention.deleteFromLedger(ledgerKeptMsOf(30), 3, "unchanged", 0n)).toBe(-3n);
    expect(await ids()).toEqual([...range(-10, -4), ...range(1, 6)]);
    expect(await retention.deleteFromLedger(ledgerKeptMsOf(30), 3, "unchanged", -3n)).toBe(-6n);
    expect(await retention.deleteFromLedger(ledgerKeptMsOf(30), 3, "unchanged", -6n)).toBeUndefined();
    expect(await ids()).toEqual([...range(-10, -8), ...range(1, 6)]);
    expect(await retention.deleteFromLedger(ledgerKeptMsOf(30), 3, "revisions", 0n)).toBe(3n);
    expect(await retention.deleteFromLedger(ledgerKeptMsOf(30), 3, "revisions", 3n)).toBeUndefined();
    expect(await ids()).toEqual([...range(-10, -8), ...range(5, 6)]);
  });

  test("numbers of rows that changed nothing go on after a deletion, and never meet", async () => {
    await stock.store.write([create(1n, 5)]);
    await stock.store.write([same("a", 1n, 5), same("b", 1n, 5), same("c", 1n, 5)]);
    await age(26 * hourMs, -1n, -2n);
    await deleteOldChanges(stock.retention, ledgerKeptMsOf(0));
    await stock.store.write([same("d", 1n, 5)]);
    expect(await ids()).toEqual([-4n, -3n, 1n]);
    await age(26 * hourMs, -4n, -3n);
    await deleteOldChanges(stock.retention, ledgerKeptMsOf(0));
    await stock.store.write([same("e", 1n, 5), same("a", 1n, 5)]);
    expect(await ids()).toEqual([-2n, -1n, 1n]);
    expect(kinds(await stock.store.write([same("a", 1n, 5), same("e", 1n, 5)]))).toEqual(["replayed", "replayed"]);
  });

  test("without history it has only the changes that happen once, whatever they did", async () => {
    const store = new StockStore(stock.db, false);
    await store.write([create(1n, 5), create(2n), update(1n, 6), remove(2n)]);
    await store.write([{ kind: "put", petId: 3n, quantity: 1, status: "sold" }]);
    expect(await ids()).toEqual([]);
    await store.write([adjust("a", 1n, 1), same("k", 1n, 7), update(1n, 8)]);
    expect(await stock.db("stock_ledger").orderBy("id").pluck("once_id")).toEqual(["acme k 1", "a"]);
  });

  test("a service deletes what is older than INVENTORY_HISTORY_DAYS, and nothing younger", async () => {
    await stock.store.write([create(1n, 5), update(1n, 6), update(1n, 7), update(1n, 8)]);
    await stock.store.write([same("a", 1n, 8), same("b", 1n, 8), same("c", 1n, 8)]);
    await age(49 * hourMs, -1n, 1n, 2n);
    await age(47 * hourMs, -2n, 3n);
    const service = await startInventoryService(stack, url(), { INVENTORY_HISTORY_DAYS: "2", LOG_LEVEL: "warn" });
    await until(async () => (await ids()).length === 4);
    expect(await ids()).toEqual([-3n, -2n, 3n, 4n]);
    expect(await service.stop()).toBe(0);
  });
});
