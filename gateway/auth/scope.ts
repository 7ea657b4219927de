import { ApiError } from "../http/errors.ts";
import type { Principal, Scope } from "./principal.ts";

/**
 * Lets only keys with this scope pass (RFC 6750 section 3.1).
 *
 * @throws ApiError insufficient_scope
 */
export function checkScope({ scopes }: Principal, scope: Scope): void {
  if (scopes.has(scope)) return;
  throw new ApiError("insufficient_scope", {
    message: `The API key does not have the scope ${scope}.`,
    headers: { "WWW-Authenticate": `Bearer realm="petstore", error="insufficient_scope", scope="${scope}"` },
  });
}
