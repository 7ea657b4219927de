// The REST client as the gateway serves it: in Node, in a page of the gateway's origin, and its types.
import { execFile } from "node:child_process";
import { writeFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
import { clientExample } from "../../gateway/openapi/programs.ts";
import { operationsOf, type ShownDocument } from "../../gateway/openapi/shown-document.ts";
import { installTimeoutMs, openPage, startChromium } from "../support/chromium.ts";
import { request } from "../support/http.ts";
import { suiteStack, temporaryFolder } from "../support/stack.ts";
import { type System, startSystem } from "../support/system.ts";

const run = promisify(execFile);
const root = resolve(import.meta.dirname, "../..");
const maxId = 9223372036854775807n;

/** Each operation by its call, and what it gives. It is text, because a page runs it, too. */
const callEverything = `async (api) => {
  const id = 9223372036854775807n;
  const list = await api.list();
  const results = {
    listInventory: list.map(({ petId }) => petId),
    getInventoryItem: await api.get(id),
    updateInventory: await api.update(id, 7, { reason: "counted" }),
    bulkUpdateInventory: await api.updateMany([{ petId: id, quantity: 9 }]),
    adjustInventory: await api.adjust(id, -2),
    listInventoryChanges: await api.changes(list.etag),
    getInventoryHistory: (await api.history(id, { limit: 3 })).changes.map(({ quantityAfter }) => quantityAfter),
    getPet: (await api.pet(id)).id,
    getOrders: (await api.orders()).map(({ petId }) => typeof petId),
    getRateLimit: (await api.rateLimit()).plan,
    getUsage: (await api.usage({ hours: 1 })).stepSeconds,
    rotateKey: (await api.rotateKey()).key,
  };
  return JSON.stringify(results, (_name, value) => (typeof value === "bigint" ? value + "n" : value));
}`;

const entry = (quantity: number) => ({ petId: `${maxId}n`, quantity, status: "available", etag: expect.any(String) });

const expected = {
  listInventory: ["1001n", `${maxId}n`],
  getInventoryItem: entry(5),
  updateInventory: entry(7),
  bulkUpdateInventory: [entry(9)],
  adjustInventory: entry(7),
  listInventoryChanges: { etag: expect.any(String), changed: [entry(7)], removed: [] },
  getInventoryHistory: [7, 9, 7],
  getPet: `${maxId}n`,
  getOrders: expect.arrayContaining(["bigint"]),
  getRateLimit: "pro",
  getUsage: 60,
  rotateKey: expect.stringMatching(/^ps_/),
};

const stack = suiteStack();
let system: System;
/** The folder of a consumer who has saved the two files. */
let app: string;

beforeAll(async () => {
  system = await startSystem({
    seed: [1001n, maxId].map((petId) => ({ petId, quantity: 5, status: "available" })),
    gatewayEnv: { KEY_ROTATION: "1" },
  });
  stack.defer(() => system.close());
  const folder = await temporaryFolder("served-client");
  stack.defer(() => folder.remove());
  app = folder.path;
  await writeFile(join(app, "package.json"), '{"type":"module"}');
  for (const name of ["client.js", "client.d.ts"]) {
    const { status, text } = await request(system.address, { path: `/${name}` });
    expect([name, status]).toEqual([name, 200]);
    await writeFile(join(app, name), text);
  }
});

/** A key that may rotate, of a stock whose last entry has 5. */
async function newKey(): Promise<string> {
  const scopes = ["inventory:read", "inventory:write", "store:read", "keys:rotate"] as const;
  const { key } = await system.issueKey({ plan: "pro", scopes });
  const reset = await request(system.address, {
    method: "PATCH",
    path: `/v1/inventory/${maxId}`,
    headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
    body: '{"quantity":5}',
  });
  expect(reset.status).toBe(200);
  return key;
}

test("the client has a call for every operation of the document", async () => {
  const document = (await request(system.address, { path: "/openapi.json" })).json<ShownDocument>();
  const operations = operationsOf(document).map(({ operationId }) => operationId);
  expect(Object.keys(expected).sort()).toEqual(operations.sort());
});

test("the file that the gateway serves calls every operation from Node, with exact ids", async () => {
  await writeFile(
    join(app, "shop.js"),
    `import { createInventoryApi } from "./client.js";
const api = createInventoryApi({ baseUrl: "http://${system.address}/v1", apiKey: process.env.KEY });
console.log(await (${callEverything})(api));
`,
  );
  const { stdout } = await run(process.execPath, ["shop.js"], { cwd: app, env: { KEY: await newKey() } });
  expect(JSON.parse(stdout)).toEqual(expected);
});

test("the example of the documentation runs beside the client, and writes bigints as JSON", async () => {
  await writeFile(join(app, "example.js"), clientExample(`http://${system.address}/v1`));
  const { stdout } = await run(process.execPath, ["example.js"], { cwd: app, env: { KEY: await newKey() } });
  expect(stdout).toContain(`\n${maxId}n 5\n`);
  expect(stdout).toContain(`{"petId":"${maxId}","quantity":5,"status":"available"}]`);
});

test(
  "a page of the gateway's origin calls every operation, under the policy of its pages",
  async () => {
    const browser = await startChromium();
    stack.defer(() => browser.close());
    const { page, faults } = await openPage(browser, `http://${system.address}/docs/`);
    const text = await page.evaluate(`import("../client.js").then(({ createInventoryApi }) =>
      (${callEverything})(createInventoryApi({ baseUrl: "/v1", apiKey: "${await newKey()}" })))`);
    expect(JSON.parse(String(text))).toEqual(expected);
    // Chromium calls a request aborted whose body was read part by part, also when it was read to its end.
    expect(faults.filter((fault) => !fault.includes("net::ERR_ABORTED"))).toEqual([]);
  },
  installTimeoutMs,
);

test("its types pass a strict consumer, who has ids as bigints", async () => {
  await writeFile(
    join(app, "typed.ts"),
    `import { createInventoryApi, type FollowEvent, InventoryApiError, type InventoryEntry } from "./client.js";
const api = createInventoryApi({ baseUrl: "/v1", apiKey: "key" });
const entry: Promise<InventoryEntry> = api.get(1n);
const id: Promise<bigint> = entry.then(({ petId }) => petId);
const follow = async (take: (event: FollowEvent) => void) => { for await (const event of api.follow()) take(event); };
const code = (error: unknown) => (error instanceof InventoryApiError ? error.code : undefined);
// @ts-expect-error no such option
createInventoryApi({ baseUrl: "/v1", apiKey: "key", retries: 2 });
export { code, follow, id };
`,
  );
  const options = "--strict --noEmit --target es2022 --module nodenext --lib es2022,dom --skipLibCheck false --types";
  const tsc = run(join(root, "node_modules/.bin/tsc"), [...options.split(" "), "", "typed.ts"], { cwd: app });
  expect((await tsc.catch((error) => error)).stdout).toBe("");
});

test("the documentation names the client and its types", async () => {
  const { text } = await request(system.address, { path: "/docs/" });
  for (const file of ["client.js", "client.d.ts"]) expect(text).toContain(`href="../${file}"`);
});
