import type { Request, RequestHandler, Response } from "express";
import type { Principal } from "../auth/principal.ts";
import { ApiError } from "../http/errors.ts";

export interface DeprecationOptions {
  /** Since when, or from when on, the operation is deprecated; null when that is not announced. */
  readonly deprecatedAt: Date | null;
  /** When the operation may go away; null when that is not announced. */
  readonly sunsetAt: Date | null;
  /** Whether the operation answers 410 from `sunsetAt` on. */
  readonly goneAfterSunset: boolean;
  /** Where people read about it; may be relative to the requested address. */
  readonly documentationUrl?: string;
  /** Called once for every request of an authenticated account, whatever the response. */
  readonly onUse?: (accountId: string) => void;
  readonly now?: () => number;
}

export interface Deprecation {
  /** Sets the headers and counts the use. Goes before authentication, so that errors carry the headers too. */
  readonly announce: (request: Request, response: Response) => void;
  /** Answers 410 when the operation is gone. Goes behind authentication and limits, at the route itself. */
  readonly retire: RequestHandler;
}

/**
 * Announces the end of an operation: `Deprecation` (RFC 9745), `Sunset` (RFC 8594) and a `Link` with
 * `rel="deprecation"` and `rel="sunset"`.
 */
export function deprecation({
  deprecatedAt,
  sunsetAt,
  goneAfterSunset,
  documentationUrl = "/docs",
  onUse = () => {},
  now = Date.now,
}: DeprecationOptions): Deprecation {
  return {
    announce: (_req, res) => {
      if (deprecatedAt !== null) {
        res.setHeader("Deprecation", `@${Math.floor(deprecatedAt.getTime() / 1_000)}`);
        res.appendHeader("Link", `<${documentationUrl}>; rel="deprecation"`);
      }
      if (sunsetAt !== null) {
        res.setHeader("Sunset", sunsetAt.toUTCString());
        res.appendHeader("Link", `<${documentationUrl}>; rel="sunset"`);
      }
      // Whose request it is comes out later, and every response has a close, even one that nobody waits for.
      res.once("close", () => {
        const principal = res.locals.principal as Principal | undefined;
        if (principal !== undefined) onUse(principal.accountId);
      });
    },
    retire: (_req, _res, next) => {
      if (!goneAfterSunset || sunsetAt === null || now() < sunsetAt.getTime()) next();
      else
        next(
          new ApiError("not_found", { status: 410, message: "The operation has been retired; see the Link header." }),
        );
    },
  };
}
