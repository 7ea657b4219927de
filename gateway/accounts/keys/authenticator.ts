/** Finds the caller that a bearer token stands for. */
import { hash } from "node:crypto";
import { LRUCache } from "lru-cache";
import { inTime } from "../../../runtime/event-loop.ts";
import { OperatorError } from "../../../runtime/operator-error.ts";
import { ownKeyHasher } from "./key-format.ts";
import type { FoundKey, KeyStore } from "./key-store.ts";
import type { Peppers } from "./pepper.ts";
import type { Principal } from "./principal.ts";

export interface AuthenticatorOptions {
  readonly store: Pick<KeyStore, "findByHash">;
  readonly peppers: Peppers;
  /** Unix milliseconds. */
  readonly now: () => number;
  /** Milliseconds by a clock that cannot be set back; default: `performance.now`. */
  readonly elapsedMs?: () => number;
}

/**
 * How long a look-up is used. A revocation has to hold within 10 s, so the key of a request that takes over 2 s is
 * verified again by a look-up that is not older than this (`hasWaited` in request-context.ts).
 */
export const lookUpMaxAgeMs = 8_000;

/** The age at which a key in use is looked up again in the background, so that no request waits for it. */
const refreshAfterMs = 4_000;

/** How long a revoked key is refused without a look-up. It never works again. */
const maxRevokedAgeMs = 3_600_000;

const maxKnown = 50_000;
const maxRefused = 50_000;

/**
 * Maximum look-ups at once of keys that have not yet worked at this gateway. With more, the look-ups of known keys,
 * which must be answered within seconds, would wait for a connection.
 */
const maxNew = 1_000;

/** How long a request waits for a look-up, which itself goes on: the next request with the key may find it answered. */
const maxWaitMs = 2_000;

/** Finds the principal of a bearer token. It remembers look-ups, even those that found nothing. */
export class Authenticator {
  readonly #options: Required<AuthenticatorOptions>;
  readonly #ownKeyHash: (token: string) => Buffer | undefined;
  // Two caches, so that a flood of keys that fail cannot push out keys that work. Neither holds a token itself.
  readonly #known = new LRUCache<string, Known>({ max: maxKnown });
  readonly #refused = new LRUCache<string, Refused>({ max: maxRefused });
  /**
   * The number of the present generation of look-ups, which `forget` raises. A look-up that is under way at a `forget`
   * may have missed the change: a key that it finds is looked up again at its next use; one that it does not find stays
   * refused for a time.
   */
  #generation = 0;
  readonly #lookUps = new Map<string, LookUp>();
  /** How many of `maxNew` are under way. */
  #new = 0;

  constructor(options: AuthenticatorOptions) {
    this.#options = { elapsedMs: () => performance.now(), ...options };
    this.#ownKeyHash = ownKeyHasher(options.peppers);
  }

  /**
   * The principal of a key that was looked up in the last seconds; undefined for any other key, which may be valid.
   * Also begins a new look-up when one is due.
   */
  remembered(token: string): Principal | undefined {
    const id = hash("sha256", token, "base64");
    return this.#rememberedAndRenewed(id);
  }

  /**
   * Finds the principal of a token, from memory or from the store. The store is asked only for keys that were made
   * here.
   *
   * @returns undefined for a token that was not made here, is unknown, revoked or expired
   * @throws what the store throws; OperatorError when too many new keys are being looked up, or the look-up takes too
   *   long
   */
  async authenticate(token: string): Promise<Principal | undefined> {
    const id = hash("sha256", token, "base64");
    const principal = this.#rememberedAndRenewed(id);
    if (principal) return principal;
    if (this.#isRefused(id)) return undefined;
    const keyHash = this.#ownKeyHash(token);
    if (keyHash === undefined) return undefined;
    const isNew = !this.#known.has(id) && !this.#lookUps.has(id);
    if (isNew && this.#new >= maxNew) {
      throw new OperatorError(
        `GATEWAY_DATABASE_URL: ${maxNew} keys that this gateway has not used yet are being looked up already`,
      );
    }
    const { askedAt, answer } = this.#lookUp(id, keyHash);
    if (isNew) {
      this.#new += 1;
      const end = () => {
        this.#new -= 1;
      };
      answer.then(end, end);
    }
    const found = await inTime(answer, maxWaitMs, lateLookUp);
    // A freeze of this process may have made the answer too old to be used.
    return this.#ageMs(askedAt) < maxAgeMs(found) ? found : await this.authenticate(token);
  }

  /**
   * Makes the next use of a key, a family of keys or an account look it up again.
   *
   * @param id of the key, of the first key of the family, or of the account
   */
  forget(id: string): void {
    this.#generation += 1;
    this.#lookUps.clear(); // later requests must not share a look-up that began before this
    for (const known of this.#known.values()) {
      // Changed in place: `set` would move the entry to the front of `values`, which is being walked.
      const { keyId, familyId, accountId } = known.principal;
      if (keyId === id || familyId === id || accountId === id) known.checkedAt = longAgo;
    }
  }

  /** What the latest look-up of a key found, if it is recent; looks the key up again when that is due. */
  #rememberedAndRenewed(id: string): Principal | undefined {
    const known = this.#known.get(id);
    if (!known) return undefined;
    const ageMs = this.#ageMs(known.checkedAt);
    if (ageMs >= maxAgeMs(known.principal)) return undefined;
    if (ageMs >= refreshAfterMs) this.#lookUp(id, known.keyHash).answer.catch(() => {});
    return known.principal;
  }

  /** Requests with the same key share a look-up. */
  #lookUp(id: string, keyHash: Buffer): LookUp {
    const running = this.#lookUps.get(id);
    if (running) return running;
    const { now, elapsedMs } = this.#options;
    const askedAt = { unixMs: now(), elapsedMs: elapsedMs() }; // a revocation while the answer travels may be missed
    const answer = this.#ask(id, keyHash, askedAt).finally(() => {
      if (this.#lookUps.get(id)?.answer === answer) this.#lookUps.delete(id);
    });
    const lookUp = { askedAt, answer };
    this.#lookUps.set(id, lookUp);
    return lookUp;
  }

  async #ask(id: string, keyHash: Buffer, askedAt: Moment): Promise<FoundKey | undefined> {
    const generation = this.#generation;
    const found = await this.#options.store.findByHash(keyHash);
    if (found) {
      this.#known.set(id, {
        principal: found,
        keyHash,
        checkedAt: generation === this.#generation ? askedAt : longAgo,
      });
      return found;
    }
    this.#known.delete(id);
    this.#refused.set(id, { checkedAt: askedAt, maxAgeMs: found === null ? maxRevokedAgeMs : lookUpMaxAgeMs });
    return undefined;
  }

  #isRefused(id: string): boolean {
    const refused = this.#refused.get(id);
    return refused !== undefined && this.#ageMs(refused.checkedAt) < refused.maxAgeMs;
  }

  #ageMs(since: Moment): number {
    const { now, elapsedMs } = this.#options;
    return Math.max(now() - since.unixMs, elapsedMs() - since.elapsedMs);
  }
}

const lateLookUp = () => new OperatorError(`GATEWAY_DATABASE_URL: no answer within ${maxWaitMs} ms`);

interface LookUp {
  readonly askedAt: Moment;
  readonly answer: Promise<FoundKey | undefined>;
}

interface Known {
  readonly principal: FoundKey;
  readonly keyHash: Buffer;
  checkedAt: Moment;
}

interface Refused {
  readonly checkedAt: Moment;
  readonly maxAgeMs: number;
}

/** A time by two clocks: one of them can be set back, and the other stands still while the machine sleeps. */
interface Moment {
  readonly unixMs: number;
  readonly elapsedMs: number;
}

const longAgo: Moment = { unixMs: Number.NEGATIVE_INFINITY, elapsedMs: Number.NEGATIVE_INFINITY };

/** How long a look-up is used: not beyond the end of its key, after which the database decides. */
function maxAgeMs(found: FoundKey | undefined): number {
  return Math.min(lookUpMaxAgeMs, found?.endsInMs ?? Number.POSITIVE_INFINITY);
}
