/** Checks updates and writes them down before the first of them is sent. */
import { toPetId } from "./json.ts";

/** One of many updates. */
export interface UpdateEntry {
  readonly petId: bigint | number;
  readonly quantity: number;
  readonly ifMatch?: string | undefined;
}

/** One of many updates as JSON, with every digit of its petId. A quantity that is missing is left to the API to refuse. */
export function updateJson({ petId, quantity, ifMatch }: UpdateEntry): string {
  const rest = { quantity: quantity ?? null, ifMatch: toIfMatch(ifMatch) };
  return `{"petId":${toPetId(petId)},${JSON.stringify(rest).slice(1)}`;
}

/**
 * Reads a precondition. One that is empty must not become none: the caller would overwrite what it has not seen. An
 * entry has an empty `etag` where a proxy removes the header.
 *
 * @throws TypeError for an empty one, or null, which JavaScript may pass
 */
export function toIfMatch(ifMatch: string | undefined): string | undefined {
  if (ifMatch === undefined || ifMatch?.trim()) return ifMatch;
  throw new TypeError("ifMatch is empty: pass an ETag, or leave ifMatch out");
}
