/** Looks up the address of an upstream. */
import dns from "node:dns";
import type { LookupFunction } from "node:net";

type Answer = Parameters<LookupFunction>[2];

/**
 * Makes a look-up of one name that asks once for all who wait. Nothing can cancel a look-up: while the name service is
 * silent, each takes a thread that other names need, and memory for what waits for it.
 *
 * @param timeoutMs after this time those who come later get an error at once, until the look-up ends
 */
export function sharedLookup(timeoutMs: number): LookupFunction {
  let waiting: Answer[] | undefined;
  let beganMs = 0;
  return (hostname, options, answer) => {
    if (!waiting) {
      beganMs = performance.now();
      waiting = [answer];
      dns.lookup(hostname, options, (...result) => {
        const all = waiting!;
        waiting = undefined;
        for (const each of all) each(...result);
      });
    } else if (performance.now() - beganMs < timeoutMs) waiting.push(answer);
    else process.nextTick(answer, new Error(`the name service has not answered for ${hostname}`), []);
  };
}
