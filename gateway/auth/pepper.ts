import { randomBytes } from "node:crypto";
import { linkSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { SettingsError } from "../../runtime/settings.ts";

/** Where accounts and keys are when nothing else is said. */
export const defaultKeyDatabaseUrl = "sqlite:.data/gateway.sqlite";

/** HMAC-SHA-256 gains nothing from more than 32 random bytes, and a short text can be guessed. */
export const pepperMinLength = 32;

const defaultDataDir = ".data";

export interface PepperSettings {
  readonly GATEWAY_DATABASE_URL: string;
  readonly KEY_PEPPER?: string | undefined;
}

/**
 * The pepper of the keys: the setting, else for the default database the one that `npm start` made beside it.
 *
 * @throws SettingsError when there is neither, or the file does not hold a pepper
 */
export function readPepper({ GATEWAY_DATABASE_URL, KEY_PEPPER }: PepperSettings): string {
  if (KEY_PEPPER !== undefined) return KEY_PEPPER;
  const kept = GATEWAY_DATABASE_URL === defaultKeyDatabaseUrl ? readPepperFile(defaultDataDir) : undefined;
  if (kept !== undefined) return kept;
  throw new SettingsError([
    `KEY_PEPPER: is required: a secret of at least ${pepperMinLength} characters, the same wherever these keys are used`,
  ]);
}

/** The same as a cross-field rule for `readSettings`: the faults in place of an exception. */
export function pepperFaults(settings: Partial<PepperSettings>): string[] {
  const { GATEWAY_DATABASE_URL } = settings;
  // A setting that could not be read is absent and has a fault of its own already.
  if (GATEWAY_DATABASE_URL === undefined || !("KEY_PEPPER" in settings)) return [];
  try {
    readPepper({ ...settings, GATEWAY_DATABASE_URL });
    return [];
  } catch (error) {
    if (error instanceof SettingsError) return [...error.faults];
    throw error;
  }
}

/**
 * The pepper kept in a data directory, made at first need: 32 random bytes as hex, readable by its owner only.
 * Safe when several processes start at once: all get the same one.
 *
 * @throws SettingsError when the file is there but does not hold a pepper
 */
export function ensurePepper(dataDir: string): string {
  const kept = readPepperFile(dataDir);
  if (kept !== undefined) return kept;
  mkdirSync(dataDir, { recursive: true });
  const draft = `${pepperFile(dataDir)}.${process.pid}.${randomBytes(4).toString("hex")}`;
  // Written aside and linked into place: a crash leaves no half a pepper, and the first of several wins.
  // Flushed before it is used: a pepper that is lost takes every key issued under it along.
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
