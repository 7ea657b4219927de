/** Makes grpc-js handlers of promises and async generators. */
import {
  type handleBidiStreamingCall,
  type handleServerStreamingCall,
  type handleUnaryCall,
  Metadata,
  type ServerUnaryCall,
  status,
} from "@grpc/grpc-js";
import { contextOfCaller, inSpan, serverSpan } from "../../runtime/spans.ts";
import { QueueFullError } from "../stock/group-commit.ts";
import { maxUntakenMs, readOneByOne, resetCall } from "./call-bounds.ts";
import { isOurFault, type RpcError, toRpcError, toServiceError } from "./rpc-error.ts";

/**
 * Called at the end of every call. For a question stream it is called for each question instead; for ApplyChanges for
 * each change, or once for a message that is refused as a whole. It is not called for a list or a check that broke off,
 * nor for a watch that broke off within a message. `error` is undefined after a success.
 */
export type OnCall = (method: string, durationMs: number, code: status, error: RpcError | undefined) => void;

/** The names in the certificate of a caller (subjectAltName), as Node gives them; undefined without TLS. */
export function certificateNames(call: Pick<ServerUnaryCall<unknown, unknown>, "getAuthContext">): string | undefined {
  return call.getAuthContext().sslPeerCertificate?.subjectaltname;
}

/** Makes a function that says whether the caller of a unary call still waits: it is there, and its time is not over. */
export function wantedBy(call: ServerUnaryCall<unknown, unknown>): () => boolean {
  const timeoutMs = Number(call.getDeadline()) - Date.now(); // grpc-js counts it from when it read the call
  const untilMs = performance.now() + timeoutMs;
  return () => !call.cancelled && performance.now() < untilMs;
}

/** Makes a handler of a function that returns a promise. Its span continues the trace of its `traceparent`. */
export function unary<Req, Res>(
  handle: (request: Req, call: ServerUnaryCall<Req, Res>) => Promise<Res>,
  onCall: OnCall,
): handleUnaryCall<Req, Res> {
  return (call, callback) => {
    const startedMs = performance.now();
    const path = call.getPath();
    const [traceparent] = call.metadata.get("traceparent");
    const parent = contextOfCaller(traceparent?.toString());
    const answer = async () => {
      try {
        const response = await handle(call.request, call);
        onCall(path, performance.now() - startedMs, 0, undefined);
        return response;
      } catch (thrown) {
        const error = toRpcError(thrown);
        onCall(path, performance.now() - startedMs, error.code, error);
        throw error;
      }
    };
    inSpan(path.slice(path.lastIndexOf("/") + 1), serverSpan, parent, answer).then(
      (response) => callback(null, response),
      (error: RpcError) => callback(toServiceError(error)),
    );
  };
}

/**
 * Makes a handler of an async generator, which is asked for the next message once the one before is on its way.
 *
 * @param handle gets `gone`, which is aborted when the caller leaves
 */
export function serverStream<Req, Res>(
  handle: (request: Req, gone: AbortSignal) => AsyncGenerator<Res>,
  onCall: OnCall,
): handleServerStreamingCall<Req, Res> {
  return async (call) => {
    const startedMs = performance.now();
    const gone = new AbortController();
    call.on("cancelled", () => gone.abort());
    try {
      for await (const message of handle(call.request, gone.signal)) {
        await send(call, message, gone);
      }
      onCall(call.getPath(), performance.now() - startedMs, 0, undefined);
      call.end();
    } catch (thrown) {
      if (gone.signal.aborted) return;
      const error = toRpcError(thrown);
      onCall(call.getPath(), performance.now() - startedMs, error.code, error);
      call.emit("error", toServiceError(error));
    }
  };
}

/**
 * Resolves when a message is on its way. A message that the caller does not read holds up only the next one of its
 * stream, and ends the call after `maxUntakenMs`.
 *
 * @param gone aborted here when the caller takes nothing: the reset itself may wait for a socket that takes nothing
 * @throws the reason of `gone`
 */
async function send<Res>(
  call: { write(message: Res, done: () => void): boolean },
  message: Res,
  gone: AbortController,
): Promise<void> {
  const { signal } = gone;
  signal.throwIfAborted();
  await new Promise<void>((resolve) => {
    const untaken = setTimeout(() => {
      resetCall(call);
      gone.abort();
    }, maxUntakenMs);
    const end = () => {
      clearTimeout(untaken);
      signal.removeEventListener("abort", end);
      resolve();
    };
    signal.addEventListener("abort", end);
    call.write(message, end);
  });
  signal.throwIfAborted();
}

/** How long the service lets the calls on a connection finish once the connection has reached its maximum age. */
export const connectionGraceMs = 15_000;

/**
 * How long a stream takes questions; the next stream may lead to another replica. It stays below `connectionGraceMs`:
 * the streams on an old connection have ended by themselves when the service ends it.
 */
const streamLifeMs = 8_000;

/** A stream of questions, as its handler sees it. */
export interface QuestionStream {
  readonly path: string;
  /** The names in the certificate of the caller that opened it; see `certificateNames`. */
  readonly certificateNames: string | undefined;
  /**
   * Makes a function that says whether an asker still waits.
   *
   * @param deadlineMs the end of its wait, counted from when this service accepted the stream. The asker counts from
   * when it learned of that, which is later. So the service gives up first, however late the question comes
   */
  wantedUntil(deadlineMs: number): () => boolean;
  /** Ends it after the answer that is being made: the next stream may lead to another replica. */
  takeNoMore(): void;
}

/**
 * Makes a handler of a function that answers one question at a time, in their order. Flow control slows a caller that
 * sends questions faster than they are answered: only questions that came in one frame, of 16 KiB, are decoded before
 * it is their turn.
 *
 * A stream ends with OK between two questions: at the end of its life, when the service stops, and when its database
 * was away for a whole message. No question is taken after that, so a question without an answer on such a stream has
 * had no effect.
 *
 * @param draining aborted when the service stops
 * @param open gets each stream when it begins, and returns what answers its questions
 */
export function questionStreamHandler<Question, Answer>(
  draining: AbortSignal,
  open: (stream: QuestionStream) => (question: Question) => AsyncGenerator<Answer>,
  onCall: OnCall,
): handleBidiStreamingCall<Question, Answer> {
  return async (call) => {
    const acceptedMs = performance.now();
    readOneByOne(call);
    call.sendMetadata(new Metadata()); // accepts the stream: the caller asks nothing before
    const path = call.getPath();
    const wantedUntil = (deadlineMs: number) => () => !call.cancelled && performance.now() < acceptedMs + deadlineMs;
    const gone = new AbortController();
    call.on("cancelled", () => gone.abort());
    let isOver = false;
    let isAnswering = false;
    let startedMs = acceptedMs;
    const finish = () => {
      isOver = true;
      if (!isAnswering) call.end();
    };
    const answer = open({ path, certificateNames: certificateNames(call), wantedUntil, takeNoMore: finish });
    const life = setTimeout(finish, streamLifeMs);
    draining.addEventListener("abort", finish);
    call.on("close", () => {
      clearTimeout(life);
      draining.removeEventListener("abort", finish);
    });
    if (draining.aborted) finish();
    try {
      // Leaving the loop must not destroy the stream, because an error has to reach the caller on it.
      for await (const question of call.iterator({ destroyOnReturn: false }) as AsyncIterable<Question>) {
        if (isOver) break; // its end is on the way to the caller, who then asks on another stream
        isAnswering = true;
        startedMs = performance.now();
        for await (const message of answer(question)) {
          await send(call, message, gone);
        }
        onCall(path, performance.now() - startedMs, 0, undefined);
        isAnswering = false;
        if (isOver) break;
      }
      call.end();
    } catch (thrown) {
      if (gone.signal.aborted || call.cancelled) return;
      const error = toRpcError(thrown);
      onCall(path, performance.now() - startedMs, error.code, error);
      call.emit("error", toServiceError(error));
    }
  };
}

/** The log level for the end of a call. */
export function logLevel(error: RpcError | undefined): "debug" | "info" | "warn" | "error" {
  if (error === undefined) return "debug";
  if (error.code === status.PERMISSION_DENIED) return "warn"; // a caller without the role
  if (error.cause instanceof QueueFullError) return "debug"; // there may be a thousand in one message
  return isOurFault(error.code) ? "error" : "info";
}
