/** Starts MySQL Group Replication: three nodes, of which one or all take writes. */
import { randomUUID } from "node:crypto";
import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { mysqlProgram } from "../support/mysql-program.ts";
import { prepareMysqld } from "../support/mysqld.ts";
import { freePort } from "../support/ports.ts";
import { temporaryFolder } from "../support/stack.ts";
import { until } from "../support/until.ts";
import { askNode, type ClusterServer, type DatabaseCluster, makeServers, patientMs } from "./database-cluster.ts";
import type { Host } from "./network.ts";

const members = "performance_schema.replication_group_members";
const countOnline = `(SELECT COUNT(*) FROM ${members} WHERE MEMBER_STATE = 'ONLINE')`;
const own = (column: string) => `(SELECT ${column} FROM ${members} WHERE MEMBER_ID = @@server_uuid)`;
const primary = `(SELECT MAX(MEMBER_ID) FROM ${members} WHERE MEMBER_ROLE = 'PRIMARY')`;
const hasMajority = `(SELECT SUM(MEMBER_STATE IN ('ONLINE', 'RECOVERING')) * 2 > COUNT(*) FROM ${members})`;

/** Starts a group, by default with a single primary. A dead primary is replaced after about seven seconds. */
export async function startGroupReplication(
  stack: AsyncDisposableStack,
  { multiPrimary = false, hosts }: { multiPrimary?: boolean; hosts?: readonly Host[] } = {},
): Promise<DatabaseCluster> {
  const folder = await temporaryFolder("group");
  stack.defer(() => folder.remove());
  await mkdir(join(folder.path, "original"));
  const original = await prepareMysqld(join(folder.path, "original"), await freePort(), mysqlProgram());
  const groupName = randomUUID();
  const places = [0, 1, 2].map((i) => hosts?.[i]?.address ?? "127.0.0.1");
  const addresses: string[] = [];
  for (const place of places) addresses.push(`${place}:${await freePort()}`);
  const args = addresses.map((address, i) => [
    `--server-id=${i + 1}`,
    `--report-host=${places[i]}`,
    "--gtid-mode=ON",
    "--enforce-gtid-consistency=ON",
    "--plugin-load-add=group_replication.so",
    "--loose-group-replication-start-on-boot=OFF",
    `--loose-group-replication-group-name=${groupName}`,
    `--loose-group-replication-local-address=${address}`,
    `--loose-group-replication-group-seeds=${addresses.join(",")}`,
    "--loose-group-replication-recovery-get-public-key=ON",
    // A silent member is expelled at the next look, not five seconds after the first.
    "--loose-group-replication-member-expel-timeout=0",
    // A new primary answers only after it has applied what the old one had committed.
    "--loose-group-replication-consistency=BEFORE_ON_PRIMARY_FAILOVER",
    `--loose-group-replication-single-primary-mode=${multiPrimary ? "OFF" : "ON"}`,
    `--loose-group-replication-enforce-update-everywhere-checks=${multiPrimary ? "ON" : "OFF"}`,
  ]);
  const servers = await makeServers(stack, { original, folder: folder.path, args, hosts });
  await Promise.all(servers.map((server) => server.start()));
  const [first, ...others] = servers as [ClusterServer, ...ClusterServer[]];
  await first.query("SET GLOBAL group_replication_bootstrap_group = ON");
  await joinGroup(first);
  await first.query("SET GLOBAL group_replication_bootstrap_group = OFF");
  for (const server of others) await joinGroup(server);

  const isWhole = async () => {
    const counts = await Promise.all(servers.map((server) => askNode(server, countOnline)));
    return counts.every((count) => Number(count) === servers.length);
  };
  await until(() => isWhole(), { withinMs: patientMs, everyMs: 100 });

  return {
    nodes: servers,
    roleOf: async (node) => {
      // A primary that was frozen takes itself for the primary for a moment after its thaw, so two nodes have to agree.
      // The others are asked first: asked last, they may know of a switch already that the node itself did not know of.
      const named = await Promise.all(servers.map((server) => askNode(server, primary, 500).catch(() => "")));
      const itself = await askNode(
        node,
        `CONCAT_WS(' ', @@server_uuid, @@super_read_only, ${own("MEMBER_ROLE")}, ${own("MEMBER_STATE")} = 'ONLINE' AND ${hasMajority})`,
      );
      const [uuid, isReadOnly, ownRole, isInGroup] = itself.split(" ");
      if (isReadOnly === "1") return "standby";
      if (isInGroup !== "1") return "out";
      if (ownRole === "SECONDARY") return "standby"; // it learns of its role before it is read-only
      return named.filter((name) => name === uuid).length * 2 > servers.length ? "writer" : "out";
    },
    switchTo: async (node) => {
      await node.query(`SELECT group_replication_set_as_primary(@@server_uuid)`, patientMs);
    },
    rejoin: async (node) => {
      const server = servers.find(({ name }) => name === node.name)!;
      if (!server.isRunning) await server.start();
      const tryAgain = async () => {
        const state = await askNode(server, own("MEMBER_STATE"));
        if (state === "ONLINE") return await isWhole();
        // The group refuses a member as long as it knows it from before.
        if (state !== "RECOVERING") await joinGroup(server).catch(() => {});
        return false;
      };
      await until(() => tryAgain().catch(() => false), { withinMs: patientMs, everyMs: 100 });
    },
  };
}

/** Has a server join the group, or found it. */
async function joinGroup(server: ClusterServer): Promise<void> {
  const { username, password } = new URL(server.url(""));
  await server.query("STOP GROUP_REPLICATION", patientMs);
  await server.query(
    `CHANGE REPLICATION SOURCE TO SOURCE_USER = '${username}', SOURCE_PASSWORD = '${password}'
      FOR CHANNEL 'group_replication_recovery'`,
  );
  await server.query("START GROUP_REPLICATION", patientMs);
}
