/** Translates gRPC statuses of the inventory service into errors of the public API. */
import { type ServiceError, status } from "@grpc/grpc-js";
import { ApiError, type ErrorCode } from "../http/errors.ts";

/**
 * The public error for each gRPC status; the compiler demands all of them. A status about the gateway as a caller (its
 * identity, its arguments) is the gateway's fault and never the public caller's.
 */
const codes: Record<Exclude<status, status.OK>, ErrorCode> = {
  [status.CANCELLED]: "service_unavailable",
  [status.UNKNOWN]: "internal_error",
  [status.INVALID_ARGUMENT]: "internal_error",
  [status.DEADLINE_EXCEEDED]: "timeout",
  [status.NOT_FOUND]: "not_found",
  [status.ALREADY_EXISTS]: "internal_error",
  [status.PERMISSION_DENIED]: "internal_error",
  [status.RESOURCE_EXHAUSTED]: "service_unavailable",
  [status.FAILED_PRECONDITION]: "internal_error",
  [status.ABORTED]: "precondition_failed",
  [status.OUT_OF_RANGE]: "internal_error",
  [status.UNIMPLEMENTED]: "internal_error",
  [status.INTERNAL]: "internal_error",
  [status.UNAVAILABLE]: "service_unavailable",
  [status.DATA_LOSS]: "internal_error",
  [status.UNAUTHENTICATED]: "internal_error",
};

/** Makes the public error of what a call to the inventory service threw. */
export function fromServiceError(error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  const { code } = error as ServiceError;
  const known = code in codes ? codes[code as Exclude<status, status.OK>] : "internal_error";
  const headers: Record<string, string> = known === "service_unavailable" ? { "Retry-After": "1" } : {};
  return new ApiError(known, { cause: error, headers });
}

/** Makes an error in the form of grpc-js for a fault that no call of grpc-js reported. */
export function serviceError(code: status, details: string): ServiceError {
  return Object.assign(new Error(details), { code, details }) as ServiceError;
}

/** An update has certainly not happened, because the service or its database is away. It may be sent again. */
export class NotDoneError extends Error {
  readonly code = status.UNAVAILABLE;

  constructor(message: string, cause?: unknown) {
    super(message, { cause });
    this.name = "NotDoneError";
  }
}
