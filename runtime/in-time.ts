/**
 * Waits for an answer. One that arrived while this thread was busy is in time, although its timer fires first.
 *
 * @param lateError makes the error of an answer that does not come in time
 * @throws what the answer rejects with; `lateError()` when there is none in time
 */
export async function inTime<T>(answer: Promise<T>, timeoutMs: number, lateError: () => Error): Promise<T> {
  const { promise, reject } = Promise.withResolvers<never>();
  // Node reads from its sockets between a timer and an immediate.
  const timer = setTimeout(() => setImmediate(() => reject(lateError())), timeoutMs);
  try {
    return await Promise.race([answer, promise]);
  } finally {
    clearTimeout(timer);
  }
}
