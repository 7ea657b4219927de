import { type ClientDuplexStream, type ServiceError, status } from "@grpc/grpc-js";
import { type Item, toItem } from "../../client/item.ts";
import type {
  ApplyUpdatesRequest,
  ApplyUpdatesResponse,
  UpdateResult,
  Update as WireUpdate,
} from "../../proto/gen/petstore/inventory/v1/inventory.ts";
import type { Traceparent } from "../../runtime/tracing.ts";
import { maxSlots, Slots } from "./slots.ts";
import { serviceError } from "./status.ts";

export interface Update {
  readonly petId: bigint;
  /** 0 to 2147483647. */
  readonly quantity: number;
  /** The update happens only when the entry is still at this revision. */
  readonly expectedRevision?: bigint | undefined;
  readonly traceparent?: Traceparent;
}

type UpdateStream = ClientDuplexStream<ApplyUpdatesRequest, ApplyUpdatesResponse>;

interface Pending {
  readonly resolve: (item: Item) => void;
  readonly reject: (error: ServiceError) => void;
  readonly deadlineMs: number;
}

/** A stream and the updates that it has taken and not answered. */
interface Lane {
  readonly stream: UpdateStream;
  readonly pending: Slots<Pending>;
  /** Those of them that are not sent yet: since this turn of the event loop, or since before the service took it. */
  unsent: WireUpdate[];
  readonly openedMs: number;
  /** It is the second one for these updates, as the first broke before the service took it. */
  readonly isSecond: boolean;
  /** The service has answered that it takes updates over it. Before that none is sent. */
  isTaken: boolean;
}

/**
 * A stream is replaced by a new one this often, which may lead to another replica. It has to be less than the grace
 * that the service gives a connection that has grown too old, because an update that a broken stream has taken is lost
 * to its caller.
 */
const laneLifeMs = 8_000;

/** The service's reasons after which it is not known whether an update happened; after all others it has not. */
const unknownReasons: ReadonlySet<string> = new Set(["OUTCOME_UNKNOWN", "INTERNAL"]);

/** How often deadlines are looked at. */
const tickMs = 50;

/**
 * Sends updates over one long-lived stream: those of one turn of the event loop in one message, without waiting for
 * the results of earlier ones.
 *
 * An update is sent once. When its stream breaks, nobody knows whether it has happened, and a repeat could undo a
 * newer one that was acknowledged in between; so its caller is told, and may decide. A stream that was opened just as
 * its connection ended would lose updates in the same way: they wait until the service has taken the stream.
 */
export class UpdatePipeline {
  readonly #open: () => UpdateStream;
  readonly #timeoutMs: number;
  readonly #ticker: NodeJS.Timeout;
  readonly #lanes = new Set<Lane>();
  #unknown = 0;
  #lane: Lane | undefined;
  #isClosed = false;

  /** @param timeoutMs how long a caller waits for a result */
  constructor(open: () => UpdateStream, timeoutMs: number) {
    this.#open = open;
    this.#timeoutMs = timeoutMs;
    this.#ticker = setInterval(() => this.#expire(), tickMs);
    this.#ticker.unref();
  }

  /**
   * Resolves once the update is durable.
   *
   * @throws ServiceError of the refusal; UNAVAILABLE or DEADLINE_EXCEEDED when it is not known whether it happened
   */
  submit({ petId, quantity, expectedRevision, traceparent }: Update): Promise<Item> {
    return new Promise((resolve, reject) => {
      const lane = this.#currentLane();
      // A server that does not answer: more would only wait too.
      if (this.inFlight >= maxSlots) {
        reject(serviceError(status.RESOURCE_EXHAUSTED, "too many updates wait for the inventory service"));
        return;
      }
      const id = lane.pending.add({ resolve, reject, deadlineMs: performance.now() + this.#timeoutMs });
      if (lane.isTaken && lane.unsent.length === 0) setImmediate(() => this.#flush(lane));
      lane.unsent.push({ id, petId, quantity, expectedRevision, timeoutMs: this.#timeoutMs, traceparent });
    });
  }

  /** Updates that wait for their result. */
  get inFlight(): number {
    let count = 0;
    for (const { pending } of this.#lanes) count += pending.size;
    return count;
  }

  /** Updates that ended without anybody knowing whether they happened: sent, and not answered by the service's refusal. */
  get unknown(): number {
    return this.#unknown;
  }

  close(): void {
    this.#isClosed = true;
    clearInterval(this.#ticker);
    for (const { stream } of this.#lanes) stream.cancel();
  }

  /** The lane that takes new updates. It does not change while some are not sent. */
  #currentLane(): Lane {
    if (this.#lane?.unsent.length === 0 && performance.now() - this.#lane.openedMs > laneLifeMs) {
      this.#retire(this.#lane);
    }
    this.#lane ??= this.#openLane();
    return this.#lane;
  }

  /** @param first the lane that broke before the service took it */
  #openLane(first?: Lane): Lane {
    const stream = this.#open();
    const { pending = new Slots<Pending>(), unsent = [] } = first ?? {};
    const openedMs = performance.now();
    const lane: Lane = { stream, pending, unsent, openedMs, isSecond: first !== undefined, isTaken: false };
    this.#lanes.add(lane);
    stream.on("metadata", () => {
      lane.isTaken = true;
      const nowMs = performance.now();
      for (const update of lane.unsent) {
        update.timeoutMs = Math.max(1, Math.ceil(lane.pending.get(update.id)!.deadlineMs - nowMs)); // what is left of it
      }
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
    if (!lane.isTaken || updates.length === 0) return;
    lane.unsent = [];
    lane.stream.write({ updates });
  }

  /** Takes no more updates for a lane; the results of those that it has still come. */
  #retire(lane: Lane): void {
    this.#flush(lane);
    if (this.#lane === lane) this.#lane = undefined;
    lane.stream.end();
  }

  #lose(lane: Lane, error: ServiceError): void {
    if (!this.#lanes.delete(lane)) return;
    if (this.#lane === lane) {
      this.#lane = undefined;
      if (!lane.isTaken && !lane.isSecond && !this.#isClosed) {
        this.#lane = this.#openLane(lane); // nothing was sent
        return;
      }
    }
    this.#giveUp(lane, lane.pending.ids(), error);
  }

  #expire(): void {
    const nowMs = performance.now();
    for (const lane of this.#lanes) {
      const late: number[] = [];
      // Updates wait equally long, so the first that has time left ends the search.
      for (const id of lane.pending.ids()) {
        if (lane.pending.get(id)!.deadlineMs > nowMs) break;
        late.push(id);
      }
      if (late.length === 0) continue;
      this.#giveUp(lane, late, serviceError(status.DEADLINE_EXCEEDED, "the inventory service did not answer in time"));
    }
  }

  /** Ends updates of a lane without a result. Of those that were sent, nobody knows whether they happened. */
  #giveUp(lane: Lane, ids: Iterable<number>, error: ServiceError): void {
    const ended = new Set(ids);
    const unsent = lane.unsent.filter(({ id }) => !ended.has(id));
    this.#unknown += ended.size - (lane.unsent.length - unsent.length);
    lane.unsent = unsent;
    for (const id of ended) lane.pending.take(id)!.reject(error);
  }

  #settle({ resolve, reject }: Pending, { item, code, message, reason }: UpdateResult): void {
    if (!item) {
      if (unknownReasons.has(reason)) this.#unknown += 1;
      reject(serviceError(code, message));
      return;
    }
    try {
      resolve(toItem(item));
    } catch (error) {
      this.#unknown += 1;
      reject(serviceError(status.INTERNAL, (error as Error).message)); // an entry that it cannot read
    }
  }
}
