import { execFile } from "node:child_process";
import { once } from "node:events";
import { writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { promisify } from "node:util";
import { contractPlans } from "../../gateway/accounts/keys/plans.ts";
import { publishedBanRules } from "../../gateway/admission/bans.ts";
import { type OpenApiDocument, openApiDocument } from "../../gateway/openapi/document.ts";
import { findProgram } from "../support/server-programs.ts";
import { suiteStack, temporaryFolder } from "../support/stack.ts";

const run = promisify(execFile);
const stack = suiteStack();
const env = { PATH: process.env.PATH, HOME: process.env.HOME, KEY: "ps_test_key" };
let paths: OpenApiDocument["paths"];
let folder: string;

beforeAll(async () => {
  // Answers with the request, and with an id that a double cannot hold.
  const server = createServer(async (request, response) => {
    const body = (await request.toArray()).join("");
    const { authorization, "content-type": type = null } = request.headers;
    const seen = JSON.stringify({ method: request.method, path: request.url, authorization, type, body });
    response.setHeader("Content-Type", "application/json");
    response.end(`{"petId":9223372036854775807,${seen.slice(1)}`);
  }).listen(0, "127.0.0.1");
  stack.defer(() => void server.close());
  await once(server, "listening");
  const options = {
    plans: contractPlans,
    banRules: publishedBanRules,
    guardPerMinute: 60,
    keyedUpdatesPerDay: 200_000,
    keyRotation: true,
    deprecations: {},
  };
  const { port } = server.address() as AddressInfo;
  ({ paths } = openApiDocument({ ...options, servers: [`http://127.0.0.1:${port}/v1`] }));
  const temporary = await temporaryFolder("samples");
  stack.defer(() => temporary.remove());
  folder = temporary.path;
});

/** How a sample is run; the program is undefined where it is missing. */
const languages: Readonly<Record<string, readonly [program: string | undefined, file: string, ...args: string[]]>> = {
  curl: [findProgram(["bash"]), "sample.sh"],
  JavaScript: [process.execPath, "sample.mjs"],
  Python: [findProgram(["python3"]), "sample.py"],
  Go: [findProgram(["go"]), "sample.go", "run"],
};

const operations = [
  ["get", "/inventory", "GET", "/v1/inventory"],
  ["get", "/inventory/changes", "GET", "/v1/inventory/changes?since=4f2c9a01-318"],
  ["get", "/inventory/{petId}", "GET", "/v1/inventory/1001"],
  ["patch", "/inventory/{petId}", "PATCH", "/v1/inventory/1001"],
  ["post", "/inventory/updates", "POST", "/v1/inventory/updates"],
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
  "/keys/rotate": ["graceSeconds", "86400"],
};

describe.each(Object.entries(languages))("samples in %s", (lang, [program, file, ...args]) => {
  (program === undefined ? test.skip : test).each(operations)(
    `a sample in ${lang} runs as it stands, with the key: %s %s`,
    async (verb, path, method, url) => {
      const { source } = paths[path]![verb]!["x-codeSamples"]!.find((sample) => sample.lang === lang)!;
      await writeFile(join(folder, file), source);
      const { stdout } = await run(program!, [...args, join(folder, file)], { env, cwd: folder });
      expect(stdout).toContain("9223372036854775807");
      for (const part of [method, url, "Bearer ps_test_key"]) expect(stdout).toContain(part);
      if (method !== "GET") for (const part of ["application/json", ...sent[path]!]) expect(stdout).toContain(part);
    },
    60_000,
  );
});
