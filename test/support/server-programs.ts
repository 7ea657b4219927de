import { execFile } from "node:child_process";
import { accessSync, constants, rmSync, writeFileSync } from "node:fs";
import { delimiter, resolve } from "node:path";
import { promisify } from "node:util";
import { atExit } from "./stack.ts";

const run = promisify(execFile);

const servers = {
  database: {
    programs: ["mariadbd", "mysqld"],
    packages: ["mariadb-server-core", "mariadb-client-core"],
    choices: ["TEST_MYSQL_URL=mysql://user:password@host:port of an account that may create and drop databases"],
  },
  /** Makes a cluster of MariaDB servers, which load it. */
  galera: {
    programs: ["/usr/lib/galera/libgalera_smm.so"],
    packages: ["galera-4", "mariadb-server-core", "mariadb-client-core"],
    choices: [],
  },
  /** Keeps the objects of a Kubernetes cluster. */
  etcd: { programs: ["etcd"], packages: ["etcd-server"], choices: [] },
  redis: { programs: ["redis-server", "valkey-server"], packages: ["redis-server"], choices: [] },
  /** Makes certificates. */
  openssl: { programs: ["openssl"], packages: ["openssl"], choices: [] },
  /** A load balancer. */
  balancer: { programs: ["haproxy"], packages: ["haproxy"], choices: [] },
  /** A proxy with TLS. */
  nginx: { programs: ["nginx"], packages: ["nginx"], choices: [] },
  /** Back up databases, as the documents say. */
  sqlite: { programs: ["sqlite3"], packages: ["sqlite3"], choices: [] },
  dump: { programs: ["mysqldump"], packages: ["mariadb-client"], choices: [] },
  /** Comes with promtool. */
  prometheus: { programs: ["prometheus"], packages: ["prometheus"], choices: [] },
  /** Run the commands of the documents, as readers paste them. */
  shells: { programs: ["zsh"], packages: ["zsh", "dash"], choices: [] },
  /** Checks the units. */
  systemd: { programs: ["systemd-analyze"], packages: ["systemd"], choices: [] },
  /** Builds images and runs containers where no Docker engine does. */
  podman: { programs: ["podman"], packages: ["podman", "runc"], choices: ["a Docker engine"] },
  /** Lets the containers of Podman reach each other and be reached. */
  nftables: { programs: ["nft"], packages: ["nftables"], choices: ["a Docker engine"] },
  /** The first process of Podman's pods. */
  catatonit: { programs: ["catatonit"], packages: ["catatonit"], choices: ["a Docker engine"] },
  /** Makes the base of images. */
  debootstrap: { programs: ["debootstrap"], packages: ["debootstrap"], choices: ["a Docker engine"] },
  /** Sends HTTP requests as fast as they are answered; for the benchmarks. */
  wrk: { programs: ["wrk"], packages: ["wrk"], choices: [] },
} as const;

export type ServerKind = keyof typeof servers;

/** Returns the path of a server's program. Where it is missing and this is root on Debian, it is installed first. */
export async function serverProgram(kind: ServerKind): Promise<string> {
  await installMissing([kind]);
  return findProgram(servers[kind].programs) as string;
}

/**
 * Installs those of these servers that this machine does not have.
 * @throws Error that names the choices, when one is missing and cannot be installed
 */
export async function installMissing(kinds: readonly ServerKind[]): Promise<void> {
  const missing = kinds.filter((kind) => findProgram(servers[kind].programs) === undefined);
  if (missing.length === 0) return;
  const aptGet = findProgram(["apt-get"]);
  if (process.getuid?.() !== 0 || aptGet === undefined) throw new Error(missing.map(explain).join("\n"));
  const packages = missing.flatMap((kind) => servers[kind].packages);
  console.warn(`The tests need ${packages.join(", ")}: installing from Debian's archive, which takes a minute.`);
  try {
    await install(aptGet, packages);
  } catch (error) {
    throw new Error(missing.map(explain).join("\n"), { cause: error });
  }
  const still = missing.filter((kind) => findProgram(servers[kind].programs) === undefined);
  if (still.length > 0) throw new Error(still.map(explain).join("\n"));
}

/** Finds the first of these programs in `more`, PATH or the sbin folders, which few users have in PATH. */
export function findProgram(names: readonly string[], more: readonly string[] = []): string | undefined {
  const path = (process.env.PATH ?? "").split(delimiter).filter(Boolean);
  const folders = [...more, ...path, "/usr/local/sbin", "/usr/sbin"];
  return names.flatMap((name) => folders.map((folder) => resolve(folder, name))).find(isUsable);
}

function isUsable(path: string): boolean {
  try {
    accessSync(path, path.endsWith(".so") ? constants.R_OK : constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

async function install(aptGet: string, packages: readonly string[]): Promise<void> {
  const allowServices = forbidServices();
  const options = { env: { ...process.env, DEBIAN_FRONTEND: "noninteractive" }, maxBuffer: 64 * 1024 * 1024 };
  const lockWait = ["-o", "DPkg::Lock::Timeout=300"];
  try {
    // A failed update is ignored: the lists on this machine may suffice, and otherwise the installation fails.
    await run(aptGet, [...lockWait, "update"], options).catch(() => {});
    // --no-remove: a test run must not replace other packages.
    await run(aptGet, [...lockWait, "install", "-y", "--no-install-recommends", "--no-remove", ...packages], options);
  } finally {
    allowServices();
  }
}

/** Keeps packages from starting their services; see invoke-rc.d(8). A policy that is already there stays as it is. */
function forbidServices(): () => void {
  const policy = "/usr/sbin/policy-rc.d";
  try {
    writeFileSync(policy, "#!/bin/sh\nexit 101\n", { flag: "wx", mode: 0o755 });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "EEXIST") return () => {};
    throw error;
  }
  const remove = () => rmSync(policy, { force: true });
  const forget = atExit(remove);
  return () => {
    remove();
    forget();
  };
}

function explain(kind: ServerKind): string {
  const { programs, packages, choices } = servers[kind];
  const all = [
    ...choices,
    `${programs.join(" or ")} in PATH (Debian: apt-get install ${packages.join(" ")})`,
    "a run as root on Debian or Ubuntu with a package archive in reach, which installs it",
  ];
  return `The tests need a ${kind} server. Any one of these will do:\n${all.map((choice) => `  - ${choice}`).join("\n")}`;
}
