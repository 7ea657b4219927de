/** Reads settings from a `.env` file in the working directory. */
import { existsSync, readFileSync } from "node:fs";
import { parseEnv } from "node:util";

const file = ".env";

/** Takes the settings of the file into the environment, whose variables win. */
export function loadEnvFile(): void {
  if (existsSync(file)) process.loadEnvFile(file);
}

/**
 * Returns a line for each name in the file that is nearly one of these settings, and so takes no effect. Other names
 * may be settings of another command, which shares the file.
 */
export function mistypedNames(settings: readonly string[]): string[] {
  if (!existsSync(file)) return [];
  return Object.keys(parseEnv(readFileSync(file, "utf8"))).flatMap((name) => {
    if (settings.includes(name)) return [];
    const meant = settings.find((setting) => editsBetween(name.toUpperCase(), setting) <= maxEdits);
    return meant === undefined ? [] : [`${file}: ${name} is no setting and has no effect; ${meant} is one`];
  });
}

/** Letters that are added, left out or exchanged in a name that is mistyped. */
const maxEdits = 2;

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
