// Collects garbage when a test asks for it, to show what is kept.
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";

setFlagsFromString("--expose-gc");

/** Collects all garbage of this process. */
export const collectGarbage = runInNewContext("gc") as () => void;
