import { execFile } from "node:child_process";
import { once } from "node:events";
import { mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
import express from "express";
import { startChild } from "../support/children.ts";
import { installTimeoutMs, openPage, startChromium } from "../support/chromium.ts";
import { suiteStack, temporaryFolder } from "../support/cleanup.ts";
import { npm } from "../support/npm.ts";
import { type System, startSystem } from "../support/system.ts";

const run = promisify(execFile);
const root = resolve(import.meta.dirname, "../..");
const stack = suiteStack();
/** The folder of a consumer that has only the package. */
let app: string;
let own: string;
let system: System;

beforeAll(async () => {
  const folder = await temporaryFolder("rest-client");
  stack.defer(() => folder.remove());
  app = join(folder.path, "app");
  own = join(app, "node_modules/petstore-inventory-rest-client");
  const packed = join(folder.path, "packed");
  for (const path of [app, packed]) await mkdir(path);
  await npm(root, "pack", "-w", "rest-client", "--pack-destination", packed);
  const [tarball] = await readdir(packed);
  await writeFile(join(app, "package.json"), '{"type":"module"}');
  await npm(app, "install", join(packed, tarball!));
  const seed = [1001n, 1002n, 9223372036854775807n].map((petId) => ({
    petId,
    quantity: 1,
    status: "available" as const,
  }));
  system = await startSystem({ seed });
  stack.defer(() => system.close());
}, 180_000);

test("the package holds JavaScript, declarations and texts, and needs no other package", async () => {
  const files = (await readdir(own, { recursive: true, withFileTypes: true })).filter((entry) => entry.isFile());
  const names = files.map((file) => join(file.parentPath, file.name).slice(own.length + 1)).sort();
  expect(names.filter((name) => !/^dist\/\w+(\.d\.ts|\.js)$/.test(name))).toEqual([
    "README.md",
    "dist/LICENSE",
    "package.json",
  ]);
  expect(names.filter((name) => name.includes("test"))).toEqual([]);
  expect(await readdir(join(app, "node_modules"))).toEqual([".package-lock.json", "petstore-inventory-rest-client"]);
});

test("the lines of its README work when they are pasted", async () => {
  const readme = await readFile(join(own, "README.md"), "utf8");
  const [calls, follow] = [...readme.matchAll(/```js\n([^`]*(?:`[^`]+`[^`]*)*?)```/g)].map(([, lines]) =>
    lines!.replace("127.0.0.1:8080", system.address),
  );
  const env = { PATH: process.env.PATH, KEY: system.keys.pro };
  await writeFile(join(app, "calls.js"), calls!);
  const { stdout } = await run(process.execPath, ["calls.js"], { cwd: app, env });
  expect(stdout).toContain("3 entries, the first is { petId: 1001n, quantity: 1, status: 'available' }");
  expect(stdout).toContain("2 changed and 0 removed since the list");
  expect(stdout).toMatch(/\{ petId: 1002n, quantity: 0, status: 'available', etag: '"r\d+"' \}/);
  expect(stdout).toMatch(/name: 'minute'/);
  expect(stdout).toMatch(/served: \d+/);

  await writeFile(join(app, "follow.js"), follow!);
  const follower = startChild(process.execPath, ["follow.js"], { name: "the follower", cwd: app, env });
  stack.defer(() => follower.kill("SIGKILL"));
  await follower.waitForLine((line) => line.startsWith("3 entries at ") || undefined, 30_000);
});

test("its types pass a strict consumer that checks libraries too, with the types of browsers alone", async () => {
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
  "it runs in a page of the API's own origin",
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
