/** Files that nobody should import: lines that are entries and lines that are not, in files that may be damaged. */
import { copyFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { Random } from "../simulation/random.ts";
import { runScript } from "../support/processes.ts";
import { damage } from "./http-grammar.ts";

const statuses = ["available", "pending", "sold", "Sold", "", "__proto__", "sold\0", '"sold"'];
const numbers = [
  "0",
  "1",
  "2147483647",
  "2147483648",
  "-1",
  "+1",
  "1.0",
  "1e3",
  "٣",
  " 1",
  "007",
  "99999999999999999999",
];
const ids = ["9223372036854775807", "9223372036854775808", "-9223372036854775808", "1e3", "0x1", ...numbers];

export const linesOfFile = 5_000;

/** A good line is an entry by the rules of the contract, written the plain way. */
const goodLine = {
  csv: /^-?\d{1,19},\d{1,10},(available|pending|sold)$/,
  ndjson: /^\{"petId":-?\d{1,19},"quantity":\d{1,10},"status":"(available|pending|sold)"\}$/,
};
type Format = keyof typeof goodLine;

function line(format: Format, number: number, random: Random): string {
  const isGood = random.chance(0.5);
  const id = isGood ? `${number}` : random.pick(ids);
  const quantity = isGood ? `${random.below(1_000)}` : random.pick(numbers);
  const status = statuses[isGood ? random.below(3) : random.below(statuses.length)]!;
  const text =
    format === "csv" ? `${id},${quantity},${status}` : `{"petId":${id},"quantity":${quantity},"status":"${status}"}`;
  if (random.chance(0.9)) return text;
  return random.chance(0.05) ? text.repeat(random.below(2_000)) : damage(Buffer.from(text), random).toString("latin1");
}

/**
 * Imports a file of the seed's lines with `--skip-bad`. There has to be an entry then for each good line, and no other.
 *
 * @param emptyDatabase a file with the schema of the stock
 * @returns why the command did something else than to take or to refuse them
 */
export async function importInput(seed: number, folder: string, emptyDatabase: string): Promise<string | undefined> {
  const random = new Random(seed);
  const format = random.pick(["csv", "ndjson"] as const);
  const lines = Array.from({ length: linesOfFile }, (_, i) => line(format, i + 1, random));
  const head = format === "csv" ? "petId,quantity,status\n" : "";
  const text = head + lines.join(random.chance(0.8) ? "\n" : "\r\n");
  const isDamaged = random.chance(0.3);
  const bytes = Buffer.from(text, random.chance(0.9) ? "utf8" : "latin1");
  const file = join(folder, `${seed}.${format}`);
  await writeFile(file, isDamaged ? Buffer.concat([damage(bytes.subarray(0, 50), random), bytes.subarray(50)]) : bytes);
  const database = join(folder, `${seed}.db`);
  await copyFile(emptyDatabase, database);
  const env = { INVENTORY_DATABASE_URL: `sqlite:${database}` };
  const stock = (...args: string[]) => runScript({ script: "inventory-svc/cli/stock.ts", args, env });
  const imported = await stock("import", "--skip-bad", file);
  const outcome = `${imported.code}: ${imported.stderr.slice(-500)}`;
  if (/^ {4}at /m.test(imported.stderr)) return `a stack, ${outcome}`;
  if (imported.code !== 0 && !(isDamaged && imported.code === 1)) return outcome;
  if (imported.code !== 0) return undefined; // no line of it can be read
  const { stdout } = await stock("export", "--format", format);
  const kept = stdout
    .trimEnd()
    .split("\n")
    .slice(format === "csv" ? 1 : 0);
  const odd = kept.find((each) => !goodLine[format].test(each));
  if (odd) return `there is an entry ${odd}`;
  if (!imported.stderr.endsWith(`${kept.length} ${kept.length === 1 ? "entry" : "entries"} imported\n`)) return outcome;
  const there = new Set(kept.map(idOf));
  const missing = lines.find((each) => goodLine[format].test(each) && isInBounds(each) && !there.has(idOf(each)));
  return isDamaged || missing === undefined ? undefined : `there is no entry for ${missing}`;
}

const idOf = (text: string) => /-?\d+/.exec(text)?.[0];

/** Whether the numbers of a plain line are an int64 and a quantity, as they are written. */
function isInBounds(text: string): boolean {
  const [id, quantity] = text.match(/-?\d+/g) as [string, string];
  const isPlain = BigInt(id).toString() === id && BigInt(quantity).toString() === quantity;
  return isPlain && BigInt.asIntN(64, BigInt(id)) === BigInt(id) && BigInt(quantity) < 2n ** 31n;
}
