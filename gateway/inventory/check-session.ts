import { type ClientDuplexStream, type ServiceError, status } from "@grpc/grpc-js";
import { type Position, toItem } from "../../client/item.ts";
import type {
  CheckInventoryRequest,
  CheckInventoryResponse,
  InventoryItem as WireItem,
} from "../../proto/gen/petstore/inventory/v1/inventory.ts";
import type { Traceparent } from "../../runtime/tracing.ts";
import type { Changes } from "./list/stock-list.ts";
import { serviceError } from "./status.ts";

type CheckStream = ClientDuplexStream<CheckInventoryRequest, CheckInventoryResponse>;

interface Question {
  readonly position: Position;
  readonly traceparent: Traceparent;
  /** What earlier messages of the same answer brought. */
  gathered: { readonly changed: Map<bigint, WireItem>; readonly removed: Set<bigint> } | undefined;
  readonly resolve: (changes: Changes) => void;
  readonly reject: (error: unknown) => void;
  /** A check changes nothing, so a broken stream is worth one more try. */
  readonly retried: boolean;
}

/**
 * Asks for changes over one long-lived stream: a message on it costs a sixth of a call. One question at a time, as the
 * list asks. A new stream is opened when there is none, so each finds the replicas of that moment.
 */
export class CheckSession {
  readonly #open: () => CheckStream;
  readonly #timeoutMs: number;
  #stream: CheckStream | undefined;
  #question: Question | undefined;
  /** Set anew with each question and each part of an answer; when nothing is asked it means nothing. */
  #timer: NodeJS.Timeout | undefined;
  #isClosed = false;

  /** @param timeoutMs longest wait for an answer, and for each further part of it */
  constructor(open: () => CheckStream, timeoutMs: number) {
    this.#open = open;
    this.#timeoutMs = timeoutMs;
  }

  /**
   * Not before the answer to the question before is there.
   *
   * @throws ServiceError of the stream; DEADLINE_EXCEEDED when no answer came in time, CANCELLED once it is closed
   */
  changesAfter(position: Position, traceparent?: Traceparent): Promise<Changes> {
    if (this.#isClosed) return Promise.reject(serviceError(status.CANCELLED, "the gateway was closed"));
    if (this.#question) return Promise.reject(new Error("a check is under way"));
    this.#timer ??= setTimeout(
      () => this.#question && this.#stream && this.#lose(this.#stream, noAnswer()),
      this.#timeoutMs,
    );
    this.#timer.refresh();
    return new Promise((resolve, reject) => {
      this.#ask({ position, traceparent, gathered: undefined, resolve, reject, retried: false });
    });
  }

  close(): void {
    this.#isClosed = true;
    clearTimeout(this.#timer);
    this.#stream?.cancel();
  }

  #ask(question: Question): void {
    this.#stream ??= this.#connect(); // throws on a closed channel, and then nothing is asked
    this.#question = question;
    const { position, traceparent } = question;
    this.#stream.write({ epoch: position.epoch, revision: position.revision, traceparent });
  }

  #connect(): CheckStream {
    const stream = this.#open();
    // What was on its way when the stream was given up answers nobody.
    stream.on("data", (answer: CheckInventoryResponse) => stream === this.#stream && this.#take(answer));
    // The service ends a stream when it stops or the connection has grown old; a fault ends it too.
    stream.on("error", (error: ServiceError) => this.#lose(stream, error));
    stream.on("end", () => this.#lose(stream, endOfStream()));
    return stream;
  }

  #take(answer: CheckInventoryResponse): void {
    const question = this.#question;
    if (!question) return;
    if (answer.more || question.gathered) gather(question, answer);
    if (answer.more) {
      this.#timer?.refresh(); // a service that tells of many changes is not one that hangs
      return;
    }
    this.#question = undefined;
    try {
      question.resolve(answer.reset ? { kind: "reset" } : toChanges(question, answer));
    } catch (error) {
      question.reject(serviceError(status.INTERNAL, (error as Error).message)); // an entry that it cannot read
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

/** Keeps a part of an answer. Of two states of an entry the later counts. */
function gather(question: Question, { changed, removedPetIds }: CheckInventoryResponse): void {
  question.gathered ??= { changed: new Map(), removed: new Set() };
  for (const item of changed) {
    question.gathered.removed.delete(item.petId);
    question.gathered.changed.set(item.petId, item);
  }
  for (const petId of removedPetIds) {
    question.gathered.changed.delete(petId);
    question.gathered.removed.add(petId);
  }
}

function toChanges(
  { gathered }: Question,
  { epoch, revision, changed, removedPetIds }: CheckInventoryResponse,
): Changes {
  return {
    kind: "changes",
    position: { epoch, revision },
    changed: (gathered ? [...gathered.changed.values()] : changed).map(toItem),
    removed: gathered ? [...gathered.removed] : removedPetIds,
  };
}

function noAnswer(): ServiceError {
  return serviceError(status.DEADLINE_EXCEEDED, "the inventory service did not answer a check in time");
}

function endOfStream(): ServiceError {
  return serviceError(status.UNAVAILABLE, "the inventory service ended the stream of checks");
}
