/** Lets requests leave at the pace that the account's windows allow, as the headers of the answers tell them. */

import { readWindows, type ToldWindow } from "./headers.ts";
import { type ErrorCode, InventoryApiError } from "./inventory-api-error.ts";

/** Below this share of a window, what is left is spread over the rest of its time. */
const slowShare = 0.2;
/**
 * Waits between two requests are no longer than this, so that a day's window stays usable, and one request finds out
 * when a plan was raised or a ban was lifted. The gateway bans for many refusals within a minute, not for one.
 */
const maxSpacingMs = 60_000;
/** While it is not known what is left, one request in this time goes ahead to find out. */
const probeMs = 2_000;
const noBan = { endsAtMs: 0, toldAt: 0 };

/**
 * Tells when the next request may leave, so that the windows are not spent before they end. It reads no clock:
 * callers pass the time in ms.
 *
 * Only answers tell what is left: a request that got none may not have reached the API. Each request whose attempt has
 * not ended counts as one less left, because its answer may come late.
 */
export class Windows {
  #known: ReadonlyMap<string, ToldWindow> = new Map();
  /** Requests that have left. The place of a request among them is its number. */
  #count = 0;
  /** Numbers of the requests that a limit counts and whose attempts have not ended. */
  readonly #underWay = new Set<number>();
  /** The count when `#known` was told: the answers of later requests are newer. */
  #toldAt = 0;
  /**
   * The count when a request last ended without telling what is left. Until a later request is answered, that is
   * unknown.
   */
  #lostAt = 0;
  /** Number of the latest request whose answer was given to `learn`, with headers of the windows or not. */
  #latestTold = 0;
  #latestMs = Number.NEGATIVE_INFINITY;
  #probe = { number: 0, sentMs: 0 };
  /** The latest ban, and the count when it was told. `learn` of a later request ends it. */
  #ban = noBan;

  /** Time in ms until the next request may leave; 0 for at once. */
  waitMs(nowMs: number): number {
    const waits = [...this.#known.values()]
      .filter(({ endsAtMs }) => endsAtMs > nowMs)
      .map((window) => this.#waitWithin(window, nowMs));
    waits.push(this.#waitForEnd(this.#ban.endsAtMs, nowMs));
    if (this.#isUnknown(nowMs) && this.#underWay.has(this.#probe.number))
      waits.push(this.#probe.sentMs + probeMs - nowMs);
    return Math.max(0, ...waits);
  }

  /** Time in ms until a window that has nothing left ends; 0 where none is spent. */
  spentMs(nowMs: number): number {
    const spent = [...this.#known.values()].filter(({ left }) => left <= 0);
    return Math.max(0, ...spent.map(({ endsAtMs }) => endsAtMs - nowMs));
  }

  /** Time in ms until the ban ends; 0 where there is none. */
  banMs(nowMs: number): number {
    return Math.max(0, this.#ban.endsAtMs - nowMs);
  }

  /** Counts a request that leaves now. @returns its number, for `learn` or `lose` at the end of its attempt */
  sent(nowMs: number): number {
    const number = this.sentUncharged();
    this.#latestMs = nowMs;
    if (this.#isUnknown(nowMs)) this.#probe = { number, sentMs: nowMs };
    this.#underWay.add(number);
    return number;
  }

  /** As `sent`, for a request that the account's windows do not count. */
  sentUncharged(): number {
    this.#count += 1;
    return this.#count;
  }

  /** Takes over what the answer to a request tells, by `RateLimit` and `RateLimit-Policy`. */
  learn(headers: Headers, number: number, nowMs: number): void {
    const isCharged = this.#underWay.delete(number);
    if (isCharged && number > this.#ban.toldAt) this.endBan();
    this.#latestTold = Math.max(this.#latestTold, number);
    const told = readWindows(headers, nowMs);
    const isOvertaken = told.some(([name, window]) => isOlder(window, this.#known.get(name), nowMs));
    if (isOvertaken && number <= this.#toldAt) return;
    const running = [...this.#known].filter(([, { endsAtMs }]) => endsAtMs > nowMs);
    this.#known = new Map([...running, ...told]);
    this.#toldAt = this.#count;
  }

  /** Takes over a ban of this length. */
  ban(ms: number, nowMs: number): void {
    this.#ban = { endsAtMs: nowMs + ms, toldAt: this.#count };
  }

  endBan(): void {
    this.#ban = noBan;
  }

  /** Ends a request that did not tell what is left. */
  lose(number: number): void {
    if (this.#underWay.delete(number)) this.#lostAt = this.#count;
  }

  /** Whether it is unknown what is left: a request was lost since the latest answer, or a known window has ended. */
  #isUnknown(nowMs: number): boolean {
    const isSure = this.#latestTold > this.#lostAt;
    return !isSure || [...this.#known.values()].some(({ endsAtMs }) => endsAtMs <= nowMs);
  }

  #waitWithin({ limit, left: told, endsAtMs }: ToldWindow, nowMs: number): number {
    const left = told - this.#underWay.size;
    if (left > limit * slowShare) return 0;
    if (left > 0) return this.#latestMs + Math.min(maxSpacingMs, (endsAtMs - nowMs) / left) - nowMs;
    return told > 0 ? endsAtMs - nowMs : this.#waitForEnd(endsAtMs, nowMs);
  }

  /** Time in ms until an end, or until a request may leave to find out whether the end has come early. */
  #waitForEnd(endsAtMs: number, nowMs: number): number {
    const restMs = endsAtMs - nowMs;
    return restMs > maxSpacingMs ? this.#latestMs + maxSpacingMs - nowMs : restMs;
  }
}

/**
 * Whether an answer may have been overtaken: a window in it ends more than half its length before the known one, or
 * ends near it with more left. Ends are not exact: their times are whole seconds, and during a ban no window is told to
 * end before the ban.
 */
function isOlder(told: ToldWindow, known: ToldWindow | undefined, nowMs: number): boolean {
  if (known === undefined || known.limit !== told.limit || known.endsAtMs <= nowMs) return false;
  const laterMs = told.endsAtMs - known.endsAtMs;
  return Math.abs(laterMs) > told.lengthMs / 2 ? laterMs < 0 : told.left > known.left;
}

/** The longest wait in ms that this client makes by itself; a longer one is the caller's decision. */
export const maxWaitMs = 120_000;

interface Waiting {
  /** Whether it waits for a limit as long as that takes. */
  readonly isPatient: boolean;
  readonly leave: (number: number) => void;
  readonly fail: (reason: unknown) => void;
}

/** The requests of one key that wait for their turn, the oldest first. */
export class Pace {
  readonly #windows = new Windows();
  readonly #waiting = new Set<Waiting>();
  #timer: ReturnType<typeof setTimeout> | undefined;

  /**
   * Resolves when the request may leave, with its number for `learn` or `lose` at the end of its attempt.
   *
   * @throws the reason of `signal` once that is aborted. InventoryApiError `api_key_banned` during a ban, and for an
   * impatient request `rate_limit_exceeded` when a spent window ends only after two minutes. While either lasts over a
   * minute, one request a minute still leaves
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

  /** Counts a request that the account's windows leave out, so that it never waits. @returns its number, for `learn` */
  uncharged(): number {
    return this.#windows.sentUncharged();
  }

  /** Takes over what the headers of the answer to a request tell. */
  learn(headers: Headers, number: number): void {
    this.#windows.learn(headers, number, performance.now());
    this.#next();
  }

  /** Ends a request that got no answer, one of 5xx, or an error that tells windows other than the account's. */
  lose(number: number): void {
    this.#windows.lose(number);
    this.#next();
  }

  /** Takes over a ban. Call it before `learn` for the same answer. */
  beginBan(banMs: number): void {
    this.#windows.ban(banMs, performance.now());
    this.#next();
  }

  /** Takes over that the key is not banned. */
  endBan(): void {
    this.#windows.endBan();
    this.#next();
  }

  /**
   * Lets all leave that may, and fails those that may not wait: all during a ban, and impatient ones when a spent
   * window ends only after 2 minutes. A timer, an answer or a new request calls it again.
   */
  #next(): void {
    clearTimeout(this.#timer);
    const nowMs = performance.now();
    for (const { leave } of this.#waiting) {
      if (this.#windows.waitMs(nowMs) > 0) break;
      leave(this.#windows.sent(nowMs));
    }
    const banMs = this.#windows.banMs(nowMs);
    const spentMs = this.#windows.spentMs(nowMs);
    for (const { isPatient, fail } of this.#waiting) {
      if (banMs > 0) fail(refusal("api_key_banned", "the key is banned, so nothing was sent", banMs));
      else if (spentMs > maxWaitMs && !isPatient)
        fail(refusal("rate_limit_exceeded", "nothing is left of the limit, so nothing was sent", spentMs));
    }
    if (this.#waiting.size > 0) this.#timer = setTimeout(() => this.#next(), Math.ceil(this.#windows.waitMs(nowMs)));
  }
}

function refusal(code: ErrorCode, message: string, retryAfterMs: number): InventoryApiError {
  return new InventoryApiError(code, message, { status: 429, retryAfterMs: Math.ceil(retryAfterMs) });
}
