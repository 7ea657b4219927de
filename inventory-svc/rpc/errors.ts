import { Metadata, type ServiceError, status } from "@grpc/grpc-js";
import { TooManyWatchesError } from "../stock/change-feed.ts";
import { ExpiredError, QueueFullError } from "../stock/group-commit.ts";
import { StockUnavailableError } from "../stock/store.ts";
import { OutcomeUnknownError } from "../stock/write-turn.ts";
import { encodeDetails } from "./details.ts";

/** Every reason for a refusal, with its status. Callers rely on both: the contract lists them. */
export const reasons = {
  INVALID_FIELD: status.INVALID_ARGUMENT,
  REQUEST_ID_REUSED: status.INVALID_ARGUMENT,
  ENTRY_NOT_FOUND: status.NOT_FOUND,
  ENTRY_EXISTS: status.ALREADY_EXISTS,
  REVISION_MISMATCH: status.ABORTED,
  INSUFFICIENT_STOCK: status.FAILED_PRECONDITION,
  QUANTITY_OVERFLOW: status.OUT_OF_RANGE,
  ROLE_REQUIRED: status.PERMISSION_DENIED,
  QUEUE_FULL: status.RESOURCE_EXHAUSTED,
  DEADLINE_PASSED: status.DEADLINE_EXCEEDED,
  STOCK_UNAVAILABLE: status.UNAVAILABLE,
  OUTCOME_UNKNOWN: status.UNAVAILABLE,
  INTERNAL: status.INTERNAL,
} as const;
export type Reason = keyof typeof reasons;

/** Nothing has happened, and the same call can go well later. */
const repeatableReasons: ReadonlySet<Reason> = new Set(["QUEUE_FULL", "STOCK_UNAVAILABLE"]);

export interface RefusalOptions {
  /** What is known of the case, for programs. Its values reach the caller. */
  readonly metadata?: Readonly<Record<string, string>>;
  /** The field of the request that is at fault. */
  readonly field?: string;
  /** Whether the same call may be sent again; default: as the reason has it. */
  readonly isRepeatable?: boolean;
  readonly cause?: unknown;
}

/** A refusal with a reason and its gRPC status; `message` is meant for the caller. */
export class RpcError extends Error {
  readonly reason: Reason;
  readonly code: status;
  readonly metadata: Readonly<Record<string, string>>;
  readonly field: string | undefined;
  readonly isRepeatable: boolean;

  constructor(reason: Reason, message: string, options: RefusalOptions = {}) {
    super(message, { cause: options.cause });
    this.name = "RpcError";
    this.reason = reason;
    this.code = reasons[reason];
    this.metadata = options.metadata ?? {};
    this.field = options.field;
    this.isRepeatable = options.isRepeatable ?? repeatableReasons.has(reason);
  }
}

/** Gives anything that was thrown its reason. The cause of a fault of ours stays here. */
export function toRpcError(error: unknown): RpcError {
  if (error instanceof RpcError) return error;
  if (error instanceof QueueFullError || error instanceof TooManyWatchesError) {
    return new RpcError("QUEUE_FULL", error.message, { cause: error });
  }
  if (error instanceof ExpiredError) return new RpcError("DEADLINE_PASSED", error.message, { cause: error });
  if (error instanceof StockUnavailableError) return new RpcError("STOCK_UNAVAILABLE", error.message, { cause: error });
  if (error instanceof OutcomeUnknownError) return new RpcError("OUTCOME_UNKNOWN", error.message, { cause: error });
  return new RpcError("INTERNAL", "internal error", { cause: error });
}

/** Passes on the result of a call that may be sent again even when it is not known what became of it. */
export async function repeatable<T>(work: Promise<T>): Promise<T> {
  try {
    return await work;
  } catch (error) {
    if (!(error instanceof OutcomeUnknownError)) throw error;
    throw new RpcError("OUTCOME_UNKNOWN", error.message, { isRepeatable: true, cause: error });
  }
}

/** The form in which grpc-js sends an error, with its google.rpc details. */
export function toServiceError(error: RpcError): ServiceError {
  const metadata = new Metadata();
  metadata.set("grpc-status-details-bin", encodeDetails(error));
  return Object.assign(new Error(error.message), { code: error.code, details: error.message, metadata });
}

/** True when the fault is ours and belongs in the log as an error. */
export function isOurFault(code: status): boolean {
  return (
    code === status.INTERNAL || code === status.UNAVAILABLE || code === status.UNKNOWN || code === status.DATA_LOSS
  );
}
