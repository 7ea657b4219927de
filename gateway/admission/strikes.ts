/** Counts strikes, to find the families of keys that keep sending requests after a 429. */
import { LRUCache } from "lru-cache";

/** The time within which strikes of a family count together: a minute that slides. */
export const strikeWindowMs = 60_000;

/** How often strikes are shared. Strikes within one slot get the same time; each still counts. */
export const strikeSlotMs = 100;

const maxKeys = 100_000;

/**
 * Adds strikes, by family of keys, to the counts that all gateways share.
 *
 * @param maxStrikes the count within a minute from which a family is over the limit; its count then starts at 0
 * @returns the families over the limit; one whose count could not be shared is left out. It never rejects
 */
export type ShareStrikes = (strikes: ReadonlyMap<string, number>, maxStrikes: number) => Promise<readonly string[]>;

export interface StrikesOptions {
  /** The count within a minute from which a family of keys has too many strikes. */
  readonly maxStrikes: number;
  /** Gets a family of keys that has too many strikes. Resolves when it has dealt with the family, and never rejects. */
  readonly onTooMany: (familyId: string) => Promise<void>;
  /** Undefined for a gateway without Redis. */
  readonly share?: ShareStrikes | undefined;
  /** Unix milliseconds. */
  readonly now: () => number;
}

/**
 * Time after the first 429 of a wait in which further ones are no strikes. Their requests may have been sent before
 * that 429 arrived: they were in the network, or behind another request of their connection.
 */
const underWayMs = 1_000;

/** What is kept of one family of keys. All times are Unix milliseconds. */
interface Entry {
  /** When its caller was told to wait, and until when. */
  toldAtMs: number;
  untilMs: number;
  /** Strikes by slot, the oldest first. */
  slots: { readonly atMs: number; count: number }[];
  total: number;
}

/**
 * Counts the strikes of each family of keys within the last minute. A strike is a request that got 429 from a window of
 * its account, but for those right after the first 429 of a wait, whose senders could not know of it yet. So a caller
 * that waits as it is told to may send a burst when the wait is over.
 */
export class Strikes {
  readonly #options: StrikesOptions;
  readonly #entries = new LRUCache<string, Entry>({ max: maxKeys });
  /** Families for which `onTooMany` is at work. Until it ends, they get no strikes. */
  readonly #handled = new Set<string>();
  #unshared = new Map<string, number>();
  #timer: NodeJS.Timeout | undefined;

  constructor(options: StrikesOptions) {
    this.#options = options;
  }

  /** @param waitMs the time that the 429 told the caller to wait */
  throttled(familyId: string, waitMs: number): void {
    if (this.#handled.has(familyId)) return;
    const { maxStrikes, share, now } = this.#options;
    const nowMs = now();
    const entry = this.#entryOf(familyId, nowMs);
    const untilMs = nowMs + waitMs;
    // A wait that ends at another time is a new one: its window has just begun, or the wait before was cut short, by a
    // higher limit or the return of Redis. A difference of up to `underWayMs` is due to clocks and slow decisions.
    const isFirst = nowMs >= entry.untilMs || Math.abs(untilMs - entry.untilMs) > underWayMs;
    if (isFirst) {
      entry.toldAtMs = nowMs;
      entry.untilMs = untilMs;
    } else if (nowMs < entry.toldAtMs + underWayMs) {
      return;
    }
    addStrike(entry, nowMs);
    if (entry.total >= maxStrikes) void this.#handle(familyId);
    // A first 429 is not shared: each gateway gives one, so one burst over many gateways would bring a ban.
    if (share && !isFirst) {
      this.#unshared.set(familyId, (this.#unshared.get(familyId) ?? 0) + 1);
      this.#timer ??= setTimeout(() => void this.#share(share), strikeSlotMs);
    }
  }

  close(): void {
    clearTimeout(this.#timer);
  }

  #entryOf(familyId: string, nowMs: number): Entry {
    const kept = this.#entries.get(familyId);
    if (kept && kept.toldAtMs <= nowMs) return kept;
    // None, or from before the clock was set back.
    const entry: Entry = { toldAtMs: 0, untilMs: 0, slots: [], total: 0 };
    this.#entries.set(familyId, entry);
    return entry;
  }

  async #handle(familyId: string): Promise<void> {
    if (this.#handled.has(familyId)) return;
    this.#handled.add(familyId);
    await this.#options.onTooMany(familyId);
    this.#handled.delete(familyId);
    this.#entries.delete(familyId); // the count starts again
  }

  async #share(share: ShareStrikes): Promise<void> {
    const { maxStrikes } = this.#options;
    const added = this.#unshared;
    this.#unshared = new Map();
    this.#timer = undefined;
    for (const familyId of await share(added, maxStrikes)) void this.#handle(familyId);
  }
}

/** Counts a strike, and forgets those that are older than a minute. */
function addStrike(entry: Entry, nowMs: number): void {
  const { slots } = entry;
  while (slots[0] && nowMs - slots[0].atMs >= strikeWindowMs) entry.total -= slots.shift()!.count;
  while (slots.length > 0 && slots.at(-1)!.atMs > nowMs) entry.total -= slots.pop()!.count; // the clock was set back
  const atMs = nowMs - (nowMs % strikeSlotMs);
  const latest = slots.at(-1);
  if (latest?.atMs === atMs) latest.count += 1;
  else slots.push({ atMs, count: 1 });
  entry.total += 1;
}
