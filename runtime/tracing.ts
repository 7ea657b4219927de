import type { EventEmitter } from "node:events";
import type { IncomingHttpHeaders } from "node:http";
import type { Knex } from "knex";

/** What is under way, as a W3C trace context; undefined when nothing is traced. */
export type Traceparent = string | undefined;

/** What a span is told at its end. */
export interface SpanEnd {
  readonly name: string;
  readonly attributes: Readonly<Record<string, string | number | undefined>>;
  readonly isFault: boolean;
}

/** A traced HTTP request. */
export interface HttpExchange {
  /** Get the `traceparent` of the server's span, so that what is passed on goes on from there. */
  readonly headers: IncomingHttpHeaders;
  /** Its listeners run in the span, and `close` ends it. */
  readonly response: EventEmitter;
  readonly describe: () => SpanEnd;
}

/** Spans, as the two tiers need them. Without tracing these only do the work. */
export interface Tracing {
  readonly isOn: boolean;
  /** For the log: the trace that a line belongs to. */
  readonly logFields: (() => object) | undefined;
  /** Runs `next` in the span of a server that goes on from the request's own `traceparent`. */
  http(exchange: HttpExchange, next: () => void): void;
  /** Runs `work` in the span of a call to the other tier, which gets its traceparent. */
  call<T>(name: string, work: (traceparent: Traceparent) => Promise<T>): Promise<T>;
  /** Runs `work` in the span of a server that goes on from its caller's traceparent. */
  serve<T>(name: string, traceparent: Traceparent, work: () => Promise<T>): Promise<T>;
  /** Notes whose span a part of something common belongs to. @returns the part */
  part<P extends object>(part: P): P;
  /**
   * Runs what is done for several parts at once in a span of the first one's trace, linked with those of the others.
   *
   * @param work gets a function that links parts which have joined them later, and returns those
   */
  together<T>(name: string, parts: readonly object[], work: (join: Join) => Promise<T>): Promise<T>;
  /** Gives each query that is made within a span one of its own. */
  queries(db: Knex): void;
  /** Sends what is not sent yet. */
  close(): Promise<void>;
}

/** Takes further parts, and returns them. */
export type Join = <P extends object>(parts: readonly P[]) => readonly P[];

export const noTracing: Tracing = {
  isOn: false,
  logFields: undefined,
  http: (_exchange, next) => next(),
  call: (_name, work) => work(undefined),
  serve: (_name, _traceparent, work) => work(),
  part: (part) => part,
  together: (_name, _parts, work) => work((parts) => parts),
  queries: () => {},
  close: async () => {},
};

/**
 * Opens tracing where the usual variables of OpenTelemetry ask for it: an OTLP endpoint, or `OTEL_TRACES_EXPORTER=otlp`.
 * Otherwise nothing of OpenTelemetry is loaded.
 *
 * @param onProblem told why spans do not get away
 */
export async function openTracing(
  service: string,
  env: NodeJS.ProcessEnv,
  onProblem: (message: string) => void,
): Promise<Tracing> {
  const { OTEL_TRACES_EXPORTER, OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT } = env;
  const exporter =
    OTEL_TRACES_EXPORTER || (OTEL_EXPORTER_OTLP_ENDPOINT || OTEL_EXPORTER_OTLP_TRACES_ENDPOINT ? "otlp" : "none");
  if (exporter !== "otlp" || env.OTEL_SDK_DISABLED === "true") return noTracing;
  const { openTelemetry } = await import("./open-telemetry.ts");
  // Not at once: who is told may still wait for what this function gives.
  return openTelemetry(service, env, (message) => void setImmediate(() => onProblem(message)));
}
