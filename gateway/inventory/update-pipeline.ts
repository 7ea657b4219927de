import { type ClientDuplexStream, type ServiceError, status } from "@grpc/grpc-js";
import { toItem } from "../../client/item.ts";
import type {
  ApplyUpdatesRequest,
  ApplyUpdatesResponse,
  Update as WireUpdate,
} from "../../proto/gen/petstore/inventory/v1/inventory.ts";
import type { Traceparent } from "../../runtime/tracing.ts";
import type { Item } from "./item.ts";
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
  readonly pending: Map<number, Pending>;
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

/** How often deadlines are looked at. */
const tickMs = 50;

/** A server that does not answer is given up when so many updates wait for it; more would only wait too. */
const maxPending = 10_000;

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
  #lane: Lane | undefined;
  #gathered: WireUpdate[] = [];
  #lastId = 0;

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
      if (lane.pending.size >= maxPending) {
        reject(serviceError(status.RESOURCE_EXHAUSTED, "too many updates wait for the inventory service"));
        return;
      }
      this.#lastId = (this.#lastId + 1) >>> 0;
      const id = this.#lastId;
      lane.pending.set(id, { resolve, reject, deadlineMs: performance.now() + this.#timeoutMs });
      if (lane.isTaken && this.#gathered.length === 0) setImmediate(() => this.#flush());
      this.#gathered.push({ id, petId, quantity, expectedRevision, timeoutMs: this.#timeoutMs, traceparent });
    });
  }

  /** Updates that wait for their result. */
  get inFlight(): number {
    let count = 0;
    for (const { pending } of this.#lanes) count += pending.size;
    return count;
  }

  close(): void {
    clearInterval(this.#ticker);
    for (const { stream } of this.#lanes) stream.cancel();
  }

  /** The lane that takes new updates. It does not change while updates are gathered for it. */
  #currentLane(): Lane {
    if (this.#lane && this.#gathered.length === 0 && performance.now() - this.#lane.openedMs > laneLifeMs) {
      this.#retire(this.#lane);
    }
    this.#lane ??= this.#openLane();
    return this.#lane;
  }

  #openLane(pending: Lane["pending"] = new Map(), isSecond = false): Lane {
    const stream = this.#open();
    const lane: Lane = { stream, pending, openedMs: performance.now(), isSecond, isTaken: false };
    this.#lanes.add(lane);
    stream.on("metadata", () => {
      lane.isTaken = true;
      if (this.#lane === lane) this.#flush();
    });
    stream.on("data", ({ results, draining }: ApplyUpdatesResponse) => {
      for (const { id, item, code, message } of results) {
        const pending = lane.pending.get(id);
        lane.pending.delete(id);
        if (item) pending?.resolve(toItem(item));
        else pending?.reject(serviceError(code, message));
      }
      if (draining) this.#retire(lane);
    });
    stream.on("error", (error: ServiceError) => this.#lose(lane, error));
    stream.on("end", () => this.#lose(lane, serviceError(status.UNAVAILABLE, "the stream of updates ended")));
    return lane;
  }

  #flush(): void {
    const { pending, stream } = this.#lane ?? {};
    // A lane that broke meanwhile has told the callers already, and some may have waited for too long.
    const updates = this.#gathered.filter(({ id }) => pending?.has(id));
    this.#gathered = [];
    if (updates.length > 0) stream!.write({ updates });
  }

  /** Takes no more updates for a lane; the results of those that it has still come. */
  #retire(lane: Lane): void {
    if (this.#lane === lane) {
      this.#flush();
      this.#lane = undefined;
    }
    lane.stream.end();
  }

  #lose(lane: Lane, error: ServiceError): void {
    if (!this.#lanes.delete(lane)) return;
    if (this.#lane === lane) {
      this.#lane = undefined;
      if (!lane.isTaken && !lane.isSecond) {
        this.#lane = this.#openLane(lane.pending, true); // nothing was sent yet
        return;
      }
      this.#gathered = [];
    }
    for (const { reject } of lane.pending.values()) reject(error);
    lane.pending.clear();
  }

  #expire(): void {
    const nowMs = performance.now();
    for (const { pending } of this.#lanes) {
      // Updates wait equally long, so the first that has time left ends the search.
      for (const [id, { deadlineMs, reject }] of pending) {
        if (deadlineMs > nowMs) break;
        pending.delete(id);
        reject(serviceError(status.DEADLINE_EXCEEDED, "the inventory service did not answer an update in time"));
      }
    }
  }
}
