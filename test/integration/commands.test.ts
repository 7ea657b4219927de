import { execFile, spawn } from "node:child_process";
import { symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { runScript } from "../support/processes.ts";
import { suiteStack, type TemporaryFolder, temporaryFolder } from "../support/stack.ts";

const run = promisify(execFile);
const root = join(import.meta.dirname, "../..");

/** Every command of operators: its name in `npm run`, its script and its name in the package. */
const commands = [
  ["gateway", "gateway/main.ts", "petstore-gateway"],
  ["inventory-svc", "inventory-svc/main.ts", "petstore-inventory-svc"],
  ["keys", "gateway/accounts/cli/keys.ts", "petstore-keys"],
  ["migrate", "deploy/migrate.ts", "petstore-migrate"],
  ["stock", "inventory-svc/cli/stock.ts", "petstore-stock"],
] as const;

describe.each([...commands, ["start", "deploy/local/start.ts", undefined] as const])(
  "npm run %s",
  (name, script, bin) => {
    const stack = suiteStack();
    let folder: TemporaryFolder;
    beforeAll(async () => {
      folder = await temporaryFolder("commands");
      stack.defer(() => folder.remove());
    });

    test(`npm run ${name} says its version`, async () => {
      const { version } = (await import("../../package.json", { with: { type: "json" } })).default;
      expect(await runScript({ script, args: ["--version"] })).toEqual({ code: 0, stdout: `${version}\n`, stderr: "" });
    });

    test.each([[["--port", "3"]], [["surplus"]]])(
      `npm run ${name} refuses the unknown arguments %j with exit code 64`,
      async (args) => {
        const { code, stdout, stderr } = await runScript({ script, args });
        expect({ code, stdout }).toEqual({ code: 64, stdout: "" });
        expect(stderr).toMatch(/^error: (unknown|too many)[^\n]+\n$/);
      },
    );

    test(`npm run ${name} shows the usage of the command that was called`, async () => {
      const usageOf = async (options: Parameters<typeof runScript>[0]) =>
        /^Usage: (.*?) \[/.exec((await runScript({ ...options, args: ["--help"] })).stdout)?.[1];
      const called = name === "start" ? "npm start --" : `npm run ${name} --`;
      expect(await usageOf({ script, env: { npm_lifecycle_event: name } })).toBe(called);
      expect(await usageOf({ script, cwd: root })).toBe(`node ${script}`);
      if (bin === undefined) return;
      await symlink(join(root, script), join(folder.path, bin));
      expect(await usageOf({ script: join(folder.path, bin), env: { npm_lifecycle_event: "deploy" } })).toBe(bin);
    });
  },
);

test.each(["bench/bench.ts", "mutants/mutants.ts"])(
  "test/%s refuses unknown arguments with exit code 64",
  async (script) => {
    const { code, stderr } = await runScript({ script: `test/${script}`, args: ["--surplus"], cwd: root });
    expect({ code, stderr }).toEqual({ code: 64, stderr: "error: unknown option '--surplus'\n" });
  },
);

test("npm run bench -- --only client --json measures this part alone, and prints only JSON", async () => {
  const args = ["--only", "client", "--json"];
  const { code, stdout, stderr } = await runScript({ script: "test/bench/bench.ts", args, cwd: root });
  expect({ code, stderr }).toEqual({ code: 0, stderr: expect.stringMatching(/^Reading a list .*\n( {2}.*\n){2}$/) });
  const { client, ...others } = JSON.parse(stdout);
  const figures = { jsonParseMs: expect.any(Number), exactMs: expect.any(Number) };
  expect(client).toEqual(["of 4 digits", "random"].map((ids) => ({ ids, ...figures })));
  expect(Object.values(others).flat()).toEqual([]);
});

describe("readers that leave", () => {
  const stack = suiteStack();
  let cwd: string;
  beforeAll(async () => {
    const folder = await temporaryFolder("reader");
    stack.defer(() => folder.remove());
    cwd = folder.path;
  });

  test.each([
    ["migrate", "deploy/migrate.ts"],
    ["keys list", "gateway/accounts/cli/keys.ts list"],
    ["keys usage as JSON", "gateway/accounts/cli/keys.ts usage --json"],
    ["stock export", "inventory-svc/cli/stock.ts export"],
  ])("a reader that leaves is no fault of a command: %s", async (_what, line) => {
    const command = `set -o pipefail; "${process.execPath}" "${root}"/${line} | true`;
    const { stdout, stderr } = await run("bash", ["--norc", "-c", command], { cwd, env: { PATH: process.env.PATH } });
    expect({ stdout, stderr }).toEqual({ stdout: "", stderr: "" });
  });

  test("npm run migrate takes the steps of both schemas although its reader leaves", async () => {
    const { stdout } = await runScript({ script: "deploy/migrate.ts", cwd });
    expect(stdout).toBe("gateway: nothing to do\ninventory: nothing to do\n");
  });
});

describe("terminals", () => {
  const stack = suiteStack();
  let cwd: string;
  beforeAll(async () => {
    const folder = await temporaryFolder("terminal");
    stack.defer(() => folder.remove());
    cwd = folder.path;
    await runScript({ script: "deploy/migrate.ts", cwd });
  });
  const clear = "\r\u001b[K";
  /**
   * Runs a script on a terminal, and presses Ctrl-C when it has shown `untilShown`.
   * @returns what it shows there, with `<clear>` where it clears the line
   */
  async function shown(
    script: string,
    args: string,
    env: NodeJS.ProcessEnv = {},
    untilShown?: string,
  ): Promise<string> {
    const line = `"${process.execPath}" "${join(root, script)}" ${args}`;
    const terminal = spawn("script", ["-qec", line, "/dev/null"], {
      cwd,
      env: { PATH: process.env.PATH, TERM: "xterm-256color", ...env },
      stdio: ["pipe", "pipe", "inherit"],
    });
    stack.defer(() => void terminal.kill("SIGKILL"));
    let output = "";
    let isAwaited = untilShown !== undefined;
    for await (const chunk of terminal.stdout) {
      output += chunk;
      if (!isAwaited || !output.includes(untilShown!)) continue;
      isAwaited = false;
      terminal.stdin.write("\x03");
    }
    return output.replaceAll(clear, "<clear>");
  }
  const stock = (args: string) => shown("inventory-svc/cli/stock.ts", args);

  test("a command shows the progress of an import, its check and an export, then clears it", async () => {
    const lines = Array.from({ length: 50_000 }, (_, i) => `${i},1,sold\n`).join("");
    await writeFile(join(cwd, "in.csv"), `petId,quantity,status\n${lines}`);
    const imported = await stock("import in.csv");
    expect(imported).toMatch(/<clear>[\d,]+ lines checked<clear>/);
    expect(imported).toMatch(/<clear>[\d,]+ entries imported<clear>50000 entries imported\r\n$/);
    expect(await stock("export out.csv")).toMatch(/<clear>[\d,]+ entries read<clear>50000 entries exported\r\n$/);
    expect(await stock("export")).not.toContain("<clear>");
  });

  test("a service names its tier in each line of the log, in color unless NO_COLOR is set", async () => {
    const addresses = {
      INVENTORY_LISTEN: "127.0.0.1:0",
      INVENTORY_ADMIN_LISTEN: "127.0.0.1:0",
      DRAIN_DELAY_SECONDS: "0",
    };
    const log = (env: NodeJS.ProcessEnv) =>
      shown(
        "inventory-svc/main.ts",
        "",
        { ...addresses, INVENTORY_DATABASE_URL: "sqlite:new", ...env },
        "not ready yet",
      );
    const colored = await log({});
    expect(colored).toMatch(/INFO.*\(inventory-svc\).*draining/);
    expect(colored).toContain("\u001b[");
    const plain = await log({ NO_COLOR: "1" });
    expect(plain).toMatch(/INFO \(inventory-svc\): draining/);
    expect(plain).not.toContain("\u001b[");
  });
});
