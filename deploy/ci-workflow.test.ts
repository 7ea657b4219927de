import { existsSync, readdirSync, readFileSync } from "node:fs";
import { convertWorkflowTemplate, NoOperationTraceWriter, parseWorkflow } from "@actions/workflow-parser";
import { parse } from "yaml";

const root = new URL("..", import.meta.url);
const folder = ".github/workflows";
const workflows = readdirSync(new URL(folder, root)).map((name) => `${folder}/${name}`);
const read = (path: string) => readFileSync(new URL(path, root), "utf8");

describe.each(workflows)("%s", (path) => {
  const content = read(path);
  const workflow: Workflow = parse(content);
  const jobs = Object.entries(workflow.jobs);
  const commands = jobs.flatMap(([, job]) => job.steps.flatMap(({ run }) => run ?? []));

  test("GitHub's own parser accepts the workflow and its expressions", async () => {
    expect(await faults(path, content)).toEqual([]);
    expect(await faults(path, content.replace("runs-on", "run-on"))).not.toEqual([]);
    expect(await faults(path, content.replace("matrix.name", "matrx.name"))).not.toEqual([]);
  });

  test("every action is pinned to the digest of a commit, and a comment gives its version", () => {
    const uses = content.match(/\buses:.*/g) ?? [];
    expect(uses.length).toBeGreaterThan(0);
    expect(uses.filter((line) => !/^uses: [\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$/.test(line))).toEqual([]);
    // Every use of an action has the same version.
    const actions = new Set(uses.map((line) => line.replace("uses: ", "")));
    expect(new Set([...actions].map((action) => action.split("@")[0])).size).toBe(actions.size);
  });

  test("the workflow may only read the sources, and its checkouts keep no token", () => {
    expect(workflow.permissions).toEqual({ contents: "read" });
    expect(jobs.flatMap(([name, { permissions }]) => (permissions === undefined ? [] : name))).toEqual([]);
    expect(content).not.toMatch(/secrets\.|pull_request_target/);
    for (const { uses, with: inputs } of jobs.flatMap(([, { steps }]) => steps)) {
      if (uses?.startsWith("actions/checkout@")) expect(inputs).toMatchObject({ "persist-credentials": false });
    }
  });

  test("every job has a time limit, and runs of the same branch share a concurrency group", () => {
    for (const [name, job] of jobs) expect([name, job["timeout-minutes"]]).toEqual([name, expect.any(Number)]);
    expect(workflow.concurrency.group).toContain("github.ref");
  });

  test("every script and file that a command names exists", () => {
    const { scripts } = JSON.parse(read("package.json"));
    const named = commands.flatMap((command) =>
      [...command.matchAll(/npm (?:run )?(?!ci\b)([\w:-]+)/g)].map((m) => m[1]!),
    );
    expect(named.length).toBeGreaterThan(0);
    expect(named.filter((name) => !(name in scripts))).toEqual([]);
    const files = commands.flatMap((command) => command.match(/(?<![\w/])[\w.-]+\/[\w./-]+/g) ?? []);
    expect(files).toContain(".ci/run");
    expect(files.filter((file) => !existsSync(new URL(file, root)))).toEqual([]);
  });

  test("no command contains an expression, whose value could run as a command", () => {
    expect(commands.filter((command) => command.includes("${{"))).toEqual([]);
  });

  test("the keys of the matrix are the ones in use, and the tests read every TEST_ variable", () => {
    for (const [, { strategy }] of jobs) {
      if (strategy === undefined) continue;
      const keys = new Set(strategy.matrix.include.flatMap((entry) => Object.keys(entry)));
      const used = new Set([...content.matchAll(/\bmatrix\.(\w+)/g)].map((match) => match[1]!));
      expect([...used].sort()).toEqual([...keys].sort());
    }
    const support = read("test/support/database-server.ts");
    const variables = content.match(/\bTEST_\w+/g) ?? [];
    expect(variables.filter((name) => !support.includes(`process.env.${name}`))).toEqual([]);
  });
});

interface Step {
  readonly run?: string;
  readonly uses?: string;
  readonly with?: object;
}
interface Job {
  readonly steps: readonly Step[];
  readonly permissions?: object;
  readonly strategy?: { readonly matrix: { readonly include: readonly object[] } };
  readonly "timeout-minutes"?: number;
}
interface Workflow {
  readonly permissions: object;
  readonly concurrency: { readonly group: string };
  readonly jobs: Readonly<Record<string, Job>>;
}

async function faults(name: string, content: string): Promise<string[]> {
  const { context, value } = parseWorkflow({ name, content }, new NoOperationTraceWriter());
  if (value !== undefined) await convertWorkflowTemplate(context, value);
  return context.errors.getErrors().map(({ message }) => message);
}
