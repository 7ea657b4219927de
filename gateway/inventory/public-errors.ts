/** Translates errors of the inventory service into errors of the public API. */
import { InventoryError, type StatusName } from "../../client/index.ts";
import { ApiError, type ErrorCode } from "../http/api-error.ts";

/**
 * The public error for each gRPC status; the compiler demands all of them. A status about the gateway as a caller (its
 * identity, its arguments) is the gateway's fault and never the public caller's.
 */
const codes: Record<Exclude<StatusName, "OK">, ErrorCode> = {
  CANCELLED: "service_unavailable",
  UNKNOWN: "internal_error",
  INVALID_ARGUMENT: "internal_error",
  DEADLINE_EXCEEDED: "timeout",
  NOT_FOUND: "not_found",
  ALREADY_EXISTS: "internal_error",
  PERMISSION_DENIED: "internal_error",
  RESOURCE_EXHAUSTED: "service_unavailable",
  FAILED_PRECONDITION: "internal_error",
  ABORTED: "precondition_failed",
  OUT_OF_RANGE: "internal_error",
  UNIMPLEMENTED: "internal_error",
  INTERNAL: "internal_error",
  UNAVAILABLE: "service_unavailable",
  DATA_LOSS: "internal_error",
  UNAUTHENTICATED: "internal_error",
};

/** Makes the public error of what the client of the inventory service threw. */
export function fromServiceError(error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  const known = error instanceof InventoryError ? codeOf(error) : "internal_error";
  const headers: Record<string, string> = known === "service_unavailable" ? { "Retry-After": "1" } : {};
  return new ApiError(known, { cause: error, headers });
}

function codeOf({ code, reason }: InventoryError): ErrorCode {
  if (reason === "KEY_REUSED") return "idempotency_key_reused";
  return code === "OK" ? "internal_error" : codes[code];
}
