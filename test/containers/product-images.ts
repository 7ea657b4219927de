import { resolve } from "node:path";
import { buildOptions, makeBaseImages } from "./base-images.ts";
import type { Engine } from "./engine.ts";

export const projectRoot = resolve(import.meta.dirname, "../..");
export const targets = ["gateway", "inventory-svc", "migrate"] as const;
export type Target = (typeof targets)[number];

/** The name by which compose.yaml knows an image. */
export const imageName = (target: Target) => `docker.io/library/petstore-${target}:local`;

/** What the images are labelled with. Podman's cache keeps the first values, so they are the same in each build. */
export const buildArguments = { VERSION: "1.0.0-test", REVISION: "0123abc", CREATED: "2026-01-01T00:00:00Z" };

/** Builds the product's images from the Dockerfile, in the format of Docker, which has health checks. */
export async function buildImages(engine: Engine): Promise<void> {
  await makeBaseImages(engine, ["node"]);
  const format = engine.isDocker ? [] : ["--format=docker"];
  for (const target of targets) {
    await engine.docker([
      "build",
      ...format,
      ...buildOptions(engine),
      ...Object.entries(buildArguments).map(([name, value]) => `--build-arg=${name}=${value}`),
      `--target=${target}`,
      `--tag=${imageName(target)}`,
      projectRoot,
    ]);
  }
}
