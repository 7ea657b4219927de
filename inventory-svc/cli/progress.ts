/** Shows the progress of long work on a terminal, in one line that goes away. */

const intervalMs = 100;
const clearLine = "\r\u001b[K";

export interface Progress {
  /** Shows a count. It costs next to nothing, so it may be called for each entry. */
  show(done: number): void;
  /** Takes the line away, for other output and at the end. */
  clear(): void;
}

/**
 * Makes the progress of one step on standard error.
 *
 * @param what follows the count, as in `entries imported`
 * @param isShown false where standard error is no terminal, or the work itself prints to the terminal
 */
export function createProgress(what: string, isShown = process.stderr.isTTY): Progress {
  let nextMs = 0;
  return {
    show: (done) => {
      if (!isShown || performance.now() < nextMs) return;
      nextMs = performance.now() + intervalMs;
      process.stderr.write(`${clearLine}${done.toLocaleString("en")} ${what}`);
    },
    clear: () => {
      if (isShown) process.stderr.write(clearLine);
    },
  };
}
