/** Sends changes until it is known what became of them, as far as a repeat is safe. */
import { Outage, untilSettled } from "./attempts.ts";
import { type ChangeOutcome, type ChangeRequest, happensOnce } from "./change-requests.ts";
import type { ChangeSessions } from "./change-sessions.ts";
import { InventoryError, type StatusName } from "./inventory-error.ts";

/** For whom changes are made. */
export interface ChangeCaller {
  /** Gives the end of its wait, by `performance.now()`. Called for each attempt. */
  readonly deadlineMs: () => number;
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

/** Statuses after which the same request may succeed soon. */
const passing: ReadonlySet<StatusName> = new Set(["UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED"]);

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
   * A broken stream may still deliver its changes until their deadline. Until then a refused repeat says nothing about
   * the first attempt, and `send` does not yet answer that the outcome is unknown.
   *
   * @returns an outcome for each change, in order
   */
  async send(request: ChangeRequest, { deadlineMs, isWanted, mayRetry }: ChangeCaller): Promise<ChangeOutcome[]> {
    const isOnce = happensOnce(request);
    const outcomes: ChangeOutcome[] = [];
    let unsettled = [...request.changes.keys()];
    let endMs = Number.NEGATIVE_INFINITY;
    let openUntilMs = Number.NEGATIVE_INFINITY;

    const attempt = async () => {
      if (outcomes.length > 0 && !(await mayRetry())) {
        endMs = Math.min(endMs, deadlineMs()); // a stop of the gateway shortens it
        return false;
      }
      const changes = unsettled.map((i) => request.changes[i]!);
      const latestMs = deadlineMs();
      const untilMs = isOnce ? Math.min(performance.now() + this.#attemptTimeoutMs, latestMs) : latestMs;
      const isOpen = performance.now() < openUntilMs;
      const found = await this.#sessions.submit({ ...request, changes }, untilMs, isWanted);
      const settled = found.map((outcome, i) => {
        const isUnknown = mayHaveHappened(outcomes[unsettled[i]!]);
        return isUnknown ? tellsOfEarlier(outcome, isOpen) : !mayPass(outcome, isOnce);
      });
      if (request.isAllOrNothing && settled.includes(false)) settled.fill(false); // a repeat is the same request
      for (const [i, place] of unsettled.entries()) {
        if (settled[i] || !mayHaveHappened(outcomes[place])) outcomes[place] = found[i]!;
      }
      unsettled = unsettled.filter((_, i) => !settled[i]);
      if (isOnce && found.some(isUnanswered)) openUntilMs = Math.max(openUntilMs, untilMs);
      const isAway = unsettled.some((i) => (outcomes[i] as InventoryError).code === "UNAVAILABLE");
      if (unsettled.length === 0 && !found.some(mayHaveHappened)) this.#outage.succeeded();
      endMs = isAway && !isOnce ? Math.min(latestMs, this.#outage.failed()) : latestMs;
      return unsettled.length === 0 || this.#sessions.isClosed;
    };
    await untilSettled(attempt, () => endMs).catch(() => {
      // The caller has left, or may not make the changes: the outcomes are those of the attempts before.
    });
    const openMs = openUntilMs - performance.now();
    // Timers may end a millisecond early.
    if (outcomes.some(mayHaveHappened) && openMs > 0)
      await new Promise((resolve) => setTimeout(resolve, Math.ceil(openMs) + 1));
    return outcomes;
  }
}

/**
 * Whether the outcome of a repeat tells what has become of an earlier attempt that may have happened.
 *
 * @param isOpen whether the earlier attempt could still happen when the repeat was sent
 */
function tellsOfEarlier(outcome: ChangeOutcome, isOpen: boolean): boolean {
  if (!(outcome instanceof InventoryError)) return true;
  return !isOpen && outcome.isDecided;
}

/** Whether no service has said what became of a change that was sent, so that a service may still make it. */
function isUnanswered(outcome: ChangeOutcome): boolean {
  return mayHaveHappened(outcome) && (outcome as InventoryError).errorReason === undefined;
}

function mayHaveHappened(outcome: ChangeOutcome | undefined): boolean {
  return outcome instanceof InventoryError && outcome.mayHaveHappened;
}

/** Whether another attempt is safe, and may have another outcome. */
function mayPass(outcome: ChangeOutcome, isOnce: boolean): boolean {
  if (!(outcome instanceof InventoryError) || !passing.has(outcome.code)) return false;
  return isOnce || !outcome.mayHaveHappened;
}
