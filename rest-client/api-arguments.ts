/** Checks arguments before anything is sent: each of these functions throws a TypeError for one that is wrong. */

/**
 * Checks the names of options: one that is misspelt, such as `ifmatch`, must not be ignored.
 *
 * @param where the name of what takes the options, for the message
 */
export function toOptions<T extends object>(where: string, options: T, ...names: (keyof T & string)[]): T {
  if (typeof options !== "object" || options === null) throw new TypeError(`${where} takes ${listed(names)}`);
  const unknown = Object.keys(options).find((name) => !(names as string[]).includes(name));
  if (unknown === undefined) return options;
  throw new TypeError(`${unknown} is no option of ${where}, which takes ${listed(names)}`);
}

const listed = (names: readonly string[]) => `{ ${names.join(", ")} }`;

const maxInt32 = 2_147_483_647;
const maxInt64 = 2n ** 63n - 1n;

/** Reads an int64. A number beyond 2^53 is refused: it may have been rounded already. */
export function toPetId(id: bigint | number): bigint {
  if (typeof id !== "bigint" && typeof id !== "number")
    throw new TypeError(`petId must be a bigint, such as 1001n, or a number: ${shown(id)}`);
  if (typeof id === "number" && !Number.isSafeInteger(id))
    throw new TypeError(`petId: ${id} is not exact; pass a bigint`);
  const petId = BigInt(id);
  if (petId > maxInt64 || petId < -maxInt64 - 1n) throw new TypeError(`petId must be an int64: ${id}`);
  return petId;
}

/** Reads the petIds of entries that come in one answer. */
export function toPetIds(petIds: readonly (bigint | number)[]): bigint[] {
  if (petIds.length < 1 || petIds.length > 100) throw new TypeError(`petIds must be 1 to 100: ${petIds.length}`);
  return petIds.map(toPetId);
}

export function toLimit(limit: number): number {
  return toInteger("limit", limit, 1, 10_000);
}

export function toQuantity(quantity: number): number {
  return toInteger("quantity", quantity, 0, maxInt32);
}

export function toDelta(delta: number): number {
  if (delta === 0) throw new TypeError("delta must not be 0");
  return toInteger("delta", delta, -maxInt32, maxInt32);
}

export function toReason(reason: string | undefined): string | undefined {
  if (reason === undefined || (typeof reason === "string" && /^[^\p{Cc}\p{Cs}]{1,200}$/u.test(reason))) return reason;
  throw new TypeError("reason must be a string of 1 to 200 characters without control characters");
}

export function toHistoryLimit(limit: number): number {
  return toInteger("limit", limit, 1, 100);
}

export function toWaitSeconds(waitSeconds = 0): number {
  return toInteger("waitSeconds", waitSeconds, 0, 90);
}

export function toGraceSeconds(graceSeconds: number): number {
  return toInteger("graceSeconds", graceSeconds, 0, 604_800);
}

export function toHours(hours: number): number {
  return toInteger("hours", hours, 1, 168);
}

function toInteger(name: string, value: number, min: number, max: number): number {
  if (Number.isInteger(value) && value >= min && value <= max) return value;
  throw new TypeError(`${name} must be an integer from ${min} to ${max}: ${shown(value)}`);
}

/** A value in a message. Quotes tell a string from the number that it looks like. */
function shown(value: unknown): string {
  return typeof value === "string" ? JSON.stringify(value) : String(value);
}

/** Checks the `since` tag of `changes`. It is empty where a proxy removes the header. */
export function toSince(since: string): string {
  if (typeof since === "string" && since.trim()) return since;
  throw new TypeError("since is empty: pass the etag of a list or of changes");
}

/**
 * Reads a precondition. One that is empty must not become none: the caller would overwrite what it has not seen. An
 * entry has an empty `etag` where a proxy removes the header. JavaScript may pass null, too.
 */
export function toIfMatch(ifMatch: string | undefined): string | undefined {
  if (ifMatch === undefined || ifMatch?.trim()) return ifMatch;
  throw new TypeError("ifMatch is empty: pass an ETag, or leave ifMatch out");
}

const validKey = /^(?:"([\w.:-]{1,64})"|([\w.:-]{1,64}))$/;

/**
 * Reads a key as the API does, bare or as a quoted string, so that both are the same key.
 *
 * @returns the bare key; a new key when none is given
 */
export function toIdempotencyKey(idempotencyKey: string | undefined): string {
  if (idempotencyKey === undefined) return newIdempotencyKey();
  const [, quoted, bare] = (typeof idempotencyKey === "string" && validKey.exec(idempotencyKey)) || [];
  const key = quoted ?? bare;
  if (key !== undefined) return key;
  throw new TypeError("idempotencyKey must be 1 to 64 of A-Z a-z 0-9 _ . : -");
}

/** A key for one update: 128 random bits. */
function newIdempotencyKey(): string {
  return crypto.getRandomValues(new BigUint64Array(2)).join("-");
}
