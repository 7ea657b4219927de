import { execFile } from "node:child_process";
import { chmodSync, cpSync, existsSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { promisify } from "node:util";
import { suiteStack, temporaryFolder } from "../test/support/stack.ts";

const run = promisify(execFile);
const stack = suiteStack();

interface Machine {
  readonly home: string;
  /** Runs a command in deploy/compose. */
  shell(command: string): Promise<{ code: number; stdout: string; stderr: string; calls: readonly string[] }>;
}

/** Copies deploy/compose beside a `docker` that notes its calls, which are those of one command. */
async function startMachine(answers: string): Promise<Machine> {
  const folder = await temporaryFolder("compose-scripts");
  stack.defer(() => folder.remove());
  const home = `${folder.path}/compose`;
  const bin = `${folder.path}/bin`;
  const called = `${folder.path}/called`;
  cpSync("deploy/compose", home, { recursive: true });
  mkdirSync(bin);
  const stub = (name: string, text: string) => {
    writeFileSync(`${bin}/${name}`, `#!/bin/sh\n${text}\n`);
    chmodSync(`${bin}/${name}`, 0o755);
  };
  stub("docker", `set -- $* # on one line\necho "$@" >> ${called}\ncd ${folder.path}\n${answers}`);
  stub("sleep", ":");
  stub("seq", "echo 1 2");
  const env = { ...process.env, PATH: `${bin}:${process.env.PATH}` };
  return {
    home,
    shell: async (command) => {
      writeFileSync(called, "");
      const ended = await run("sh", ["-c", command], { cwd: home, env }).catch((error) => error);
      const calls = readFileSync(called, "utf8").split("\n").filter(Boolean);
      return { code: ended.code ?? 0, stdout: ended.stdout, stderr: ended.stderr, calls };
    },
  };
}

const whole = "CREATE DATABASE petstore_stock;\n-- Dump completed on 2026-01-01  0:00:00\n";

describe("a restore", () => {
  /** Answers the query for keys that have ended and, after the restore, that for keys that work. */
  const database = `case "$*" in
    *"revoked_at > 0"*) printf '%s\\t%s\\n' key_a revoked key_b rotated key_c rotated key_d revoked ;;
    *"revoked_at IS NULL"*) printf '%s\\t%s\\n' key_a revoked key_b revoked key_b rotated key_c revoked key_e rotated ;;
  esac`;

  async function restore(command: string, backup: string) {
    const { home, shell } = await startMachine(database);
    writeFileSync(`${home}/backup.sql`, backup);
    return await shell(command);
  }

  test.each([
    ["an empty file", "./restore.sh < backup.sql", ""],
    ["a file that ends too early", "./restore.sh < backup.sql", "CREATE DATABASE petstore_stock;\n"],
    ["a pipe, which can be read once only", "cat backup.sql | ./restore.sh", whole],
    ["nothing", "./restore.sh < /dev/null", ""],
  ])("restore.sh changes nothing when standard input is %s", async (_what, command, backup) => {
    const { code, stderr, calls } = await restore(command, backup);
    expect(code).toBe(1);
    expect(stderr).toMatch(/nothing was changed: \.\/restore\.sh < backup\.sql/);
    expect(calls).toEqual([]);
  });

  test("restore.sh revokes the keys that ended after the backup, before it starts a service", async () => {
    const { code, stdout, calls } = await restore("./restore.sh < backup.sql", whole);
    expect(code).toBe(0);
    expect(calls.map((call) => /revoked_at (> 0|IS NULL)/.exec(call)?.[0] ?? call)).toEqual([
      "compose stop gateway inventory-svc",
      "revoked_at > 0",
      expect.stringMatching(/ mysql --user=root "\$@" mysql$/),
      "compose run --rm -T --no-deps migrate",
      "compose run --rm -T stock restored",
      "revoked_at IS NULL",
      "compose run --rm -T keys revoke key_a key_b",
      "compose start inventory-svc",
    ]);
    expect(stdout).toMatch(/Issue new ones for those that had been rotated/);
  });

  test.each(["./restore.sh < backup.sql", "./update.sh"])(
    "%s does nothing while the other one runs",
    async (command) => {
      const { code, stderr, calls } = await restore(`exec 8> .lock && flock 8 && ${command}`, whole);
      expect({ code, stderr, calls }).toEqual({ code: 1, stderr: "update.sh or restore.sh is running\n", calls: [] });
    },
  );
});

describe("a backup", () => {
  const backups = (home: string) => readdirSync(home).filter((name) => name.startsWith("backup.sql"));

  test("backup.sh makes a file that only its owner can read", async () => {
    const { home, shell } = await startMachine(`printf '${whole.replaceAll("\n", "\\n")}'`);
    expect(await shell("./backup.sh backup.sql")).toMatchObject({ code: 0 });
    expect([backups(home), readFileSync(`${home}/backup.sql`, "utf8")]).toEqual([["backup.sql"], whole]);
    expect(statSync(`${home}/backup.sql`).mode & 0o777).toBe(0o600);
  });

  test("backup.sh keeps the backup before when a dump breaks off, and nothing else", async () => {
    const { home, shell } = await startMachine("echo CREATE DATABASE");
    writeFileSync(`${home}/backup.sql`, whole);
    expect(await shell("./backup.sh backup.sql")).toMatchObject({ code: 1 });
    expect([backups(home), readFileSync(`${home}/backup.sql`, "utf8")]).toEqual([["backup.sql"], whole]);
  });

  test("backup.sh asks for a name, as it printed the backup once", async () => {
    const { home, shell } = await startMachine("");
    expect(await shell("./backup.sh > backup.sql")).toMatchObject({ code: 64, calls: [] });
    expect(readFileSync(`${home}/backup.sql`, "utf8")).toBe("");
  });

  test("backup.sh refuses while a restore has not come to its end", async () => {
    const { home, shell } = await startMachine("exit 1"); // the database is away
    writeFileSync(`${home}/backup.sql`, whole);
    writeFileSync(`${home}/ended`, "key_a\trevoked\n");
    expect(await shell("./restore.sh < backup.sql")).toMatchObject({ code: 1 });
    expect(await shell("./backup.sh backup.sql")).toMatchObject({ code: 1, calls: [] });
    expect(existsSync(`${home}/ended`)).toBe(true);
  });
});

describe("an update", () => {
  /** Containers are files that say how healthy they are. */
  const engine = (health: string) => `mkdir -p gateway inventory-svc
    for last; do :; done
    case "$*" in
      "compose ps --all --quiet "*) ls $last ;;
      "compose up "*) n=$(date +%N); for i in 1 2; do echo ${health} > $last/$last-$n-$i; done ;;
      "inspect "*) shift 3; for one; do cat */$one; done ;;
      "rm "*) shift; for one; do rm */$one; done ;;
    esac`;

  const called = (calls: readonly string[], what: string) => calls.filter((call) => call.startsWith(what));

  test("update.sh replaces old containers, also sick ones, once the new ones are healthy", async () => {
    const { home, shell } = await startMachine(engine("healthy"));
    for (const tier of ["gateway", "inventory-svc"]) {
      mkdirSync(`${home}/../${tier}`);
      for (const i of [1, 2]) writeFileSync(`${home}/../${tier}/old-${tier}-${i}`, "unhealthy\n");
    }
    const { code, calls } = await shell("./update.sh");
    expect(code).toBe(0);
    expect(called(calls, "compose up").map((call) => call.split(" --scale ")[1])).toEqual([
      "inventory-svc=4 inventory-svc",
      "gateway=4 gateway",
    ]);
    const old = ["inventory-svc-1", "inventory-svc-2", "gateway-1", "gateway-2"].map((name) => `stop old-${name}`);
    expect(called(calls, "stop")).toEqual(old);
    expect(calls.at(-1)).toBe("compose exec -T prometheus sh -c kill -HUP 1");
  });

  test("update.sh removes new containers that do not become healthy, so that it can be repeated", async () => {
    const { home, shell } = await startMachine(engine("starting"));
    mkdirSync(`${home}/../inventory-svc`);
    for (const i of [1, 2]) writeFileSync(`${home}/../inventory-svc/old-${i}`, "healthy\n");
    for (const _attempt of [1, 2]) {
      const { code, stderr, calls } = await shell("./update.sh");
      expect(code).toBe(1);
      expect(stderr).toMatch(/The new containers were not healthy/);
      expect(called(calls, "stop")).toEqual([expect.stringMatching(/^stop inventory-svc-\d+-1 inventory-svc-\d+-2$/)]);
      expect(called(calls, "compose up")[0]).toMatch(/--scale inventory-svc=4 inventory-svc$/);
      expect(readdirSync(`${home}/../inventory-svc`)).toEqual(["old-1", "old-2"]);
    }
  });
});
