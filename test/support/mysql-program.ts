import { join } from "node:path";
import { unpackFromSid, writeLauncher } from "./debian-sid.ts";

/**
 * Returns the path of a `mysqld` of MySQL, which has Group Replication.
 *
 * @throws Error on systems other than Debian on x64, and without a package archive in reach
 */
export async function mysqlProgram(): Promise<string> {
  const folder = await unpackFromSid("mysql-server-core", (unpacked) =>
    writeLauncher(unpacked, "usr/sbin/mysqld", {
      libraries: "$tree/usr/lib/mysql/private",
      arguments: [
        '--basedir="$tree/usr" --plugin-dir="$tree/usr/lib/mysql/plugin"',
        '--lc-messages-dir="$tree/usr/share/mysql" --character-sets-dir="$tree/usr/share/mysql/charsets"',
      ].join(" "),
    }),
  );
  return join(folder, "mysqld");
}
