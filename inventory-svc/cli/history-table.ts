/** Prints changes of the past as a table for people. */
import { table } from "../../runtime/command-line.ts";
import type { Actor } from "../stock/change.ts";
import type { HistoryChange } from "../stock/stock-rows.ts";

/** The changes of an entry as a table with times in UTC; a line of text when there are none. */
export function historyTable(changes: readonly HistoryChange[]): string {
  return table(changes.map(cellsOf), "no changes of the entry are kept");
}

function cellsOf({ madeAtMs, revision, kind, before, after, origin, reason }: HistoryChange): Record<string, string> {
  return {
    TIME: new Date(madeAtMs).toISOString(),
    REVISION: String(revision),
    KIND: kind,
    QUANTITY: arrow(before, after, "quantity"),
    STATUS: arrow(before, after, "status"),
    BY: nameOf(origin.actor),
    REQUEST: origin.originRequestId ?? "-",
    REASON: reason ?? "-",
  };
}

type Then = HistoryChange["before"];

function arrow(before: Then, after: Then, member: keyof NonNullable<Then>): string {
  return `${before?.[member] ?? "-"} → ${after?.[member] ?? "-"}`;
}

function nameOf(actor: Actor): string {
  switch (actor.kind) {
    case "account":
      return `account ${actor.account}, ${actor.keyId}`;
    case "internal":
      return actor.name === undefined ? "internal" : `internal ${actor.role} ${actor.name}`;
    case "operator":
      return "operator";
  }
}
