import { resolve } from "node:path";
import { buildOptions, makeBaseImages } from "./base-images.ts";
import type { Engine } from "./container-engine.ts";

export const projectRoot = resolve(import.meta.dirname, "../..");
export const targets = ["gateway", "inventory-svc", "migrate"] as const;
export type Target = (typeof targets)[number];

/** The name by which compose.yaml knows an image of a project. */
export const imageName = (target: Target, project = "petstore") => `docker.io/library/${project}-${target}:local`;

/** What the images are labelled with. Podman's cache keeps the first values, so they are the same in each build. */
export const buildArguments = { VERSION: "1.0.0-test", REVISION: "0123abc", CREATED: "2026-01-01T00:00:00Z" };

/** Builds the product's images from the Dockerfile. */
export async function buildImages(engine: Engine): Promise<void> {
  await makeBaseImages(engine, ["node"]);
  for (const target of targets) await buildImage(engine, target, imageName(target));
}

/** Builds one of them, in the format of Docker, which has health checks. */
export async function buildImage(engine: Engine, target: Target, name: string, options: readonly string[] = []) {
  await engine.docker([
    "build",
    ...(engine.isDocker ? [] : ["--format=docker"]),
    ...buildOptions(engine),
    ...Object.entries(buildArguments).map(([argument, value]) => `--build-arg=${argument}=${value}`),
    ...options,
    `--target=${target}`,
    `--tag=${name}`,
    projectRoot,
  ]);
}
