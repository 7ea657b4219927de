/** Starts MariaDB Galera: three nodes, all of which take writes. */
import { mkdir, writeFile } from "node:fs/promises";
import { delimiter, join } from "node:path";
import { startChild } from "../support/children.ts";
import { serverProcess } from "../support/database-server.ts";
import { type PreparedServer, prepareMysqld } from "../support/mysqld.ts";
import { freePort } from "../support/ports.ts";
import { serverProgram } from "../support/server-programs.ts";
import { temporaryFolder } from "../support/stack.ts";
import { until } from "../support/until.ts";
import {
  askNode,
  type ClusterNode,
  type ClusterServer,
  type DatabaseCluster,
  makeServers,
  patientMs,
  runOn,
} from "./database-cluster.ts";
import type { Host } from "./network.ts";

export interface GaleraCluster extends DatabaseCluster {
  /** Waits until every node has what was committed on any node. */
  settle(): Promise<void>;
}

const transferMethod = "history";
const states = `(SELECT GROUP_CONCAT(VARIABLE_VALUE ORDER BY VARIABLE_NAME) FROM information_schema.GLOBAL_STATUS
  WHERE VARIABLE_NAME IN ('WSREP_CLUSTER_STATUS', 'WSREP_LOCAL_STATE_COMMENT'))`;

/** Starts three nodes. The writer is node 1 until it fails or the test names another; it does not change back. */
export async function startGalera(
  stack: AsyncDisposableStack,
  { hosts }: { hosts?: readonly Host[] } = {},
): Promise<GaleraCluster> {
  const folder = await temporaryFolder("galera");
  stack.defer(() => folder.remove());
  const provider = await serverProgram("galera");
  const env = { ...process.env, PATH: `${folder.path}${delimiter}${process.env.PATH}` };
  await writeFile(join(folder.path, `wsrep_sst_${transferMethod}`), transferScript, { mode: 0o755 });

  const places: { address: string; group: number; history: number }[] = [];
  for (let i = 0; i < 3; i++) {
    places.push({ address: hosts?.[i]?.address ?? "127.0.0.1", group: await freePort(), history: await freePort() });
  }
  const addresses = places.map(({ address, group }) => `${address}:${group}`);
  const args = places.map(({ address, group, history }, i) => [
    `--server-id=${i + 1}`,
    "--skip-log-bin", // the other nodes have each commit
    "--binlog-format=ROW",
    "--innodb-autoinc-lock-mode=2",
    "--wsrep-on=ON",
    `--wsrep-provider=${provider}`,
    "--wsrep-cluster-name=tests",
    `--wsrep-cluster-address=gcomm://${addresses.join(",")}`,
    `--wsrep-node-address=${address}:${group}`,
    `--wsrep-sst-method=${transferMethod}`,
    `--wsrep-provider-options=gmcast.listen_addr=tcp://${address}:${group};ist.recv_addr=${address}:${history};gcache.size=64M`,
  ]);
  const original = await foundCluster(join(folder.path, "original"), args[0]!, hosts?.[0]);
  const servers = await makeServers(stack, { original, folder: folder.path, args, env, hosts });
  const isSynced = async (node: ClusterNode) => (await askNode(node, states)) === "Primary,Synced";
  const synced = (node: ClusterNode) =>
    until(() => isSynced(node).catch(() => false), { withinMs: patientMs, everyMs: 100 });
  // One after the other: two that join at once wait for each other for five seconds.
  for (const [i, server] of servers.entries()) {
    await server.start(...(i === 0 ? ["--wsrep-new-cluster"] : []));
    await synced(server);
  }

  let writer: ClusterNode = servers[0]!;
  return {
    nodes: servers,
    roleOf: async (node) => {
      if (!(await isSynced(node))) return "out";
      const before = writer;
      const isGone = node !== before && !(await isSynced(before).catch(() => false));
      if (isGone && writer === before) writer = node;
      return node === writer ? "writer" : "out"; // no node is read-only, so what was begun there would go on there
    },
    switchTo: async (node) => {
      writer = node;
    },
    // As always with Galera, a node that was killed while it changed a schema cannot join again by the history alone.
    rejoin: async (node) => {
      const server = servers.find((each) => each === node)!;
      if (!server.isRunning) await server.start(`--wsrep-start-position=${await positionOf(server)}`);
      await synced(server);
    },
    settle: async () => {
      for (const server of servers) await server.query("SET STATEMENT wsrep_sync_wait = 15 FOR SELECT 1", patientMs);
    },
  };
}

/** Makes data that know their cluster. Nodes that have them need no copy of another's data to join. */
async function foundCluster(folder: string, args: readonly string[], host?: Host): Promise<PreparedServer> {
  await mkdir(folder);
  const original = await prepareMysqld(folder, await freePort(), serverProgram("database"));
  const options = { name: "the first node", cwd: folder, env: process.env };
  const first = serverProcess(runOn(host, { ...original, args: [...original.args, ...args] }), options);
  await first.start("--wsrep-new-cluster");
  await first.stop();
  return original;
}

/** Reads from the data of a node that was killed how far it had come, which its own record no longer says. */
async function positionOf({ name, program, args }: ClusterServer): Promise<string> {
  const reader = startChild(program, [...args, "--wsrep-recover"], { name, cwd: "/", env: process.env });
  const position = await reader.waitForLine((line) => /Recovered position: *(\S+)/.exec(line)?.[1], patientMs);
  await reader.exited;
  return position;
}

/**
 * What a joining node and its donor run. Debian's package with the usual scripts would start a server of its own. This
 * one copies no data: it passes on from which transaction the donor's history continues the joining node's data, and
 * refuses where the history does not reach back so far. Galera itself sends the history.
 */
const transferScript = `#!/bin/sh
while [ $# -gt 0 ]; do
  case $1 in
    --role) role=$2 ;;
    --address) address=$2 ;;
    --parent) parent=$2 ;;
    --gtid) position=$2 ;;
    --bypass) is_history=yes ;;
  esac
  shift
done
note=$(dirname "$0")/\${address##*/}
if [ "$role" = donor ]; then
  [ "$is_history" = yes ] || exit 1
  echo continue
  echo "$position" > "$note.new" && mv "$note.new" "$note"
  echo "done $position"
else
  note=$(dirname "$0")/joins-$$
  echo "ready $address/joins-$$"
  until [ -e "$note" ]; do
    kill -0 "$parent" || exit 1
    sleep 0.1
  done
  cat "$note"
fi
`;
