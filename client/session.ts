/** A long-lived stream to the service that carries one question at a time, and its answer. */
import type { ClientDuplexStream } from "@grpc/grpc-js";
import { InventoryError, notSent, type StatusName, toInventoryError, toRefusalOrLoss } from "./inventory-error.ts";

/** After this time an answer is late: its service may be frozen, and what comes next goes over another session. */
export const lateAfterMs = 1_000;

/**
 * The slowest that a service's clock may run, as a share of the rate of this machine's clock: the rates differ while
 * NTP slews one of them.
 */
const slowestRate = 0.995;

/** Statuses of a stream that no service will accept. */
const lastingCodes: ReadonlySet<StatusName> = new Set(["UNIMPLEMENTED", "PERMISSION_DENIED", "UNAUTHENTICATED"]);

/** A question that waits for its answer. */
interface Asked<Message> {
  /** Gets each message of the answer. @returns whether that was the last one */
  readonly read: (message: Message) => boolean;
  readonly resolve: () => void;
  readonly reject: (error: unknown) => void;
  readonly silenceMs: number;
  /** The timer of the silence, started again for each message. */
  timer: NodeJS.Timeout | undefined;
}

/**
 * Asks over one stream, as a message on a stream costs a fraction of a call.
 *
 * The service ends a stream with OK only between two questions. So a question without an answer on such a stream was
 * not taken, and the next stream may carry it. After any other end it is not known what has become of a question.
 */
export class Session<Question, Message> {
  readonly #stream: ClientDuplexStream<Question, Message>;
  /**
   * When this client learned that the service has accepted the stream, by `performance.now()`. The service started its
   * clock earlier, when it sent the acceptance.
   */
  readonly #acceptedMs = performance.now();
  #asked: Asked<Message> | undefined;
  #isOver = false;

  private constructor(stream: ClientDuplexStream<Question, Message>) {
    this.#stream = stream;
    stream.on("data", (message: Message) => this.#take(message));
    stream.on("error", (error: unknown) => this.#end(toRefusalOrLoss(error)));
    stream.on("end", () => this.#end(notSent("the service ended the stream")));
  }

  /**
   * The time until which a question may be decided, as the service counts it: a little less than its caller waits.
   *
   * @param endMs when its caller gives up, by `performance.now()`
   * @returns milliseconds since the service has accepted the stream, at least 1
   */
  deadlineMs(endMs: number): number {
    return Math.max(1, Math.floor((endMs - this.#acceptedMs) * slowestRate));
  }

  /**
   * Opens a session: it waits until the service has accepted the stream. What is sent before that may be lost with a
   * connection that is about to end.
   *
   * @throws InventoryError of a service that refuses the call, and otherwise one with the reason NOT_SENT
   */
  static open<Question, Message>(
    stream: ClientDuplexStream<Question, Message>,
    timeoutMs: number,
  ): Promise<Session<Question, Message>> {
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => stream.cancel(), timeoutMs);
      stream.once("metadata", () => {
        clearTimeout(timer);
        resolve(new Session(stream));
      });
      stream.once("error", (cause) => {
        const error = toInventoryError(cause);
        const code = lastingCodes.has(error.code) ? error.code : "UNAVAILABLE";
        reject(error.errorReason === undefined ? notSent(error.message.replace(`${code}: `, ""), cause, code) : error);
      });
      stream.once("status", () => {
        clearTimeout(timer);
        reject(notSent("the service did not accept a stream")); // it may say OK, too
      });
    });
  }

  /** Whether it can carry no further question. */
  get isOver(): boolean {
    return this.#isOver;
  }

  /**
   * Asks a question. Call it again only after the answer.
   *
   * @param read gets each message of the answer, and returns whether that was the last one
   * @param silenceMs longest wait for a message; after it the stream is given up
   * @throws InventoryError; what `read` throws
   */
  ask(question: Question, read: (message: Message) => boolean, silenceMs: number): Promise<void> {
    if (this.#isOver) return Promise.reject(notSent("the service ended the stream"));
    return new Promise((resolve, reject) => {
      this.#asked = { read, resolve, reject, silenceMs, timer: undefined };
      this.#restartSilenceTimer(this.#asked);
      this.#stream.write(question);
    });
  }

  /** Ends the stream, and the question that waits. */
  cancel(): void {
    this.#giveUp(new InventoryError("CANCELLED", "the session was given up"));
  }

  /** Waits for the next message of an answer. */
  #restartSilenceTimer(asked: Asked<Message>): void {
    clearTimeout(asked.timer);
    // A message that has arrived while this thread was busy is taken before the immediate.
    const onEnd = () => this.#asked === asked && asked.timer === timer && this.#giveUp(silent());
    const timer = setTimeout(() => setImmediate(onEnd), Math.max(0, asked.silenceMs)); // the caller may be late by now
    asked.timer = timer;
  }

  #take(message: Message): void {
    const asked = this.#asked;
    if (!asked) {
      this.#giveUp(undefined); // no question waits: it must not answer the next one
      return;
    }
    try {
      this.#restartSilenceTimer(asked);
      if (!asked.read(message)) return;
      clearTimeout(asked.timer);
      this.#asked = undefined;
      asked.resolve();
    } catch (error) {
      this.#giveUp(error); // more messages of this answer may follow
    }
  }

  #giveUp(error: unknown): void {
    this.#end(error);
    this.#stream.cancel();
  }

  #end(error: unknown): void {
    this.#isOver = true;
    const asked = this.#asked;
    this.#asked = undefined;
    if (!asked) return;
    clearTimeout(asked.timer);
    asked.reject(error);
  }
}

function silent(): InventoryError {
  return new InventoryError("DEADLINE_EXCEEDED", "the service did not answer in time");
}
