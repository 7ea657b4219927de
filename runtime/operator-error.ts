/** Faults that the operator of a process or the caller of a command can mend. */
import type { Logger } from "./log.ts";

/** A fault that its message explains to an operator, in one line. Commands print it without a stack and exit with 1. */
export class OperatorError extends Error {
  override name = "OperatorError";
}

/** The fields by which a log tells an operator what is wrong: one line, and the error with its stacks at `debug`. */
export function reasonFields(error: unknown, log: Logger): { readonly reason: string; readonly err?: unknown } {
  const reason = Object(error).message || String(error);
  return log.isLevelEnabled("debug") ? { reason, err: error } : { reason };
}
