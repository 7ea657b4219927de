/** Requests that no caller should send, and what they get. */
import type { HttpRequest } from "./http-client.ts";

type WrongRequest = Omit<HttpRequest, "headers"> & {
  readonly headers: Readonly<Record<string, string>>;
  /** Whose key it has, if not that of its caller. */
  readonly by?: string;
};

/** What is no HTTP, or not of this version. */
const malformed = (raw: string) => ({ method: "GET", path: "(malformed)", headers: {}, raw }) as const;

const json = { "content-type": "application/json" };
const update = { method: "PATCH", path: "/v1/inventory/1", body: '{"quantity":1}' } as const;
const bulk = { method: "POST", headers: json, body: '[{"petId":1,"delta":1}]' } as const;

/** Each with the status of its answer. None of them changes anything. */
export const wrongRequests: readonly (readonly [status: number, request: WrongRequest])[] = [
  [404, { method: "GET", path: "/v1/nothing", headers: {} }],
  [404, { method: "GET", path: "/v1/inventory/1000000", headers: {} }],
  [404, { method: "GET", path: "/v1/inventory/1000000/history", headers: {} }],
  [404, { ...update, path: "/v1/inventory/1000000", headers: json }],
  [405, { ...update, method: "POST", headers: json }],
  [401, { method: "GET", path: "/v1/inventory", headers: { authorization: "Bearer nobody" } }],
  [403, { method: "GET", path: "/v1/pets/1", headers: {} }],
  [400, { method: "GET", path: "/v1/inventory/one", headers: {} }],
  [400, { method: "GET", path: "/v1/inventory?petIds=1&limit=1", headers: {} }],
  [400, { method: "GET", path: "/v1/inventory/changes", headers: {} }],
  [400, { ...update, headers: json, body: '{"quantity":' }],
  [400, { ...update, headers: json, body: '{"quantity":-1}' }],
  [400, { ...update, headers: { ...json, "if-match": '"r1' } }],
  [412, { ...update, headers: { ...json, "if-match": '"r0"' } }],
  [412, { ...update, headers: { ...json, "if-none-match": "*" } }],
  [403, { ...update, headers: json, by: "reader" }],
  [403, { ...bulk, path: "/v1/inventory/adjustments", by: "reader" }],
  [413, { ...update, headers: json, body: `{"quantity":1${" ".repeat(20_000)}}`, isChunked: true }],
  [400, malformed("GET /v1/inventory HTTP/1.1\r\n\r\n")],
  [400, malformed("GET /v1/inventory#part HTTP/1.1\r\nHost: api.example\r\n\r\n")],
  [400, malformed("no request\r\n\r\n")],
  [431, malformed(`GET / HTTP/1.1\r\nHost: api.example\r\nX-Large: ${"x".repeat(40_000)}\r\n\r\n`)],
  [415, { ...update, headers: { "content-type": "text/plain" } }],
  [400, { ...bulk, path: "/v1/inventory/adjustments" }],
  [400, { ...bulk, path: "/v1/inventory/updates" }],
];
