import { execFile } from "node:child_process";
import { chmodSync, existsSync, writeFileSync } from "node:fs";
import { promisify } from "node:util";
import { suiteStack, temporaryFolder } from "../test/support/stack.ts";

const run = promisify(execFile);
const stack = suiteStack();

/**
 * Restores from what a shell command gives, with a `docker` that only notes its calls.
 *
 * @returns whether there were any
 */
async function restore(
  input: string,
  backup: string,
): Promise<{ code: number; stdout: string; stderr: string; isChanged: boolean }> {
  const folder = await temporaryFolder("restore");
  stack.defer(() => folder.remove());
  const [docker, called] = [`${folder.path}/docker`, `${folder.path}/called`];
  writeFileSync(docker, `#!/bin/sh\necho "$@" >> ${called}\n`);
  chmodSync(docker, 0o755);
  writeFileSync(`${folder.path}/backup.sql`, backup);
  const command = input
    .replaceAll("BACKUP", `${folder.path}/backup.sql`)
    .replace("RESTORE", "deploy/compose/restore.sh");
  const env = { ...process.env, PATH: `${folder.path}:${process.env.PATH}` };
  const ended = await run("sh", ["-c", command], { env }).catch((error) => error);
  return { code: ended.code ?? 0, stdout: ended.stdout, stderr: ended.stderr, isChanged: existsSync(called) };
}

const whole = "CREATE DATABASE petstore_stock;\n-- Dump completed on 2026-01-01  0:00:00\n";

test.each([
  ["an empty file", "RESTORE < BACKUP", ""],
  ["a file that ends too early", "RESTORE < BACKUP", "CREATE DATABASE petstore_stock;\n"],
  ["a pipe, which can be read once only", "cat BACKUP | RESTORE", whole],
  ["nothing", "RESTORE < /dev/null", ""],
])("restore.sh changes nothing when standard input is %s", async (_what, input, backup) => {
  const { code, stderr, isChanged } = await restore(input, backup);
  expect(code).toBe(1);
  expect(stderr).toMatch(/nothing was changed: \.\/restore\.sh < backup\.sql/);
  expect(isChanged).toBe(false);
});

test("restore.sh takes a file with a whole backup, and says which keys work again", async () => {
  const { code, stdout, isChanged } = await restore("RESTORE < BACKUP", whole);
  expect({ code, isChanged }).toEqual({ code: 0, isChanged: true });
  expect(stdout).toMatch(/revoked or rotated after the backup works again/);
});
