/** Answers many questions with one read. */
import { type Context, context, trace } from "@opentelemetry/api";
import { Batches } from "./batches.ts";

/**
 * Answers many questions with one read, by one rule: a question only uses a read that began after the question arrived.
 * A read that is under way may have missed what was written just before the question. So at most one read is under way,
 * and questions that arrive during it share the next one.
 */
export class SharedRead<T> {
  readonly #read: () => Promise<T>;
  readonly #questions = new Batches<Question<T>>(async (take) => {
    const questions = take(); // before the read begins: a question that comes later must not use it
    try {
      const result = await context.with(traceOf(questions), this.#read);
      for (const { resolve } of questions) resolve(result);
    } catch (error) {
      for (const { reject } of questions) reject(error);
    }
  });

  constructor(read: () => Promise<T>) {
    this.#read = read;
  }

  /**
   * Resolves to the result of the next read, which begins at once when none is under way.
   *
   * @throws what the read throws
   */
  next(): Promise<T> {
    const { promise, resolve, reject } = Promise.withResolvers<T>();
    this.#questions.add({ resolve, reject, trace: context.active() });
    return promise;
  }
}

interface Question<T> {
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
