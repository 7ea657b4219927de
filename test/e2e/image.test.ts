import { execFile } from "node:child_process";
import { constants } from "node:fs";
import { copyFile, mkdir, readdir, readFile, realpath } from "node:fs/promises";
import { basename, dirname, join, resolve } from "node:path";
import { promisify } from "node:util";
import { DockerfileParser } from "dockerfile-ast";
import dockerfileUtils from "dockerfile-utils";
import { type Child, startChild } from "../support/children.ts";
import { suiteStack, temporaryFolder } from "../support/cleanup.ts";
import { createMysqlDatabase, dropDatabase } from "../support/databases.ts";
import { request } from "../support/http.ts";
import { type Image, makeImages } from "../support/image.ts";
import { freePort } from "../support/ports.ts";
import { startRedisServer } from "../support/redis-server.ts";
import { findProgram } from "../support/server-programs.ts";

const run = promisify(execFile);
const root = resolve(import.meta.dirname, "../..");
const targets = ["gateway", "inventory-svc", "migrate"] as const;

test("the Dockerfile passes a linter, and its base image has the Node that runs the tests", async () => {
  const text = await readFile(join(root, "Dockerfile"), "utf8");
  expect(dockerfileUtils.validate(text)).toEqual([]);
  const [base] = DockerfileParser.parse(text).getInitialARGs();
  expect(base!.getProperty()!.getValue()).toBe(`node:${process.versions.node}-bookworm-slim`);
});

// Only root may change the root directory of a process.
(process.getuid?.() === 0 ? describe : describe.skip)("the images, built without Docker,", () => {
  const stack = suiteStack();
  let images: Record<(typeof targets)[number], Image>;
  let env: Record<string, string>;

  /**
   * Starts a command as `docker run --read-only --cap-drop ALL` does, on the files of the image, Node and its
   * libraries.
   */
  const start = (image: Image, command: readonly string[]): Child => {
    const [uid, gid] = image.user.split(":") as [string, string];
    const asUser = ["--reuid", uid, "--regid", gid, "--clear-groups", "--bounding-set=-all", "--no-new-privs"];
    return startChild(
      findProgram(["chroot"])!,
      [image.root, "/bin/setpriv", ...asUser, "--pdeathsig=KILL", "--", ...command],
      {
        name: command.join(" "),
        cwd: "/",
        env: { PATH: "/bin", ...image.env, ...env },
      },
    );
  };
  const finish = async (image: Image, command: readonly string[]) => {
    const child = start(image, command);
    return { code: await child.exited, output: child.output() };
  };

  beforeAll(async () => {
    const folder = await temporaryFolder("images");
    stack.defer(() => folder.remove());
    // The build uses the packages installed here. The packages of an image are installed from the lock file.
    const base = join(folder.path, "base");
    await addNode(base);
    images = await makeImages(root, targets, folder.path, base, {
      "npm ci --ignore-scripts": `ln -s ${join(root, "node_modules")} node_modules`,
    });

    const redis = await startRedisServer();
    stack.defer(() => redis.stop());
    env = {
      GATEWAY_DATABASE_URL: await createMysqlDatabase(),
      INVENTORY_DATABASE_URL: await createMysqlDatabase(),
      REDIS_URL: redis.url,
      KEY_PEPPER: "a-pepper-that-only-the-tests-know",
    };
    for (const url of [env.GATEWAY_DATABASE_URL!, env.INVENTORY_DATABASE_URL!]) stack.defer(() => dropDatabase(url));
    for (const name of ["GATEWAY_LISTEN", "GATEWAY_ADMIN_LISTEN", "INVENTORY_LISTEN", "INVENTORY_ADMIN_LISTEN"]) {
      env[name] = `127.0.0.1:${await freePort()}`;
    }
    env.INVENTORY_ADDRESS = env.INVENTORY_LISTEN!;
  }, 180_000);

  test("contain no tests, no sources, no packages for development and no settings", async () => {
    for (const { root } of Object.values(images)) {
      expect((await readdir(join(root, "app"))).sort()).toEqual(["LICENSE", "dist", "node_modules", "package.json"]);
      const names = await readdir(join(root, "app/dist"), { recursive: true });
      expect(names.filter((name) => /\.test\.|(?<!\.d)\.ts$|stand-in|start\.js/.test(name))).toEqual([]);
      const { devDependencies } = JSON.parse(await readFile(join(root, "app/package.json"), "utf8"));
      const installed = await readdir(join(root, "app/node_modules"));
      expect(installed.filter((name) => name !== "yaml" && name in devDependencies)).toEqual([]);
      expect(installed.filter((name) => name.startsWith("node-linux"))).toEqual([]);
    }
  });

  test("serve as a user without write access, report their health, and stop at SIGTERM", async () => {
    expect(images.gateway.user).toMatch(/^[1-9]\d*:[1-9]\d*$/);
    const migrated = await finish(images.migrate, images.migrate.entrypoint);
    expect(migrated).toEqual({ code: 0, output: expect.stringContaining("inventory: up 0001") });
    const stock = ["node", "/app/dist/inventory-svc/cli/stock.js", "import", "--generate", "2"];
    expect(await finish(images["inventory-svc"], stock)).toMatchObject({ code: 0 });
    const issue = ["node", "/app/dist/gateway/accounts/commands.js", "issue", "--account", "one", "--json"];
    const issued = await finish(images.gateway, issue);
    expect(issued).toMatchObject({ code: 0 });
    const { key } = JSON.parse(issued.output);

    const tiers = ["inventory-svc", "gateway"] as const;
    const children: Child[] = [];
    for (const tier of tiers) {
      expect(await finish(images[tier], images[tier].healthcheck)).toMatchObject({ code: 1 });
      const child = start(images[tier], images[tier].entrypoint);
      stack.defer(() => child.kill("SIGKILL"));
      children.push(child);
      await child.waitForLine((line) => line.includes('"msg":"ready"') || undefined, 30_000);
      expect(await finish(images[tier], images[tier].healthcheck)).toMatchObject({ code: 0 });
    }
    const read = { path: "/v1/inventory", headers: { authorization: `Bearer ${key}` } };
    expect((await request(env.GATEWAY_LISTEN!, read)).json()).toMatchObject([{ petId: 1 }, { petId: 2 }]);
    expect(await request(env.GATEWAY_LISTEN!, { path: "/docs/page.css" })).toMatchObject({ status: 200 });

    for (const child of children.reverse()) expect(await child.stop(20_000)).toBe(0);
    const write =
      "for (const path of ['/x', '/app/x']) try { fs.writeFileSync(path, '') } catch (e) { console.log(e.code) }";
    const refused = { code: 0, output: "EACCES\nEACCES" };
    for (const image of Object.values(images)) expect(await finish(image, ["node", "-e", write])).toEqual(refused);
  }, 120_000);

  test("listen on all interfaces, and refuse gRPC without TLS by default", async () => {
    expect(images.gateway.env).toMatchObject({ GATEWAY_LISTEN: "0.0.0.0:8080", GATEWAY_ADMIN_LISTEN: "0.0.0.0:8081" });
    const { INVENTORY_LISTEN, ...rest } = env;
    expect(INVENTORY_LISTEN).toBeDefined();
    env = rest;
    const { code, output } = await finish(images["inventory-svc"], images["inventory-svc"].entrypoint);
    expect({ code, output }).toEqual({ code: 78, output: expect.stringContaining("INVENTORY_INSECURE=1") });
  });
});

/** Fills a root directory with the running Node, the libraries that it loads, and setpriv. */
async function addNode(folder: string): Promise<void> {
  for (const program of [await realpath(process.execPath), findProgram(["setpriv"])!]) {
    const { stdout } = await run("ldd", [program]);
    const libraries = [...stdout.matchAll(/(\/\S+) \(0x/g)].map(([, path]) => path!);
    for (const path of libraries) await place(path, join(folder, path));
    await place(program, join(folder, "bin", basename(program)));
  }
}

async function place(from: string, to: string): Promise<void> {
  await mkdir(dirname(to), { recursive: true });
  await copyFile(from, to, constants.COPYFILE_FICLONE);
}
