// Collects garbage when a test asks for it, and measures what is kept.
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";

setFlagsFromString("--expose-gc");

/** Collects all garbage of this process. */
export const collectGarbage = runInNewContext("gc") as () => void;

/** Collects all garbage of this process. @returns bytes of the objects and Buffers that are left */
export function usedBytes(): number {
  collectGarbage();
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}
