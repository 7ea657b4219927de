/** Reads the query of a request, and refuses what an operation does not take. */
import type { IncomingMessage } from "node:http";
import parseurl from "parseurl";
import { ApiError } from "./api-error.ts";
import { noneNamed } from "./request.ts";

/** The longest query, in characters. 100 petIds need 2.3 KB; a query as long as a head would take 1 ms. */
const maxQuery = 4_096;

/**
 * The query parameters of a request.
 *
 * @throws ApiError invalid_request for a query that is too long
 */
export function queryOf(request: IncomingMessage): URLSearchParams {
  const text = (parseurl(request)?.query as string | null) ?? "";
  if (text.length <= maxQuery) return new URLSearchParams(text);
  throw new ApiError("invalid_request", { message: `The query may have at most ${maxQuery} characters.` });
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
