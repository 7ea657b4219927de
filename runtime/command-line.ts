/** What every command has in common: its name, `--help`, `--version`, refused arguments, tables, and exit codes. */
import { readFileSync } from "node:fs";
import nodeModule from "node:module";
import { basename, relative } from "node:path";
import { Command, CommanderError } from "commander";
import { loadEnvFile, mistypedNames } from "./env-file.ts";
import { OperatorError } from "./operator-error.ts";
import { describeSettings, SettingsError, type SettingsShape } from "./settings.ts";

/** sysexits.h EX_USAGE: the arguments are wrong. */
export const exitUsage = 64;

/** sysexits.h EX_CONFIG: the configuration is wrong, so a restart will not help. */
const exitConfiguration = 78;

/**
 * Makes a command that knows `--help` and `--version` and refuses arguments that it does not know.
 *
 * @param script its name in `npm run`
 * @param settings that it reads; `--help` lists them
 */
export function createCommand(script: string, description: string, settings: SettingsShape): Command {
  return new Command(calledAs(script))
    .description(description)
    .version(packageVersion)
    .exitOverride()
    .hook("preAction", () => {
      for (const line of mistypedNames(Object.keys(settings))) process.stderr.write(`${line}\n`);
    })
    .addHelpText("after", `\nSettings, from the environment or a .env file:\n${describeSettings(settings)}`);
}

/** Reads `.env`, runs the command that the arguments name, and ends the process with its exit code if it fails. */
export async function runCommand(command: Command): Promise<void> {
  // The reader of a pipe may leave when it has seen enough. The command still does all of its work.
  process.stdout.on("error", (error: NodeJS.ErrnoException) => {
    if (error.code !== "EPIPE") throw error;
  });
  try {
    loadEnvFile();
    await command.parseAsync();
  } catch (error) {
    exitWith(error);
  }
}

/** A count with its noun, as in `1 row` and `2 rows`. */
export function counted(count: number, one: string, many = `${one}s`): string {
  return `${count} ${count === 1 ? one : many}`;
}

/** A table with a line of headings and a line for each row; the text `empty` when there are no rows. */
export function table(rows: readonly Record<string, string>[], empty: string): string {
  const headings = Object.keys(rows[0] ?? {});
  if (rows.length === 0) return empty;
  const widths = headings.map((heading) => Math.max(heading.length, ...rows.map((row) => row[heading]!.length)));
  const line = (cells: string[]) =>
    cells
      .map((cell, i) => cell.padEnd(widths[i]!))
      .join("  ")
      .trimEnd();
  return [line(headings), ...rows.map((row) => line(headings.map((heading) => row[heading]!)))].join("\n");
}

/** Returns what was typed to start this command, so that "Usage:" can be followed. */
function calledAs(script: string): string {
  const file = process.argv[1] ?? "";
  if (basename(file).startsWith("petstore-")) return basename(file);
  if (process.env.npm_lifecycle_event !== script) return `node ${relative(".", file)}`;
  return script === "start" ? "npm start --" : `npm run ${script} --`;
}

/** The version of this package, read before an update may replace its files. */
export const packageVersion: string = JSON.parse(
  readFileSync(nodeModule.findPackageJSON(import.meta.url)!, "utf8"),
).version;

/** Prints a fault and ends the process: one line where an operator can mend it, the stack for a bug. */
function exitWith(error: unknown): never {
  const { message, stack, code, syscall }: Partial<NodeJS.ErrnoException> = Object(error);
  if (error instanceof CommanderError) process.exit(error.exitCode === 0 ? 0 : exitUsage); // it has said why
  if (code === "EPIPE") process.exit(0);
  const isClear = error instanceof OperatorError || error instanceof SettingsError || syscall !== undefined;
  process.stderr.write(`${(isClear ? message : stack) || error}\n`);
  process.exit(error instanceof SettingsError ? exitConfiguration : 1);
}
