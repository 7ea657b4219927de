import { createReadStream } from "node:fs";
import { createInterface } from "node:readline";
import { parse } from "csv-parse";
import { maxPetId, maxQuantity, minPetId, type PetStatus, petStatuses, type StockItem } from "../stock/item.ts";

export const formats = ["csv", "ndjson"] as const;
export type Format = (typeof formats)[number];

export type Entry = Omit<StockItem, "revision">;

/** What a line of a file holds: an entry, or the reason why it holds none. */
export type Line =
  | { readonly number: number; readonly entry: Entry }
  | { readonly number: number; readonly fault: string };

const columns = ["petId", "quantity", "status"] as const;

/** The format that a file's name tells. */
export function formatOf(file: string): Format | undefined {
  if (/\.csv$/i.test(file)) return "csv";
  if (/\.(ndjson|jsonl)$/i.test(file)) return "ndjson";
  return undefined;
}

/** Reads a file line by line; lines that hold no entry come as faults. Line numbers count from 1. */
export function readLines(file: string, format: Format): AsyncGenerator<Line> {
  return format === "csv" ? readCsv(file) : readNdjson(file);
}

async function* readCsv(file: string): AsyncGenerator<Line> {
  const skipped: Line[] = [];
  const parser = parse({
    bom: true,
    info: true,
    relax_column_count: true,
    skip_empty_lines: true,
    skip_records_with_error: true,
    max_record_size: 64 * 1024,
  });
  parser.on("skip", (error: Error & { lines?: number }) => {
    skipped.push({ number: error.lines ?? 0, fault: error.message });
  });
  const input = createReadStream(file);
  input.on("error", (error) => parser.destroy(error));
  input.pipe(parser);

  let places: number[] | undefined;
  for await (const { record, info } of parser as AsyncIterable<{ record: string[]; info: { lines: number } }>) {
    yield* skipped.splice(0);
    if (places) {
      yield toLine(
        info.lines,
        places.map((place) => record[place]),
        record.length,
      );
      continue;
    }
    places = columns.map((column) => record.indexOf(column));
    if (places.includes(-1)) {
      yield { number: info.lines, fault: `the first line must be the header ${columns.join(",")}` };
      return;
    }
  }
  yield* skipped;
}

async function* readNdjson(file: string): AsyncGenerator<Line> {
  let number = 0;
  for await (const text of createInterface({ input: createReadStream(file), crlfDelay: Number.POSITIVE_INFINITY })) {
    number += 1;
    if (text.trim() === "") continue;
    let value: Record<string, unknown> | null;
    try {
      value = JSON.parse(text, exactIntegers) as Record<string, unknown> | null;
    } catch {
      yield { number, fault: "is not JSON" };
      continue;
    }
    yield toLine(
      number,
      columns.map((column) => (value as Record<string, unknown> | null)?.[column]?.toString()),
      3,
    );
  }
}

/** Numbers as they are written: a petId beyond 2^53 would be rounded. */
function exactIntegers(_name: string, value: unknown, context?: { source: string }): unknown {
  return typeof value === "number" ? (context?.source ?? value) : value;
}

function toLine(number: number, [petId, quantity, status]: readonly (string | undefined)[], width: number): Line {
  const faults: string[] = [];
  if (width > columns.length) faults.push(`has ${width} fields instead of ${columns.length}`);
  if (!/^(0|-?[1-9]\d{0,18})$/.test(petId ?? "") || BigInt(petId!) < minPetId || BigInt(petId!) > maxPetId) {
    faults.push("petId must be an int64");
  }
  if (!/^(0|[1-9]\d{0,9})$/.test(quantity ?? "") || Number(quantity) > maxQuantity) {
    faults.push(`quantity must be an integer from 0 to ${maxQuantity}`);
  }
  if (!petStatuses.includes(status as PetStatus)) faults.push(`status must be one of ${petStatuses.join(", ")}`);
  if (faults.length > 0) return { number, fault: faults.join("; ") };
  return { number, entry: { petId: BigInt(petId!), quantity: Number(quantity), status: status as PetStatus } };
}

/** What stands before the first entry of a file. */
export function fileHead(format: Format): string {
  return format === "csv" ? `${columns.join(",")}\n` : "";
}

/** An entry as a line of a file. */
export function toText({ petId, quantity, status }: Entry, format: Format): string {
  return format === "csv"
    ? `${petId},${quantity},${status}\n`
    : `{"petId":${petId},"quantity":${quantity},"status":"${status}"}\n`;
}

/** Entries for trials: petId 1 to n, always the same. */
export async function* generated(n: number): AsyncGenerator<Entry> {
  const statuses: readonly PetStatus[] = ["available", "available", "available", "pending", "sold"];
  for (let i = 1; i <= n; i++) {
    yield { petId: BigInt(i), quantity: (i * 7919) % 1_000, status: statuses[i % statuses.length]! };
  }
}
