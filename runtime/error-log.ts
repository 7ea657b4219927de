/** Logs errors of one kind at most once a second. */
import { context, ROOT_CONTEXT } from "@opentelemetry/api";
import type { Logger } from "./log.ts";

const intervalMs = 1_000;

/** Kinds that are told apart at a time. All further ones count as one kind. */
export const maxKinds = 50;

/** Enough of a message to tell kinds apart: a database's can hold the whole statement. */
const maxTextLength = 300;

interface Fields {
  readonly err: unknown;
  readonly [name: string]: unknown;
}

/** A kind that was logged less than a second ago. */
interface Kind {
  /** Errors since its latest line. */
  count: number;
  /** The fields of the latest error. */
  fields: Fields;
  readonly timer: NodeJS.Timeout;
}

/**
 * Logs errors of one kind at most once a second, because an outage makes as many of them as there are requests. The
 * first one is logged at once. Those of the next 1,000 ms share a line after them, with the fields of the latest, and
 * so on. Each line has the `count` of errors that it stands for.
 */
export class ErrorLog {
  readonly #log: Logger;
  readonly #message: string;
  readonly #kinds = new Map<string, Kind>();

  /** @param message of all lines */
  constructor(log: Logger, message: string) {
    this.#log = log;
    this.#message = message;
  }

  /** @param where what failed; errors of different places are of different kinds */
  add(where: string, fields: Fields): void {
    if (!this.#log.isLevelEnabled("error")) return;
    const own = `${where} ${kindOf(fields.err)}`;
    const name = this.#kinds.has(own) || this.#kinds.size < maxKinds ? own : "";
    const kind = this.#kinds.get(name);
    if (kind) {
      kind.count += 1;
      kind.fields = fields;
      return;
    }
    this.#write(fields, 1);
    const timer = setInterval(() => this.#endSecond(name), intervalMs).unref();
    this.#kinds.set(name, { count: 0, fields, timer });
  }

  /** Logs the errors that are only counted so far. */
  close(): void {
    for (const { count, fields, timer } of this.#kinds.values()) {
      clearInterval(timer);
      if (count > 0) this.#write(fields, count);
    }
    this.#kinds.clear();
  }

  #endSecond(name: string): void {
    const kind = this.#kinds.get(name)!;
    if (kind.count === 0) {
      clearInterval(kind.timer);
      this.#kinds.delete(name);
      return;
    }
    // A line about many requests belongs to the trace of none of them.
    context.with(ROOT_CONTEXT, () => this.#write(kind.fields, kind.count));
    kind.count = 0;
  }

  #write(fields: Fields, count: number): void {
    this.#log.error({ ...fields, count }, this.#message);
  }
}

/** Tells errors apart by their message and their cause's, without digits: grpc-js puts times and durations into it. */
export function kindOf(error: unknown): string {
  const texts = [error, Object(error).cause].map((of) => {
    const { sqlMessage, message } = Object(of); // the message of a failed statement begins with the statement
    return String(sqlMessage ?? message ?? "").slice(0, maxTextLength);
  });
  return texts.join(" ").replace(/\d+/g, "");
}
