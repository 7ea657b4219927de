/** Announces the end of operations: RFC 9745 (Deprecation), RFC 8594 (Sunset) and the links that belong to them. */
import { isoTimePattern, parseIsoTime } from "../../runtime/settings.ts";
import { toRoot } from "./api-error.ts";
import type { HeaderList } from "./request-context.ts";

/** What operators announce of an operation. */
export interface DeprecationNotice {
  /** When the operation became, or becomes, deprecated; null when that is not announced. */
  readonly deprecatedAt: Date | null;
  /** When the operation may go away; null when that is not announced. */
  readonly sunsetAt: Date | null;
  /** Where people read about it; undefined for the documentation page. */
  readonly link?: string | undefined;
  /** Whether the operation answers 410 from `sunsetAt` on. */
  readonly isGoneAfterSunset?: boolean;
}

/** Notices by operationId. */
export type DeprecationNotices = Readonly<Record<string, DeprecationNotice>>;

/** The announced end of an operation: the headers that tell it, and when the operation is gone. */
export interface Deprecation {
  /** `Deprecation`, `Sunset` and `Link`, for every response of the operation. */
  readonly headers: HeaderList;
  /** Unix milliseconds from which the operation answers 410; infinity when it stays. */
  readonly goneFromMs: number;
}

const date = `(?:none|${isoTimePattern})`;
const entry = `\\s*[A-Za-z]+=${date}(?:;${date})?(?:;https?://[^\\s,;<>"]+)?(?:;gone)?\\s*`;

/**
 * A pattern of the announcements that operators write: `none`, or comma-separated entries
 * `operationId=deprecation;sunset;link;gone`.
 */
export const deprecationsPattern = `none|${entry}(?:,${entry})*`;

/**
 * Reads announcements. Only the date of the deprecation has to be there; `none` stands for a date that is not
 * announced.
 *
 * @param text of the form of `deprecationsPattern`
 */
export function parseDeprecations(text: string): DeprecationNotices {
  const entries = text === "none" ? [] : text.split(",").map((each) => each.trim());
  return Object.fromEntries(
    entries.map((each) => {
      const end = each.indexOf("=");
      return [each.slice(0, end), noticeOf(each.slice(end + 1).split(";"))];
    }),
  );
}

function noticeOf(parts: readonly string[]): DeprecationNotice {
  const isGoneAfterSunset = parts.at(-1) === "gone";
  const link = parts.find((part) => /^https?:/.test(part));
  const [deprecatedAt = null, sunsetAt = null] = parts
    .filter((part) => part !== "gone" && part !== link)
    .map((part) => (part === "none" ? null : new Date(parseIsoTime(part)!)));
  return { deprecatedAt, sunsetAt, link, isGoneAfterSunset };
}

/**
 * @param route method and path of the operation, to which the link to the documentation page is relative
 * @param name of the operation, which has a section of that page
 */
export function toDeprecation(
  { deprecatedAt, sunsetAt, link, isGoneAfterSunset }: DeprecationNotice,
  route: string,
  name: string,
): Deprecation {
  const url = link ?? `${toRoot(route.slice(route.indexOf(" ") + 1))}docs/#${name}`;
  const headers: string[] = [];
  const links: string[] = [];
  if (deprecatedAt !== null) {
    headers.push("Deprecation", `@${Math.floor(deprecatedAt.getTime() / 1_000)}`);
    links.push(`<${url}>; rel="deprecation"`);
  }
  if (sunsetAt !== null) {
    headers.push("Sunset", sunsetAt.toUTCString());
    links.push(`<${url}>; rel="sunset"`);
  }
  if (links.length > 0) headers.push("Link", links.join(", "));
  const goneFromMs = isGoneAfterSunset && sunsetAt !== null ? sunsetAt.getTime() : Number.POSITIVE_INFINITY;
  return { headers, goneFromMs };
}
