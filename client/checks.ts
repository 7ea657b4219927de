/** Asks the service what has changed. */
import type { ClientDuplexStream } from "@grpc/grpc-js";
import type {
  CheckInventoryRequest,
  CheckInventoryResponse,
  InventoryItem as WireItem,
} from "../proto/gen/petstore/inventory/v1/inventory.ts";
import type { ListedItem, Position } from "../proto/pet.ts";
import { Outage, untilSettled } from "./attempts.ts";
import type { CallOptions } from "./grpc-calls.ts";
import { InventoryError } from "./inventory-error.ts";
import { lateMs, Session } from "./session.ts";
import { toListedItem } from "./values.ts";

export type CheckStream = ClientDuplexStream<CheckInventoryRequest, CheckInventoryResponse>;
type CheckSession = Session<CheckInventoryRequest, CheckInventoryResponse>;

/** What changed after a position; `reset` when the stock does not have that position, or not any more. */
export type StockChanges =
  | { readonly kind: "reset" }
  | {
      readonly kind: "changes";
      /** After the changes. */
      readonly position: Position;
      /** The latest state of each entry that was made, changed or removed, in any order. */
      readonly items: readonly ListedItem[];
      /** Removals by a revision up to this one are forgotten. */
      readonly floor: bigint;
    };

export interface CheckOptions extends CallOptions {
  /** A W3C trace context. */
  readonly traceparent?: string | undefined;
  /** Called for each part of a long answer but the last. */
  readonly onPart?: () => void;
  /** Gets the error of each attempt that is followed by another one. */
  readonly onSetback?: (error: InventoryError) => void;
}

/** Asks one question at a time. */
export class Checks {
  readonly #open: () => CheckStream;
  readonly #silenceMs: number;
  readonly #outage: Outage;
  /** The session of the latest answer. */
  #session: CheckSession | undefined;
  readonly #closed = new AbortController();

  /**
   * @param open opens a stream to one of the services
   * @param silenceMs longest wait for an answer, and for each part of a long one; also the patience with an outage
   */
  constructor(open: () => CheckStream, silenceMs: number) {
    this.#open = open;
    this.#silenceMs = silenceMs;
    this.#outage = new Outage(silenceMs);
  }

  /**
   * Asks what has changed, and asks again in a short outage, as a read may. Call it again only after the answer.
   *
   * @throws InventoryError: of the latest attempt; CANCELLED once this is closed; the reason of the signal
   */
  async ask(position: Position, options: CheckOptions = {}): Promise<StockChanges> {
    const { timeoutMs = this.#silenceMs, signal, onSetback } = options;
    const ended = signal ? AbortSignal.any([signal, this.#closed.signal]) : this.#closed.signal;
    const startedMs = performance.now();
    let changes: StockChanges | undefined;
    let error: unknown;
    let endMs = startedMs;
    const attempt = async () => {
      ended.throwIfAborted();
      if (error) onSetback?.(error as InventoryError);
      try {
        changes = await this.#askOnce(position, options, timeoutMs, ended);
        this.#outage.succeeded();
        return true;
      } catch (thrown) {
        ended.throwIfAborted();
        error = thrown;
        endMs = Math.min(startedMs + timeoutMs, this.#outage.failed());
        return (thrown as InventoryError).code !== "UNAVAILABLE";
      }
    };
    await untilSettled(attempt, () => endMs);
    if (changes) return changes;
    throw error;
  }

  close(): void {
    this.#closed.abort(new InventoryError("CANCELLED", "the client was closed"));
    this.#session?.cancel();
  }

  /** Asks a service, and every second another one until one of them begins to answer. */
  async #askOnce(
    position: Position,
    { traceparent, onPart }: CheckOptions,
    silenceMs: number,
    ended: AbortSignal,
  ): Promise<StockChanges> {
    const { promise, resolve, reject } = Promise.withResolvers<StockChanges>();
    const asked = new Set<CheckSession>();
    const endMs = performance.now() + silenceMs - 1; // timers may end a millisecond early
    let running = 0;
    let answering: CheckSession | undefined;
    let isOver = false;
    const ask = async () => {
      running += 1;
      let session = this.#session;
      this.#session = undefined;
      try {
        if (!session || session.isOver) session = await Session.open(this.#open(), silenceMs);
        if (answering || isOver) return session.cancel();
        asked.add(session);
        const answer = new Answer();
        const read = (message: CheckInventoryResponse) => {
          answering ??= session!;
          dropOthers();
          if (answer.add(message)) return true;
          onPart?.();
          return false;
        };
        await session.ask({ ...position, traceparent }, read, silenceMs);
        resolve(answer.changes);
        asked.delete(session);
        this.#session = session;
      } catch (error) {
        running -= 1;
        const isLast = answering ? answering === session : running === 0 || performance.now() >= endMs;
        if (isLast) reject(error);
      }
    };
    const dropOthers = () => {
      clearInterval(timer);
      for (const other of asked) if (other !== answering) other.cancel();
    };
    const timer = setInterval(() => void ask(), lateMs);
    const end = () => reject(ended.reason);
    ended.addEventListener("abort", end);
    void ask();
    try {
      return await promise;
    } finally {
      isOver = true;
      ended.removeEventListener("abort", end);
      clearInterval(timer);
      for (const session of asked) session.cancel();
    }
  }
}

/** Puts the messages of an answer together. Of two states of an entry the later one counts. */
class Answer {
  readonly #items = new Map<bigint, WireItem>();
  #last: CheckInventoryResponse | undefined;

  /** @returns whether the answer is complete */
  add(message: CheckInventoryResponse): boolean {
    for (const item of message.items) this.#items.set(item.petId, item);
    this.#last = message;
    return !message.more;
  }

  /** @throws InventoryError for an entry that this client cannot read */
  get changes(): StockChanges {
    const { epoch, revision, floor, reset } = this.#last!;
    if (reset) return { kind: "reset" };
    return {
      kind: "changes",
      position: { epoch, revision },
      items: Array.from(this.#items.values(), toListedItem),
      floor,
    };
  }
}
