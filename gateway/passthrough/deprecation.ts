/** Announces the end of an operation: RFC 9745 (Deprecation), RFC 8594 (Sunset) and the links that belong to them. */
import type { HeaderList } from "../http/request-context.ts";

export interface DeprecationDates {
  /** When the operation became, or becomes, deprecated; null when that is not announced. */
  readonly deprecatedAt: Date | null;
  /** When the operation may go away; null when that is not announced. */
  readonly sunsetAt: Date | null;
  /** Whether the operation answers 410 from `sunsetAt` on. */
  readonly goneAfterSunset: boolean;
  /** Where people read about it; may be relative to the requested address. */
  readonly documentationUrl: string;
}

export interface Deprecation extends Pick<DeprecationDates, "deprecatedAt" | "sunsetAt"> {
  /** `Deprecation`, `Sunset` and `Link`, for every response of the operation. */
  readonly headers: HeaderList;
  /** Unix milliseconds from which the operation answers 410; infinity when it stays. */
  readonly goneFromMs: number;
}

export function deprecation(dates: DeprecationDates): Deprecation {
  const { deprecatedAt, sunsetAt, goneAfterSunset, documentationUrl } = dates;
  const headers: string[] = [];
  const links: string[] = [];
  if (deprecatedAt !== null) {
    headers.push("Deprecation", `@${Math.floor(deprecatedAt.getTime() / 1_000)}`);
    links.push(`<${documentationUrl}>; rel="deprecation"`);
  }
  if (sunsetAt !== null) {
    headers.push("Sunset", sunsetAt.toUTCString());
    links.push(`<${documentationUrl}>; rel="sunset"`);
  }
  if (links.length > 0) headers.push("Link", links.join(", "));
  const goneFromMs = goneAfterSunset && sunsetAt !== null ? sunsetAt.getTime() : Number.POSITIVE_INFINITY;
  return { deprecatedAt, sunsetAt, headers, goneFromMs };
}
