/** The one error of the client. */
import { type ServiceError, status } from "@grpc/grpc-js";
import { ErrorInfo } from "../proto/gen/google/rpc/error_details.ts";
import { Status } from "../proto/gen/google/rpc/status.ts";
import { connectionFault } from "./connection-fault.ts";

export type StatusName = keyof typeof status;

/** After these codes it is not known whether a change has happened, unless the reason says so. */
const unknownCodes: ReadonlySet<StatusName> = new Set([
  "UNAVAILABLE",
  "DEADLINE_EXCEEDED",
  "CANCELLED",
  "INTERNAL",
  "UNKNOWN",
  "DATA_LOSS",
]);

/** Reasons that prove, despite such a code, that the change has not happened. */
const undoneReasons: ReadonlySet<string | undefined> = new Set(["STOCK_UNAVAILABLE", "DEADLINE_PASSED", "NOT_SENT"]);

/** A call that failed, in the client or in the service. */
export class InventoryError extends Error {
  /** gRPC status, as `NOT_FOUND`. */
  readonly code: StatusName;
  /**
   * What went wrong within that status: the reason of google.rpc.ErrorInfo where the service says so, and `NOT_SENT`
   * where the client has not sent the call.
   */
  readonly reason: string | undefined;
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
    this.reason = info?.reason;
    this.details = info?.metadata ?? {};
  }

  /**
   * Whether a change may have happened although its call failed. An update or an adjustment that has not happened by
   * now will not happen later either.
   */
  get mayHaveHappened(): boolean {
    return unknownCodes.has(this.code) && !undoneReasons.has(this.reason);
  }
}

/** Makes the error of a call that was not sent, so that nothing has happened. */
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
    return new InventoryError("INVALID_ARGUMENT", details, undefined, error);
  }
  const [sent] = metadata?.get("grpc-status-details-bin") ?? [];
  return new InventoryError(
    name,
    connectionFault(details ?? "")?.text ?? details ?? "",
    Buffer.isBuffer(sent) ? errorInfoOf(() => Status.decode(sent).details) : undefined,
    error,
  );
}

/** @returns undefined when there is none, or when it cannot be read: the code alone says enough */
function errorInfoOf(details: () => Status["details"]): ErrorInfo | undefined {
  try {
    const any = details().find(({ typeUrl }) => typeUrl.endsWith("/google.rpc.ErrorInfo"));
    return any && ErrorInfo.decode(any.value);
  } catch {
    return undefined;
  }
}
