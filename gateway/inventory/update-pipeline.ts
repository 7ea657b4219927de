/** Sends updates to the inventory service over a long-lived stream. */
import { type ClientDuplexStream, type ServiceError, status } from "@grpc/grpc-js";
import { toItem } from "../../client/item.ts";
import type {
  ApplyUpdatesRequest,
  ApplyUpdatesResponse,
  UpdateResult,
  Update as WireUpdate,
} from "../../proto/gen/petstore/inventory/v1/inventory.ts";
import type { Item } from "../../proto/pet.ts";
import { updateStreamLifeMs } from "../../proto/streams.ts";
import type { Traceparent } from "../../runtime/spans.ts";
import { maxSlots, Slots } from "./slots.ts";
import { NotDoneError, serviceError } from "./status.ts";

export interface Update {
  readonly petId: bigint;
  /** 0 to 2147483647. */
  readonly quantity: number;
  /** The update happens only if the entry is still at one of these revisions: 1 to 20. */
  readonly expectedRevisions?: readonly bigint[] | undefined;
  readonly traceparent?: Traceparent;
}

type UpdateStream = ClientDuplexStream<ApplyUpdatesRequest, ApplyUpdatesResponse>;

interface Pending {
  readonly resolve: (item: Item) => void;
  readonly reject: (error: Error) => void;
  readonly isWanted: () => boolean;
  readonly deadlineMs: number;
}

/** A stream, and the updates given to it that have no result yet. */
interface Lane {
  readonly stream: UpdateStream;
  readonly pending: Slots<Pending>;
  /**
   * The pending updates that are not sent yet: they wait for the end of this turn, or for the stream to be accepted.
   */
  unsent: WireUpdate[];
  readonly openedMs: number;
  /** Whether it replaces a stream that broke before the service accepted it. */
  readonly isSecond: boolean;
  /** Whether the service has accepted the stream by sending its headers. Nothing is sent before. */
  isAccepted: boolean;
}

/** The service's reasons after which it is not known whether an update happened. After all others it has not. */
const unknownReasons: ReadonlySet<string> = new Set(["OUTCOME_UNKNOWN", "INTERNAL"]);

/** How often deadlines are checked. */
const tickMs = 50;

/**
 * Sends the updates of one turn of the event loop in one message, without waiting for the results of earlier ones.
 *
 * An update is sent once. When its stream breaks, it is not known whether the update has happened. A repeat could undo
 * a newer update that was acknowledged in between, so the caller gets an error and decides. A stream that was opened
 * just as its connection ended would lose updates too, so they wait until the service has accepted the stream.
 */
export class UpdatePipeline {
  readonly #open: () => UpdateStream;
  readonly #timeoutMs: number;
  readonly #ticker: NodeJS.Timeout;
  readonly #lanes = new Set<Lane>();
  #unknown = 0;
  #lane: Lane | undefined;
  #isClosed = false;

  /** @param timeoutMs how long a caller waits for a result, from its arrival */
  constructor(open: () => UpdateStream, timeoutMs: number) {
    this.#open = open;
    this.#timeoutMs = timeoutMs;
    this.#ticker = setInterval(() => this.#expire(), tickMs);
    this.#ticker.unref();
  }

  /**
   * Resolves once the update is durable.
   *
   * @param arrivedMs the arrival of its caller, by `performance.now()`
   * @param isWanted asked before an update is sent that had to wait for its stream: false once the caller has left,
   *   because what it sends next must not be followed by this
   * @throws NotDoneError when it has certainly not happened; ServiceError of the refusal; UNAVAILABLE, DEADLINE_EXCEEDED,
   *   CANCELLED or INTERNAL when it may not be known whether it happened
   */
  submit(
    { petId, quantity, expectedRevisions = [], traceparent }: Update,
    arrivedMs?: number,
    isWanted = () => true,
  ): Promise<Item> {
    return new Promise((resolve, reject) => {
      const nowMs = performance.now();
      const deadlineMs = (arrivedMs ?? nowMs) + this.#timeoutMs;
      if (deadlineMs <= nowMs) return reject(tooLate());
      const lane = this.#currentLane();
      // The service does not answer: further updates would only wait too.
      if (this.inFlight >= maxSlots) {
        reject(serviceError(status.RESOURCE_EXHAUSTED, "too many updates wait for the inventory service"));
        return;
      }
      const id = lane.pending.add({ resolve, reject, isWanted, deadlineMs });
      if (lane.isAccepted && lane.unsent.length === 0) setImmediate(() => this.#flush(lane));
      const [expectedRevision, ...furtherExpectedRevisions] = expectedRevisions;
      const expected = { expectedRevision, furtherExpectedRevisions };
      lane.unsent.push({ id, petId, quantity, ...expected, timeoutMs: timeLeft(deadlineMs, nowMs), traceparent });
    });
  }

  /** Updates that wait for their result. */
  get inFlight(): number {
    let count = 0;
    for (const { pending } of this.#lanes) count += pending.size;
    return count;
  }

  /** Updates so far that were sent and have neither a result nor a refusal: it is not known whether they happened. */
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
      lane.unsent = lane.unsent.filter((update) => {
        const { deadlineMs, isWanted, reject } = lane.pending.get(update.id)!;
        update.timeoutMs = timeLeft(deadlineMs, nowMs);
        if (isWanted()) return true;
        lane.pending.take(update.id);
        reject(new NotDoneError("the caller has left"));
        return false;
      });
      this.#flush(lane);
    });
    stream.on("data", ({ results, draining }: ApplyUpdatesResponse) => {
      for (const result of results) {
        const pending = lane.pending.take(result.id);
        if (pending) this.#settle(pending, result);
      }
      if (draining) this.#retire(lane);
    });
    stream.on("error", (error: ServiceError) => this.#lose(lane, error));
    stream.on("end", () => this.#lose(lane, serviceError(status.UNAVAILABLE, "the stream of updates ended")));
    return lane;
  }

  #flush(lane: Lane): void {
    const updates = lane.unsent;
    if (!lane.isAccepted || updates.length === 0) return;
    lane.unsent = [];
    lane.stream.write({ updates });
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
      const late = [...lane.pending.ids()].filter((id) => lane.pending.get(id)!.deadlineMs <= nowMs);
      if (late.length > 0) this.#giveUp(lane, late, tooLate());
    }
  }

  /** Rejects updates of a lane. Of those that were sent it is not known whether they happened. */
  #giveUp(lane: Lane, ids: Iterable<number>, error: ServiceError): void {
    const ended = new Set(ids);
    const notSent = new Set(lane.unsent.map(({ id }) => id).filter((id) => ended.has(id)));
    lane.unsent = lane.unsent.filter(({ id }) => !ended.has(id));
    this.#unknown += ended.size - notSent.size;
    const notDone = error.code === status.UNAVAILABLE ? new NotDoneError(error.message, error) : error;
    for (const id of ended) lane.pending.take(id)!.reject(notSent.has(id) ? notDone : error);
  }

  #settle({ resolve, reject }: Pending, { item, code, message, reason }: UpdateResult): void {
    if (!item) {
      const isUnknown = unknownReasons.has(reason);
      if (isUnknown) this.#unknown += 1;
      reject(!isUnknown && code === status.UNAVAILABLE ? new NotDoneError(message) : serviceError(code, message));
      return;
    }
    try {
      resolve(toItem(item));
    } catch (error) {
      this.#unknown += 1;
      reject(serviceError(status.INTERNAL, (error as Error).message)); // an entry that this gateway cannot read
    }
  }
}

/** The time until a deadline, in whole milliseconds, at least 1: the service takes no update without time. */
function timeLeft(deadlineMs: number, nowMs: number): number {
  return Math.max(1, Math.ceil(deadlineMs - nowMs));
}

function tooLate(): ServiceError {
  return serviceError(status.DEADLINE_EXCEEDED, "the inventory service did not answer in time");
}
