import { Metadata, type ServiceError, status } from "@grpc/grpc-js";
import { ExpiredError, QueueFullError } from "../stock/group-commit.ts";
import { StockUnavailableError } from "../stock/store.ts";

/** A refusal with a gRPC status; `message` is meant for the caller. */
export class RpcError extends Error {
  readonly code: status;

  constructor(code: status, message: string, cause?: unknown) {
    super(message, { cause });
    this.name = "RpcError";
    this.code = code;
  }
}

/** Gives anything that was thrown its gRPC status. The cause of a fault of ours stays here. */
export function toRpcError(error: unknown): RpcError {
  if (error instanceof RpcError) return error;
  if (error instanceof QueueFullError) return new RpcError(status.RESOURCE_EXHAUSTED, error.message, error);
  if (error instanceof ExpiredError) return new RpcError(status.DEADLINE_EXCEEDED, error.message, error);
  if (error instanceof StockUnavailableError) return new RpcError(status.UNAVAILABLE, error.message, error);
  return new RpcError(status.INTERNAL, "internal error", error);
}

/** The form in which grpc-js sends an error. */
export function toServiceError(error: RpcError): ServiceError {
  return Object.assign(new Error(error.message), {
    code: error.code,
    details: error.message,
    metadata: new Metadata(),
  });
}

/** True when the fault is ours and belongs in the log as an error. */
export function isOurFault(code: status): boolean {
  return (
    code === status.INTERNAL || code === status.UNAVAILABLE || code === status.UNKNOWN || code === status.DATA_LOSS
  );
}
