// The programs in Python and Go of docs/internal-grpc.md, against a service with TLS. A language that is missing is
// skipped by its name.
import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { copyFile, mkdir, symlink, writeFile } from "node:fs/promises";
import { delimiter, join, resolve } from "node:path";
import { promisify } from "node:util";
import { ChannelCredentials } from "@grpc/grpc-js";
import { createInventoryClient } from "../../client/index.ts";
import type { TlsFiles } from "../../runtime/tls-files.ts";
import { createAuthority } from "../support/certificates.ts";
import { startChild } from "../support/children.ts";
import { python, pythonWith } from "../support/python.ts";
import { findProgram } from "../support/server-programs.ts";
import { suiteStack, temporaryFolder } from "../support/stack.ts";
import { type System, startSystem } from "../support/system.ts";

const root = resolve(import.meta.dirname, "../..");
const page = readFileSync(join(root, "docs/internal-grpc.md"), "utf8").split("## From Python and Go")[1]!;
const [pythonLines, goLines, runLines] = [...page.matchAll(/```sh\n(.*?)```/gs)].map(([, lines]) => lines!);
const go = findProgram(["go"]);
const timeoutMs = 600_000;

const stack = suiteStack();
let folder: string;
let system: System;
let tls: TlsFiles;

beforeAll(async () => {
  const temporary = await temporaryFolder("grpc-samples");
  stack.defer(() => temporary.remove());
  folder = temporary.path;
  const authority = await createAuthority(stack);
  const server = await authority.issue({ names: ["DNS:localhost"] });
  tls = await authority.issue({ names: ["DNS:shop.internal"] });
  for (const [name, file] of [
    ["ca.crt", tls.ca],
    ["tls.key", tls.key],
    ["tls.crt", tls.cert],
  ] as const) {
    await copyFile(file, join(folder, name));
  }
  system = await startSystem({
    seed: [1001n, 9223372036854775807n].map((petId) => ({ petId, quantity: 4, status: "available" })),
    gateways: 0,
    inventoryEnv: {
      INVENTORY_TLS_CERT: server.cert,
      INVENTORY_TLS_KEY: server.key,
      INVENTORY_TLS_CLIENT_CA: authority.ca,
      INVENTORY_TLS_ROLES: "dns:shop.internal=writer",
    },
    clientCredentials: ChannelCredentials.createSsl(
      readFileSync(tls.ca),
      readFileSync(tls.key),
      readFileSync(tls.cert),
    ),
  });
  stack.defer(() => system.close());
});

const port = () => system.inventory.listen.split(":")[1];

/** A program of the page, with the address and the files of this test in it. */
const programIn = (language: string) =>
  new RegExp(`\`\`\`${language}\n(.*?)\`\`\``, "s")
    .exec(page)![1]!
    .replace("inventory-svc.example:50051", `localhost:${port()}`)
    .replaceAll("/tls/", `${folder}/`);

/** Makes a folder in which the lines of the page find the contract. */
async function workFolder(name: string): Promise<string> {
  const path = join(folder, name);
  await mkdir(path);
  await symlink(join(root, "proto"), join(path, "proto"));
  return path;
}

const withPath = (...folders: readonly string[]) => ({
  HOME: process.env.HOME,
  PYTHONUNBUFFERED: "1",
  PATH: [...folders, process.env.PATH].join(delimiter),
});

/** Runs a program twice: with enough of the pet and with too little. Both times it sees a change of another caller. */
async function expectToWork(program: string, args: readonly string[], cwd: string, env: NodeJS.ProcessEnv) {
  const shop = createInventoryClient({ address: `localhost:${port()}`, tls });
  try {
    for (const [quantity, expected] of [
      [4, /^left: 1$/m],
      [2, /^(FAILED_PRECONDITION|FailedPrecondition) INSUFFICIENT_STOCK .*quantity'?: ?'?2/m],
    ] as const) {
      await shop.update({ petId: 1001n, quantity });
      await shop.update({ petId: 9223372036854775807n, quantity: 1 });
      const child = startChild(program, args, { name: "the sample", cwd, env });
      stack.defer(() => child.kill("SIGKILL"));
      await child.waitForLine((line) => expected.test(line) || undefined, 120_000);
      expect(child.output()).toContain("2 entries");
      await shop.update({ petId: 9223372036854775807n, quantity: 9 });
      await child.waitForLine((line) => line === "changed: 9223372036854775807 9" || undefined, 20_000);
      await child.kill("SIGKILL");
    }
  } finally {
    shop.close();
  }
}

const testWhere = (program: string | undefined) => (program === undefined ? test.skip : test);

testWhere(python)(
  "the sample in Python takes, is told why it is refused, and follows the stock",
  async () => {
    const bin = await pythonWith(.../pip install (.*)/.exec(pythonLines!)![1]!.split(" "));
    const cwd = await workFolder("python");
    const env = withPath(bin);
    await promisify(execFile)("sh", ["-ec", pythonLines!.replace(/^pip .*\n/, "")], { cwd, env });
    await writeFile(join(cwd, "sample.py"), programIn("python"));
    await expectToWork(join(bin, "python"), ["sample.py"], cwd, env);
  },
  timeoutMs,
);

testWhere(go)(
  "the sample in Go takes, is told why it is refused, and follows the stock",
  async () => {
    const cwd = await workFolder("go");
    const env = { ...withPath(join(folder, "bin"), join(root, "node_modules/.bin")), GOBIN: join(folder, "bin") };
    const options = { cwd, env, maxBuffer: 1e8 };
    await promisify(execFile)("sh", ["-ec", goLines!.replace("npx buf", "buf")], options);
    const module = join(cwd, "petstore");
    await writeFile(join(module, "go.mod"), "module petstore\n\ngo 1.24\n");
    await writeFile(join(module, "main.go"), programIn("go"));
    expect(runLines).toBe("go mod tidy\ngo run .\n");
    await promisify(execFile)("sh", ["-ec", "go mod tidy && go build -o sample ."], { ...options, cwd: module });
    await expectToWork(join(module, "sample"), [], module, env);
  },
  timeoutMs,
);
