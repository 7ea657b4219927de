/** Gives each request a span. */
import { context, propagation, ROOT_CONTEXT, SpanKind, SpanStatusCode, trace } from "@opentelemetry/api";
import type { RequestHandler } from "express";
import { tracer } from "../../runtime/spans.ts";
import { contextOf } from "../http/request-context.ts";

/**
 * Runs the request in a span that continues the caller's trace. Its `traceparent` replaces the caller's, so that an
 * upstream continues from this span.
 */
export const traceRequest: RequestHandler = (request, response, next) => {
  const parent = propagation.extract(ROOT_CONTEXT, request.headers);
  const span = tracer.startSpan("request", { kind: SpanKind.SERVER }, parent);
  const here = trace.setSpan(parent, span);
  propagation.inject(here, request.headers);
  context.bind(here, response); // its listeners run in the span
  response.once("close", () => {
    const { operationName, principal, requestId } = contextOf(response);
    span.updateName(`${request.method} ${operationName}`).setAttributes({
      "http.request.method": request.method,
      "http.response.status_code": response.statusCode,
      "petstore.route": operationName,
      "petstore.request_id": requestId,
      "petstore.account": principal?.accountId,
      "petstore.plan": principal?.plan,
    });
    if (response.statusCode >= 500) span.setStatus({ code: SpanStatusCode.ERROR });
    span.end();
  });
  context.with(here, next);
};
