/** Every error code of the public API, with its status and its text. Clients switch on `code`, so the set is closed. */
export const errorTable = {
  missing_api_key: {
    status: 401,
    message:
      "An API key is required: send it as 'Authorization: Bearer <API_KEY>'. The Link header leads to the documentation.",
  },
  invalid_api_key: { status: 401, message: "The API key is not valid." },
  insufficient_scope: { status: 403, message: "The API key does not have the scope that this operation needs." },
  invalid_request: { status: 400, message: "The request is not valid." },
  invalid_json: { status: 400, message: "The body is not valid JSON." },
  not_found: { status: 404, message: "The requested resource could not be found." },
  changes_unavailable: {
    status: 410,
    message: "The changes since this ETag are not available, or too many: read the list.",
  },
  method_not_allowed: { status: 405, message: "The resource does not support this method; see the Allow header." },
  payload_too_large: { status: 413, message: "The request is larger than 16 KiB." },
  unsupported_media_type: {
    status: 415,
    message: "The body must be JSON in UTF-8, without a content coding, in a media type that the operation takes.",
  },
  key_replaced: { status: 409, message: "A newer key has taken the place of this one and is in use: rotate that one." },
  insufficient_stock: { status: 409, message: "There is less than the adjustment takes; nothing was changed." },
  quantity_overflow: { status: 409, message: "There would be more than a quantity can be; nothing was changed." },
  precondition_failed: { status: 412, message: "A precondition of the request does not hold; nothing was changed." },
  idempotency_key_reused: {
    status: 422,
    message:
      "The Idempotency-Key was used for a request that differs in its pets, their order, quantities, preconditions, reasons or operation; nothing was changed.",
  },
  rate_limit_exceeded: { status: 429, message: "The rate limit is exceeded: wait for Retry-After, then back off." },
  api_key_banned: {
    status: 429,
    message: "The API key is banned for a time because it kept sending requests after a 429: wait for Retry-After.",
  },
  upstream_unavailable: { status: 502, message: "The service behind this resource could not be reached." },
  upstream_timeout: { status: 504, message: "The service behind this resource did not answer in time." },
  service_unavailable: { status: 503, message: "The service is not available at the moment: try again later." },
  timeout: {
    status: 504,
    message: "The request was not answered in time; if it was an update, it may or may not have happened.",
  },
  internal_error: { status: 500, message: "Something went wrong on our side." },
} as const satisfies Record<string, { status: number; message: string }>;

export type ErrorCode = keyof typeof errorTable;

export interface ApiErrorOptions {
  /** A more exact text than the table's, such as one with a field and its bound. It is public, and names no cause. */
  readonly message?: string;
  /**
   * A more exact status than the table's: 410 `not_found` after a sunset, 408 `timeout` for a request that does not
   * arrive, 431 `payload_too_large` for its headers, 501 and 505 `invalid_request` for another transfer
   * coding or version of HTTP.
   */
  readonly status?: 408 | 410 | 431 | 501 | 505;
  /** What went wrong inside. It goes to the log only. */
  readonly cause?: unknown;
  /** Headers that belong to this error, such as `Retry-After` or `Allow`. */
  readonly headers?: Readonly<Record<string, string>>;
}

/** An error of the public contract. Anything else that is thrown becomes `internal_error`. */
export class ApiError extends Error {
  readonly code: ErrorCode;
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;

  constructor(code: ErrorCode, { message, status, cause, headers }: ApiErrorOptions = {}) {
    super(message ?? errorTable[code].message, { cause });
    this.name = "ApiError";
    this.code = code;
    this.status = status ?? errorTable[code].status;
    this.headers = headers ?? {};
  }

  /**
   * Its headers in the answer. No cache may keep an error: its cause may be over soon, and it may name its caller's
   * limits. `Link` leads to what the code means.
   *
   * @param path that was asked for; empty for a request without one
   */
  headersAt(path: string): readonly string[] {
    const help = `<${toRoot(path)}docs/#${this.code}>; rel="help"`;
    return ["Cache-Control", "no-store", "Link", help, ...Object.entries(this.headers).flat()];
  }

  /** The Error body of the public API: exactly `code`, `message` and `status`. */
  get body(): string {
    return JSON.stringify({ code: this.code, message: this.message, status: this.status });
  }
}

/** Levels of the deepest path that gets a relative link. No operation is deeper, and the link grows with the path. */
const maxLevels = 16;

/**
 * Returns the relative way from a path to the root of the API. An absolute one is not known here: an app around us or a
 * proxy before us may have taken away the beginning of the path. So it is `/` only where the path is unknown or too
 * deep.
 */
export function toRoot(path: string): string {
  const levels = path.split("/").length - 2;
  return levels < 0 || levels > maxLevels ? "/" : "../".repeat(levels) || "./";
}

/** The public error for anything that was thrown. */
export function toApiError(error: unknown): ApiError {
  return error instanceof ApiError ? error : new ApiError("internal_error", { cause: error });
}
