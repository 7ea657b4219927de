import { createKey, hashKey, isWellFormed } from "./key-format.ts";

const alphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
// Computed with another implementation (Python's zlib and hmac), because issued keys must stay valid.
const known = "ps_test_0123456789ABCDEFGHIJKLMNOPQRSTUV3b0fKF";
const pepper = "pepper-of-the-test-with-32-chars!";

test("a new key is well-formed, whatever its env", () => {
  for (const env of ["live", "test", "a", "0123456789abcdef"]) {
    const key = createKey(env);
    expect(key).toMatch(new RegExp(`^ps_${env}_[0-9A-Za-z]{38}$`));
    expect(isWellFormed(key)).toBe(true);
  }
});

test("an env that could be taken for another part of the key is refused", () => {
  for (const env of ["", "Live", "a_b", "a-b", "live\n", "0123456789abcdefg"]) {
    expect(() => createKey(env)).toThrow(RangeError);
  }
});

test("a secret has at least 160 random bits: no key repeats, and all characters are equally likely", () => {
  const keys = Array.from({ length: 5_000 }, () => createKey("live"));
  expect(new Set(keys).size).toBe(keys.length);
  const secrets = keys.map((key) => key.slice("ps_live_".length, -6));
  expect(secrets[0]!.length * Math.log2(62)).toBeGreaterThanOrEqual(160);
  const counts = new Map([...alphabet].map((character) => [character, 0]));
  for (const character of secrets.join("")) counts.set(character, counts.get(character)! + 1);
  // 160,000 characters: 2,581 of each, give or take 50; a byte modulo 62 would give eight of them 3,125.
  expect(Math.min(...counts.values())).toBeGreaterThan(2_581 - 300);
  expect(Math.max(...counts.values())).toBeLessThan(2_581 + 300);
});

test("the checksum is the CRC32 of the text before it, in base62 with leading zeros", () => {
  expect(isWellFormed(known)).toBe(true);
  expect(isWellFormed("ps_live_0000000000000000000000000000034200wZgq")).toBe(true);
});

test("a typo anywhere makes a key malformed", () => {
  for (let i = 0; i < known.length; i++) {
    for (const character of alphabet) {
      if (character === known[i]) continue;
      expect(isWellFormed(known.slice(0, i) + character + known.slice(i + 1))).toBe(false);
    }
  }
  expect(isWellFormed(known.slice(0, 20) + known[21] + known[20] + known.slice(22))).toBe(false);
});

test("a text that is no key is malformed, and a very long one is refused quickly", () => {
  const others = ["", "ps_", "ps_live_", `${known}0`, known.slice(1), known.slice(0, -1), ` ${known}`, `${known}\n`];
  for (const token of others) expect(isWellFormed(token)).toBe(false);
  const long = known + "x".repeat(8_000_000);
  const start = performance.now();
  for (let i = 0; i < 1_000; i++) expect(isWellFormed(long)).toBe(false);
  expect(performance.now() - start).toBeLessThan(1_000);
});

test("a text of another shape is malformed even with the right checksum", () => {
  const tokens = [
    "pk_live_0123456789ABCDEFGHIJKLMNOPQRSTUV1j90KZ",
    "ps_LIVE_0123456789ABCDEFGHIJKLMNOPQRSTUV2I5I2n",
    "ps__x0123456789ABCDEFGHIJKLMNOPQRSTUV0002zrGhs",
    "ps_live_0123456789ABCDEFGHIJKLMNOPQRSTU2c01ml",
    "ps_live_0123456789ABCDEFGHIJKLMNOPQRSTUV03CJc3I",
    "ps_live_0123456789ABCDEFGHIJKLMNOPQRSTU-3IGW6M",
    "ps_0123456789abcdefg_0123456789ABCDEFGHIJKLMNOPQRSTUV37ua44",
  ];
  for (const token of tokens) expect(isWellFormed(token)).toBe(false);
});

test("only an HMAC-SHA-256 under the pepper is stored", () => {
  expect(hashKey(known, pepper).toString("hex")).toBe(
    "76b39148523e4de7ea23b2eae81e89fa9337044aeba8ea1d2bd1bae4de52cfc0",
  );
  expect(hashKey(known, `${pepper}!`)).not.toEqual(hashKey(known, pepper));
});
