// Upgrades: the suites of the version before, while one of its tiers or only the schemas are of this one.
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { startChild } from "../support/children.ts";
import { temporaryFolder } from "../support/stack.ts";

/** The version that this one replaces: the last released commit. It moves with each release. */
const versionBefore = readFileSync(join(import.meta.dirname, "version-before"), "utf8").trim();
const root = resolve(import.meta.dirname, "../..");
const git = (...args: readonly string[]) => execFileSync("git", args, { cwd: root, encoding: "utf8", stdio: "pipe" });

/** `npm run test:versions` runs the long version: the whole contract suite. */
const contract =
  process.env.FAULTS === "long"
    ? ["test/contract"]
    : ["test/contract/list-inventory", "test/contract/update-inventory"];
const suites = [...contract, "test/faults/history"];

/** Without the history of the repository, as in an archive or a shallow clone, there is no version before. */
const isKept = (() => {
  try {
    return git("cat-file", "-t", versionBefore).trim() === "commit";
  } catch {
    return false;
  }
})();

(isKept ? describe : describe.skip)(`the version before (${versionBefore.slice(0, 7)})`, () => {
  let folder: Awaited<ReturnType<typeof temporaryFolder>>;

  beforeAll(async () => {
    folder = await temporaryFolder("version-before");
    execFileSync("sh", ["-c", `git archive ${versionBefore} | tar -x -C "$0"`, folder.path], { cwd: root });
    const lock = (of: string) => readFileSync(join(of, "package-lock.json"), "utf8");
    if (lock(folder.path) === lock(root)) await run("cp", ["-a", join(root, "node_modules"), folder.path], {});
    else await run("npm", ["ci"], {});
  }, 300_000);

  afterAll(() => folder.remove());

  test.each([
    ["runs on the schemas of this one", "deploy"],
    ["serves the public with the inventory service of this one", "deploy,inventory-svc"],
    ["answers the gateways of this one", "deploy,gateway"],
  ])(
    "%s, and keeps its contract through kills",
    async (_how, tiers) => {
      const output = await run("npm", ["test", "--", ...suites, "--testNamePattern", "^(?!.*finds it when)"], {
        LATER_VERSION: root,
        LATER_TIERS: tiers,
      });
      console.info(output.slice(output.lastIndexOf("Test Suites:")));
    },
    3_600_000,
  );

  async function run(command: string, args: readonly string[], env: NodeJS.ProcessEnv): Promise<string> {
    const { FAULTS: _, ...others } = process.env;
    const child = startChild(command, args, {
      name: "the version before",
      cwd: folder.path,
      env: { ...others, ...env },
    });
    const code = await child.exited;
    if (code !== 0) throw new Error(child.output());
    return child.output();
  }
});
