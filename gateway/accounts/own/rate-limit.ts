/** GET /rate_limit: what a caller has left, whether it is banned, and what its key allows. */
import type { RequestHandler } from "express";
import type { Admission } from "../../admission/admission.ts";
import { writeJson } from "../../http/json.ts";
import { contextOf, hasWaited } from "../../http/request-context.ts";
import { type Scope, scopes } from "../keys/principal.ts";

export interface RateLimitOptions {
  readonly admission: Pick<Admission, "reverifyKey">;
  /** Unix milliseconds. */
  readonly now: () => number;
}

/** The answer has the numbers of its own limit headers. */
export function getRateLimit({ admission, now }: RateLimitOptions): RequestHandler {
  return async (request, response) => {
    const context = contextOf(response);
    const { principal, shownWindows } = context; // as its headers have them
    if (hasWaited(response)) await admission.reverifyKey(context); // it waited for Redis, or the process was frozen
    const { plan, keyId, scopes: held, expiresAtMs, bannedUntilMs } = principal!;
    const body = {
      plan,
      windows: shownWindows.map(({ name, limit, used, remaining, resetAtMs }) => ({
        name,
        limit,
        used,
        remaining,
        resetAt: wholeSecond(resetAtMs),
      })),
      ban: bannedUntilMs > now() ? { until: wholeSecond(bannedUntilMs) } : null,
      key: {
        id: keyId,
        scopes: scopes.filter((scope: Scope) => held.has(scope)),
        expiresAt: expiresAtMs === null ? null : new Date(expiresAtMs).toISOString(),
      },
    };
    writeJson(request, response, 200, JSON.stringify(body), ["Cache-Control", "no-store"]);
  };
}

/** ISO 8601, rounded up to a second as in the limit headers. */
function wholeSecond(ms: number): string {
  return new Date(Math.ceil(ms / 1_000) * 1_000).toISOString();
}
