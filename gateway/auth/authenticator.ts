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
}

/** A key is used for so long after it was looked up; so a revocation holds after that at the latest. */
const maxAgeMs = 8_000;

/** A key in use is looked up again this early, beside the requests, so that none of them waits for it. */
const refreshAfterMs = 4_000;

const maxKnown = 50_000;
const maxUnknown = 10_000;

interface Known {
  readonly principal: Principal;
  readonly checkedAtMs: number;
}

/** Tells who a bearer token stands for. Look-ups are remembered for a few seconds, also those that found nothing. */
export class Authenticator {
  readonly #options: AuthenticatorOptions;
  // Two caches, so that a flood of made-up keys displaces no good one. Neither keeps a token itself.
  readonly #known = new LRUCache<string, Known>({ max: maxKnown });
  readonly #unknown = new LRUCache<string, number>({ max: maxUnknown });
  /** Counts the calls of `forget`: an answer that was asked for before one of them is not remembered. */
  #forgotten = 0;
  readonly #lookUps = new Map<string, Promise<Principal | undefined>>();

  constructor(options: AuthenticatorOptions) {
    this.#options = options;
  }

  /**
   * @param mayLookUp asked before the store is asked about a token that was not a good key here lately; when false
   *   the token counts as unknown this time
   * @returns undefined for a token that is unknown, revoked, expired or no key of ours at all
   * @throws what the store throws when it cannot be asked
   */
  async authenticate(token: string, mayLookUp: () => boolean): Promise<Principal | undefined> {
    const id = hash("sha256", token, "base64");
    const nowMs = this.#options.now();
    const known = this.#known.get(id);
    if (known && nowMs - known.checkedAtMs < maxAgeMs) {
      if (nowMs - known.checkedAtMs >= refreshAfterMs) this.#lookUp(id, token).catch(() => {});
      return isExpired(known.principal, nowMs) ? undefined : known.principal;
    }
    const unknownSinceMs = this.#unknown.get(id);
    if (unknownSinceMs !== undefined && nowMs - unknownSinceMs < maxAgeMs) return undefined;
    if (!known && (!isWellFormed(token) || !mayLookUp())) return undefined;
    return await this.#lookUp(id, token);
  }

  /**
   * Looks up again what is remembered of a key or an account, before it is used the next time.
   *
   * @param id of the key or the account
   */
  forget(id: string): void {
    this.#forgotten += 1;
    for (const [tokenId, { principal }] of this.#known.entries()) {
      if (principal.keyId === id || principal.accountId === id) this.#known.set(tokenId, { principal, checkedAtMs: 0 });
    }
  }

  /** Requests with one key share a look-up. */
  #lookUp(id: string, token: string): Promise<Principal | undefined> {
    let lookUp = this.#lookUps.get(id);
    if (!lookUp) {
      lookUp = this.#ask(id, token).finally(() => this.#lookUps.delete(id));
      this.#lookUps.set(id, lookUp);
    }
    return lookUp;
  }

  async #ask(id: string, token: string): Promise<Principal | undefined> {
    const checkedAtMs = this.#options.now(); // when it was asked: a revocation while the answer travels may be missed
    const forgotten = this.#forgotten;
    const principal = await this.#options.store.findByHash(hashKey(token, this.#options.pepper));
    if (principal) {
      this.#known.set(id, { principal, checkedAtMs: forgotten === this.#forgotten ? checkedAtMs : 0 });
    } else {
      this.#known.delete(id);
      this.#unknown.set(id, checkedAtMs);
    }
    return principal;
  }
}

function isExpired({ expiresAtMs }: Principal, nowMs: number): boolean {
  return expiresAtMs !== null && expiresAtMs <= nowMs;
}
