/** Gets programs of Debian sid beside whatever this system has installed. */
import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdir, mkdtemp, readdir, rename, rm, writeFile } from "node:fs/promises";
import { homedir } from "node:os";
import { basename, join } from "node:path";
import { promisify } from "node:util";

const run = promisify(execFile);
const keyring = "/usr/share/keyrings/debian-archive-keyring.gpg";

/** Makes the folder of what the tests keep from one run to the next. */
export async function testCache(): Promise<string> {
  const cache = join(process.env.XDG_CACHE_HOME || join(homedir(), ".cache"), "petstore-tests");
  await mkdir(cache, { recursive: true, mode: 0o700 });
  return cache;
}

/**
 * Unpacks a package with all that it depends on. Later runs on the machine use the same folder.
 *
 * @param complete changes the folder before it counts
 * @returns the folder, which is the root directory of the packages
 * @throws Error on systems other than Debian on x64, and without a package archive in reach
 */
export async function unpackFromSid(
  packageName: string,
  complete: (folder: string) => Promise<void> = async () => {},
): Promise<string> {
  const cache = await testCache();
  const known = (await readdir(cache)).find((name) => name.startsWith(`${packageName}-`));
  return join(cache, known ?? (await unpack(cache, packageName, complete)));
}

/**
 * Writes a script into the folder of unpacked packages that runs one of their programs with their own loader, because
 * older systems do not have the libraries that it needs. The script has the program's name.
 *
 * @param program its path in the packages
 * @param more folders of further libraries, and arguments; `$tree` in them is the folder
 */
export async function writeLauncher(
  folder: string,
  program: string,
  more: { readonly libraries?: string; readonly arguments?: string } = {},
): Promise<void> {
  const libraries = ["$lib", more.libraries].filter(Boolean).join(":");
  const script = `#!/bin/sh
tree=$(dirname "$(readlink -f "$0")")
lib=$tree/usr/lib/x86_64-linux-gnu
exec "$lib/ld-linux-x86-64.so.2" --library-path "${libraries}" "$tree/${program}" "$@" ${more.arguments ?? ""}
`;
  await writeFile(join(folder, basename(program)), script, { mode: 0o755 });
}

/** @returns the name of the new folder, which ends with the version */
async function unpack(cache: string, packageName: string, complete: (folder: string) => Promise<void>) {
  if (process.arch !== "x64" || !existsSync(keyring)) {
    throw new Error(`${packageName} of Debian sid needs Debian on x64, with ${keyring}`);
  }
  console.warn(`The tests need ${packageName} of Debian sid: unpacking it in ${cache}, which takes half a minute.`);
  const folder = await mkdtemp(join(cache, "unpacking-"));
  try {
    const packages = await download(join(folder, "apt"), packageName);
    for (const file of packages) await run("dpkg-deb", ["--extract", file, folder]);
    const wanted = packages.find((file) => file.includes(`/${packageName}_`))!;
    const version = (await run("dpkg-deb", ["--field", wanted, "Version"])).stdout.trim();
    await rm(join(folder, "apt"), { recursive: true });
    await complete(folder);
    const name = `${packageName}-${version}`;
    // Only now it counts as complete, whatever ends this process earlier. Another run may have been faster.
    await rename(folder, join(cache, name)).catch((error) => {
      if (!existsSync(join(cache, name))) throw error;
    });
    return name;
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/** Downloads the packages with an apt configuration of its own, as this system's must not know sid. */
async function download(folder: string, packageName: string): Promise<string[]> {
  const archives = join(folder, "var/cache/apt/archives");
  const empty = ["etc/apt/apt.conf.d", "etc/apt/preferences.d", "var/lib/apt/lists/partial", "var/lib/dpkg"];
  for (const path of [...empty, "var/cache/apt/archives/partial"]) await mkdir(join(folder, path), { recursive: true });
  await writeFile(join(folder, "var/lib/dpkg/status"), "");
  const source = `deb [signed-by=${keyring}] ${await debianMirror()} sid main\n`;
  await writeFile(join(folder, "etc/apt/sources.list"), source);
  const settings = [
    `Dir=${folder}`,
    `Dir::State::status=${join(folder, "var/lib/dpkg/status")}`,
    "APT::Sandbox::User=root", // apt's own user cannot enter this folder
    "APT::Install-Recommends=false",
  ].flatMap((setting) => ["-o", setting]);
  const options = { maxBuffer: 64 * 1024 * 1024 };
  await run("apt-get", [...settings, "update"], options);
  await run("apt-get", [...settings, "install", "--yes", "--download-only", packageName], options);
  return (await readdir(archives)).filter((name) => name.endsWith(".deb")).map((name) => join(archives, name));
}

/** Returns the address of Debian's archive that this system's apt is configured with. */
export async function debianMirror(): Promise<string> {
  // Without release information it also answers where no package lists have been downloaded yet.
  const query = ["indextargets", "--no-release-info", "--format", "$(REPO_URI)", "Created-By: Packages"];
  const { stdout } = await run("apt-get", query);
  const found = stdout.split("\n").find((address) => /\/debian\/?$/.test(address));
  if (found === undefined) throw new Error("apt-get of this machine knows no mirror of Debian");
  return found;
}
