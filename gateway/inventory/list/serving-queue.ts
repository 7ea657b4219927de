/** Makes bodies one after the other, and gives each to all readers who wait for it. */
import { setImmediate as nextTurn } from "node:timers/promises";
import { inTurns } from "../../../runtime/in-turns.ts";
import { answersPerTurn } from "../../../runtime/shared-read.ts";
import { ApiError } from "../../http/api-error.ts";
import type { Body } from "./snapshot.ts";

/** Bytes that are given out in one turn of the event loop. Their readers send them in the same turn. */
const bytesPerTurn = 64 * 1024;

interface Reader<T> {
  /** When its wait began, by `performance.now()`. */
  readonly sinceMs: number;
  readonly resolve: (body: T) => void;
  readonly reject: (error: unknown) => void;
}

/** A queue of bodies to make, each with its readers. Other requests come in between two bodies. */
export class ServingQueue<T extends Body | undefined> {
  readonly #timeoutMs: number;
  /** The readers of each body that is not begun yet, by its name. */
  readonly #waiting = new Map<string, Reader<T>[]>();
  /** Resolves when the last body in the queue has been given out. */
  #last = Promise.resolve();

  /** @param timeoutMs the longest wait in the queue */
  constructor(timeoutMs: number) {
    this.#timeoutMs = timeoutMs;
  }

  /**
   * Waits for a body that is begun after this call.
   *
   * @param name readers who wait for the same name share one body
   * @param sinceMs when the reader's wait began, by `performance.now()`
   * @throws ApiError timeout for a reader that has waited for too long; what `make` throws
   */
  serve(name: string, sinceMs: number, make: () => Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      const reader = { sinceMs, resolve, reject };
      const readers = this.#waiting.get(name);
      if (readers) return void readers.push(reader);
      this.#waiting.set(name, [reader]);
      this.#last = this.#last.then(() => this.#makeFor(name, make));
    });
  }

  /** Never rejects. */
  async #makeFor(name: string, make: () => Promise<T>): Promise<void> {
    await nextTurn(); // the readers before have begun to send, which counts their body
    const { inTime = [], late = [] } = Object.groupBy(this.#waiting.get(name)!, ({ sinceMs }) =>
      performance.now() - sinceMs <= this.#timeoutMs ? "inTime" : "late",
    );
    this.#waiting.delete(name);
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
}
