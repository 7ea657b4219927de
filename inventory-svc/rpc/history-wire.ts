/** Converts questions about the history from messages, and changes of the ledger to messages. */
import type {
  EntryState,
  ListChangesRequest,
  PastChange as WirePastChange,
} from "../../proto/gen/petstore/inventory/v1/inventory.ts";
import { toWireKind, toWireStatus } from "../../proto/pet.ts";
import type { Actor } from "../stock/change.ts";
import type { HistoryChange } from "../stock/stock-rows.ts";
import { invalid } from "./wire.ts";

const defaultLimit = 100;
const maxLimit = 1_000;

/** Reads how many changes are asked for. @throws RpcError INVALID_FIELD */
export function readHistoryLimit({ limit }: ListChangesRequest): number {
  if (limit > maxLimit) throw invalid("limit", `must be from 1 to ${maxLimit}`);
  return limit || defaultLimit;
}

export function toWirePastChange(change: HistoryChange): WirePastChange {
  const { petId, revision, reason, origin } = change;
  return {
    petId,
    revision,
    kind: toWireKind(change.kind),
    before: toWireState(change.before),
    after: toWireState(change.after),
    madeAtMs: BigInt(change.madeAtMs),
    reason,
    originRequestId: origin.originRequestId,
    actor: toWireActor(origin.actor),
  };
}

function toWireState(state: HistoryChange["before"]): EntryState | undefined {
  return state && { quantity: state.quantity, status: toWireStatus(state.status) };
}

function toWireActor(actor: Actor): WirePastChange["actor"] {
  switch (actor.kind) {
    case "account":
      return { $case: "account", value: { account: actor.account, keyId: actor.keyId } };
    case "internal":
      return { $case: "internal", value: { role: actor.role ?? "", name: actor.name ?? "" } };
    case "operator":
      return { $case: "operator", value: {} };
  }
}
