import { execFile } from "node:child_process";
import { randomBytes } from "node:crypto";
import { cp, mkdir, rm, writeFile } from "node:fs/promises";
import { userInfo } from "node:os";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import { mysqlProgram } from "./mysql-program.ts";
import { findProgram, serverProgram } from "./server-programs.ts";

const run = promisify(execFile);

/** A data folder and how to start a server on it. */
export interface PreparedServer {
  readonly program: string;
  readonly args: readonly string[];
  /** `mysql://…/` of an account that may do everything. */
  readonly url: string;
  /** Prepares one more server, on a copy of the data. Call it while no server runs on them. */
  copyTo(folder: string, port: number): Promise<PreparedServer>;
}

/** Whether the tests run on MySQL of Debian sid, and not on the server that this machine has. */
export const isOnMysql = process.env.TEST_DATABASE === "mysql";

/**
 * Makes the data folder of a private MySQL or MariaDB server below an empty folder.
 *
 * @param program of the server
 */
export async function prepareMysqld(
  folder: string,
  port: number,
  program: string | Promise<string> = isOnMysql ? mysqlProgram() : serverProgram("database"),
): Promise<PreparedServer> {
  const server = await program;
  // Debian's `mysqld` is a link to mariadbd.
  const isMariadb = (await run(server, ["--no-defaults", "--version"])).stdout.includes("MariaDB");
  const password = randomBytes(12).toString("hex");
  const accounts = join(folder, "accounts.sql");
  await writeFile(accounts, accountStatements("tests", password), { mode: 0o600 });
  const basics = basicArgs(folder, isMariadb);
  await mkdir(temporaryFolderOf(folder));
  if (isMariadb) {
    await run(installer(server), [...basics, "--skip-test-db", `--extra-file=${accounts}`], { cwd: folder });
  } else await run(server, [...basics, `--init-file=${accounts}`, "--initialize-insecure"], { cwd: folder });

  const at = (place: string, placePort: number): PreparedServer => ({
    program: server,
    args: [...basicArgs(place, isMariadb), ...servingArgs(place, placePort, isMariadb)],
    url: `mysql://tests:${password}@127.0.0.1:${placePort}/`,
    copyTo: async (copy, copyPort) => {
      await cp(dataOf(place), dataOf(copy), { recursive: true });
      await rm(join(dataOf(copy), "auto.cnf"), { force: true }); // the server's identity: each server writes a new one
      await mkdir(temporaryFolderOf(copy));
      return at(copy, copyPort);
    },
  });
  return at(folder, port);
}

const dataOf = (folder: string) => join(folder, "data");
// Not /tmp: a MariaDB that starts there removes the temporary tables of every other server that uses it.
const temporaryFolderOf = (folder: string) => join(folder, "tmp");

function basicArgs(folder: string, isMariadb: boolean): string[] {
  return [
    "--no-defaults",
    `--user=${userInfo().username}`,
    `--datadir=${dataOf(folder)}`,
    `--tmpdir=${temporaryFolderOf(folder)}`,
    // MySQL's packages preset a folder that may not exist.
    ...(isMariadb ? [] : [`--secure-file-priv=${folder}`]),
  ];
}

function servingArgs(folder: string, port: number, isMariadb: boolean): string[] {
  return [
    `--socket=${join(folder, "mysqld.sock")}`,
    `--pid-file=${join(folder, "mysqld.pid")}`,
    "--bind-address=127.0.0.1",
    `--port=${port}`,
    "--skip-name-resolve",
    // A commit is on disk before it is acknowledged or readers see it, as the system asks of a real server.
    "--innodb-flush-log-at-trx-commit=1",
    "--log-bin=binlog",
    "--sync-binlog=1",
    // All suites share a server, and each of their processes has a pool.
    "--max-connections=500",
    // MySQL has a second port by default, which may be taken.
    ...(isMariadb ? [] : ["--mysqlx=OFF"]),
  ];
}

/**
 * An account that TCP can use: with --skip-name-resolve, MySQL's root@localhost is for the socket only. The server
 * listens where only this machine reaches it.
 */
function accountStatements(user: string, password: string): string {
  const account = `'${user}'@'%'`;
  return [
    "FLUSH PRIVILEGES;", // while a data folder is made, only this makes accounts known
    `CREATE USER IF NOT EXISTS ${account} IDENTIFIED BY '${password}';`,
    `GRANT ALL PRIVILEGES ON *.* TO ${account} WITH GRANT OPTION;`,
    "",
  ].join("\n");
}

function installer(program: string): string {
  const beside = [dirname(program), join(dirname(dirname(program)), "bin"), join(dirname(dirname(program)), "scripts")];
  const path = findProgram(["mariadb-install-db", "mysql_install_db"], beside);
  if (path === undefined) throw new Error(`${program} is here, but its mariadb-install-db is not`);
  return path;
}
