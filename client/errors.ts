/** The one error of the client. */
import { type ServiceError, status } from "@grpc/grpc-js";
import { ErrorInfo } from "../proto/gen/google/rpc/error_details.ts";
import { Status } from "../proto/gen/google/rpc/status.ts";

export type StatusName = keyof typeof status;

/**
 * A call that failed, in the client or in the service.
 *
 * After UNAVAILABLE, DEADLINE_EXCEEDED, CANCELLED, INTERNAL, UNKNOWN and DATA_LOSS it is not known whether a change has
 * happened, unless the reason is STOCK_UNAVAILABLE or DEADLINE_PASSED. After all others it has not.
 *
 * An adjustment is tried several times, and its error is that of the latest try. After any code of the first list,
 * whatever the reason, and after RESOURCE_EXHAUSTED, an earlier try may have made it: call again with the same
 * `requestId`.
 */
export class InventoryError extends Error {
  /** gRPC status, as `NOT_FOUND`. */
  readonly code: StatusName;
  /** What went wrong within that status, where the service says so: the reason of google.rpc.ErrorInfo. */
  readonly reason: string | undefined;
  /** What belongs to the reason: the metadata of google.rpc.ErrorInfo. */
  readonly details: Readonly<Record<string, string>>;

  constructor(code: StatusName, message: string, info?: ErrorInfo, cause?: unknown) {
    super(`${code}: ${message}`, { cause });
    this.name = "InventoryError";
    this.code = code;
    this.reason = info?.reason;
    this.details = info?.metadata ?? {};
  }
}

/** Makes an InventoryError of what a call of grpc-js threw. Anything else stays as it is. */
export function toInventoryError(error: unknown): unknown {
  const { code, details, metadata } = error as Partial<ServiceError>;
  const name = code === undefined ? undefined : (status[code] as StatusName | undefined);
  if (name === undefined) return error;
  // A request that cannot be encoded was not sent. grpc-js says so in words only.
  if (name === "INTERNAL" && details?.startsWith("Request message serialization failure")) {
    return new InventoryError("INVALID_ARGUMENT", details, undefined, error);
  }
  const [sent] = metadata?.get("grpc-status-details-bin") ?? [];
  return new InventoryError(name, details ?? "", Buffer.isBuffer(sent) ? readErrorInfo(sent) : undefined, error);
}

/**
 * The ErrorInfo of a google.rpc.Status.
 *
 * @returns undefined when there is none, or when the bytes are no such message: the status alone says enough
 */
function readErrorInfo(bytes: Uint8Array): ErrorInfo | undefined {
  try {
    const any = Status.decode(bytes).details.find(({ typeUrl }) => typeUrl.endsWith("/google.rpc.ErrorInfo"));
    return any && ErrorInfo.decode(any.value);
  } catch {
    return undefined;
  }
}
