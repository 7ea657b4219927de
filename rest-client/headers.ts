/** Reads the headers that tell what is left of the limits, and how long to wait. */

/** Longer times in headers are cut to this: timers end at once when they are set to more than 2^31 ms. */
const maxToldMs = 24 * 86_400_000;

/** A window as an answer tells it. */
export interface ToldWindow {
  readonly limit: number;
  readonly lengthMs: number;
  readonly left: number;
  readonly endsAtMs: number;
}

/** The windows that an answer tells, by name. */
export function readWindows(headers: Headers, nowMs: number): [name: string, ToldWindow][] {
  const policies = readItems(headers.get("ratelimit-policy"));
  return [...readItems(headers.get("ratelimit"))].map(([name, { r: left = 0, t: seconds = 0 }]) => {
    const { q: limit = 0, w = 0 } = policies.get(name) ?? {};
    return [name, { limit, lengthMs: w * 1_000, left, endsAtMs: nowMs + Math.min(seconds * 1_000, maxToldMs) }];
  });
}

/** A date of HTTP (RFC 9110 section 5.6.7): `Date.parse` takes `1.5` for a day of 2001. */
const httpDate = /^\w+, \d\d[ -]\w{3}[ -]\d{2,4} [\d:]{8} GMT$/;

/** `Retry-After`: seconds, or the date that a proxy may send. Anything else counts as absent. */
export function readRetryAfterMs(headers: Headers): number | undefined {
  const text = headers.get("retry-after");
  if (text === null) return undefined;
  const ms = /^\d+$/.test(text) ? Number(text) * 1_000 : Date.parse(httpDate.exec(text)?.[0] ?? "") - Date.now();
  return Number.isNaN(ms) ? undefined : Math.min(Math.max(0, ms), maxToldMs);
}

/**
 * Whether an error tells windows other than the account's (which always include `day`): those of the address, or of a
 * limit beside the account's windows, such as that of updates with a key.
 */
export function tellsOthers(headers: Headers): boolean {
  const policies = readItems(headers.get("ratelimit-policy"));
  return policies.size > 0 && !policies.has("day");
}

/** Items as `"minute";r=59;t=60, "day";r=999;t=86400`: their integers by item and name. */
function readItems(header: string | null): Map<string, Record<string, number>> {
  const items = [...(header ?? "").matchAll(/"([^"]*)"((?:;\s*\w+=\d+)+)/g)];
  return new Map(
    items.map(([, name, parameters]) => [
      name!,
      Object.fromEntries([...parameters!.matchAll(/(\w+)=(\d+)/g)].map(([, key, value]) => [key!, Number(value)])),
    ]),
  );
}
