/** A history as lines of JSON, one for each operation, for judges that are not ours. */
import type { History } from "../simulation/oracle.ts";

interface Entry {
  readonly petId: number;
  readonly quantity: number;
}

/** Something that a caller did. Times are milliseconds since the start of the run. */
export interface Operation {
  readonly call: number;
  readonly return: number;
  readonly op: "set" | "list" | "entry" | "changes";
  /** Of an update: it has the same number in each attempt. */
  readonly change?: number;
  readonly pet?: number;
  /** Of a read of changes: the tag that it gave. */
  readonly since?: string;
  readonly quantity?: number;
  /** Of an update: the revision that it made. Of a read: what its `ETag` names. */
  readonly revision?: string;
  /** Of a read: the quantity of each entry that it showed, by petId. */
  readonly entries?: Readonly<Record<string, number>>;
  /** `unknown`: no answer, or one after which the update may have been made. */
  readonly outcome: "done" | "refused" | "unknown";
}

/** What the callers of a history did, in the order of their calls, and how the stock was before. */
export function operationsOf({ commits, changes, reads }: History): {
  readonly start: Readonly<Record<string, number>>;
  readonly operations: readonly Operation[];
} {
  const sets = changes.flatMap(({ petId: pet, quantity = 0, attempts }, change) =>
    attempts.map(({ callMs, returnMs, outcome }): Operation => {
      const revision = outcome.kind === "done" ? { revision: `r${outcome.revision}` } : {};
      const times = { call: callMs, return: returnMs };
      return { ...times, op: "set", change, pet, quantity, ...revision, outcome: outcome.kind };
    }),
  );
  const seen = reads.map(({ kind, callMs, returnMs, tag, petIds, since, body }): Operation => {
    const shown = kind === "changes" ? (body as { changed: Entry[] }).changed : ([body].flat() as Entry[]);
    const pet = kind === "entry" ? { pet: petIds![0]! } : {};
    const times = { call: callMs, return: returnMs };
    return {
      ...times,
      op: kind as Operation["op"],
      ...pet,
      ...(since === undefined ? {} : { since }),
      revision: tag,
      entries: quantities(shown),
      outcome: "done",
    };
  });
  const operations = [...sets, ...seen].sort((a, b) => a.call - b.call);
  return { start: quantities(commits[0]!.rows), operations };
}

const quantities = (entries: readonly Entry[]) =>
  Object.fromEntries(entries.map(({ petId, quantity }) => [petId, quantity]));
