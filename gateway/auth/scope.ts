import type { RequestHandler } from "express";
import { ApiError } from "../http/errors.ts";
import type { Locals } from "../http/locals.ts";
import type { Scope } from "./principal.ts";

/** Lets only keys with this scope pass (RFC 6750 section 3.1). */
export function requireScope(scope: Scope): RequestHandler {
  const challenge = `Bearer realm="petstore", error="insufficient_scope", scope="${scope}"`;
  return (_request, response, next) => {
    const { principal } = response.locals as Locals;
    if (!principal.scopes.has(scope)) {
      throw new ApiError("insufficient_scope", {
        message: `The API key does not have the scope ${scope}.`,
        headers: { "WWW-Authenticate": challenge },
      });
    }
    next();
  };
}
