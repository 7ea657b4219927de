/** The answer of `GET /v1/inventory/changes`, with its entries as they were sent. */
export interface Difference {
  readonly etag: string;
  /** Each as its JSON. */
  readonly changed: readonly string[];
  readonly removed: readonly bigint[];
}

/** Reads the answer as text, because what is compared is bytes. */
export function readDifference(body: string): Difference {
  const [, tag, changed, removed] = /^(.*),"changed":\[(.*)\],"removed":\[(.*)\]\}$/.exec(body)!;
  return {
    etag: JSON.parse(`${tag}}`).etag,
    changed: changed!.match(/\{.*?\}/g) ?? [],
    removed: (removed!.match(/-?\d+/g) ?? []).map(BigInt),
  };
}

/** Applies a difference to the text of a list, as a client does. @returns the text of the list of its `etag` */
export function applyDifference(list: string, { changed, removed }: Difference): string {
  const entries = new Map((list.match(/\{.*?\}/g) ?? []).map((json) => [petIdOf(json), json]));
  for (const json of changed) entries.set(petIdOf(json), json.replace(/,"etag":".*?"\}$/, "}"));
  for (const petId of removed) entries.delete(petId);
  const inOrder = [...entries].sort(([a], [b]) => (a < b ? -1 : 1));
  return `[${inOrder.map(([, json]) => json).join(",")}]`;
}

function petIdOf(json: string): bigint {
  return BigInt(/"petId":(-?\d+)/.exec(json)![1]!);
}
