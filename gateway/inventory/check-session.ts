import { type ClientDuplexStream, type ServiceError, status } from "@grpc/grpc-js";
import { toItem } from "../../client/item.ts";
import type {
  CheckInventoryRequest,
  CheckInventoryResponse,
  InventoryItem as WireItem,
} from "../../proto/gen/petstore/inventory/v1/inventory.ts";
import type { Traceparent } from "../../runtime/tracing.ts";
import type { Changes, Position } from "./list/stock-list.ts";
import { serviceError } from "./status.ts";

type CheckStream = ClientDuplexStream<CheckInventoryRequest, CheckInventoryResponse>;

interface Question {
  readonly position: Position;
  readonly traceparent: Traceparent;
  /** A part of the answer moves it on: a service that tells of many changes is not one that hangs. */
  deadlineMs: number;
  /** What earlier messages of the same answer brought. */
  gathered: { readonly changed: Map<bigint, WireItem>; readonly removed: Set<bigint> } | undefined;
  readonly resolve: (changes: Changes) => void;
  readonly reject: (error: unknown) => void;
  /** A check changes nothing, so a broken stream is worth one more try. */
  retried: boolean;
}

/**
 * Asks for changes over one long-lived stream: a message on it costs a sixth of a call. Answers come in the order of
 * the questions. A new stream is opened when there is none, so each finds the replicas of that moment.
 */
export class CheckSession {
  readonly #open: () => CheckStream;
  readonly #timeoutMs: number;
  #stream: CheckStream | undefined;
  #questions: Question[] = [];
  #timer: NodeJS.Timeout | undefined;
  #isClosed = false;

  /** @param timeoutMs longest wait for an answer, and for each further part of it */
  constructor(open: () => CheckStream, timeoutMs: number) {
    this.#open = open;
    this.#timeoutMs = timeoutMs;
  }

  /** @throws ServiceError of the stream; DEADLINE_EXCEEDED when no answer came in time */
  changesAfter(position: Position, traceparent?: Traceparent): Promise<Changes> {
    return new Promise((resolve, reject) => {
      this.#ask({
        position,
        traceparent,
        deadlineMs: Date.now() + this.#timeoutMs,
        gathered: undefined,
        resolve,
        reject,
        retried: false,
      });
    });
  }

  close(): void {
    this.#isClosed = true;
    clearTimeout(this.#timer);
    this.#stream?.cancel();
  }

  #ask(question: Question): void {
    this.#stream ??= this.#connect();
    this.#questions.push(question);
    this.#watch();
    const { position, traceparent } = question;
    this.#stream.write({ epoch: position.epoch, revision: position.revision, traceparent });
  }

  #connect(): CheckStream {
    const stream = this.#open();
    stream.on("data", (answer: CheckInventoryResponse) => this.#take(answer));
    // The service ends a stream when it stops or the connection has grown old; a fault ends it too.
    stream.on("error", (error: ServiceError) => this.#lose(stream, error));
    stream.on("end", () => this.#lose(stream, endOfStream()));
    return stream;
  }

  #take(answer: CheckInventoryResponse): void {
    const question = this.#questions[0];
    if (!question) return;
    if (answer.more || question.gathered) gather(question, answer);
    if (answer.more) {
      question.deadlineMs = Date.now() + this.#timeoutMs;
      return;
    }
    this.#questions.shift();
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
    const questions = this.#questions;
    this.#questions = [];
    for (const question of questions) {
      if (question.retried || this.#isClosed || error.code === status.DEADLINE_EXCEEDED) question.reject(error);
      else this.#ask({ ...question, gathered: undefined, retried: true });
    }
  }

  /** Keeps one timer, for the oldest question: the others cannot be answered before it. */
  #watch(): void {
    if (this.#timer) return;
    const oldest = this.#questions[0];
    if (!oldest) return;
    this.#timer = setTimeout(
      () => {
        this.#timer = undefined;
        const stream = this.#stream;
        // Mostly the question that it was set for is long answered, and another one is the oldest.
        if (stream && this.#questions[0] && this.#questions[0].deadlineMs <= Date.now()) this.#lose(stream, noAnswer());
        this.#watch();
      },
      Math.max(1, oldest.deadlineMs - Date.now()),
    );
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
