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
import { lateAfterMs, Session } from "./session.ts";
import { toListedItem } from "./values.ts";

export type CheckStream = ClientDuplexStream<CheckInventoryRequest, CheckInventoryResponse>;
type CheckSession = Session<CheckInventoryRequest, CheckInventoryResponse>;

/** What changed after a position; `reset` when the stock does not have that position, or not any more. */
export type StockChanges =
  | { readonly kind: "reset" }
  | {
      readonly kind: "changes";
      /** The position after the changes. */
      readonly position: Position;
      /** The latest state of each entry that was made, changed or removed, in any order. */
      readonly items: readonly ListedItem[];
      /** Removals by a revision up to this one are forgotten. */
      readonly floor: bigint;
      /** Whether `maxChanges` cut the answer off: the changes are complete only once the rest was asked for, too. */
      readonly more: boolean;
    };

export interface CheckOptions extends Pick<CallOptions, "signal"> {
  /** The longest wait for each part of the answer. */
  readonly silenceTimeoutMs?: number | undefined;
  /** Cuts a long answer off once it has so many changes. The next call, from its position, gets the rest. */
  readonly maxChanges?: number | undefined;
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
    const { silenceTimeoutMs: silenceMs = this.#silenceMs, signal, onSetback } = options;
    const ended = signal ? AbortSignal.any([signal, this.#closed.signal]) : this.#closed.signal;
    const startedMs = performance.now();
    let changes: StockChanges | undefined;
    let error: unknown;
    let endMs = startedMs;
    const attempt = async () => {
      ended.throwIfAborted();
      if (error) onSetback?.(error as InventoryError);
      try {
        changes = await this.#askOnce(position, options, silenceMs, ended);
        this.#outage.succeeded();
        return true;
      } catch (thrown) {
        ended.throwIfAborted();
        error = thrown;
        endMs = Math.min(startedMs + silenceMs, this.#outage.failed());
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

  async #askOnce(
    position: Position,
    { traceparent, maxChanges = Number.POSITIVE_INFINITY, onPart = () => {} }: CheckOptions,
    silenceMs: number,
    ended: AbortSignal,
  ): Promise<StockChanges> {
    const question = new RepeatedQuestion(
      { ...position, traceparent },
      {
        silenceMs,
        maxChanges,
        onPart,
        takeSession: () => this.#takeSession(silenceMs),
        keepSession: (session) => {
          this.#session = session;
        },
      },
    );
    const end = () => question.end(ended.reason);
    ended.addEventListener("abort", end);
    try {
      return await question.answer;
    } finally {
      ended.removeEventListener("abort", end);
      end();
    }
  }

  /** Takes the session of the latest answer, or opens one. */
  async #takeSession(timeoutMs: number): Promise<CheckSession> {
    const session = this.#session;
    this.#session = undefined;
    return session && !session.isOver ? session : await Session.open(this.#open(), timeoutMs);
  }
}

interface QuestionOptions {
  /** Longest wait for an answer, and for each part of a long one. */
  readonly silenceMs: number;
  readonly maxChanges: number;
  /** Called for each part of a long answer but the last. */
  readonly onPart: () => void;
  /** Gives a session that carries no question. */
  readonly takeSession: () => Promise<CheckSession>;
  /** Gets the session that has answered. */
  readonly keepSession: (session: CheckSession) => void;
}

/** Asks a question over a session, and after each further second over one more, until one of them begins to answer. */
class RepeatedQuestion {
  readonly #request: CheckInventoryRequest;
  readonly #options: QuestionOptions;
  readonly #answered = Promise.withResolvers<StockChanges>();
  readonly #endMs: number;
  readonly #timer = setInterval(() => void this.#ask(), lateAfterMs);
  /** The sessions that carry the question. */
  readonly #asked = new Set<CheckSession>();
  /** Attempts that have not failed. */
  #attempts = 0;
  /** The session whose answer has begun. */
  #answering: CheckSession | undefined;
  #isOver = false;

  constructor(request: CheckInventoryRequest, options: QuestionOptions) {
    this.#request = request;
    this.#options = options;
    this.#endMs = performance.now() + options.silenceMs - 1; // timers may end a millisecond early
    void this.#ask();
  }

  /** Rejects with the error of the last attempt. */
  get answer(): Promise<StockChanges> {
    return this.#answered.promise;
  }

  /** Gives up what is under way. @param reason rejects an answer that has not come */
  end(reason: unknown): void {
    this.#isOver = true;
    this.#answered.reject(reason);
    clearInterval(this.#timer);
    for (const session of this.#asked) session.cancel();
  }

  /** Never rejects. */
  async #ask(): Promise<void> {
    const { silenceMs, maxChanges, onPart, takeSession, keepSession } = this.#options;
    this.#attempts += 1;
    let session: CheckSession | undefined;
    try {
      session = await takeSession();
      if (this.#answering || this.#isOver) return session.cancel();
      this.#asked.add(session);
      const answer = new Answer(maxChanges);
      const read = (message: CheckInventoryResponse) => {
        this.#answering ??= session!;
        this.#dropOthers();
        if (answer.add(message)) return true;
        onPart();
        return false;
      };
      await session.ask(this.#request, read, silenceMs);
      const { changes } = answer;
      this.#answered.resolve(changes);
      // The rest of a cut-off answer still comes over this session. So the session is not kept: `end` cancels it.
      if (changes.kind === "changes" && changes.more) return;
      this.#asked.delete(session);
      keepSession(session);
    } catch (error) {
      this.#attempts -= 1;
      const isNone = this.#attempts === 0 || performance.now() >= this.#endMs;
      if (this.#answering ? this.#answering === session : isNone) this.#answered.reject(error);
    }
  }

  #dropOthers(): void {
    clearInterval(this.#timer);
    for (const session of this.#asked) if (session !== this.#answering) session.cancel();
  }
}

/** Puts the messages of an answer together. Of two states of an entry the later one counts. */
class Answer {
  readonly #maxChanges: number;
  readonly #items = new Map<bigint, WireItem>();
  #last: CheckInventoryResponse | undefined;

  constructor(maxChanges: number) {
    this.#maxChanges = maxChanges;
  }

  /** @returns whether the answer is complete, or cut off */
  add(message: CheckInventoryResponse): boolean {
    for (const item of message.items) this.#items.set(item.petId, item);
    this.#last = message;
    return !message.more || this.#items.size >= this.#maxChanges;
  }

  /** @throws InventoryError for an entry that this client cannot read */
  get changes(): StockChanges {
    const { epoch, revision, floor, more, reset } = this.#last!;
    if (reset) return { kind: "reset" };
    return {
      kind: "changes",
      position: { epoch, revision },
      items: Array.from(this.#items.values(), toListedItem),
      floor,
      more,
    };
  }
}
