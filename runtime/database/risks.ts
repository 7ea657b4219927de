/** Watches a database for what can lose an acknowledged update, or make a read old. */
import type { Knex } from "knex";
import type { Registry } from "prom-client";
import type { Logger } from "../log.ts";
import { gauge } from "../metrics.ts";
import { OperatorError } from "../operator-error.ts";
import { type Engine, engineBehind, engineOf } from "./engine.ts";
import {
  acquireConnection,
  discardAllConnections,
  isSqlite,
  openConnections,
  type PooledConnection,
  poolUse,
  releaseConnection,
} from "./knex-internals.ts";
import { askAgain } from "./open.ts";
import { serverQuestionSql } from "./server-question.ts";

/** How often the settings are read again: an operator can change them while connections are open. */
const readAgainMs = 60_000;

/** How often the servers behind the connections are compared. */
const compareMs = 1_000;

export class DatabaseRisks {
  readonly #log: Logger;
  readonly #setting: string;
  #known: readonly string[] = [];
  /** Why nothing that is read can be trusted, while connections lead to several servers that take writes. */
  #severalWriters: OperatorError | undefined;

  /** @param setting of the URL, as in `INVENTORY_DATABASE_URL (inventory-svc)` */
  constructor(log: Logger, setting: string) {
    this.#log = log;
    this.#setting = setting;
  }

  /**
   * Returns how the server that was seen last may lose updates or give old reads, each with what mends it.
   *
   * @throws OperatorError while connections lead to several servers that take writes
   */
  check(): readonly string[] {
    if (this.#severalWriters) throw this.#severalWriters;
    return this.#known;
  }

  /** Takes note of a server. It logs each risk when it appears: after a failover the server may be another one. */
  readonly see = ({ name, risks }: Engine): void => {
    for (const risk of risks.filter((risk) => !this.#known.includes(risk))) {
      this.#log.warn(
        { engine: name, risk },
        "NOT SAFE: the database server, as it is set up, can lose updates or give old reads",
      );
    }
    this.#known = risks;
  };

  /** Reads the settings again each minute, and compares the servers each second. @returns a function that ends both */
  watch(db: Knex): () => void {
    if (isSqlite(db)) return () => {};
    const rereading = setInterval(() => {
      this.readAgain(db).catch(() => {}); // callers see for themselves that it is away
    }, readAgainMs);
    let isComparing = false;
    const comparing = setInterval(async () => {
      if (isComparing) return;
      isComparing = true;
      await this.#compareServers(db).catch(() => {}); // callers see for themselves that it is away
      isComparing = false;
    }, compareMs);
    for (const timer of [rereading, comparing]) timer.unref();
    return () => {
      for (const timer of [rereading, comparing]) clearInterval(timer);
    };
  }

  /**
   * Reads the settings of the server again. A group of servers can be switched to another mode under open connections,
   * whose sessions lack what that mode needs: they are given up.
   *
   * @throws what the driver throws
   */
  async readAgain(db: Knex): Promise<void> {
    const [results] = await db.raw(serverQuestionSql);
    const engine = engineOf(results);
    this.see(engine);
    const isSwitched = openConnections(db).some((connection) => engineBehind(connection).writer !== engine.writer);
    if (isSwitched) discardAllConnections(db, new Error("the database server was switched to another mode"));
  }

  /**
   * Compares the servers. Several writers count as gone only once a whole pool of new connections leads to one: a few
   * connections prove nothing.
   */
  async #compareServers(db: Knex): Promise<void> {
    const hadSeveral = this.#severalWriters !== undefined;
    const writers = hadSeveral ? await writersBehindAll(db, poolUse(db).max) : await writersBehind(db);
    if (writers.length < 2) {
      if (hadSeveral) this.#log.info("all connections lead to one database server again");
      this.#severalWriters = undefined;
      return;
    }
    const risk = `connections lead to several database servers that all take writes (${writers.sort().join(", ")}), so updates can be lost and reads be old: the URL has to lead to the primary alone`;
    this.#severalWriters = new OperatorError(`${this.#setting}: ${risk}`);
    if (!hadSeveral)
      this.#log.error({ risk }, "NOT SAFE: connections lead to several database servers, so this process is not ready");
    discardAllConnections(db, this.#severalWriters);
  }

  /** Adds a gauge. @param tier begins its name: `gateway`, `inventory` */
  expose(registry: Registry, tier: string): void {
    const help = "Reasons for which an acknowledged update can be lost or a read be old: settings, several servers";
    gauge(
      { name: `${tier}_database_risks`, help, registry },
      () => this.#known.length + (this.#severalWriters === undefined ? 0 : 1),
    );
  }
}

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
  const engines = await Promise.all([...byWriter.values()].map(([first]) => askAgain(first!).catch(() => undefined)));
  return [...new Set(engines.filter((engine) => engine && !engine.isReadOnly).map((engine) => engine!.writer))];
}
