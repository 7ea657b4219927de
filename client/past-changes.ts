/** Changes of the past as the service sends them. */
import type {
  EntryState,
  ListChangesRequest,
  PastChange as WirePastChange,
} from "../proto/gen/petstore/inventory/v1/inventory.ts";
import { type ChangeKind, fromWireKind, fromWireStatus, type PetStatus } from "../proto/pet.ts";
import { InventoryError } from "./inventory-error.ts";
import { checkArguments, checkInt64, checkInteger } from "./values.ts";

/** Which changes of the past are asked for. */
export interface HistoryQuestion {
  /** By default those of all entries. */
  readonly petId?: bigint | undefined;
  /** Only changes before this revision. The revision of a page's last change leads to the next page. */
  readonly beforeRevision?: bigint | undefined;
  /** 1 to 1,000; by default 100. An answer with fewer changes is the last page. */
  readonly limit?: number | undefined;
}

/** An entry before or after a change. */
export interface EntryThen {
  readonly quantity: number;
  readonly status: PetStatus;
}

/** The actor of a change: a consumer of the public API, a caller of the service by its certificate, or an operator. */
export type PastActor =
  | { readonly kind: "account"; readonly account: string; readonly keyId: string }
  | { readonly kind: "internal"; readonly role: string; readonly name: string }
  | { readonly kind: "operator" };

/** A change of the past. */
export interface PastChange {
  readonly petId: bigint;
  /** The revision that it made. */
  readonly revision: bigint;
  readonly kind: ChangeKind;
  /** Undefined when there was no entry before it. */
  readonly before: EntryThen | undefined;
  /** Undefined when there was no entry after it. */
  readonly after: EntryThen | undefined;
  /** By the clock of the database. */
  readonly madeAt: Date;
  readonly actor: PastActor;
  /** Why, as its caller said. */
  readonly reason: string | undefined;
  /** The id of the request that it was made for. */
  readonly originRequestId: string | undefined;
}

/** @throws InventoryError INVALID_ARGUMENT */
export function toWireQuestion(question: HistoryQuestion): ListChangesRequest {
  const { petId, beforeRevision, limit } = checkArguments(question, "petId", "beforeRevision", "limit");
  return {
    petId: petId === undefined ? undefined : checkInt64("petId", petId),
    beforeRevision,
    limit: limit === undefined ? 0 : checkInteger("limit", limit, 1, 1_000),
  };
}

/** @throws InventoryError for a kind, a status or an actor that this client does not know */
export function toPastChange(wire: WirePastChange): PastChange {
  const { petId, revision, reason, originRequestId } = wire;
  return {
    petId,
    revision,
    kind: known(fromWireKind(wire.kind)),
    before: wire.before && toEntryThen(wire.before),
    after: wire.after && toEntryThen(wire.after),
    madeAt: new Date(Number(wire.madeAtMs)),
    actor: toActor(known(wire.actor)),
    reason,
    originRequestId,
  };
}

function toEntryThen({ quantity, status }: EntryState): EntryThen {
  return { quantity, status: known(fromWireStatus(status)) };
}

function toActor(actor: NonNullable<WirePastChange["actor"]>): PastActor {
  return actor.$case === "operator" ? { kind: "operator" } : ({ kind: actor.$case, ...actor.value } as PastActor);
}

function known<T>(value: T | undefined): T {
  if (value !== undefined) return value;
  throw new InventoryError("INTERNAL", "the service sent a change that this client does not understand");
}
