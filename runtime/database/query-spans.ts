/** Gives each query that runs within a span one of its own. */
import { context, type Span, SpanKind, trace } from "@opentelemetry/api";
import type { Knex } from "knex";
import { failSpan, tracer } from "../spans.ts";
import { isSqlite, type QueryEvent, queryIdOf } from "./knex-internals.ts";

/** The longest SQL in a span: a statement for a thousand rows is as long as those rows. */
const maxSqlLength = 1_000;

export function traceQueries(db: Knex): void {
  const system = isSqlite(db) ? "sqlite" : "mysql";
  const running = new Map<string, Span>();
  db.on("query", (query: QueryEvent) => {
    const parent = context.active();
    if (!trace.getSpan(parent)) return;
    const operation = /^\w+/.exec(query.sql)?.[0].toUpperCase() ?? "SQL";
    const text = query.sql.slice(0, maxSqlLength); // it has a placeholder for each value
    const attributes = { "db.system.name": system, "db.operation.name": operation, "db.query.text": text };
    running.set(queryIdOf(query), tracer.startSpan(operation, { kind: SpanKind.CLIENT, attributes }, parent));
  });
  const end = (query: QueryEvent, error?: unknown) => {
    const id = queryIdOf(query);
    const span = running.get(id);
    running.delete(id);
    if (span && error) failSpan(span, error);
    span?.end();
  };
  db.on("query-response", (_response, query: QueryEvent) => end(query));
  db.on("query-error", (error, query: QueryEvent) => end(query, error));
}
