import type { StockChanges } from "../../client/index.ts";
import type { CheckProgress, StockSource } from "../../gateway/inventory/list/load-list.ts";
import type { Item, ListedItem, Position } from "../../proto/pet.ts";

/** A stock as a plain map with a counter, and a source that reads it. */
export class PlainStock implements StockSource {
  epoch = "epoch-of-the-test";
  revision = 0n;
  floor = 0n;
  readonly items = new Map<bigint, Item>();
  readonly removed = new Map<bigint, Item>();
  loads = 0;
  checks = 0;
  /** Maximum changes in the answer to a check. */
  maxChanges = Number.POSITIVE_INFINITY;
  /** Hooks that run before and after a check reads the stock. */
  before = async (): Promise<void> => {};
  after = async (): Promise<void> => {};

  set(petId: bigint, quantity: number): void {
    this.revision += 1n;
    this.removed.delete(petId);
    this.items.set(petId, { petId, quantity, status: "available", revision: this.revision });
  }

  remove(petId: bigint): void {
    const item = this.items.get(petId);
    if (!item) return;
    this.items.delete(petId);
    this.revision += 1n;
    this.removed.set(petId, { ...item, revision: this.revision });
  }

  /** Forgets what was removed by a revision up to this one. */
  forget(revision: bigint): void {
    this.floor = revision;
    for (const item of this.removed.values()) if (item.revision <= revision) this.removed.delete(item.petId);
  }

  sorted(): Item[] {
    return [...this.items.values()].sort(byPetId);
  }

  json(): string {
    const entries = this.sorted().map(
      ({ petId, quantity, status }) => `{"petId":${petId},"quantity":${quantity},"status":"${status}"}`,
    );
    return `[${entries.join(",")}]`;
  }

  async *load(after: bigint | undefined): AsyncGenerator<{ position: Position; items: ListedItem[] }> {
    this.loads += 1;
    const position = { epoch: this.epoch, revision: this.revision };
    yield { position, items: [] };
    const all = this.differences(-1n).sort(byPetId);
    yield { position, items: after === undefined ? all : all.filter(({ petId }) => petId > after) };
  }

  async changesAfter({ epoch, revision }: Position, _report?: CheckProgress): Promise<StockChanges> {
    this.checks += 1;
    await this.before();
    if (epoch !== this.epoch || revision > this.revision || revision < this.floor) return { kind: "reset" };
    const all = this.differences(revision).sort((a, b) => (a.revision < b.revision ? -1 : 1));
    const items = all.slice(0, this.maxChanges);
    const more = items.length < all.length;
    const position = { epoch: this.epoch, revision: more ? items.at(-1)!.revision : this.revision };
    const changes: StockChanges = { kind: "changes", position, items, floor: this.floor, more };
    await this.after();
    return changes;
  }

  /** What was changed or removed after a revision, in no order. */
  differences(revision: bigint): ListedItem[] {
    return [
      ...[...this.items.values()].map((item) => ({ ...item, removed: false })),
      ...[...this.removed.values()].map((item) => ({ ...item, removed: true })),
    ].filter((item) => item.revision > revision);
  }
}

const byPetId = (a: Item, b: Item) => (a.petId < b.petId ? -1 : 1);
