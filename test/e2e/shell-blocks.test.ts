import { execFile, execFileSync } from "node:child_process";
import { once } from "node:events";
import { globSync, readFileSync } from "node:fs";
import { mkdir, writeFile } from "node:fs/promises";
import type { AddressInfo } from "node:net";
import { join, resolve } from "node:path";
import { connect, createServer, type TLSSocket } from "node:tls";
import { scopes } from "../../gateway/accounts/keys/principal.ts";
import { installMissing } from "../support/server-programs.ts";
import { suiteStack, temporaryFolder } from "../support/stack.ts";
import { type System, startSystem } from "../support/system.ts";

const root = resolve(import.meta.dirname, "../..");
const stack = suiteStack();

/** The shells that readers paste blocks into. zsh as on a terminal, where a comment is no comment. */
const shells = { bash: ["bash"], dash: ["dash"], zsh: ["zsh", "-f", "-i", "-s", "+o", "prompt_sp"] } as const;
type Shell = keyof typeof shells;

interface Block {
  readonly name: string;
  readonly text: string;
}

const files = ["README.md", "CONTRIBUTING.md", ...globSync("{docs,rest-client}/**/*.md", { cwd: root })].sort();
const blocks = files.flatMap((file): Block[] => {
  const text = readFileSync(join(root, file), "utf8");
  return [...text.matchAll(/^```sh\n(.*?)^```/gms)].map(({ 1: block, index }) => ({
    name: `${file}:${text.slice(0, index).split("\n").length + 1}`,
    text: block!.replaceAll("/opt/petstore-inventory", root),
  }));
});

/** What blocks call and a test must not do. Each is replaced by a program that writes down how it was called. */
const programs = [
  "chown",
  "curl",
  "docker",
  "go",
  "helm",
  "install",
  "kubectl",
  "mysql",
  "mysqldump",
  "node",
  "npm",
  "npx",
  "pip",
  "python",
  "rm",
  "runuser",
  "sqlite3",
  "systemctl",
  "useradd",
];
// A line is written at once: the programs of a pipe run side by side.
const recorder = `#!/bin/sh
line=\${0##*/}
for word; do line="$line\t$word"; done
printf '%s\\n' "$line" >> "$CALLS"
echo '"r1"'
`;

let recorders: string;
beforeAll(async () => {
  await installMissing(["shells"]);
  recorders = await newFolder("recorders");
  for (const program of programs) await writeFile(join(recorders, program), recorder, { mode: 0o755 });
});

async function newFolder(name: string): Promise<string> {
  const folder = await temporaryFolder(name);
  stack.defer(() => folder.remove());
  return folder.path;
}

/** Pastes a text into a shell in a folder of its own. @returns what it printed, and the calls that it made */
async function paste(shell: Shell, text: string, path = process.env.PATH!) {
  const cwd = join(await newFolder("pasted"), "clone"); // some blocks make folders beside it
  await mkdir(join(cwd, "deploy/compose"), { recursive: true });
  for (const part of ["certificate", "chain", "key"]) {
    for (const place of [".", "deploy/compose"]) await writeFile(join(cwd, place, `${part}.pem`), "");
  }
  await mkdir(join(cwd, "node_modules/.bin"), { recursive: true });
  for (const script of ["backup.sh", "restore.sh", "update.sh", "node_modules/.bin/petstore-inventory-svc"]) {
    await writeFile(join(cwd, script), recorder, { mode: 0o755 });
  }
  for (const file of ["backup.sql", "stock.csv", "deploy/compose/stock.csv"]) await writeFile(join(cwd, file), "");
  const calls = join(cwd, "calls");
  await writeFile(calls, "");
  const [program, ...args] = shells[shell];
  const child = execFile(program, args, { cwd, env: { PATH: path, HOME: cwd, CALLS: calls } });
  child.stdin!.end(`PS1=; PS2=\n${text}\nwait\n`);
  const printed = Promise.all([child.stdout!.toArray(), child.stderr!.toArray()]);
  const [code] = await once(child, "exit");
  const [stdout, stderr] = (await printed).map((parts) => parts.join(""));
  return {
    code,
    stdout: stdout!,
    stderr,
    calls: readFileSync(calls, "utf8").replaceAll(cwd, ".").split("\n").filter(Boolean).sort(),
  };
}

/**
 * Whether a block is for a machine of its own: it writes to `/etc`, or ends at its first failure, which would come at
 * once with programs that only write down their calls.
 */
const needsMachine = ({ text }: Block) => /\bset -e\b|> \/etc\//.test(text);

test.each(blocks.filter(needsMachine))("the block $name is read by bash, dash and zsh", ({ text }) => {
  for (const [program] of Object.values(shells)) execFileSync(program, ["-n"], { input: text, stdio: "pipe" });
});

const others = blocks.filter((block) => !needsMachine(block));
test.each(others)("the block $name does the same in bash, dash and zsh", async ({ text }) => {
  const path = `${recorders}:${process.env.PATH}`;
  const pasted = await Promise.all((Object.keys(shells) as Shell[]).map((shell) => paste(shell, text, path)));
  for (const { code, stderr, calls } of pasted) {
    expect(code).toBe(0);
    expect(stderr).not.toMatch(/not found|no matches|syntax|parse|error|No such file|cannot/i);
    expect(calls).toEqual(pasted[0]!.calls);
    for (const word of calls.flatMap((call) => call.split("\t"))) expect(word).not.toMatch(/^#|^$|\$/);
  }
  const called = programs.filter((program) => new RegExp(`^ *${program} `, "m").test(text));
  for (const program of called) expect(pasted[0]!.calls.join("\n")).toContain(program);
});

test("the pod of the job for commands is waited for, however late it is made", async () => {
  const { text } = blocks.find((block) => block.text.includes("apply -f command.yaml"))!;
  const folder = await newFolder("busy-cluster");
  const kubectl = `${recorder}case $3 in wait) [ "$(grep -c wait "$CALLS")" = 2 ] ;; esac\n`;
  await writeFile(join(folder, "kubectl"), kubectl, { mode: 0o755 });
  const { calls } = await paste("bash", text, `${folder}:${process.env.PATH}`);
  expect(calls.map((call) => call.split("\t")[3])).toEqual(["apply", "delete", "exec", "exec", "wait", "wait"]);
});

describe("requests", () => {
  let system: System;
  let key: string;
  beforeAll(async () => {
    const seed = [{ petId: 1001n, quantity: 12, status: "available" }] as const;
    system = await startSystem({ seed, gatewayEnv: { KEY_ROTATION: "1" } });
    stack.defer(() => system.close());
    ({ key } = await system.issueKey({ plan: "business", scopes }));
  });

  test.each(Object.keys(shells) as Shell[])("the requests of docs/api.md work when pasted into %s", async (shell) => {
    const requests = blocks.filter(({ name, text }) => name.startsWith("docs/api.md") && text.includes("curl -i"));
    expect(requests.length).toBeGreaterThan(2);
    const text = requests
      .map((block) => block.text)
      .join("\n")
      .replaceAll("ps_live_replace_this_by_a_key", key)
      .replaceAll("wait=90", "wait=1")
      .replaceAll("127.0.0.1:8080", system.address);
    const answers = (await paste(shell, text)).stdout.match(/HTTP\/1\.1 \d+/g)!;
    expect(answers).toHaveLength(text.match(/^curl -i/gm)!.length);
    for (const answer of answers) expect(answer).toMatch(/ (20\d|304)$/);
  });
});

test("the certificates made by hand as in docs/operations/tls.md connect a gateway and a service", async () => {
  const block = blocks.find(({ name, text }) => name.startsWith("docs/operations/tls.md") && text.includes("openssl"))!;
  const cwd = await newFolder("by-hand");
  execFileSync("dash", { cwd, input: `set -e\n${block.text}`, stdio: "pipe" });
  const read = (file: string) => readFileSync(join(cwd, file));
  const pair = (name: string) => ({ ca: read("ca.crt"), cert: read(`${name}.crt`), key: read(`${name}.key`) });
  const server = createServer({ ...pair("inventory-svc"), requestCert: true, rejectUnauthorized: true });
  stack.defer(() => void server.close());
  const accepted = once(server.listen(0, "127.0.0.1"), "secureConnection");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const client = connect({ port, host: "127.0.0.1", servername: "inventory-svc.example", ...pair("gateway") });
  const [socket] = (await accepted) as [TLSSocket];
  expect(socket.getPeerCertificate().subjectaltname).toBe("URI:spiffe://petstore/gateway");
  if (!client.authorized) await once(client, "secureConnect");
  expect(client.authorizationError).toBeFalsy();
  client.destroy();
});
