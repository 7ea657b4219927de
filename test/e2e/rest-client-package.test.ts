import { execFile, execFileSync } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { delimiter, join, resolve } from "node:path";
import { promisify } from "node:util";
import express from "express";
import { createInventoryApi } from "../../rest-client/index.ts";
import { startChild } from "../support/children.ts";
import { installTimeoutMs, openPage, startChromium } from "../support/chromium.ts";
import { npm } from "../support/npm.ts";
import { suiteStack, temporaryFolder } from "../support/stack.ts";
import { type System, startSystem } from "../support/system.ts";

const run = promisify(execFile);

/** A program that runs the lines of the README. */
interface Runtime {
  readonly name: string;
  /** Its path; one of a package is below the folder of runtimes. */
  readonly program: string;
  readonly args: readonly string[];
}

/** Runtimes as npm packages, each of which holds one binary. */
const packaged = {
  packages: ["@oven/bun-linux-x64@1.4.5", "@deno/linux-x64-glibc@2.9.6"],
  runtimes: [
    { name: "Bun", program: "node_modules/@oven/bun-linux-x64/bin/bun", args: [] },
    {
      name: "Deno",
      program: "node_modules/@deno/linux-x64-glibc/deno",
      args: ["run", "--allow-env", "--allow-net"],
    },
  ],
};
const hasPackages = process.platform === "linux" && process.arch === "x64";
if (!hasPackages) console.warn("Bun and Deno run the lines of the client's README on Linux on x64 only: skipped here.");

const runtimes: readonly Runtime[] = [
  { name: `Node ${process.version}`, program: process.execPath, args: [] },
  ...machineNode(),
  ...(hasPackages ? packaged.runtimes : []),
];

/** The Node that npm itself may run on, where that is another version than the one among the dependencies. */
function machineNode(): Runtime[] {
  const folders = (process.env.PATH ?? "").split(delimiter).filter((folder) => !folder.includes("node_modules"));
  const program = folders.map((folder) => join(folder, "node")).find((path) => existsSync(path));
  const version = program ? execFileSync(program, ["--version"], { encoding: "utf8" }).trim() : "";
  const major = Number(/^v(\d+)/.exec(version)?.[1]);
  if (program && major >= 20 && major !== Number.parseInt(process.versions.node, 10))
    return [{ name: `Node ${version}`, program, args: [] }];
  console.warn(
    `The lines of the client's README run on Node ${process.version} only: PATH has no other one from 20 on.`,
  );
  return [];
}

const root = resolve(import.meta.dirname, "../..");
const stack = suiteStack();
/** The folder of a consumer that has only the package. */
let app: string;
let own: string;
/** The folder of the runtimes that are packages. */
let runtimesFolder: string;
let system: System;

beforeAll(async () => {
  const folder = await temporaryFolder("rest-client");
  stack.defer(() => folder.remove());
  app = join(folder.path, "app");
  own = join(app, "node_modules/petstore-inventory-rest-client");
  const packed = join(folder.path, "packed");
  runtimesFolder = join(folder.path, "runtimes");
  for (const path of [app, packed, runtimesFolder]) await mkdir(path);
  await npm(root, "pack", "-w", "rest-client", "--pack-destination", packed);
  const [tarball] = await readdir(packed);
  await writeFile(join(app, "package.json"), '{"type":"module"}');
  await npm(app, "install", join(packed, tarball!));
  if (hasPackages) await npm(runtimesFolder, "install", "--no-save", "--ignore-scripts", ...packaged.packages);
  const seed = [1001n, 1002n, 9223372036854775807n].map((petId) => ({
    petId,
    quantity: 1,
    status: "available" as const,
  }));
  system = await startSystem({ seed });
  stack.defer(() => system.close());
}, 180_000);

test("the REST client's package holds JavaScript, declarations and texts, and needs no other one", async () => {
  const files = (await readdir(own, { recursive: true, withFileTypes: true })).filter((entry) => entry.isFile());
  const names = files.map((file) => join(file.parentPath, file.name).slice(own.length + 1)).sort();
  expect(names.filter((name) => !/^dist\/[\w-]+(\.d\.ts|\.js)$/.test(name))).toEqual([
    "README.md",
    "dist/LICENSE",
    "package.json",
  ]);
  expect(names.filter((name) => name.includes("test"))).toEqual([]);
  expect(await readdir(join(app, "node_modules"))).toEqual([".package-lock.json", "petstore-inventory-rest-client"]);
});

test.each(runtimes)(
  "the lines of the REST client's README work on $name when they are pasted",
  async ({ program, args }) => {
    const readme = await readFile(join(own, "README.md"), "utf8");
    const [calls, follow] = [...readme.matchAll(/```js\n([^`]*(?:`[^`]+`[^`]*)*?)```/g)].map(([, lines]) =>
      lines!.replace("127.0.0.1:8080", system.address),
    );
    const path = resolve(runtimesFolder, program);
    const { key } = await system.issueKey({ plan: "enterprise", limits: { perMinute: 600, perDay: 100_000 } });
    // Deno keeps a cache, and asks for newer versions of itself.
    const env = {
      PATH: process.env.PATH,
      KEY: key,
      DENO_DIR: join(runtimesFolder, "cache"),
      DENO_NO_UPDATE_CHECK: "1",
    };
    const stock = createInventoryApi({ baseUrl: `http://${system.address}/v1`, apiKey: system.keys.enterprise });
    await stock.updateMany([1001, 1002].map((petId) => ({ petId, quantity: 1 })));

    await writeFile(join(app, "calls.js"), calls!);
    const { stdout } = await run(path, [...args, "calls.js"], { cwd: app, env });
    expect(plain(stdout)).toBe(
      plain(`3 entries, the first is { petId: 1001n, quantity: 1, status: 'available' }
      [
        { petId: 1001n, quantity: 12, status: 'available', etag: '"r3"' },
        { petId: 1002n, quantity: 0, status: 'available', etag: '"r4"' }
      ]
      12 became 11 by you: order 17
      2 changed and 0 removed since the list
      [
        { name: 'minute', limit: 600, used: 5, remaining: 595, resetAt: '2026-01-01T00:01:00.000Z' },
        { name: 'day', limit: 100000, used: 5, remaining: 99995, resetAt: '2026-01-02T00:00:00.000Z' }
      ]
      { at: '2026-01-01T00:00:00Z', served: 5, refused: 0 }`),
    );

    await writeFile(join(app, "follow.js"), follow!);
    const follower = startChild(path, [...args, "follow.js"], { name: "the follower", cwd: app, env });
    stack.defer(() => follower.kill("SIGKILL"));
    const isState = (line: string) => line.startsWith("3 entries at ");
    const first = await follower.waitForLine((line) => (isState(line) ? line : undefined), 30_000);
    await stock.update(1001, 50);
    await follower.waitForLine((line) => (isState(line) && line !== first) || undefined, 30_000);
    await follower.kill("SIGKILL");
  },
);

/** What was printed, in the same form for each runtime and time: they differ in quotes, line breaks and last commas. */
function plain(printed: string): string {
  return printed
    .replaceAll(/["'\\\s]/g, "")
    .replaceAll(/,(?=[}\]])/g, "")
    .replaceAll(/\d{4}-\d\d-\d\dT[\d:.]+Z/g, "TIME")
    .replaceAll(/(?<=etag:r|used:|remaining:|served:)\d+/g, "N")
    .replaceAll("{", "\n{");
}

test("the REST client's types pass a strict consumer that checks libraries, with browsers' types", async () => {
  await writeFile(
    join(app, "tsconfig.json"),
    JSON.stringify({
      compilerOptions: {
        module: "nodenext",
        target: "es2022",
        lib: ["es2022", "dom"],
        types: [],
        strict: true,
        skipLibCheck: false,
        noEmit: true,
      },
      files: ["shop.mts"],
    }),
  );
  await writeFile(
    join(app, "shop.mts"),
    `import { createInventoryApi, InventoryApiError, type InventoryApi, type InventoryList } from "petstore-inventory-rest-client";

const api: InventoryApi = createInventoryApi({ baseUrl: "/v1", apiKey: "key", fetch });
const list: InventoryList = await api.list({ signal: AbortSignal.timeout(1_000) });
const ids: bigint[] = list.map(({ petId }) => petId);
for await (const event of api.follow()) {
  if (event.type === "stock") console.log(event.items.length);
  else console.log(event.changed[0]?.etag, event.removed);
}
for (const result of await api.updateMany([{ petId: 1n, quantity: 2, ifMatch: list.etag }])) {
  if ("error" in result) console.log(result.error.code === "not_found");
  else console.log(result.quantity);
}
const wait = (error: unknown) => (error instanceof InventoryApiError ? error.retryAfterMs : undefined);
// @ts-expect-error no such code
export const isBanned = (error: InventoryApiError) => error.code === "banned";
// @ts-expect-error a list is not changed
list.push({ petId: 1n, quantity: 1, status: "sold" });
export { ids, wait };
`,
  );
  const { stdout } = await run(join(root, "node_modules/.bin/tsc"), ["-p", app]).catch((error) => error);
  expect(stdout).toBe("");
}, 120_000);

test(
  "the REST client runs in a page of the API's own origin",
  async () => {
    const site = express()
      .use("/client", express.static(join(own, "dist")))
      .get("/", (_request, response) => void response.type("html").end('<link rel="icon" href="data:,">'))
      .use("/v1", async (received, response) => {
        const { authorization = "" } = received.headers;
        const answer = await fetch(`http://${system.address}${received.originalUrl}`, { headers: { authorization } });
        const etag = answer.headers.get("etag");
        if (etag) response.set("ETag", etag);
        response
          .status(answer.status)
          .type("json")
          .end(await answer.text());
      });
    const server = createServer(site).listen(0, "127.0.0.1");
    stack.defer(() => {
      server.close();
      server.closeAllConnections();
    });
    await once(server, "listening");
    const browser = await startChromium();
    stack.defer(() => browser.close());
    const { port } = server.address() as AddressInfo;
    const { page, faults } = await openPage(browser, `http://127.0.0.1:${port}/`);
    const ids = await page.evaluate(`import("/client/index.js").then(async ({ createInventoryApi }) => {
    const list = await createInventoryApi({ baseUrl: "/v1", apiKey: "${system.keys.pro}" }).list();
    return list.map(({ petId }) => typeof petId + petId);
  })`);
    expect(ids).toEqual(["bigint1001", "bigint1002", "bigint9223372036854775807"]);
    expect(faults).toEqual([]);
  },
  installTimeoutMs,
);
