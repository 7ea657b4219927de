/** Reads int64 exactly on every runtime: JSON itself knows no bigint, and rounds integers beyond 2^53. */
import { InventoryApiError } from "./inventory-api-error.ts";

const quote = 0x22;
const backslash = 0x5c;
const minus = 0x2d;
const zero = 0x30;
const nine = 0x39;

/** What stands before or after digits that are only a part of a number: `.`, `+`, `e` or `E`. */
const isJoint = (code: number) => code === 0x2e || code === 0x2b || code === 0x65 || code === 0x45;

/** An integer of fewer digits is exact as a number. */
const longDigits = 16;
const anyLong = /\d{16}/;

/**
 * As JSON.parse, but integers of 16 digits or more become texts, with every digit.
 *
 * @throws SyntaxError
 */
export function parseExactly(text: string): unknown {
  return JSON.parse(anyLong.test(text) ? quoteLongIntegers(text) : text);
}

/** Puts quotes around every integer of 16 digits or more that is not within a text. */
function quoteLongIntegers(text: string): string {
  let quoted = "";
  let copied = 0;
  for (let at = 0; at < text.length; at++) {
    const code = text.charCodeAt(at);
    if (code === quote) {
      at = endOfText(text, at);
    } else if (isDigit(code)) {
      const start = text.charCodeAt(at - 1) === minus ? at - 1 : at;
      const first = at;
      while (isDigit(text.charCodeAt(at + 1))) at += 1;
      const end = at + 1;
      if (end - first < longDigits || isJoint(text.charCodeAt(start - 1)) || isJoint(text.charCodeAt(end))) continue;
      quoted += `${text.slice(copied, start)}"${text.slice(start, end)}"`;
      copied = end;
    }
  }
  return quoted + text.slice(copied);
}

/** The place of the quote that ends a text. Texts are short, where a loop is faster than `indexOf`. */
function endOfText(text: string, start: number): number {
  let at = start + 1;
  while (at < text.length && text.charCodeAt(at) !== quote) at += text.charCodeAt(at) === backslash ? 2 : 1;
  return at;
}

function isDigit(code: number): boolean {
  return code >= zero && code <= nine;
}

/** An entry as `parseExactly` gives it. */
export interface SentEntry {
  petId: bigint | number | string;
}

/** Makes the petId of an entry a bigint, in place: a list has many. */
export function withPetId<T extends { readonly petId: bigint }>(sent: SentEntry): T {
  sent.petId = BigInt(sent.petId);
  return sent as T;
}

/** Makes the ids of a record of another service bigints, in place. An id that is no integer stays as it is. */
export function withIds<T extends object>(sent: object): T {
  const record = sent as Record<string, unknown>;
  for (const name of ["id", "petId"]) {
    const id = record[name];
    if (Number.isInteger(id) || (typeof id === "string" && /^-?\d{16,}$/.test(id))) record[name] = BigInt(id as string);
  }
  return record as T;
}

/**
 * The body of an answer, as `read` makes it of the JSON.
 *
 * @throws InventoryApiError `unknown_answer` when it is no JSON, or `read` throws because it is other JSON
 */
export function readBody<S, T>(
  { text, status }: { readonly text: string; readonly status: number },
  read: (sent: S) => T,
): T {
  try {
    return read(parseExactly(text) as S);
  } catch (cause) {
    throw new InventoryApiError("unknown_answer", "the body is not what was asked for", { status, cause });
  }
}
