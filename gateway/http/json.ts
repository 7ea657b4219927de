/** JSON in bodies: checks and parses that of a request strictly, and writes that of an answer. */
import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from "node:http";
import { ApiError } from "./api-error.ts";
import type { HeaderList } from "./request-context.ts";

export const jsonType = "application/json";

/** The media types that a method takes, and the header that lists them in the answer to a body of another type. */
export interface BodyTypes {
  readonly types: readonly string[];
  readonly header: "Accept-Patch" | "Accept-Post";
}

export const patchTypes: BodyTypes = {
  types: [jsonType, "application/merge-patch+json"],
  header: "Accept-Patch",
};

export const postTypes: BodyTypes = { types: [jsonType], header: "Accept-Post" };

/** The longest `Content-Type` that is read, in characters. */
const maxContentType = 256;

/**
 * Checks that the headers announce JSON in UTF-8.
 *
 * @throws ApiError unsupported_media_type
 */
export function checkMediaType(
  { "content-type": contentType = "", "content-encoding": contentEncoding = "identity" }: IncomingHttpHeaders,
  { types, header }: BodyTypes,
): void {
  const readType = contentType.length <= maxContentType ? contentType : "";
  const [type = "", ...parameters] = readType.toLowerCase().split(";");
  const isUtf8 = parameters.every((parameter) => {
    const [name, value] = parameter.trim().split("=");
    return name !== "charset" || value?.replaceAll('"', "") === "utf-8";
  });
  if (types.includes(type.trim()) && isUtf8 && contentEncoding.toLowerCase() === "identity") return;
  const message = `The body must be ${types.join(" or ")} in UTF-8, without a content coding.`;
  throw new ApiError("unsupported_media_type", { message, headers: { [header]: types.join(", ") } });
}

/** Answers with JSON text; to HEAD with its headers alone. */
export function writeJson(
  request: IncomingMessage,
  response: ServerResponse,
  status: number,
  body: string,
  headers: HeaderList,
): void {
  const length = Buffer.byteLength(body);
  response.writeHead(status, ["Content-Type", jsonType, "Content-Length", String(length), ...headers]);
  if (request.method === "HEAD") response.end();
  else response.end(body, length === body.length ? "latin1" : "utf8"); // ASCII goes out in one write with the head
}

const utf8 = new TextDecoder("utf-8", { fatal: true });

/**
 * Parses a JSON text (RFC 8259). The bytes must be UTF-8, and no object may name a member twice, because readers
 * disagree on which of the two counts (RFC 8259 section 4). Objects have no prototype.
 *
 * Integers beyond 2^53, up to 10^308, that are written in digits alone become bigints, so that no digit is lost. A
 * number that only rounding makes an integer becomes NaN: 4.99999999999999999999 must not pass for 5, nor 1e-400 for 0.
 * Other numbers beyond 2^53, as 1e20, are rounded: take safe integers only.
 *
 * @throws ApiError invalid_json
 */
export function parseJson(bytes: Uint8Array): unknown {
  let text: string;
  try {
    text = utf8.decode(bytes);
    JSON.parse(text); // checks the syntax: what follows relies on it
  } catch (cause) {
    throw new ApiError("invalid_json", { cause });
  }
  return build(text);
}

type Members = Record<string, unknown>;

/** Builds the value of a valid text in one pass, without recursion: a body may be nested thousands of levels deep. */
function build(text: string): unknown {
  /** The objects and arrays that are open, the innermost last; around them, an array that receives the value. */
  const open: (Members | unknown[])[] = [[]];
  /** The member that the next value is for; undefined when the next string in an object is a name. */
  let name: string | undefined;
  for (let at = 0, end = 0; at < text.length; at = end) {
    end = endOfToken(text, at);
    if (isBetweenTokens(text[at]!)) continue;
    const token = text.slice(at, end);
    const parent = open.at(-1)!;
    if (token === "}" || token === "]") {
      open.pop();
    } else if (Array.isArray(parent)) {
      parent.push(startValue(token, open));
    } else if (name === undefined) {
      name = readString(token);
      if (name in parent) throw duplicate(name);
    } else {
      parent[name] = startValue(token, open);
      name = undefined;
    }
  }
  return (open[0] as unknown[])[0];
}

/** @returns the place after the token that begins at `at`: a string, a number, a word, or a single character */
function endOfToken(text: string, at: number): number {
  if (text[at] === '"') {
    let end = at + 1;
    while (text[end] !== '"') end += text[end] === "\\" ? 2 : 1;
    return end + 1;
  }
  word.lastIndex = at;
  return word.test(text) ? word.lastIndex : at + 1;
}

/** A number, or one of the three words of JSON. */
const word = /[\w.+-]+/y;

function isBetweenTokens(char: string): boolean {
  return char === "," || char === ":" || char === " " || char === "\n" || char === "\r" || char === "\t";
}

/** The value of a token. An object or array begins empty and is now open. */
function startValue(token: string, open: (Members | unknown[])[]): unknown {
  if (token === "{" || token === "[") {
    const value = token === "{" ? (Object.create(null) as Members) : [];
    open.push(value);
    return value;
  }
  if (token[0] === '"') return readString(token);
  return token[0] === "-" || (token[0]! >= "0" && token[0]! <= "9") ? readNumber(token) : JSON.parse(token);
}

function readString(token: string): string {
  return token.includes("\\") ? JSON.parse(token) : token.slice(1, -1);
}

function readNumber(source: string): number | bigint {
  const value = Number(source);
  if (!Number.isInteger(value)) return value;
  if (/[.eE]/.test(source)) return isInteger(source) ? value : Number.NaN;
  return Number.isSafeInteger(value) ? value : BigInt(source);
}

/** Whether a number in a JSON text has no fraction: `5`, `5.0` and `50e-1` have none. */
function isInteger(source: string): boolean {
  const [, whole = "", fraction = "", exponent = "0"] = /^-?(\d+)(?:\.(\d+))?(?:e(.+))?$/i.exec(source) ?? [];
  const digits = whole + fraction;
  let significant = digits.length;
  while (significant > 0 && digits[significant - 1] === "0") significant--;
  return significant === 0 || Number(exponent) + whole.length >= significant;
}

function duplicate(name: string): ApiError {
  const short = JSON.stringify(name.length > 40 ? `${name.slice(0, 40)}…` : name);
  return new ApiError("invalid_json", { message: `The body names the member ${short} more than once.` });
}
