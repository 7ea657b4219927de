/** The difference between an older state of the list and the present one, and its rendering. */
import { setImmediate as nextTurn } from "node:timers/promises";
import { type Chunk, entryEtag, isRemoved, jsonAt } from "./chunk.ts";
import { countEntries } from "./chunks.ts";
import { type Body, bodyOf, bodyOfText, type Snapshot } from "./snapshot.ts";

/** Length of the pieces of a long body. Other requests get a turn between two of them. */
const pieceLength = 64 * 1024;

/** Chunks that are searched in one turn of the event loop. Those that `maxRevision` rules out do not count. */
const chunksPerTurn = 256;

/** The entries of a chunk that changed, by their index. */
interface ChangedChunk {
  readonly chunk: Chunk;
  readonly indexes: readonly number[];
}

/** What changed between two states of the list. */
export interface Difference {
  readonly etag: string;
  readonly changedChunks: readonly ChangedChunk[];
  /** The entries that are gone, in the order of petId. */
  readonly gone: readonly bigint[];
}

/**
 * Finds what has changed since an older state. Its cost follows the changes up to the maximum: an unchanged chunk
 * costs a comparison.
 *
 * @param since the revision of the older state, not below the floor
 * @returns undefined for more changes than `maxChanges`
 */
export async function findDifference(
  snapshot: Snapshot,
  since: bigint,
  maxChanges: number,
): Promise<Difference | undefined> {
  const changedChunks: ChangedChunk[] = [];
  const gone: bigint[] = [];
  let changed = 0;
  for (const chunk of snapshot.revision > since ? snapshot.chunks : []) {
    if (chunk.maxRevision <= since) continue;
    const indexes: number[] = [];
    for (let at = 0; at < chunk.revisions.length; at++) {
      if (chunk.revisions[at]! <= since) continue;
      if (isRemoved(chunk, at)) gone.push(chunk.petIds[at]!);
      else indexes.push(at);
    }
    changedChunks.push({ chunk, indexes });
    changed += indexes.length;
    if (changed + gone.length > maxChanges) return undefined;
    if (changedChunks.length % chunksPerTurn === 0) await nextTurn();
  }
  return { etag: snapshot.etag, changedChunks, gone };
}

/** The most changes that are answered: beyond the number of entries, the list itself is cheaper. */
export function maxAnswered(snapshot: Snapshot): number {
  return Math.max(alwaysAnsweredChanges, countEntries(snapshot.chunks));
}

/** Up to this many changes are always answered. */
export const alwaysAnsweredChanges = 1_000;

/**
 * Renders the body of an answer: `etag` of the present list, `changed` entries with an `etag` each, and the petIds of
 * `removed` ones, both in the order of petId.
 */
export async function renderDifference({ etag, changedChunks, gone }: Difference): Promise<Body> {
  const pieces: Buffer[] = [];
  let text = `{"etag":${JSON.stringify(etag)},"changed":[`;
  const endPiece = async () => {
    pieces.push(Buffer.from(text, "latin1"));
    text = "";
    await nextTurn();
  };
  let comma = "";
  for (const { chunk, indexes } of changedChunks) {
    for (const at of indexes) {
      text += `${comma}${jsonAt(chunk, at).slice(0, -1)},"etag":${JSON.stringify(entryEtag(chunk.revisions[at]!))}}`;
      comma = ",";
    }
    if (text.length >= pieceLength) await endPiece();
  }
  text += `],"removed":[`;
  for (let at = 0; at < gone.length; at += idsAtOnce) {
    text += `${at === 0 ? "" : ","}${gone.slice(at, at + idsAtOnce)}`;
    if (text.length >= pieceLength) await endPiece();
  }
  text += "]}";
  if (pieces.length === 0) return bodyOfText(text);
  return bodyOf([...pieces, Buffer.from(text, "latin1")]);
}

/** PetIds that are written in one step. */
const idsAtOnce = 1_000;
