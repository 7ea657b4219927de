import { execFile } from "node:child_process";
import { mkdtemp, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { findProgram } from "../support/server-programs.ts";
import { suiteStack, temporaryFolder } from "../support/stack.ts";
import type { Operation } from "./history-file.ts";

const stack = suiteStack();
const go = findProgram(["go"]);
const timeoutMs = 10 * 60_000;
let folder: string;
beforeAll(async () => {
  const temporary = await temporaryFolder("prove");
  stack.defer(() => temporary.remove());
  folder = temporary.path;
});

/** Runs a program. @returns its exit code and its output */
async function run(program: string, args: readonly string[], cwd?: string) {
  const ran = promisify(execFile)(program, args, { cwd });
  return await ran.then(
    ({ stdout }) => ({ code: 0, stdout }),
    ({ code, stdout, stderr }) => ({ code, stdout: `${stdout}${stderr}` }),
  );
}

/** Runs the short form. @returns what is in its report */
async function prove(...args: readonly string[]) {
  const report = await mkdtemp(join(folder, "report-"));
  const { code, stdout } = await run(process.execPath, [
    "test/prove/prove.ts",
    "--minutes",
    "0.3",
    "--seed",
    "1", // new seeds are for those who look for faults: what they find is nobody's change
    "--report",
    report,
    ...args,
  ]);
  const read = (name: string) => readFile(join(report, name), "utf8");
  const history = await read("history.ndjson").catch(() => {
    throw new Error(stdout);
  });
  return { code, history, report: JSON.parse(await read("report.json")), html: await read("timeline.html") };
}

/** Has the other judge read a history. */
async function judgeByPorcupine(history: string) {
  const file = join(await mkdtemp(join(folder, "history-")), "history.ndjson");
  await writeFile(file, history);
  return await run(go!, ["run", ".", file], join(import.meta.dirname, "porcupine"));
}

describe("a proof of the sources as they are", () => {
  let proof: Awaited<ReturnType<typeof prove>>;
  beforeAll(async () => {
    proof = await prove();
  }, timeoutMs);

  test("it finds no broken promise, and says that it has checked too little for a verdict", () => {
    const { code, report, html, history } = proof;
    expect({ code, violations: report.violations }).toEqual({ code: 2, violations: [] });
    expect(report.verdict).toBe("too little to say anything");
    expect(report.simulated.runs).toBeGreaterThan(0);
    expect(report.processes.kills).toBeGreaterThan(0);
    const lines = history.trimEnd().split("\n");
    const operations = lines.filter((line) => !/"op":"(start|commit)"/.test(line)).map((line) => JSON.parse(line));
    expect(operations).toHaveLength(report.processes.operations);
    expect(operations.every(({ answer }) => /^200$|^50[34]$|[A-Z]/.test(answer))).toBe(true);
    expect(operations.filter(({ outcome }) => outcome === "unknown")).toHaveLength(report.processes.refused);
    expect(html).not.toMatch(/(src|href)=|url\(|@import/);
    expect(html.match(/class="kill"/g)).toHaveLength(report.processes.kills);
  });

  (go ? test : test.skip)(
    "Porcupine, a judge by others, agrees, and not when a read shows something older (needs Go)",
    async () => {
      expect(await judgeByPorcupine(proof.history)).toMatchObject({ code: 0 });
      const lines = proof.history.trimEnd().split("\n");
      const last = lines.findLastIndex((line) => (JSON.parse(line) as Operation).op === "list");
      const list = JSON.parse(lines[last]!) as Operation & { readonly entries: Record<string, number> };
      // What was there at first: no change sets it, so no order of the changes explains it at the end.
      const start = lines.map((line) => JSON.parse(line)).find(({ op }) => op === "start");
      const older = { ...list, entries: { ...list.entries, 1: start.entries[1] } };
      const { code, stdout } = await judgeByPorcupine(lines.with(last, JSON.stringify(older)).join("\n"));
      expect(code).toBe(1);
      expect(stdout).toContain("Illegal");
    },
    timeoutMs,
  );
});

test(
  "a proof of services that forget keys says which promise was broken",
  async () => {
    const { code, report, history } = await prove("--service", "test/faults/forgetful-service.ts");
    expect(code).toBe(1);
    expect(report.verdict).toBe("a promise was broken");
    expect(report.violations.join("\n")).toContain("a repeat of what got");
    if (go) expect(await judgeByPorcupine(history)).toMatchObject({ code: 1 });
  },
  timeoutMs,
);

test(
  "a proof of a gateway whose errors have no labels and no shape says so",
  async () => {
    const { code, report } = await prove("--gateway", "test/faults/broken-answers-gateway.ts");
    expect(code).toBe(1);
    expect(report.violations.join("\n")).toMatch(/500 without ratelimit/);
  },
  timeoutMs,
);
