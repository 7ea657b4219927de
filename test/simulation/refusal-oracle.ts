/** When a change may be refused as a fault of its caller. */
import { maxQuantity } from "../../proto/pet.ts";
import type { AskedChange, Version } from "./oracle.ts";

/** Whether an entry in this state allows a refusal of a change. */
type Refusable = (change: AskedChange, entry: Version | undefined) => boolean;

const exceeds: Refusable = ({ delta = 0 }, entry) =>
  entry !== undefined && (entry.quantity + delta < 0 || entry.quantity + delta > maxQuantity);
const isAbsent: Refusable = (_, entry) => entry === undefined;
const isElsewhere: Refusable = ({ expected }, entry) =>
  entry !== undefined && expected !== undefined && entry.revision !== expected;
const isTaken: Refusable = ({ reuses }) => reuses?.attempts.some(({ outcome }) => outcome.kind !== "refused") ?? false;

/** Which state of its entry allows which refusal of a change. One that is not here blames no caller. */
export const refusals: Readonly<Record<string, Refusable>> = {
  400: () => false,
  403: () => false,
  404: isAbsent,
  409: exceeds,
  412: isElsewhere,
  422: isTaken,
  429: () => false,
  INVALID_ARGUMENT: isTaken,
  NOT_FOUND: isAbsent,
  ALREADY_EXISTS: (_, entry) => entry !== undefined,
  FAILED_PRECONDITION: exceeds,
};
