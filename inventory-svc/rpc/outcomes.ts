import { status } from "@grpc/grpc-js";
import type { Outcome } from "../stock/changes.ts";
import type { StockItem } from "../stock/item.ts";
import { RpcError } from "./errors.ts";

/** The entry as the change left it. @throws RpcError with the status of a refusal */
export function settled(outcome: Outcome): StockItem {
  switch (outcome.kind) {
    case "done":
      return outcome.item;
    case "not_found":
      throw notFound();
    case "already_exists":
      throw new RpcError(status.ALREADY_EXISTS, "there is an entry with this pet_id already");
    case "revision_mismatch":
      throw new RpcError(status.ABORTED, `the entry is at revision ${outcome.item.revision}, not at expected_revision`);
  }
}

export function notFound(): RpcError {
  return new RpcError(status.NOT_FOUND, "there is no entry with this pet_id");
}
