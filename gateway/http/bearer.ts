/** Reads the API key of a request. */
import type { IncomingMessage } from "node:http";
import { ApiError } from "./api-error.ts";

/**
 * The bearer token of a request (RFC 6750 section 2.1); empty for a request without one.
 *
 * @throws ApiError invalid_request for two Authorization or Host headers: a proxy in front may have read the other one
 */
export function bearerToken({ headers: { authorization = "" }, rawHeaders }: IncomingMessage): string {
  refuseDuplicates(rawHeaders);
  // Trimmed afterwards: a pattern that looks for the end itself takes time that grows with the square of the spaces.
  return /^bearer +(\S.*)$/i.exec(authorization)?.[1]?.trimEnd() ?? "";
}

/** @throws ApiError invalid_request for two Authorization or Host headers */
export function refuseDuplicates(rawHeaders: readonly string[]): void {
  let hosts = 0;
  let authorizations = 0;
  for (let i = 0; i < rawHeaders.length; i += 2) {
    const name = rawHeaders[i]!;
    if (name.length === 4 && name.toLowerCase() === "host") hosts += 1;
    else if (name.length === 13 && name.toLowerCase() === "authorization") authorizations += 1;
  }
  if (hosts > 1) throw new ApiError("invalid_request", { message: "The request has more than one Host header." });
  if (authorizations > 1) {
    throw new ApiError("invalid_request", { message: "The request has more than one Authorization header." });
  }
}
