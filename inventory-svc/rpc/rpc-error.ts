/** Refusals of calls: their reasons, statuses and google.rpc details. */
import { Metadata, type ServiceError, status } from "@grpc/grpc-js";
import type { Any } from "../../proto/gen/google/protobuf/any.ts";
import { BadRequest, ErrorInfo, ResourceInfo, RetryInfo } from "../../proto/gen/google/rpc/error_details.ts";
import { Status } from "../../proto/gen/google/rpc/status.ts";
import { protobufPackage } from "../../proto/gen/petstore/inventory/v1/inventory.ts";
import type { ErrorReason } from "../../proto/reasons.ts";
import { ExpiredError, QueueFullError } from "../stock/group-commit.ts";
import { OutcomeUnknownError, StockUnavailableError, TooManyAtOnceError } from "../stock/stock-errors.ts";

/** The gRPC status of each reason. The contract lists both, and callers rely on them. */
export const statusOfReason = {
  INVALID_FIELD: status.INVALID_ARGUMENT,
  REQUEST_ID_REUSED: status.INVALID_ARGUMENT,
  KEY_REUSED: status.INVALID_ARGUMENT,
  ENTRY_NOT_FOUND: status.NOT_FOUND,
  ENTRY_EXISTS: status.ALREADY_EXISTS,
  REVISION_MISMATCH: status.ABORTED,
  INSUFFICIENT_STOCK: status.FAILED_PRECONDITION,
  QUANTITY_OVERFLOW: status.OUT_OF_RANGE,
  GROUP_REFUSED: status.ABORTED,
  HISTORY_OFF: status.FAILED_PRECONDITION,
  ROLE_REQUIRED: status.PERMISSION_DENIED,
  QUEUE_FULL: status.RESOURCE_EXHAUSTED,
  DEADLINE_PASSED: status.DEADLINE_EXCEEDED,
  STOCK_UNAVAILABLE: status.UNAVAILABLE,
  OUTCOME_UNKNOWN: status.UNAVAILABLE,
  INTERNAL: status.INTERNAL,
} as const satisfies Record<ErrorReason, status>;

/** The reasons after which nothing has happened and the same call can succeed later. */
const retryableReasons: ReadonlySet<ErrorReason> = new Set(["QUEUE_FULL", "DEADLINE_PASSED", "STOCK_UNAVAILABLE"]);

export interface RefusalOptions {
  /** Facts about this case, for programs. Its values reach the caller. */
  readonly metadata?: Readonly<Record<string, string>>;
  /** The field of the request that is at fault. */
  readonly field?: string;
  /** Whether the same call may be sent again; by default the reason decides. */
  readonly isRetryable?: boolean;
  readonly cause?: unknown;
}

/** A refusal with a reason and its gRPC status; `message` is meant for the caller. */
export class RpcError extends Error {
  readonly errorReason: ErrorReason;
  readonly code: status;
  readonly metadata: Readonly<Record<string, string>>;
  readonly field: string | undefined;
  readonly isRetryable: boolean;

  constructor(errorReason: ErrorReason, message: string, options: RefusalOptions = {}) {
    super(message, { cause: options.cause });
    this.name = "RpcError";
    this.errorReason = errorReason;
    this.code = statusOfReason[errorReason];
    this.metadata = options.metadata ?? {};
    this.field = options.field;
    this.isRetryable = options.isRetryable ?? retryableReasons.has(errorReason);
  }
}

/** Makes an RpcError of anything that was thrown. The cause of a fault of ours stays in this process. */
export function toRpcError(error: unknown): RpcError {
  if (error instanceof RpcError) return error;
  if (error instanceof QueueFullError || error instanceof TooManyAtOnceError) {
    return new RpcError("QUEUE_FULL", error.message, { cause: error });
  }
  if (error instanceof ExpiredError) return new RpcError("DEADLINE_PASSED", error.message, { cause: error });
  if (error instanceof StockUnavailableError) return new RpcError("STOCK_UNAVAILABLE", error.message, { cause: error });
  if (error instanceof OutcomeUnknownError) return new RpcError("OUTCOME_UNKNOWN", error.message, { cause: error });
  return new RpcError("INTERNAL", "internal error", { cause: error });
}

/** Passes on the result of a call that is safe to repeat: the error of an unknown outcome becomes retryable. */
export async function asRetryable<T>(work: Promise<T>): Promise<T> {
  try {
    return await work;
  } catch (error) {
    if (!(error instanceof OutcomeUnknownError)) throw error;
    throw new RpcError("OUTCOME_UNKNOWN", error.message, { isRetryable: true, cause: error });
  }
}

/** Makes the error that grpc-js sends, with its google.rpc details. */
export function toServiceError(error: RpcError): ServiceError {
  const metadata = new Metadata();
  metadata.set("grpc-status-details-bin", Buffer.from(Status.encode(toRpcStatus(error)).finish()));
  return Object.assign(new Error(error.message), { code: error.code, details: error.message, metadata });
}

/** True when the fault is ours and belongs in the log as an error. */
export function isOurFault(code: status): boolean {
  return (
    code === status.INTERNAL || code === status.UNAVAILABLE || code === status.UNKNOWN || code === status.DATA_LOSS
  );
}

/** How long a caller is asked to wait before it sends a call again. */
const retryDelay = { seconds: 0n, nanos: 500_000_000 };

/** Makes the google.rpc.Status of a refusal. */
export function toRpcStatus({ code, errorReason, message, metadata, field, isRetryable }: RpcError): Status {
  const details = [
    pack("ErrorInfo", ErrorInfo, { reason: errorReason, domain: protobufPackage, metadata: { ...metadata } }),
  ];
  if (field !== undefined) {
    const violation = { field, description: message, reason: errorReason, localizedMessage: undefined };
    details.push(pack("BadRequest", BadRequest, { fieldViolations: [violation] }));
  }
  if (code === status.NOT_FOUND || code === status.ALREADY_EXISTS) {
    const resourceType = `${protobufPackage}.InventoryItem`;
    const resource = { resourceType, resourceName: metadata.pet_id ?? "", owner: "", description: message };
    details.push(pack("ResourceInfo", ResourceInfo, resource));
  }
  if (isRetryable) details.push(pack("RetryInfo", RetryInfo, { retryDelay }));
  return { code, message, details };
}

function pack<T>(name: string, type: { encode(message: T): { finish(): Uint8Array } }, message: T): Any {
  return { typeUrl: `type.googleapis.com/google.rpc.${name}`, value: Buffer.from(type.encode(message).finish()) };
}
