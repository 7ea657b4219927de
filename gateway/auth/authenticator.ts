import { hash } from "node:crypto";
import { LRUCache } from "lru-cache";
import { hashKey, isWellFormed } from "./key-format.ts";
import type { KeyStore } from "./key-store.ts";
import type { Principal } from "./principal.ts";

/** Runs the look-up of a key that is not known here: now, later or, by throwing, not at all. */
export type AsStranger = <T>(lookUp: () => Promise<T>) => Promise<T>;

export interface AuthenticatorOptions {
  readonly store: Pick<KeyStore, "findByHash">;
  readonly pepper: string;
  /** Unix milliseconds. */
  readonly now: () => number;
  /** Milliseconds by a clock that nobody can set back; default: this process's own. */
  readonly elapsed?: () => number;
}

/** A key is used for so long after it was looked up; so a revocation holds after that at the latest. */
const maxAgeMs = 8_000;

/** A key in use is looked up again this early, beside the requests, so that none of them waits for it. */
const refreshAfterMs = 4_000;

const maxKnown = 50_000;
const maxUnknown = 10_000;

/** By both clocks: one of them can be set back, the other one stands still while the machine sleeps. */
interface Moment {
  readonly unixMs: number;
  readonly elapsedMs: number;
}

const longAgo: Moment = { unixMs: Number.NEGATIVE_INFINITY, elapsedMs: Number.NEGATIVE_INFINITY };

interface Known {
  readonly principal: Principal;
  checkedAt: Moment;
}

/** Tells who a bearer token stands for. Look-ups are remembered for a few seconds, also those that found nothing. */
export class Authenticator {
  readonly #options: Required<AuthenticatorOptions>;
  // Two caches, so that a flood of made-up keys displaces no good one. Neither keeps a token itself.
  readonly #known = new LRUCache<string, Known>({ max: maxKnown });
  readonly #unknown = new LRUCache<string, Moment>({ max: maxUnknown });
  /** Counts the calls of `forget`: an answer that was asked for before one of them is not remembered. */
  #forgotten = 0;
  readonly #lookUps = new Map<string, Promise<Principal | undefined>>();

  constructor(options: AuthenticatorOptions) {
    this.#options = { elapsed: () => performance.now(), ...options };
  }

  /** Who a key stands for that was looked up in the last seconds; undefined for any other, which may be a good one. */
  remembered(token: string): Principal | undefined {
    const id = hash("sha256", token, "base64");
    const principal = this.#fresh(id, token);
    return principal && !isExpired(principal, this.#options.now()) ? principal : undefined;
  }

  /**
   * @param asStranger stands before the store for a token that was not a good key here lately; what it throws is thrown
   * @returns undefined for a token that is unknown, revoked, expired or no key of ours at all
   * @throws what the store throws when it cannot be asked
   */
  async authenticate(token: string, asStranger: AsStranger): Promise<Principal | undefined> {
    const id = hash("sha256", token, "base64");
    const principal = this.#fresh(id, token);
    if (principal) return isExpired(principal, this.#options.now()) ? undefined : principal;
    if (this.#isUnknown(id)) return undefined;
    if (this.#known.has(id) || this.#lookUps.has(id)) return await this.#lookUp(id, token);
    if (!isWellFormed(token)) return undefined;
    // It may have had to wait, and another request with the same token was first.
    return await asStranger(async () => (this.#isUnknown(id) ? undefined : await this.#lookUp(id, token)));
  }

  /**
   * Looks up again what is remembered of a key or an account, before it is used the next time.
   *
   * @param id of the key or the account
   */
  forget(id: string): void {
    this.#forgotten += 1;
    this.#lookUps.clear(); // who comes from now on waits for no answer to a question from before
    for (const known of this.#known.values()) {
      // Changed in place: setting an entry moves it to the end that `values` starts from.
      if (known.principal.keyId === id || known.principal.accountId === id) known.checkedAt = longAgo;
    }
  }

  /** What the last look-up of a key found, if it was in the last seconds; looks it up again when that is due. */
  #fresh(id: string, token: string): Principal | undefined {
    const known = this.#known.get(id);
    if (!known) return undefined;
    const ageMs = this.#ageMs(known.checkedAt);
    if (ageMs >= maxAgeMs) return undefined;
    if (ageMs >= refreshAfterMs) this.#lookUp(id, token).catch(() => {});
    return known.principal;
  }

  /** Requests with one key share a look-up. */
  #lookUp(id: string, token: string): Promise<Principal | undefined> {
    const running = this.#lookUps.get(id);
    if (running) return running;
    const lookUp = this.#ask(id, token).finally(() => {
      if (this.#lookUps.get(id) === lookUp) this.#lookUps.delete(id);
    });
    this.#lookUps.set(id, lookUp);
    return lookUp;
  }

  async #ask(id: string, token: string): Promise<Principal | undefined> {
    const { store, pepper, now, elapsed } = this.#options;
    const askedAt = { unixMs: now(), elapsedMs: elapsed() }; // a revocation while the answer travels may be missed
    const forgotten = this.#forgotten;
    const principal = await store.findByHash(hashKey(token, pepper));
    if (principal) {
      this.#known.set(id, { principal, checkedAt: forgotten === this.#forgotten ? askedAt : longAgo });
    } else {
      this.#known.delete(id);
      this.#unknown.set(id, askedAt);
    }
    return principal;
  }

  #isUnknown(id: string): boolean {
    const since = this.#unknown.get(id);
    return since !== undefined && this.#ageMs(since) < maxAgeMs;
  }

  #ageMs({ unixMs, elapsedMs }: Moment): number {
    const { now, elapsed } = this.#options;
    return Math.max(now() - unixMs, elapsed() - elapsedMs);
  }
}

function isExpired({ expiresAtMs }: Principal, nowMs: number): boolean {
  return expiresAtMs !== null && expiresAtMs <= nowMs;
}
