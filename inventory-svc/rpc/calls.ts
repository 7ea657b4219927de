/** Makes grpc-js handlers of promises and async generators. */
import { once } from "node:events";
import {
  type handleBidiStreamingCall,
  type handleServerStreamingCall,
  type handleUnaryCall,
  type ServerUnaryCall,
  status,
} from "@grpc/grpc-js";
import { contextOfCaller, inSpan, serverCall } from "../../runtime/spans.ts";
import { QueueFullError } from "../stock/group-commit.ts";
import { isOurFault, type RpcError, toRpcError, toServiceError } from "./errors.ts";

/** Gets every call at its end, except streams that their caller left. `error` is undefined after a success. */
export type OnCall = (method: string, durationMs: number, code: status, error: RpcError | undefined) => void;

/**
 * Makes a function that is true while a caller waits: it has not left, and its time is not over.
 *
 * @param timeoutMs how long it waits, as its message says
 * @param waitedMs for how long this message may have waited to be read
 */
export function whileWanted(call: { readonly cancelled: boolean }, timeoutMs: number, waitedMs: number): () => boolean {
  const untilMs = performance.now() + timeoutMs - waitedMs;
  return () => !call.cancelled && performance.now() < untilMs;
}

/** Makes a handler of a function that returns a promise. The call goes on from the `traceparent` in its metadata. */
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
    inSpan(path.slice(path.lastIndexOf("/") + 1), serverCall, parent, answer).then(
      (response) => callback(null, response),
      (error: RpcError) => callback(toServiceError(error)),
    );
  };
}

/**
 * Makes a handler of an async generator, which is asked for the next message only when the caller has read the others.
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
        if (call.cancelled) return;
        if (!call.write(message)) await once(call, "drain", { signal: gone.signal });
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
 * Makes a handler of a function that answers one question at a time, in their order. It does not read ahead: flow
 * control slows a caller that sends questions faster than they are answered.
 *
 * @param draining ends the stream between two questions, and a stream that is opened later at once; a question that
 *   arrives later gets no answer on this stream
 */
export function duplexStream<Req, Res>(
  draining: AbortSignal,
  answer: (request: Req) => AsyncGenerator<Res>,
  onCall: OnCall,
): handleBidiStreamingCall<Req, Res> {
  return async (call) => {
    const gone = new AbortController();
    call.on("cancelled", () => gone.abort());
    let isAnswering = false;
    let startedMs = performance.now();
    const endIdle = () => {
      if (!isAnswering) call.end();
    };
    if (draining.aborted) endIdle();
    draining.addEventListener("abort", endIdle);
    call.on("close", () => draining.removeEventListener("abort", endIdle));
    try {
      // Leaving the loop must not destroy the stream, because an error has to reach the caller on it.
      for await (const request of call.iterator({ destroyOnReturn: false }) as AsyncIterable<Req>) {
        if (draining.aborted) break;
        isAnswering = true;
        startedMs = performance.now();
        for await (const message of answer(request)) {
          if (!call.write(message)) await once(call, "drain", { signal: gone.signal });
        }
        onCall(call.getPath(), performance.now() - startedMs, 0, undefined);
        isAnswering = false;
        if (draining.aborted) break;
      }
      call.end();
    } catch (thrown) {
      if (gone.signal.aborted || call.cancelled) return;
      const error = toRpcError(thrown);
      onCall(call.getPath(), performance.now() - startedMs, error.code, error);
      call.emit("error", toServiceError(error));
    }
  };
}

/** The log level for the end of a call. */
export function logLevel(error: RpcError | undefined): "debug" | "info" | "warn" | "error" {
  if (error === undefined) return "debug";
  if (error.code === status.PERMISSION_DENIED) return "warn"; // a caller that lacks the right or the role
  if (error.cause instanceof QueueFullError) return "debug"; // there may be thousands in one message
  return isOurFault(error.code) ? "error" : "info";
}
