import { execFile } from "node:child_process";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { serverProgram } from "../test/support/server-programs.ts";
import { suiteStack, temporaryFolder } from "../test/support/stack.ts";

const run = promisify(execFile);
const root = join(import.meta.dirname, "..");

describe.each(["gateway", "inventory-svc"])("the unit of %s for systemd", (tier) => {
  const stack = suiteStack();
  const file = `petstore-${tier}.service`;
  let text: string;
  const settingOf = (name: string) => new RegExp(`^${name}=(.*)$`, "m").exec(text)?.[1] ?? "";

  beforeAll(async () => {
    text = await readFile(join(root, "deploy/systemd", file), "utf8");
  });

  test(`the systemd unit of ${tier} is valid, and its command is there`, async () => {
    const folder = await temporaryFolder("systemd");
    stack.defer(() => folder.remove());
    const path = join(folder.path, file);
    await writeFile(path, text.replaceAll("/opt/petstore-inventory", root));
    const { stdout, stderr } = await run(await serverProgram("systemd"), ["verify", "--man=no", path]);
    // Faults of other units of this machine are reported too.
    expect((stdout + stderr).split("\n").filter((line) => line.includes(file))).toEqual([]);
  });

  test("the unit signals only the process that drains, and gives it longer than it takes", () => {
    expect(settingOf("KillMode")).toBe("mixed");
    expect(settingOf("KillSignal")).toBe(""); // SIGTERM
    expect(Number(settingOf("TimeoutStopSec"))).toBeGreaterThan(15); // the default of DRAIN_SECONDS
    expect(settingOf("ExecStart")).not.toContain("npm");
  });

  test(`the systemd unit of ${tier} lets journald drop no line, however many there are`, () => {
    expect(settingOf("LogRateLimitIntervalSec")).toBe("0");
  });

  test(`the systemd unit of ${tier} does not restart it after wrong usage and wrong settings`, () => {
    expect(settingOf("Restart")).toBe("on-failure");
    expect(settingOf("RestartPreventExitStatus").split(" ")).toEqual(["64", "78"]);
  });

  test(`the systemd unit of ${tier} runs the command of npm run, and it starts`, async () => {
    const { scripts } = JSON.parse(await readFile(join(root, "package.json"), "utf8"));
    const command = settingOf("ExecStart").replace("/opt/petstore-inventory/node_modules/.bin/", "exec ");
    expect(command).toBe(scripts[tier]);
    const [program, ...args] = settingOf("ExecStart").replaceAll("/opt/petstore-inventory", root).split(" ");
    expect((await run(program!, [...args, "--help"], { cwd: root })).stdout).toContain("DRAIN_SECONDS");
  });
});
