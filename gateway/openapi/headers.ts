import type { OpenAPIRegistry } from "@asteasolutions/zod-to-openapi";

/** What a header is in the document's components. `required` means that the response always has it. */
interface HeaderText {
  readonly header: string;
  readonly required: boolean;
  readonly description: string;
  readonly type: "string" | "integer";
  readonly example: string | number;
}

const texts = {
  RateLimitLimit: {
    header: "X-RateLimit-Limit",
    required: true,
    description: "The limit that applies to the caller, in the window that binds.",
    type: "integer",
    example: 60,
  },
  RateLimitRemaining: {
    header: "X-RateLimit-Remaining",
    required: true,
    description: "Requests left in that window.",
    type: "integer",
    example: 59,
  },
  RateLimitReset: {
    header: "X-RateLimit-Reset",
    required: true,
    description: "Unix time in seconds at which that window, or a ban, ends.",
    type: "integer",
    example: 1_767_225_660,
  },
  RateLimitPolicy: {
    header: "RateLimit-Policy",
    required: true,
    description: "All windows of the caller: quota `q` in `w` seconds (draft-ietf-httpapi-ratelimit-headers).",
    type: "string",
    example: '"minute";q=60;w=60, "day";q=1000;w=86400',
  },
  RateLimit: {
    header: "RateLimit",
    required: true,
    description: "How they stand: `r` requests left for `t` seconds (draft-ietf-httpapi-ratelimit-headers).",
    type: "string",
    example: '"minute";r=59;t=60, "day";r=999;t=86400',
  },
  RequestId: {
    header: "X-Request-Id",
    required: true,
    description: "The id of the request: the caller's own where it is acceptable, else a new one.",
    type: "string",
    example: "k3Jd0s8aQx1Z-7f",
  },
  RetryAfter: {
    header: "Retry-After",
    required: true,
    description: "Seconds to wait before the next request.",
    type: "integer",
    example: 42,
  },
  RetryAfterIfKnown: {
    header: "Retry-After",
    required: false,
    description: "Seconds to wait before the next request, where a time can be told.",
    type: "integer",
    example: 1,
  },
  Challenge: {
    header: "WWW-Authenticate",
    required: true,
    description: "What is wrong with the credentials (RFC 6750).",
    type: "string",
    example: 'Bearer realm="petstore", error="invalid_token"',
  },
  ListETag: {
    header: "ETag",
    required: true,
    description: "Strong tag of the list in this content coding, for `If-None-Match`.",
    type: "string",
    example: '"4f2c9a01-318"',
  },
  EntryETag: {
    header: "ETag",
    required: true,
    description: "Tag of the entry as it is after the update, for `If-Match` in the next one.",
    type: "string",
    example: '"r318"',
  },
  RecordETag: {
    header: "ETag",
    required: false,
    description: "Tag of the record, where the service that owns it gives one.",
    type: "string",
    example: '"7"',
  },
  Vary: {
    header: "Vary",
    required: true,
    description: "The request headers that choose between representations.",
    type: "string",
    example: "Accept-Encoding",
  },
  CacheControl: {
    header: "Cache-Control",
    required: true,
    description: "A copy may be kept by the caller, and has to be checked by its ETag before use.",
    type: "string",
    example: "private, no-cache",
  },
  Deprecation: {
    header: "Deprecation",
    required: true,
    description: "Since when the operation is deprecated (RFC 9745).",
    type: "string",
    example: "@1767225600",
  },
  Sunset: {
    header: "Sunset",
    required: true,
    description: "From when on the operation may be gone (RFC 8594).",
    type: "string",
    example: "Wed, 01 Jul 2026 12:00:00 GMT",
  },
  DeprecationLink: {
    header: "Link",
    required: true,
    description: 'Where to read about it: `rel="deprecation"` and `rel="sunset"`.',
    type: "string",
    example: '</docs>; rel="deprecation", </docs>; rel="sunset"',
  },
} as const satisfies Record<string, HeaderText>;

export type HeaderName = keyof typeof texts;

/** What every response carries. */
const always = [
  "RateLimitLimit",
  "RateLimitRemaining",
  "RateLimitReset",
  "RateLimitPolicy",
  "RateLimit",
  "RequestId",
] as const satisfies readonly HeaderName[];

export function registerHeaders(registry: OpenAPIRegistry): void {
  for (const [name, { required, description, type, example }] of Object.entries(texts)) {
    registry.registerComponent("headers", name, { required, description, schema: { type }, example });
  }
}

/** The headers of a response: those that every response carries, and `more`. */
export function headers(more: readonly HeaderName[] = []) {
  return Object.fromEntries(
    [...always, ...more].map((name) => [texts[name].header, { $ref: `#/components/headers/${name}` }]),
  );
}
