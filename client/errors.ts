import { BinaryReader } from "@bufbuild/protobuf/wire";
import { type ServiceError, status } from "@grpc/grpc-js";

export type StatusName = keyof typeof status;

/**
 * A call that failed, here or there. After UNAVAILABLE, DEADLINE_EXCEEDED, CANCELLED and INTERNAL it is not known
 * whether a change has happened; after all others it has not.
 */
export class InventoryError extends Error {
  /** gRPC status, as `NOT_FOUND`. */
  readonly code: StatusName;
  /** What went wrong within that status, where the service tells: the reason of google.rpc.ErrorInfo. */
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

/** Gives what a call of grpc-js threw its type. Anything else stays as it is. */
export function toInventoryError(error: unknown): unknown {
  const { code, details, metadata } = error as Partial<ServiceError>;
  const name = code === undefined ? undefined : (status[code] as StatusName | undefined);
  if (name === undefined) return error;
  const [sent] = metadata?.get("grpc-status-details-bin") ?? [];
  return new InventoryError(name, details ?? "", Buffer.isBuffer(sent) ? readErrorInfo(sent) : undefined, error);
}

export interface ErrorInfo {
  readonly reason: string;
  readonly metadata: Record<string, string>;
}

/**
 * The first google.rpc.ErrorInfo of a google.rpc.Status.
 *
 * @returns undefined when there is none, or when the bytes are no such message: the status says enough without
 */
export function readErrorInfo(bytes: Uint8Array): ErrorInfo | undefined {
  try {
    for (const any of fields(bytes).get(3) ?? []) {
      const [url = empty] = fields(any).get(1) ?? [];
      if (!text(url).endsWith("/google.rpc.ErrorInfo")) continue;
      const info = fields(fields(any).get(2)?.[0] ?? empty);
      const entries = (info.get(3) ?? []).map(fields);
      return {
        reason: text(info.get(1)?.[0]),
        metadata: Object.fromEntries(entries.map((entry) => [text(entry.get(1)?.[0]), text(entry.get(2)?.[0])])),
      };
    }
  } catch {}
  return undefined;
}

const empty = new Uint8Array();
const text = (bytes: Uint8Array = empty) => Buffer.from(bytes).toString("utf8");

/** The length-delimited fields of a message by number: all that ErrorInfo is made of. */
function fields(message: Uint8Array): Map<number, Uint8Array[]> {
  const reader = new BinaryReader(message);
  const found = new Map<number, Uint8Array[]>();
  while (reader.pos < reader.len) {
    const [number, wireType] = reader.tag();
    if (wireType !== lengthDelimited) reader.skip(wireType);
    else found.set(number, [...(found.get(number) ?? []), reader.bytes()]);
  }
  return found;
}

const lengthDelimited = 2;
