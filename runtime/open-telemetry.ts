import { setTimeout } from "node:timers/promises";
import {
  type Context,
  DiagLogLevel,
  defaultTextMapGetter,
  defaultTextMapSetter,
  diag,
  ROOT_CONTEXT,
  type Span,
  SpanKind,
  SpanStatusCode,
  trace,
} from "@opentelemetry/api";
import { AsyncLocalStorageContextManager } from "@opentelemetry/context-async-hooks";
import { W3CTraceContextPropagator } from "@opentelemetry/core";
import { OTLPTraceExporter } from "@opentelemetry/exporter-trace-otlp-http";
import { defaultResource, detectResources, envDetector, resourceFromAttributes } from "@opentelemetry/resources";
import {
  AlwaysOffSampler,
  AlwaysOnSampler,
  BatchSpanProcessor,
  ParentBasedSampler,
  type Sampler,
  TraceIdRatioBasedSampler,
  TracerProvider,
} from "@opentelemetry/sdk-trace";
import type { Knex } from "knex";
import { isSqlite } from "./database/open.ts";
import { SettingsError } from "./settings.ts";
import type { Join, Traceparent, Tracing } from "./tracing.ts";

/** A collector that does not answer holds up nobody's stop for longer. */
const closeTimeoutMs = 2_000;

/** A statement for a thousand rows is as long as they are. */
const maxSqlLength = 1_000;

/** Tracing by OpenTelemetry, sent as OTLP over HTTP. The variables that are not read here, its packages read. */
export function openTelemetry(service: string, env: NodeJS.ProcessEnv, onProblem: (message: string) => void): Tracing {
  // OpenTelemetry tells of an error as JSON with its stack.
  const report = (text: string) => onProblem(/"message":"([^"]*)"/.exec(text)?.[1] ?? text.slice(0, 500));
  diag.setLogger({ error: report, warn: report, info() {}, debug() {}, verbose() {} }, DiagLogLevel.WARN);
  const named = resourceFromAttributes({ "service.name": service });
  const provider = new TracerProvider({
    resource: defaultResource()
      .merge(named)
      .merge(detectResources({ detectors: [envDetector] })),
    sampler: samplerOf(env),
    spanProcessors: [new BatchSpanProcessor({ exporter: new OTLPTraceExporter() })],
  });
  const tracer = provider.getTracer("petstore");
  const contexts = new AsyncLocalStorageContextManager().enable();
  const propagator = new W3CTraceContextPropagator();
  const spansOfParts = new WeakMap<object, Span>();

  const fromTraceparent = (traceparent: Traceparent): Context =>
    traceparent === undefined ? ROOT_CONTEXT : propagator.extract(ROOT_CONTEXT, { traceparent }, defaultTextMapGetter);
  const toTraceparent = (context: Context): Traceparent => {
    const carrier: { traceparent?: string } = {};
    propagator.inject(context, carrier, defaultTextMapSetter);
    return carrier.traceparent;
  };
  /** Runs work with the span as what is under way, and ends it with the work. */
  const within = async <T>(span: Span, parent: Context, work: (here: Context) => Promise<T>): Promise<T> => {
    const here = trace.setSpan(parent, span);
    try {
      return await contexts.with(here, () => work(here));
    } catch (error) {
      fail(span, error);
      throw error;
    } finally {
      span.end();
    }
  };

  return {
    isOn: true,
    logFields: () => {
      const span = trace.getSpanContext(contexts.active());
      return span ? { trace_id: span.traceId, span_id: span.spanId } : {};
    },
    http: ({ headers, response, describe }, next) => {
      const parent = propagator.extract(ROOT_CONTEXT, headers, defaultTextMapGetter);
      const span = tracer.startSpan("request", { kind: SpanKind.SERVER }, parent);
      const here = trace.setSpan(parent, span);
      propagator.inject(here, headers, defaultTextMapSetter);
      contexts.bind(here, response);
      response.once("close", () => {
        const { name, attributes, isFault } = describe();
        span.updateName(name).setAttributes(attributes);
        if (isFault) span.setStatus({ code: SpanStatusCode.ERROR });
        span.end();
      });
      contexts.with(here, next);
    },
    call: (name, work) => {
      const parent = contexts.active();
      const span = tracer.startSpan(name, { kind: SpanKind.CLIENT, attributes: { "rpc.system": "grpc" } }, parent);
      return within(span, parent, (here) => work(toTraceparent(here)));
    },
    serve: (name, traceparent, work) => {
      const parent = fromTraceparent(traceparent);
      const span = tracer.startSpan(name, { kind: SpanKind.SERVER, attributes: { "rpc.system": "grpc" } }, parent);
      return within(span, parent, work);
    },
    part: (part) => {
      const span = trace.getSpan(contexts.active());
      if (span) spansOfParts.set(part, span);
      return part;
    },
    together: (name, parts, work) => {
      const spansOf = (some: readonly object[]) => some.flatMap((part) => spansOfParts.get(part) ?? []);
      const [first, ...others] = spansOf(parts);
      const parent = first ? trace.setSpan(ROOT_CONTEXT, first) : ROOT_CONTEXT;
      const span = tracer.startSpan(name, { attributes: { "petstore.parts": parts.length } }, parent);
      const link = (spans: readonly Span[]) => {
        for (const other of spans) {
          span.addLink({ context: other.spanContext() });
          other.addLink({ context: span.spanContext() });
        }
      };
      link(others);
      const join: Join = (later) => {
        link(spansOf(later));
        span.setAttribute("petstore.parts", parts.length + later.length);
        return later;
      };
      return within(span, parent, () => work(join));
    },
    queries: (db) =>
      traceQueries(db, (name, options) => {
        const parent = contexts.active();
        return trace.getSpan(parent) && tracer.startSpan(name, options, parent);
      }),
    close: async () => {
      const sent = provider.shutdown().catch(() => {}); // it has been told
      await Promise.race([sent, setTimeout(closeTimeoutMs, undefined, { ref: false })]);
    },
  };
}

interface Query {
  readonly __knexQueryUid: string;
  readonly sql: string;
}

function traceQueries(
  db: Knex,
  start: (name: string, options: { kind: SpanKind; attributes: Record<string, string> }) => Span | undefined,
): void {
  const system = isSqlite(db) ? "sqlite" : "mysql";
  const running = new Map<string, Span>();
  db.on("query", ({ __knexQueryUid: id, sql }: Query) => {
    const text = sql.slice(0, maxSqlLength); // with a placeholder for each value
    const operation = /^\w+/.exec(sql)?.[0].toUpperCase() ?? "SQL";
    const attributes = { "db.system.name": system, "db.operation.name": operation, "db.query.text": text };
    const span = start(operation, { kind: SpanKind.CLIENT, attributes });
    if (span) running.set(id, span);
  });
  const end = (id: string, error?: unknown) => {
    const span = running.get(id);
    running.delete(id);
    if (span && error) fail(span, error);
    span?.end();
  };
  db.on("query-response", (_response, { __knexQueryUid: id }: Query) => end(id));
  db.on("query-error", (error, { __knexQueryUid: id }: Query) => end(id, error));
}

/** Messages of databases may hold values: the kind of an error tells enough here, and the log has the rest. */
function fail(span: Span, error: unknown): void {
  const { code, name } = error as { code?: unknown; name?: string };
  span.setAttribute("error.type", String(code ?? name)).setStatus({ code: SpanStatusCode.ERROR });
}

/** What `OTEL_TRACES_SAMPLER` names, as the specification of OpenTelemetry has it. */
function samplerOf({ OTEL_TRACES_SAMPLER: text, OTEL_TRACES_SAMPLER_ARG: ratio }: NodeJS.ProcessEnv): Sampler {
  const [, byParent, kind] =
    /^(parentbased_)?(always_on|always_off|traceidratio)$/.exec(text || "parentbased_always_on") ?? [];
  if (kind === undefined)
    throw new SettingsError([
      "OTEL_TRACES_SAMPLER: must be always_on, always_off or traceidratio, or parentbased_ with one of these",
    ]);
  const root =
    kind === "always_on"
      ? new AlwaysOnSampler()
      : kind === "always_off"
        ? new AlwaysOffSampler()
        : new TraceIdRatioBasedSampler(Number(ratio || 1));
  return byParent ? new ParentBasedSampler({ root }) : root;
}
