import { execFile } from "node:child_process";
import { randomBytes } from "node:crypto";
import { mkdir, writeFile } from "node:fs/promises";
import { userInfo } from "node:os";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import { findProgram, serverProgram } from "./server-programs.ts";

const run = promisify(execFile);

/** A data folder and how to start a server on it. */
export interface PreparedServer {
  readonly program: string;
  readonly args: readonly string[];
  /** `mysql://…/` of an account that may do everything. */
  readonly url: string;
}

/** Makes the data folder of a private MySQL or MariaDB server, whichever this machine has, below an empty folder. */
export async function prepareMysqld(folder: string, port: number): Promise<PreparedServer> {
  const program = await serverProgram("database");
  const data = join(folder, "data");
  // Not /tmp: a MariaDB that starts there removes the temporary tables of every other server that uses it.
  const temporary = join(folder, "tmp");
  await mkdir(temporary);
  const basics = ["--no-defaults", `--user=${userInfo().username}`, `--datadir=${data}`, `--tmpdir=${temporary}`];
  const accounts = join(folder, "accounts.sql");
  const password = randomBytes(12).toString("hex");
  await writeFile(accounts, accountStatements("tests", password), { mode: 0o600 });

  // Debian's `mysqld` is a link to mariadbd.
  const { stdout: version } = await run(program, ["--no-defaults", "--version"]);
  const isMariadb = version.includes("MariaDB");
  if (isMariadb) await run(installer(program), [...basics, "--skip-test-db"], { cwd: folder });
  else await run(program, [...basics, `--secure-file-priv=${folder}`, "--initialize-insecure"], { cwd: folder });

  const args = [
    ...basics,
    `--socket=${join(folder, "mysqld.sock")}`,
    `--pid-file=${join(folder, "mysqld.pid")}`,
    "--bind-address=127.0.0.1",
    `--port=${port}`,
    "--skip-name-resolve",
    `--init-file=${accounts}`,
    // An acknowledged commit is on disk, as the system asks of a real server. MySQL has its binary log on by default.
    "--innodb-flush-log-at-trx-commit=1",
    "--sync-binlog=1",
    // All suites share a server, and each of their processes has a pool.
    "--max-connections=500",
    // MySQL's packages preset a folder that may not exist, and a second port that may be taken.
    ...(isMariadb ? [] : [`--secure-file-priv=${folder}`, "--mysqlx=OFF"]),
  ];
  return { program, args, url: `mysql://tests:${password}@127.0.0.1:${port}/` };
}

/** An account that TCP can use: with --skip-name-resolve, MySQL's root@localhost is for the socket only. */
function accountStatements(user: string, password: string): string {
  const account = `'${user}'@'127.0.0.1'`;
  return [
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
