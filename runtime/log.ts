/** The log: JSON lines, without credentials. */
import { type Logger, pino } from "pino";
import { prettyFactory } from "pino-pretty";
import { LogOutput } from "./log-output.ts";
import type { LogLevel } from "./settings.ts";
import { traceFields } from "./spans.ts";

export type { Logger };

/** A database error's message can hold the whole statement; this much is enough to find the place. */
const maxMessageLength = 500;

/** Keeps of an error its type, code, message, stack and the chain of causes. */
function describeError(error: unknown, withStack: boolean): unknown {
  if (!(error instanceof Error)) return error;
  const { name, message, code, stack, cause, sqlMessage } = error as Error & { code?: unknown; sqlMessage?: string };
  return {
    type: name,
    code,
    message: (withStack ? message : (sqlMessage ?? message)).slice(0, maxMessageLength),
    stack: withStack ? stack?.replace(message, "").slice(0, 4 * maxMessageLength) : undefined,
    cause: cause === undefined ? undefined : describeError(cause, withStack),
  };
}

/**
 * True for an error that its message explains, or that another process or the network has caused: drivers, grpc-js and
 * Node give it a code.
 */
function needsNoStack(error: unknown): boolean {
  const { cause, code, name } = Object(error) as Partial<NodeJS.ErrnoException>;
  if (cause !== undefined) return needsNoStack(cause);
  return (
    name === "OperatorError" || name === "KnexTimeoutError" || (code !== undefined && !String(code).startsWith("ERR_"))
  );
}

/**
 * Logs to standard output: JSON lines, or a readable form when that is a terminal (without colors if it has none, or
 * `NO_COLOR` is set). Credentials are removed from every line. A line within a trace carries the trace's ids.
 */
export function createLogger(name: string, level: LogLevel, output = new LogOutput()): Logger {
  const isVerbose = level === "debug" || level === "trace";
  const prettify = process.stdout.isTTY ? prettyFactory({ colorize: process.stdout.hasColors() }) : undefined;
  const log = pino(
    {
      name,
      level,
      base: { name },
      mixin: traceFields,
      timestamp: pino.stdTimeFunctions.isoTime,
      // Stacks show where a bug is. For an outage they only hide the line that says what is away.
      serializers: { err: (error) => describeError(error, isVerbose || !needsNoStack(error)) },
      formatters: { level: (label) => ({ level: label }) },
      redact: ["req.headers.authorization", "headers.authorization", "authorization", "password", "key", "pepper"],
    },
    prettify ? { write: (line: string) => output.write(prettify(line)) } : output,
  );
  const always = log.child({}, { level: "warn" }); // at any LOG_LEVEL: no other line shows that the log has a gap
  output.onGapEnd = (lines) => always.warn({ lines }, "lines of the log were lost: standard output did not take them");
  return log;
}
