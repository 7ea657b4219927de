import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { readSettings, SettingsError } from "../../../runtime/settings.ts";
import { keySettings } from "../../config.ts";
import { pepperFingerprint } from "./key-format.ts";
import { checkPeppers, defaultKeyDatabaseUrl, ensurePepper, pepperFaults, readPeppers } from "./pepper.ts";

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
  expect(readPeppers({ GATEWAY_DATABASE_URL: defaultKeyDatabaseUrl, KEY_PEPPER: given })).toEqual([given]);
});

test("the pepper file is used for the default database and no other", () => {
  const pepper = ensurePepper(".data");
  expect(readPeppers({ GATEWAY_DATABASE_URL: defaultKeyDatabaseUrl })).toEqual([pepper]);
  expect(() => readPeppers({ GATEWAY_DATABASE_URL: elsewhere })).toThrow(SettingsError);
});

test("a missing pepper is a fault that names the setting", () => {
  expect(() => readPeppers({ GATEWAY_DATABASE_URL: defaultKeyDatabaseUrl })).toThrow(/KEY_PEPPER: is required/);
});

test("a pepper file without a pepper is a fault and is never overwritten", () => {
  mkdirSync(".data");
  writeFileSync(".data/key-pepper", "short\n");
  expect(() => ensurePepper(".data")).toThrow(SettingsError);
  expect(() => readPeppers({ GATEWAY_DATABASE_URL: defaultKeyDatabaseUrl })).toThrow(/key-pepper holds fewer than 32/);
  expect(readFileSync(".data/key-pepper", "utf8")).toBe("short\n");
});

test("a pepper file that cannot be read is a fault", () => {
  mkdirSync(".data/key-pepper", { recursive: true });
  expect(() => ensurePepper(".data")).toThrow(/key-pepper cannot be read \(EISDIR\)/);
});

test("the rule for the pepper adds each fault once and shows no value", () => {
  const read = (env: NodeJS.ProcessEnv) => () => readSettings(keySettings, env, pepperFaults);
  expect(read({})).toThrow(/has a fault:\n {2}KEY_PEPPER: is required/);
  expect(read({ KEY_PEPPER: "hunter2" })).toThrow(
    /has a fault:\n {2}KEY_PEPPER: must be at least 32 characters, as of openssl rand -hex 32$/,
  );
  expect(read({ KEY_PEPPER: given, GATEWAY_KEY_ENV: "Not Fit" })).toThrow(/GATEWAY_KEY_ENV: must be/);
  expect(read({ KEY_PEPPER: given })()).toMatchObject({ KEY_PEPPER: given, GATEWAY_KEY_ENV: "live" });
  const peppers = { KEY_PEPPER: given, KEY_PEPPER_OLD: "hunter2" };
  expect(read(peppers)).toThrow(
    /has a fault:\n {2}KEY_PEPPER_OLD: must be at least 32 characters, as of openssl rand -hex 32$/,
  );
});

test("the old pepper is read beside the current one, and must differ from it", () => {
  const kept = ensurePepper(".data");
  const read = (settings: object) => readPeppers({ GATEWAY_DATABASE_URL: defaultKeyDatabaseUrl, ...settings });
  expect(read({ KEY_PEPPER: given, KEY_PEPPER_OLD: kept })).toEqual([given, kept]);
  expect(read({ KEY_PEPPER_OLD: given })).toEqual([kept, given]);
  for (const same of [{ KEY_PEPPER: given, KEY_PEPPER_OLD: given }, { KEY_PEPPER_OLD: kept }]) {
    expect(() => read(same)).toThrow(/KEY_PEPPER_OLD: must differ from KEY_PEPPER$/);
  }
});

const [first, second, mistyped] = [given, `${given} 2`, `${given} typo`];

test.each<[string, string[], [string, ...string[]], "taken" | "refused"]>([
  ["the pepper of the keys is taken", [first], [first], "taken"],
  ["or without any, each pepper is taken", [], [mistyped], "taken"],
  ["another pepper is refused", [first], [mistyped], "refused"],
  ["a new pepper is taken with that of the keys as the old one", [first], [second, first], "taken"],
  ["a new pepper is refused with a mistyped old one", [first], [second, mistyped], "refused"],
  ["both peppers of a change that has begun are taken", [second, first], [second, first], "taken"],
  ["both peppers of a change are taken the other way round", [second, first], [first, second], "taken"],
  ["the earlier pepper is taken where the change has not come yet", [second, first], [first], "taken"],
  ["right peppers are taken after a key was made under a mistyped one", [mistyped, first], [second, first], "taken"],
  ["a mistyped pepper beside another mistyped one is refused", [second, first], [mistyped, `${given} 3`], "refused"],
  ["the new pepper alone is taken after the change", [second, first], [second], "taken"],
])("beside keys that work, %s", async (_what, ofKeys, given, outcome) => {
  const store = { keysByPepper: async () => new Map(ofKeys.map((pepper) => [pepperFingerprint(pepper), 3])) };
  const check = checkPeppers(given, store);
  const without = ofKeys.filter((pepper) => !given.includes(pepper as never)).length;
  if (outcome === "taken") expect(await check).toBe(3 * without);
  else await expect(check).rejects.toThrow(/has a fault:\n {2}KEY_PEPPER: is not what the keys/);
});
