/** Holds requests with `Prefer: wait` until what they asked for has changed. */
import type { IncomingMessage, ServerResponse } from "node:http";
import { ROOT_CONTEXT, context as traces } from "@opentelemetry/api";
import { Shares } from "../../../runtime/shares.ts";
import type { Admission } from "../../admission/admission.ts";
import type { ApiError } from "../../http/api-error.ts";
import { forgetHead } from "../../http/request.ts";
import { contextOf, type HeaderList, type RequestContext, reverifyAfter } from "../../http/request-context.ts";
import { readWaitSeconds } from "../input.ts";
import type { Snapshot } from "../list/snapshot.ts";
import type { StockList } from "../list/stock-list.ts";

export interface LongPollsOptions {
  readonly list: Pick<StockList, "readFresh" | "last" | "onChange">;
  /** Maximum requests that are held; accounts share them out between them. */
  readonly max: number;
  readonly admission: Pick<Admission, "isKeyKnownGood" | "reverifyKeyAndBan" | "readmit">;
}

/** What a request waits for. */
export interface AwaitedChange {
  /** The entry that has to change; undefined for any of them. */
  readonly petId: bigint | undefined;
  /** Whether the request would be told that nothing has changed. */
  readonly isUnchanged: (snapshot: Snapshot) => boolean;
}

interface LongPoll {
  readonly petId: bigint | undefined;
  readonly accountId: string;
  readonly context: RequestContext;
  /** The round in which its key is checked. */
  readonly round: number;
  /** Lets it go on, or fail. */
  readonly end: (error?: ApiError) => void;
}

/** How often the list is checked while requests are held. */
const checkMs = 250;

/**
 * Keys are looked at in turns, an eighth of them at each check, so each one every 2 s: all at once would take too long.
 */
const rounds = 8;

/** Held requests that go on in one turn of the event loop, so that other requests are served in between. */
const perTurn = 100;

/** The refusals that end a held request at once. */
const finalCodes: ReadonlySet<string> = new Set(["invalid_api_key", "api_key_banned"]);

/**
 * Holds requests, at almost no cost: a held one keeps no list and no bytes of an answer. All of them share the checks
 * of the list, with each other and with other readers. A change wakes the requests for its entry and those for any
 * entry.
 */
export class LongPolls {
  readonly #options: LongPollsOptions;
  readonly #held = new Set<LongPoll>();
  readonly #shares: Shares;
  readonly #byPetId = new Map<bigint | undefined, Set<LongPoll>>();
  /** Held requests that are about to go on, in this order. */
  readonly #woken = new Set<LongPoll>();
  #begun = 0;
  #checks = 0;
  #timer: NodeJS.Timeout | undefined;
  #isClosed = false;

  constructor(options: LongPollsOptions) {
    this.#options = options;
    this.#shares = new Shares(options.max);
    options.list.onChange((petIds) => this.#wake(petIds));
  }

  get count(): number {
    return this.#held.size;
  }

  /**
   * Holds a request with `Prefer: wait` until something of what it asks for changes. It also goes on at the end of its
   * wait, when it is hurried, and at `close`. Whenever it goes on, its durations and deadlines begin again, and
   * `context.prefetched` is a new check.
   *
   * @returns the header that says that the wait was granted; none for a request that asks for no wait or cannot be held
   * @throws ApiError when its caller has lost the key, was banned or cannot be looked up; what the check before the
   *   wait throws
   */
  holdUntilChange(request: IncomingMessage, response: ServerResponse, awaited: AwaitedChange): Promise<HeaderList> {
    const seconds = readWaitSeconds(request.headers.prefer);
    if (seconds === undefined || hasBody(request)) return Promise.resolve([]);
    const { list } = this.#options;
    const context = contextOf(response);
    const applied = ["Preference-Applied", `wait=${seconds}`];
    context.prefetched ??= list.readFresh(context.arrivedMs);
    const checked = reverifyAfter(context.prefetched, response, this.#options.admission.reverifyKeyAndBan);
    // A chain of promises on purpose: the frame of an async function would pin `snapshot` while it waits.
    return checked.then(() => {
      const snapshot = list.last?.snapshot;
      const leftMs = context.arrivedMs + seconds * 1_000 - performance.now();
      if (response.destroyed || leftMs <= 0 || !snapshot) return applied;
      if (!awaited.isUnchanged(snapshot)) {
        context.prefetched = Promise.resolve(snapshot); // the check may be older, and show no change
        return applied;
      }
      if (context.isHurried || this.#isClosed || !this.#shares.take(context.principal!.accountId)) return [];
      context.prefetched = undefined;
      return this.#hold(request, response, awaited.petId, leftMs).then(async () => {
        await this.#options.admission.readmit(context);
        context.prefetched = list.readFresh();
        return applied;
      });
    });
  }

  /** Answers all held requests, and holds no more. */
  close(): void {
    this.#isClosed = true;
    clearTimeout(this.#timer);
    this.#release(this.#held);
  }

  #hold(request: IncomingMessage, response: ServerResponse, petId: bigint | undefined, waitMs: number): Promise<void> {
    const context = contextOf(response);
    forgetHead(request, context);
    context.waitsForOthersFromMs = performance.now();
    context.limitHeaders = []; // they are read again at its end
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const end = (error?: ApiError) => {
      this.#forget(held);
      clearTimeout(timer);
      response.off("close", leave);
      context.onHurry = undefined;
      context.waitsForOthersFromMs = Number.POSITIVE_INFINITY;
      context.arrivedMs = performance.now();
      if (error) reject(error);
      else resolve();
    };
    const { accountId } = context.principal!;
    const held: LongPoll = { petId, accountId, context, round: this.#begun++ % rounds, end };
    const timer = setTimeout(end, waitMs);
    context.onHurry = end;
    const leave = () => {
      this.#forget(held); // nothing waits for its promise any more
      clearTimeout(timer);
    };
    response.once("close", leave);
    const ofPet = this.#byPetId.get(petId) ?? new Set();
    this.#byPetId.set(petId, ofPet.add(held));
    this.#held.add(held);
    this.#watch();
    return promise;
  }

  #forget(held: LongPoll): void {
    if (!this.#held.delete(held)) return; // hurried after its client has left
    const ofPet = this.#byPetId.get(held.petId);
    this.#shares.release(held.accountId);
    this.#woken.delete(held);
    ofPet?.delete(held);
    if (ofPet?.size === 0) this.#byPetId.delete(held.petId);
  }

  /** @param petIds of the entries that changed; undefined after a change of everything */
  #wake(petIds: readonly bigint[] | undefined): void {
    if (this.#held.size === 0) return;
    for (const petId of petIds ? [undefined, ...petIds] : [...this.#byPetId.keys()]) {
      this.#release(this.#byPetId.get(petId) ?? []);
      this.#byPetId.delete(petId); // so that the next change does not wake them again
    }
  }

  /** Lets requests go on, some of them in each turn. */
  #release(helds: Iterable<LongPoll>): void {
    for (const held of helds) {
      if (this.#woken.size === 0) setImmediate(() => this.#endSome());
      this.#woken.add(held);
    }
  }

  #endSome(): void {
    for (const held of [...this.#woken.values().take(perTurn)]) held.end();
    if (this.#woken.size > 0) setImmediate(() => this.#endSome());
  }

  /** Checks the list and the keys from time to time, while requests are held. */
  #watch(): void {
    if (this.#held.size === 0 || this.#isClosed) return;
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined;
      // A failure is ignored here: each request reads again when it goes on. The check belongs to the trace of none.
      traces.with(ROOT_CONTEXT, () => this.#options.list.readFresh()).catch(() => {});
      this.#checkKeys(); // even while the check of the list waits
      this.#watch();
    }, checkMs);
  }

  #checkKeys(): void {
    const { admission } = this.#options;
    const round = this.#checks++ % rounds;
    for (const held of this.#held) {
      if (held.round !== round || admission.isKeyKnownGood(held.context)) continue;
      admission.reverifyKeyAndBan(held.context).catch((error) => {
        if (this.#held.has(held) && finalCodes.has((error as ApiError).code)) held.end(error);
      });
    }
  }
}

/** Whether a request has a body, which could go on arriving while the request is held. No read needs one. */
function hasBody({ headers }: IncomingMessage): boolean {
  return Number(headers["content-length"] ?? 0) > 0 || headers["transfer-encoding"] !== undefined;
}
