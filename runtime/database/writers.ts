/** Notices when the connections of one pool lead to several servers that all take writes. */
import type { Knex } from "knex";
import { acquireConnection, openConnections, type PooledConnection, releaseConnection } from "./knex-internals.ts";
import { engineBehind, renewEngine } from "./open.ts";

/**
 * Asks the servers behind the connections which of them take writes now. It asks nothing while all connections lead to
 * one server. A connection that is lost leads nowhere. One to an old primary, which takes no writes any more, is left
 * to the read that uses it next.
 *
 * @returns the writers, as `Engine.writer` names them
 */
export async function writersBehind(db: Knex): Promise<string[]> {
  return await writersOf(openConnections(db));
}

/**
 * Fills the pool with connections at once and asks for their writers.
 *
 * @throws what opening a connection throws
 */
export async function writersBehindAll(db: Knex, poolMax: number): Promise<string[]> {
  const opening = await Promise.allSettled(Array.from({ length: poolMax }, () => acquireConnection(db)));
  const opened = opening.filter((each) => each.status === "fulfilled").map(({ value }) => value);
  try {
    const refused = opening.find((each) => each.status === "rejected");
    if (refused) throw refused.reason;
    return await writersOf(opened);
  } finally {
    for (const connection of opened) await releaseConnection(db, connection);
  }
}

async function writersOf(connections: readonly PooledConnection[]): Promise<string[]> {
  const byWriter = Map.groupBy(connections, (connection) => engineBehind(connection).writer);
  if (byWriter.size < 2) return [...byWriter.keys()];
  const engines = await Promise.all(
    [...byWriter.values()].map(([first]) => renewEngine(first!).catch(() => undefined)),
  );
  return [...new Set(engines.filter((engine) => engine && !engine.isReadOnly).map((engine) => engine!.writer))];
}
