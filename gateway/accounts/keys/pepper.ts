/** The secrets under which keys are made and hashed. */
import { randomBytes } from "node:crypto";
import { linkSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { SettingsError } from "../../../runtime/settings.ts";
import { pepperFingerprint } from "./key-format.ts";
import type { KeyStore } from "./key-store.ts";

/** The default database of accounts and keys. */
export const defaultKeyDatabaseUrl = "sqlite:.data/gateway.sqlite";

/** Minimum characters of a pepper: a shorter one can be guessed. */
export const pepperMinLength = 32;

const defaultDataDir = ".data";

export interface PepperSettings {
  readonly GATEWAY_DATABASE_URL: string;
  readonly KEY_PEPPER?: string | undefined;
  readonly KEY_PEPPER_OLD?: string | undefined;
}

/** The pepper of new keys; then the old one, as long as keys that were made under it work. */
export type Peppers = readonly [current: string, ...old: string[]];

/** @throws SettingsError for two equal ones; what `readPepper` throws */
export function readPeppers(settings: PepperSettings): Peppers {
  const current = readPepper(settings);
  const { KEY_PEPPER_OLD: old } = settings;
  if (old === undefined) return [current];
  if (old === current) throw new SettingsError(["KEY_PEPPER_OLD: must differ from KEY_PEPPER"]);
  return [current, old];
}

/**
 * Compares the given peppers with those of the keys that work in the database, so that a mistyped one is found before a
 * caller gets 401. One pepper that matches a key is enough: otherwise one key that was made under a mistyped pepper
 * would stop every start. Without any key every pepper is right.
 *
 * @returns how many working keys were made under a pepper that is not given, and so get 401
 * @throws SettingsError when no pepper is that of a key
 */
export async function checkPeppers(peppers: Peppers, store: Pick<KeyStore, "keysByPepper">): Promise<number> {
  const known = await store.keysByPepper();
  const given = peppers.map(pepperFingerprint);
  const others = [...known].filter(([pepper]) => !given.includes(pepper));
  if (known.size > 0 && others.length === known.size) {
    throw new SettingsError([
      "KEY_PEPPER: is not what the keys in the database were made under; a new one needs theirs as KEY_PEPPER_OLD",
    ]);
  }
  return others.reduce((sum, [, keys]) => sum + keys, 0);
}

/**
 * Reads the pepper of new keys: the setting or, for the default database, the file that `npm start` made beside it.
 *
 * @throws SettingsError when there is neither, or the file does not hold a pepper
 */
function readPepper({ GATEWAY_DATABASE_URL, KEY_PEPPER }: PepperSettings): string {
  if (KEY_PEPPER !== undefined) return KEY_PEPPER;
  const kept = GATEWAY_DATABASE_URL === defaultKeyDatabaseUrl ? readPepperFile(defaultDataDir) : undefined;
  if (kept !== undefined) return kept;
  throw new SettingsError([
    `KEY_PEPPER: is required: a secret of at least ${pepperMinLength} characters, the same wherever these keys are used`,
  ]);
}

/** The faults of `readPeppers`, as a cross-field rule for `readSettings`. */
export function pepperFaults(settings: Partial<PepperSettings>): string[] {
  const { GATEWAY_DATABASE_URL } = settings;
  // A setting that could not be read is absent here, and its own fault is known already.
  if (GATEWAY_DATABASE_URL === undefined || !("KEY_PEPPER" in settings)) return [];
  try {
    readPeppers({ ...settings, GATEWAY_DATABASE_URL });
    return [];
  } catch (error) {
    if (error instanceof SettingsError) return [...error.faults];
    throw error;
  }
}

/**
 * Reads the pepper in a data directory, and makes it if there is none: 32 random bytes as hex, readable by its owner
 * only. Several processes that start at once get the same one.
 *
 * @throws SettingsError when the file is there but does not hold a pepper
 */
export function ensurePepper(dataDir: string): string {
  const kept = readPepperFile(dataDir);
  if (kept !== undefined) return kept;
  mkdirSync(dataDir, { recursive: true });
  const draft = `${pepperFile(dataDir)}.${process.pid}.${randomBytes(4).toString("hex")}`;
  // Written under another name and linked into place: a crash leaves no partial pepper, and the first process wins.
  // Flushed before its use: every key that was issued under a lost pepper is lost too.
  writeFileSync(draft, `${randomBytes(32).toString("hex")}\n`, { mode: 0o600, flag: "wx", flush: true });
  try {
    linkSync(draft, pepperFile(dataDir));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
  } finally {
    rmSync(draft, { force: true });
  }
  return readPepperFile(dataDir)!;
}

function readPepperFile(dataDir: string): string | undefined {
  const path = pepperFile(dataDir);
  try {
    const pepper = readFileSync(path, "utf8").trim();
    if (pepper.length >= pepperMinLength) return pepper;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "ENOENT" || code === "ENOTDIR") return undefined;
    throw new SettingsError([`KEY_PEPPER: is not set, and ${path} cannot be read (${code})`]);
  }
  throw new SettingsError([`KEY_PEPPER: is not set, and ${path} holds fewer than ${pepperMinLength} characters`]);
}

function pepperFile(dataDir: string): string {
  return join(dataDir, "key-pepper");
}
