/** Sends updates until it is known what became of them, as far as a repeat is safe. */
import { type ServiceError, status } from "@grpc/grpc-js";
import { context } from "@opentelemetry/api";
import { activeTraceparent, clientCall, inSpan } from "../../runtime/spans.ts";
import type { ApiError } from "../http/errors.ts";
import { Outage } from "./outage.ts";
import { fromServiceError, NotDoneError } from "./status.ts";
import type { UpdatePipeline } from "./update-pipeline.ts";
import type { Updated, UpdateOutcome, UpdateRequest } from "./updates.ts";

export interface UpdateSenderOptions {
  readonly pipeline: Pick<UpdatePipeline, "submit">;
  /** Deadline of an update without a key, from the arrival of its request, and of each attempt at one with a key. */
  readonly callTimeoutMs: number;
  /** How long updates with a key are repeated, from the arrival of their request. */
  readonly keyedTimeoutMs: number;
}

/** The request that updates are for. */
export interface UpdateCaller {
  /** Its arrival, by `performance.now()`: deadlines count from there, whatever the updates wait for. */
  readonly arrivedMs: number;
  /** False once the caller has left: what it sends next must not be followed by these updates. */
  readonly isWanted: () => boolean;
  /**
   * Asked before each further attempt: false while it is not known whether the caller may still update. Rejects once
   * the caller may not.
   */
  readonly mayRepeat: () => Promise<boolean>;
}

/**
 * Resolves once each update is durable, or has failed. In an outage, updates are tried again that have certainly not
 * happened, and with a key those too of which it is not known.
 *
 * @returns for each update, in order, its entry or an error: not_found, precondition_failed, idempotency_key_reused;
 *   service_unavailable, timeout or internal_error, after which it may have happened
 */
export type SendUpdates = (
  request: Omit<UpdateRequest, "traceparent">,
  caller: UpdateCaller,
) => Promise<readonly (Updated | ApiError)[]>;

export interface UpdateSender {
  readonly send: SendUpdates;
  /** Repeats no update for longer than `callTimeoutMs` from now on: for the begin of a stop. */
  endSoon(): void;
}

/** Requests with a key that are repeated at a time. In a long outage further ones fail after their first attempt. */
const maxRepeating = 5_000;

export function createUpdateSender({ pipeline, callTimeoutMs, keyedTimeoutMs }: UpdateSenderOptions): UpdateSender {
  const outage = new Outage(callTimeoutMs);
  let repeating = 0;
  let endingSinceMs = Number.POSITIVE_INFINITY;
  /** When the last attempt at updates with a key ends. */
  const keyedEndMs = (arrivedMs: number) =>
    Math.min(arrivedMs + keyedTimeoutMs, Math.max(arrivedMs, endingSinceMs) + callTimeoutMs);

  const send: SendUpdates = async ({ updates, once }, { arrivedMs, isWanted, mayRepeat }) => {
    const outcomes = new Array<UpdateOutcome | undefined>(updates.length).fill(undefined);
    const isUnsettled = once ? isRepeatable : isUndone;
    /** Whether an attempt of this request may have made the updates: what is replayed then is its own result. */
    let isOwn = false;
    /** Of the latest attempt. */
    let error: UpdateOutcome | undefined;
    /** Sends what has no final outcome. @throws the first error that allows a repeat, otherwise the first error */
    const attempt = async () => {
      if (error && !((await mayRepeat()) && mayGoOn())) throw error;
      const places = [...outcomes.keys()].filter((i) => outcomes[i] === undefined || isUnsettled(outcomes[i]));
      const request = { updates: places.map((i) => updates[i]!), once, traceparent: activeTraceparent() };
      const deadlineMs = once
        ? Math.min(performance.now() + callTimeoutMs, keyedEndMs(arrivedMs))
        : arrivedMs + callTimeoutMs;
      const found = await pipeline.submit(request, deadlineMs, isWanted);
      for (const [i, outcome] of found.entries()) outcomes[places[i]!] = isOwn ? asOwn(outcome) : outcome;
      isOwn ||= found.some((outcome) => isUnsettled(outcome) && !isUndone(outcome));
      error = found.find(isUnsettled) ?? found.find((outcome) => outcome instanceof Error);
      if (error) throw error;
    };
    const mayGoOn = () => isWanted() && (!once || performance.now() < keyedEndMs(arrivedMs));
    let isRepeating = false;
    /** Whether to try again after this error; takes one of the places for requests with a key. */
    const hold = (thrown: unknown) => {
      if (!isUnsettled(thrown)) return false;
      if (!once || isRepeating) return true;
      if (repeating >= maxRepeating) return false;
      isRepeating = true;
      repeating += 1;
      return true;
    };
    await inSpan("ApplyUpdates", clientCall, context.active(), () =>
      // With a key, each caller has the whole time, however long others have waited already.
      (once ? new Outage(keyedTimeoutMs) : outage).rideOut(attempt, hold, mayGoOn, arrivedMs),
    ).catch(() => {}); // it is an outcome, too
    if (isRepeating) repeating -= 1;
    return outcomes.map((outcome) => (outcome instanceof Error ? fromServiceError(outcome) : outcome!));
  };

  return {
    send,
    endSoon: () => {
      endingSinceMs = performance.now();
    },
  };
}

function asOwn(outcome: UpdateOutcome): UpdateOutcome {
  return outcome instanceof Error ? outcome : { ...outcome, isReplayed: false };
}

function isUndone(outcome: unknown): boolean {
  return outcome instanceof NotDoneError;
}

/** After these the same request may succeed soon. It may have happened already, which a key makes harmless. */
const repeatable: ReadonlySet<status | undefined> = new Set([
  status.UNAVAILABLE,
  status.DEADLINE_EXCEEDED,
  status.CANCELLED,
]);

function isRepeatable(outcome: unknown): boolean {
  return outcome instanceof Error && repeatable.has((outcome as Partial<ServiceError>).code);
}
