/** Turns outcomes of changes into entries or refusals. */
import { type Item, maxQuantity } from "../../proto/pet.ts";
import type { Change, ChangeGroup, Outcome } from "../stock/change.ts";
import { RpcError } from "./rpc-error.ts";
import { requestIdOf } from "./wire.ts";

/** The result of a change that happened. */
export type Settled = Extract<Outcome, { kind: "done" | "replayed" }>;

/**
 * The outcome of a change that happened, with the entry as it left it. @throws RpcError with the reason of a refusal
 */
export function entryOrRefuse(change: Change, outcome: Outcome): Settled {
  switch (outcome.kind) {
    case "done":
    case "replayed":
      return outcome;
    case "not_found":
      throw notFound(change.petId);
    case "already_exists":
      throw new RpcError("ENTRY_EXISTS", "there is an entry with this pet_id already", {
        metadata: { pet_id: String(change.petId) },
      });
    case "revision_mismatch": {
      const { pet_id, revision } = describe(outcome.item);
      throw new RpcError("REVISION_MISMATCH", `the entry is at revision ${revision}, not at one that is expected`, {
        metadata: { pet_id, revision },
      });
    }
    case "insufficient_stock":
      throw new RpcError("INSUFFICIENT_STOCK", `there are only ${outcome.item.quantity} left`, {
        metadata: describe(outcome.item),
      });
    case "quantity_overflow":
      throw new RpcError(
        "QUANTITY_OVERFLOW",
        `there are ${outcome.item.quantity} already, and no more than ${maxQuantity} may be`,
        { metadata: describe(outcome.item) },
      );
    case "id_reused": {
      const requestId = requestIdOf(change);
      if (requestId === undefined) {
        throw new RpcError("KEY_REUSED", "the idempotency key was used for another request", {
          metadata: { pet_id: String(change.petId) },
          field: "idempotency_key",
        });
      }
      throw new RpcError("REQUEST_ID_REUSED", "request_id was used for other adjustments", {
        metadata: { request_id: requestId },
        field: "request_id",
      });
    }
    case "group_refused":
      throw new RpcError("GROUP_REFUSED", "another change of the group was refused");
  }
}

/** The outcomes of a group that is all or nothing. @throws RpcError of the change that was refused */
export function settledAll({ changes }: ChangeGroup, outcomes: readonly Outcome[]): readonly Settled[] {
  const refused = outcomes.findIndex(({ kind }) => kind !== "group_refused" && !isSettled(kind));
  if (refused !== -1) entryOrRefuse(changes[refused]!, outcomes[refused]!);
  return outcomes.map((outcome, i) => entryOrRefuse(changes[i]!, outcome));
}

function isSettled(kind: Outcome["kind"]): kind is Settled["kind"] {
  return kind === "done" || kind === "replayed";
}

export function notFound(petId: bigint): RpcError {
  return new RpcError("ENTRY_NOT_FOUND", "there is no entry with this pet_id", { metadata: { pet_id: String(petId) } });
}

function describe({ petId, revision, quantity }: Item) {
  return { pet_id: String(petId), revision: String(revision), quantity: String(quantity) };
}
