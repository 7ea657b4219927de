/** Translates errors of the inventory service into errors of the public API. */
import { InventoryError, type StatusName } from "../../client/index.ts";
import { maxQuantity } from "../../proto/pet.ts";
import type { ErrorReason } from "../../proto/reasons.ts";
import { ApiError, type ErrorCode } from "../http/api-error.ts";
import type { AskedAdjustment } from "./input.ts";

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

/** The public errors that a status alone does not tell. */
const byReason: Readonly<Partial<Record<ErrorReason, ErrorCode>>> = {
  KEY_REUSED: "idempotency_key_reused",
  INSUFFICIENT_STOCK: "insufficient_stock",
  QUANTITY_OVERFLOW: "quantity_overflow",
};

/**
 * Makes the public error of what the client of the inventory service threw.
 *
 * @param petId of the one entry that the call was about
 */
export function fromServiceError(error: unknown, petId?: bigint): ApiError {
  if (error instanceof ApiError) return error;
  if (error instanceof InventoryError && error.errorReason === "HISTORY_OFF") {
    return new ApiError("not_found", { message: "This API keeps no history of changes.", cause: error });
  }
  const known = error instanceof InventoryError ? codeOf(error) : "internal_error";
  if (known === "not_found" && petId !== undefined) return noEntry(petId, error);
  const headers: Record<string, string> = known === "service_unavailable" ? { "Retry-After": "1" } : {};
  return new ApiError(known, { cause: error, headers });
}

/** Makes the error of an entry that does not exist. */
export function noEntry(petId: bigint, cause?: unknown): ApiError {
  return new ApiError("not_found", { message: `There is no entry with petId ${petId}.`, cause });
}

/** Makes the public error of adjustments from that of the refused one: one refusal refuses all. */
export function fromAdjustmentError(error: InventoryError, { petId, precondition }: AskedAdjustment): ApiError {
  const { quantity } = error.details;
  const messages: Readonly<Partial<Record<ErrorCode, string>>> = {
    not_found: `There is no entry with petId ${petId}; nothing was changed.`,
    insufficient_stock: `There are ${quantity} of petId ${petId}, fewer than the adjustment takes; nothing was changed.`,
    quantity_overflow: `There are ${quantity} of petId ${petId}, and at most ${maxQuantity} may be; nothing was changed.`,
    precondition_failed: `petId ${petId}: ${precondition?.unmet} Nothing was changed.`,
  };
  const publicError = fromServiceError(error);
  const message = messages[publicError.code];
  return message === undefined ? publicError : new ApiError(publicError.code, { message, cause: error });
}

function codeOf({ code, errorReason }: InventoryError): ErrorCode {
  return byReason[errorReason as ErrorReason] ?? (code === "OK" ? "internal_error" : codes[code]);
}
