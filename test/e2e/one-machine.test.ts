// The commands of docs/operations/one-machine.md for backup and restore, on running services.
import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { mkdir, readdir, readFile, rename, rm, writeFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
import Sqlite from "better-sqlite3";
import { createInventoryApi } from "../../rest-client/index.ts";
import { createMysqlDatabase, dropDatabase } from "../support/databases.ts";
import { request } from "../support/http.ts";
import { runScript, startProcess } from "../support/processes.ts";
import { installMissing } from "../support/server-programs.ts";
import { suiteStack, temporaryFolder } from "../support/stack.ts";
import { type SystemOptions, startSystem } from "../support/system.ts";

const root = resolve(import.meta.dirname, "../..");
const page = readFileSync(join(root, "docs/operations/one-machine.md"), "utf8");
const stack = suiteStack();
const installTimeoutMs = 600_000;
const anyPort = "127.0.0.1:0";

/** The blocks of a section. */
function commandsOf(section: string, text = page): string {
  const [, part] = new RegExp(`^## ${section}\n(.*?)^## `, "ms").exec(text)!;
  return [...part!.matchAll(/^```sh\n(.*?)^```/gms)].map(([, block]) => block!).join("");
}

const seed = [1001n, 1002n].map((petId) => ({ petId, quantity: 1, status: "available" as const }));

/**
 * Backs a system up under updates, changes it, restores it, and looks at what callers get then.
 *
 * @param adapt puts the places of this test into a text of commands
 * @param failRestore runs the restore in ways that must leave everything as it is
 */
async function expectRestore(
  kind: "SQLite" | "MySQL",
  folder: string,
  options: SystemOptions,
  adapt: (text: string) => string,
  failRestore?: (restore: () => Promise<string>) => Promise<void>,
): Promise<void> {
  const system = await startSystem({ ...options, seed });
  stack.defer(() => system.close());
  const backup = commandsOf(`Backup on ${kind}`);
  const restore = commandsOf(`Restore on ${kind}`);
  const run = (text: string) => execute(adapt(text), folder);
  const keys = async (...args: string[]) => expect(await system.runKeys(...args)).toMatchObject({ code: 0 });

  const { key } = await system.issueKey({ plan: "enterprise" });
  const issue = () => system.issueKey({ plan: "pro" });
  const [revoked, rotated, inGrace, revokedInGrace] = [await issue(), await issue(), await issue(), await issue()];
  for (const { keyId } of [inGrace, revokedInGrace]) await keys("rotate", keyId);
  const api = createInventoryApi({ baseUrl: `http://${system.address}/v1`, apiKey: key });
  await api.update(1001n, 5);
  let isWriting = true;
  const writer = (async () => {
    for (let quantity = 1; isWriting; quantity++) await api.update(1002n, quantity);
  })();
  const said = await run(backup);
  isWriting = false;
  await writer;
  expect(said.trim()).toMatch(kind === "SQLite" ? /^whole: \S+$/ : /^-- Dump completed on /);

  for (const { keyId } of [revoked, revokedInGrace]) await keys("revoke", keyId);
  await keys("rotate", rotated.keyId, "--grace", "0s");
  await api.update(1001n, 99);
  const { etag } = await api.list();
  const later = await issue();
  for (const gateway of system.gateways) await gateway.stop();
  await system.inventory.stop();
  await failRestore?.(() => run(restore));
  expect(await systemctlCalls(folder)).toEqual([]);
  // A restore that fails lets no caller in, and the next one knows the keys from before the first one.
  await expect(run(restore.replace("-- restored", "-- unknown"))).rejects.toThrow("unknown");
  const stop = "stop petstore-gateway petstore-inventory-svc";
  expect(await systemctlCalls(folder)).toEqual([stop]);
  await run(restore);
  expect(await systemctlCalls(folder)).toEqual([stop, stop, "start petstore-inventory-svc petstore-gateway"]);
  await system.restartInventory();
  const { listen } = await system.startGateway();

  const ask = (path: string, apiKey: string, headers = {}) =>
    request(listen, { path, headers: { authorization: `Bearer ${apiKey}`, ...headers } });
  expect((await ask("/v1/inventory/1001", key)).json()).toMatchObject({ petId: 1001, quantity: 5 });
  // The tag of the lost list is not that of another one. The key that was issued later is gone, and so are those that
  // were revoked or rotated later.
  expect(await ask("/v1/inventory", key, { "if-none-match": etag })).toMatchObject({ status: 200 });
  const gone = [later, revoked, rotated, revokedInGrace];
  const statuses = gone.map(async (each) => (await ask("/v1/inventory", each.key)).status);
  expect(await Promise.all(statuses)).toEqual(gone.map(() => 401));
  expect(await ask("/v1/inventory", inGrace.key)).toMatchObject({ status: 200 });
}

/**
 * Runs commands; `systemctl` writes down how it is called, because the test stops and starts the processes itself. So
 * `curl` finds them ready.
 */
async function execute(text: string, folder: string): Promise<string> {
  await mkdir(join(folder, "bin"), { recursive: true });
  await writeFile(join(folder, "bin/systemctl"), `#!/bin/sh\necho "$*" >> ${folder}/systemctl\n`, { mode: 0o755 });
  await writeFile(join(folder, "bin/curl"), "#!/bin/sh\n", { mode: 0o755 });
  const env = { PATH: `${folder}/bin:${process.env.PATH}`, HOME: folder };
  return (await promisify(execFile)("sh", ["-c", text], { cwd: folder, env })).stdout;
}

async function systemctlCalls(folder: string): Promise<string[]> {
  const calls = await readFile(join(folder, "systemctl"), "utf8").catch(() => "");
  return calls.split("\n").filter(Boolean);
}

/** Gives the commands of MySQL the account of a URL. */
async function writeMysqlAccount(folder: string, url: string): Promise<void> {
  const { hostname, port, username, password } = new URL(url);
  const account = `user=${username}\npassword="${decodeURIComponent(password)}"`;
  await writeFile(join(folder, ".my.cnf"), `[client]\nhost=${hostname}\nport=${port}\n${account}\n`);
}

/** Makes empty databases of both tiers. @returns their URLs */
async function makeSqliteFiles(folder: string) {
  for (const tier of ["gateway", "inventory"]) await writeFile(join(folder, `${tier}.sqlite`), "");
  return { gateway: `sqlite:${folder}/gateway.sqlite`, inventory: `sqlite:${folder}/inventory.sqlite` };
}

async function newFolder(): Promise<string> {
  const folder = await temporaryFolder("one-machine");
  stack.defer(() => folder.remove());
  return folder.path;
}

test(
  "the commands for SQLite back up under updates, and restore to that moment",
  async () => {
    await installMissing(["sqlite"]);
    const folder = await newFolder();
    const databaseUrls = await makeSqliteFiles(folder);
    const adapt = (text: string) =>
      `DATA=${folder}\nBACKUP=${folder}/backup\n${text}`
        .replace(/^DATA=\/var.*\nBACKUP=\/var.*\n/m, "")
        .replaceAll("-o petstore -g petstore ", "")
        .replaceAll("runuser -u petstore -- ", "")
        .replaceAll("/opt/petstore-inventory", root);
    const latest = () => {
      const db = new Sqlite(join(folder, "inventory.sqlite"), { readonly: true });
      try {
        return db.prepare("SELECT quantity FROM stock WHERE pet_id = 1001").pluck().get();
      } finally {
        db.close();
      }
    };
    await expectRestore("SQLite", folder, { database: "sqlite", databaseUrls }, adapt, async (restore) => {
      for (const tier of ["gateway", "inventory"]) {
        const file = join(folder, "backup", `${tier}.sqlite`);
        await rename(file, `${file}.away`);
        await expect(restore()).rejects.toThrow("unable to open database");
        await writeFile(file, "no database".repeat(1_000));
        await expect(restore()).rejects.toThrow("file is not a database");
        await writeFile(file, "");
        await expect(restore()).rejects.toThrow(`no such table: ${tier}_migrations`);
        await rename(`${file}.away`, file);
        await writeFile(`${file}-wal`, ""); // as beside the files of before
        await expect(restore()).rejects.toThrow("Command failed");
        await rm(`${file}-wal`);
      }
      expect(latest()).toBe(99);
    });
    // The files of before are kept, with what the backup does not have.
    expect((await readdir(folder)).filter((name) => name.startsWith("before-"))).toHaveLength(2);
    const backUp = (before = "") => {
      return execute(before + adapt(commandsOf("Backup on SQLite")).replaceAll("/backup", "/second"), folder);
    };
    const noBackup = { stdout: "no backup\n" };
    // Files of at most 40 KiB are a disk that fills up.
    await expect(backUp("trap '' XFSZ\nulimit -f 80\n")).rejects.toMatchObject(noBackup);
    expect(await readdir(folder)).toEqual(expect.arrayContaining(["second.part"]));
    await rename(join(folder, "gateway.sqlite"), join(folder, "keys.sqlite"));
    await expect(backUp()).rejects.toMatchObject(noBackup);
    const names = await readdir(folder);
    for (const name of ["second", "gateway.sqlite"]) expect(names).not.toContain(name);
  },
  installTimeoutMs,
);

test(
  "the commands for MySQL back up under updates, and restore to that moment",
  async () => {
    await installMissing(["dump"]);
    const folder = await newFolder();
    const gateway = await createMysqlDatabase();
    const inventory = await createMysqlDatabase();
    for (const url of [gateway, inventory]) stack.defer(() => dropDatabase(url));
    await writeMysqlAccount(folder, gateway);
    const nameOf = (url: string) => new URL(url).pathname.slice(1);
    await expectRestore("MySQL", folder, { databaseUrls: { gateway, inventory } }, (text) =>
      text
        .replaceAll(/mysql:\/\/\S+\/petstore_keys/g, gateway)
        .replaceAll(/mysql:\/\/\S+\/petstore_stock/g, inventory)
        .replaceAll("petstore_keys", nameOf(gateway))
        .replaceAll("petstore_stock", nameOf(inventory))
        .replaceAll("/opt/petstore-inventory", root),
    );
  },
  installTimeoutMs,
);

test(
  "the commands for a move to MySQL keep stock and keys, and no old ETag of an entry holds",
  async () => {
    await installMissing(["sqlite"]);
    const folder = await newFolder();
    const databaseUrls = await makeSqliteFiles(folder);
    const system = await startSystem({ database: "sqlite", databaseUrls, seed });
    stack.defer(() => system.close());
    const account = "O'Hara \\";
    const { key } = await system.issueKey({ plan: "enterprise", account });
    const api = createInventoryApi({ baseUrl: `http://${system.address}/v1`, apiKey: key });
    const { etag } = (await api.get(1001n))!;
    for (const gateway of system.gateways) await gateway.stop();
    await system.inventory.stop();

    const moved = { gateway: await createMysqlDatabase(), inventory: await createMysqlDatabase() };
    for (const url of Object.values(moved)) stack.defer(() => dropDatabase(url));
    await writeMysqlAccount(folder, moved.gateway);
    const commands = commandsOf("From SQLite to MySQL")
      .replace(/^DATA=.*\nOWNER=.*\n/m, `DATA=${folder}\n`)
      .replaceAll('"$OWNER/petstore_keys"', `"${moved.gateway}"`)
      .replaceAll('"$OWNER/petstore_stock"', `"${moved.inventory}"`)
      .replaceAll("petstore_keys", new URL(moved.gateway).pathname.slice(1))
      .replaceAll("petstore_stock", new URL(moved.inventory).pathname.slice(1))
      .replaceAll("/opt/petstore-inventory", root);
    await execute(commands, folder);
    const again = execute(commands, folder);
    await expect(again).rejects.toMatchObject({ stdout: expect.stringMatching(/have [1-9]\d* rows already\n$/) });
    expect(await systemctlCalls(folder)).toHaveLength(1);
    const service = await startProcess({
      name: "moved",
      script: "inventory-svc/main.ts",
      env: { INVENTORY_LISTEN: anyPort, INVENTORY_ADMIN_LISTEN: anyPort, INVENTORY_DATABASE_URL: moved.inventory },
    });
    stack.defer(async () => void (await service.stop()));
    const { listen } = await system.startGateway({
      GATEWAY_DATABASE_URL: moved.gateway,
      INVENTORY_ADDRESS: service.listen,
    });
    const headers = { authorization: `Bearer ${key}`, "if-none-match": etag };
    const entry = await request(listen, { path: "/v1/inventory/1001", headers });
    expect(entry.status).toBe(200);
    expect(entry.json()).toMatchObject({ petId: 1001, quantity: 1 });
    const listed = await runScript({
      script: "gateway/accounts/cli/keys.ts",
      args: ["list", "--json"],
      env: { GATEWAY_DATABASE_URL: moved.gateway },
    });
    const before = JSON.parse((await system.runKeys("list", "--json")).stdout);
    const withoutUse = (keys: { lastUsedAt: unknown }[]) => keys.map((each) => ({ ...each, lastUsedAt: null }));
    expect(withoutUse(JSON.parse(listed.stdout))).toEqual(withoutUse(before));
  },
  installTimeoutMs,
);

test("the commands for an installation under systemd make both databases, the stock and a key", async () => {
  const folder = await newFolder();
  const text = readFileSync(join(root, "docs/operations/run.md"), "utf8");
  const commands = commandsOf("Under systemd", text)
    .replace(/^\(set -e\n.*?^\)\n/ms, "") // the folder of the version
    .replaceAll(/^(useradd|install .*\/etc\/systemd).*\n/gm, "")
    .replaceAll(/-o \w+ -g petstore |runuser -u petstore -- |^chgrp petstore .*(?=\)$)/gm, "")
    .replaceAll(/\/(etc|var\/lib)\/petstore/g, `${folder}/$1`)
    .replaceAll("/opt/petstore-inventory", root);
  const list = "as_petstore gateway/accounts/cli/keys.ts list\n";
  expect(await execute(`set -e\n${commands}${list}`, folder)).toMatch(
    /A key for account 'acme', plan pro[\s\S]*\nkey_/,
  );
  // Pasted again, they leave the pepper as it is.
  const pepper = await readFile(join(folder, "etc/gateway.env"), "utf8");
  expect(pepper).toMatch(/^KEY_PEPPER=[0-9a-f]{64}$/m);
  await execute(commands, folder).catch(() => {});
  expect(await readFile(join(folder, "etc/gateway.env"), "utf8")).toBe(pepper);
}, 300_000);
