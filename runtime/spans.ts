/** Spans by OpenTelemetry's API, which does nothing until `startTracing` has registered something that records. */
import {
  type Context,
  context,
  isSpanContextValid,
  propagation,
  ROOT_CONTEXT,
  type Span,
  SpanKind,
  type SpanOptions,
  SpanStatusCode,
  trace,
} from "@opentelemetry/api";

/** A W3C trace context as one header value; undefined when nothing is traced. */
export type Traceparent = string | undefined;

/** Makes this system's spans. */
export const tracer = trace.getTracer("petstore");

export const clientSpan: SpanOptions = { kind: SpanKind.CLIENT, attributes: { "rpc.system": "grpc" } };
export const serverSpan: SpanOptions = { kind: SpanKind.SERVER, attributes: { "rpc.system": "grpc" } };

/** Runs work in a span of its own, which ends with the work. */
export function inSpan<T>(
  name: string,
  options: SpanOptions,
  parent: Context,
  work: (span: Span) => Promise<T>,
): Promise<T> {
  const span = tracer.startSpan(name, options, parent);
  return isSpanContextValid(span.spanContext()) ? within(span, parent, work) : work(span); // nothing traces
}

async function within<T>(span: Span, parent: Context, work: (span: Span) => Promise<T>): Promise<T> {
  try {
    return await context.with(trace.setSpan(parent, span), work, undefined, span);
  } catch (error) {
    failSpan(span, error);
    throw error;
  } finally {
    span.end();
  }
}

/** Marks a span as failed. A database's message may hold values, so only the kind of the error goes into the span. */
export function failSpan(span: Span, error: unknown): void {
  const { code, name } = error as { code?: unknown; name?: string };
  span.setAttribute("error.type", String(code ?? name)).setStatus({ code: SpanStatusCode.ERROR });
}

/** The trace context of the running code, for the service that is called next. */
export function activeTraceparent(): Traceparent {
  const carrier: { traceparent?: string } = {};
  propagation.inject(context.active(), carrier);
  return carrier.traceparent;
}

/** The context in which a caller's trace goes on. */
export function contextOfCaller(traceparent: Traceparent): Context {
  return traceparent === undefined ? ROOT_CONTEXT : propagation.extract(ROOT_CONTEXT, { traceparent });
}

/** For the log: the trace that a line belongs to. */
export function traceFields(): object {
  const span = trace.getActiveSpan()?.spanContext();
  return span ? { trace_id: span.traceId, span_id: span.spanId } : {};
}
