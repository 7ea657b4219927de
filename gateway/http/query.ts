/** Reads the query of a request, and refuses what an operation does not take. */
import type { IncomingMessage } from "node:http";
import parseurl from "parseurl";
import { ApiError } from "./api-error.ts";
import { noneNamed } from "./request.ts";

/** The query parameters of a request. */
export function queryOf(request: IncomingMessage): URLSearchParams {
  return new URLSearchParams((parseurl(request)?.query as string | null) ?? "");
}

/**
 * Refuses a query with a parameter that the operation does not have.
 *
 * @throws ApiError invalid_request that names the parameter
 */
export function refuseUnknownParameters(request: IncomingMessage, known: readonly string[]): void {
  if (!request.url!.includes("?")) return;
  for (const name of queryOf(request).keys()) {
    if (known.includes(name)) continue;
    const has = known.length === 0 ? "takes none" : `takes ${known.join(" and ")}`;
    const message = `There is ${noneNamed("query parameter", name)}: the operation ${has}.`;
    throw new ApiError("invalid_request", { message });
  }
}

/**
 * Reads a query parameter that may be there once.
 *
 * @throws ApiError invalid_request when it is there several times
 */
export function queryValue(query: URLSearchParams, name: string): string | undefined {
  const [value, ...others] = query.getAll(name);
  if (others.length === 0) return value;
  throw new ApiError("invalid_request", { message: `${name} may be there once.` });
}

/**
 * Reads the text of a query parameter that is a whole number from 1 to `max`.
 *
 * @throws ApiError invalid_request
 */
export function readWholeNumber(name: string, text: string, max: number): number {
  const value = /^[1-9]\d{0,8}$/.test(text) ? Number(text) : Number.NaN;
  if (value <= max) return value;
  throw new ApiError("invalid_request", { message: `${name} must be a whole number from 1 to ${max}.` });
}
