/**
 * Reads the arguments of the `keys` commands.
 *
 * Each function throws commander's InvalidArgumentError for a text that it does not take.
 */
import { InvalidArgumentError } from "commander";
import { parseIsoTime } from "../../../runtime/settings.ts";
import { type Scope, scopes } from "../keys/principal.ts";
import { minutesKeptMs } from "../usage/usage-recorder.ts";

const unitMs = { s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 } as const;
const longestDurationMs = 366 * unitMs.d;

/** A duration as `30m`, `24h` or `7d`. @returns milliseconds */
export function parseDurationMs(text: string): number {
  const [, count, unit] = /^(\d{1,9})([smhd])$/.exec(text) ?? [];
  const ms = Number(count) * unitMs[unit as keyof typeof unitMs];
  if (!(ms <= longestDurationMs)) throw new InvalidArgumentError("Give it as in 30m, 24h or 7d, up to 366d.");
  return ms;
}

/** The time before now whose requests are counted. @returns milliseconds */
export function parseUsagePeriodMs(text: string): number {
  const ms = parseDurationMs(text);
  if (ms > minutesKeptMs) throw new InvalidArgumentError("Requests are kept for 8 days.");
  return ms;
}

/** A future moment in ISO 8601; a day alone is its start in UTC. @returns Unix milliseconds */
export function parseFutureTimeMs(text: string): number {
  const ms = parseIsoTime(text);
  if (ms === undefined) {
    throw new InvalidArgumentError("Give it in ISO 8601, as 2030-01-31 or 2030-01-31T12:00:00Z.");
  }
  if (ms <= Date.now()) throw new InvalidArgumentError("It must be in the future.");
  return ms;
}

/** Comma-separated scopes, at least one. */
export function parseScopes(text: string): Scope[] {
  const names = text.split(",").map((name) => name.trim());
  if (!names.every((name): name is Scope => scopes.some((scope) => scope === name))) {
    throw new InvalidArgumentError(`Give one or more of ${scopes.join(",")}.`);
  }
  return names;
}

/** A limit in digits. Its bounds are checked where the account is stored. */
export function parseLimit(text: string): number {
  if (!/^\d{1,10}$/.test(text)) throw new InvalidArgumentError("Give a whole number.");
  return Number(text);
}
