/** The one error of the client. */
import { type ServiceError, status } from "@grpc/grpc-js";
import { ErrorInfo } from "../proto/gen/google/rpc/error_details.ts";
import { Status } from "../proto/gen/google/rpc/status.ts";
import type { ErrorReason } from "../proto/reasons.ts";
import { connectionFault } from "./connection-fault.ts";

export type StatusName = keyof typeof status;

/**
 * What a reason tells of the change that failed. `decided`: the service refused it, so it has not happened. Of a change
 * with a key or a request id, the service first looked for an earlier attempt and found none. `undone`: it has not
 * happened, and nothing is known of an earlier attempt.
 */
const tellings: Readonly<Record<ErrorReason | "NOT_SENT", "decided" | "undone" | "unknown">> = {
  INVALID_FIELD: "undone",
  REQUEST_ID_REUSED: "decided",
  KEY_REUSED: "decided",
  ENTRY_NOT_FOUND: "decided",
  ENTRY_EXISTS: "undone", // a creation leaves no record: the entry may be that of an earlier attempt
  REVISION_MISMATCH: "decided",
  INSUFFICIENT_STOCK: "decided",
  QUANTITY_OVERFLOW: "decided",
  GROUP_REFUSED: "decided",
  HISTORY_OFF: "undone",
  ROLE_REQUIRED: "undone",
  QUEUE_FULL: "undone",
  DEADLINE_PASSED: "undone",
  STOCK_UNAVAILABLE: "undone",
  OUTCOME_UNKNOWN: "unknown",
  INTERNAL: "unknown",
  NOT_SENT: "undone",
};

/** A call that failed, in the client or in the service. */
export class InventoryError extends Error {
  /** gRPC status, as `NOT_FOUND`. */
  readonly code: StatusName;
  /**
   * What went wrong within that status: the reason of google.rpc.ErrorInfo where the service gives one. The client
   * itself gives `NOT_SENT` when no service took the call (of a read, its last attempt), `QUEUE_FULL` when too many
   * changes wait in it, and `INTERNAL` for an entry that it cannot read.
   */
  readonly errorReason: string | undefined;
  /** What belongs to the reason: the metadata of google.rpc.ErrorInfo. */
  readonly details: Readonly<Record<string, string>>;

  constructor(
    code: StatusName,
    message: string,
    info?: Pick<ErrorInfo, "reason"> & Partial<ErrorInfo>,
    cause?: unknown,
  ) {
    super(`${code}: ${message}`, { cause });
    this.name = "InventoryError";
    this.code = code;
    this.errorReason = info?.reason;
    this.details = info?.metadata ?? {};
  }

  /**
   * Whether a change may have happened although its call failed. Once its caller has the error, the service starts no
   * update or adjustment any more; one that it has started may still commit, and a later change waits for it.
   *
   * It tells nothing of a read. It goes by the reason alone: grpc-js and proxies make statuses of their own when a
   * stream is lost, and some of them read like a refusal.
   */
  get mayHaveHappened(): boolean {
    return (tellings[this.errorReason as ErrorReason] ?? "unknown") === "unknown";
  }

  /**
   * Whether the service decided against the change, which has not happened. If the change happens once, no earlier
   * attempt that had ended by then has happened either.
   */
  get isDecided(): boolean {
    return tellings[this.errorReason as ErrorReason] === "decided";
  }
}

/** Makes the error of a call that was not sent, or that no service took: nothing has happened. */
export function notSent(message: string, cause?: unknown, code: StatusName = "UNAVAILABLE"): InventoryError {
  return new InventoryError(code, message, { reason: "NOT_SENT" }, cause);
}

/** Makes an InventoryError of a refusal that came as a message. */
export function refusalOf({ code, message, details }: Status): InventoryError {
  return new InventoryError(
    (status[code] as StatusName | undefined) ?? "UNKNOWN",
    message,
    errorInfoOf(() => details),
  );
}

/** Makes an InventoryError of what a call threw. */
export function toInventoryError(error: unknown): InventoryError {
  if (error instanceof InventoryError) return error;
  const { code, details, metadata } = error as Partial<ServiceError>;
  const name = code === undefined ? undefined : (status[code] as StatusName | undefined);
  if (name === undefined) return new InventoryError("UNKNOWN", (error as Error).message, undefined, error);
  // A request that cannot be encoded was not sent. grpc-js says so in words only.
  if (name === "INTERNAL" && details?.startsWith("Request message serialization failure")) {
    return notSent(details, error, "INVALID_ARGUMENT");
  }
  const [sent] = metadata?.get("grpc-status-details-bin") ?? [];
  // grpc-js says this only of a call that it gave to no connection.
  const fault = sent === undefined ? connectionFault(details ?? "") : undefined;
  if (fault) return notSent(fault.text, error, name);
  return new InventoryError(
    name,
    details ?? "",
    Buffer.isBuffer(sent) ? errorInfoOf(() => Status.decode(sent).details) : undefined,
    error,
  );
}

/**
 * Makes the error of a call or a stream that was under way. An error with a reason stays as it is. One without a reason
 * counts as a loss of the call, whatever status grpc-js or a proxy has made of that.
 *
 * @param losses the statuses of a loss; by default all
 */
export function toRefusalOrLoss(cause: unknown, losses?: readonly StatusName[]): InventoryError {
  const error = toInventoryError(cause);
  if (error.errorReason !== undefined || losses?.includes(error.code) === false) return error;
  return new InventoryError("UNAVAILABLE", error.message.replace(/^UNAVAILABLE: /, ""), undefined, cause);
}

/** @returns undefined when there is none, or when it cannot be read: a change may then have happened */
function errorInfoOf(details: () => Status["details"]): ErrorInfo | undefined {
  try {
    const any = details().find(({ typeUrl }) => typeUrl.endsWith("/google.rpc.ErrorInfo"));
    return any && ErrorInfo.decode(any.value);
  } catch {
    return undefined;
  }
}
