import { execFile, execFileSync } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { mkdtemp, readdir, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { promisify } from "node:util";
import { publishedPlans } from "../../gateway/accounts/keys/plans.ts";
import { publishedBanRules } from "../../gateway/admission/bans.ts";
import { type OpenApiDocument, openApiDocument } from "../../gateway/openapi/document.ts";
import { programs } from "../../gateway/openapi/programs.ts";
import { findProgram } from "../support/server-programs.ts";
import { suiteStack, temporaryFolder } from "../support/stack.ts";
import { startSystem } from "../support/system.ts";

const run = promisify(execFile);
const stack = suiteStack();
const env = { PATH: process.env.PATH, HOME: process.env.HOME, KEY: "ps_test_key" };
let lastBody = "";
let paths: OpenApiDocument["paths"];
let folder: string;

beforeAll(async () => {
  // Answers with the request, and with an id that a double cannot hold.
  const server = createServer(async (request, response) => {
    const body = (await request.toArray()).join("");
    lastBody = body;
    const { authorization, prefer, "content-type": type = null, "idempotency-key": key } = request.headers;
    const seen = JSON.stringify({ method: request.method, path: request.url, authorization, prefer, type, key, body });
    response.setHeader("Content-Type", "application/json");
    response.setHeader("ETag", '"list-7"');
    if (authorization === "Bearer ps_invalid") response.statusCode = 401;
    response.end(`{"petId":9223372036854775807,${seen.slice(1)}`);
  }).listen(0, "127.0.0.1");
  stack.defer(() => void server.close());
  await once(server, "listening");
  const options = {
    plans: publishedPlans,
    banRules: publishedBanRules,
    addressGuardPerMinute: 60,
    keyedUpdatesPerDay: 200_000,
    hasKeyRotation: true,
    deprecations: {},
  };
  const { port } = server.address() as AddressInfo;
  ({ paths } = openApiDocument({ ...options, servers: [`http://127.0.0.1:${port}/v1`] }));
  const temporary = await temporaryFolder("samples");
  stack.defer(() => temporary.remove());
  folder = temporary.path;
});

/** How a sample is run; the program is undefined where it is missing. */
type Language = readonly [program: string | undefined, file: string, ...args: string[]];
const languages: Readonly<Record<string, Language>> = {
  curl: [findProgram(["bash"]), "sample.sh"],
  JavaScript: [process.execPath, "sample.mjs"],
  Python: [findProgram(["python3"]), "sample.py"],
  Go: [findProgram(["go"]), "sample.go", "run"],
};
const testWhereThere = ([program]: Language) => (program === undefined ? test.skip : test);

/** Runs a text as a program. @throws Error with `code` and `stderr` when it ends with another status than 0 */
async function runSample([program, file, ...args]: Language, source: string, extraEnv: object = {}) {
  const own = await mkdtemp(join(folder, "run-"));
  await writeFile(join(own, file), source);
  return await run(program!, [...args, join(own, file)], { env: { ...env, ...extraEnv }, cwd: own });
}

const operations = [
  ["get", "/inventory", "GET", "/v1/inventory"],
  ["get", "/inventory/changes", "GET", "/v1/inventory/changes?since=%22list-7%22"],
  ["get", "/inventory/{petId}", "GET", "/v1/inventory/1001"],
  ["patch", "/inventory/{petId}", "PATCH", "/v1/inventory/1001"],
  ["post", "/inventory/updates", "POST", "/v1/inventory/updates"],
  ["post", "/inventory/adjustments", "POST", "/v1/inventory/adjustments"],
  ["get", "/inventory/{petId}/history", "GET", "/v1/inventory/1001/history"],
  ["get", "/pets/{petId}", "GET", "/v1/pets/1001"],
  ["get", "/store/orders", "GET", "/v1/store/orders"],
  ["get", "/rate_limit", "GET", "/v1/rate_limit"],
  ["get", "/usage", "GET", "/v1/usage"],
  ["post", "/keys/rotate", "POST", "/v1/keys/rotate"],
] as const;

/** Parts of the body that each operation with one is sent. */
const sent: Readonly<Record<string, readonly string[]>> = {
  "/inventory/{petId}": ["quantity", "12"],
  "/inventory/updates": ["quantity", "12"],
  "/inventory/adjustments": ["delta", "-1"],
  "/keys/rotate": ["graceSeconds", "86400"],
};

describe.each(Object.entries(languages))("samples in %s", (lang, language) => {
  const sampleOf = (verb: string, path: string) =>
    paths[path]![verb]!["x-codeSamples"]!.find((sample) => sample.lang === lang)!.source;

  testWhereThere(language).each(operations)(
    `a sample in ${lang} runs as it stands, with the key: %s %s`,
    async (verb, path, method, url) => {
      const { stdout } = await runSample(language, sampleOf(verb, path));
      expect(stdout).toContain("9223372036854775807");
      for (const part of [method, url, "Bearer ps_test_key"]) expect(stdout).toContain(part);
      expect(stdout.includes("wait=90")).toBe(path === "/inventory/changes");
      if (method === "GET") return;
      for (const part of ["application/json", ...sent[path]!]) expect(stdout).toContain(part);
      expect(JSON.parse(lastBody)).toEqual(paths[path]![verb]!.requestBody!.content["application/json"]!.example);
      const isKeyed = path.startsWith("/inventory");
      expect(/\b[0-9a-f]{32}\b|\b[A-Z2-7]{26}\b|[0-9a-f]{8}-[0-9a-f]{4}-/.test(stdout)).toBe(isKeyed);
    },
    180_000,
  );

  testWhereThere(language).each([
    ["get", "/inventory"],
    ["get", "/inventory/changes"],
    ["patch", "/inventory/{petId}"],
  ])(
    `a sample in ${lang} ends with an error when the key is not valid: %s %s`,
    async (verb, path) => {
      const refused = runSample(language, sampleOf(verb, path), { KEY: "ps_invalid" });
      await expect(refused).rejects.toMatchObject({ code: expect.any(Number) });
    },
    180_000,
  );
});

/** The Node of this machine, beside the one that the project brings. */
const systemNode = ["/usr/bin/node", "/usr/local/bin/node"].find((path) => existsSync(path));
const ofNode20: Language = [systemNode && /^v20\./.test(versionOf(systemNode)) ? systemNode : undefined, "sample.mjs"];

testWhereThere(ofNode20)("the samples in JavaScript run on Node 20", async () => {
  for (const [verb, path] of operations) {
    const { source } = paths[path]![verb]!["x-codeSamples"]!.find(({ lang }) => lang === "JavaScript")!;
    expect((await runSample(ofNode20, source)).stdout).toContain("9223372036854775807");
  }
});

describe.each([...Object.entries(languages), ["JavaScript on Node 20", ofNode20] as const])(
  "the complete program in %s",
  (name, language) => {
    const sourceFor = (address: string) =>
      programs(`http://${address}/v1`).find(({ lang }) => name.startsWith(lang))!.source;

    testWhereThere(language)(
      `the program in ${name} reads the stock, sells one, and reads what has changed`,
      async () => {
        const system = await startSystem({
          seed: [9223372036854775806n, 9223372036854775807n].map((petId) => {
            return { petId, quantity: 5, status: "available" };
          }),
        });
        try {
          const { stdout } = await runSample(language, sourceFor(system.address), { KEY: system.keys.pro });
          expect(stdout).toContain("begins with pet 9223372036854775806.");
          expect(stdout).toMatch(/Sold one: \[\{"petId": ?9223372036854775806, ?"quantity": ?4,/);
          expect(stdout).toMatch(/Changed since: .*"changed": ?\[\{"petId": ?9223372036854775806, ?"quantity": ?4,/);
          await expect(runSample(language, sourceFor(system.address), { KEY: "no key" })).rejects.toMatchObject({
            stderr: expect.stringContaining("invalid_api_key"),
          });
        } finally {
          await system.close();
        }
      },
      180_000,
    );

    testWhereThere(language)(
      `the program in ${name} sells once after 429, 503 and lost answers, and waits as it is told`,
      async () => {
        const unlucky = await startUnluckyApi([429, 503, "no answer", "half an answer"]);
        await runSample(language, sourceFor(unlucky.address));
        const { updates } = unlucky;
        expect(updates.map(({ key }) => key)).toEqual(Array(5).fill(updates[0]!.key));
        expect(updates[0]!.key).toMatch(/^[\w.:-]{10,64}$/);
        for (const i of [1, 2]) expect(updates[i]!.atMs - updates[i - 1]!.atMs).toBeGreaterThanOrEqual(999);
      },
      180_000,
    );

    testWhereThere(language)(
      `the program in ${name} repeats after a page of a proxy, and ends when the wait is hours`,
      async () => {
        const proxied = await startUnluckyApi(["a page", "half a page"]);
        await runSample(language, sourceFor(proxied.address));
        expect(proxied.updates).toHaveLength(3);
        const spent = await startUnluckyApi([429], { retryAfter: "19744" });
        await expect(runSample(language, sourceFor(spent.address))).rejects.toMatchObject({
          stderr: expect.stringContaining("rate_limit_exceeded"),
        });
        expect(spent.updates).toHaveLength(1);
      },
      180_000,
    );
  },
);

test("the program in curl keeps answers in a file of its own, which it removes", async () => {
  const { address } = await startUnluckyApi([]);
  const own = await mkdtemp(join(folder, "run-"));
  await writeFile(join(own, "stock.sh"), programs(`http://${address}/v1`)[0]!.source);
  await run(languages.curl![0]!, ["stock.sh"], { env: { ...env, TMPDIR: own }, cwd: own });
  expect(await readdir(own)).toEqual(["stock.sh"]);
});

test("a program ends when its key is banned, and says so", async () => {
  const banned = await startUnluckyApi([429], { code: "api_key_banned" });
  const { source } = programs(`http://${banned.address}/v1`).find(({ lang }) => lang === "JavaScript")!;
  await expect(runSample(languages.JavaScript!, source)).rejects.toMatchObject({
    stderr: expect.stringContaining("api_key_banned"),
  });
  expect(banned.updates).toHaveLength(1);
});

type Fate = number | "no answer" | "half an answer" | "a page" | "half a page";

/** An API whose first answers to an adjustment are these: lost ones, errors of the API, or 502 of a proxy before it. */
async function startUnluckyApi(fates: Fate[], { code = "rate_limit_exceeded", retryAfter = "1" } = {}) {
  const updates: { readonly key: string; readonly atMs: number }[] = [];
  const server = createServer((request, response) => {
    response.setHeader("Content-Type", "application/json");
    response.setHeader("ETag", '"list-7"');
    if (request.method === "GET") return response.end('[{"petId":1,"quantity":1,"status":"sold"}]');
    updates.push({ key: String(request.headers["idempotency-key"]), atMs: performance.now() });
    const status = fates.shift();
    if (status === undefined) return response.end("{}");
    if (status === "no answer") return request.socket.destroy();
    if (status === "half an answer")
      return response.writeHead(200, { "Content-Length": 100 }).write("[", () => request.socket.destroy());
    if (status === "a page") return response.writeHead(502, { "Content-Type": "text/html" }).end("<html>Bad Gateway");
    if (status === "half a page")
      return response.writeHead(502, { "Content-Length": 100 }).write("<html>", () => request.socket.destroy());
    response.writeHead(status, { "Retry-After": retryAfter }).end(JSON.stringify({ code, message: "Wait.", status }));
  }).listen(0, "127.0.0.1");
  stack.defer(() => void server.close());
  await once(server, "listening");
  return { address: `127.0.0.1:${(server.address() as AddressInfo).port}`, updates };
}

function versionOf(node: string): string {
  return execFileSync(node, ["--version"], { encoding: "utf8" });
}
