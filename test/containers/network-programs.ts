import { unpackFromSid, writeLauncher } from "../support/debian-sid.ts";

/**
 * Returns the folder of the programs that connect containers for Podman, and that answer for their names. Those of
 * Debian 12 give a name no answer for seconds when containers come and go.
 *
 * @throws Error on systems other than Debian on x64, and without a package archive in reach
 */
export async function networkPrograms(): Promise<string> {
  return await unpackFromSid("aardvark-dns", async (unpacked) => {
    for (const name of ["netavark", "aardvark-dns"]) await writeLauncher(unpacked, `usr/lib/podman/${name}`);
  });
}
