/** Sends the changes of many callers over a few sessions. */
import type { ClientDuplexStream } from "@grpc/grpc-js";
import type { ApplyChangesRequest, ApplyChangesResponse } from "../proto/gen/petstore/inventory/v1/inventory.ts";
import { Shares } from "../runtime/shares.ts";
import { type ChangeOutcome, type ChangeRequest, happensOnce, toOutcomes, toWireGroup } from "./change-requests.ts";
import { InventoryError, notSent, toInventoryError } from "./inventory-error.ts";
import { lateAfterMs, Session } from "./session.ts";

export type ChangeStream = ClientDuplexStream<ApplyChangesRequest, ApplyChangesResponse>;
type ChangeSession = Session<ApplyChangesRequest, ApplyChangesResponse>;

/** Messages under way at once. While the service writes one, the next ones arrive. */
const maxMessages = 4;

/**
 * Changes in one message, unless one request has more. They share its answer, so a larger message would make the first
 * of them wait for the last.
 */
const messageChanges = 64;

/** The longest wait for a service to accept a stream. */
const openTimeoutMs = 5_000;

/** Maximum changes without an outcome, split among accounts. Those beyond the share of an account are refused. */
const maxInFlight = 10_000;

/** A request that waits for its outcomes. */
interface QueuedRequest {
  readonly request: ChangeRequest;
  readonly endMs: number;
  readonly isWanted: () => boolean;
  /** Gives its caller the outcomes, or an error; only the first call counts. */
  readonly end: (outcomes: readonly ChangeOutcome[] | Promise<never>) => void;
  state: "waiting" | "sent" | "ended";
}

/**
 * Lets callers share messages: the more callers there are, the larger the messages, and the less each change costs.
 * Up to four messages are under way at a time. What waits goes out as soon as one of them is answered, or is late.
 */
export class ChangeSessions {
  readonly #open: () => ChangeStream;
  /** The requests of this turn of the event loop. */
  #fresh: QueuedRequest[] = [];
  /** The requests that may be sent. */
  readonly #waiting: QueuedRequest[] = [];
  readonly #idle: ChangeSession[] = [];
  /** Messages and openings that are under way, and not late. */
  #underWay = 0;
  /** The opening under way, until it is late: its session takes what waits. */
  #opening: object | undefined;
  readonly #inFlight = new Shares(maxInFlight);
  #isClosed = false;

  /** @param open opens a stream to one of the services */
  constructor(open: () => ChangeStream) {
    this.#open = open;
  }

  /** Whether it sends nothing any more. */
  get isClosed(): boolean {
    return this.#isClosed;
  }

  /** Changes in attempts that are under way. */
  get changesInFlight(): number {
    return this.#inFlight.taken;
  }

  /**
   * Sends a request once.
   *
   * When the answer is lost, a request that happens once ends immediately: `ChangeSender` repeats it and waits for the
   * deadline. Any other request that may have happened ends with an error at its deadline. After the deadline the
   * service does not start the change, but one that it has started may still commit. That one holds the lock of the
   * stock's writers, and a later change waits for the lock. So the earlier one never undoes a later one of its caller.
   *
   * @param endMs the end of the caller's wait, by `performance.now()`
   * @param isWanted asked when the request is sent. False once the caller has left: it must not happen after what the
   *   caller sends next
   * @returns an outcome for each change, in order
   * @throws what `isWanted` throws; then the request is not sent
   */
  submit(request: ChangeRequest, endMs: number, isWanted: () => boolean): Promise<readonly ChangeOutcome[]> {
    return new Promise((resolve) => {
      const count = request.changes.length;
      const owner = request.actor?.account ?? ""; // internal callers share one
      const leftMs = endMs - performance.now();
      if (this.#isClosed) return resolve(forAll(request, closed()));
      if (leftMs <= 0) return resolve(forAll(request, late(false)));
      if (!this.#inFlight.take(owner, count)) return resolve(forAll(request, tooMany()));
      // Timers may end a millisecond early. An answer that has arrived while this thread was busy is taken before the
      // immediate.
      const onLate = () => waiting.end(forAll(request, late(waiting.state === "sent")));
      const timer = setTimeout(() => setImmediate(onLate), Math.ceil(leftMs) + 1);
      const end: QueuedRequest["end"] = (outcomes) => {
        if (waiting.state === "ended") return;
        waiting.state = "ended";
        clearTimeout(timer);
        this.#inFlight.release(owner, count);
        // The queue would otherwise grow while no service takes from it.
        while (this.#waiting[0]?.state === "ended") this.#waiting.shift();
        resolve(outcomes);
      };
      const waiting: QueuedRequest = { request, endMs, isWanted, end, state: "waiting" };
      if (this.#fresh.push(waiting) === 1) setImmediate(() => this.#queueFresh());
    });
  }

  /** Sends nothing any more. What was sent still gets its outcome. */
  close(): void {
    this.#isClosed = true;
    for (const session of this.#idle.splice(0)) session.cancel();
    for (const { request, end } of this.#waiting.splice(0)) end(forAll(request, closed()));
  }

  /**
   * Lets the requests of one turn of the event loop be sent in the next. After a freeze Node reads the bytes of a
   * request in the first turn and the end of its connection in the second: nothing is sent for a client that has left.
   */
  #queueFresh(): void {
    const fresh = this.#fresh;
    this.#fresh = [];
    setImmediate(() => {
      this.#waiting.push(...fresh);
      if (this.#isClosed) this.close();
      else this.#sendNext();
    });
  }

  /** Sends what waits, as far as more may be under way. */
  #sendNext(): void {
    while (this.#waiting.length > 0 && this.#underWay < maxMessages) {
      const session = this.#idleSession();
      if (!session) {
        this.#openSession();
        return;
      }
      const taken = this.#take();
      if (taken.length === 0) this.#keep(session);
      else this.#follow(this.#ask(session, taken));
    }
  }

  /** Opens a session for what waits, unless one is being opened. */
  #openSession(): void {
    if (this.#opening) return;
    const opening = {};
    this.#opening = opening;
    const open = async () => {
      try {
        return await Session.open(this.#open(), openTimeoutMs);
      } catch (error) {
        for (const { request, end } of this.#waiting.splice(0)) end(forAll(request, toInventoryError(error)));
      }
    };
    this.#follow(open(), () => {
      if (this.#opening === opening) this.#opening = undefined;
    });
  }

  /** Counts work until it ends or is late, then calls `onLeft`. The session of work that has ended is idle again. */
  #follow(work: Promise<ChangeSession | undefined>, onLeft = () => {}): void {
    this.#underWay += 1;
    let isUnderWay = true;
    const leave = () => {
      isUnderWay = false;
      this.#underWay -= 1;
      onLeft();
      this.#sendNext();
    };
    const timer = setTimeout(leave, lateAfterMs);
    void work.then((session) => {
      clearTimeout(timer);
      if (session) this.#keep(session, !isUnderWay);
      if (isUnderWay) leave();
      else this.#sendNext();
    });
  }

  #keep(session: ChangeSession, wasLate = false): void {
    if (this.#isClosed) session.cancel();
    else this.#idle[wasLate ? "unshift" : "push"](session); // one that was late comes after those that were not
  }

  #idleSession(): ChangeSession | undefined {
    let session = this.#idle.pop();
    while (session?.isOver) session = this.#idle.pop();
    return session;
  }

  async #ask(session: ChangeSession, taken: readonly QueuedRequest[]): Promise<ChangeSession> {
    const groups = taken.map(({ request, endMs }) => toWireGroup(request, session.deadlineMs(endMs)));
    const changes = taken.flatMap(({ request }) => request.changes);
    const read = ({ results }: ApplyChangesResponse) => {
      const outcomes = toOutcomes(changes, results);
      for (const { request, end } of taken) end(outcomes.splice(0, request.changes.length));
      return true;
    };
    const untilMs = Math.max(...taken.map(({ endMs }) => endMs));
    try {
      await session.ask({ groups }, read, untilMs - performance.now());
    } catch (thrown) {
      const error = toInventoryError(thrown);
      for (const { request, end } of taken) {
        if (!error.mayHaveHappened || happensOnce(request)) end(forAll(request, error));
      }
    }
    return session;
  }

  /** Takes the requests of the next message, and ends those whose callers have left. */
  #take(): QueuedRequest[] {
    const taken: QueuedRequest[] = [];
    let count = 0;
    while (this.#waiting.length > 0) {
      const next = this.#waiting[0]!;
      count += next.request.changes.length;
      if (count > messageChanges && taken.length > 0) break;
      this.#waiting.shift();
      if (next.state === "ended") continue;
      try {
        if (next.isWanted()) {
          next.state = "sent";
          taken.push(next);
        } else next.end(forAll(next.request, notSent("the caller has left", undefined, "CANCELLED")));
      } catch (error) {
        next.end(Promise.reject(error)); // of this caller alone: the others of the message are sent
      }
    }
    return taken;
  }
}

function forAll({ changes }: ChangeRequest, error: InventoryError): InventoryError[] {
  return changes.map(() => error);
}

function late(isSent: boolean): InventoryError {
  if (!isSent) return notSent("no service took the change in time", undefined, "DEADLINE_EXCEEDED");
  return new InventoryError("DEADLINE_EXCEEDED", "the service did not answer in time");
}

function closed(): InventoryError {
  return notSent("the client was closed", undefined, "CANCELLED");
}

function tooMany(): InventoryError {
  return new InventoryError("RESOURCE_EXHAUSTED", "too many changes wait for the service", { reason: "QUEUE_FULL" });
}
