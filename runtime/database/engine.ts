/**
 * Knows the engines behind a URL: MySQL and MariaDB with their forms of replication, Vitess, and TiDB.
 *
 * It says which settings a session needs for a read to be up to date, and which settings of the server put an
 * acknowledged update at risk.
 */
import type { PooledConnection } from "./knex-internals.ts";
import type { AlteredTable, VariableRow } from "./server-question.ts";

type Variables = ReadonlyMap<string, string>;

export interface Engine {
  /** What it is, such as `MySQL 9.7.4, Group Replication`. */
  readonly name: string;
  /**
   * True where the server drops the rest of a packet of statements after an error. Galera does not: the rest would run
   * on its own after the transaction was taken back, so there each statement is sent alone.
   */
  readonly canPipeline: boolean;
  /** Whether it takes no writes, as a replica or an old primary does. */
  readonly isReadOnly: boolean;
  /**
   * Names what takes the writes: a server, by its `server_id`, or a cluster whose servers may all take them. When two
   * names take writes at a time, there are two stocks.
   */
  readonly writer: string;
  /** Statements that give a session what reads and transactions rely on. */
  readonly ownSettings: readonly string[];
  /**
   * Settings of the server, and altered tables, by which an update can be lost, a read be stale, or an update be shown
   * that a crash takes back. Each with what mends it.
   */
  readonly risks: readonly string[];
}

/** SQLite: one file, one process, always durable (`sqlite.ts` sees to it). */
const sqliteEngine: Engine = {
  name: "SQLite",
  canPipeline: false,
  isReadOnly: false,
  writer: "SQLite",
  ownSettings: [],
  risks: [],
};

/** The engines of the open connections to servers. */
export const engines = new WeakMap<PooledConnection, Engine>();

/** The engine that a connection leads to. */
export function engineBehind(connection: PooledConnection): Engine {
  return engines.get(connection) ?? sqliteEngine;
}

/** Recognizes an engine by its answer. @param results of statements that end with `serverQuestionSql` */
export function engineOf(results: readonly unknown[]): Engine {
  const [rows, altered] = results.slice(-2) as [VariableRow[], AlteredTable[]];
  const variables: Variables = new Map(rows.map((row) => [row.Variable_name, row.Value]));
  const { form, ...specific } = formOf(variables);
  const version = variables.get("version") ?? "";
  const product = variables.has("tidb_txn_mode") ? "TiDB" : /mariadb/i.test(version) ? "MariaDB" : "MySQL";
  return {
    name: `${product} ${version.replace(/-.*/, "")}${form === undefined ? "" : `, ${form}`}`,
    canPipeline: form !== "Galera",
    isReadOnly: ["read_only", "super_read_only", "innodb_read_only"].some((name) => isOn(variables.get(name))),
    writer: writerOf(variables),
    ownSettings: [...rememberServer(variables), ...specific.ownSettings],
    risks: [...specific.risks, ...durabilityRisks(variables), ...altered.map(tableRisk)],
  };
}

/** The user variable of a session that holds the `server_id` of the server that the session was prepared on. */
export const serverIdVariable = "@petstore_server";

/** Members of a replication have different ids, so a read can tell whether another server answers it. */
function rememberServer(variables: Variables): string[] {
  const id = Number(variables.get("server_id"));
  return Number.isInteger(id) ? [`SET ${serverIdVariable} = ${id}`] : [];
}

function writerOf(variables: Variables): string {
  if (isOn(variables.get("wsrep_on"))) return `Galera ${variables.get("wsrep_cluster_name")}`;
  if (variables.has("tidb_txn_mode")) return "TiDB";
  const group = variables.get("group_replication_group_name");
  if (group && !isOn(variables.get("group_replication_single_primary_mode"))) return `group ${group}`;
  return `server_id ${variables.get("server_id")}`;
}

/** True for a variable that is on. MariaDB 12 has several degrees of read-only, each of which is on. */
export function isOn(value: unknown): boolean {
  return value !== undefined && value !== null && !["0", "OFF", ""].includes(String(value).toUpperCase());
}

interface Form extends Pick<Engine, "ownSettings" | "risks"> {
  /** The form of its replication; undefined where the server does not tell one. */
  readonly form: string | undefined;
}

function formOf(variables: Variables): Form {
  if (isOn(variables.get("wsrep_on"))) return { form: "Galera", ...galera(variables) };
  if (variables.get("group_replication_group_name"))
    return { form: "Group Replication", ...groupReplication(variables) };
  const waits = semiSyncWaits(variables);
  if (isVitess(variables)) return { form: "Vitess", ...vitess(waits) };
  if (waits) return { form: "semi-synchronous replication", ...semiSynchronous(waits) };
  if (variables.has("tidb_txn_mode")) return { form: undefined, ...tidb(variables) };
  return { form: undefined, ownSettings: [], risks: [] };
}

function galera(variables: Variables): Omit<Form, "form"> {
  const syncWait = Number(variables.get("wsrep_sync_wait") ?? 0);
  const options = variables.get("wsrep_provider_options") ?? "";
  return {
    ownSettings: [
      // Each statement waits until this node has applied what other nodes acknowledged before: reads and BEGIN by bit
      // 1, UPDATE and DELETE by 2, INSERT by 4. Otherwise a statement could miss rows that are newer than this node.
      ...((syncWait & 7) === 7 ? [] : [`SET SESSION wsrep_sync_wait = ${syncWait | 7}`]),
      ...(isOn(variables.get("wsrep_dirty_reads")) ? ["SET SESSION wsrep_dirty_reads = OFF"] : []),
    ],
    risks: /pc\.ignore_(sb|quorum)\s*=\s*(true|yes|on|1)/i.test(options)
      ? [
          "wsrep_provider_options ignores a lost majority, so a split cluster takes updates twice: set pc.ignore_sb=false and pc.ignore_quorum=false",
        ]
      : [],
  };
}

/** The consistencies with which a read waits for everything that the group has ordered before it. */
const before = ["BEFORE", "BEFORE_AND_AFTER"];

function groupReplication(variables: Variables): Omit<Form, "form"> {
  const consistency = variables.get("group_replication_consistency") ?? "EVENTUAL";
  const isSinglePrimary = isOn(variables.get("group_replication_single_primary_mode"));
  // With several primaries a read waits for what the others have acknowledged. With one, only a new primary waits.
  const enough = isSinglePrimary ? ["BEFORE_ON_PRIMARY_FAILOVER", "AFTER", ...before] : before;
  const needed = consistency === "AFTER" ? "BEFORE_AND_AFTER" : enough[0];
  const neverNotices = Number(variables.get("group_replication_unreachable_majority_timeout") ?? 0) === 0;
  return {
    ownSettings: enough.includes(consistency) ? [] : [`SET SESSION group_replication_consistency = '${needed}'`],
    risks:
      neverNotices && !before.includes(consistency) && isSinglePrimary
        ? [
            "group_replication_unreachable_majority_timeout is 0, so a primary that is cut off from its group may answer reads with old stock: set it to 5, and group_replication_exit_state_action to OFFLINE_MODE",
          ]
        : [],
  };
}

/** Below this time-out, a source whose replica is away for a while acknowledges what it alone has. */
const minSemiSyncTimeoutMs = 3_600_000;

/**
 * The wait of a source for a replica to have a commit: how long, at which point, and whether also while none is there.
 */
interface SemiSyncWaits {
  readonly timeoutMs: number;
  readonly waitPoint: string | undefined;
  readonly withoutReplica: boolean;
}

/** @returns undefined for a source that waits for no replica */
function semiSyncWaits(variables: Variables): SemiSyncWaits | undefined {
  const setting = (name: string, oldName = name) =>
    variables.get(`rpl_semi_sync_source_${name}`) ?? variables.get(`rpl_semi_sync_master_${oldName}`);
  if (!isOn(setting("enabled"))) return undefined;
  return {
    timeoutMs: Number(setting("timeout")),
    waitPoint: setting("wait_point"),
    withoutReplica: isOn(setting("wait_no_replica", "wait_no_slave") ?? "ON"),
  };
}

function semiSynchronous({ timeoutMs, waitPoint, withoutReplica }: SemiSyncWaits): Omit<Form, "form"> {
  const risks: string[] = [];
  if (!withoutReplica) {
    risks.push(
      "semi-synchronous replication waits for no replica when none is there, and a failover can then lose updates: set rpl_semi_sync_source_wait_no_replica to ON",
    );
  }
  if (timeoutMs < minSemiSyncTimeoutMs) {
    risks.push(
      `semi-synchronous replication stops waiting for a replica after ${timeoutMs} ms, and a failover can then lose updates: set rpl_semi_sync_source_timeout to 4294967295`,
    );
  }
  if (waitPoint === "AFTER_COMMIT") {
    risks.push(
      "rpl_semi_sync_source_wait_point is AFTER_COMMIT, so readers see updates that a failover can lose: set it to AFTER_SYNC",
    );
  }
  return { ownSettings: [], risks };
}

const isVitess = (variables: Variables) => /-vitess/i.test(variables.get("version") ?? "");

function vitess(waits: SemiSyncWaits | undefined): Omit<Form, "form"> {
  const noWait =
    "Vitess replaces a primary by itself, and this one waits for no replica, so a failover can lose updates: set the durability policy of its keyspace to semi_sync";
  return {
    ownSettings: [
      "SET SESSION sql_select_limit = DEFAULT", // VTGate takes no lock of migrations while there is a limit
      // It refuses a transaction in several shards, which it would otherwise commit in one and perhaps not in another.
      "SET SESSION transaction_mode = 'SINGLE'",
    ],
    risks: waits ? semiSynchronous(waits).risks : [noWait],
  };
}

function tidb(variables: Variables): Omit<Form, "form"> {
  const wanted = [
    ["tidb_txn_mode", "pessimistic"], // an optimistic transaction locks nothing
    ["tidb_replica_read", "leader"],
    ["tidb_load_based_replica_read_threshold", "0s"],
    ["tidb_guarantee_linearizability", "ON"],
  ] as const;
  return {
    ownSettings: wanted
      .filter(([name, value]) => variables.has(name) && variables.get(name) !== value)
      .map(([name, value]) => `SET SESSION ${name} = '${value}'`),
    risks: isOn(variables.get("tidb_rc_read_check_ts"))
      ? ["tidb_rc_read_check_ts is on, so a read may be old: SET GLOBAL tidb_rc_read_check_ts = OFF"]
      : [],
  };
}

function tableRisk({ name, storageEngine, collation }: AlteredTable): string {
  if (storageEngine === null) {
    return `the table ${name} takes texts for equal that are not (${collation}), so a request can be taken for another one: ALTER TABLE ${name} CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_bin`;
  }
  return `the table ${name} has no transactions (${storageEngine}), so updates can be lost or done by half: ALTER TABLE ${name} ENGINE = InnoDB`;
}

function durabilityRisks(variables: Variables): string[] {
  if (variables.has("tidb_txn_mode")) return []; // it has these variables for MySQL's clients, without an effect
  const risks: string[] = [];
  const mustBeOne = (name: string) => {
    const value = variables.get(name);
    if (value === undefined || value === "1") return;
    risks.push(`${name} is ${value}, so a crash of the server's machine can lose updates: set it to 1`);
  };
  mustBeOne("innodb_flush_log_at_trx_commit");
  if (isOn(variables.get("log_bin"))) mustBeOne("sync_binlog");
  // Without log_bin InnoDB shows a commit before it is on disk. In Galera the other nodes have the commit by then.
  else if (variables.has("log_bin") && !isOn(variables.get("wsrep_on")))
    risks.push("log_bin is OFF, so readers may see an update that a crash takes back: set log_bin and sync_binlog=1");
  return risks;
}
