// Clients that generators make from the document of a live gateway, each compiled and used. A test whose language is
// missing is skipped by its name.
import { execFile } from "node:child_process";
import { copyFile, mkdir, readdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { request } from "../support/http.ts";
import { python, pythonWith } from "../support/python.ts";
import { findProgram } from "../support/server-programs.ts";
import { suiteStack, temporaryFolder } from "../support/stack.ts";
import { type System, startSystem } from "../support/system.ts";

const [java, javac, maven, go] = ["java", "javac", "mvn", "go"].map((name) => findProgram([name]));
const openApiGenerator = "openapi-generator-cli:7.17.0";
const openApiPythonClient = "openapi-python-client==0.29.0";
const timeoutMs = 600_000;
const id = 9223372036854775807n;

const stack = suiteStack();
let folder: string;
let system: System;
let orders: string;

beforeAll(async () => {
  const temporary = await temporaryFolder("foreign-clients");
  stack.defer(() => temporary.remove());
  folder = temporary.path;
  const seed = [1001n, id].map((petId) => ({ petId, quantity: 5, status: "available" as const }));
  system = await startSystem({ seed });
  stack.defer(() => system.close());
  const { text } = await request(system.address, { path: "/openapi.json" });
  await writeFile(join(folder, "openapi.json"), text);
  const headers = { authorization: `Bearer ${system.keys.enterprise}` };
  const sent = await request(system.address, { path: "/v1/store/orders", headers });
  const ids = [...sent.text.matchAll(/"id":(\d+),"petId":(\d+)/g)];
  orders = `${ids.length} ${ids.at(-1)![1]} ${ids.at(-1)![2]}`;
});

/** @returns what the program printed; a failure shows that, too */
async function run(program: string, args: readonly string[], { cwd = folder, env = {} } = {}): Promise<string> {
  const { PATH, HOME } = process.env;
  const ran = promisify(execFile)(program, args, { cwd, env: { PATH, HOME, ...env }, maxBuffer: 1e8 });
  return (await ran.catch(({ message, stdout }) => Promise.reject(new Error(`${message}\n${stdout}`.slice(0, 3_000)))))
    .stdout;
}

/** Runs openapi-generator, which Maven brings. @returns the folder of the client */
async function generate(generator: string, ...options: readonly string[]): Promise<string> {
  const jar = join(folder, openApiGenerator.replace(":", "-"));
  const artifact = `-Dartifact=org.openapitools:${openApiGenerator}`;
  await run(maven!, ["-q", "-B", "dependency:copy", artifact, `-DoutputDirectory=${folder}`]);
  const out = join(folder, generator);
  await run(java!, ["-jar", `${jar}.jar`, "generate", "-g", generator, "-i", "openapi.json", "-o", out, ...options]);
  return out;
}

/** What each program prints that uses a client. */
async function expectToWork(program: string, args: readonly string[], cwd: string): Promise<void> {
  const { key } = await system.issueKey({ plan: "pro" });
  await request(system.address, {
    method: "PATCH",
    path: `/v1/inventory/${id}`,
    headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
    body: '{"quantity":5}', // an update that changes nothing leaves no trace in the history
  });
  const printed = await run(program, args, { cwd, env: { API: `http://${system.address}/v1`, KEY: key } });
  expect(printed.trim().split("\n")).toEqual([
    `list 1001 ${id}`,
    `update ${id} 7 available`,
    `bulk ${id} 9 ${id - 1n} not_found`,
    `adjust ${id} 7`,
    "history adjust:7 set:9 set:7",
    "rate_limit pro minute day",
    "usage 60",
    `orders ${orders}`,
    "error not_found",
  ]);
}

const programOf = (name: string) => join(import.meta.dirname, "foreign", name);
const testWhere = (...programs: readonly (string | undefined)[]) => (programs.includes(undefined) ? test.skip : test);

testWhere(java, javac, maven)(
  "the Java client of openapi-generator compiles and does everything, with exact ids",
  async () => {
    const client = await generate("java", "--additional-properties", "disallowAdditionalPropertiesIfNotPresent=false");
    await run(maven!, ["-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=lib"], { cwd: client });
    await copyFile(programOf("Shop.java"), join(client, "src/main/java/Shop.java"));
    const files = await readdir(join(client, "src/main/java"), { recursive: true });
    const sources = files.filter((file) => file.endsWith(".java")).map((file) => join("src/main/java", file));
    await mkdir(join(client, "classes"));
    await run(javac!, ["-nowarn", "-d", "classes", "-cp", "lib/*", ...sources], { cwd: client });
    await expectToWork(java!, ["-cp", "classes:lib/*", "Shop"], client);
  },
  timeoutMs,
);

testWhere(java, maven, python)(
  "the Python client of openapi-generator does everything, with exact ids",
  async () => {
    const client = await generate("python");
    const bin = await pythonWith("urllib3==2.5.0", "python-dateutil==2.9.0.post0", "pydantic==2.12.3");
    await copyFile(programOf("generated_python.py"), join(client, "generated_python.py"));
    await expectToWork(join(bin, "python"), ["generated_python.py"], client);
  },
  timeoutMs,
);

testWhere(java, maven, go)(
  "the Go client of openapi-generator compiles and does everything, with exact ids",
  async () => {
    const at = ["--git-host", "localhost", "--git-user-id", "petstore", "--git-repo-id", "client"];
    const client = await generate("go", ...at);
    await mkdir(join(client, "shop"));
    await copyFile(programOf("shop.go"), join(client, "shop/main.go"));
    await run(go!, ["build", "-mod=mod", "-o", "use-client", "./shop"], { cwd: client });
    await expectToWork(join(client, "use-client"), [], client);
  },
  timeoutMs,
);

testWhere(python)(
  "the client of openapi-python-client does everything, with exact ids",
  async () => {
    const bin = await pythonWith(openApiPythonClient);
    const output = join(folder, "python-client");
    await mkdir(output);
    const args = ["generate", "--path", "openapi.json", "--meta", "none", "--output-path", join(output, "petstore")];
    await run(join(bin, "python"), ["-m", "openapi_python_client", ...args]);
    await copyFile(programOf("python_client.py"), join(output, "python_client.py"));
    await expectToWork(join(bin, "python"), ["python_client.py"], output);
  },
  timeoutMs,
);
