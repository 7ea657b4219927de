import { execFile } from "node:child_process";
import { cp, mkdir, readFile, stat, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { promisify } from "node:util";
import { createKey, hashKey } from "../../gateway/accounts/keys/key-format.ts";
import { openDatabase } from "../../runtime/database/open.ts";
import type { Child } from "../support/children.ts";
import { freePort } from "../support/ports.ts";
import { runScript, startScript } from "../support/processes.ts";
import { suiteStack, type TemporaryFolder, temporaryFolder } from "../support/stack.ts";

const run = promisify(execFile);
const root = join(import.meta.dirname, "../..");

const realServices = `GATEWAY_DATABASE_URL=mysql://petstore_gateway:gateway-password@127.0.0.1:1/petstore_keys
INVENTORY_DATABASE_URL=mysql://petstore_inventory:inventory-password@127.0.0.1:1/petstore_stock
REDIS_URL=redis://127.0.0.1:1
KEY_PEPPER=${"0123456789abcdef".repeat(4)}
KEY_PEPPER_OLD=${"fedcba9876543210".repeat(4)}
`;

describe("npm start", () => {
  const stack = suiteStack();
  let folder: TemporaryFolder;
  let env: Record<string, string>;
  let child: Child;

  const start = async () => {
    child = await startScript({ name: "npm start", script: "deploy/local/start.ts", cwd: folder.path, env });
    await child.waitForLine((line) => line.includes("Ctrl-C") || undefined, 30_000);
    return child;
  };
  const curls = () =>
    child
      .output()
      .split("\n")
      .filter((line) => line.startsWith("curl "));
  const bash = async (line: string) => (await run("bash", ["-c", line])).stdout;
  /** Has the database of keys know another key in the place of one, whatever its form. */
  const keepInPlaceOf = async (key: string, other: string) => {
    const pepper = (await readFile(join(folder.path, ".data/key-pepper"), "utf8")).trim();
    const db = openDatabase(`sqlite:${join(folder.path, ".data/gateway.sqlite")}`);
    const [key_hash, otherHash] = [hashKey(key, pepper), hashKey(other, pepper)];
    expect(await db("api_keys").where({ key_hash }).update({ key_hash: otherHash })).toBe(1);
    await db.destroy();
  };
  const stop = (signal: NodeJS.Signals) => {
    void child.kill(signal);
    return child.exited;
  };

  beforeAll(async () => {
    folder = await temporaryFolder("start");
    stack.defer(() => folder.remove());
    stack.defer(async () => void (await child.stop(20_000)));
    env = {
      GATEWAY_LISTEN: `127.0.0.1:${await freePort()}`,
      GATEWAY_ADMIN_LISTEN: "127.0.0.1:0",
      INVENTORY_LISTEN: "127.0.0.1:0",
      INVENTORY_ADMIN_LISTEN: "127.0.0.1:0",
      // An empty value counts as not set, as in a copy of .env.example.
      PETS_UPSTREAM_URL: "",
      ORDERS_UPSTREAM_URL: "",
    };
    // What docs/operations/run.md writes for real services.
    await writeFile(join(folder.path, ".env"), realServices);
    await start();
  });

  test("obeys no database, Redis or key setting of .env or the environment, and says so", async () => {
    expect(child.output()).toContain("  Data           SQLite in .data/, limits in memory\n");
    const ignored = /^ {2}Not used {7}(.*): npm start has its own$/m.exec(child.output())?.[1]?.split(", ").sort();
    expect(ignored).toEqual([
      "GATEWAY_DATABASE_URL",
      "INVENTORY_DATABASE_URL",
      "KEY_PEPPER",
      "KEY_PEPPER_OLD",
      "REDIS_URL",
    ]);
    expect(child.output()).not.toMatch(/"level":"(warn|error)"/);
    for (const name of ["gateway.sqlite", "inventory.sqlite"]) {
      expect((await stat(join(folder.path, ".data", name))).size).toBeGreaterThan(0);
    }
  });

  test("serves a seeded store, and the curl lines that it prints work unchanged", async () => {
    const [read, write] = curls();
    const seeded = (await readFile(join(root, "deploy/local/seed.csv"), "utf8")).trim().split("\n").slice(1);
    const listed = (await bash(read!)).match(/\{[^}]*\}/g)!;
    expect(
      listed.map((entry) => entry.replace(/^\{"petId":(-?\d+),"quantity":(\d+),"status":"(\w+)"\}$/, "$1,$2,$3")),
    ).toEqual(seeded);
    expect(seeded.length).toBeGreaterThanOrEqual(500);
    expect(await bash(write!)).toBe('{"petId":1001,"quantity":12,"status":"available"}');
    expect(await bash(read!)).toContain('{"petId":1001,"quantity":12,"status":"available"}');
  });

  test("prints a key for each plan, and passes the other two routes on to a stand-in", async () => {
    const keys = [...child.output().matchAll(/^ {2}(free|pro|business|enterprise) +(ps_live_\w+)$/gm)];
    expect(keys.map(([, plan]) => plan)).toEqual(["free", "pro", "business", "enterprise"]);
    const base = `http://${env.GATEWAY_LISTEN}/v1`;
    for (const [path, shape] of [
      ["pets/1001", /^\{"id":1001,/],
      ["store/orders", /^\[\{"id":/],
    ] as const) {
      expect(await bash(`curl -s -H "Authorization: Bearer ${keys[0]![2]}" ${base}/${path}`)).toMatch(shape);
    }
  });

  test("the first requests of the README work as they are pasted, and answer as it says", async () => {
    const readme = await readFile(join(root, "README.md"), "utf8");
    const [, block, answers] = /```sh\n(export KEY=.*?)```.*?```json\n(.*?)```/s.exec(readme)!;
    const lines = block!.replace("127.0.0.1:8080", env.GATEWAY_LISTEN!);
    const { stdout } = await run("bash", ["-c", lines], { cwd: folder.path });
    expect(stdout).toBe(answers);
  });

  test("prints the addresses of the documentation and of the account page, which answer", async () => {
    for (const [name, path] of [
      ["Documentation", "docs"],
      ["Your account", "account"],
    ]) {
      const address = new RegExp(`^  ${name} +(http://.*/${path})$`, "m").exec(child.output())![1];
      expect(await bash(`curl -sL ${address}`)).toContain("<!doctype html>");
    }
  });

  test("serves an OpenAPI document with its own address, for tools that read a copy of it", async () => {
    const document = JSON.parse(await bash(`curl -s http://${env.GATEWAY_LISTEN}/openapi.json`));
    expect(document.servers).toEqual([{ url: `http://${env.GATEWAY_LISTEN}/v1` }]);
  });

  test("ends everything at Ctrl-C, and keeps the data and the keys for the next start", async () => {
    const before = curls();
    expect(await stop("SIGINT")).toBe(0);
    await expect(bash(before[0]!)).rejects.toThrow();
    await start();
    expect(curls()).toEqual(before);
    expect(await bash(before[0]!)).toContain('{"petId":1001,"quantity":12,"status":"available"}');
  });

  test("ends at once at a second Ctrl-C, also where the first one comes twice from npm", async () => {
    expect(await stop("SIGINT")).toBe(0);
    Object.assign(env, { DRAIN_SECONDS: "1000", DRAIN_DELAY_SECONDS: "999" });
    await start();
    await child.kill("SIGINT");
    await child.kill("SIGINT");
    await child.waitForLine((line) => line.startsWith("Stopping") || undefined, 10_000);
    expect(await bash(curls()[0]!)).toContain('"petId":1001'); // the drain goes on
    await delay(1_000); // since the first signal
    expect(await stop("SIGINT")).toBe(130);
    await expect(bash(curls()[0]!)).rejects.toThrow();
    Object.assign(env, { DRAIN_SECONDS: "", DRAIN_DELAY_SECONDS: "" });
    await start();
  });

  test("lets callers rotate its keys, and prints another one at its next start for each ended one", async () => {
    const keyOf = (plan: string) => new RegExp(`^ {2}${plan} +(ps_live_\\w+)$`, "m").exec(child.output())![1]!;
    const [free, pro] = [keyOf("free"), keyOf("pro")];
    const base = `http://${env.GATEWAY_LISTEN}/v1`;
    const json = `-H "Content-Type: application/json" -d '{"graceSeconds":0}'`;
    const rotated = await bash(`curl -s -X POST -H "Authorization: Bearer ${free}" ${json} ${base}/keys/rotate`);
    expect(JSON.parse(rotated)).toMatchObject({ key: expect.stringMatching(/^ps_live_/), expiresAt: null });
    expect(await stop("SIGINT")).toBe(0);
    const file = join(folder.path, ".data/keys.json");
    const foreign = createKey("live", "a pepper that is not that of the folder");
    await keepInPlaceOf(keyOf("business"), foreign); // as a key of an older form is kept
    await writeFile(file, JSON.stringify({ ...JSON.parse(await readFile(file, "utf8")), business: foreign }));
    await start();
    expect(keyOf("pro")).toBe(pro);
    expect(keyOf("free")).not.toBe(free);
    expect(keyOf("business")).not.toBe(foreign);
    for (const [key, status] of [
      [keyOf("free"), 200],
      [keyOf("business"), 200],
      [JSON.parse(rotated).key, 200],
      [free, 401],
    ]) {
      const code = `curl -s -o /dev/null -w '%{http_code}' -H "Authorization: Bearer ${key}" ${base}/rate_limit`;
      expect(Number(await bash(code))).toBe(status);
    }
  });

  test("exits with the name of the setting when its port is taken, and the first one runs on", async () => {
    const other = await startScript({
      name: "a second npm start",
      script: "deploy/local/start.ts",
      cwd: folder.path,
      env,
    });
    expect(await other.exited).toBe(1);
    expect(other.output()).toMatch(/GATEWAY_LISTEN: .*EADDRINUSE/);
    expect(await bash(curls()[0]!)).toContain('"petId":1001');
  });

  test("names every wrong setting and exits with code 78", async () => {
    const wrong = { ...env, GATEWAY_REPLICAS: "none", INVENTORY_TIMEOUT_MS: "soon", INVENTORY_MAX_BATCH: "x" };
    const other = await startScript({
      name: "a wrong npm start",
      script: "deploy/local/start.ts",
      cwd: folder.path,
      env: wrong,
    });
    expect(await other.exited).toBe(78);
    expect(other.output()).toMatch(
      /3 faults:\n.*INVENTORY_MAX_BATCH: .*\n.*GATEWAY_REPLICAS: .*\n.*INVENTORY_TIMEOUT_MS: /,
    );
    expect(other.output()).not.toContain("at ");
  });

  test.each([
    ["is cut off", '{"free": "ps_live_'],
    ["lacks a plan", '{"free": "ps_live_x"}'],
  ])("names its file of keys when that %s, in one line", async (_how, text) => {
    const other = await temporaryFolder("start-keys");
    stack.defer(() => other.remove());
    await mkdir(join(other.path, ".data"));
    await writeFile(join(other.path, ".data/keys.json"), text);
    const script = "deploy/local/start.ts";
    const { code, stdout, stderr } = await runScript({ script, cwd: other.path, env });
    expect({ code, stdout }).toEqual({ code: 1, stdout: "" });
    expect(stderr).toMatch(/^\.data\/keys\.json: does not hold a key for each plan; remove it[^\n]*\n$/);
  });

  test("ends its processes when it is killed", async () => {
    await stop("SIGKILL");
    const untilMs = Date.now() + 15_000;
    while (
      await bash(curls()[0]!).then(
        () => true,
        () => false,
      )
    ) {
      if (Date.now() > untilMs) throw new Error("the gateway still answers");
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  });

  test("works in a folder whose name has a space and a letter that is not ASCII", async () => {
    const project = join(folder.path, "my pétstore");
    for (const name of ["client", "deploy", "gateway", "inventory-svc", "proto", "runtime", "package.json"])
      await cp(join(root, name), join(project, name), { recursive: true });
    await symlink(join(root, "node_modules"), join(project, "node_modules"));
    const copy = await startScript({
      name: "npm start of a copy",
      script: join(project, "deploy/local/start.ts"),
      cwd: project,
      env: { ...env, GATEWAY_LISTEN: "127.0.0.1:0" },
    });
    stack.defer(async () => void (await copy.stop(20_000)));
    const read = await copy.waitForLine((line) => (line.startsWith("curl ") ? line : undefined), 30_000);
    expect(await bash(read)).toContain('"petId":1001');
  });
});
