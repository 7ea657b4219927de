import { execFile } from "node:child_process";
import { constants } from "node:fs";
import { copyFile, mkdir, readdir, readFile } from "node:fs/promises";
import { basename, dirname, join, matchesGlob, relative } from "node:path";
import { promisify } from "node:util";
import { type Copy, DockerfileParser, type Env, type From, type Instruction } from "dockerfile-ast";

const run = promisify(execFile);

/** A target of the Dockerfile. */
export interface Image {
  /** The folder that is its root directory. */
  readonly root: string;
  readonly env: Readonly<Record<string, string>>;
  readonly entrypoint: readonly string[];
  readonly healthcheck: readonly string[];
  readonly user: string;
}

interface Stage extends Image {
  readonly workdir: string;
}

/**
 * Runs the steps of a Dockerfile without Docker: COPY with its .dockerignore, and RUN with the programs of this
 * machine.
 *
 * @param context the folder with the Dockerfile
 * @param targets the stages to make, together with the stages that these need
 * @param folder gets a folder for each stage; on the same file system as `base`
 * @param base a folder that stands for the base image
 * @param instead shell commands in place of some RUN commands, by these
 */
export async function makeImages<Target extends string>(
  context: string,
  targets: readonly Target[],
  folder: string,
  base: string,
  instead: Readonly<Record<string, string>> = {},
): Promise<Record<Target, Image>> {
  const instructions = DockerfileParser.parse(await readFile(join(context, "Dockerfile"), "utf8")).getInstructions();
  const ignored = await readIgnore(join(context, ".dockerignore"));
  const stages = new Map<string, Stage>();

  const make = async (name: string): Promise<Stage> => {
    const done = stages.get(name);
    if (done) return done;
    const begin = instructions.findIndex(
      (one) => one.getKeyword() === "FROM" && (one as From).getBuildStage() === name,
    );
    const from = instructions[begin] as From | undefined;
    if (!from) throw new Error(`the Dockerfile has no stage ${name}`);
    const isStage = stageNames(instructions).includes(from.getImage());
    const before = isStage ? await make(from.getImage()!) : { ...nothing, root: base };
    let stage: Stage = { ...before, root: join(folder, name) };
    await copyAll(before.root, stage.root);
    for (const one of instructions.slice(begin + 1)) {
      if (one.getKeyword() === "FROM") break;
      stage = await take(one, stage);
    }
    stages.set(name, stage);
    return stage;
  };

  const take = async (one: Instruction, stage: Stage): Promise<Stage> => {
    const words = one.getArguments().map((argument) => argument.getValue());
    const here = join(stage.root, stage.workdir);
    switch (one.getKeyword()) {
      case "WORKDIR":
        await mkdir(join(stage.root, words[0]!), { recursive: true });
        return { ...stage, workdir: words[0]! };
      case "COPY": {
        const source = (one as Copy).getFromFlag()?.getValue();
        const origin = source ? (await make(source)).root : context;
        const to = words.pop()!;
        for (const word of words) await copy(join(origin, word), join(here, to), source ? undefined : ignored, context);
        return stage;
      }
      case "RUN": {
        const command = one.getArgumentsContent()!;
        const env = { PATH: process.env.PATH, HOME: process.env.HOME, npm_config_prefer_offline: "true", ...stage.env };
        await run("sh", ["-c", instead[command] ?? command], { cwd: here, env, maxBuffer: 64 * 1024 * 1024 });
        return stage;
      }
      case "ENV": {
        const set = (one as Env).getProperties().map((pair) => [pair.getName(), pair.getValue() ?? ""]);
        return { ...stage, env: { ...stage.env, ...Object.fromEntries(set) } };
      }
      case "USER":
        return { ...stage, user: words[0]! };
      case "ENTRYPOINT":
        return { ...stage, entrypoint: execForm(one) };
      case "HEALTHCHECK":
        return { ...stage, healthcheck: execForm(one) };
      default:
        return stage;
    }
  };

  const images: Partial<Record<Target, Image>> = {};
  for (const target of targets) images[target] = await make(target);
  return images as Record<Target, Image>;
}

const nothing: Stage = { root: "", workdir: "/", env: {}, entrypoint: [], healthcheck: [], user: "root" };

function stageNames(instructions: readonly Instruction[]): (string | null)[] {
  return instructions.filter((one) => one.getKeyword() === "FROM").map((one) => (one as From).getBuildStage());
}

/** Reads the exec form of an instruction. @throws SyntaxError for the shell form */
function execForm(instruction: Instruction): string[] {
  return JSON.parse(/\[.*/.exec(instruction.getArgumentsContent() ?? "")?.[0] ?? "");
}

/** The last rule that matches a path decides. A rule for a folder covers everything in it. */
type Ignore = (path: string) => boolean;

async function readIgnore(file: string): Promise<Ignore> {
  const lines = (await readFile(file, "utf8")).split("\n").filter((line) => line !== "" && !line.startsWith("#"));
  const rules = lines.map((line) => ({ exception: line.startsWith("!"), pattern: line.replace(/^!/, "") }));
  const matches = (path: string, pattern: string): boolean =>
    matchesGlob(path, pattern) || (path.includes("/") && matches(dirname(path), pattern));
  return (path) => rules.findLast(({ pattern }) => matches(path, pattern))?.exception === false;
}

/** Copies a folder by hard links, as a step adds files and changes none. */
async function copyAll(from: string, to: string): Promise<void> {
  await mkdir(to, { recursive: true });
  await run("cp", ["-al", `${from}/.`, to]);
}

/** Copies a file, or the contents of a folder, into `to`. */
async function copy(from: string, to: string, ignored: Ignore | undefined, context: string): Promise<void> {
  const entries = await readdir(from, { withFileTypes: true }).catch((error) => {
    if (error.code === "ENOTDIR") return undefined;
    throw error;
  });
  if (!entries) {
    if (ignored?.(relative(context, from))) return;
    await mkdir(to, { recursive: true });
    await copyFile(from, join(to, basename(from)), constants.COPYFILE_FICLONE);
  } else if (!ignored) {
    await copyAll(from, to);
  } else {
    for (const entry of entries) {
      if (entry.name === "node_modules" || entry.name === ".git") continue; // large, and ignored by any sensible rules
      const path = join(from, entry.name);
      await copy(path, entry.isDirectory() ? join(to, entry.name) : to, ignored, context);
    }
  }
}
