import {
  type ClientReadableStream,
  type ClientUnaryCall,
  type CallOptions as GrpcOptions,
  Metadata,
  type ServiceError,
} from "@grpc/grpc-js";
import { toInventoryError } from "./errors.ts";

export interface CallOptions {
  /** How long the call may take at the most, with all that is tried again. */
  readonly timeoutMs?: number;
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

/** @throws InventoryError, or the reason of the signal */
export async function callUnary<Req, Res>(
  method: UnaryMethod<Req, Res>,
  request: Req,
  { timeoutMs, signal }: CallOptions & { readonly timeoutMs: number },
): Promise<Res> {
  signal?.throwIfAborted();
  const cancel = () => call?.cancel();
  let call: ClientUnaryCall | undefined;
  signal?.addEventListener("abort", cancel);
  try {
    return await new Promise<Res>((resolve, reject) => {
      const options = { deadline: Date.now() + timeoutMs };
      call = method(request, new Metadata(), options, (error, response) => (error ? reject(error) : resolve(response)));
    });
  } catch (error) {
    signal?.throwIfAborted();
    throw toInventoryError(error);
  } finally {
    signal?.removeEventListener("abort", cancel);
  }
}

/**
 * The messages of a server's stream, read no faster than they are taken. The stream ends with the loop over them.
 *
 * @throws InventoryError, or the reason of the signal
 */
export async function* readStream<Res>(
  open: () => ClientReadableStream<Res>,
  signal: AbortSignal | undefined,
): AsyncGenerator<Res, void, undefined> {
  signal?.throwIfAborted();
  const stream = open();
  stream.on("error", () => {}); // the loop is told; what comes after its end concerns nobody
  const cancel = () => stream.cancel();
  signal?.addEventListener("abort", cancel);
  try {
    for await (const message of stream as AsyncIterable<Res>) yield message;
  } catch (error) {
    signal?.throwIfAborted();
    throw toInventoryError(error);
  } finally {
    signal?.removeEventListener("abort", cancel);
    stream.cancel();
  }
}
