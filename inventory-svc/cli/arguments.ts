import { InvalidArgumentError } from "commander";

/** A count of at least one. */
export function parseCount(text: string): number {
  if (!/^[1-9]\d{0,7}$/.test(text)) throw new InvalidArgumentError("must be a whole number from 1 to 99999999.");
  return Number(text);
}
