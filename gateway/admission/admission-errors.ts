/** The errors of admission. */
import type { Scope } from "../accounts/keys/principal.ts";
import { ApiError, type ApiErrorOptions } from "../http/api-error.ts";
import { type Decision, retryAfter } from "../limits/windows.ts";

export function overLimit(decision: Decision, { headers, ...options }: ApiErrorOptions = {}): ApiError {
  return new ApiError("rate_limit_exceeded", {
    ...options,
    headers: { "Retry-After": retryAfter(decision), ...headers },
  });
}

/** What the request needs cannot be reached, or its account uses its whole share of that: try again soon. */
export function unavailable(cause: unknown): ApiError {
  return new ApiError("service_unavailable", { cause, headers: { "Retry-After": "1" } });
}

/** RFC 6750 section 3: the error attribute only where a token was sent. */
export function missingKey(): ApiError {
  return new ApiError("missing_api_key", { headers: { "WWW-Authenticate": 'Bearer realm="petstore"' } });
}

export function invalidKey(): ApiError {
  return new ApiError("invalid_api_key", {
    headers: { "WWW-Authenticate": 'Bearer realm="petstore", error="invalid_token"' },
  });
}

/** RFC 6750 section 3.1. */
export function missingScope(scope: Scope | null): ApiError {
  return new ApiError("insufficient_scope", {
    message: `The API key does not have the scope ${scope}.`,
    headers: { "WWW-Authenticate": `Bearer realm="petstore", error="insufficient_scope", scope="${scope}"` },
  });
}
