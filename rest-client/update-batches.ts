/** Checks many changes and renders them as JSON before the first of them is sent. */
import { toDelta, toIdempotencyKey, toIfMatch, toOptions, toPetId, toQuantity, toReason } from "./api-arguments.ts";

/** One of many updates. */
export interface EntryUpdate {
  readonly petId: bigint | number;
  readonly quantity: number;
  readonly ifMatch?: string | undefined;
  readonly reason?: string | undefined;
}

/** One of many adjustments. */
export interface Adjustment extends Omit<EntryUpdate, "quantity"> {
  /** Negative to take away; not 0. */
  readonly delta: number;
}

/** A request that carries some of many updates. */
export interface UpdatesRequest {
  /** The place of its first update among all of them. */
  readonly start: number;
  readonly key: string;
  readonly body: string;
}

/** What the API takes: updates in a request, bytes of its body, and characters of its key. */
const maxUpdates = 100;
const maxBytes = 16 * 1024;
const maxKeyLength = 64;

const utf8 = new TextEncoder();

/**
 * Puts updates into as few requests as the API allows, in their order. An update that is too large by itself goes
 * alone, for the API to refuse. Each request has a key of its own: the same one for the same `idempotencyKey`.
 *
 * @throws TypeError for an update or a key that cannot be sent, and for two updates of one pet
 */
export function toRequests(updates: readonly EntryUpdate[], idempotencyKey: string | undefined): UpdatesRequest[] {
  const key = toIdempotencyKey(idempotencyKey);
  const all = updates.map(updateJson);
  checkDifferent(updates);
  const parts: { readonly start: number; readonly texts: string[] }[] = [];
  let room = 0;
  for (const [start, text] of all.entries()) {
    const bytes = utf8.encode(text).length + 1; // and what follows it: a comma or the last bracket
    if (bytes > room || parts.at(-1)!.texts.length === maxUpdates) {
      parts.push({ start, texts: [] });
      room = maxBytes - 1; // the first bracket
    }
    parts.at(-1)!.texts.push(text);
    room -= bytes;
  }
  const suffixOf = (start: number) => (start === 0 ? "" : `.${start}`);
  const longest = suffixOf(parts.at(-1)?.start ?? 0);
  const maxLength = maxKeyLength - longest.length;
  if (key.length > maxLength) {
    const reason = `the last of ${parts.length} requests appends ${longest}`;
    throw new TypeError(`idempotencyKey must have at most ${maxLength} characters: ${reason}`);
  }
  return parts.map(({ start, texts }) => ({ start, key: key + suffixOf(start), body: `[${texts}]` }));
}

/** One of many updates as JSON, with every digit of its petId. */
function updateJson(update: EntryUpdate): string {
  const { petId, quantity, ifMatch, reason } = toOptions("an update", update, "petId", "quantity", "ifMatch", "reason");
  return changeJson(petId, { quantity: toQuantity(quantity), ifMatch: toIfMatch(ifMatch), reason: toReason(reason) });
}

/** The body of adjustments that are made all or none. @throws TypeError for one that cannot be sent, or two of a pet */
export function toAdjustmentsBody(adjustments: readonly Adjustment[]): string {
  if (adjustments.length < 1 || adjustments.length > maxUpdates) {
    throw new TypeError(`adjustments must be 1 to ${maxUpdates}: ${adjustments.length}`);
  }
  const texts = adjustments.map((adjustment) => {
    const { petId, delta, ifMatch, reason } = toOptions(
      "an adjustment",
      adjustment,
      "petId",
      "delta",
      "ifMatch",
      "reason",
    );
    return changeJson(petId, { delta: toDelta(delta), ifMatch: toIfMatch(ifMatch), reason: toReason(reason) });
  });
  checkDifferent(adjustments);
  return `[${texts}]`;
}

/** Refuses two changes of one pet: in two requests the API would take both, and the later one would win. */
function checkDifferent(changes: readonly { readonly petId: bigint | number }[]): void {
  const places = new Map<string, number>();
  for (const [place, { petId }] of changes.entries()) {
    const id = String(petId);
    if (places.has(id)) throw new TypeError(`petId ${id} is named twice: at ${places.get(id)} and ${place}`);
    places.set(id, place);
  }
}

function changeJson(petId: bigint | number, rest: object): string {
  return `{"petId":${toPetId(petId)},${JSON.stringify(rest).slice(1)}`;
}
