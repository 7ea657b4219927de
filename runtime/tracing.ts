/** Starts tracing where the usual variables of OpenTelemetry ask for it. */

export interface Tracing {
  readonly isOn: boolean;
  /** Sends what is left. */
  close(): Promise<void>;
}

/**
 * Starts tracing with `OTEL_TRACES_EXPORTER=otlp`, or with an OTLP endpoint where that variable is not set, unless
 * `OTEL_SDK_DISABLED` is `true`. Otherwise nothing of OpenTelemetry's SDK is loaded, and spans cost next to nothing.
 *
 * @param onProblem gets the reason when spans cannot be sent
 */
export async function startTracing(
  service: string,
  env: NodeJS.ProcessEnv,
  onProblem: (reason: string) => void,
): Promise<Tracing> {
  const { OTEL_TRACES_EXPORTER, OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT } = env;
  const exporter =
    OTEL_TRACES_EXPORTER || (OTEL_EXPORTER_OTLP_ENDPOINT || OTEL_EXPORTER_OTLP_TRACES_ENDPOINT ? "otlp" : "none");
  if (exporter !== "otlp" || env.OTEL_SDK_DISABLED === "true") return { isOn: false, close: async () => {} };
  const { registerOpenTelemetry } = await import("./open-telemetry.ts");
  return { isOn: true, close: registerOpenTelemetry(service, env, onProblem) };
}
