/** Settings: read from the environment, checked, and described for people. */
import { isIP } from "node:net";
import { z } from "zod";

/** One setting per environment variable, with the description that `--help` and docs/settings.md show. */
export type SettingsShape = Record<string, z.ZodType>;
export type Settings<S extends SettingsShape> = { readonly [K in keyof S]: z.output<S[K]> };

/**
 * All faults of the configuration at once. It names settings and what they accept, never a value, which may be secret.
 */
export class SettingsError extends Error {
  readonly faults: readonly string[];

  constructor(faults: readonly string[]) {
    super(
      `The configuration has ${faults.length === 1 ? "a fault" : `${faults.length} faults`}:\n  ${faults.join("\n  ")}`,
    );
    this.name = "SettingsError";
    this.faults = faults;
  }
}

/**
 * Reads and checks all settings.
 *
 * @param shape one zod schema per environment variable; an empty string counts as not set
 * @param rules checks settings against each other; gets those that could be read, and returns faults
 * @throws SettingsError naming every setting that is not valid
 */
export function readSettings<S extends SettingsShape>(
  shape: S,
  env: { readonly [K in keyof S]?: string | undefined },
  rules: (settings: Partial<Settings<S>>) => string[] = () => [],
): Settings<S> {
  const settings: Record<string, unknown> = {};
  const faults: string[] = [];
  for (const [name, schema] of Object.entries(shape)) {
    const result = schema.safeParse(env[name] || undefined);
    if (result.success) settings[name] = result.data;
    else faults.push(`${name}: ${[...new Set(result.error.issues.map((issue) => issue.message))].join("; ")}`);
  }
  faults.push(...rules(settings as Partial<Settings<S>>));
  if (faults.length > 0) throw new SettingsError(faults);
  return Object.freeze(settings) as Settings<S>;
}

/** The table of settings for `--help`: name, default, meaning. */
export function describeSettings(shape: SettingsShape): string {
  const rows = settingRows(shape);
  const width = Math.max(...rows.map(([name]) => name.length));
  return rows.map(([name, byDefault, text]) => `  ${name.padEnd(width)}  ${text} (default: ${byDefault})`).join("\n");
}

/** `[name, default as text, description]` for every setting. */
export function settingRows(shape: SettingsShape): [string, string, string][] {
  return Object.entries(shape).map(([name, schema]) => {
    const byDefault = schema.safeParse(undefined);
    const meta = schema.meta() as { description?: string; shownDefault?: string } | undefined;
    const shown = meta?.shownDefault ?? (byDefault.success ? String(byDefault.data ?? "none") : "none, required");
    return [name, shown, meta?.description ?? ""];
  });
}

export interface ListenAddress {
  readonly host: string;
  readonly port: number;
  toString(): string;
}

/** `host:port` or `[v6]:port`. Port 0 asks for any free port. */
export function listenAddressSchema(byDefault: string) {
  return z
    .string()
    .default(byDefault)
    .transform((text, context): ListenAddress => {
      const match = /^(?:\[([^\]]+)\]|([^:]+)):(\d{1,5})$/.exec(text);
      const host = match?.[1] ?? match?.[2];
      const port = Number(match?.[3]);
      if (host === undefined || !(port <= 65535)) {
        context.addIssue("must be host:port, as in 127.0.0.1:8080");
        return z.NEVER;
      }
      return { host, port, toString: () => text };
    });
}

/**
 * A text of one form. The values schema of the Helm chart (deploy/chart) has a copy of the pattern, so the pattern may
 * use only what Go's regular expressions know, too: nothing that looks ahead or back.
 *
 * @param pattern of the whole text
 * @param error says what the text must be, or is a function that makes this message from the wrong text
 */
export function textLike(pattern: string, error: string | ((issue: { readonly input?: unknown }) => string)) {
  return z.string().regex(new RegExp(`^(?:${pattern})$`), { error });
}

/** A whole number from `min` to `max`, which are not negative. */
export function integer(byDefault: number, min: number, max: number) {
  return textLike(wholeNumbers(min, max), `must be a whole number from ${min} to ${max}`)
    .default(String(byDefault))
    .transform(Number);
}

/**
 * A pattern of the decimal numbers from `min` to `max`. It cuts them into ranges in which each digit has a range of its
 * own: 50 to 2000 are 50 to 59, 60 to 99, 100 to 999, 1000 to 1999, and 2000.
 */
function wholeNumbers(min: number, max: number): string {
  const ends = new Set([max]);
  for (let unit = 10; min - (min % unit) + unit - 1 < max; unit *= 10) ends.add(min - (min % unit) + unit - 1);
  for (let unit = 10; max + 1 - ((max + 1) % unit) > min; unit *= 10) ends.add(max - ((max + 1) % unit));
  const sorted = [...ends].sort((a, b) => a - b);
  return sorted
    .map((end, i) => {
      const first = `${i === 0 ? min : sorted[i - 1]! + 1}`;
      const digits = [...`${end}`].map((high, at) => (first[at] === high ? high : `[${first[at]}-${high}]`));
      return digits.join("").replaceAll("[0-9]", "\\d");
    })
    .join("|");
}

/** `1`, `true` or `0`, `false`. */
export function flag(byDefault: boolean) {
  return z
    .enum(["0", "1", "false", "true"], { error: "must be 1 or 0" })
    .default(byDefault ? "1" : "0")
    .transform((text) => text === "1" || text === "true");
}

export type LogLevel = "fatal" | "error" | "warn" | "info" | "debug" | "trace" | "silent";

const levels = ["fatal", "error", "warn", "info", "debug", "trace", "silent"] as const;

/** The settings that every process of this system has. */
export const processSettings = {
  LOG_LEVEL: z
    .enum(levels, { error: `must be one of ${levels.join(", ")}` })
    .default("info")
    .describe("least severe level that is logged"),
  DRAIN_SECONDS: integer(15, 0, 3600).describe("the longest that a stop may take"),
  DRAIN_DELAY_SECONDS: integer(5, 0, 3600).describe(
    "the first part of a stop: not ready, but still serving, until load balancers have noticed",
  ),
};

/** Checks that the delay of a stop leaves time for the rest of it. */
export function drainFaults({
  DRAIN_SECONDS = Number.POSITIVE_INFINITY,
  DRAIN_DELAY_SECONDS = 0,
}: Partial<Settings<typeof processSettings>>): string[] {
  return DRAIN_DELAY_SECONDS > 0 && DRAIN_DELAY_SECONDS >= DRAIN_SECONDS
    ? ["DRAIN_DELAY_SECONDS: must be less than DRAIN_SECONDS, of which it is a part, or 0"]
    : [];
}

/**
 * A database URL: `sqlite:path/to/file` or `mysql://user:password@host:port/database`, with `?ssl=true` for TLS. With
 * TLS the host must be a name, with which the server's certificate is compared: for an address the driver would compare
 * the certificate with `localhost`.
 */
export function databaseUrl(byDefault: string) {
  return z
    .string()
    .default(byDefault)
    .refine((text) => /^sqlite:.+/.test(text) || (/^mysql:\/\/[^/]+\/.+/.test(text) && isDecodable(text)), {
      error:
        "must be sqlite:path/to/file or mysql://user:password@host:port/database, with / # % of a password percent-encoded",
      abort: true,
    })
    .refine((text) => text.startsWith("sqlite:") || !text.includes("#"), {
      error: "must have no #, which is %23 in a password",
    })
    .refine((text) => text.startsWith("sqlite:") || ["", "?ssl=true"].includes(new URL(text).search), {
      error: "must have no parameter other than ?ssl=true",
    })
    .refine((text) => text.startsWith("sqlite:") || new URL(text).search === "" || !isAddress(new URL(text).hostname), {
      error: "must have a host name for ?ssl=true, not an address: the certificate is compared with it",
    });
}

/** @param host of a URL, where an IPv6 address has brackets */
function isAddress(host: string): boolean {
  return isIP(host.replace(/^\[|\]$/g, "")) !== 0;
}

/** True for a URL whose percent-encoding can be decoded. */
function isDecodable(text: string): boolean {
  try {
    decodeURIComponent(text);
    return URL.canParse(text);
  } catch {
    return false;
  }
}

/** True for an address that only this machine can reach. */
export function isLoopback(host: string): boolean {
  return host === "localhost" || host === "::1" || (isIP(host) === 4 && host.startsWith("127."));
}

/**
 * The form of the texts that `parseIsoTime` reads. A time without an offset would mean another moment on every machine.
 */
export const isoTimePattern = `${z.regexes.date.source}|${z.regexes.datetime({ offset: true }).source}`.replace(
  /[\^$]/g,
  "",
);

const isoTime = textLike(isoTimePattern, "");

/**
 * Reads a moment in ISO 8601: a time with its offset, or a day, which stands for its start in UTC.
 *
 * @returns Unix milliseconds; undefined for any other text, such as 30 February
 */
export function parseIsoTime(text: string): number | undefined {
  return isoTime.safeParse(text).success ? Date.parse(text) : undefined;
}
