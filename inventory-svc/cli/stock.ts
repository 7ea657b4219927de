#!/usr/bin/env node
// npm run stock: brings entries in and out as files.
import { createWriteStream } from "node:fs";
import { rename, rm, stat } from "node:fs/promises";
import type { Writable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { Command, Option } from "commander";
import { databaseDefaults, openDatabase } from "../../runtime/database/open.ts";
import { migrate } from "../../runtime/migrations.ts";
import { exitWith, loadEnvFile } from "../../runtime/process.ts";
import { describeSettings, readSettings } from "../../runtime/settings.ts";
import { inventorySettings } from "../config.ts";
import { stockMigrations } from "../stock/migrations.ts";
import { StockStore } from "../stock/store.ts";
import { parseCount } from "./arguments.ts";
import { type Entry, type Format, fileHead, formatOf, formats, generated, readLines, toText } from "./entries.ts";

const settings = { INVENTORY_DATABASE_URL: inventorySettings.INVENTORY_DATABASE_URL };

const batchSize = 1_000;

/** A refusal that the operator can do something about: one line, exit code 1. */
class Refusal extends Error {}

async function withStore(work: (store: StockStore) => Promise<void>): Promise<void> {
  const { INVENTORY_DATABASE_URL } = readSettings(settings, process.env);
  const db = openDatabase(INVENTORY_DATABASE_URL, databaseDefaults);
  try {
    await migrate(db, "inventory", stockMigrations, "up");
    await work(new StockStore(db));
  } finally {
    await db.destroy();
  }
}

/** Shows how far it has come, on a terminal. */
function progress(done: number, what: string): void {
  if (process.stderr.isTTY) process.stderr.write(`\r${done.toLocaleString("en")} ${what}`);
}

/** Names every line that cannot be imported. @returns how many */
async function nameBadLines(file: string, format: Format): Promise<number> {
  const firstLine = new Map<bigint, number>();
  let bad = 0;
  const name = (number: number, fault: string) => {
    bad += 1;
    console.error(`${file}:${number}: ${fault}`);
  };
  for await (const line of readLines(file, format)) {
    if ("fault" in line) {
      name(line.number, line.fault);
      continue;
    }
    const first = firstLine.get(line.entry.petId);
    if (first === undefined) firstLine.set(line.entry.petId, line.number);
    else name(line.number, `petId ${line.entry.petId} stands in line ${first} already`);
    if (firstLine.size % batchSize === 0) progress(firstLine.size, "entries checked");
  }
  return bad;
}

/** The entries of a file. Of lines with one petId the first counts. */
async function* entriesOf(file: string, format: Format): AsyncGenerator<Entry> {
  const seen = new Set<bigint>();
  for await (const line of readLines(file, format)) {
    if ("fault" in line || seen.has(line.entry.petId)) continue;
    seen.add(line.entry.petId);
    yield line.entry;
  }
}

async function importEntries(entries: AsyncIterable<Entry>, store: StockStore): Promise<number> {
  let batch: Entry[] = [];
  let done = 0;
  const write = async () => {
    await store.write(batch.map((entry) => ({ kind: "put", ...entry })));
    done += batch.length;
    batch = [];
    progress(done, "entries imported");
  };
  for await (const entry of entries) {
    batch.push(entry);
    if (batch.length === batchSize) await write();
  }
  if (batch.length > 0) await write();
  if (process.stderr.isTTY) process.stderr.write("\n");
  return done;
}

/** Writes every entry and closes `out`, unless it is standard output. @returns how many */
async function exportEntries(store: StockStore, out: Writable, format: Format): Promise<number> {
  let done = 0;
  const text = async function* () {
    yield fileHead(format);
    for await (const page of store.pages(batchSize)) {
      yield page.map((item) => toText(item, format)).join("");
      done += page.length;
    }
  };
  await pipeline(text, out, { end: out !== process.stdout });
  return done;
}

function chosenFormat(file: string | undefined, given: Format | undefined): Format {
  const format = given ?? (file === undefined ? "csv" : formatOf(file));
  if (!format) throw new Refusal(`${file}: the name tells no format: end it in .csv or .ndjson, or say --format`);
  return format;
}

const program = new Command("npm run stock --")
  .description("Brings entries of the stock in and out as files: CSV or NDJSON with petId, quantity and status.")
  .addHelpText("after", `\nSettings, from the environment or a .env file:\n${describeSettings(settings)}`);

const formatOption = () =>
  new Option("--format <format>", "csv or ndjson; the file's name tells it otherwise").choices(formats);

program
  .command("import [file]")
  .description("makes every entry of the file, or brings it to that state; leaves all others as they are")
  .addOption(formatOption())
  .option("--skip-bad", "imports the good lines of a file that has bad ones")
  .option("--generate <n>", "imports petId 1 to n, made up for trials, instead of a file", parseCount)
  .action(async (file: string | undefined, options: { format?: Format; skipBad?: true; generate?: number }) => {
    if ((file === undefined) === (options.generate === undefined)) {
      throw new Refusal("import takes a file, or --generate N");
    }
    let entries = generated(options.generate ?? 0);
    if (file !== undefined) {
      const format = chosenFormat(file, options.format);
      // Of a pipe the second reading would find nothing, and the import would end well with no entry.
      if (!(await stat(file)).isFile()) {
        throw new Refusal(`${file}: is not a regular file, and an import reads its file twice: write it to one first`);
      }
      const bad = await nameBadLines(file, format);
      if (bad > 0 && !options.skipBad) {
        throw new Refusal(`${bad} bad lines: nothing was imported. --skip-bad imports the others.`);
      }
      entries = entriesOf(file, format);
    }
    await withStore(async (store) => {
      console.error(`${await importEntries(entries, store)} entries imported`);
    });
  });

program
  .command("export [file]")
  .description("writes every entry, ordered by petId, to the file or to standard output")
  .addOption(formatOption())
  .action(async (file: string | undefined, options: { format?: Format }) => {
    const format = chosenFormat(file, options.format);
    await withStore(async (store) => {
      if (file === undefined) {
        await exportEntries(store, process.stdout, format);
        return;
      }
      // Written aside, so that a file of this name is whole whenever it is there.
      const draft = `${file}.${process.pid}.part`;
      try {
        const done = await exportEntries(store, createWriteStream(draft), format);
        await rename(draft, file);
        console.error(`${done} entries exported`);
      } finally {
        await rm(draft, { force: true });
      }
    });
  });

program
  .command("restored")
  .description("to be run once after the database was restored from a backup: all readers load the stock anew")
  .action(async () => {
    await withStore(async (store) => {
      const { epoch } = await store.beginEpoch();
      console.error(`the stock has the new epoch ${epoch}`);
    });
  });

try {
  loadEnvFile();
  await program.parseAsync();
} catch (error) {
  // A file or a server that is not there, as the operating system says it: one line tells all.
  const { syscall } = error as NodeJS.ErrnoException;
  if (!(error instanceof Refusal) && syscall === undefined) exitWith(error);
  console.error((error as Error).message);
  process.exitCode = 1;
}
