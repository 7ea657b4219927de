/** Lets requests leave at the pace that the account's windows allow, as the headers of the answers tell them. */
import { type ErrorCode, InventoryApiError } from "./errors.ts";

interface Window {
  readonly limit: number;
  readonly lengthMs: number;
  readonly left: number;
  readonly endsAtMs: number;
}

/** Below this share of a window, what is left is spread over the rest of its time. */
const slowShare = 0.2;
/** Waits between two requests are no longer than this while something is left, so that a day's window stays usable. */
const maxSpacingMs = 60_000;
/** While nothing is known, one request in this time goes ahead to find out. */
const probeMs = 2_000;

/**
 * Tells when the next request may leave, so that the windows are not spent before they end. Pure: all times are
 * milliseconds of any one clock.
 */
export class Windows {
  /** By name; undefined before the first answer, and empty where answers tell no limits. */
  #known: ReadonlyMap<string, Window> | undefined;
  #latestMs = Number.NEGATIVE_INFINITY;
  #probedMs = Number.NEGATIVE_INFINITY;

  /** Time in ms until the next request may leave; 0 for at once. */
  waitMs(nowMs: number): number {
    const waits = [...(this.#known?.values() ?? [])]
      .filter(({ endsAtMs }) => endsAtMs > nowMs)
      .map((window) => waitWithin(window, this.#latestMs, nowMs));
    if (this.#isUnknown(nowMs)) waits.push(this.#probedMs + probeMs - nowMs);
    return Math.max(0, ...waits);
  }

  /** Time in ms until a window that has nothing left ends; 0 where none is spent. */
  spentMs(nowMs: number): number {
    const spent = [...(this.#known?.values() ?? [])].filter(({ left }) => left <= 0);
    return Math.max(0, ...spent.map(({ endsAtMs }) => endsAtMs - nowMs));
  }

  /** Counts a request that leaves now. Its answer may be late, so it counts before the answer does. */
  sent(nowMs: number): void {
    this.#latestMs = nowMs;
    if (this.#isUnknown(nowMs)) this.#probedMs = nowMs;
    this.#known &&= new Map([...this.#known].map(([name, window]) => [name, { ...window, left: window.left - 1 }]));
  }

  /** Takes over what an answer tells, by `RateLimit` and `RateLimit-Policy`. */
  learn(headers: Headers, nowMs: number): void {
    const policies = readItems(headers.get("ratelimit-policy"));
    const states = readItems(headers.get("ratelimit"));
    const known = new Map(this.#known);
    for (const [name, { r: left = 0, t: seconds = 0 }] of states) {
      const { q: limit = 0, w = 0 } = policies.get(name) ?? {};
      const told = { limit, lengthMs: w * 1_000, left, endsAtMs: nowMs + seconds * 1_000 };
      known.set(name, newer(known.get(name), told, nowMs));
    }
    this.#known = known;
  }

  learnNothing(): void {
    this.#probedMs = Number.NEGATIVE_INFINITY;
  }

  /** Whether the next answer tells of a window that is not known yet. */
  #isUnknown(nowMs: number): boolean {
    return this.#known === undefined || [...this.#known.values()].some(({ endsAtMs }) => endsAtMs <= nowMs);
  }
}

function waitWithin({ limit, left, endsAtMs }: Window, latestMs: number, nowMs: number): number {
  if (left <= 0) return endsAtMs - nowMs;
  if (left > limit * slowShare) return 0;
  return latestMs + Math.min(maxSpacingMs, (endsAtMs - nowMs) / left) - nowMs;
}

/**
 * Answers may overtake each other, and their times are whole seconds: within one window the smallest values are the
 * newest, and another window ends at least half its length later. An end that has passed may have been told too early:
 * a window without a request is told as if it began now, and a ban's end as that of every window.
 */
function newer(known: Window | undefined, told: Window, nowMs: number): Window {
  if (known === undefined || known.limit !== told.limit || known.endsAtMs <= nowMs) return told;
  const laterMs = told.endsAtMs - known.endsAtMs;
  if (Math.abs(laterMs) > told.lengthMs / 2) return laterMs > 0 ? told : known;
  return { ...told, left: Math.min(known.left, told.left), endsAtMs: Math.min(known.endsAtMs, told.endsAtMs) };
}

/** Items as `"minute";r=59;t=60, "day";r=999;t=86400`: their integers by item and name. */
function readItems(header: string | null): Map<string, Record<string, number>> {
  const items = [...(header ?? "").matchAll(/"([^"]*)"((?:;\s*\w+=\d+)+)/g)];
  return new Map(
    items.map(([, name, parameters]) => [
      name!,
      Object.fromEntries([...parameters!.matchAll(/(\w+)=(\d+)/g)].map(([, key, value]) => [key!, Number(value)])),
    ]),
  );
}

/** A longer wait for a limit is the caller's decision. */
export const maxLimitWaitMs = 120_000;

interface Waiting {
  /** Whether it waits for a limit as long as that takes. */
  readonly isPatient: boolean;
  readonly leave: () => void;
  readonly fail: (reason: unknown) => void;
}

/** The requests of one key that wait for their turn, the first first. */
export class Pace {
  readonly #windows = new Windows();
  readonly #waiting = new Set<Waiting>();
  #timer: ReturnType<typeof setTimeout> | undefined;
  #banEndsAtMs = 0;

  /**
   * Resolves when the request may leave.
   *
   * @throws InventoryApiError `api_key_banned` during a ban, and `rate_limit_exceeded` when a window is spent for more
   * than two minutes; the reason of `signal` once that is aborted
   */
  turn(isPatient: boolean, signal: AbortSignal | undefined): Promise<void> {
    return new Promise((resolve, reject) => {
      signal?.throwIfAborted();
      const abort = () => waiting.fail(signal!.reason);
      const settle = (how: () => void) => {
        signal?.removeEventListener("abort", abort);
        this.#waiting.delete(waiting);
        if (this.#waiting.size === 0) clearTimeout(this.#timer);
        how();
      };
      const waiting: Waiting = {
        isPatient,
        leave: () => settle(resolve),
        fail: (reason) => settle(() => reject(reason)),
      };
      signal?.addEventListener("abort", abort);
      this.#waiting.add(waiting);
      this.#next();
    });
  }

  /** Takes over what the headers of an answer tell. */
  learn(headers: Headers): void {
    this.#windows.learn(headers, performance.now());
    this.#next();
  }

  /** Lets the next request find out what is left: one has ended without an answer that tells it. */
  learnNothing(): void {
    this.#windows.learnNothing();
    this.#next();
  }

  /** Refuses all requests until a ban ends. */
  stop(banMs: number): void {
    this.#banEndsAtMs = performance.now() + banMs;
    this.#next();
  }

  /** Lets all leave that may. A timer, an answer or a new request calls it again for the others. */
  #next(): void {
    clearTimeout(this.#timer);
    const nowMs = performance.now();
    const banMs = this.#banEndsAtMs - nowMs;
    const spentMs = this.#windows.spentMs(nowMs);
    for (const { isPatient, fail } of this.#waiting) {
      if (banMs > 0) fail(refusal("api_key_banned", "the key is banned, so nothing was sent", banMs));
      else if (spentMs > maxLimitWaitMs && !isPatient)
        fail(refusal("rate_limit_exceeded", "nothing is left of the limit, so nothing was sent", spentMs));
    }
    for (const { leave } of this.#waiting) {
      const waitMs = this.#windows.waitMs(nowMs);
      if (waitMs > 0) {
        this.#timer = setTimeout(() => this.#next(), Math.ceil(waitMs));
        return;
      }
      this.#windows.sent(nowMs);
      leave();
    }
  }
}

function refusal(code: ErrorCode, message: string, retryAfterMs: number): InventoryApiError {
  return new InventoryApiError(code, message, { status: 429, retryAfterMs: Math.ceil(retryAfterMs) });
}
