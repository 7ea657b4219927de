import type { Removal } from "../../gateway/inventory/list/removals.ts";
import type { CheckReport, ListChanges, StockSource } from "../../gateway/inventory/list/stock-list.ts";
import type { Item, Position } from "../../proto/pet.ts";

/** A stock as a plain map with a counter, and a source that reads it. */
export class PlainStock implements StockSource {
  epoch = "epoch-of-the-test";
  revision = 0n;
  readonly items = new Map<bigint, Item>();
  readonly removedAt = new Map<bigint, bigint>();
  loads = 0;
  checks = 0;
  backfills = 0;
  /** Hooks that run before and after a check reads the stock. */
  before = async (): Promise<void> => {};
  after = async (): Promise<void> => {};

  set(petId: bigint, quantity: number): void {
    this.revision += 1n;
    this.removedAt.delete(petId);
    this.items.set(petId, { petId, quantity, status: "available", revision: this.revision });
  }

  remove(petId: bigint): void {
    if (!this.items.delete(petId)) return;
    this.revision += 1n;
    this.removedAt.set(petId, this.revision);
  }

  sorted(): Item[] {
    return [...this.items.values()].sort((a, b) => (a.petId < b.petId ? -1 : 1));
  }

  json(): string {
    const entries = this.sorted().map(
      ({ petId, quantity, status }) => `{"petId":${petId},"quantity":${quantity},"status":"${status}"}`,
    );
    return `[${entries.join(",")}]`;
  }

  async *load() {
    this.loads += 1;
    const position = { epoch: this.epoch, revision: this.revision };
    yield { position, items: [] };
    yield { position, items: this.sorted() };
  }

  async changesAfter({ epoch, revision }: Position, _report?: CheckReport): Promise<ListChanges> {
    this.checks += 1;
    await this.before();
    if (epoch !== this.epoch || revision > this.revision) return { kind: "reset" };
    const changes: ListChanges = {
      kind: "changes",
      position: { epoch: this.epoch, revision: this.revision },
      ...this.differences(revision),
    };
    await this.after();
    return changes;
  }

  async removedAfter({ epoch, revision }: Position, max: number): Promise<readonly Removal[] | undefined> {
    this.backfills += 1;
    const { changed, removed } = this.differences(revision);
    return epoch !== this.epoch || changed.length + removed.length > max ? undefined : removed;
  }

  /** What changed after a revision, in no order. */
  differences(revision: bigint): { readonly changed: Item[]; readonly removed: Removal[] } {
    return {
      changed: [...this.items.values()].filter((item) => item.revision > revision),
      removed: [...this.removedAt].filter(([, at]) => at > revision).map(([petId, at]) => ({ petId, revision: at })),
    };
  }
}
