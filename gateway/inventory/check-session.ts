/** Asks the inventory service for changes over a long-lived stream. */
import { type ClientDuplexStream, type ServiceError, status } from "@grpc/grpc-js";
import { toItem } from "../../client/item.ts";
import type {
  CheckInventoryRequest,
  CheckInventoryResponse,
  InventoryItem as WireItem,
} from "../../proto/gen/petstore/inventory/v1/inventory.ts";
import type { Position } from "../../proto/pet.ts";
import type { Traceparent } from "../../runtime/spans.ts";
import type { Removal } from "./list/removals.ts";
import type { ListChanges } from "./list/stock-list.ts";
import { serviceError } from "./status.ts";

type CheckStream = ClientDuplexStream<CheckInventoryRequest, CheckInventoryResponse>;

interface Question {
  readonly position: Position;
  readonly traceparent: Traceparent;
  readonly onPart: (() => void) | undefined;
  /** What earlier messages of the same answer contained. */
  gathered: { readonly changed: Map<bigint, WireItem>; readonly removed: Map<bigint, Removal> } | undefined;
  readonly resolve: (changes: ListChanges) => void;
  readonly reject: (error: unknown) => void;
  /** Whether the question was sent again after its stream broke. A check changes nothing, so it may be. */
  readonly retried: boolean;
}

/**
 * Asks one question at a time, as the list does, because a message on a stream costs a fraction of a call. It opens a
 * new stream when there is none, and each new stream finds the replicas of that moment.
 */
export class CheckSession {
  readonly #open: () => CheckStream;
  readonly #timeoutMs: number;
  #stream: CheckStream | undefined;
  #question: Question | undefined;
  /** Restarted with each question and each part of an answer. It does nothing while no question is open. */
  #timer: NodeJS.Timeout | undefined;
  #timerStartMs = 0;
  #isClosed = false;

  /** @param timeoutMs longest wait for the first part of an answer, and for each further part */
  constructor(open: () => CheckStream, timeoutMs: number) {
    this.#open = open;
    this.#timeoutMs = timeoutMs;
  }

  /**
   * Asks what has changed. Call it again only after the answer has arrived.
   *
   * @param onPart called for each part of an answer but the last
   * @throws ServiceError of the stream; DEADLINE_EXCEEDED when no answer came in time, CANCELLED once it is closed
   */
  changesAfter(position: Position, traceparent?: Traceparent, onPart?: () => void): Promise<ListChanges> {
    if (this.#isClosed) return Promise.reject(serviceError(status.CANCELLED, "the gateway was closed"));
    if (this.#question) return Promise.reject(new Error("a check is under way"));
    this.#restartTimer();
    return new Promise((resolve, reject) => {
      this.#ask({ position, traceparent, onPart, gathered: undefined, resolve, reject, retried: false });
    });
  }

  close(): void {
    this.#isClosed = true;
    clearTimeout(this.#timer);
    this.#stream?.cancel();
  }

  #ask(question: Question): void {
    this.#stream ??= this.#connect(); // throws on a closed channel, before the question counts as open
    this.#question = question;
    const { position, traceparent } = question;
    this.#stream.write({ epoch: position.epoch, revision: position.revision, traceparent });
  }

  #restartTimer(): void {
    this.#timerStartMs = performance.now();
    // An answer that has arrived while this thread was busy is taken before the immediate.
    this.#timer ??= setTimeout(() => setImmediate(() => this.#giveUpLate()), this.#timeoutMs);
    this.#timer.refresh();
  }

  #giveUpLate(): void {
    if (!this.#question || !this.#stream) return;
    const leftMs = this.#timerStartMs + this.#timeoutMs - performance.now();
    if (leftMs <= 0) this.#lose(this.#stream, noAnswer());
    // A part has come, or the clock of timers, which counts whole milliseconds, is ahead of the other one.
    else setTimeout(() => this.#giveUpLate(), Math.ceil(leftMs)).unref();
  }

  #connect(): CheckStream {
    const stream = this.#open();
    // Messages of a stream that was given up are ignored.
    stream.on("data", (answer: CheckInventoryResponse) => stream === this.#stream && this.#take(answer));
    // A stream ends with a fault, when the service stops, and when its connection has reached its maximum age.
    stream.on("error", (error: ServiceError) => this.#lose(stream, error));
    stream.on("end", () => this.#lose(stream, endOfStream()));
    return stream;
  }

  #take(answer: CheckInventoryResponse): void {
    const question = this.#question;
    if (!question) return;
    if (answer.more || question.gathered) gather(question, answer);
    if (answer.more) {
      this.#restartTimer(); // a service that sends many changes does not hang
      question.onPart?.();
      return;
    }
    this.#question = undefined;
    try {
      question.resolve(answer.reset ? { kind: "reset" } : toChanges(question, answer));
    } catch (error) {
      // An entry that this gateway cannot read.
      question.reject(serviceError(status.INTERNAL, (error as Error).message));
    }
  }

  #lose(stream: CheckStream, error: ServiceError): void {
    if (stream !== this.#stream) return;
    this.#stream = undefined;
    stream.cancel();
    const question = this.#question;
    this.#question = undefined;
    if (!question) return;
    if (question.retried || this.#isClosed || error.code === status.DEADLINE_EXCEEDED) question.reject(error);
    else this.#ask({ ...question, gathered: undefined, retried: true });
  }
}

/** Keeps a part of an answer. Of two states of an entry the later one counts. */
function gather(question: Question, answer: CheckInventoryResponse): void {
  question.gathered ??= { changed: new Map(), removed: new Map() };
  for (const item of answer.changed) {
    question.gathered.removed.delete(item.petId);
    question.gathered.changed.set(item.petId, item);
  }
  for (const removal of removalsOf(answer)) {
    question.gathered.changed.delete(removal.petId);
    question.gathered.removed.set(removal.petId, removal);
  }
}

/** The removals of an answer. Those of a service that is still to be updated have the revision of the answer. */
export function removalsOf(answer: CheckInventoryResponse): Removal[] {
  const { removedPetIds, removedRevisions, revision } = answer;
  return removedPetIds.map((petId, i) => ({ petId, revision: removedRevisions[i] ?? revision }));
}

function toChanges({ gathered }: Question, answer: CheckInventoryResponse): ListChanges {
  const { epoch, revision, changed } = answer;
  return {
    kind: "changes",
    position: { epoch, revision },
    changed: (gathered ? [...gathered.changed.values()] : changed).map(toItem),
    removed: gathered ? [...gathered.removed.values()] : removalsOf(answer),
  };
}

function noAnswer(): ServiceError {
  return serviceError(status.DEADLINE_EXCEEDED, "the inventory service did not answer a check in time");
}

function endOfStream(): ServiceError {
  return serviceError(status.UNAVAILABLE, "the inventory service ended the stream of checks");
}
