/** Deadlock, lock wait time-out, and MariaDB's "record has changed since last read". */
const conflicts: ReadonlySet<unknown> = new Set([1213, 1205, 1020]);
const mostRetries = 3;

/**
 * Runs a statement or a whole transaction again when the database gave it up in favour of another one, at most three
 * times. SQLite never does: its writers queue.
 *
 * @param work must hold the whole transaction, so that nothing of a failed attempt is left
 */
export async function retryConflicts<T>(work: () => Promise<T>): Promise<T> {
  for (let retries = 0; ; retries++) {
    try {
      return await work();
    } catch (error) {
      if (retries === mostRetries || !conflicts.has((error as { errno?: unknown }).errno)) throw error;
    }
  }
}
