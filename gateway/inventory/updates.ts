/** Updates as the gateway asks for them, and what becomes of them. */
import { type ServiceError, status } from "@grpc/grpc-js";
import { toItem } from "../../client/item.ts";
import type { UpdateResult, Update as WireUpdate } from "../../proto/gen/petstore/inventory/v1/inventory.ts";
import type { Item } from "../../proto/pet.ts";
import type { Traceparent } from "../../runtime/spans.ts";
import { ApiError } from "../http/errors.ts";
import { NotDoneError, serviceError } from "./status.ts";

export interface Update {
  readonly petId: bigint;
  /** 0 to 2147483647. */
  readonly quantity: number;
  /** The update happens only if the entry is still at one of these revisions: 1 to 20. */
  readonly expectedRevisions?: readonly bigint[] | undefined;
}

/** Makes the updates of a request happen once: a repeat with the same key gets the first result. */
export interface IdempotencyKey {
  /** The account whose key it is. */
  readonly account: string;
  readonly key: string;
  /** Equal for repeats of one request, and different for every other request with this key. */
  readonly fingerprint: string;
}

/** Updates that a caller sends together. Each of them stands alone. */
export interface UpdateRequest {
  /** At least one. */
  readonly updates: readonly Update[];
  readonly once?: IdempotencyKey | undefined;
  readonly traceparent?: Traceparent;
}

/** An entry as an update left it. */
export interface Updated extends Item {
  /** An earlier request with the same key made the update. */
  readonly isReplayed: boolean;
}

/**
 * What became of an update: its entry, once that is durable, or an error. After a NotDoneError or a refusal of the
 * service the update has certainly not happened. After UNAVAILABLE, DEADLINE_EXCEEDED, CANCELLED or INTERNAL it may not
 * be known whether it happened.
 */
export type UpdateOutcome = Updated | NotDoneError | ServiceError | ApiError;

/** An update for the service, without what the stream adds. */
export function toWireUpdate({ petId, quantity, expectedRevisions = [] }: Update) {
  const [expectedRevision, ...furtherExpectedRevisions] = expectedRevisions;
  return { petId, quantity, expectedRevision, furtherExpectedRevisions } satisfies Partial<WireUpdate>;
}

/** The service's reasons after which it is not known whether an update happened. After all others it has not. */
const unknownReasons: ReadonlySet<string> = new Set(["OUTCOME_UNKNOWN", "INTERNAL"]);

/** Reads the result of an update that was sent. */
export function readResult(result: UpdateResult): { readonly outcome: UpdateOutcome; readonly isKnown: boolean } {
  const { item, code, message, reason, replayed } = result;
  if (reason === "KEY_REUSED") return { outcome: new ApiError("idempotency_key_reused"), isKnown: true };
  if (!item) {
    const isKnown = !unknownReasons.has(reason);
    const isUndone = isKnown && code === status.UNAVAILABLE;
    return { outcome: isUndone ? new NotDoneError(message) : serviceError(code, message), isKnown };
  }
  try {
    return { outcome: { ...toItem(item), isReplayed: replayed }, isKnown: true };
  } catch (error) {
    // An entry that this gateway cannot read.
    return { outcome: serviceError(status.INTERNAL, (error as Error).message), isKnown: false };
  }
}
