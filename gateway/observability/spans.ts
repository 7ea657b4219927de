import type { RequestHandler } from "express";
import type { Tracing } from "../../runtime/tracing.ts";
import type { Locals } from "../http/request-context.ts";

/** Gives each request a span, which goes on from the caller's `traceparent`. */
export function traceRequests(tracing: Tracing): RequestHandler {
  return (request, response, next) => {
    const describe = () => {
      const { route, principal, requestId } = response.locals as Locals;
      return {
        name: `${request.method} ${route}`,
        attributes: {
          "http.request.method": request.method,
          "http.response.status_code": response.statusCode,
          "petstore.route": route,
          "petstore.request_id": requestId,
          "petstore.account": principal?.accountId,
          "petstore.plan": principal?.plan,
        },
        isFault: response.statusCode >= 500,
      };
    };
    tracing.http({ headers: request.headers, response, describe }, next);
  };
}
