/** Reads settings from a `.env` file in the working directory, and finds names that are nearly settings. */
import { existsSync, readFileSync } from "node:fs";
import { parseEnv } from "node:util";
import { SettingsError } from "./settings.ts";

const file = ".env";

/**
 * Takes the settings of the file into the environment, whose variables win.
 *
 * @throws SettingsError for a file that this user may not read
 */
export function loadEnvFile(): void {
  for (const [name, value] of Object.entries(readEnvFile())) process.env[name] ??= value;
}

/**
 * Returns a line for each name that is nearly one of these settings, and so takes no effect. Other names may be
 * settings of another command, which shares the file. The environment has names of other programs, too. So a name there
 * is not reported when the setting that it resembles is set.
 */
export function mistypedNames(settings: readonly string[], env: NodeJS.ProcessEnv = process.env): string[] {
  const inFile = readEnvFile();
  return Object.keys({ ...inFile, ...env }).flatMap((name) => {
    if (settings.includes(name)) return [];
    const isInFile = name in inFile;
    const meant = settings.find((setting) => (isInFile || !env[setting]) && isNearly(name.toUpperCase(), setting));
    const where = isInFile ? file : "environment";
    return meant === undefined ? [] : [`${where}: ${name} is no setting and has no effect; ${meant} is one`];
  });
}

/** Reads the file. If this user may not read it, `process.loadEnvFile` would say that it is not there. */
function readEnvFile(): NodeJS.Dict<string> {
  if (!existsSync(file)) return {}; // also where this user may not search the folder
  try {
    return parseEnv(readFileSync(file, "utf8"));
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    throw new SettingsError([`${file} in ${process.cwd()}: this user cannot read it (${code})`]);
  }
}

/** Letters that are added, left out or exchanged in a name that is mistyped. */
const maxEdits = 2;

/** Letters by which the beginning of a setting may differ from a name that ends too early, as TRUSTED_PROXY does. */
const maxEditsOfBeginning = 1;

function isNearly(name: string, setting: string): boolean {
  if (Math.abs(name.length - setting.length) <= maxEdits && editsBetween(name, setting) <= maxEdits) return true;
  // A single word, such as KEY, is too common a name, and shells set one that is `_`.
  return /[A-Z]_[A-Z]/.test(name) && editsBetween(name, setting.slice(0, name.length)) <= maxEditsOfBeginning;
}

function editsBetween(from: string, to: string): number {
  let row = Array.from({ length: to.length + 1 }, (_, i) => i);
  for (const [i, letter] of [...from].entries()) {
    const next = [i + 1];
    for (const [j, other] of [...to].entries()) {
      next.push(Math.min(row[j + 1]! + 1, next[j]! + 1, row[j]! + (letter === other ? 0 : 1)));
    }
    row = next;
  }
  return row.at(-1)!;
}
