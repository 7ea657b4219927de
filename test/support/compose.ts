import { readFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { parseEnv } from "node:util";
import { parse } from "yaml";

export const composeFolder = resolve(import.meta.dirname, "../../deploy/compose");

/** The part of a service that the tests read. */
export interface ComposeService {
  readonly environment?: Readonly<Record<string, string>>;
  readonly volumes?: readonly string[];
  readonly entrypoint?: readonly string[];
  readonly build?: { readonly context: string; readonly target: string };
  readonly deploy?: { readonly replicas: number };
}

export interface ComposeProject {
  readonly services: Readonly<Record<string, ComposeService>>;
  readonly secrets: Readonly<Record<string, { readonly file: string }>>;
  readonly volumes: Readonly<Record<string, unknown>>;
}

/** Reads `production.env` or `staging.env`. */
export async function readEnvFile(name: string): Promise<Record<string, string>> {
  return parseEnv(await readFile(join(composeFolder, name), "utf8")) as Record<string, string>;
}

/** Returns the names of the variables in compose.yaml, each with whether it is required. */
export async function composeVariables(): Promise<Map<string, boolean>> {
  const text = await readFile(join(composeFolder, "compose.yaml"), "utf8");
  return new Map([...text.matchAll(variable)].map(([, name, rule]) => [name!, rule === ":?"]));
}

/**
 * Reads compose.yaml with its variables filled in. @throws Error for a required variable without a value, as Compose
 * does
 */
export async function readCompose(env: Readonly<Record<string, string>>): Promise<ComposeProject> {
  const text = await readFile(join(composeFolder, "compose.yaml"), "utf8");
  const fill = (value: string) =>
    value.replace(variable, (_all, name: string, rule: string, byDefault: string) => {
      if (env[name]) return env[name];
      if (rule === ":?") throw new Error(`${name} is required`);
      return byDefault;
    });
  return parse(text, (_key, value) => (typeof value === "string" ? fill(value) : value), { merge: true });
}

const variable = /\$\{([A-Z_]+)(:[?-])([^}]*)\}/g;
