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
/** While it is not known what is left, one request in this time goes ahead to find out. */
const probeMs = 2_000;

/**
 * Tells when the next request may leave, so that the windows are not spent before they end. Pure: all times are
 * milliseconds of any one clock.
 *
 * Only answers tell what is left: a request that got none may not have reached the API. Until its attempt ends, each
 * request takes one of it, because its answer may be late.
 */
export class Windows {
  #known: ReadonlyMap<string, Window> = new Map();
  /** Requests that have left. The place of a request among them is its number. */
  #count = 0;
  /** Numbers of the requests that a limit counts and whose attempts have not ended. */
  readonly #underWay = new Set<number>();
  /** The count when `#known` was told: the answers of later requests are newer. */
  #toldAt = 0;
  /** The count when a request ended that may have been charged and did not tell. What is left is unknown since then. */
  #lostAt = 0;
  /** The latest request whose answer told of the windows. */
  #latestTold = 0;
  #latestMs = Number.NEGATIVE_INFINITY;
  #probe = { number: 0, sentMs: 0 };

  /** Time in ms until the next request may leave; 0 for at once. */
  waitMs(nowMs: number): number {
    const waits = [...this.#known.values()]
      .filter(({ endsAtMs }) => endsAtMs > nowMs)
      .map((window) => this.#waitWithin(window, nowMs));
    if (this.#isUnknown(nowMs) && this.#underWay.has(this.#probe.number))
      waits.push(this.#probe.sentMs + probeMs - nowMs);
    return Math.max(0, ...waits);
  }

  /** Time in ms until a window that has nothing left ends; 0 where none is spent. */
  spentMs(nowMs: number): number {
    const spent = [...this.#known.values()].filter(({ left }) => left <= 0);
    return Math.max(0, ...spent.map(({ endsAtMs }) => endsAtMs - nowMs));
  }

  /** Counts a request that leaves now. @returns its number, for `learn` or `lose` at the end of its attempt */
  sent(nowMs: number): number {
    const number = this.sentFree();
    this.#latestMs = nowMs;
    if (this.#isUnknown(nowMs)) this.#probe = { number, sentMs: nowMs };
    this.#underWay.add(number);
    return number;
  }

  /** As `sent`, for a request that no limit counts. */
  sentFree(): number {
    this.#count += 1;
    return this.#count;
  }

  /** Takes over what the answer to a request tells, by `RateLimit` and `RateLimit-Policy`. */
  learn(headers: Headers, number: number, nowMs: number): void {
    this.#underWay.delete(number);
    this.#latestTold = Math.max(this.#latestTold, number);
    const told = readWindows(headers, nowMs);
    const isOvertaken = told.some(([name, window]) => isOlder(window, this.#known.get(name), nowMs));
    if (isOvertaken && number <= this.#toldAt) return;
    const running = [...this.#known].filter(([, { endsAtMs }]) => endsAtMs > nowMs);
    this.#known = new Map([...running, ...told]);
    this.#toldAt = this.#count;
  }

  /** Ends a request that did not tell what is left. */
  lose(number: number): void {
    if (this.#underWay.delete(number)) this.#lostAt = this.#count;
  }

  /** Whether the answer to the next request tells something new: of a window that is not known, or of lost requests. */
  #isUnknown(nowMs: number): boolean {
    const isSure = this.#latestTold > this.#lostAt;
    return !isSure || [...this.#known.values()].some(({ endsAtMs }) => endsAtMs <= nowMs);
  }

  #waitWithin({ limit, left: told, endsAtMs }: Window, nowMs: number): number {
    const left = told - this.#underWay.size;
    if (left <= 0) return endsAtMs - nowMs;
    if (left > limit * slowShare) return 0;
    return this.#latestMs + Math.min(maxSpacingMs, (endsAtMs - nowMs) / left) - nowMs;
  }
}

/**
 * Whether an answer may have been overtaken: a window ends at least half its length before the one that is known, or
 * has more left. Ends are not exact: their times are whole seconds, and one that has passed may have been told too
 * early, because a window without a request is told as if it began now, and a ban's end as that of every window.
 */
function isOlder(told: Window, known: Window | undefined, nowMs: number): boolean {
  if (known === undefined || known.limit !== told.limit || known.endsAtMs <= nowMs) return false;
  const laterMs = told.endsAtMs - known.endsAtMs;
  return Math.abs(laterMs) > told.lengthMs / 2 ? laterMs < 0 : told.left > known.left;
}

function readWindows(headers: Headers, nowMs: number): [name: string, Window][] {
  const policies = readItems(headers.get("ratelimit-policy"));
  return [...readItems(headers.get("ratelimit"))].map(([name, { r: left = 0, t: seconds = 0 }]) => {
    const { q: limit = 0, w = 0 } = policies.get(name) ?? {};
    return [name, { limit, lengthMs: w * 1_000, left, endsAtMs: nowMs + seconds * 1_000 }];
  });
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
  readonly leave: (number: number) => void;
  readonly fail: (reason: unknown) => void;
}

/** The requests of one key that wait for their turn, the first first. */
export class Pace {
  readonly #windows = new Windows();
  readonly #waiting = new Set<Waiting>();
  #timer: ReturnType<typeof setTimeout> | undefined;
  #banEndsAtMs = 0;

  /**
   * Resolves when the request may leave, with its number for `learn` or `lose` at the end of its attempt.
   *
   * @throws InventoryApiError `api_key_banned` during a ban, and `rate_limit_exceeded` when a window is spent for more
   * than two minutes; the reason of `signal` once that is aborted
   */
  turn(isPatient: boolean, signal: AbortSignal | undefined): Promise<number> {
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
        leave: (number) => settle(() => resolve(number)),
        fail: (reason) => settle(() => reject(reason)),
      };
      signal?.addEventListener("abort", abort);
      this.#waiting.add(waiting);
      this.#next();
    });
  }

  /** Counts a request that no limit counts, and that waits for none. @returns its number, for `learn` */
  free(): number {
    return this.#windows.sentFree();
  }

  /** Takes over what the headers of the answer to a request tell. */
  learn(headers: Headers, number: number): void {
    this.#windows.learn(headers, number, performance.now());
    this.#next();
  }

  /** Ends a request that got no answer, or one that does not tell what is left. */
  lose(number: number): void {
    this.#windows.lose(number);
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
      leave(this.#windows.sent(nowMs));
    }
  }
}

function refusal(code: ErrorCode, message: string, retryAfterMs: number): InventoryApiError {
  return new InventoryApiError(code, message, { status: 429, retryAfterMs: Math.ceil(retryAfterMs) });
}
