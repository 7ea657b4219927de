/** Registers OpenTelemetry's SDK, which records spans and sends them as OTLP over HTTP. Loaded only on demand. */
import { setTimeout } from "node:timers/promises";
import { context, DiagLogLevel, diag, propagation, trace } from "@opentelemetry/api";
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
import { SettingsError } from "./settings.ts";

/** The longest that a collector which does not answer holds up a stop. */
const closeTimeoutMs = 2_000;

/**
 * Registers the SDK for this process. Its packages read the environment variables that are not read here.
 *
 * @param onProblem gets the reason when spans cannot be sent
 * @returns a function that sends what is left and shuts the SDK down
 * @throws SettingsError for a sampler that does not exist
 */
export function registerOpenTelemetry(
  service: string,
  env: NodeJS.ProcessEnv,
  onProblem: (reason: string) => void,
): () => Promise<void> {
  // OpenTelemetry reports an error as JSON with its stack.
  const report = (text: string) => onProblem(/"message":"([^"]*)"/.exec(text)?.[1] ?? text.slice(0, 500));
  diag.setLogger({ error: report, warn: report, info() {}, debug() {}, verbose() {} }, DiagLogLevel.WARN);
  const provider = new TracerProvider({
    resource: defaultResource()
      .merge(resourceFromAttributes({ "service.name": service }))
      .merge(detectResources({ detectors: [envDetector] })),
    sampler: samplerOf(env),
    spanProcessors: [new BatchSpanProcessor({ exporter: new OTLPTraceExporter() })],
  });
  trace.setGlobalTracerProvider(provider);
  context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
  propagation.setGlobalPropagator(new W3CTraceContextPropagator());
  return async () => {
    const sent = provider.shutdown().catch(() => {}); // `report` has the reason
    await Promise.race([sent, setTimeout(closeTimeoutMs, undefined, { ref: false })]);
  };
}

/** The sampler that `OTEL_TRACES_SAMPLER` names, as OpenTelemetry's specification has it. */
function samplerOf({ OTEL_TRACES_SAMPLER: text, OTEL_TRACES_SAMPLER_ARG: ratio }: NodeJS.ProcessEnv): Sampler {
  const [, byParent, kind] =
    /^(parentbased_)?(always_on|always_off|traceidratio)$/.exec(text || "parentbased_always_on") ?? [];
  if (kind === undefined) {
    throw new SettingsError([
      "OTEL_TRACES_SAMPLER: must be always_on, always_off or traceidratio, or parentbased_ with one of these",
    ]);
  }
  const root = rootSampler(kind, ratio);
  return byParent ? new ParentBasedSampler({ root }) : root;
}

function rootSampler(kind: string, ratio: string | undefined): Sampler {
  if (kind === "always_on") return new AlwaysOnSampler();
  if (kind === "always_off") return new AlwaysOffSampler();
  return new TraceIdRatioBasedSampler(Number(ratio || 1));
}
