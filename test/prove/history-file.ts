/** A history as lines of JSON, one for each operation, for judges that are not ours. */
import type { FailedRead } from "../faults/history.ts";
import type { History } from "../simulation/oracle.ts";

interface Entry {
  readonly petId: number;
  readonly quantity: number;
}

/** A state that the database has committed, by the clock of the database. */
interface Committed {
  readonly op: "commit";
  readonly at: number;
  readonly revision: string;
  /** The quantity of each entry that has changed, by petId. */
  readonly changed: Readonly<Record<string, number>>;
}

/** Something that a caller did. Times are milliseconds since the start of the run. */
export interface Operation {
  readonly call: number;
  readonly return: number;
  readonly op: "set" | "list" | "entry" | "changes";
  /** The status of the answer, or what became of the connection. */
  readonly answer: string;
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

/** What the callers of a history did, in the order of their calls, how the stock was before, and what became of it. */
export function operationsOf(
  { commits, changes, reads }: History,
  failedReads: readonly FailedRead[],
): {
  readonly start: Readonly<Record<string, number>>;
  readonly operations: readonly Operation[];
  readonly committed: readonly Committed[];
} {
  const sets = changes.flatMap(({ petId: pet, quantity = 0, attempts }, change) =>
    attempts.map(({ callMs, returnMs, outcome, answer = "" }): Operation => {
      const revision = outcome.kind === "done" ? { revision: `r${outcome.revision}` } : {};
      const times = { call: callMs, return: returnMs };
      return { ...times, op: "set", change, pet, quantity, answer, ...revision, outcome: outcome.kind };
    }),
  );
  const asked = ({ kind, callMs, returnMs, petIds, since }: (typeof reads)[number] | FailedRead) => ({
    call: callMs,
    return: returnMs,
    op: kind as Operation["op"],
    ...(petIds && { pet: petIds[0]! }),
    ...(since !== undefined && { since }),
  });
  const seen = reads.map((read): Operation => {
    const { kind, tag, body, status } = read;
    const shown = kind === "changes" ? (body as { changed: Entry[] }).changed : ([body].flat() as Entry[]);
    return { ...asked(read), answer: String(status), revision: tag, entries: quantities(shown), outcome: "done" };
  });
  const failed = failedReads.map((read): Operation => {
    return { ...asked(read), answer: read.answer, outcome: "unknown" };
  });
  const operations = [...sets, ...seen, ...failed].sort((a, b) => a.call - b.call);
  const [begun, ...after] = commits;
  const committed = after.map(({ atMs, epoch, revision, rows }): Committed => {
    return { op: "commit", at: atMs, revision: `${epoch.slice(0, 8)}-${revision}`, changed: quantities(rows) };
  });
  return { start: quantities(begun!.rows), operations, committed };
}

const quantities = (entries: readonly Entry[]) =>
  Object.fromEntries(entries.map(({ petId, quantity }) => [petId, quantity]));
