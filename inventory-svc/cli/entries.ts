/** Reads and writes entries of the stock as lines of CSV or NDJSON. */
import { createReadStream } from "node:fs";
import { createInterface } from "node:readline";
import { parse } from "csv-parse/sync";
import { type Item, maxQuantity, type PetStatus, parsePetId, petStatuses } from "../../proto/pet.ts";

export const formats = ["csv", "ndjson"] as const;
export type Format = (typeof formats)[number];

export type Entry = Omit<Item, "revision">;

/** A line of a file: an entry, or the reason why it is none. Line numbers begin at 1. */
export type Line =
  | { readonly number: number; readonly entry: Entry }
  | { readonly number: number; readonly fault: string };

const columns = ["petId", "quantity", "status"] as const;

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
 */
export async function* readLines(file: string, format: Format): AsyncGenerator<Line> {
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
      places = columns.map((column) => (fieldsOf(text) ?? []).indexOf(column));
      if (places.includes(-1)) return yield noHeader(number);
    }
  }
  if (format === "csv" && !places) yield noHeader(1);
}

function noHeader(number: number): Line {
  return { number, fault: `the first line must be the header ${columns.join(",")}` };
}

function fromCsv(number: number, text: string, places: readonly number[]): Line {
  const fields = fieldsOf(text);
  if (!fields) return { number, fault: "has a misplaced quote" };
  if (fields.length > columns.length) {
    return { number, fault: `has ${fields.length} fields instead of ${columns.length}` };
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
    columns.map((column) => value?.[column]),
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
  return format === "csv" ? `${columns.join(",")}\n` : "";
}

/** Writes an entry as a line of a file. */
export function toText({ petId, quantity, status }: Entry, format: Format): string {
  return format === "csv"
    ? `${petId},${quantity},${status}\n`
    : `{"petId":${petId},"quantity":${quantity},"status":"${status}"}\n`;
}

/** Makes entries for trials, with petId 1 to n: the same every time. */
export async function* generated(n: number): AsyncGenerator<Entry> {
  const statuses: readonly PetStatus[] = ["available", "available", "available", "pending", "sold"];
  for (let i = 1; i <= n; i++) {
    yield { petId: BigInt(i), quantity: (i * 7919) % 1_000, status: statuses[i % statuses.length]! };
  }
}
