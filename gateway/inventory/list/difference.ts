/** Renders the difference between an older state of the list and the present one. */
import { setImmediate as nextTurn } from "node:timers/promises";
import { type Chunk, entryEtag, jsonAt } from "./chunk.ts";
import { findEntry } from "./chunks.ts";
import { type Body, bodyOf, type Snapshot } from "./snapshot.ts";

/** Length of the pieces of a long body. Other requests get a turn between two of them. */
const pieceLength = 64 * 1024;

/**
 * Renders the body of an answer: `etag` of the present list, `changed` entries with an `etag` each, and the petIds of
 * `removed` ones, both in the order of petId. Its cost follows the changes: a chunk without one costs a comparison.
 *
 * @param since the revision of the older state
 * @param removed the entries that were removed since; those that are there again count as changed
 * @param max changes that may be rendered
 * @returns undefined when there are more
 */
export function renderDifference(
  snapshot: Snapshot,
  since: bigint,
  removed: ReadonlySet<bigint>,
  max: number,
): Promise<Body> | undefined {
  const chunks = snapshot.revision > since ? snapshot.chunks.filter(({ newest }) => newest > since) : [];
  const gone = [...removed].filter((petId) => !findEntry(snapshot.chunks, petId)).sort(byPetId);
  const changed = chunks.reduce((count, chunk) => count + changedIn(chunk, since).length, 0);
  return changed + gone.length > max ? undefined : render(snapshot.etag, chunks, since, gone);
}

async function render(etag: string, chunks: readonly Chunk[], since: bigint, gone: readonly bigint[]): Promise<Body> {
  const pieces: Buffer[] = [];
  let text = `{"etag":${JSON.stringify(etag)},"changed":[`;
  let comma = "";
  for (const chunk of chunks) {
    for (const at of changedIn(chunk, since)) {
      const entry = jsonAt(chunk, at).slice(0, -1);
      text += `${comma}${entry},"etag":${JSON.stringify(entryEtag(chunk.revisions[at]!))}}`;
      comma = ",";
    }
    if (text.length < pieceLength) continue;
    pieces.push(Buffer.from(text, "latin1"));
    text = "";
    await nextTurn();
  }
  text += `],"removed":[${gone.join(",")}]}`;
  return bodyOf([...pieces, Buffer.from(text, "latin1")]);
}

/** The indexes of the entries that changed after a revision. */
function changedIn({ revisions }: Chunk, since: bigint): number[] {
  const changed: number[] = [];
  for (let at = 0; at < revisions.length; at++) if (revisions[at]! > since) changed.push(at);
  return changed;
}

function byPetId(a: bigint, b: bigint): number {
  return a < b ? -1 : 1;
}
