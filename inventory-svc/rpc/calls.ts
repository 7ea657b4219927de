import { once } from "node:events";
import {
  type handleBidiStreamingCall,
  type handleServerStreamingCall,
  type handleUnaryCall,
  type ServerUnaryCall,
  type ServerWritableStream,
  status,
} from "@grpc/grpc-js";
import { QueueFullError } from "../stock/group-commit.ts";
import { isOurFault, type RpcError, toRpcError, toServiceError } from "./errors.ts";

/** Told of every call at its end, except streams that their caller left; `error` is undefined for one that went well. */
export type OnCall = (method: string, durationMs: number, code: status, error: RpcError | undefined) => void;

export type AnyCall = ServerUnaryCall<unknown, unknown> | ServerWritableStream<unknown, unknown>;

/** True while the caller is there and its deadline has not passed. */
export function isWanted(call: AnyCall): boolean {
  if (call.cancelled) return false;
  const deadline = call.getDeadline();
  return Number(deadline) > Date.now();
}

/** Makes a grpc-js handler of a function that returns a promise. */
export function unary<Req, Res>(
  handle: (request: Req, call: ServerUnaryCall<Req, Res>) => Promise<Res>,
  onCall: OnCall,
): handleUnaryCall<Req, Res> {
  return (call, callback) => {
    const startedMs = performance.now();
    handle(call.request, call).then(
      (response) => {
        onCall(call.getPath(), performance.now() - startedMs, 0, undefined);
        callback(null, response);
      },
      (thrown) => {
        const error = toRpcError(thrown);
        onCall(call.getPath(), performance.now() - startedMs, error.code, error);
        callback(toServiceError(error));
      },
    );
  };
}

/**
 * Makes a grpc-js handler of an async generator: it is asked for no more than the caller takes.
 *
 * @param handle is told by `gone` when the caller has gone away
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
 * Makes a grpc-js handler of a function that answers one question at a time. Questions are answered in the order in
 * which they came, and not read ahead: a caller that sends faster than it is answered is slowed by flow control.
 *
 * @param draining ends the stream between two questions; one that is on its way then has to be asked again
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
    draining.addEventListener("abort", endIdle);
    call.on("close", () => draining.removeEventListener("abort", endIdle));
    try {
      // An error has to reach the caller over this stream, so leaving the loop must not destroy it.
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

/** The log level that fits how a call ended. */
export function logLevel(error: RpcError | undefined): "debug" | "info" | "warn" | "error" {
  if (error === undefined) return "debug";
  if (error.code === status.PERMISSION_DENIED) return "warn"; // somebody tries what is not theirs, or misses a role
  if (error.cause instanceof QueueFullError) return "debug"; // there may be thousands in one message
  return isOurFault(error.code) ? "error" : "info";
}
