/** The form of an API key, which proves that it was made here, and what is stored of it. */
import { createHmac, randomBytes, timingSafeEqual } from "node:crypto";
import { crc32 } from "node:zlib";

const alphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/** 27 characters of base62 are 160 random bits. */
const randomLength = 27;
/** Of made-up keys, one in 62^5 (900 million) passes for a key that was made here. */
const proofLength = 5;
/** 62^6 is the first power of 62 above 2^32, so every CRC32 fits. */
const checksumLength = 6;

/** The form of the env, the part of a key that names its deployment, as `live` or `test`. */
export const keyEnvPattern = /^[a-z0-9]{1,16}$/;
const keyPattern = /^ps_[a-z0-9]{1,16}_[0-9A-Za-z]{38}$/;
/** The length of the shortest key. */
export const minKeyLength = "ps_".length + 1 + "_".length + randomLength + proofLength + checksumLength;
const maxKeyLength = minKeyLength + 15;

/** What is stored of a key. */
export interface StoredKey {
  /** From `hashKey`; the key itself is never stored. */
  readonly keyHash: Buffer;
  /** The env in the key. */
  readonly env: string;
  /** The fingerprint of the pepper that the key was made under. */
  readonly pepperFingerprint: string;
}

/**
 * Makes a new API key: `ps_<env>_<random><proof><checksum>`. The prefix lets secret scanners find a leaked key. The
 * proof is a MAC of what is before it, so a made-up key is refused without a look-up.
 *
 * @param env 1 to 16 lower-case letters and digits, as `live`
 * @throws RangeError for any other env
 */
export function createKey(env: string, pepper: string): string {
  if (!keyEnvPattern.test(env)) throw new RangeError("a key's env is 1 to 16 lower-case letters and digits");
  const text = `ps_${env}_${randomBase62(randomLength)}`;
  const proven = text + proof(text, derive(pepper, "proof"));
  return proven + checksum(proven);
}

/** What is stored of a key that was made under this pepper. */
export function storedKey(key: string, pepper: string): StoredKey {
  return { keyHash: hashKey(key, pepper), env: key.split("_")[1]!, pepperFingerprint: pepperFingerprint(pepper) };
}

/** True for a text of the form of a key. Its checksum finds typos. */
export function isWellFormed(token: string): boolean {
  // The length comes first, so that a huge header costs nothing.
  if (token.length < minKeyLength || token.length > maxKeyLength || !keyPattern.test(token)) return false;
  return checksum(token.slice(0, -checksumLength)) === token.slice(-checksumLength);
}

/** Whether a text has an API key in it, which must not be stored or sent on. */
export function holdsKey(text: string): boolean {
  return /ps_[a-z0-9]{1,16}_[0-9A-Za-z]{38}/.test(text);
}

/**
 * Makes a function that finds which of these peppers a key was made under, and returns the key's hash under it. It
 * returns undefined for any other text, such as a made-up key: no look-up can find it.
 */
export function ownKeyHasher(peppers: readonly string[]): (token: string) => Buffer | undefined {
  const secrets = peppers.map((pepper) => ({ pepper, proofSecret: derive(pepper, "proof") }));
  return (token) => {
    if (!isWellFormed(token)) return undefined;
    const maker = secrets.find(({ proofSecret }) => isProven(token, proofSecret));
    return maker && hashKey(token, maker.pepper);
  };
}

/**
 * The hash that is stored of a key: its HMAC-SHA-256 (32 bytes) under the deployment's pepper. No key can be found from
 * a copy of the database alone. There is no salt, because the secrets are random.
 */
export function hashKey(token: string, pepper: string): Buffer {
  return createHmac("sha256", pepper).update(token).digest();
}

/** What is stored of a pepper: it tells two of them apart. 32 hex digits. */
export function pepperFingerprint(pepper: string): string {
  return derive(pepper, "fingerprint").slice(0, 32);
}

function isProven(key: string, proofSecret: string): boolean {
  const text = key.slice(0, -(proofLength + checksumLength));
  const given = key.slice(text.length, text.length + proofLength);
  return timingSafeEqual(Buffer.from(given), Buffer.from(proof(text, proofSecret)));
}

function proof(text: string, proofSecret: string): string {
  const mac = createHmac("sha256", proofSecret).update(text).digest();
  // A number of 48 bits, so that no proof is more likely than another by more than 1 in 300,000.
  return base62(mac.readUIntBE(0, 6), proofLength);
}

/**
 * A secret of its own for each purpose, as 64 hex digits: HMAC takes a text several times faster than a Buffer. No such
 * secret equals the stored hash of a key: that is an HMAC of a text that begins with `ps_`.
 */
function derive(pepper: string, purpose: "proof" | "fingerprint"): string {
  return createHmac("sha256", pepper).update(`petstore key ${purpose}`).digest("hex");
}

function checksum(text: string): string {
  return base62(crc32(text), checksumLength);
}

/** The last digits of a number in base 62. */
function base62(value: number, length: number): string {
  let rest = value;
  let digits = "";
  for (let i = 0; i < length; i++) {
    digits = alphabet[rest % 62] + digits;
    rest = Math.floor(rest / 62);
  }
  return digits;
}

function randomBase62(length: number): string {
  let text = "";
  while (text.length < length) {
    for (const byte of randomBytes(length)) {
      // 248 is the largest multiple of 62 in a byte; larger values would make the first eight characters more likely.
      if (byte < 248 && text.length < length) text += alphabet[byte % 62];
    }
  }
  return text;
}
