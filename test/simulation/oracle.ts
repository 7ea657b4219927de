/**
 * Judges a history by revisions: what callers were told against what the database has committed.
 *
 * Each commit is a state of the stock, in one order. A read names its state by its `ETag`, and has to show exactly that
 * state, which is not older than anything that was known before the read began and not newer than its end. Each state
 * of an entry has to be the effect of exactly one change that was asked for.
 */

import { historyFault } from "./history-oracle.ts";
import { refusals } from "./refusal-oracle.ts";

export interface Version {
  readonly petId: number;
  readonly revision: bigint;
  readonly quantity: number;
  readonly status: string;
  readonly removed: boolean;
}

/** The stock after a commit. */
export interface Commit {
  readonly atMs: number;
  readonly epoch: string;
  readonly revision: bigint;
  /** The entries that changed; all of them after a restore. */
  readonly rows: readonly Version[];
  readonly isRestore: boolean;
}

/** A change that a caller asks for, perhaps several times. */
export interface AskedChange {
  readonly kind: "set" | "adjust" | "create" | "remove" | "status";
  readonly petId: number;
  readonly quantity?: number | undefined;
  readonly delta?: number | undefined;
  readonly status?: string | undefined;
  readonly expected?: bigint | undefined;
  /** Whether its entry may be as it wants it: then another change has made what it finds. */
  readonly mayFind?: boolean;
  /** Whether it may be made after its failure was answered, as a call outside of a session: `docs/guarantees.md`. */
  readonly mayBeLate?: boolean;
  /** Why, for the history. */
  readonly reason?: string | undefined;
  /** The change whose key it has, too: when that was made, this one must not be. */
  readonly reuses?: AskedChange | undefined;
  /** The changes that are made with it, all or none. */
  readonly group?: readonly AskedChange[] | undefined;
  readonly attempts: Attempt[];
}

export interface Attempt {
  readonly callMs: number;
  returnMs: number;
  /** `unknown`: no answer, or one after which it may have happened. */
  outcome:
    | { readonly kind: "done"; readonly revision: bigint; readonly quantity?: number; readonly status?: string }
    | { readonly kind: "refused"; readonly code: string }
    | { readonly kind: "unknown"; readonly isAnswered: boolean };
  /** The status, or what became of the connection, for those who read the history. */
  readonly answer?: string;
}

/** A read that was answered. */
export interface Read {
  readonly kind: "list" | "part" | "entry" | "history" | "changes" | "watch";
  readonly callMs: number;
  readonly returnMs: number;
  readonly status: number;
  /** Of the answer: `4f2c9a01-318` or `r317`; empty for an entry that is not there. */
  readonly tag: string;
  readonly body: unknown;
  /** The entry, or the entries of a part. */
  readonly petIds?: readonly number[];
  /** The tag of the list that changes were asked for. */
  readonly since?: string;
  /** How long it may wait for a change. */
  readonly waitMs?: number;
}

export interface History {
  readonly commits: readonly Commit[];
  readonly changes: readonly AskedChange[];
  readonly reads: readonly Read[];
  /** When removals up to a revision began to be forgotten; none where they are kept. */
  readonly floors?: readonly { readonly atMs: number; readonly revision: bigint }[];
}

/** @returns what contradicts the promises; nothing for a good history */
export function judge(history: History): string[] {
  return new Judge(history).violations;
}

interface Placed extends Version {
  /** The commit that made it. */
  readonly at: number;
}

class Judge {
  readonly violations: string[] = [];
  readonly #commits: readonly Commit[];
  readonly #restoresMs: readonly number[];
  readonly #floors: NonNullable<History["floors"]>;
  readonly #byTag = new Map<string, number>();
  readonly #states = new Map<number, Placed[]>();
  /** The same states by petId and revision. */
  readonly #byRevision = new Map<string, Placed[]>();
  /** Answers by the time of their return: what was known from then on. */
  readonly #known: { readonly returnMs: number; readonly at: number }[] = [];

  constructor({ commits, changes, reads, floors = [] }: History) {
    this.#commits = commits;
    this.#floors = floors;
    this.#restoresMs = commits.flatMap(({ isRestore, atMs }) => (isRestore ? atMs : []));
    for (const [at, { epoch, revision, rows, isRestore }] of commits.entries()) {
      const tag = `${epoch.slice(0, 8)}-${revision}`;
      if (this.#byTag.has(tag)) this.#fail(`the revision ${tag} was used twice`);
      else this.#byTag.set(tag, at);
      if (isRestore)
        for (const [petId, states] of this.#states) this.#place(at, { ...states.at(-1)!, petId, removed: true });
      for (const row of rows) this.#place(at, row);
    }
    for (const change of changes) this.#learnChange(change);
    for (const read of reads) this.#known.push({ returnMs: read.returnMs, at: this.#placeOf(read) ?? 0 });
    this.#known.sort((a, b) => a.returnMs - b.returnMs);
    let latest = 0;
    for (const [i, { returnMs, at }] of this.#known.entries()) {
      latest = Math.max(latest, at);
      this.#known[i] = { returnMs, at: latest };
    }
    for (const read of reads) this.#judgeRead(read);
    this.#judgeChanges(changes);
  }

  #fail(what: string): void {
    this.violations.push(what);
  }

  #place(at: number, row: Version): void {
    const placed = { ...row, at };
    add(this.#states, row.petId, placed);
    add(this.#byRevision, `${row.petId} ${row.revision}`, placed);
  }

  /** The latest state of an entry after a commit, a removed one included. */
  #latestOf(petId: number, at: number): Placed | undefined {
    const states = this.#states.get(petId) ?? [];
    return states[firstNot(states.length, (i) => states[i]!.at <= at) - 1];
  }

  /** The states of entries after a commit that came after a revision, removed ones included. */
  #changedAfter(after: bigint, at: number): Placed[] {
    const latest = [...this.#states.keys()].flatMap((petId) => this.#latestOf(petId, at) ?? []);
    return latest.filter(({ revision }) => revision > after);
  }

  /** The state of an entry after a commit; undefined when it is not there. */
  #stateOf(petId: number, at: number): Placed | undefined {
    const found = this.#latestOf(petId, at);
    return found?.removed ? undefined : found;
  }

  /** The commit that an acknowledged revision is part of. */
  #commitOf(revision: bigint, returnMs: number): number | undefined {
    const first = firstNot(this.#commits.length, (i) => i === 0 || this.#commits[i]!.revision < revision);
    const at = this.#commits[first]?.isRestore ? first + 1 : first;
    return at < this.#commits.length && this.#commits[at]!.atMs <= returnMs ? at : undefined;
  }

  #learnChange({ attempts }: AskedChange): void {
    for (const { returnMs, outcome } of attempts) {
      if (outcome.kind !== "done") continue;
      const at = this.#commitOf(outcome.revision, returnMs);
      if (at !== undefined) this.#known.push({ returnMs, at });
    }
  }

  #placeOf({ kind, tag, petIds, returnMs }: Read): number | undefined {
    if (kind !== "entry") return this.#byTag.get(tag);
    const states = this.#byRevision.get(`${petIds![0]} ${tag.slice(1) || 0}`) ?? [];
    return states.find((state) => this.#isBefore(state.at, returnMs))?.at;
  }

  #isBefore(at: number, timeMs: number): boolean {
    return this.#commits[at]!.atMs <= timeMs;
  }

  /** The newest state that was known before a time, and the newest that there was at another. */
  #window(callMs: number, returnMs: number): readonly [number, number] {
    const known = firstNot(this.#known.length, (i) => this.#known[i]!.returnMs < callMs);
    const to = firstNot(this.#commits.length, (i) => this.#commits[i]!.atMs <= returnMs) - 1;
    return [known === 0 ? 0 : this.#known[known - 1]!.at, to];
  }

  #judgeRead(read: Read): void {
    const { kind, callMs, returnMs, tag, petIds, since } = read;
    const [from, to] = this.#window(callMs, returnMs);
    const fault =
      kind === "entry"
        ? this.#entryFault(read, from, to)
        : kind === "history"
          ? this.#historyFault(read, from, to)
          : this.#listFault(read, from, to);
    if (fault === undefined) return;
    const what = `${kind} ${petIds ?? since ?? ""} of ${callMs.toFixed(0)} to ${returnMs.toFixed(0)}`;
    this.#fail(`${what} got ${tag}: ${fault}`);
  }

  /** @returns why an entry was not at that state at any time of the read */
  #entryFault({ status, tag, body, petIds }: Read, from: number, to: number): string | undefined {
    const states: (Placed | undefined)[] = [];
    for (let at = from; at <= to; at++) states.push(this.#stateOf(petIds![0]!, at));
    if (status === 404) return states.includes(undefined) ? undefined : "it was there all the time";
    const state = states.find((one) => one && `r${one.revision}` === tag);
    if (!state) return `its states of that time are ${states.map((one) => one && `r${one.revision}`)}`;
    return status === 200 ? difference(body, render(state)) : undefined;
  }

  /** @returns why the changes of an entry, the newest first, are not those that have made its states */
  #historyFault(read: Read, from: number, to: number): string | undefined {
    if (this.#commits.slice(from + 1, to + 1).some(({ isRestore }) => isRestore)) return undefined;
    const states = this.#states.get(read.petIds![0]!) ?? [];
    return historyFault(read, states, states.findLast(({ at }) => at <= from)?.revision ?? 0n);
  }

  /** @returns why the answer about all entries, or some, is not that of its state, or the state not one of that time */
  #listFault({ kind, status, tag, body, petIds, since, returnMs }: Read, from: number, to: number): string | undefined {
    if (status === 410) {
      const epochs = this.#commits.slice(from, to + 1).map(({ epoch }) => epoch.slice(0, 8));
      const isOfEpoch = epochs.every((epoch) => since!.startsWith(epoch)) && this.#byTag.has(since!);
      if (!isOfEpoch || revisionIn(since!) < this.#floorAt(returnMs)) return undefined;
      // Nor are more changes told than there are entries.
      for (let at = from; at <= to; at++) if (this.#isLong(revisionIn(since!), at)) return undefined;
      return "no reason for 410";
    }
    const at = this.#byTag.get(tag);
    if (at === undefined) return "there was no such state";
    if (at < from && kind !== "watch") return `older than ${this.#tagOf(from)}, which was known before`;
    if (at > to) return `newer than ${this.#tagOf(to)}, the latest commit`;
    if (status === 304) return undefined;
    if (kind === "changes" || kind === "watch") {
      const known = this.#byTag.get(since!);
      const isPast = known !== undefined && known <= at && since!.split("-")[0] === tag.split("-")[0];
      return isPast ? difference(body, this.#changesBetween(since!, at)) : "changes since what is not its past";
    }
    const all = [...this.#states.keys()].sort((a, b) => a - b);
    const asked = kind === "list" ? all : all.filter((petId) => petIds!.includes(petId));
    const present = asked.flatMap((petId) => this.#stateOf(petId, at) ?? []);
    return difference(body, present.map(render));
  }

  /** The body that tells what has changed between a tag and a state. */
  #changesBetween(since: string, at: number): object {
    const changed = this.#changedAfter(revisionIn(since), at).sort((a, b) => a.petId - b.petId);
    return {
      etag: `"${this.#tagOf(at)}"`,
      changed: changed
        .filter(({ removed }) => !removed)
        .map((state) => ({ ...render(state), etag: `"r${state.revision}"` })),
      removed: changed.filter(({ removed }) => removed).map(({ petId }) => petId),
    };
  }

  /** Whether more has changed after a revision than there are entries in a state. */
  #isLong(after: bigint, at: number): boolean {
    const entries = this.#changedAfter(-1n, at).filter(({ removed }) => !removed);
    return this.#changedAfter(after, at).length > entries.length;
  }

  /** Removals up to this revision may be forgotten by then. */
  #floorAt(timeMs: number): bigint {
    return this.#floors.findLast(({ atMs }) => atMs <= timeMs)?.revision ?? 0n;
  }

  #tagOf(at: number): string {
    const { epoch, revision } = this.#commits[at]!;
    return `${epoch.slice(0, 8)}-${revision}`;
  }

  #judgeChanges(changes: readonly AskedChange[]): void {
    /** The changes that were acknowledged with a revision of an entry. */
    const claims = new Map<string, AskedChange[]>();
    for (const change of changes) {
      this.#claim(change, claims);
      for (const attempt of change.attempts) this.#judgeRefusal(change, attempt);
    }
    const isOpen = ({ callMs, returnMs, outcome }: Attempt) =>
      outcome.kind === "unknown" || this.#eraAt(callMs) < this.#eraAt(returnMs);
    const free = changes.filter(({ attempts }) => attempts.some(isOpen));
    const used = new Set<string>();
    for (const [petId, states] of this.#states) {
      for (const [i, state] of states.entries()) {
        if (state.quantity < 0) this.#fail(`entry ${petId} has ${state.quantity}`);
        const { isRestore, atMs } = this.#commits[state.at]!;
        if (state.at === 0 || isRestore) continue;
        const before = states[i - 1];
        if (before && isSame(before, state) && !this.#hidesStates(state.at))
          this.#fail(`entry ${petId} is as it was at ${state.revision}`);
        const claimed = claims.get(`${petId} ${state.revision}`);
        if (claimed && this.#judgeEffect(claimed, state, before)) continue;
        const era = this.#eraAt(atMs);
        const isPossible = (change: AskedChange, place: number) =>
          change.petId === petId && !used.has(`${place} ${era}`) && this.#mayHaveHappened(change, era, atMs);
        let makers = free.filter((change, place) => isPossible(change, place) && hasEffect(change, before, state));
        // What a change has found that no commit shows is not known.
        if (makers.length === 0 && this.#hidesStates(state.at))
          makers = free.filter((change, place) => isPossible(change, place) && mayLeave(change, state));
        // Of several that want the same, one that breaks no promise with it has made it.
        const faultsOf = (change: AskedChange) => [
          ...this.#halves(change, state),
          ...this.#undone(change, state, changes),
        ];
        const maker = makers.find((change) => faultsOf(change).length === 0) ?? makers[0];
        if (!maker) {
          this.#fail(
            `entry ${petId} has revision ${state.revision} (${state.quantity}) by no change that may have made it`,
          );
          continue;
        }
        used.add(`${free.indexOf(maker)} ${era}`);
        for (const fault of faultsOf(maker)) this.#fail(fault);
      }
    }
  }

  /** A refusal that blames the caller is true at some time between the request and its answer. */
  #judgeRefusal(change: AskedChange, { callMs, returnMs, outcome }: Attempt): void {
    if (outcome.kind !== "refused" || !(outcome.code in refusals)) return;
    const [from, to] = this.#window(callMs, returnMs);
    const { group = [change] } = change;
    for (let at = from; at <= to; at++) {
      if (at > from && this.#hidesStates(at)) return; // the reason may be a state that is not shown
      if (group.some((one) => refusals[outcome.code]!(one, this.#stateOf(one.petId, at)))) return;
    }
    const what = `${change.kind} ${change.delta ?? change.quantity ?? ""} of ${change.petId}`;
    this.#fail(`${what} at ${callMs.toFixed(0)} was refused with ${outcome.code} for no reason`);
  }

  /** Whether an entry had states between two commits that no commit shows. */
  #hidesStates(at: number): boolean {
    const { revision, rows, isRestore } = this.#commits[at]!;
    return !isRestore && revision - this.#commits[at - 1]!.revision !== BigInt(rows.length);
  }

  /** Whether a change may have been made by then, without an acknowledgement that is still true. */
  #mayHaveHappened({ attempts }: AskedChange, era: number, atMs: number): boolean {
    const doneIn = attempts.flatMap(({ outcome, returnMs }) => (outcome.kind === "done" ? this.#eraAt(returnMs) : []));
    if (doneIn.includes(era)) return false;
    // One that was done, and lost with a restore, may have been done again by the same attempt, or refused then.
    const maySo = ({ outcome, returnMs }: Attempt) => outcome.kind !== "refused" || era < this.#eraAt(returnMs);
    return attempts.some((attempt) => attempt.callMs <= atMs && maySo(attempt));
  }

  /** What is made all or none leaves no entry as it was. @returns what it left */
  #halves({ group = [] }: AskedChange, state: Placed): string[] {
    if (this.#hidesStates(state.at)) return [];
    const { rows } = this.#commits[state.at]!;
    const missing = group.filter(({ petId }) => rows.every((row) => row.petId !== petId));
    return missing.map(({ petId }) => `entry ${state.petId} was adjusted at ${state.revision} without ${petId}`);
  }

  /** How often the stock was restored by then. What was lost with that may be done again. */
  #eraAt(timeMs: number): number {
    return this.#restoresMs.filter((atMs) => atMs <= timeMs).length;
  }

  /** Every acknowledged revision of a change has to be there. */
  #claim(change: AskedChange, claims: Map<string, AskedChange[]>): void {
    let first: { readonly revision: bigint; readonly era: number } | undefined;
    for (const { callMs, returnMs, outcome } of change.attempts) {
      if (outcome.kind !== "done") continue;
      const { revision, quantity, status } = outcome;
      const what = `${change.kind} of ${change.petId} at ${callMs.toFixed(0)}, acknowledged as ${revision}`;
      if (first && revision !== first.revision && this.#eraAt(returnMs) === first.era)
        this.#fail(`${what}: a repeat of what got ${first.revision}`);
      first = { revision, era: this.#eraAt(callMs) }; // its answer may come after a restore that has lost it
      if (change.kind === "set" && quantity !== change.quantity) this.#fail(`${what}: with ${quantity}`);
      if (this.#latestOf(change.petId, 0)?.revision === revision) continue; // nothing was to be changed
      const at = this.#commitOf(revision, returnMs);
      if (at === undefined) {
        this.#fail(`${what}: not committed by then`);
        continue;
      }
      // Of two states within a commit only the later one is left.
      const state = this.#latestOf(change.petId, at);
      if (state?.at !== at || state.revision < revision) this.#fail(`${what}: it is not there`);
      else if (state.revision === revision && quantity !== undefined) {
        const isShown = quantity === state.quantity && (status ?? state.status) === state.status;
        if (!isShown) this.#fail(`${what}: with ${quantity} ${status}, not ${state.quantity} ${state.status}`);
      }
      const name = `${change.petId} ${revision}`;
      if (!claims.get(name)?.includes(change)) add(claims, name, change);
    }
  }

  /**
   * One of the changes has made the state, and the others have found it as they wanted it.
   *
   * @returns false when all of them have found it, so that another change has made it
   */
  #judgeEffect(claimed: readonly AskedChange[], state: Placed, before: Placed | undefined): boolean {
    // Between two commits an entry may have had other states, which only those know who made them.
    const isOnlyOne = !this.#hidesStates(state.at);
    const fail = (change: AskedChange, why: string) =>
      this.#fail(
        `entry ${state.petId} has ${state.quantity} at ${state.revision} by ${change.kind} ${change.delta ?? change.quantity ?? ""}: ${why}`,
      );
    const mayMake = ({ expected }: AskedChange) => expected !== state.revision; // else it has found that very state
    const makers = claimed.filter((change) => mayMake(change) && (!isOnlyOne || hasEffect(change, before, state)));
    const notFinders = claimed.filter((change) => !hasEffect(change, state, state));
    if (notFinders.length > 1 || (notFinders.length === 1 && !makers.includes(notFinders[0]!))) {
      fail(notFinders.at(-1)!, `not its effect, after ${before?.quantity}`);
      return true;
    }
    if (makers.length === 1 && isOnlyOne) {
      const { expected } = makers[0]!;
      if (expected !== undefined && before?.revision !== expected)
        fail(makers[0]!, `it was at ${before?.revision}, not at ${expected}`);
    }
    return makers.length > 0;
  }

  /**
   * A change whose failure was answered must not be written over one that began after that answer.
   *
   * @returns what it was written over
   */
  #undone(change: AskedChange, state: Placed, changes: readonly AskedChange[]): string[] {
    if (change.mayBeLate) return [];
    if (change.attempts.some(({ outcome }) => outcome.kind !== "unknown" || !outcome.isAnswered)) return [];
    const answeredMs = Math.max(...change.attempts.map(({ returnMs }) => returnMs));
    const undone: string[] = [];
    for (const other of changes) {
      if (other.petId !== change.petId || other === change) continue;
      for (const { callMs, returnMs, outcome } of other.attempts) {
        if (outcome.kind !== "done" || callMs <= answeredMs || outcome.revision >= state.revision) continue;
        const at = this.#commits.findIndex(({ revision }) => revision >= outcome.revision);
        // One that found the entry as it wanted it has the revision of an older change.
        const isEarlier = at <= state.at && this.#commits[at]!.atMs > callMs;
        if (isEarlier || (other.kind === "set" && this.#commits[state.at]!.atMs > returnMs)) {
          undone.push(
            `entry ${change.petId}: what failed by ${answeredMs.toFixed(0)} was written as ${state.revision} over ${outcome.revision}, which was asked for at ${callMs.toFixed(0)}`,
          );
        }
      }
    }
    return undone;
  }
}

function add<Key, Value>(lists: Map<Key, Value[]>, key: Key, value: Value): void {
  const list = lists.get(key);
  if (list) list.push(value);
  else lists.set(key, [value]);
}

/** The first index for which a test fails that holds up to some index. */
function firstNot(length: number, holds: (index: number) => boolean): number {
  let [low, high] = [0, length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (holds(middle)) low = middle + 1;
    else high = middle;
  }
  return low;
}

function hasEffect(change: AskedChange, before: Version | undefined, after: Version): boolean {
  const wasThere = before !== undefined && !before.removed;
  if (wasThere === (change.kind === "create") || !mayLeave(change, after)) return false;
  if (change.kind === "status") return after.quantity === before!.quantity;
  if (wasThere && !after.removed && after.status !== before.status) return false;
  return change.kind !== "adjust" || after.quantity === before!.quantity + change.delta!;
}

/** Whether a change can leave this state, whatever it has found. */
function mayLeave(change: AskedChange, after: Version): boolean {
  if (after.removed || change.kind === "remove") return after.removed && change.kind === "remove";
  if (change.kind === "status") return after.status === change.status;
  return change.kind === "adjust" || after.quantity === change.quantity;
}

/** Whether two states of an entry differ in nothing but their revision. */
function isSame(a: Version, b: Version): boolean {
  return a.quantity === b.quantity && a.status === b.status && a.removed === b.removed;
}

/** The revision in a tag of the list. */
function revisionIn(tag: string): bigint {
  return BigInt(tag.slice(tag.indexOf("-") + 1));
}

function render({ petId, quantity, status }: Version) {
  return { petId, quantity, status };
}

/** @returns what a body shows in place of what it should */
function difference(body: unknown, expected: unknown): string | undefined {
  const [got, wanted] = [JSON.stringify(body), JSON.stringify(expected)];
  return got === wanted ? undefined : `\n  it shows ${got}\n  and not  ${wanted}`;
}
