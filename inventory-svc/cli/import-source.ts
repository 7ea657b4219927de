/** Finds the file that `stock import` reads, and the lines of it that cannot be imported. */
import { createWriteStream } from "node:fs";
import { mkdtempDisposable, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pipeline } from "node:stream/promises";
import type { ItemInput } from "../../proto/pet.ts";
import { counted } from "../../runtime/command-line.ts";
import { OperatorError } from "../../runtime/operator-error.ts";
import { type Format, readLines } from "./entries.ts";
import { createProgress } from "./progress.ts";

/** The bad lines of a file that are printed. All further ones are only counted. */
const maxPrinted = 20;

/** A regular file to import, and its name in messages. */
export interface Source {
  readonly path: string;
  readonly name: string;
}

/** Finds a file, or saves standard input (`-`) in a temporary one, because an import reads it twice. */
export async function findSource(file: string, stack: AsyncDisposableStack): Promise<Source> {
  if (file === "-") {
    const folder = stack.use(await mkdtempDisposable(join(tmpdir(), "stock-")));
    const path = join(folder.path, "input");
    await pipeline(process.stdin, createWriteStream(path));
    return { path, name: "standard input" };
  }
  const found = await stat(file).catch((error) => {
    throw new OperatorError(`${file}: ${error.code === "ENOENT" ? "there is no such file" : error.message}`);
  });
  // A pipe would be empty when it is read again, and the import would succeed without an entry.
  if (found.isFile()) return { path: file, name: file };
  throw new OperatorError(
    `${file}: is not a regular file; an import takes a pipe as standard input, with - as the file`,
  );
}

/** Prints the lines that cannot be imported. @returns how many there are */
export async function printBadLines({ path, name }: Source, format: Format): Promise<number> {
  const progress = createProgress("lines checked");
  const firstLine = new Map<bigint, number>();
  let bad = 0;
  const print = (number: number, fault: string) => {
    bad += 1;
    if (bad > maxPrinted) return;
    progress.clear();
    console.error(`${name}:${number}: ${fault}`);
  };
  for await (const line of readLines(path, format, name)) {
    progress.show(line.number);
    if ("fault" in line) {
      print(line.number, line.fault);
      continue;
    }
    const first = firstLine.get(line.entry.petId);
    if (first === undefined) firstLine.set(line.entry.petId, line.number);
    else print(line.number, `petId ${line.entry.petId} is in line ${first} already`);
  }
  progress.clear();
  if (bad > maxPrinted) console.error(`and ${counted(bad - maxPrinted, "more bad line")}`);
  return bad;
}

/** Reads the good entries of a file. Of several lines with the same petId, the first one counts. */
export async function* entriesOf({ path, name }: Source, format: Format): AsyncGenerator<ItemInput> {
  const seen = new Set<bigint>();
  for await (const line of readLines(path, format, name)) {
    if ("fault" in line || seen.has(line.entry.petId)) continue;
    seen.add(line.entry.petId);
    yield line.entry;
  }
}
