/** Makes bodies one after the other, and gives each to all readers who wait for it. */
import { setImmediate as nextTurn } from "node:timers/promises";
import { inTurns } from "../../../runtime/event-loop.ts";
import { answersPerTurn } from "../../../runtime/shared-read.ts";
import { ApiError } from "../../http/api-error.ts";
import type { Body } from "./snapshot.ts";

/** Bytes that are given out in one turn of the event loop. Their readers send them in the same turn. */
const bytesPerTurn = 64 * 1024;

/** A caller that waits for a body. */
export interface BodyReader {
  readonly accountId: string;
  /** Whether it needs the body no more. */
  readonly hasLeft: () => boolean;
}

interface WaitingReader<T> extends BodyReader {
  /** When its wait began, by `performance.now()`. */
  readonly sinceMs: number;
  readonly resolve: (body: T) => void;
  readonly reject: (error: unknown) => void;
}

/** A body to make. */
interface Wanted<T> {
  readonly make: () => Promise<T>;
  readonly readers: WaitingReader<T>[];
}

/**
 * A queue of bodies to make, each with its readers. Accounts take turns, so that one with many bodies to make does not
 * hold up the others, and other requests come in between two bodies.
 */
export class ServingQueue<T extends Body | undefined> {
  readonly #timeoutMs: number;
  /** The bodies that are not begun yet, by their names. */
  readonly #wanted = new Map<string, Wanted<T>>();
  /** The names of the bodies that each account waits for. The account whose turn it is comes first. */
  readonly #turns = new Map<string, Set<string>>();
  /** Undefined while nothing is wanted. */
  #running: Promise<void> | undefined;

  /** @param timeoutMs the longest wait in the queue */
  constructor(timeoutMs: number) {
    this.#timeoutMs = timeoutMs;
  }

  /**
   * Waits for a body that is begun after this call.
   *
   * @param name readers who wait for the same name share one body
   * @param sinceMs when the reader's wait began, by `performance.now()`
   * @returns never settles for a reader that has left before its turn
   * @throws ApiError timeout for a reader that has waited for too long; what `make` throws
   */
  serve(name: string, { accountId, hasLeft }: BodyReader, sinceMs: number, make: () => Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      const reader = { accountId, hasLeft, sinceMs, resolve, reject };
      const names = this.#turns.get(accountId);
      if (names) names.add(name);
      else this.#turns.set(accountId, new Set([name]));
      const wanted = this.#wanted.get(name);
      if (wanted) wanted.readers.push(reader);
      else this.#wanted.set(name, { make, readers: [reader] });
      this.#running ??= this.#run();
    });
  }

  /** Never rejects. */
  async #run(): Promise<void> {
    while (this.#wanted.size > 0) {
      await nextTurn(); // by then the readers of the last body send it, and `PinnedBodies` has counted it
      await serveBody(this.#takeNext(), this.#timeoutMs);
    }
    this.#running = undefined;
  }

  #takeNext(): Wanted<T> {
    const [accountId, names] = this.#turns.entries().next().value!;
    this.#turns.delete(accountId);
    this.#turns.set(accountId, names); // behind the others
    const name = names.values().next().value!;
    const wanted = this.#wanted.get(name)!;
    this.#wanted.delete(name);
    for (const reader of wanted.readers) {
      const left = this.#turns.get(reader.accountId);
      left?.delete(name);
      if (left?.size === 0) this.#turns.delete(reader.accountId);
    }
    return wanted;
  }
}

/** Makes a body and gives it to its readers, if any of them are still there. Never rejects. */
async function serveBody<T extends Body | undefined>({ make, readers }: Wanted<T>, timeoutMs: number): Promise<void> {
  const present = readers.filter(({ hasLeft }) => !hasLeft());
  const { inTime = [], late = [] } = Object.groupBy(present, ({ sinceMs }) =>
    performance.now() - sinceMs <= timeoutMs ? "inTime" : "late",
  );
  const lateError = new ApiError("timeout", { cause: new Error("too many differences were asked for at once") });
  await inTurns(late, answersPerTurn, ({ reject }) => reject(lateError));
  if (inTime.length === 0) return;
  try {
    const body = await make();
    const fitting = Math.ceil(bytesPerTurn / (body?.length ?? 1));
    await inTurns(inTime, Math.min(fitting, answersPerTurn), ({ resolve }) => resolve(body));
  } catch (error) {
    await inTurns(inTime, answersPerTurn, ({ reject }) => reject(error));
  }
}
