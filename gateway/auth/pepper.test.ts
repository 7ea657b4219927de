import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { readSettings, SettingsError } from "../../runtime/settings.ts";
import { keySettings } from "../config.ts";
import { defaultKeyDatabaseUrl, ensurePepper, pepperFaults, readPepper } from "./pepper.ts";

const given = "a pepper of more than 32 characters";
const elsewhere = "mysql://gateway:password@db.example/keys";
const home = process.cwd();
let folder: string;

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "petstore-pepper-"));
  process.chdir(folder); // the default data directory is relative
});

afterEach(() => {
  process.chdir(home);
  rmSync(folder, { recursive: true });
});

test("a pepper is random, made once, and readable by its owner only", () => {
  const pepper = ensurePepper(".data");
  expect(pepper).toMatch(/^[0-9a-f]{64}$/);
  expect(ensurePepper(".data")).toBe(pepper);
  expect(ensurePepper("other")).not.toBe(pepper);
  expect(statSync(".data/key-pepper").mode & 0o777).toBe(0o600);
  expect(readdirSync(".data")).toEqual(["key-pepper"]);
});

test("the setting KEY_PEPPER comes before the pepper file", () => {
  ensurePepper(".data");
  expect(readPepper({ GATEWAY_DATABASE_URL: defaultKeyDatabaseUrl, KEY_PEPPER: given })).toBe(given);
});

test("the pepper file is used for the default database and no other", () => {
  const pepper = ensurePepper(".data");
  expect(readPepper({ GATEWAY_DATABASE_URL: defaultKeyDatabaseUrl })).toBe(pepper);
  expect(() => readPepper({ GATEWAY_DATABASE_URL: elsewhere })).toThrow(SettingsError);
});

test("a missing pepper is a fault that names the setting", () => {
  expect(() => readPepper({ GATEWAY_DATABASE_URL: defaultKeyDatabaseUrl })).toThrow(/KEY_PEPPER: is required/);
});

test("a pepper file without a pepper is a fault and is never overwritten", () => {
  mkdirSync(".data");
  writeFileSync(".data/key-pepper", "short\n");
  expect(() => ensurePepper(".data")).toThrow(SettingsError);
  expect(() => readPepper({ GATEWAY_DATABASE_URL: defaultKeyDatabaseUrl })).toThrow(/key-pepper holds fewer than 32/);
  expect(readFileSync(".data/key-pepper", "utf8")).toBe("short\n");
});

test("a pepper file that cannot be read is a fault", () => {
  mkdirSync(".data/key-pepper", { recursive: true });
  expect(() => ensurePepper(".data")).toThrow(/key-pepper cannot be read \(EISDIR\)/);
});

test("the rule for the pepper adds each fault once and shows no value", () => {
  const read = (env: NodeJS.ProcessEnv) => () => readSettings(keySettings, env, pepperFaults);
  expect(read({})).toThrow(/has a fault:\n {2}KEY_PEPPER: is required/);
  expect(read({ KEY_PEPPER: "hunter2" })).toThrow(/has a fault:\n {2}KEY_PEPPER: must be at least 32 characters$/);
  expect(read({ KEY_PEPPER: given, GATEWAY_KEY_ENV: "Not Fit" })).toThrow(/GATEWAY_KEY_ENV: must be/);
  expect(read({ KEY_PEPPER: given })()).toMatchObject({ KEY_PEPPER: given, GATEWAY_KEY_ENV: "live" });
});
