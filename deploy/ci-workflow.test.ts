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

  test("is a workflow to GitHub's own parser, expressions included", async () => {
    expect(await faults(path, content)).toEqual([]);
    expect(await faults(path, content.replace("runs-on", "run-on"))).not.toEqual([]);
    expect(await faults(path, content.replace("matrix.name", "matrx.name"))).not.toEqual([]);
  });

  test("uses actions by the digest of a commit, and says which version that is", () => {
    const uses = content.match(/\buses:.*/g) ?? [];
    expect(uses.length).toBeGreaterThan(0);
    expect(uses.filter((line) => !/^uses: [\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$/.test(line))).toEqual([]);
    // One action has one version.
    const actions = new Set(uses.map((line) => line.replace("uses: ", "")));
    expect(new Set([...actions].map((action) => action.split("@")[0])).size).toBe(actions.size);
  });

  test("may read the sources and nothing else, and keeps no token", () => {
    expect(workflow.permissions).toEqual({ contents: "read" });
    expect(jobs.flatMap(([name, { permissions }]) => (permissions === undefined ? [] : name))).toEqual([]);
    expect(content).not.toMatch(/secrets\.|pull_request_target/);
    for (const { uses, with: inputs } of jobs.flatMap(([, { steps }]) => steps)) {
      if (uses?.startsWith("actions/checkout@")) expect(inputs).toMatchObject({ "persist-credentials": false });
    }
  });

  test("ends in time, and once for each branch", () => {
    for (const [name, job] of jobs) expect([name, job["timeout-minutes"]]).toEqual([name, expect.any(Number)]);
    expect(workflow.concurrency.group).toContain("github.ref");
  });

  test("runs scripts and files that are there", () => {
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

  test("puts no expression into a command, where it could become one", () => {
    expect(commands.filter((command) => command.includes("${{"))).toEqual([]);
  });

  test("uses of its matrix what the matrix has, and the variables that the tests read", () => {
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
