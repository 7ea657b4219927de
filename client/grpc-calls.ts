/** Calls of the generated client as promises and async generators. */
import {
  type ClientReadableStream,
  type ClientUnaryCall,
  type CallOptions as GrpcOptions,
  Metadata,
  type ServiceError,
} from "@grpc/grpc-js";
import { InventoryError, type StatusName, toRefusalOrLoss } from "./inventory-error.ts";

export interface CallOptions {
  /** How long the call may take at most, retries included. */
  readonly timeoutMs?: number | undefined;
  /** Ends the call, which then rejects with the signal's reason. */
  readonly signal?: AbortSignal | undefined;
}

/** A unary call of the generated client. */
export type UnaryMethod<Req, Res> = (
  request: Req,
  metadata: Metadata,
  options: Partial<GrpcOptions>,
  done: (error: ServiceError | null, response: Res) => void,
) => ClientUnaryCall;

/** Passes on a result, unless the signal fires first. @throws the reason of the signal */
export async function unlessAborted<T>(work: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (!signal) return await work;
  const { promise, reject } = Promise.withResolvers<never>();
  const abort = () => reject(signal.reason);
  signal.addEventListener("abort", abort);
  try {
    return await Promise.race([work, promise]);
  } finally {
    signal.removeEventListener("abort", abort);
  }
}

/** The longest time-out: grpc-js takes a deadline beyond 2^31 ms for one that has passed, and so do timers. */
export const maxTimeoutMs = 24 * 86_400_000;

/** The statuses that grpc-js gives a call whose connection or stream was reset, but not by this side. */
const lossStatuses: readonly StatusName[] = ["INTERNAL", "UNKNOWN", "RESOURCE_EXHAUSTED", "CANCELLED"];

/** @param timeoutMs within its bound. @throws InventoryError, or the reason of the signal */
export async function callUnary<Req, Res>(
  method: UnaryMethod<Req, Res>,
  request: Req,
  { timeoutMs, signal }: CallOptions & { readonly timeoutMs: number },
): Promise<Res> {
  signal?.throwIfAborted();
  const options = { deadline: Date.now() + timeoutMs };
  const cancel = () => call?.cancel();
  let call: ClientUnaryCall | undefined;
  signal?.addEventListener("abort", cancel);
  try {
    return await new Promise<Res>((resolve, reject) => {
      call = method(request, new Metadata(), options, (error, response) => (error ? reject(error) : resolve(response)));
    });
  } catch (error) {
    signal?.throwIfAborted();
    throw toRefusalOrLoss(error, lossStatuses);
  } finally {
    signal?.removeEventListener("abort", cancel);
  }
}

/**
 * Gives the messages of a server's stream, read no faster than they are used. Leaving the loop over them ends the
 * stream.
 *
 * @param silenceMs the longest wait for a message
 * @throws InventoryError, or the reason of the signal
 */
export async function* readStream<Res>(
  open: () => ClientReadableStream<Res>,
  signal: AbortSignal | undefined,
  silenceMs?: number,
): AsyncGenerator<Res, void, undefined> {
  signal?.throwIfAborted();
  const stream = open();
  const giveUp = () =>
    stream.destroy(new InventoryError("DEADLINE_EXCEEDED", "the service sent no further part in time"));
  const wait = () => (silenceMs === undefined ? undefined : setTimeout(giveUp, silenceMs));
  let silence = wait();
  stream.on("error", () => {}); // the loop throws it; after the loop it has no effect
  const cancel = () => stream.cancel();
  signal?.addEventListener("abort", cancel);
  try {
    for await (const message of stream as AsyncIterable<Res>) {
      clearTimeout(silence);
      yield message;
      silence = wait();
    }
  } catch (error) {
    signal?.throwIfAborted();
    throw toRefusalOrLoss(error, lossStatuses);
  } finally {
    signal?.removeEventListener("abort", cancel);
    clearTimeout(silence);
    stream.cancel();
  }
}
