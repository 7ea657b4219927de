/** Builds images and runs containers: with a Docker engine where one answers, else with Podman. */
import { execFile } from "node:child_process";
import { mkdir, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { join } from "node:path";
import { promisify } from "node:util";
import { startChild } from "../support/children.ts";
import { testCache, unpackFromSid } from "../support/debian-sid.ts";
import { findProgram, installMissing } from "../support/server-programs.ts";
import { temporaryFolder } from "../support/stack.ts";
import { until } from "../support/until.ts";
import { correctNetworkIds } from "./network-ids.ts";
import { networkPrograms } from "./network-programs.ts";
import { askPodman, followHealth } from "./podman-api.ts";

const run = promisify(execFile);

interface Finished {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

interface RunOptions {
  readonly cwd?: string;
  readonly env?: Readonly<Record<string, string>>;
  /** Kills the command after this time. */
  readonly timeoutMs?: number;
}

export interface Engine {
  /** Whether images come from a registry. Podman gets all of them from `base-images.ts`. */
  readonly isDocker: boolean;
  /** Runs `docker`. @returns what it printed to standard output @throws Error with all its output when it fails */
  docker(args: readonly string[], options?: RunOptions): Promise<string>;
  /** Runs `docker`, and takes any exit code. */
  tryDocker(args: readonly string[], options?: RunOptions): Promise<Finished>;
  /** The environment in which a shell's `docker` and `docker compose` reach this engine. */
  readonly env: Readonly<Record<string, string>>;
}

/**
 * Opens the engine of this machine. With Podman, containers, networks and images are in a store that only the tests
 * use; images stay there for the next run, and all else ends with the stack.
 *
 * @throws Error that names what is missing
 */
export async function openEngine(stack: AsyncDisposableStack): Promise<Engine> {
  const docker = findProgram(["docker"]);
  const answers = async (...args: string[]) =>
    docker !== undefined &&
    (await run(docker, args, { timeout: 10_000 }).then(
      () => true,
      () => false,
    ));
  if ((await answers("info")) && (await answers("compose", "version"))) {
    return { isDocker: true, env: processEnv(), ...commands("docker", [], processEnv()) };
  }
  return await openPodman(stack);
}

async function openPodman(stack: AsyncDisposableStack): Promise<Engine> {
  if (process.getuid?.() !== 0) {
    throw new Error("The tests of containers need a Docker engine with Compose, or root on Debian, where Podman does");
  }
  await installMissing(["podman", "nftables", "catatonit", "debootstrap"]);
  await takeTurn(stack);
  const store = join(await testCache(), "containers");
  await mkdir(store, { recursive: true, mode: 0o700 });
  const folder = await temporaryFolder("podman");
  stack.defer(() => folder.remove());
  const config = join(folder.path, "containers.conf");
  await writeFile(config, await podmanConfig(join(store, "networks"), await networkPrograms()));
  const env = { ...processEnv(), CONTAINERS_CONF: config };
  const args = ["--root", store, "--runroot", runFolder];
  const engine = commands(findProgram(["podman"])!, args, env);

  // A run that was killed has left this behind. Images stay.
  const clear = async () => {
    await engine.docker(["pod", "rm", "--all", "--force"]);
    await engine.docker(["rm", "--all", "--force", "--volumes", "--time", "0"]);
    await engine.docker(["network", "prune", "--force"]);
    await engine.docker(["volume", "prune", "--force"]);
  };
  await clear();
  stack.defer(clear);

  const socket = join(folder.path, "podman.sock");
  const service = ["system", "service", "--time", "0", `unix://${socket}`];
  const api = startChild(findProgram(["podman"])!, [...args, ...service], { name: "Podman", cwd: folder.path, env });
  stack.defer(async () => void (await api.stop(10_000)));
  const answers = () =>
    askPodman(socket, "_ping").then(
      () => true,
      () => false,
    );
  await until(answers);
  followHealth(stack, socket);
  const corrected = join(folder.path, "corrected.sock");
  await correctNetworkIds(stack, socket, corrected);

  // Commands of the documents find a `docker` here that reaches Podman.
  const compose = join(await unpackFromSid("docker-compose"), "usr/libexec/docker/cli-plugins/docker-compose");
  const shim = join(folder.path, "docker");
  await writeFile(shim, dockerShim(compose, [findProgram(["podman"])!, ...args].join(" ")), { mode: 0o755 });
  return {
    isDocker: false,
    ...engine,
    env: { ...env, DOCKER_HOST: `unix://${corrected}`, PATH: `${folder.path}:${process.env.PATH}` },
  };
}

/** Podman keeps its locks here. It must be the same in every run on a store. */
const runFolder = "/run/petstore-tests";

/** Waits until no other run uses the store. The socket has no file, so it ends with this process. */
async function takeTurn(stack: AsyncDisposableStack): Promise<void> {
  const listens = () =>
    new Promise<boolean>((resolve) => {
      const server = createServer();
      server.once("error", () => resolve(false));
      server.listen("\0petstore-tests-containers", () => {
        stack.defer(() => new Promise((closed) => server.close(() => closed())));
        resolve(true);
      });
    });
  await until(listens, { withinMs: 600_000, everyMs: 500 });
}

/** Settings that work without systemd, and with any limits of this process. */
async function podmanConfig(networks: string, programs: string): Promise<string> {
  const { stdout } = await run("sh", ["-c", "ulimit -Hn"]);
  const files = stdout.trim() === "unlimited" ? 1_048_576 : Number(stdout);
  return `
[containers]
default_ulimits = ["nofile=${files}:${files}", "nproc=4096:4096"]
log_driver = "k8s-file"
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
helper_binaries_dir = ["${programs}", "/usr/lib/podman"]
runtime = "runc"
tmp_dir = "${runFolder}/libpod"
[network]
network_backend = "netavark"
network_config_dir = "${networks}"
`;
}

/** Images are built before, because Compose would use a builder that Podman does not have. */
function dockerShim(compose: string, podman: string): string {
  return `#!/bin/bash
[ "$1" = compose ] || exec ${podman} "$@"
[ "$2" != build ] || exit 0
args=()
for arg in "\${@:2}"; do [ "$arg" = --build ] || args+=("$arg"); done
exec ${compose} "\${args[@]}"
`;
}

function commands(program: string, first: readonly string[], env: Readonly<Record<string, string>>) {
  const tryDocker = async (args: readonly string[], options: RunOptions = {}): Promise<Finished> => {
    const settings = {
      cwd: options.cwd,
      env: { ...env, ...options.env },
      timeout: options.timeoutMs ?? 900_000,
      maxBuffer: 64 * 1024 * 1024,
    };
    return await run(program, [...first, ...args], settings).then(
      ({ stdout, stderr }) => ({ code: 0, stdout, stderr }),
      ({ code, stdout, stderr, message }) => ({ code: code ?? -1, stdout, stderr: stderr || message }),
    );
  };
  const docker = async (args: readonly string[], options?: RunOptions) => {
    const { code, stdout, stderr } = await tryDocker(args, options);
    if (code !== 0) throw new Error(`docker ${args.join(" ")} ended with ${code}:\n${stdout}${stderr}`);
    return stdout;
  };
  return { tryDocker, docker };
}

function processEnv(): Record<string, string> {
  return Object.fromEntries(
    Object.entries(process.env).filter((pair): pair is [string, string] => pair[1] !== undefined),
  );
}
