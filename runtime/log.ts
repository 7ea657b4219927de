import { pino } from "pino";
import pretty from "pino-pretty";
import type { LogLevel } from "./settings.ts";

export type { Logger } from "pino";

/** A failing statement's message can hold the statement: enough of it to find the place. */
const maxMessageLength = 500;

/** What the log keeps of an error: type, code, message, stack and the chain of causes. */
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
 * JSON lines on standard output; for people when that is a terminal. Credentials never get through, whoever logs them.
 *
 * @param fields gives what every line carries at the moment, as the trace that it belongs to
 */
export function createLogger(name: string, level: LogLevel, fields?: () => object) {
  return pino(
    {
      name,
      level,
      base: { name },
      ...(fields && { mixin: fields }),
      timestamp: pino.stdTimeFunctions.isoTime,
      serializers: { err: describeError },
      formatters: { level: (label) => ({ level: label }) },
      redact: ["req.headers.authorization", "headers.authorization", "authorization", "password", "key", "pepper"],
    },
    process.stdout.isTTY ? pretty({ colorize: true, ignore: "name", sync: true }) : pino.destination({ sync: false }),
  );
}
