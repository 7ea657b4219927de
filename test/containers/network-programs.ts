import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { unpackFromSid } from "../support/debian-sid.ts";

/**
 * Returns the folder of the programs that connect containers for Podman, and that answer for their names. Those of
 * Debian 12 give a name no answer for seconds when containers come and go. They run with the loader of their packages,
 * because older systems do not have the libraries that they need.
 *
 * @throws Error on systems other than Debian on x64, and without a package archive in reach
 */
export async function networkPrograms(): Promise<string> {
  const folder = await unpackFromSid("aardvark-dns", async (unpacked) => {
    await mkdir(join(unpacked, "programs"));
    for (const name of ["netavark", "aardvark-dns"]) {
      await writeFile(join(unpacked, "programs", name), launcher(name), { mode: 0o755 });
    }
  });
  return join(folder, "programs");
}

function launcher(name: string): string {
  return `#!/bin/sh
tree=$(dirname "$(dirname "$(readlink -f "$0")")")
lib=$tree/usr/lib/x86_64-linux-gnu
exec "$lib/ld-linux-x86-64.so.2" --library-path "$lib" "$tree/usr/lib/podman/${name}" "$@"
`;
}
