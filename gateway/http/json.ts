import { ApiError } from "./errors.ts";

const utf8 = new TextDecoder("utf-8", { fatal: true });

/**
 * Parses a JSON text (RFC 8259) strictly: the bytes must be UTF-8, and no object may name a member twice, because
 * readers disagree on which of the two counts (RFC 8259 section 4). A number that only rounding makes whole becomes NaN.
 *
 * @throws ApiError invalid_json
 */
export function parseJson(bytes: Uint8Array): unknown {
  let text: string;
  let value: unknown;
  try {
    text = utf8.decode(bytes);
    // Only where it can matter: a reviver costs several times as much.
    value = /\d[.eE]/.test(text) ? JSON.parse(text, keepFractions) : JSON.parse(text);
  } catch (cause) {
    throw new ApiError("invalid_json", { cause });
  }
  const name = findDuplicateName(text);
  if (name !== undefined) {
    throw new ApiError("invalid_json", { message: `The body names the member ${shorten(name)} more than once.` });
  }
  return value;
}

/** A double rounds: 4.99999999999999999999 must not pass for 5, nor 1e-400 for 0. */
function keepFractions(_name: string, value: unknown, context?: { readonly source: string }): unknown {
  return Number.isInteger(value) && context !== undefined && !isWhole(context.source) ? Number.NaN : value;
}

/** Whether a number as JSON writes it has nothing behind the point: `5`, `5.0` and `50e-1` have not. */
function isWhole(source: string): boolean {
  const [, whole = "", fraction = "", exponent = "0"] = /^-?(\d+)(?:\.(\d+))?(?:e(.+))?$/i.exec(source) ?? [];
  const digits = whole + fraction;
  let significant = digits.length;
  while (significant > 0 && digits[significant - 1] === "0") significant--;
  return significant === 0 || Number(exponent) + whole.length >= significant;
}

/** The name that an object of a valid JSON text has twice, if there is one. Takes time and memory linear in the text. */
function findDuplicateName(text: string): string | undefined {
  // One set of names for each object that is open; null for an array.
  const open: (Set<string> | null)[] = [];
  for (let at = 0; at < text.length; at++) {
    switch (text[at]) {
      case "{":
        open.push(new Set());
        break;
      case "[":
        open.push(null);
        break;
      case "}":
      case "]":
        open.pop();
        break;
      case '"': {
        const end = endOfString(text, at);
        const names = open.at(-1);
        if (names && isName(text, end)) {
          const name = JSON.parse(text.slice(at, end)) as string;
          if (names.has(name)) return name;
          names.add(name);
        }
        at = end - 1;
        break;
      }
    }
  }
  return undefined;
}

/** In an object, a string with a colon behind it is a name and not a value. */
function isName(text: string, end: number): boolean {
  let at = end;
  while (text[at] === " " || text[at] === "\t" || text[at] === "\n" || text[at] === "\r") at++;
  return text[at] === ":";
}

/** @returns the place behind the closing quote of the string that opens at `at` */
function endOfString(text: string, at: number): number {
  let end = at + 1;
  while (text[end] !== '"') end += text[end] === "\\" ? 2 : 1;
  return end + 1;
}

function shorten(name: string): string {
  return JSON.stringify(name.length > 40 ? `${name.slice(0, 40)}…` : name);
}
