/** Makes the images that the Dockerfile and compose.yaml begin with, where there is no registry to pull them from. */
import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync } from "node:fs";
import { copyFile, mkdir, readdir, readFile, realpath, writeFile } from "node:fs/promises";
import { homedir } from "node:os";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import { debianMirror, testCache } from "../support/debian-sid.ts";
import { npm } from "../support/npm.ts";
import { findProgram } from "../support/server-programs.ts";
import { temporaryFolder } from "../support/stack.ts";
import type { Engine } from "./container-engine.ts";

const run = promisify(execFile);
const recipes = join(import.meta.dirname, "images");
const base = "localhost/debootstrap:bookworm";

/** The names that the Dockerfile and compose.yaml know them by. */
export const baseImages = {
  node: `docker.io/library/node:${process.versions.node}-bookworm-slim`,
  haproxy: "docker.io/library/haproxy:3.2",
  mysql: "docker.io/library/mysql:8.4",
  valkey: "docker.io/valkey/valkey:8.1",
  prometheus: "docker.io/prom/prometheus:v3.5.0",
  grafana: "docker.io/grafana/grafana:12.1.1",
} as const;

/** Makes stand-ins for base images. A Docker engine pulls the real ones instead. The first run takes minutes. */
export async function makeBaseImages(engine: Engine, names: readonly (keyof typeof baseImages)[]): Promise<void> {
  if (engine.isDocker) return;
  await using stack = new AsyncDisposableStack();
  const folder = await temporaryFolder("base");
  stack.defer(() => folder.remove());
  for (const name of names) {
    const recipe = join(recipes, name === "node" ? "node" : "servers");
    const made = `localhost/petstore-tests-${name}:${await hashOf(recipe)}`;
    if ((await engine.tryDocker(["image", "exists", made])).code === 0) continue;
    if ((await engine.tryDocker(["image", "exists", base])).code !== 0) await bootstrap(engine, folder.path);
    await engine.docker([
      "build",
      "--network=host",
      ...(name === "node" ? await nodeOptions(folder.path) : await serverOptions(name)),
      `--tag=${baseImages[name]}`,
      `--tag=${made}`,
      recipe,
    ]);
  }
}

async function nodeOptions(folder: string): Promise<string[]> {
  const contexts = {
    npm: await npmFolder(),
    "node-binary": dirname(await realpath(process.execPath)),
    settings: await registrySettings(folder),
  };
  return Object.entries(contexts).map(([context, path]) => `--build-context=${context}=${path}`);
}

async function serverOptions(target: string): Promise<string[]> {
  const values = [`MIRROR=${await debianMirror()}`, `NODE_IMAGE=${baseImages.node}`];
  return [...values.map((value) => `--build-arg=${value}`), `--target=${target}`];
}

/** Changes when an image has to be made again. */
async function hashOf(recipe: string): Promise<string> {
  const hash = createHash("sha256").update(process.version);
  for (const name of (await readdir(recipe)).sort()) hash.update(await readFile(join(recipe, name)));
  return hash.digest("hex").slice(0, 12);
}

/** What lets a build reach the registry of npm as this machine does: `~/.npmrc`. */
export function buildOptions(engine: Engine): string[] {
  if (engine.isDocker) return [];
  const npmrc = join(homedir(), ".npmrc");
  return ["--network=host", ...(existsSync(npmrc) ? [`--volume=${npmrc}:/root/.npmrc:ro`] : [])];
}

async function bootstrap(engine: Engine, folder: string): Promise<void> {
  console.warn("The tests need a base image of Debian: making it with debootstrap, which takes minutes.");
  const root = join(folder, "bookworm");
  const options = { maxBuffer: 64 * 1024 * 1024 };
  const mirror = await debianMirror();
  await run(findProgram(["debootstrap"])!, ["--variant=minbase", "bookworm", root, mirror], options);
  const archive = join(folder, "bookworm.tar");
  await run("tar", ["--numeric-owner", "-C", root, "-cf", archive, "."], options);
  await engine.docker(["import", archive, base]);
}

/** npm as it lies in /usr/local, from the registry. */
async function npmFolder(): Promise<string> {
  const folder = join(await testCache(), "npm-11");
  await mkdir(folder, { recursive: true });
  if (!existsSync(join(folder, "bin/npm"))) await npm(folder, "install", "--global", "npm@11");
  return folder;
}

/** The authorities that this machine trusts, which npm's build in the image needs behind some proxies. */
async function registrySettings(folder: string): Promise<string> {
  const settings = join(folder, "settings");
  await mkdir(settings, { recursive: true });
  const authorities = process.env.NODE_EXTRA_CA_CERTS;
  await writeFile(join(settings, "npmrc"), authorities ? "cafile=/usr/local/etc/authorities.pem\n" : "");
  if (authorities) await copyFile(authorities, join(settings, "authorities.pem"));
  else await writeFile(join(settings, "authorities.pem"), "");
  return settings;
}
