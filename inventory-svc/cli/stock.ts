#!/usr/bin/env node
/**
 * The operators' command line of the stock, `npm run stock --`: imports, exports, a removal, the history of an entry,
 * and a new epoch after a restore.
 */
import "../../runtime/node-version.ts";
import { open, rename, rm } from "node:fs/promises";
import type { Writable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { type Command, InvalidArgumentError, Option } from "commander";
import { type ItemInput, parsePetId } from "../../proto/pet.ts";
import { counted, createCommand, exitUsage, runCommand } from "../../runtime/command-line.ts";
import { blamingDatabase } from "../../runtime/database/faults.ts";
import { updateSchema } from "../../runtime/database/migrations.ts";
import { databaseDefaults, openDatabase } from "../../runtime/database/open.ts";
import { OperatorError } from "../../runtime/operator-error.ts";
import { readSettings } from "../../runtime/settings.ts";
import { stockCommandSettings, stockDatabaseSetting } from "../config.ts";
import { StockHistory } from "../stock/stock-history.ts";
import { stockMigrations } from "../stock/stock-migrations.ts";
import { StockStore } from "../stock/stock-store.ts";
import { type Format, fileHead, formatOf, formats, generated, toText } from "./entries.ts";
import { historyTable } from "./history-table.ts";
import { entriesOf, findSource, printBadLines } from "./import-source.ts";
import { createProgress } from "./progress.ts";
import { readWholeStock } from "./whole-stock.ts";

const batchSize = 1_000;

type Work = (store: StockStore, history: StockHistory) => Promise<void>;

/** Opens the stock as it is. The user of the database needs no right to change the schema for that. */
async function withStore(work: Work, prepare: (url: string) => Promise<void> = async () => {}): Promise<void> {
  const config = readSettings(stockCommandSettings, process.env);
  const { INVENTORY_DATABASE_URL, INVENTORY_DATABASE_TIMEOUT_MS, INVENTORY_HISTORY_DAYS } = config;
  await blamingDatabase(stockDatabaseSetting, async () => {
    await prepare(INVENTORY_DATABASE_URL);
    const db = openDatabase(INVENTORY_DATABASE_URL, {
      ...databaseDefaults,
      silenceTimeoutMs: INVENTORY_DATABASE_TIMEOUT_MS,
    });
    try {
      await work(new StockStore(db, INVENTORY_HISTORY_DAYS > 0), new StockHistory(db));
    } finally {
      await db.destroy();
    }
  });
}

/** Opens the stock, and brings its schema up to date first. */
async function withLatestSchema(work: Work): Promise<void> {
  await withStore(work, (url) => updateSchema(url, "inventory", stockMigrations));
}

async function importEntries(entries: AsyncIterable<ItemInput>, store: StockStore): Promise<number> {
  const progress = createProgress("entries imported");
  let batch: ItemInput[] = [];
  let done = 0;
  const write = async () => {
    await store.write(batch.map((entry) => ({ kind: "put", ...entry })));
    done += batch.length;
    batch = [];
    progress.show(done);
  };
  for await (const entry of entries) {
    batch.push(entry);
    if (batch.length === batchSize) await write();
  }
  if (batch.length > 0) await write();
  progress.clear();
  return done;
}

/**
 * Writes every entry as it was at one moment, and closes `out` unless it is standard output.
 *
 * @returns how many there are
 */
async function exportEntries(store: StockStore, out: Writable, format: Format): Promise<number> {
  const isOnTerminal = out === process.stdout && process.stdout.isTTY;
  const progress = createProgress("entries read", process.stderr.isTTY && !isOnTerminal);
  const entries = await readWholeStock(store, batchSize, (count) => progress.show(count));
  const text = function* () {
    yield fileHead(format);
    for (let at = 0; at < entries.length; at += batchSize) {
      const batch = entries.slice(at, at + batchSize);
      yield batch.map((item) => toText(item, format)).join("");
    }
  };
  await pipeline(text, out, { end: out !== process.stdout });
  progress.clear();
  return entries.length;
}

/** Reads a count of at least one. */
function parseCount(text: string): number {
  if (!/^[1-9]\d{0,7}$/.test(text)) throw new InvalidArgumentError("must be a whole number from 1 to 99999999.");
  return Number(text);
}

function parseId(text: string): bigint {
  const petId = parsePetId(text);
  if (petId === undefined) throw new InvalidArgumentError("must be an int64.");
  return petId;
}

function chosenFormat(file: string | undefined, given: Format | undefined, self: Command): Format {
  const format = given ?? (file === undefined ? "csv" : formatOf(file));
  return format ?? refuse(self, `${file}: the name does not tell the format: use .csv or .ndjson, or --format`);
}

/** Ends the command because of its arguments. */
function refuse(self: Command, fault: string): never {
  return self.error(`error: ${fault}`, { exitCode: exitUsage });
}

const description =
  "Imports and exports the entries of the stock as files, CSV or NDJSON with petId, quantity and status; removes an entry, shows who changed it, and begins a new epoch after a restore.";
const program = createCommand("stock", description, stockCommandSettings);

const formatOption = () =>
  new Option("--format <format>", "csv or ndjson; default: from the name of the file").choices(formats);

program
  .command("import [file]")
  .description("creates or updates every entry of the file, - for standard input; leaves all other entries as they are")
  .addOption(formatOption())
  .option("--skip-bad", "imports the good lines of a file that also has bad ones")
  .option("--dry-run", "checks the file and changes nothing; needs no database")
  .option("--generate <n>", "imports made-up entries for trials, petId 1 to n, instead of a file", parseCount)
  .action(
    async (
      file: string | undefined,
      options: { format?: Format; skipBad?: true; dryRun?: true; generate?: number },
      self: Command,
    ) => {
      if ((file === undefined) === (options.generate === undefined)) {
        refuse(self, "import takes a file, or --generate N");
      }
      await using stack = new AsyncDisposableStack();
      let entries = generated(options.generate ?? 0);
      if (file !== undefined) {
        const format = chosenFormat(file === "-" ? undefined : file, options.format, self);
        const source = await findSource(file, stack);
        const bad = await printBadLines(source, format);
        if (bad > 0 && !options.skipBad) {
          throw new OperatorError(
            `${counted(bad, "bad line")}: nothing was imported. --skip-bad imports the good ones.`,
          );
        }
        entries = entriesOf(source, format);
      }
      if (options.dryRun) {
        let wouldBe = 0;
        for await (const _ of entries) wouldBe += 1;
        console.error(`${counted(wouldBe, "entry", "entries")} would be imported`);
        return;
      }
      await withLatestSchema(async (store) => {
        // The entries may come from another stock whose ETags callers still have: its revisions must not come again.
        if ((await store.position()).revision === 0n) await store.beginEpoch();
        console.error(`${counted(await importEntries(entries, store), "entry", "entries")} imported`);
      });
    },
  );

program
  .command("export [file]")
  .description("writes every entry, in the order of petId, to the file or to standard output")
  .addOption(formatOption())
  .action(async (file: string | undefined, options: { format?: Format }, self: Command) => {
    const format = chosenFormat(file, options.format, self);
    await withLatestSchema(async (store) => {
      if (file === undefined) {
        await exportEntries(store, process.stdout, format);
        return;
      }
      // The file gets its name only when it is complete.
      const draft = `${file}.${process.pid}.part`;
      await using opened = await open(draft, "w");
      try {
        const done = await exportEntries(store, opened.createWriteStream(), format);
        await rename(draft, file);
        console.error(`${counted(done, "entry", "entries")} exported`);
      } finally {
        await rm(draft, { force: true });
      }
    });
  });

program
  .command("remove")
  .argument("<petId>", "of the entry", parseId)
  .description("removes an entry, such as one that was imported by mistake; its history stays")
  .action(async (petId: bigint) => {
    await withLatestSchema(async (store) => {
      const [outcome] = await store.write([{ kind: "remove", petId }]);
      if (outcome?.kind !== "done") throw new OperatorError(`there is no entry with petId ${petId}`);
      console.error(`entry ${petId} removed`);
    });
  });

program
  .command("history")
  .argument("<petId>", "of the entry", parseId)
  .description("shows the changes of an entry that are kept, the newest first: when, what, by whom, and why")
  .option("--limit <n>", "the most changes that are shown", parseCount, 20)
  .action(async (petId: bigint, { limit }: { limit: number }) => {
    await withStore(async (store, history) => {
      const changes = await history.before(undefined, petId, limit);
      if (changes.length === 0 && !(await store.get(petId))) {
        throw new OperatorError(`there is neither an entry with petId ${petId} nor a kept change of one`);
      }
      process.stdout.write(`${historyTable(changes)}\n`);
    });
  });

program
  .command("restored")
  .description("run this once after restoring the database from a backup: all readers then load the stock again")
  .action(async () => {
    await withLatestSchema(async (store) => {
      const { epoch } = await store.beginEpoch();
      console.error(`the stock has the new epoch ${epoch}`);
    });
  });

await runCommand(program);
