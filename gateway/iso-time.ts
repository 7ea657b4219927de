import { z } from "zod";

// A time without an offset means another moment on every machine, so it is none.
const isoTime = z.union([z.iso.date(), z.iso.datetime({ offset: true })]);

/**
 * A moment in ISO 8601: a time with its offset, or a day, which is its start in UTC.
 *
 * @returns Unix milliseconds; undefined for anything else, as a day that no month has
 */
export function parseIsoTime(text: string): number | undefined {
  return isoTime.safeParse(text).success ? Date.parse(text) : undefined;
}
