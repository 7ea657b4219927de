/** Sends changes until it is known what became of them, as far as a repeat is safe. */
import { Outage, untilSettled } from "./attempts.ts";
import { type ChangeOutcome, type ChangeRequest, happensOnce, type QuantityChange } from "./change-requests.ts";
import type { ChangeSessions } from "./change-sessions.ts";
import { maxTimeoutMs } from "./grpc-calls.ts";
import { InventoryError, type StatusName } from "./inventory-error.ts";
import { checkArguments, checkFunction, checkNumber } from "./values.ts";

/** The caller that changes are made for: how long it waits, and whether it still wants them. */
export interface ChangeCaller {
  /** Gives the end of its wait, by `performance.now()`, at most 24 days ahead. Called for each attempt. */
  readonly endMs: () => number;
  /**
   * Whether the caller still waits. Asked just before the changes are sent: those of a caller that has left must not
   * happen after its next request.
   */
  readonly isWanted: () => boolean;
  /**
   * Asked before each further attempt. True: the caller still waits, and its key still allows the changes. False: that
   * is not known yet. It throws or rejects once the caller has left or its key allows them no more.
   */
  readonly mayRetry: () => boolean | Promise<boolean>;
}

/**
 * Copies a caller. Its deadlines are checked, and bounded: they go into messages that it shares with others.
 *
 * @throws InventoryError INVALID_ARGUMENT, and so does `endMs` of the copy
 */
export function checkCaller(given: ChangeCaller): ChangeCaller {
  const members = ["endMs", "isWanted", "mayRetry"] as const;
  const caller = checkArguments(given, ...members);
  for (const name of members) checkFunction(name, caller[name]);
  const endMs = () => Math.min(checkNumber("endMs", caller.endMs()), performance.now() + maxTimeoutMs);
  return { ...caller, endMs };
}

/** Statuses after which the same request may succeed soon. */
const transientStatuses: ReadonlySet<StatusName> = new Set(["UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED"]);

export class ChangeSender {
  readonly #sessions: Pick<ChangeSessions, "submit" | "isClosed">;
  readonly #attemptTimeoutMs: number;
  readonly #outage: Outage;

  /** @param attemptTimeoutMs the longest attempt at changes that may be repeated, and the patience with an outage */
  constructor(sessions: Pick<ChangeSessions, "submit" | "isClosed">, attemptTimeoutMs: number) {
    this.#sessions = sessions;
    this.#attemptTimeoutMs = attemptTimeoutMs;
    this.#outage = new Outage(attemptTimeoutMs);
  }

  /**
   * Sends changes, and in an outage some of them again: those that have certainly not happened, and those with an
   * unknown outcome if they happen once. A repeat of any other could undo a newer change that was acknowledged
   * meanwhile.
   *
   * A broken stream can deliver its changes until their deadline. Until then a refusal of the repeat says nothing about
   * the first attempt. So before `send` answers that an outcome is unknown, it waits for that deadline: after it no
   * service starts the changes.
   *
   * @returns an outcome for each change, in order
   * @throws what `endMs` or `isWanted` throws at the first attempt, which then is not sent
   */
  async send(request: ChangeRequest, { endMs, isWanted, mayRetry }: ChangeCaller): Promise<ChangeOutcome[]> {
    const known = new KnownOutcomes(request);
    let retryUntilMs = Number.NEGATIVE_INFINITY;
    const attempt = async () => {
      if (known.isTried && !(await mayRetry())) {
        retryUntilMs = Math.min(retryUntilMs, endMs()); // a stop of the gateway shortens it
        return false;
      }
      const latestMs = endMs();
      const untilMs = known.isOnce ? Math.min(performance.now() + this.#attemptTimeoutMs, latestMs) : latestMs;
      const isKnown = await known.attempt(untilMs, (changes) =>
        this.#sessions.submit({ ...request, changes }, untilMs, isWanted),
      );
      if (isKnown) this.#outage.succeeded();
      const isServiceAway = known.unsettledErrors().some(({ code }) => code === "UNAVAILABLE");
      retryUntilMs = latestMs;
      if (isServiceAway && !known.isOnce) retryUntilMs = Math.min(latestMs, this.#outage.failed());
      return known.isSettled || this.#sessions.isClosed;
    };
    await untilSettled(attempt, () => retryUntilMs).catch((error: unknown) => {
      // The caller has left, or may not make the changes: the outcomes are those of the attempts before.
      if (!known.isTried) throw error;
    });
    await known.untilNothingMayHappen();
    return known.outcomes;
  }
}

/** What is known of the changes of a request, attempt by attempt. */
class KnownOutcomes {
  readonly #request: ChangeRequest;
  /** Whether the changes happen once, however often they are sent. */
  readonly isOnce: boolean;
  /** The outcome of each change so far, in their order; empty before the end of the first attempt. */
  readonly outcomes: ChangeOutcome[] = [];
  /** The places of the changes for which another attempt is safe and may be of use. */
  #unsettled: readonly number[];
  /** The time until which an attempt that was not answered may still happen, by `performance.now()`. */
  #mayHappenUntilMs = Number.NEGATIVE_INFINITY;

  constructor(request: ChangeRequest) {
    this.#request = request;
    this.isOnce = happensOnce(request);
    this.#unsettled = [...request.changes.keys()];
  }

  /** Whether an attempt has ended. */
  get isTried(): boolean {
    return this.outcomes.length > 0;
  }

  get isSettled(): boolean {
    return this.#unsettled.length === 0;
  }

  /** Why changes are not settled. */
  unsettledErrors(): InventoryError[] {
    return this.#unsettled.map((place) => this.outcomes[place] as InventoryError);
  }

  /**
   * Makes an attempt at the changes that are not settled.
   *
   * @param untilMs the end of the attempt, by `performance.now()`
   * @param send gives the outcomes of the changes that it gets
   * @returns whether a service works: no queue was full, and each change has a known outcome
   * @throws what `send` throws
   */
  async attempt(
    untilMs: number,
    send: (changes: QuantityChange[]) => Promise<readonly ChangeOutcome[]>,
  ): Promise<boolean> {
    const earlierMayHappen = performance.now() < this.#mayHappenUntilMs;
    const found = await send(this.#unsettled.map((place) => this.#request.changes[place]!));
    const earlier = this.#unsettled.map((place) => this.outcomes[place]);
    const settled = settledBy(this.#request, found, earlier, earlierMayHappen);
    // What may have happened stays unknown until a repeat settles it. The reason of an outage stays, too, when the last
    // attempt has only met the end of its time.
    for (const [i, place] of this.#unsettled.entries()) {
      const isOutage = earlier[i] !== undefined && isOutOfTime(found[i]!);
      if (settled[i] || !(mayHaveHappened(earlier[i]) || isOutage)) this.outcomes[place] = found[i]!;
    }
    this.#unsettled = this.#unsettled.filter((_, i) => !settled[i]);
    if (this.isOnce && found.some(isUnanswered)) this.#mayHappenUntilMs = Math.max(this.#mayHappenUntilMs, untilMs);
    return this.isSettled && !found.some((outcome) => mayHaveHappened(outcome) || isQueueFull(outcome));
  }

  /** Waits until no change with an unknown outcome can happen any more. */
  async untilNothingMayHappen(): Promise<void> {
    const leftMs = this.#mayHappenUntilMs - performance.now();
    if (leftMs <= 0 || !this.outcomes.some(mayHaveHappened)) return;
    await new Promise((resolve) => setTimeout(resolve, Math.ceil(leftMs) + 1)); // timers may end a millisecond early
  }
}

/**
 * Tells which changes of an attempt need no further attempt. The rows say what earlier attempts have left, the columns
 * what this attempt has brought; inventory-error.ts says what decided and undone mean. "Once" stands for
 * changes that happen once, however often they are sent.
 *
 * | Earlier attempts | Made | Decided | Undone | Unknown |
 * |---|---|---|---|---|
 * | nothing, or certainly not made | settled | settled | again, if transient | again, if transient and once |
 * | may have been made, and may still be | settled | again | again | again |
 * | may have been made, but cannot now | settled | settled | again | again |
 *
 * @param found the outcomes of the attempt
 * @param earlier those of the attempts before it; undefined where there was none
 * @param earlierMayHappen whether an earlier attempt could still happen when this one was sent
 */
export function settledBy(
  request: ChangeRequest,
  found: readonly ChangeOutcome[],
  earlier: readonly (ChangeOutcome | undefined)[],
  earlierMayHappen: boolean,
): boolean[] {
  const isOnce = happensOnce(request);
  const settled = found.map((outcome, i) =>
    mayHaveHappened(earlier[i]) ? settlesEarlier(outcome, earlierMayHappen) : !isWorthRepeating(outcome, isOnce),
  );
  // Changes that are all or nothing are repeated all together, because a repeat has to be the same request.
  return request.isAllOrNothing && settled.includes(false) ? settled.fill(false) : settled;
}

/** Whether the outcome of a repeat tells what has become of an earlier attempt that may have happened. */
function settlesEarlier(outcome: ChangeOutcome, earlierMayHappen: boolean): boolean {
  if (!(outcome instanceof InventoryError)) return true;
  return !earlierMayHappen && outcome.isDecided;
}

/** Whether no service has said what became of a change that was sent, so that a service may still make it. */
function isUnanswered(outcome: ChangeOutcome): boolean {
  return mayHaveHappened(outcome) && (outcome as InventoryError).errorReason === undefined;
}

/** Whether an attempt has ended before a service could be reached. */
function isOutOfTime(outcome: ChangeOutcome): boolean {
  return (
    outcome instanceof InventoryError && outcome.code === "DEADLINE_EXCEEDED" && outcome.errorReason === "NOT_SENT"
  );
}

/** Whether a change was refused because a queue is full: that of this client or that of a service. */
function isQueueFull(outcome: ChangeOutcome): boolean {
  return outcome instanceof InventoryError && outcome.errorReason === "QUEUE_FULL";
}

function mayHaveHappened(outcome: ChangeOutcome | undefined): boolean {
  return outcome instanceof InventoryError && outcome.mayHaveHappened;
}

/** Whether another attempt is safe, and may have another outcome. */
function isWorthRepeating(outcome: ChangeOutcome, isOnce: boolean): boolean {
  if (!(outcome instanceof InventoryError) || !transientStatuses.has(outcome.code)) return false;
  return isOnce || !outcome.mayHaveHappened;
}
