/** Watches the settings of a database server by which an acknowledged update can be lost, or a read be old. */
import type { Knex } from "knex";
import type { Registry } from "prom-client";
import type { Logger } from "../log.ts";
import { gauge } from "../metrics.ts";
import { askServer, type Engine, engineOf } from "./engine.ts";
import { isSqlite } from "./open.ts";

/** How often the settings are read again: an operator can change them while connections are open. */
const readAgainMs = 60_000;

export class DatabaseRisks {
  readonly #log: Logger;
  #known: readonly string[] = [];

  constructor(log: Logger) {
    this.#log = log;
  }

  /** The risks of the server that was seen last, each with what mends it. */
  get current(): readonly string[] {
    return this.#known;
  }

  /** Takes note of a server. It logs each risk when it appears: after a failover the server may be another one. */
  readonly see = ({ name, risks }: Engine): void => {
    for (const risk of risks.filter((risk) => !this.#known.includes(risk))) {
      this.#log.warn({ engine: name, risk }, "NOT SAFE: a setting of the database server puts promises at risk");
    }
    this.#known = risks;
  };

  /** Reads the settings again once a minute. @returns what ends that */
  watch(db: Knex): () => void {
    if (isSqlite(db)) return () => {};
    const timer = setInterval(() => {
      db.raw(askServer).then(
        ([[variables, altered]]) => this.see(engineOf(variables, altered)),
        () => {}, // callers see for themselves that it is away
      );
    }, readAgainMs);
    timer.unref();
    return () => clearInterval(timer);
  }

  /** Adds a gauge. @param tier begins its name: `gateway`, `inventory` */
  expose(registry: Registry, tier: string): void {
    const help = "Settings of the database server by which an acknowledged update can be lost or a read be old";
    gauge({ name: `${tier}_database_risks`, help, registry }, () => this.#known.length);
  }
}
