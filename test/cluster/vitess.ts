/** Starts Vitess: VTGate and its tablets in one process, on a MySQL server. */
import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { type ServerProcess, serverProcess } from "../support/database-server.ts";
import { connectMysql, withDatabase } from "../support/mysql-client.ts";
import { mysqlProgram } from "../support/mysql-program.ts";
import { type PreparedServer, prepareMysqld } from "../support/mysqld.ts";
import { freePort } from "../support/ports.ts";
import { temporaryFolder } from "../support/stack.ts";
import { vitessPrograms } from "./vitess-programs.ts";

export interface Vitess {
  /** `mysql://…/` of VTGate. `CREATE DATABASE` makes a keyspace with one shard there. */
  readonly serverUrl: string;
  /** Returns the URL of the database that MySQL has for the only shard of a keyspace. */
  behind(keyspaceUrl: string): string;
  /** VTGate and all tablets. `start` begins with the keyspaces that MySQL has. */
  readonly gate: Pick<ServerProcess, "kill" | "start">;
  /** The server that all tablets use. */
  readonly mysql: Pick<ServerProcess, "kill" | "start">;
  /** How many reads have got the answer of an equal one since the start. */
  sharedAnswers(): Promise<number>;
}

/** Time after which a transaction of a process that is frozen is taken back. */
export const transactionTimeoutMs = 6_000;

/** VTGate asks the first keyspace by name for each lock, so that one must not come and go with the suites. */
const firstKeyspace = { locks: ["0"] };

/** @param shards of each keyspace that is there from the start */
export async function startVitess(
  stack: AsyncDisposableStack,
  shards: Readonly<Record<string, readonly string[]>> = {},
): Promise<Vitess> {
  const program = join(await vitessPrograms(), "vtcombo");
  const folder = await temporaryFolder("vitess");
  stack.defer(() => folder.remove());
  const place = join(folder.path, "mysql");
  await mkdir(place);
  const prepared = await prepareMysqld(place, await freePort(), mysqlProgram());
  const args = [...prepared.args, "--gtid-mode=ON", "--enforce-gtid-consistency=ON"];
  const mysql = serverProcess({ ...prepared, args }, { name: "MySQL", cwd: place, env: process.env });
  stack.defer(() => mysql.kill("SIGKILL"));
  await mysql.start();
  for (const [keyspace, names] of Object.entries({ ...firstKeyspace, ...shards })) {
    for (const shard of names) await query(prepared.url, `CREATE DATABASE \`vt_${keyspace}_${shard}\``);
  }

  const webPort = await freePort();
  const gateUrl = new URL(prepared.url);
  gateUrl.port = `${await freePort()}`;
  const flags = {
    ...accountFlags(prepared),
    "db-socket": join(place, "mysqld.sock"),
    "mysql-auth-server-impl": "none",
    "mysql-server-bind-address": gateUrl.hostname,
    "mysql-server-port": gateUrl.port,
    "bind-address": "127.0.0.1",
    port: `${webPort}`,
    "dbddl-plugin": "vttest", // makes a keyspace for each CREATE DATABASE
    "tablet-refresh-interval": "200ms", // which is found so soon
    "tablet-types-to-wait": "PRIMARY",
    "queryserver-config-transaction-timeout": `${transactionTimeoutMs}ms`,
    // As many as there are connections to VTGate.
    "queryserver-config-transaction-cap": "200",
    "queryserver-config-pool-size": "100",
  };
  const argsOfFlags = Object.entries(flags).map(([name, value]) => `--${name}=${value}`);
  const gate = serverProcess(
    { ...prepared, url: gateUrl.href, ...asAnotherUser(program, argsOfFlags) },
    { name: "Vitess", cwd: folder.path, env: { ...process.env, VTDATAROOT: folder.path } },
  );
  stack.defer(() => gate.kill("SIGKILL"));
  // Its topology is in its memory and ends with it.
  const start = async () => await gate.start(`--json-topo=${JSON.stringify(await topologyOf(prepared.url))}`);
  await start();
  return {
    serverUrl: gateUrl.href,
    behind: (keyspaceUrl) => withDatabase(prepared.url, `vt_${new URL(keyspaceUrl).pathname.slice(1)}_0`),
    gate: { kill: gate.kill, start },
    mysql,
    sharedAnswers: async () => {
      const answer = await fetch(`http://127.0.0.1:${webPort}/debug/vars`);
      const { Waits } = (await answer.json()) as { Waits: { Histograms: Record<string, { Count: number }> } };
      const shared = Object.entries(Waits.Histograms).filter(([name]) => name.endsWith(".Consolidations"));
      return shared.reduce((sum, [, { Count }]) => sum + Count, 0);
    },
  };
}

/** An account of the server for all that tablets do. */
function accountFlags({ url }: PreparedServer): Record<string, string> {
  const { username, password } = new URL(url);
  const uses = ["app", "appdebug", "allprivs", "dba", "filtered", "repl"];
  const flags = uses.map((use) => ({ [`db-${use}-user`]: username, [`db-${use}-password`]: password }));
  return Object.assign({}, ...flags);
}

/** A keyspace of primaries for the databases of a server, which are named `vt_keyspace_shard`. */
async function topologyOf(mysqlUrl: string): Promise<object> {
  const rows = await query(mysqlUrl, "SHOW DATABASES");
  const names = rows.flatMap((row) => [/^vt_(.+)_(.+)$/.exec(`${Object.values(row)}`) ?? []]);
  const found = names.flatMap(([, keyspace, shard]) => (keyspace && shard ? { keyspace, shard } : []));
  const keyspaces = [...Map.groupBy(found, ({ keyspace }) => keyspace)].map(([name, of]) => ({
    name,
    shards: of.map(({ shard }) => ({ name: shard })),
    replicaCount: 1, // the primary
    rdonlyCount: 1,
  }));
  return { cells: ["test"], keyspaces };
}

async function query(url: string, sql: string): Promise<object[]> {
  const connection = await connectMysql(url);
  try {
    return (await connection.query(sql))[0] as object[];
  } finally {
    await connection.end();
  }
}

/** Vitess refuses to run as root, which has another number in a namespace of users, and the files of root. */
function asAnotherUser(program: string, args: readonly string[]): Pick<PreparedServer, "program" | "args"> {
  if (process.getuid?.() !== 0) return { program, args };
  // A new namespace forgets that its process has to end with its parent.
  const prefix = ["--user", "--map-user=1000", "--", "setpriv", "--pdeathsig", "KILL", "--"];
  return { program: "unshare", args: [...prefix, program, ...args] };
}
