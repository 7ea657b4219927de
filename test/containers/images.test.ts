import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { createMysqlDatabase, dropDatabase } from "../support/databases.ts";
import { request } from "../support/http.ts";
import { freePort } from "../support/ports.ts";
import { startRedisServer } from "../support/redis-server.ts";
import { suiteStack } from "../support/stack.ts";
import { until } from "../support/until.ts";
import { baseImages } from "./base-images.ts";
import { type Engine, openEngine } from "./container-engine.ts";
import {
  buildArguments,
  buildImage,
  buildImages,
  imageName,
  projectRoot,
  type Target,
  targets,
} from "./product-images.ts";

describe("the images", () => {
  const stack = suiteStack();
  let engine: Engine;
  let env: Record<string, string>;

  beforeAll(async () => {
    engine = await openEngine(stack);
    await buildImages(engine);
    const redis = await startRedisServer();
    stack.defer(() => redis.stop());
    env = {
      GATEWAY_DATABASE_URL: await createMysqlDatabase(),
      INVENTORY_DATABASE_URL: await createMysqlDatabase(),
      REDIS_URL: redis.url,
      KEY_PEPPER: "a-pepper-that-only-the-tests-know",
      INVENTORY_INSECURE: "1",
    };
    for (const url of [env.GATEWAY_DATABASE_URL!, env.INVENTORY_DATABASE_URL!]) stack.defer(() => dropDatabase(url));
    for (const name of ["GATEWAY_LISTEN", "GATEWAY_ADMIN_LISTEN", "INVENTORY_LISTEN", "INVENTORY_ADMIN_LISTEN"]) {
      env[name] = `127.0.0.1:${await freePort()}`;
    }
    env.INVENTORY_ADDRESS = env.INVENTORY_LISTEN!;
  }, 3_600_000);

  /** Podman would mount a writable /tmp otherwise. */
  const confined = () => [
    "--read-only",
    ...(engine.isDocker ? [] : ["--read-only-tmpfs=false"]),
    "--cap-drop=ALL",
    "--security-opt=no-new-privileges",
  ];
  /** The arguments that start a process of an image as the documents say, on the network of the test's servers. */
  const runArguments = (target: Target, command: readonly string[], settings = env) => [
    ...confined(),
    "--network=host",
    ...Object.entries(settings).map(([name, value]) => `--env=${name}=${value}`),
    ...(command.length > 0 ? [`--entrypoint=${command[0]}`] : []),
    imageName(target),
    ...command.slice(1),
  ];
  const finish = (target: Target, command: readonly string[] = [], settings = env) =>
    engine.tryDocker(["run", "--rm", ...runArguments(target, command, settings)]);
  const filesOf = async (image: string) => {
    const find = ["find", "/", "-xdev", "-not", "-path", "/proc/*", "-not", "-path", "/sys/*"];
    const run = ["run", "--rm", "--network=none", "--user=0", `--entrypoint=${find[0]}`, image, ...find.slice(1)];
    return (await engine.docker(run)).trim().split("\n");
  };

  test("the base image has the Node that runs the tests", async () => {
    const text = await readFile(join(projectRoot, "Dockerfile"), "utf8");
    expect(text).toContain(`\nARG NODE_IMAGE=node:${process.versions.node}-bookworm-slim\n`);
    expect(await finish("gateway", ["node", "--version"])).toMatchObject({ stdout: `${process.version}\n` });
  });

  test.each(targets)(
    "the image of %s adds only compiled files, packages, their list and the licence",
    async (target) => {
      const base = new Set(await filesOf(baseImages.node));
      const added = (await filesOf(imageName(target))).filter((path) => !base.has(path));
      const outside = added.filter((path) => !/^\/app(\/|$)/.test(path));
      expect(outside).toEqual([]);
      const top = added.flatMap((path) => /^\/app\/([^/]+)$/.exec(path)?.[1] ?? []);
      expect(top.sort()).toEqual(["LICENSE", "dist", "node_modules", "package.json", "sbom.json"]);
      const own = added.filter((path) => path.startsWith("/app/dist/"));
      expect(own.filter((path) => /\.test\.|(?<!\.d)\.ts$|stand-in|start\.js/.test(path))).toEqual([]);
    },
  );

  test("have the packages of the lock file that are for production, and no others", async () => {
    const { stdout } = await finish("gateway", ["cat", "/app/node_modules/.package-lock.json"]);
    const { packages } = JSON.parse(await readFile(join(projectRoot, "package-lock.json"), "utf8"));
    const forProduction = (all: Record<string, Package>) =>
      Object.entries(all)
        .filter(([path, { dev, optional, devOptional, link }]) => {
          return path.startsWith("node_modules/") && !dev && !optional && !devOptional && !link;
        })
        .map(([path, { version }]) => `${path} ${version}`)
        .sort();
    expect(forProduction(JSON.parse(stdout).packages)).toEqual(forProduction(packages));
    const names = await finish("gateway", ["ls", "/app/node_modules"]);
    expect(names.stdout).not.toMatch(/^(node-linux|node-24|typescript|jest)/m);
  });

  test("sbom.json lists the packages that are installed, each with a licence that allows this use", async () => {
    const sbom = JSON.parse((await finish("gateway", ["cat", "/app/sbom.json"])).stdout);
    expect(sbom).toMatchObject({
      bomFormat: "CycloneDX",
      metadata: { component: { purl: expect.stringMatching(/^pkg:npm\/petstore-inventory@/) } },
    });
    const { packages } = JSON.parse((await finish("gateway", ["cat", "/app/node_modules/.package-lock.json"])).stdout);
    const installed = Object.entries<Package>(packages).flatMap(([path, { version, link }]) =>
      path.startsWith("node_modules/") && !link ? `${path.replace(/^.*node_modules\//, "")}@${version}` : [],
    );
    const listed: Component[] = sbom.components;
    expect(listed.map(({ name, version }) => `${name}@${version}`).sort()).toEqual([...new Set(installed)].sort());
    const allowed = ["Apache-2.0", "BSD-3-Clause", "BlueOak-1.0.0", "ISC", "MIT"];
    const other = listed.filter(({ licenses }) => {
      const ids = licenses?.flatMap(({ license, expression = license!.id }) => expression.match(/[\w.-]{3,}/g)!) ?? [];
      return ids.length === 0 || ids.some((id) => id !== "AND" && !allowed.includes(id));
    });
    expect(other).toEqual([]);
  });

  test("have neither npm nor a compiler, and the product takes at most 120 MB in them", async () => {
    const tools = ["npm", "npx", "yarn", "corepack", "gcc", "cc", "make", "python3", "git", "curl", "tsc"];
    for (const target of targets) {
      const found = await finish(target, ["sh", "-c", `command -v ${tools.join(" ")}; true`]);
      expect({ target, found: found.stdout }).toEqual({ target, found: "" });
      const bytes = Number((await finish(target, ["du", "-sb", "/app"])).stdout.split("\t")[0]);
      expect(bytes).toBeLessThan(120_000_000);
      console.info(`${target}: ${Math.round(bytes / 1_000_000)} MB in /app`);
    }
  });

  // `npm run test:containers` runs it.
  (process.env.FAULTS === "long" ? test : test.skip)(
    "a second build from nothing makes the same files",
    async () => {
      const again = "localhost/petstore-again";
      stack.defer(async () => void (await engine.tryDocker(["rmi", "--force", again])));
      await buildImage(engine, "gateway", again, ["--no-cache"]);
      const sums = (image: string) => {
        const sum = ["-c", "cd /app && find . -type f -exec sha256sum {} + | sort -k 2"];
        return engine.docker(["run", "--rm", "--network=none", "--entrypoint=sh", image, ...sum]);
      };
      expect(await sums(again)).toBe(await sums(imageName("gateway")));
    },
    1_800_000,
  );

  test("root owns all that the images add, and nobody else may write it", async () => {
    const odd = ["find", "/app", "(", "-not", "-user", "0", "-o", "-perm", "/022", "-not", "-type", "l", ")"];
    for (const target of targets) expect(await finish(target, odd)).toMatchObject({ code: 0, stdout: "" });
  });

  test("carry their version, revision, date and licence as labels", async () => {
    for (const target of targets) {
      const [{ Config }] = JSON.parse(await engine.docker(["image", "inspect", imageName(target)]));
      expect(Config.Labels).toMatchObject({
        "org.opencontainers.image.title": `petstore ${target}`,
        "org.opencontainers.image.licenses": "Apache-2.0",
        "org.opencontainers.image.version": buildArguments.VERSION,
        "org.opencontainers.image.revision": buildArguments.REVISION,
        "org.opencontainers.image.created": buildArguments.CREATED,
      });
    }
  });

  test("containers without their settings end at once and name what is missing, both tiers with 78", async () => {
    const missing = { gateway: "KEY_PEPPER", "inventory-svc": "INVENTORY_INSECURE" };
    for (const [target, setting] of Object.entries(missing)) {
      const { code, stderr } = await finish(target as Target, [], {});
      expect({ target, code, stderr }).toEqual({ target, code: 78, stderr: expect.stringContaining(setting) });
    }
    // Its default is a file of SQLite, which it cannot write.
    expect(await finish("migrate", [], {})).toMatchObject({ code: 1, stderr: expect.stringContaining("DATABASE_URL") });
  }, 120_000);

  test("containers serve as user 1000 without rights, report their health, and stop within seconds", async () => {
    expect(await finish("migrate")).toMatchObject({ code: 0, stdout: expect.stringContaining("inventory: up 0001") });
    const stock = ["node", "/app/dist/inventory-svc/cli/stock.js", "import", "--generate", "2"];
    expect(await finish("inventory-svc", stock)).toMatchObject({ code: 0 });
    const issue = ["node", "/app/dist/gateway/accounts/cli/keys.js", "issue", "--account", "one", "--json"];
    const { key } = JSON.parse((await finish("gateway", issue)).stdout);

    const tiers = ["inventory-svc", "gateway"] as const;
    for (const tier of tiers) {
      await engine.docker(["run", "--detach", `--name=images-${tier}`, ...runArguments(tier, [])]);
      stack.defer(async () => void (await engine.tryDocker(["rm", "--force", `images-${tier}`])));
      await until(async () => (await inspect(`images-${tier}`)).State.Health.Status === "healthy", {
        withinMs: 60_000,
        everyMs: 250,
      });
    }
    const read = { path: "/v1/inventory", headers: { authorization: `Bearer ${key}` } };
    expect((await request(env.GATEWAY_LISTEN!, read)).json()).toMatchObject([{ petId: 1 }, { petId: 2 }]);
    expect(await request(env.GATEWAY_LISTEN!, { path: "/docs/page.css" })).toMatchObject({ status: 200 });

    for (const tier of tiers) {
      const { stdout } = await engine.tryDocker(["exec", `images-${tier}`, "node", "-e", examination]);
      expect(JSON.parse(stdout)).toEqual({
        writes: Object.fromEntries(
          ["/x", "/app/x", "/app/dist/x", "/tmp/x", "/home/node/x"].map((path) => [path, "EROFS"]),
        ),
        Uid: "1000 1000 1000 1000",
        Gid: "1000 1000 1000 1000",
        ...Object.fromEntries(
          ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"].map((name) => [name, "0000000000000000"]),
        ),
        NoNewPrivs: "1",
      });
    }
    for (const tier of [...tiers].reverse()) {
      const begin = performance.now();
      await engine.docker(["stop", "--time=20", `images-${tier}`]);
      expect((await inspect(`images-${tier}`)).State).toMatchObject({ ExitCode: 0, Running: false });
      console.info(`${tier} stopped in ${Math.round(performance.now() - begin)} ms`);
    }
  }, 180_000);

  async function inspect(name: string) {
    return JSON.parse(await engine.docker(["container", "inspect", name]))[0];
  }
});

/** A package in an SBOM. */
interface Component {
  readonly name: string;
  readonly version: string;
  readonly licenses?: readonly { readonly license?: { readonly id: string }; readonly expression?: string }[];
}

interface Package {
  readonly version: string;
  readonly dev?: boolean;
  readonly optional?: boolean;
  readonly devOptional?: boolean;
  readonly link?: boolean;
}

/** Runs in a container: tries to write, and tells the rights of its first process. */
const examination = `
  const fs = require("node:fs");
  const writes = {};
  for (const path of ["/x", "/app/x", "/app/dist/x", "/tmp/x", "/home/node/x"]) {
    try { fs.writeFileSync(path, ""); writes[path] = "written"; } catch ({ code }) { writes[path] = code; }
  }
  const rights = {};
  for (const line of fs.readFileSync("/proc/1/status", "utf8").split("\\n")) {
    const [name, value] = line.split(":");
    if (/^(Uid|Gid|Cap...|NoNewPrivs)$/.test(name)) rights[name] = value.trim().replace(/\\s+/g, " ");
  }
  console.log(JSON.stringify({ writes, ...rights }));
`;
