/** The one error of the client. */
import { readRetryAfterMs } from "./headers.ts";
import type { ErrorBody } from "./types.ts";

/** A code of the API, or one of the client's own. */
export type ErrorCode = ErrorBody["code"] | "no_answer" | "unknown_answer";

export interface ErrorDetails {
  readonly status?: number;
  readonly requestId?: string | undefined;
  readonly retryAfterMs?: number | undefined;
  readonly cause?: unknown;
}

/**
 * A request that was refused, or that got no usable answer.
 *
 * An update that failed with status 0 or 5xx, or with `unknown_answer`, may have happened. Repeat it with the same
 * `idempotencyKey`.
 */
export class InventoryApiError extends Error {
  /**
   * A code of the API, as `not_found`. Two are the client's own: `no_answer` (the connection failed or the time was up;
   * in a page also where the API has another origin, because it has no CORS) and `unknown_answer` (an answer that is
   * not of this API, as a proxy sends it).
   */
  readonly code: ErrorCode;
  /** HTTP status; 0 where there was no answer, 429 also where the limits kept this client from sending. */
  readonly status: number;
  /** `X-Request-Id` of the answer, to quote in a report. */
  readonly requestId: string | undefined;
  /** Time in ms after which a repeat can succeed, where it is known; at most 24 days, which a timer can take. */
  readonly retryAfterMs: number | undefined;

  constructor(code: ErrorCode, message: string, { status = 0, requestId, retryAfterMs, cause }: ErrorDetails = {}) {
    super(`${code}: ${message}`, { cause });
    this.name = "InventoryApiError";
    this.code = code;
    this.status = status;
    this.requestId = requestId;
    this.retryAfterMs = retryAfterMs;
  }
}

/** The error that an answer is. */
export function readError({ status, headers }: Response, text: string): InventoryApiError {
  const { code = "unknown_answer", message = `a ${status} that is not of this API` } = readErrorBody(text) ?? {};
  const requestId = headers.get("x-request-id") ?? undefined;
  return new InventoryApiError(code, message, { status, requestId, retryAfterMs: readRetryAfterMs(headers) });
}

function readErrorBody(text: string): Pick<ErrorBody, "code" | "message"> | undefined {
  try {
    const body = JSON.parse(text);
    return typeof body?.code === "string" ? { code: body.code, message: String(body.message) } : undefined;
  } catch {
    return undefined;
  }
}
