import { readFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { parseEnv } from "node:util";
import { parse } from "yaml";

export const composeFolder = resolve(import.meta.dirname, "../../deploy/compose");

/** What the tests read of a service. */
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

/** `production.env` or `staging.env`. */
export async function readEnvFile(name: string): Promise<Record<string, string>> {
  return parseEnv(await readFile(join(composeFolder, name), "utf8")) as Record<string, string>;
}

/** Names of the variables that compose.yaml takes; true for those that it cannot do without. */
export async function composeVariables(): Promise<Map<string, boolean>> {
  const text = await readFile(join(composeFolder, "compose.yaml"), "utf8");
  return new Map([...text.matchAll(variable)].map(([, name, rule]) => [name!, rule === ":?"]));
}

/** @throws Error for a variable that is required and has no value, as Compose does */
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
