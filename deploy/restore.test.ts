import { execFile } from "node:child_process";
import { chmodSync, copyFileSync, existsSync, readFileSync, writeFileSync } from "node:fs";
import { promisify } from "node:util";
import { suiteStack, temporaryFolder } from "../test/support/stack.ts";

const run = promisify(execFile);
const stack = suiteStack();

/**
 * Restores from what a shell command gives, with a `docker` that notes its calls. It answers the query for keys that
 * have ended and, after the restore, that for keys that work.
 *
 * @returns its calls
 */
async function restore(
  input: string,
  backup: string,
): Promise<{ code: number; stdout: string; stderr: string; calls: readonly string[] }> {
  const folder = await temporaryFolder("restore");
  stack.defer(() => folder.remove());
  const [docker, called] = [`${folder.path}/docker`, `${folder.path}/called`];
  writeFileSync(docker, dockerStub(called));
  chmodSync(docker, 0o755);
  writeFileSync(`${folder.path}/backup.sql`, backup);
  const command = input
    .replaceAll("BACKUP", `${folder.path}/backup.sql`)
    .replace("RESTORE", `${folder.path}/restore.sh`);
  copyFileSync("deploy/compose/restore.sh", `${folder.path}/restore.sh`); // it writes into its folder
  const env = { ...process.env, PATH: `${folder.path}:${process.env.PATH}` };
  const ended = await run("sh", ["-c", command], { env }).catch((error) => error);
  const calls = existsSync(called) ? readFileSync(called, "utf8").trimEnd().split("\n") : [];
  return { code: ended.code ?? 0, stdout: ended.stdout, stderr: ended.stderr, calls };
}

const dockerStub = (called: string) => `#!/bin/sh
set -- $* # on one line
echo "$@" >> ${called}
case "$*" in
  *"revoked_at > 0"*) printf '%s\\t%s\\n' key_a revoked key_b rotated key_c rotated key_d revoked ;;
  *"revoked_at IS NULL"*) printf '%s\\t%s\\n' key_a revoked key_b revoked key_b rotated key_c revoked key_e rotated ;;
esac
`;

const whole = "CREATE DATABASE petstore_stock;\n-- Dump completed on 2026-01-01  0:00:00\n";

test.each([
  ["an empty file", "RESTORE < BACKUP", ""],
  ["a file that ends too early", "RESTORE < BACKUP", "CREATE DATABASE petstore_stock;\n"],
  ["a pipe, which can be read once only", "cat BACKUP | RESTORE", whole],
  ["nothing", "RESTORE < /dev/null", ""],
])("restore.sh changes nothing when standard input is %s", async (_what, input, backup) => {
  const { code, stderr, calls } = await restore(input, backup);
  expect(code).toBe(1);
  expect(stderr).toMatch(/nothing was changed: \.\/restore\.sh < backup\.sql/);
  expect(calls).toEqual([]);
});

test("restore.sh revokes the keys that ended after the backup, before it starts a service", async () => {
  const { code, stdout, calls } = await restore("RESTORE < BACKUP", whole);
  expect(code).toBe(0);
  expect(calls.map((call) => /revoked_at (> 0|IS NULL)/.exec(call)?.[0] ?? call)).toEqual([
    "compose stop gateway inventory-svc",
    "revoked_at > 0",
    expect.stringMatching(/ mysql --user=root "\$@" mysql$/),
    "compose run --rm stock restored",
    "revoked_at IS NULL",
    "compose run --rm keys revoke key_a key_b",
    "compose start inventory-svc",
  ]);
  expect(stdout).toMatch(/Issue new ones for those that had been rotated/);
});
