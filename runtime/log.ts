/** The log: JSON lines, without credentials. */
import { pino } from "pino";
import pretty from "pino-pretty";
import type { LogLevel } from "./settings.ts";
import { traceFields } from "./spans.ts";

export type { Logger } from "pino";

/** A database error's message can hold the whole statement; this much is enough to find the place. */
const maxMessageLength = 500;

/** Keeps of an error its type, code, message, stack and the chain of causes. */
function describeError(error: unknown): unknown {
  if (!(error instanceof Error)) return error;
  const { name, message, code, stack, cause } = error as Error & { code?: unknown };
  return {
    type: name,
    code,
    message: message.slice(0, maxMessageLength),
    stack: stack?.replace(message, "").slice(0, 4 * maxMessageLength),
    cause: cause === undefined ? undefined : describeError(cause),
  };
}

/**
 * Logs to standard output: JSON lines, or a readable form when that is a terminal (without colors if it has none, or
 * `NO_COLOR` is set). Credentials are removed from every
 * line. A line within a trace carries the trace's ids.
 */
export function createLogger(name: string, level: LogLevel) {
  return pino(
    {
      name,
      level,
      base: { name },
      mixin: traceFields,
      timestamp: pino.stdTimeFunctions.isoTime,
      serializers: { err: describeError },
      formatters: { level: (label) => ({ level: label }) },
      redact: ["req.headers.authorization", "headers.authorization", "authorization", "password", "key", "pepper"],
    },
    process.stdout.isTTY
      ? pretty({ colorize: process.stdout.hasColors(), sync: true })
      : pino.destination({ sync: false }),
  );
}
