/** Sends updates to the inventory service over a long-lived stream. */
import { type ClientDuplexStream, type ServiceError, status } from "@grpc/grpc-js";
import type {
  ApplyUpdatesRequest,
  ApplyUpdatesResponse,
  Update as WireUpdate,
} from "../../proto/gen/petstore/inventory/v1/inventory.ts";
import { updateStreamLifeMs } from "../../proto/streams.ts";
import { maxSlots, Slots } from "./slots.ts";
import { NotDoneError, serviceError } from "./status.ts";
import { type IdempotencyKey, readResult, toWireUpdate, type UpdateOutcome, type UpdateRequest } from "./updates.ts";

type UpdateStream = ClientDuplexStream<ApplyUpdatesRequest, ApplyUpdatesResponse>;

/** A request whose outcomes are still to come. */
interface Waiting {
  readonly once: IdempotencyKey | undefined;
  readonly outcomes: UpdateOutcome[];
  /** How many of the outcomes are still to come. */
  left: number;
  readonly resolve: (outcomes: readonly UpdateOutcome[]) => void;
  readonly isWanted: () => boolean;
  readonly deadlineMs: number;
}

/** An update without an outcome: its request, and its place there. */
interface Pending {
  readonly waiting: Waiting;
  readonly index: number;
}

/** A request that is not sent yet. */
interface Unsent {
  readonly waiting: Waiting;
  readonly updates: WireUpdate[];
}

/** A stream, and the updates given to it that have no result yet. */
interface Lane {
  readonly stream: UpdateStream;
  readonly pending: Slots<Pending>;
  /**
   * The requests that are not sent yet: they wait for the end of this turn, or for the stream to be accepted.
   */
  unsent: Unsent[];
  readonly openedMs: number;
  /** Whether it replaces a stream that broke before the service accepted it. */
  readonly isSecond: boolean;
  /** Whether the service has accepted the stream by sending its headers. Nothing is sent before. */
  isAccepted: boolean;
}

/** How often deadlines are checked. */
const tickMs = 50;

/**
 * Sends the updates of one turn of the event loop in one message, without waiting for the results of earlier ones.
 *
 * A request is sent once. When its stream breaks, it is not known whether its updates have happened. A repeat without a
 * key could undo a newer update that was acknowledged in between, so the caller gets an error and decides. A stream
 * that was opened just as its connection ended would lose updates too, so they wait until the service has accepted the
 * stream.
 */
export class UpdatePipeline {
  readonly #open: () => UpdateStream;
  readonly #ticker: NodeJS.Timeout;
  readonly #lanes = new Set<Lane>();
  #unknown = 0;
  #lane: Lane | undefined;
  #isClosed = false;

  constructor(open: () => UpdateStream) {
    this.#open = open;
    this.#ticker = setInterval(() => this.#expire(), tickMs);
    this.#ticker.unref();
  }

  /**
   * Resolves once each update is durable, or has failed.
   *
   * @param deadlineMs how long the caller waits, by `performance.now()`
   * @param isWanted asked before updates are sent that had to wait for their stream. False once the caller has left:
   *   these updates must not happen after what it sends next
   * @returns an outcome for each update, in order
   */
  submit(
    { updates, once, traceparent }: UpdateRequest,
    deadlineMs: number,
    isWanted = () => true,
  ): Promise<readonly UpdateOutcome[]> {
    return new Promise((resolve) => {
      const nowMs = performance.now();
      if (this.#isClosed) return resolve(updates.map(closed));
      if (deadlineMs <= nowMs) return resolve(updates.map(tooLate));
      const lane = this.#currentLane();
      // The service does not answer: further updates would only wait too.
      if (this.inFlight + updates.length > maxSlots) return resolve(updates.map(tooMany));
      if (lane.isAccepted && lane.unsent.length === 0) setImmediate(() => this.#flush(lane));
      const waiting: Waiting = { once, outcomes: [], left: updates.length, resolve, isWanted, deadlineMs };
      const timeoutMs = timeLeft(deadlineMs, nowMs);
      const sent = updates.map((update, index) => {
        const id = lane.pending.add({ waiting, index });
        return { id, ...toWireUpdate(update), timeoutMs, traceparent };
      });
      lane.unsent.push({ waiting, updates: sent });
    });
  }

  /** Updates that wait for their result. */
  get inFlight(): number {
    let count = 0;
    for (const { pending } of this.#lanes) count += pending.size;
    return count;
  }

  /**
   * Updates so far that were sent and have neither a result nor a refusal: it is not known whether they happened. Those
   * with a key do not count, because a repeat finds out.
   */
  get unknown(): number {
    return this.#unknown;
  }

  close(): void {
    this.#isClosed = true;
    clearInterval(this.#ticker);
    for (const { stream } of this.#lanes) stream.cancel();
  }

  /** The lane for new updates. It stays the same while it has unsent ones. */
  #currentLane(): Lane {
    if (this.#lane?.unsent.length === 0 && performance.now() - this.#lane.openedMs > updateStreamLifeMs) {
      this.#retire(this.#lane);
    }
    this.#lane ??= this.#openLane();
    return this.#lane;
  }

  /** @param first the lane that broke before the service accepted its stream; its updates move to the new one */
  #openLane(first?: Lane): Lane {
    const stream = this.#open();
    const { pending = new Slots<Pending>(), unsent = [] } = first ?? {};
    const openedMs = performance.now();
    const lane: Lane = { stream, pending, unsent, openedMs, isSecond: first !== undefined, isAccepted: false };
    this.#lanes.add(lane);
    stream.on("metadata", () => {
      if (!this.#lanes.has(lane)) return; // it broke, and another lane has its updates
      lane.isAccepted = true;
      const nowMs = performance.now();
      lane.unsent = lane.unsent.filter(({ waiting, updates }) => {
        const timeoutMs = timeLeft(waiting.deadlineMs, nowMs);
        for (const update of updates) update.timeoutMs = timeoutMs;
        if (waiting.isWanted()) return true;
        for (const { id } of updates) settle(lane.pending.take(id)!, new NotDoneError("the caller has left"));
        return false;
      });
      this.#flush(lane);
    });
    stream.on("data", ({ results, draining }: ApplyUpdatesResponse) => {
      for (const result of results) {
        const pending = lane.pending.take(result.id);
        if (!pending) continue;
        const { outcome, isKnown } = readResult(result);
        if (!isKnown && !pending.waiting.once) this.#unknown += 1;
        settle(pending, outcome);
      }
      if (draining) this.#retire(lane);
    });
    stream.on("error", (error: ServiceError) => this.#lose(lane, error));
    stream.on("end", () => this.#lose(lane, serviceError(status.UNAVAILABLE, "the stream of updates ended")));
    return lane;
  }

  #flush(lane: Lane): void {
    const { unsent } = lane;
    if (!lane.isAccepted || unsent.length === 0) return;
    lane.unsent = [];
    lane.stream.write({
      updates: unsent.flatMap(({ waiting: { once }, updates }) => (once ? [] : updates)),
      keyed: unsent.flatMap(({ waiting: { once }, updates }) => (once ? { ...once, updates } : [])),
    });
  }

  /** Ends a lane for new updates. The results of its pending ones still arrive. */
  #retire(lane: Lane): void {
    this.#flush(lane);
    if (this.#lane === lane) this.#lane = undefined;
    lane.stream.end();
  }

  #lose(lane: Lane, error: ServiceError): void {
    if (!this.#lanes.delete(lane)) return;
    if (this.#lane === lane) {
      this.#lane = undefined;
      if (!lane.isAccepted && !lane.isSecond && !this.#isClosed) {
        this.#lane = this.#openLane(lane); // nothing was sent
        return;
      }
    }
    this.#giveUp(lane, lane.pending.ids(), error);
  }

  #expire(): void {
    const nowMs = performance.now();
    for (const lane of this.#lanes) {
      // An update that is tried again has less time left than the updates before it.
      const late = [...lane.pending.ids()].filter((id) => lane.pending.get(id)!.waiting.deadlineMs <= nowMs);
      if (late.length > 0) this.#giveUp(lane, late, tooLate());
    }
  }

  /** Fails updates of a lane. An update that was sent may or may not have happened. */
  #giveUp(lane: Lane, ids: Iterable<number>, error: ServiceError): void {
    const ended = new Set(ids);
    // The updates of a request have the same deadline and the same lane, so they end together.
    const isOver = ({ updates }: Unsent) => ended.has(updates[0]!.id);
    const notSent = new Set(lane.unsent.filter(isOver).flatMap(({ updates }) => updates.map(({ id }) => id)));
    lane.unsent = lane.unsent.filter((request) => !isOver(request));
    const notDone = error.code === status.UNAVAILABLE ? new NotDoneError(error.message, error) : error;
    for (const id of ended) {
      const pending = lane.pending.take(id)!;
      if (!notSent.has(id) && !pending.waiting.once) this.#unknown += 1;
      settle(pending, notSent.has(id) ? notDone : error);
    }
  }
}

/** Notes the outcome of an update, and resolves its request after the last one. */
function settle({ waiting, index }: Pending, outcome: UpdateOutcome): void {
  waiting.outcomes[index] = outcome;
  waiting.left -= 1;
  if (waiting.left === 0) waiting.resolve(waiting.outcomes);
}

/** The time until a deadline, in whole milliseconds, at least 1: the service takes no update without time. */
function timeLeft(deadlineMs: number, nowMs: number): number {
  return Math.max(1, Math.ceil(deadlineMs - nowMs));
}

function closed(): ServiceError {
  return serviceError(status.RESOURCE_EXHAUSTED, "this gateway has closed");
}

function tooLate(): ServiceError {
  return serviceError(status.DEADLINE_EXCEEDED, "the inventory service did not answer in time");
}

function tooMany(): ServiceError {
  return serviceError(status.RESOURCE_EXHAUSTED, "too many updates wait for the inventory service");
}
