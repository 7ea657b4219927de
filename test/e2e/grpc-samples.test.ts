// The programs in Python and Go of docs/internal-grpc.md, against a service with TLS. A language that is missing is
// skipped by its name.
import { execFile } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { copyFile, mkdir, rm, symlink, writeFile } from "node:fs/promises";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
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
let way: Way;

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
  way = await startWay();
});

const port = () => system.inventory.listen.split(":")[1];

/** The way of a sample to the service. */
interface Way {
  readonly port: number;
  /** Breaks the connection at the caller's next bytes, and keeps these. It resolves once that has happened. */
  cutNext(): Promise<void>;
  /** Delivers what was kept. */
  deliver(): void;
  /** Lets nothing more through on the connections there are, and breaks none. */
  silence(): void;
}

async function startWay(): Promise<Way> {
  const sockets = new Set<Socket>();
  const kept: (() => void)[] = [];
  let onCut: (() => void) | undefined;
  const server = createServer((caller) => {
    const target = connect(Number(port()), "127.0.0.1");
    for (const socket of [caller, target]) sockets.add(socket.on("error", () => {}));
    let isKept: (() => void) | undefined;
    caller.on("data", (bytes) => {
      isKept ??= onCut;
      onCut = undefined;
      if (!isKept) return target.write(bytes);
      kept.push(() => target.write(bytes));
      setTimeout(() => caller.destroy(), 200); // the rest of the call is there, too
    });
    target.on("data", (bytes) => caller.write(bytes));
    caller.on("close", () => (isKept ? isKept() : target.destroy()));
    target.on("close", () => caller.destroy());
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  stack.defer(() => {
    server.close();
    for (const socket of sockets) socket.destroy();
  });
  return {
    port: (server.address() as AddressInfo).port,
    cutNext: () =>
      new Promise((resolve) => {
        onCut = resolve;
      }),
    deliver: () => {
      for (const write of kept.splice(0)) write();
    },
    silence: () => {
      for (const socket of sockets) socket.removeAllListeners("data").on("data", () => {});
    },
  };
}

/** Has a sample take only once this file is there. */
const takeFile = () => join(folder, "may-take");
const waitsForFile = (language: string) =>
  language === "go"
    ? `for _, err := os.Stat("${takeFile()}"); err != nil; _, err = os.Stat("${takeFile()}") {}; if adjusted := adjust(`
    : `import os\nwhile not os.path.exists("${takeFile()}"): time.sleep(0.01)\nadjusted = adjust(`;

/**
 * A program of the page, with the address and the files of this test in it, and with 15 s for an attempt: a test that
 * waits in that time may be slow.
 */
const programIn = (language: string) =>
  new RegExp(`\`\`\`${language}\n(.*?)\`\`\``, "s")
    .exec(page)![1]!
    .replace("inventory-svc.example:50051", `localhost:${way.port}`)
    .replaceAll("/tls/", `${folder}/`)
    .replace(/^ *(?:if adjusted :=|adjusted =) adjust\(/m, waitsForFile(language))
    .replace(/\+ 5$/m, "+ 15")
    .replace("timeout=5)", "timeout=15)")
    .replace("Add(5 *", "Add(15 *");

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

/**
 * Runs a program twice: with enough of the pet and with too little. Both times it sees a change of another caller. In
 * a third run its attempt gets lost and arrives late, and its connection dies without an end.
 */
async function expectToWork(program: string, args: readonly string[], cwd: string, env: NodeJS.ProcessEnv) {
  const shop = createInventoryClient({ address: `localhost:${port()}`, tls });
  const start = () => {
    const child = startChild(program, args, { name: "the sample", cwd, env });
    stack.defer(() => child.kill("SIGKILL"));
    return child;
  };
  try {
    await writeFile(takeFile(), "");
    for (const [quantity, expected] of [
      [4, /^left: 1$/m],
      [2, /^(FAILED_PRECONDITION|FailedPrecondition) INSUFFICIENT_STOCK .*quantity'?: ?'?2/m],
    ] as const) {
      await shop.update({ petId: 1001n, quantity });
      await shop.update({ petId: 9223372036854775807n, quantity: 1 });
      const child = start();
      await child.waitForLine((line) => expected.test(line) || undefined, 120_000);
      expect(child.output()).toContain("2 entries");
      await shop.update({ petId: 9223372036854775807n, quantity: 9 });
      await child.waitForLine((line) => line === "changed: 9223372036854775807 9" || undefined, 20_000);
      await child.kill("SIGKILL");
    }
    await rm(takeFile());
    const child = start();
    await child.waitForLine((line) => line === "2 entries" || undefined, 120_000);
    const isCut = way.cutNext();
    await writeFile(takeFile(), "");
    await isCut;
    const refused = child.waitForLine((line) => line.includes("INSUFFICIENT_STOCK") || undefined, 3_000);
    await expect(refused).rejects.toThrow("was not ready");
    await shop.update({ petId: 1001n, quantity: 4 });
    way.deliver();
    await child.waitForLine((line) => line === "left: 1" || undefined, 60_000);
    expect(await shop.get(1001n)).toMatchObject({ quantity: 1 });
    way.silence();
    await shop.update({ petId: 9223372036854775807n, quantity: 8 });
    await child.waitForLine((line) => line === "changed: 9223372036854775807 8" || undefined, 60_000);
    await child.kill("SIGKILL");
  } finally {
    shop.close();
  }
}

const testWhere = (program: string | undefined) => (program === undefined ? test.skip : test);

testWhere(python)(
  "the sample in Python takes, is told why it is refused, and follows the stock through losses",
  async () => {
    const bin = await pythonWith(.../pip install (.*)/.exec(pythonLines!)![1]!.split(" "));
    const cwd = join(folder, "stock");
    const clone = await workFolder("python");
    const env = withPath(bin);
    await promisify(execFile)("sh", ["-ec", pythonLines!.replace(/^pip .*\n/, "")], { cwd: clone, env });
    await writeFile(join(cwd, "sample.py"), programIn("python"));
    await expectToWork(join(bin, "python"), ["sample.py"], cwd, env);
  },
  timeoutMs,
);

testWhere(go)(
  "the sample in Go takes, is told why it is refused, and follows the stock through losses",
  async () => {
    const cwd = await workFolder("go");
    const env = { ...withPath(join(folder, "bin"), join(root, "node_modules/.bin")), GOBIN: join(folder, "bin") };
    const options = { cwd, env, maxBuffer: 1e8 };
    await promisify(execFile)("sh", ["-ec", goLines!.replace("npx buf", "buf")], options);
    const module = join(folder, "petstore-go");
    await writeFile(join(module, "go.mod"), "module petstore\n\ngo 1.24\n");
    await writeFile(join(module, "main.go"), programIn("go"));
    expect(runLines).toBe("go mod tidy\ngo run .\n");
    await promisify(execFile)("sh", ["-ec", "go mod tidy && go build -o sample ."], { ...options, cwd: module });
    await expectToWork(join(module, "sample"), [], module, env);
  },
  timeoutMs,
);
