import type { OpenAPIRegistry, ResponseConfig } from "@asteasolutions/zod-to-openapi";
import { ApiError, type ErrorCode } from "../http/errors.ts";
import { type HeaderName, headers } from "./headers.ts";

interface ErrorText {
  readonly description: string;
  /** Everything that the response may say; all of one status. */
  readonly errors: readonly [ApiError | ErrorCode, ...(ApiError | ErrorCode)[]];
  readonly headers?: readonly HeaderName[];
}

const texts = {
  BadRequest: { description: "The request is not valid.", errors: ["invalid_request"] },
  BadUpdate: {
    description: "The petId is not an int64, or the body lacks required fields or holds invalid values.",
    errors: ["invalid_request", "invalid_json"],
  },
  Unauthorized: {
    description: "The API key is missing or invalid.",
    errors: ["missing_api_key", "invalid_api_key"],
    headers: ["Challenge"],
  },
  Forbidden: {
    description: "The API key does not have the scope that the operation needs.",
    errors: ["insufficient_scope"],
    headers: ["Challenge"],
  },
  NotFound: { description: "The requested resource could not be found.", errors: ["not_found"] },
  RequestTimeout: {
    description: "The body did not arrive in time; nothing was changed.",
    errors: [new ApiError("timeout", { status: 408, message: "The body of the request did not arrive in time." })],
  },
  Gone: {
    description: "The operation has been retired, which may happen from its sunset on.",
    errors: [
      new ApiError("not_found", { status: 410, message: "The operation has been retired; see the Link header." }),
    ],
  },
  PreconditionFailed: {
    description: "The resource is not the one that the ETag in `If-Match` stands for; nothing was changed.",
    errors: ["precondition_failed"],
  },
  PayloadTooLarge: { description: "The body is larger than 16 KiB.", errors: ["payload_too_large"] },
  UnsupportedMediaType: {
    description: "The body is not said to be JSON in UTF-8, or has a content coding.",
    errors: ["unsupported_media_type"],
  },
  TooManyRequests: {
    description: "The rate limit is exceeded, or the API key is banned for a time. Wait for `Retry-After`.",
    errors: ["rate_limit_exceeded", "api_key_banned"],
    headers: ["RetryAfter"],
  },
  InternalError: { description: "A fault of this service.", errors: ["internal_error"] },
  BadGateway: {
    description: "The service that owns the record could not be reached, or its answer was of no use.",
    errors: ["upstream_unavailable"],
  },
  ServiceUnavailable: {
    description: "This service, or one that it needs, is not available at the moment.",
    errors: ["service_unavailable"],
    headers: ["RetryAfterIfKnown"],
  },
  Timeout: {
    description: "The request was not answered in time. An update may or may not have happened: it is safe to repeat.",
    errors: ["timeout"],
  },
  GatewayTimeout: {
    description: "The service that owns the record did not answer in time.",
    errors: ["upstream_timeout"],
  },
} as const satisfies Record<string, ErrorText>;

export type ErrorResponse = keyof typeof texts;

/** What any operation can answer. */
export const commonErrors = [
  "BadRequest",
  "Unauthorized",
  "Forbidden",
  "TooManyRequests",
  "InternalError",
  "ServiceUnavailable",
] as const satisfies readonly ErrorResponse[];

/** Those that operations refer to. Only the deprecated operation can be gone, and it has its responses in full. */
export function registerResponses(registry: OpenAPIRegistry): void {
  const shared = (Object.keys(texts) as ErrorResponse[]).filter((name) => name !== "Gone");
  for (const name of shared) {
    registry.registerComponent("responses", name, errorResponse(name));
  }
}

/** References to error responses by their status, as an operation has them; of two with one status the later counts. */
export function errorReferences(names: readonly ErrorResponse[]) {
  return byStatus(names, (name) => ({ $ref: `#/components/responses/${name}` }));
}

/** The same responses in full, for an operation that adds headers of its own to each. */
export function errorResponses(names: readonly ErrorResponse[], more: readonly HeaderName[]) {
  return byStatus(names, (name) => errorResponse(name, more));
}

function byStatus<T>(names: readonly ErrorResponse[], make: (name: ErrorResponse) => T): Record<string, T> {
  return Object.fromEntries(names.map((name) => [toError(texts[name].errors[0]).status, make(name)]));
}

function errorResponse(name: ErrorResponse, more: readonly HeaderName[] = []) {
  const { description, errors, headers: own = [] }: ErrorText = texts[name];
  const examples = Object.fromEntries(
    errors.map(toError).map((error) => [error.code, { value: JSON.parse(error.body) as object }]),
  );
  const schema = { $ref: "#/components/schemas/Error" };
  return {
    description,
    headers: headers([...own, ...more]),
    content: { "application/json": { schema, examples } },
  } satisfies ResponseConfig;
}

function toError(error: ApiError | ErrorCode): ApiError {
  return typeof error === "string" ? new ApiError(error) : error;
}
