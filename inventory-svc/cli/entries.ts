/** Reads and writes entries of the stock as lines of CSV or NDJSON. */
import { createReadStream } from "node:fs";
import { open } from "node:fs/promises";
import { createInterface } from "node:readline";
import { parse } from "csv-parse/sync";
import { type ItemInput, itemFields, maxQuantity, type PetStatus, parsePetId, petStatuses } from "../../proto/pet.ts";
import { OperatorError } from "../../runtime/operator-error.ts";

export const formats = ["csv", "ndjson"] as const;
export type Format = (typeof formats)[number];

/** A line of a file: an entry, or the reason why it is none. Line numbers begin at 1. */
export type Line =
  | { readonly number: number; readonly entry: ItemInput }
  | { readonly number: number; readonly fault: string };

/** Takes the format from the name of a file. @returns undefined for a name of another kind */
export function formatOf(file: string): Format | undefined {
  if (/\.csv$/i.test(file)) return "csv";
  if (/\.(ndjson|jsonl)$/i.test(file)) return "ndjson";
  return undefined;
}

/**
 * Reads a file line by line. A line that is no entry comes as a fault, in its place.
 *
 * No value of an entry has a line break, so a stray quote spoils only its own line.
 *
 * @param name of the file in messages
 * @throws OperatorError for a file of which no line can be read: it is UTF-16, or has no header
 */
export async function* readLines(file: string, format: Format, name = file): AsyncGenerator<Line> {
  await refuseUtf16(file, name);
  let number = 0;
  let places: readonly number[] | undefined;
  for await (const raw of createInterface({ input: createReadStream(file), crlfDelay: Number.POSITIVE_INFINITY })) {
    number += 1;
    const text = number === 1 ? raw.replace(/^\ufeff/, "") : raw;
    if (text.trim() === "") continue;
    if (format === "ndjson") {
      yield fromJson(number, text);
    } else if (places) {
      yield fromCsv(number, text, places);
    } else {
      places = itemFields.map((column) => (fieldsOf(text) ?? []).indexOf(column));
      if (places.includes(-1)) throw noHeader(name, number, text);
    }
  }
  if (format === "csv" && !places) throw noHeader(name, 1, "");
}

/** Refuses a file in UTF-16, known by a byte order mark or a zero in its first two bytes: entries are ASCII. */
async function refuseUtf16(file: string, name: string): Promise<void> {
  await using handle = await open(file);
  const { buffer, bytesRead } = await handle.read(Buffer.alloc(2), 0, 2);
  const [first, second] = buffer;
  const hasMark = (first === 0xff && second === 0xfe) || (first === 0xfe && second === 0xff);
  if (bytesRead === 2 && (hasMark || first === 0 || second === 0)) {
    throw new OperatorError(`${name}: is UTF-16; save it as UTF-8`);
  }
}

function noHeader(file: string, number: number, text: string): OperatorError {
  const separator = [";", "\t"].find((other) => itemFields.every((column) => text.split(other).includes(column)));
  const found = separator && `, with commas: here are ${separator === ";" ? "semicolons" : "tabs"}`;
  return new OperatorError(
    `${file}:${number}: the first line must be the header ${itemFields.join(",")}${found ?? ""}`,
  );
}

function fromCsv(number: number, text: string, places: readonly number[]): Line {
  const fields = fieldsOf(text);
  if (!fields) return { number, fault: "has a misplaced quote" };
  if (fields.length > itemFields.length) {
    return { number, fault: `has ${fields.length} fields instead of ${itemFields.length}` };
  }
  return toLine(
    number,
    places.map((place) => fields[place]),
  );
}

/** Splits a line of CSV (RFC 4180). @returns undefined when its quotes do not match */
function fieldsOf(text: string): string[] | undefined {
  if (!text.includes('"')) return text.split(",");
  try {
    return parse(text, { relax_column_count: true })[0];
  } catch {
    return undefined;
  }
}

function fromJson(number: number, text: string): Line {
  let value: Record<string, unknown> | null;
  try {
    value = JSON.parse(text, exactIntegers) as Record<string, unknown> | null;
  } catch {
    return { number, fault: "is not JSON" };
  }
  return toLine(
    number,
    itemFields.map((column) => value?.[column]),
  );
}

/** Keeps numbers as they are written, because a petId beyond 2^53 would be rounded. */
function exactIntegers(_name: string, value: unknown, context?: { source: string }): unknown {
  return typeof value === "number" ? (context?.source ?? value) : value;
}

function toLine(number: number, values: readonly unknown[]): Line {
  const [idText = "", quantity = "", status = ""] = values.map((value) => (typeof value === "string" ? value : ""));
  const petId = parsePetId(idText);
  const faults: string[] = [];
  if (petId === undefined) faults.push("petId must be an int64");
  if (!/^(0|[1-9]\d{0,9})$/.test(quantity) || Number(quantity) > maxQuantity) {
    faults.push(`quantity must be an integer from 0 to ${maxQuantity}`);
  }
  if (!petStatuses.includes(status as PetStatus)) faults.push(`status must be one of ${petStatuses.join(", ")}`);
  if (petId === undefined || faults.length > 0) return { number, fault: faults.join("; ") };
  return { number, entry: { petId, quantity: Number(quantity), status: status as PetStatus } };
}

/** The text before the first entry of a file. */
export function fileHead(format: Format): string {
  return format === "csv" ? `${itemFields.join(",")}\n` : "";
}

/** Writes an entry as a line of a file. */
export function toText({ petId, quantity, status }: ItemInput, format: Format): string {
  return format === "csv"
    ? `${petId},${quantity},${status}\n`
    : `{"petId":${petId},"quantity":${quantity},"status":"${status}"}\n`;
}

/** Makes entries for trials, with petId 1 to n: the same every time. */
export async function* generated(n: number): AsyncGenerator<ItemInput> {
  const statuses: readonly PetStatus[] = ["available", "available", "available", "pending", "sold"];
  for (let i = 1; i <= n; i++) {
    yield { petId: BigInt(i), quantity: (i * 7919) % 1_000, status: statuses[i % statuses.length]! };
  }
}
