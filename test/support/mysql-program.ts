import { chmod, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { unpackFromSid } from "./debian-sid.ts";

/**
 * Returns the path of a `mysqld` of MySQL, which has Group Replication. Packages of sid need libraries that older
 * systems do not have, so the server runs with its own loader.
 *
 * @throws Error on systems other than Debian on x64, and without a package archive in reach
 */
export async function mysqlProgram(): Promise<string> {
  const folder = await unpackFromSid("mysql-server-core", async (unpacked) => {
    await writeFile(join(unpacked, "mysqld"), launcher);
    await chmod(join(unpacked, "mysqld"), 0o755);
  });
  return join(folder, "mysqld");
}

const launcher = `#!/bin/sh
tree=$(dirname "$(readlink -f "$0")")
lib=$tree/usr/lib/x86_64-linux-gnu
exec "$lib/ld-linux-x86-64.so.2" --library-path "$lib:$tree/usr/lib/mysql/private" "$tree/usr/sbin/mysqld" "$@" \\
  --basedir="$tree/usr" --plugin-dir="$tree/usr/lib/mysql/plugin" --lc-messages-dir="$tree/usr/share/mysql" \\
  --character-sets-dir="$tree/usr/share/mysql/charsets"
`;
