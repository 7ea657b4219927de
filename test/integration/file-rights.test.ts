// What an operator sees when files belong to another user than the one that runs the processes.
import { execFile } from "node:child_process";
import { chmod, mkdir, writeFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { type Child, startChild } from "../support/children.ts";
import { suiteStack, temporaryFolder } from "../support/stack.ts";

const root = resolve(import.meta.dirname, "../..");
/** Holds a process to the rights that files give: root passes by them with two capabilities. */
const held = process.getuid?.() === 0 ? ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] : [];
const user = process.getuid?.();
const anyPort = "127.0.0.1:0";
const stack = suiteStack();
const timeoutMs = 300_000; // each test starts several processes one after the other
let folder: string;
let env: Record<string, string>;

beforeEach(async () => {
  const temporary = await temporaryFolder("rights");
  stack.defer(() => temporary.remove());
  folder = temporary.path;
  await mkdir(join(folder, "data"));
  env = {
    PATH: process.env.PATH!,
    GATEWAY_DATABASE_URL: `sqlite:${folder}/data/gateway.sqlite`,
    INVENTORY_DATABASE_URL: `sqlite:${folder}/data/inventory.sqlite`,
    KEY_PEPPER: "x".repeat(32),
    GATEWAY_LISTEN: anyPort,
    GATEWAY_ADMIN_LISTEN: anyPort,
    INVENTORY_LISTEN: anyPort,
    INVENTORY_ADMIN_LISTEN: anyPort,
    DRAIN_DELAY_SECONDS: "0",
  };
});

const commandOf = (script: string): [program: string, ...args: string[]] => {
  const [program, ...args] = [...held, process.execPath, join(root, script)];
  return [program!, ...args];
};

async function run(script: string, ...args: string[]) {
  const [program, ...before] = commandOf(script);
  return await new Promise((done) => {
    execFile(program, [...before, ...args], { cwd: folder, env }, (error, stdout, stderr) =>
      done({ code: error === null ? 0 : error.code, stdout, stderr }),
    );
  });
}

test.each([
  ["gateway", "GATEWAY_DATABASE_URL (gateway)"],
  ["inventory-svc", "INVENTORY_DATABASE_URL (inventory-svc)"],
])(
  "%s is not ready while it may not write its SQLite file, and says why",
  async (tier, setting) => {
    expect(await run("deploy/migrate.ts")).toMatchObject({ code: 0 });
    const file = join(folder, "data", tier === "gateway" ? "gateway.sqlite" : "inventory.sqlite");
    await chmod(file, 0o444);
    const [program, ...args] = commandOf(`${tier}/main.ts`);
    const child: Child = startChild(program, args, { name: tier, cwd: folder, env });
    stack.defer(() => child.kill("SIGKILL"));
    const first = await child.waitForLine(
      (line) => (/"msg":"(ready|not ready yet)/.test(line) ? line : undefined),
      60_000,
    );
    expect(JSON.parse(first).reason).toMatch(
      `${setting}: this process of user ${user} cannot write ${file}: it is of user ${user} with mode 0444. Give`,
    );
    await chmod(file, 0o600);
    // The gateway then waits for the inventory service, which is not here.
    const next = tier === "gateway" ? /"reason":"INVENTORY_ADDRESS/ : /"msg":"ready"/;
    await child.waitForLine((line) => (next.test(line) ? line : undefined), 60_000);
  },
  timeoutMs,
);

test(
  "commands name the folder of a SQLite file in which they may not write",
  async () => {
    expect(await run("deploy/migrate.ts")).toMatchObject({ code: 0 });
    await chmod(join(folder, "data"), 0o555);
    const said = `this process of user ${user} cannot write ${folder}/data: it is of user ${user} with mode 0555. Give`;
    for (const [script, ...args] of [
      ["deploy/migrate.ts"],
      ["inventory-svc/cli/stock.ts", "import", "--generate", "1"],
      ["gateway/accounts/cli/keys.ts", "list"],
    ] as const) {
      expect(await run(script, ...args)).toEqual({ code: 1, stdout: "", stderr: expect.stringContaining(said) });
    }
  },
  timeoutMs,
);

test(
  "commands name a SQLite file whose folder they may not enter, and do not call it missing",
  async () => {
    expect(await run("deploy/migrate.ts")).toMatchObject({ code: 0 });
    await chmod(join(folder, "data"), 0);
    const said = `this process of user ${user} may not enter the folder of ${folder}/data/inventory.sqlite. Give`;
    for (const command of ["export", "restored"]) {
      const stderr = expect.stringContaining(said);
      expect(await run("inventory-svc/cli/stock.ts", command)).toEqual({ code: 1, stdout: "", stderr });
    }
  },
  timeoutMs,
);

test(
  "a .env that this user cannot read is named, and ends with exit code 78",
  async () => {
    await writeFile(join(folder, ".env"), "LOG_LEVEL=debug\n", { mode: 0 });
    for (const script of ["gateway/main.ts", "inventory-svc/main.ts", "deploy/migrate.ts"]) {
      const stderr = expect.stringMatching(/\.env in \S+: this user cannot read it \(EACCES\)\n$/);
      expect(await run(script)).toEqual({ code: 78, stdout: "", stderr });
    }
  },
  timeoutMs,
);
