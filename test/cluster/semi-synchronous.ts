/** Starts a MySQL source with a replica that has every transaction on its disk before it is acknowledged. */
import { readFileSync } from "node:fs";
import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { readOnlySql } from "../../runtime/database/old-primary.ts";
import { mysqlProgram } from "../support/mysql-program.ts";
import { prepareMysqld } from "../support/mysqld.ts";
import { freePort } from "../support/ports.ts";
import { temporaryFolder } from "../support/stack.ts";
import { until } from "../support/until.ts";
import {
  askNode,
  type ClusterNode,
  type ClusterServer,
  type DatabaseCluster,
  makeServers,
  patientMs,
} from "./database-cluster.ts";

/**
 * Starts two nodes, the first as the source. `switchTo()` is a planned switch while the source runs, and a promotion
 * after it was killed. The promoted node waits for no replica until the other one is back.
 */
export async function startSemiSynchronousPair(stack: AsyncDisposableStack): Promise<DatabaseCluster> {
  const folder = await temporaryFolder("pair");
  stack.defer(() => folder.remove());
  await mkdir(join(folder.path, "original"));
  const original = await prepareMysqld(join(folder.path, "original"), await freePort(), mysqlProgram());
  const args = [1, 2].map((id) => [
    `--server-id=${id}`,
    "--gtid-mode=ON",
    "--enforce-gtid-consistency=ON",
    "--plugin-load-add=semisync_source.so",
    "--plugin-load-add=semisync_replica.so",
    "--loose-rpl-semi-sync-replica-enabled=ON",
    "--loose-rpl-semi-sync-source-wait-point=AFTER_SYNC",
    // Longer than any test: a source that stops waiting would acknowledge what only it has.
    "--loose-rpl-semi-sync-source-timeout=3600000",
    "--super-read-only=ON", // until it becomes the source
  ]);
  const servers = await makeServers(stack, { original, folder: folder.path, args });
  await Promise.all(servers.map((server) => server.start()));
  const [first, second] = servers as [ClusterServer, ClusterServer];
  await follow(second, first);
  await waitForReplicas(first, true);
  await first.query("SET GLOBAL read_only = OFF");

  let nextId = 3;
  const other = (node: ClusterNode) => (node === first ? second : first);
  const pair: DatabaseCluster = {
    nodes: servers,
    roleOf: async (node) => ((await askNode(node, readOnlySql)) === "1" ? "standby" : "writer"),
    switchTo: async (node) => {
      const old = other(node);
      if (old.isRunning) {
        await caughtUp(node, old); // what is left to apply later adds to the time without writes
        await old.query("SET GLOBAL super_read_only = ON", patientMs);
        await applied(node, `'${await askNode(old, "@@gtid_executed")}'`);
      }
      await waitForReplicas(node, old.isRunning);
      await promote(node);
      if (old.isRunning) await follow(old, node as ClusterServer);
    },
    rejoin: async (node) => {
      const [server, source] = [other(other(node)), other(node)];
      if (!server.isRunning) {
        // By itself it comes back read-only.
        await server.start();
        if ((await pair.roleOf(server)) !== "standby") throw new Error(`${server.name} takes writes`);
        await server.kill();
        // It may have what it acknowledged to no writer, so it begins again and gets all from the other's binary log.
        // It needs another identity for that, as a replica ignores what it has written itself.
        await server.resetData();
        await server.start(`--server-id=${nextId++}`);
        // Otherwise the whole binary log takes about as long as it took to be written.
        await server.query("SET GLOBAL sync_binlog = 0, GLOBAL innodb_flush_log_at_trx_commit = 0");
        await follow(server, source);
        await source.query("SET GLOBAL rpl_semi_sync_source_enabled = ON");
      }
      await applied(server, `'${await askNode(source, "@@gtid_executed")}'`);
      await server.query("SET GLOBAL sync_binlog = 1, GLOBAL innodb_flush_log_at_trx_commit = 1");
    },
  };
  return pair;
}

/** Makes a replica a source by the statements of docs/growth.md. */
async function promote(node: ClusterNode): Promise<void> {
  const text = readFileSync(join(import.meta.dirname, "../../docs/growth.md"), "utf8");
  const [, statements] = /^### Promote a replica$.*?^```sql\n(.*?)^```/ms.exec(text)!;
  for (const statement of statements!.split(/;.*\n/).filter(Boolean)) {
    const answer = await node.query<object>(statement, patientMs);
    if (Array.isArray(answer) && Object.values(answer[0]!)[0] !== 0)
      throw new Error(`not applied in time: ${statement}`);
  }
}

/** Waits until a node has executed a set of transactions. */
async function applied(node: ClusterNode, transactions: string): Promise<void> {
  await askNode(node, `WAIT_FOR_EXECUTED_GTID_SET(${transactions}, ${patientMs / 1_000})`, patientMs);
}

/** Waits until a replica has executed almost at once what its source has, while the source takes writes. */
async function caughtUp(replica: ClusterNode, source: ClusterNode): Promise<void> {
  const isNear = async () => {
    const transactions = await askNode(source, "@@gtid_executed");
    return (await askNode(replica, `GTID_SUBSET('${transactions}', @@gtid_executed)`)) === "1";
  };
  await until(isNear, { withinMs: patientMs, everyMs: 50 });
}

/** Makes a node a replica. */
async function follow(replica: ClusterServer, source: ClusterServer): Promise<void> {
  const { username, password } = new URL(source.url(""));
  await replica.query("SET GLOBAL rpl_semi_sync_source_enabled = OFF");
  await replica.query(
    `CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1', SOURCE_PORT = ${source.port}, SOURCE_USER = '${username}',
      SOURCE_PASSWORD = '${password}', SOURCE_AUTO_POSITION = 1, GET_SOURCE_PUBLIC_KEY = 1, SOURCE_CONNECT_RETRY = 1`,
  );
  await replica.query("START REPLICA");
  const count = `(SELECT COUNT(*) FROM performance_schema.replication_connection_status WHERE SERVICE_STATE = 'ON')`;
  await until(async () => (await askNode(replica, count)) === "1", { withinMs: patientMs, everyMs: 50 });
}

/** Has a source acknowledge what a replica has, or what it has itself. */
async function waitForReplicas(source: ClusterNode, hasReplica: boolean): Promise<void> {
  await source.query(`SET GLOBAL rpl_semi_sync_source_enabled = ${hasReplica ? "ON" : "OFF"}`);
}
