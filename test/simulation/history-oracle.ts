/** Judges the answers about the history of an entry. */
import type { AskedChange, Read } from "./oracle.ts";

/** A change of an entry as the API shows it. */
export interface PastChange {
  readonly etag: string;
  readonly at: string;
  readonly kind: string;
  readonly quantityBefore: number | null;
  readonly quantityAfter: number | null;
  readonly statusBefore: string | null;
  readonly statusAfter: string | null;
  readonly by: "you" | "other" | "internal" | "operator";
  readonly keyId?: string;
  readonly requestId: string | null;
  readonly reason: string | null;
}

/** Pages of the past of an entry, the newest change first. */
interface PastChanges {
  readonly changes: readonly PastChange[];
  /** Whether these are all changes that are kept. */
  readonly isWhole: boolean;
}

interface State {
  readonly revision: bigint;
  readonly quantity: number;
  readonly status: string;
  readonly removed: boolean;
}

/** Whether a change has made an entry, has removed it or has left it one, as its kind says. */
function isOfItsKind({ kind, quantityBefore, quantityAfter, statusBefore, statusAfter }: PastChange): boolean {
  switch (kind) {
    case "create":
      return quantityBefore === null && quantityAfter !== null;
    case "remove":
      return quantityBefore !== null && quantityAfter === null;
    case "status":
      return quantityBefore === quantityAfter && statusBefore !== statusAfter;
    case "set":
    case "adjust":
      return quantityBefore !== null && quantityAfter !== null && statusBefore === statusAfter;
    default:
      return kind === "import" && quantityAfter !== null;
  }
}

const revisionOf = ({ etag }: Pick<PastChange, "etag">): bigint => BigInt(etag.slice(2, -1));

/**
 * @param known the latest revision of the entry that was known before the read
 * @returns why the changes of an entry are not those that have made its states
 */
export function historyFault({ body }: Read, states: readonly State[], known: bigint): string | undefined {
  const { changes, isWhole } = body as PastChanges;
  const odd = changes.find((change) => !isOfItsKind(change));
  if (odd) return `${odd.etag} as ${odd.kind}`;
  const newest = changes[0] ? revisionOf(changes[0]) : 0n;
  if (newest < known) return `nothing of r${known}, which was known before`;
  for (const [i, change] of changes.entries()) {
    const revision = revisionOf(change);
    const state = states.find((one) => one.revision === revision);
    const after = state && (state.removed ? { quantity: null, status: null } : state);
    if (after && (after.quantity !== change.quantityAfter || after.status !== change.statusAfter)) {
      return `another r${revision}`;
    }
    const next = changes[i - 1];
    if (!next) continue;
    const follows = next.quantityBefore === change.quantityAfter && next.statusBefore === change.statusAfter;
    if (!follows || revisionOf(next) <= revision) return `${next.etag} does not follow ${change.etag}`;
  }
  // Nothing comes before the change that has made the entry, and something before any other.
  const [first] = changes.slice(-1);
  if (isWhole && first && first.quantityBefore !== null) return `nothing before ${first.etag}`;
  return undefined;
}

/**
 * @param asked what the caller has asked for, by the id of the request
 * @param keys the keys with which it has asked
 * @returns why a change of the past is not one of its caller, or tells too much of another one
 */
export function authorFault(
  { by, keyId, requestId, reason, kind, quantityBefore, quantityAfter }: PastChange,
  petId: number,
  asked: ReadonlyMap<string, readonly AskedChange[]>,
  keys: { readonly keyIdOf: (requestId: string) => string | undefined },
): string | undefined {
  const ids = [keyId ?? null, requestId, reason];
  if (by !== "you") return ids.every((id) => id === null) ? undefined : `${by} with ${ids}`;
  const change = asked.get(requestId ?? "")?.find((one) => one.petId === petId);
  if (!change) return `${requestId} has not asked for it`;
  if (change.kind !== kind) return `${requestId} as ${kind}`;
  if (keys.keyIdOf(requestId!) !== keyId) return `${requestId} with the key ${keyId}`;
  if (change.reason !== (reason ?? undefined)) return `${requestId} with the reason ${reason}, not ${change.reason}`;
  const isEffect =
    change.kind === "adjust"
      ? Number(quantityAfter) - Number(quantityBefore) === change.delta
      : quantityAfter === change.quantity;
  return isEffect ? undefined : `${requestId} with another effect`;
}

/**
 * @param asked what the caller has asked for, by the id of the request
 * @param unixMs times of the run as the clock of the day shows them
 * @returns why a change of the past was not made at its time: it is older than its request, or of the future
 */
export function timeFault(
  { at, requestId }: PastChange,
  asked: ReadonlyMap<string, readonly AskedChange[]>,
  unixMs: { readonly now: number; readonly start: number },
): string | undefined {
  const atMs = Date.parse(at);
  const [first] = asked.get(requestId ?? "")?.flatMap(({ attempts }) => attempts) ?? [];
  const isEarly = first !== undefined && atMs < unixMs.start + Math.floor(first.callMs);
  return isEarly || atMs > unixMs.now ? `made at ${atMs - unixMs.start}` : undefined;
}
