import { type ClientDuplexStream, type ServiceError, status } from "@grpc/grpc-js";
import type { CheckInventoryRequest, CheckInventoryResponse } from "../../proto/gen/petstore/inventory/v1/inventory.ts";
import type { Item } from "./item.ts";
import type { Changes, Position } from "./list/stock-list.ts";
import { toItem } from "./wire.ts";

type CheckStream = ClientDuplexStream<CheckInventoryRequest, CheckInventoryResponse>;

interface Question {
  readonly position: Position;
  readonly deadlineMs: number;
  readonly changed: Map<bigint, Item>;
  readonly removed: Set<bigint>;
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

  /** @param timeoutMs longest wait for an answer */
  constructor(open: () => CheckStream, timeoutMs: number) {
    this.#open = open;
    this.#timeoutMs = timeoutMs;
  }

  /** @throws ServiceError of the stream; DEADLINE_EXCEEDED when no answer came in time */
  changesAfter(position: Position): Promise<Changes> {
    return new Promise((resolve, reject) => {
      this.#ask({
        position,
        deadlineMs: Date.now() + this.#timeoutMs,
        changed: new Map(),
        removed: new Set(),
        resolve,
        reject,
        retried: false,
      });
    });
  }

  close(): void {
    this.#stream?.cancel();
  }

  #ask(question: Question): void {
    this.#stream ??= this.#connect();
    this.#questions.push(question);
    this.#watch();
    this.#stream.write(question.position);
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
    for (const wireItem of answer.changed) {
      const item = toItem(wireItem);
      question.removed.delete(item.petId);
      question.changed.set(item.petId, item);
    }
    for (const petId of answer.removedPetIds) {
      question.changed.delete(petId);
      question.removed.add(petId);
    }
    if (answer.more) return;
    this.#questions.shift();
    this.#watch();
    question.resolve(answer.reset ? { kind: "reset" } : gathered(question, answer));
  }

  #lose(stream: CheckStream, error: ServiceError): void {
    if (stream !== this.#stream) return;
    this.#stream = undefined;
    stream.cancel();
    const questions = this.#questions;
    this.#questions = [];
    this.#watch();
    for (const question of questions) {
      if (question.retried || error.code === status.DEADLINE_EXCEEDED) question.reject(error);
      else this.#ask({ ...question, changed: new Map(), removed: new Set(), retried: true });
    }
  }

  /** Keeps one timer, for the oldest question: the others cannot be answered before it. */
  #watch(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const oldest = this.#questions[0];
    const stream = this.#stream;
    if (!oldest || !stream) return;
    this.#timer = setTimeout(() => this.#lose(stream, noAnswer()), Math.max(0, oldest.deadlineMs - Date.now()));
  }
}

function gathered({ changed, removed }: Question, { epoch, revision }: CheckInventoryResponse): Changes {
  return { kind: "changes", position: { epoch, revision }, changed: [...changed.values()], removed: [...removed] };
}

function noAnswer(): ServiceError {
  return serviceError(status.DEADLINE_EXCEEDED, "the inventory service did not answer a check in time");
}

function endOfStream(): ServiceError {
  return serviceError(status.UNAVAILABLE, "the inventory service ended the stream of checks");
}

function serviceError(code: status, details: string): ServiceError {
  return Object.assign(new Error(details), { code, details }) as ServiceError;
}
