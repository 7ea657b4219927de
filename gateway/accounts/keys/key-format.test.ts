import { crc32 } from "node:zlib";
import { createKey, hashKey, isWellFormed, ownKeyHasher, pepperFingerprint, storedKey } from "./key-format.ts";

const alphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
// Computed with another implementation (Python's zlib and hmac), because issued keys must stay valid.
const known = "ps_test_0123456789ABCDEFGHIJKLMNOPQScFX400e6d3";
const pepper = "pepper-of-the-test-with-32-chars!";
const other = `${pepper}!`;

/** Adds the right checksum, as every caller can. */
function checksummed(text: string): string {
  const digits = Array.from({ length: 6 }, (_, i) => alphabet[Math.floor(crc32(text) / 62 ** i) % 62]);
  return text + digits.reverse().join("");
}

test("a new key is well-formed and has the hash that is stored of it, whatever its env", () => {
  for (const env of ["live", "test", "a", "0123456789abcdef"]) {
    for (let i = 0; i < 100; i++) {
      const key = createKey(env, pepper);
      expect(key).toMatch(new RegExp(`^ps_${env}_[0-9A-Za-z]{38}$`));
      expect(isWellFormed(key)).toBe(true);
      const keyHash = ownKeyHasher([pepper])(key);
      expect(storedKey(key, pepper)).toEqual({ keyHash, env, pepperFingerprint: pepperFingerprint(pepper) });
    }
  }
});

test("an env that could be taken for another part of the key is refused", () => {
  for (const env of ["", "Live", "a_b", "a-b", "live\n", "0123456789abcdefg"]) {
    expect(() => createKey(env, pepper)).toThrow(RangeError);
  }
});

test("a key has at least 160 random bits, none repeats, and all characters are equally likely", () => {
  const keys = Array.from({ length: 5_000 }, () => createKey("live", pepper));
  expect(new Set(keys).size).toBe(keys.length);
  const [random, proofs] = [keys.map((key) => key.slice(8, -11)), keys.map((key) => key.slice(-11, -6))];
  expect(random[0]!.length * Math.log2(62)).toBeGreaterThanOrEqual(160);
  expect(new Set(proofs).size).toBeGreaterThan(4_990);
  const counts = new Map([...alphabet].map((character) => [character, 0]));
  for (const character of [...random, ...proofs].join("")) counts.set(character, counts.get(character)! + 1);
  // 160,000 characters: 2,581 of each, give or take 50; a byte modulo 62 would give eight of them 3,125.
  expect(Math.min(...counts.values())).toBeGreaterThan(2_581 - 300);
  expect(Math.max(...counts.values())).toBeLessThan(2_581 + 300);
});

test("a key is recognized under the current or old pepper that made it, and no other", () => {
  expect(ownKeyHasher([pepper])(known)).toEqual(hashKey(known, pepper));
  expect(ownKeyHasher([pepper])("ps_live_0000000000000000000000000360mFWY0RrAFQ")).toBeDefined();
  for (let i = 0; i < 500; i++) {
    const [maker, stranger] = i % 2 === 0 ? [pepper, other] : [other, pepper];
    const key = createKey("test", maker);
    expect(ownKeyHasher([pepper, other])(key)).toEqual(hashKey(key, maker));
    expect(ownKeyHasher([stranger])(key)).toBeUndefined();
  }
});

test("a made-up key is not recognized, even with a right checksum and parts of good keys", () => {
  const [one, two] = [createKey("live", pepper), createKey("live", pepper)];
  const madeUp = [
    one.slice(0, -11) + two.slice(-11, -6),
    two.slice(0, 20) + one.slice(20, -6),
    `ps_test_${one.slice(8, -6)}`,
    `ps_live_${"0".repeat(32)}`,
  ].map(checksummed);
  expect(checksummed(one.slice(0, -6))).toBe(one);
  for (const key of madeUp) {
    expect(isWellFormed(key)).toBe(true);
    expect(ownKeyHasher([pepper, other])(key)).toBeUndefined();
  }
});

test("the checksum is the CRC32 of the text before it, in base62 with leading zeros", () => {
  expect(isWellFormed(known)).toBe(true);
  expect(isWellFormed("ps_live_0000000000000000000000000000034200wZgq")).toBe(true);
});

test("a key with one character changed, or two exchanged, is malformed", () => {
  const survivors: string[] = [];
  for (const key of [known, ...Array.from({ length: 40 }, () => createKey("live", pepper))]) {
    for (let i = 0; i < key.length; i++) {
      const changed = [...alphabet].map((character) => key.slice(0, i) + character + key.slice(i + 1));
      const exchanged = key.slice(0, i) + (key[i + 1] ?? "") + key[i] + key.slice(i + 2);
      survivors.push(...[...changed, exchanged].filter((text) => text !== key && isWellFormed(text)));
    }
  }
  expect(survivors).toEqual([]);
});

test("a text that is no key is malformed, and a very long one is refused quickly", () => {
  const others = ["", "ps_", "ps_live_", `${known}0`, known.slice(1), known.slice(0, -1), ` ${known}`, `${known}\n`];
  for (const token of others) expect(isWellFormed(token)).toBe(false);
  const long = known + "x".repeat(8_000_000);
  const start = performance.now();
  for (let i = 0; i < 1_000; i++) expect(isWellFormed(long)).toBe(false);
  expect(performance.now() - start).toBeLessThan(1_000);
});

test("a text of another shape is malformed even with the right checksum and the right proof", () => {
  const tokens = [
    "pk_live_0123456789ABCDEFGHIJKLMNOPQq306J4VP92R",
    "ps_LIVE_0123456789ABCDEFGHIJKLMNOPQYXHXl3Qnp3O",
    "ps__x0123456789ABCDEFGHIJKLMNOPQgzonG0olEEa",
    "ps_live_0123456789ABCDEFGHIJKLMNOP8YvbI20zm9v",
    "ps_live_0123456789ABCDEFGHIJKLMNOPQRHm36X1jFv6x",
    "ps_live_0123456789ABCDEFGHIJKLMNOP-axRNQ37rE06",
    "ps_0123456789abcdefg_0123456789ABCDEFGHIJKLMNOPQX677T0a8u9k",
  ];
  for (const token of tokens) expect(isWellFormed(token)).toBe(false);
});

test("only an HMAC-SHA-256 of a key under the pepper is stored, and a fingerprint of the pepper", () => {
  expect(hashKey(known, pepper).toString("hex")).toBe(
    "8b02b203456fe8935d40b6232e935e4f057536962522f6038929a39a6f987452",
  );
  expect(hashKey(known, other)).not.toEqual(hashKey(known, pepper));
  expect(pepperFingerprint(pepper)).toBe("4caf42072b4f198fec835f2253fbdda1");
  expect(pepperFingerprint(other)).not.toBe(pepperFingerprint(pepper));
});
