import { once } from "node:events";
import { createServer, type IncomingHttpHeaders, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { Metadata } from "@grpc/grpc-js";
import { request } from "../support/http.ts";
import { type Stack, suiteStack } from "../support/stack.ts";
import { type System, startSystem } from "../support/system.ts";

interface Span {
  readonly service: string;
  readonly name: string;
  readonly traceId: string;
  readonly spanId: string;
  readonly parentSpanId?: string;
  /** 2: server, 3: client. */
  readonly kind: number;
  readonly attributes: readonly { readonly key: string; readonly value: Record<string, unknown> }[];
  readonly links?: readonly { readonly traceId: string; readonly spanId: string }[];
}

const traceOf = (n: number) => `${n}`.padStart(32, "a");
const traceparent = (n: number) => `00-${traceOf(n)}-${"b".repeat(16)}-01`;
const updatesAtOnce = 20;
const questionsAtOnce = 10;
/** Of 16 digits, so that no time in a span holds it by chance. */
const petId = 7_654_321_987_654_321n;

describe("tracing that is switched on", () => {
  const stack = suiteStack();
  const spans: Span[] = [];
  let sentUp: IncomingHttpHeaders = {};
  let logs = "";

  beforeAll(async () => {
    const receiver = await listen(stack, async (call, response) => {
      const { resourceSpans } = JSON.parse((await call.toArray()).join(""));
      for (const { resource, scopeSpans } of resourceSpans) {
        const service = resource.attributes.find(({ key }: { key: string }) => key === "service.name").value
          .stringValue;
        for (const scope of scopeSpans) spans.push(...scope.spans.map((span: Span) => ({ ...span, service })));
      }
      response.writeHead(200, { "Content-Type": "application/json" }).end("{}");
    });
    const upstream = await listen(stack, (call, response) => {
      sentUp = call.headers;
      response.writeHead(200, { "Content-Type": "application/json" }).end("{}");
    });
    const env = { OTEL_EXPORTER_OTLP_ENDPOINT: receiver, LOG_LEVEL: "debug" };
    const system = await startSystem({
      database: "mysql",
      seed: [{ petId, quantity: 9, status: "available" }],
      gatewayEnv: { ...env, PETS_UPSTREAM_URL: upstream },
      inventoryEnv: env,
    });
    try {
      const headers = (n: number) => ({
        authorization: `Bearer ${system.keys.enterprise}`,
        "content-type": "application/json",
        traceparent: traceparent(n),
      });
      const update = (n: number) =>
        request(system.address, {
          path: `/v1/inventory/${petId}`,
          method: "PATCH",
          headers: headers(n),
          body: `{"quantity":${n}}`,
        });
      expect((await update(1)).status).toBe(200);
      expect((await request(system.address, { path: "/v1/inventory", headers: headers(2) })).status).toBe(200);
      expect((await request(system.address, { path: "/v1/pets/1", headers: headers(3) })).status).toBe(200);
      const metadata = new Metadata();
      metadata.set("traceparent", traceparent(4));
      await new Promise((resolve) => system.client.getInventoryItem({ petId }, metadata, resolve));
      await Promise.all(Array.from({ length: updatesAtOnce }, (_, i) => update(100 + i)));
      const read = (n: number) => request(system.address, { path: "/v1/inventory", headers: headers(n) });
      await Promise.all(Array.from({ length: questionsAtOnce }, (_, i) => read(200 + i)));
      await Promise.all(Array.from({ length: questionsAtOnce }, (_, i) => check(system, traceparent(300 + i))));
    } finally {
      await system.close(); // exports the remaining spans
    }
    logs = `${system.gateways[0]!.output()}\n${system.inventory.output()}`;
  });

  const trace = (n: number) => spans.filter(({ traceId }) => traceId === traceOf(n));
  /** `service: name` of a span and its ancestors, the outermost first. */
  const pathTo = (span: Span | undefined): string[] =>
    span ? [...pathTo(spans.find(({ spanId }) => spanId === span.parentSpanId)), `${span.service}: ${span.name}`] : [];
  const attributesOf = (span: Span) =>
    Object.fromEntries(span.attributes.map(({ key, value }) => [key, Object.values(value)[0]]));

  test("tracing continues the caller's trace through an update, from HTTP to SQL", () => {
    const sql = trace(1).filter(({ service, name }) => service === "inventory-svc" && name === "UPDATE");
    expect(sql).toHaveLength(1);
    expect(pathTo(sql[0])).toEqual([
      "gateway: PATCH updateInventory",
      "gateway: ApplyChanges",
      "inventory-svc: ApplyChanges",
      "inventory-svc: commit",
      "inventory-svc: UPDATE",
    ]);
    const root = trace(1).find(({ kind, service }) => kind === 2 && service === "gateway")!;
    expect(root.parentSpanId).toBe("b".repeat(16));
    expect(attributesOf(root)).toMatchObject({ "http.response.status_code": 200, "petstore.plan": "enterprise" });
  });

  test("tracing continues the caller's trace through a read, with the check that it began", () => {
    const sql = trace(2).find(({ service, name }) => service === "inventory-svc" && name === "SELECT");
    expect(pathTo(sql)).toEqual([
      "gateway: GET listInventory",
      "gateway: CheckInventory",
      "inventory-svc: CheckInventory",
      "inventory-svc: SELECT",
    ]);
  });

  test("tracing passes the trace on to the upstream, with the gateway's span as the parent", () => {
    const span = trace(3).find(({ name }) => name === "GET getPet")!;
    expect(sentUp.traceparent).toBe(`00-${traceOf(3)}-${span.spanId}-01`);
  });

  test("tracing continues the trace of an internal caller", () => {
    expect(trace(4).map(pathTo)).toContainEqual(["inventory-svc: GetInventoryItem", "inventory-svc: SELECT"]);
  });

  test("tracing links each commit to its updates, and each of these to the commit", () => {
    const commits = spans.filter(({ name, traceId }) => name === "commit" && traceId !== traceOf(1));
    const written = (commit: Span) => 1 + (commit.links?.length ?? 0);
    expect(commits.map(written).reduce((sum, count) => sum + count, 0)).toBe(updatesAtOnce);
    expect(Math.max(...commits.map(written))).toBeGreaterThan(1);
    for (const commit of commits) {
      for (const link of commit.links ?? []) {
        const update = spans.find(({ spanId }) => spanId === link.spanId)!;
        expect(update).toMatchObject({ name: "ApplyChanges", service: "inventory-svc", traceId: link.traceId });
        expect(update.links).toEqual([expect.objectContaining({ spanId: commit.spanId, traceId: commit.traceId })]);
      }
    }
  });

  test.each([
    ["each read of a gateway to the one in whose trace their check is", "GET listInventory", "CheckInventory", 200],
    ["each question of a gateway to the one in whose trace their SELECT is", "CheckInventory", "SELECT", 300],
  ])("tracing links %s", (_what, name, shared, from) => {
    const traces = Array.from({ length: questionsAtOnce }, (_, i) => traceOf(from + i));
    const asked = spans.filter((span) => span.name === name && span.kind === 2 && traces.includes(span.traceId));
    expect(asked).toHaveLength(questionsAtOnce);
    const hasShared = (id: string) => spans.some((span) => span.parentSpanId === id && span.name === shared);
    const [first, others] = [true, false].map((has) => asked.filter(({ spanId }) => hasShared(spanId) === has));
    expect(others!.length).toBeGreaterThan(0);
    for (const { links } of first!) expect(links ?? []).toEqual([]);
    for (const { links } of others!) {
      expect(links).toHaveLength(1);
      expect(first!.map(({ spanId }) => spanId)).toContain(links![0]!.spanId);
    }
  });

  test("tracing adds the trace id to the log lines of both tiers", () => {
    const lines = logs.split("\n").filter((line) => line.includes(`"trace_id":"${traceOf(1)}"`));
    expect(
      lines
        .map((line) => JSON.parse(line))
        .map(({ name, msg }) => `${name} ${msg}`)
        .sort(),
    ).toEqual(["gateway request", "inventory-svc call"]);
  });

  test("tracing adds the trace id to the log line of a unary call", () => {
    const lines = logs.split("\n").filter((line) => line.includes(`"trace_id":"${traceOf(4)}"`));
    expect(lines.map((line) => JSON.parse(line).method)).toEqual([
      "/petstore.inventory.v1.InventoryService/GetInventoryItem",
    ]);
  });

  test("tracing exports neither the values of a statement nor a key", () => {
    const statements = spans.map((span) => attributesOf(span)["db.query.text"]).filter((text) => text !== undefined);
    expect(statements.length).toBeGreaterThan(0);
    for (const secret of [petId, "ps_test_"]) expect(JSON.stringify(spans)).not.toContain(String(secret));
  });
});

describe("tracing that is switched off", () => {
  const stack = suiteStack();

  test("does not load the OpenTelemetry SDK, and passes a caller's traceparent on unchanged", async () => {
    let sentUp: IncomingHttpHeaders = {};
    const upstream = await listen(stack, (call, response) => {
      sentUp = call.headers;
      response.writeHead(200, { "Content-Type": "application/json" }).end("{}");
    });
    // prom-client loads the OpenTelemetry API by itself. Only the SDK costs time and memory.
    const env = { NODE_OPTIONS: `--import=data:text/javascript,${encodeURIComponent(refuseOpenTelemetry)}` };
    const system = await startSystem({ gatewayEnv: { ...env, PETS_UPSTREAM_URL: upstream }, inventoryEnv: env });
    stack.defer(() => system.close());
    const headers = { authorization: `Bearer ${system.keys.enterprise}`, traceparent: traceparent(1) };
    expect((await request(system.address, { path: "/v1/pets/1", headers })).status).toBe(200);
    expect(sentUp.traceparent).toBe(traceparent(1));
    await expect(startSystem({ gateways: 0, inventoryEnv: { ...env, OTEL_TRACES_EXPORTER: "otlp" } })).rejects.toThrow(
      "OpenTelemetry was loaded",
    );
  });
});

/** Asks what has changed, as a gateway does. */
async function check({ client }: System, traceparent: string): Promise<void> {
  const stream = client.checkInventory();
  stream.write({ epoch: "another", revision: 0n, traceparent });
  await once(stream, "data");
  stream.end();
}

const refuseOpenTelemetry = `
  import { registerHooks } from "node:module";
  registerHooks({
    resolve(name, context, next) {
      if (name === "@opentelemetry/sdk-trace") throw new Error("OpenTelemetry was loaded");
      return next(name, context);
    },
  });
`;

/** Starts an HTTP server. @returns its base URL */
async function listen(
  stack: Stack,
  handle: (call: IncomingMessage, response: ServerResponse) => void,
): Promise<string> {
  const server = createServer(handle).listen(0, "127.0.0.1");
  stack.defer(() => {
    server.close();
    server.closeAllConnections();
  });
  await once(server, "listening");
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}
