/** Answers many questions with one read. */
import { type Context, context, trace } from "@opentelemetry/api";
import { Batches } from "./batches.ts";
import { inTurns } from "./event-loop.ts";

/** How long the questions of a shared read wait. */
export interface Patience {
  /** The longest wait of a question, from its arrival or, when that is later, from the latest progress of a read. */
  readonly timeoutMs: number;
  /** Makes the error of a question that has waited for too long. */
  readonly lateError: () => unknown;
}

/**
 * Maximum questions that are answered in one turn of the event loop: their callers use the answer in the same turn, and
 * all other work waits for that. Smaller groups cost more: their callers come back at different times, and
 * so need a read for each group (docs/performance.md).
 */
export const answersPerTurn = 256;

/** The shortest time between two searches for late questions. */
const tickMs = 50;

/**
 * Answers many questions with one read, by one rule: a question only uses a read that began after the question arrived.
 * A read that is under way may have missed what was written just before the question. So at most one read is under way,
 * and questions that arrive during it share the next one.
 *
 * A question that has waited for too long ends alone. The read goes on for the others, which arrived later.
 */
export class SharedRead<T> {
  readonly #read: () => Promise<T>;
  readonly #patience: Patience | undefined;
  /** The questions of the read that is under way. */
  #reading: readonly Question<T>[] = [];
  #progressMs = Number.NEGATIVE_INFINITY;
  #setback: unknown;
  /** One timer for all questions, and when it ends. */
  #timer: NodeJS.Timeout | undefined;
  #timerEndMs = Number.POSITIVE_INFINITY;
  readonly #questions = new Batches<Question<T>>(async (take) => {
    const questions = take(); // before the read begins: a question that comes later must not use it
    this.#reading = questions;
    this.#setback = undefined;
    const settle = await context.with(traceOf(questions), this.#read).then(
      (result) => (question: Question<T>) => question.resolve(result),
      (error) => (question: Question<T>) => question.reject(error),
    );
    this.#reading = []; // none of them is late any more
    await inTurns(questions, answersPerTurn, settle);
  });

  /** @param patience undefined where questions wait for as long as the reads take */
  constructor(read: () => Promise<T>, patience?: Patience) {
    this.#read = read;
    this.#patience = patience;
  }

  /**
   * Resolves to the result of the next read, which begins at once when none is under way.
   *
   * @param arrivedMs the arrival of the question, by `performance.now()`
   * @throws what the read throws, the error of a setback, or the error of a late question
   */
  next(arrivedMs: number = performance.now()): Promise<T> {
    const { promise, resolve, reject } = Promise.withResolvers<T>();
    this.#questions.add({ arrivedMs, resolve, reject, trace: context.active() });
    const endMs = arrivedMs + (this.#patience?.timeoutMs ?? Number.POSITIVE_INFINITY);
    if (endMs < this.#timerEndMs) this.#setTimer(endMs);
    return promise;
  }

  /** Reports progress of the read under way: each question may wait for a whole time-out again. */
  progress(): void {
    this.#progressMs = performance.now();
    this.#setback = undefined;
  }

  /**
   * Says that the read under way is tried again after an error. Until that succeeds, a question that is late gets this
   * error.
   */
  setback(error: unknown): void {
    this.#setback = error;
  }

  #setTimer(endMs: number): void {
    clearTimeout(this.#timer);
    this.#timerEndMs = endMs;
    if (endMs === Number.POSITIVE_INFINITY) return;
    // An answer that has arrived while this thread was busy is taken before the immediate.
    const onEnd = () => setImmediate(() => this.#endLate());
    this.#timer = setTimeout(onEnd, endMs - performance.now()).unref();
  }

  #endLate(): void {
    const { timeoutMs, lateError } = this.#patience!;
    const nowMs = performance.now();
    const tooLate: Question<T>[] = [];
    let nextMs = Number.POSITIVE_INFINITY;
    for (const question of [...this.#reading, ...this.#questions.waiting]) {
      const endMs = Math.max(question.arrivedMs, this.#progressMs) + timeoutMs;
      if (endMs <= nowMs) tooLate.push(question);
      else nextMs = Math.min(nextMs, endMs);
    }
    this.#setTimer(Math.max(nextMs, nowMs + tickMs));
    const error = this.#setback ?? lateError();
    // Questions that got the error keep it, whatever becomes of their read: a promise settles once.
    void inTurns(tooLate, answersPerTurn, ({ reject }) => reject(error));
  }
}

interface Question<T> {
  readonly arrivedMs: number;
  readonly resolve: (result: T) => void;
  readonly reject: (error: unknown) => void;
  readonly trace: Context;
}

/** The trace of a read is that of its first question. The spans of the other questions get a link to it. */
function traceOf([first, ...others]: readonly Pick<Question<unknown>, "trace">[]): Context {
  const span = trace.getSpan(first!.trace)?.spanContext();
  if (span) for (const other of others) trace.getSpan(other.trace)?.addLink({ context: span });
  return first!.trace;
}
