/** The form of an API key, and what is stored of it. */
import { createHmac, randomBytes } from "node:crypto";
import { crc32 } from "node:zlib";

const alphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/** 32 characters of base62 are 190 random bits. */
const secretLength = 32;
/** 62^6 is the first power of 62 above 2^32, so every CRC32 fits. */
const checksumLength = 6;

/** The form of the env, the part of a key that names its deployment, as `live` or `test`. */
export const keyEnvPattern = /^[a-z0-9]{1,16}$/;
const keyPattern = /^ps_[a-z0-9]{1,16}_[0-9A-Za-z]{38}$/;
const shortestKey = "ps_".length + 1 + "_".length + secretLength + checksumLength;
const longestKey = shortestKey + 15;

/**
 * Makes a new API key: `ps_<env>_<secret><checksum>`. The prefix lets secret scanners find a leaked key.
 *
 * @param env 1 to 16 lower-case letters and digits, as `live`
 * @throws RangeError for any other env
 */
export function createKey(env: string): string {
  if (!keyEnvPattern.test(env)) throw new RangeError("a key's env is 1 to 16 lower-case letters and digits");
  const text = `ps_${env}_${randomBase62(secretLength)}`;
  return text + checksum(text);
}

/** True for a text that can be a key. The checksum tells a key with a typo without a look-up. */
export function isWellFormed(token: string): boolean {
  // The length comes first, so that a huge header costs nothing.
  if (token.length < shortestKey || token.length > longestKey || !keyPattern.test(token)) return false;
  return checksum(token.slice(0, -checksumLength)) === token.slice(-checksumLength);
}

/** Whether a text has an API key in it, which must not be stored or sent on. */
export function holdsKey(text: string): boolean {
  return /ps_[a-z0-9]{1,16}_[0-9A-Za-z]{38}/.test(text);
}

/**
 * The hash that is stored of a key: its HMAC-SHA-256 (32 bytes) under the deployment's pepper. No key can be found from
 * a copy of the database alone. There is no salt, because the secrets are random.
 */
export function hashKey(token: string, pepper: string): Buffer {
  return createHmac("sha256", pepper).update(token).digest();
}

function checksum(text: string): string {
  let rest = crc32(text);
  let digits = "";
  for (let i = 0; i < checksumLength; i++) {
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
