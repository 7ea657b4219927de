/** Finds the caller that a bearer token stands for. */
import { hash } from "node:crypto";
import { LRUCache } from "lru-cache";
import { hashKey, isWellFormed } from "./key-format.ts";
import type { KeyStore } from "./key-store.ts";
import type { Principal } from "./principal.ts";

export interface AuthenticatorOptions {
  readonly store: Pick<KeyStore, "findByHash">;
  readonly pepper: string;
  /** Unix milliseconds. */
  readonly now: () => number;
  /** Milliseconds by a clock that cannot be set back; default: `performance.now`. */
  readonly elapsed?: () => number;
}

/** Runs the look-up of a key that is not known here. It may delay the look-up, or prevent it by throwing. */
export type LimitLookUp = <T>(lookUp: () => Promise<T>) => Promise<T>;

/** How long a look-up is used. A revocation holds after this time at the latest. */
const maxAgeMs = 8_000;

/** The age at which a key in use is looked up again, beside the requests, so that no request waits for it. */
const refreshAfterMs = 4_000;

const maxKnown = 50_000;
const maxUnknown = 10_000;

/** Finds the principal of a bearer token. It remembers look-ups for a few seconds, even those that found nothing. */
export class Authenticator {
  readonly #options: Required<AuthenticatorOptions>;
  // Two caches, so that a flood of made-up keys displaces no valid one. Neither holds a token itself.
  readonly #known = new LRUCache<string, Known>({ max: maxKnown });
  readonly #unknown = new LRUCache<string, Moment>({ max: maxUnknown });
  /** Counts the calls of `forget`: a look-up that began before the latest one is not remembered. */
  #forgotten = 0;
  readonly #lookUps = new Map<string, Promise<Principal | undefined>>();

  constructor(options: AuthenticatorOptions) {
    this.#options = { elapsed: () => performance.now(), ...options };
  }

  /** The principal of a key that was looked up in the last seconds; undefined for any other key, which may be valid. */
  remembered(token: string): Principal | undefined {
    const id = hash("sha256", token, "base64");
    const principal = this.#fresh(id, token);
    return principal && !isExpired(principal, this.#options.now()) ? principal : undefined;
  }

  /**
   * Finds the principal of a token, from memory or from the store.
   *
   * @param limitLookUp runs the look-up of a token that was not a valid key here lately
   * @returns undefined for a token that is unknown, revoked, expired or no well-formed key
   * @throws what `limitLookUp` or the store throws
   */
  async authenticate(token: string, limitLookUp: LimitLookUp): Promise<Principal | undefined> {
    const id = hash("sha256", token, "base64");
    const principal = this.#fresh(id, token);
    if (principal) return isExpired(principal, this.#options.now()) ? undefined : principal;
    if (this.#isUnknown(id)) return undefined;
    if (this.#known.has(id) || this.#lookUps.has(id)) return await this.#lookUp(id, token);
    if (!isWellFormed(token)) return undefined;
    // Asked again, because another request with this token may have been looked up during a delay.
    return await limitLookUp(async () => (this.#isUnknown(id) ? undefined : await this.#lookUp(id, token)));
  }

  /**
   * Has what is remembered of a key, a line of keys or an account looked up again before its next use.
   *
   * @param id of the key, of the first key of the line, or of the account
   */
  forget(id: string): void {
    this.#forgotten += 1;
    this.#lookUps.clear(); // later requests must not share a look-up that began before this
    for (const known of this.#known.values()) {
      // Changed in place: setting an entry moves it to the end that `values` starts from.
      const { keyId, lineId, accountId } = known.principal;
      if (keyId === id || lineId === id || accountId === id) known.checkedAt = longAgo;
    }
  }

  /** What the latest look-up of a key found, if it is recent; looks the key up again when that is due. */
  #fresh(id: string, token: string): Principal | undefined {
    const known = this.#known.get(id);
    if (!known) return undefined;
    const ageMs = this.#ageMs(known.checkedAt);
    if (ageMs >= maxAgeMs) return undefined;
    if (ageMs >= refreshAfterMs) this.#lookUp(id, token).catch(() => {});
    return known.principal;
  }

  /** Requests with the same key share a look-up. */
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

interface Known {
  readonly principal: Principal;
  checkedAt: Moment;
}

/** A time by two clocks: one of them can be set back, and the other stands still while the machine sleeps. */
interface Moment {
  readonly unixMs: number;
  readonly elapsedMs: number;
}

const longAgo: Moment = { unixMs: Number.NEGATIVE_INFINITY, elapsedMs: Number.NEGATIVE_INFINITY };

function isExpired({ expiresAtMs }: Principal, nowMs: number): boolean {
  return expiresAtMs !== null && expiresAtMs <= nowMs;
}
