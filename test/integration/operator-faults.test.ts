// What an operator sees when a database, Redis or the inventory service cannot be used: a line with the setting.
import { once } from "node:events";
import { writeFile } from "node:fs/promises";
import { type AddressInfo, createServer } from "node:net";
import { join } from "node:path";
import Sqlite from "better-sqlite3";
import type { Connection } from "mysql2/promise";
import { blamingDatabase } from "../../runtime/database/faults.ts";
import { createAuthority } from "../support/certificates.ts";
import { type DatabaseServer, serverProcess, startPrivateDatabaseServer } from "../support/database-server.ts";
import { createSqliteDatabase, dropDatabase } from "../support/databases.ts";
import { connectMysql, createDatabaseOn } from "../support/mysql-client.ts";
import { isOnMysql, prepareMysqld } from "../support/mysqld.ts";
import { migrateStock } from "../support/open-stock.ts";
import { freePort } from "../support/ports.ts";
import { cleanup, runScript, startProcess, startScript } from "../support/processes.ts";
import { startRedisServer } from "../support/redis-server.ts";
import { suiteStack, temporaryFolder } from "../support/stack.ts";

const anyPort = "127.0.0.1:0";
const secret = "s3cret";
const addresses = {
  GATEWAY_LISTEN: anyPort,
  GATEWAY_ADMIN_LISTEN: anyPort,
  INVENTORY_LISTEN: anyPort,
  INVENTORY_ADMIN_LISTEN: anyPort,
};
const stack = suiteStack();
stack.defer(cleanup);
let keysUrl: string;
let folder: string;

beforeAll(async () => {
  const temporary = await temporaryFolder("faults");
  stack.defer(() => temporary.remove());
  folder = temporary.path;
  await writeFile(join(folder, "text.sqlite"), "This is no database, but a text. ".repeat(100));
  keysUrl = await createSqliteDatabase();
  stack.defer(() => dropDatabase(keysUrl));
  await runScript({ script: "deploy/migrate.ts", args: ["--only", "gateway"], env: { GATEWAY_DATABASE_URL: keysUrl } });
});

/** Starts a tier that cannot serve. @returns its line of the log that has this message, as JSON */
async function faultOf(script: string, env: Record<string, string>, message = "not ready yet") {
  const child = await startScript({ name: script, script, env: { ...addresses, ...env } });
  stack.defer(() => child.kill("SIGKILL"));
  const line = await child.waitForLine((text) => (text.includes(`"msg":"${message}`) ? text : undefined), 30_000);
  await child.kill("SIGKILL");
  expect(child.output()).not.toContain(secret);
  return JSON.parse(line);
}
const gatewayFault = (env: Record<string, string>, message?: string) =>
  faultOf("gateway/main.ts", { GATEWAY_DATABASE_URL: keysUrl, KEY_PEPPER: "x".repeat(32), ...env }, message);

describe("unusable databases", () => {
  let server: DatabaseServer;
  let root: Connection;
  let ready: string;
  let proxyPort: number;

  beforeAll(async () => {
    server = await startPrivateDatabaseServer();
    stack.defer(() => server.stop());
    ready = await server.createDatabase();
    await migrateStock(ready);
    root = await connectMysql(ready);
    const proxy = createServer((socket) => {
      const text = Buffer.from("\xff\x9c\x11#HY000Session is not shareable", "latin1"); // error 4508
      socket.on("error", () => {}).end(Buffer.concat([Buffer.from([text.length, 0, 0, 0]), text]));
    }).listen(0, "127.0.0.1");
    stack.defer(() => void proxy.close());
    await once(proxy, "listening");
    proxyPort = (proxy.address() as AddressInfo).port;
    stack.defer(() => root.end());
    await root.query(`CREATE USER 'stranger'@'%' IDENTIFIED BY '${secret}'`);
  });
  /** The URL of a database with other credentials. */
  const as = (url: string, username: string, password: string) =>
    Object.assign(new URL(url), { username, password }).href;

  /** The URL with a name as its host, which TLS needs. */
  const onLocalhost = (url: string) => Object.assign(new URL(url), { hostname: "localhost" }).href;

  const cases: readonly (readonly [string, () => Promise<string> | string, RegExp])[] = [
    [
      "a wrong password",
      () => as(ready, new URL(ready).username, secret),
      /refuses the user or the password \(Access denied/,
    ],
    [
      "no server",
      async () => `mysql://a:${secret}@127.0.0.1:${await freePort()}/stock`,
      /no server answers \(.*ECONNREFUSED/,
    ],
    [
      "a name that does not resolve",
      () => `mysql://a:${secret}@nowhere.invalid/stock`,
      /no server answers \(.*nowhere\.invalid/,
    ],
    ["no such database", () => server.url("missing"), /no such database on the server \(Unknown database 'missing'/],
    [
      "an account without rights",
      () => as(ready, "stranger", secret),
      /lacks a right, see .*databases\.md \(Access denied for user 'stranger'/,
    ],
    // MariaDB has none here, and MySQL makes a certificate that no known authority has signed.
    [
      "TLS that the server does not have or that cannot be trusted",
      () => `${onLocalhost(ready)}?ssl=true`,
      isOnMysql
        ? /the server's TLS cannot be trusted, see NODE_EXTRA_CA_CERTS \(self-signed certificate/
        : /the server has no TLS, which \?ssl=true asks for/,
    ],
    [
      "a proxy that refuses with an error of its own, which the driver does not know",
      () => `mysql://a:${secret}@127.0.0.1:${proxyPort}/stock`,
      /the database refuses this \(Session is not shareable\)/,
    ],
    [
      "a file of another kind",
      () => `sqlite:${join(folder, "text.sqlite")}`,
      /no SQLite database, or is damaged \(file is not a database\)/,
    ],
  ];

  test.each(cases)(
    "stock, keys and both services name the fault of a database in one line: %s",
    async (_what, urlOf, said) => {
      const url = await urlOf();
      const env = { GATEWAY_DATABASE_URL: url, INVENTORY_DATABASE_URL: url };
      const results = await Promise.all([
        runScript({ script: "inventory-svc/cli/stock.ts", args: ["export"], env }),
        runScript({ script: "gateway/accounts/cli/keys.ts", args: ["list"], env }),
      ]);
      for (const [i, { code, stdout, stderr }] of results.entries()) {
        expect({ code, stdout }).toEqual({ code: 1, stdout: "" });
        expect(stderr).toMatch(/^[^\n]+\n$/);
        expect(stderr).toMatch(
          [/^INVENTORY_DATABASE_URL \(inventory-svc\): /, /^GATEWAY_DATABASE_URL \(gateway\): /][i]!,
        );
        expect(stderr).toMatch(said);
        expect(stderr).not.toContain(secret);
      }
      for (const [line, setting] of [
        [await faultOf("inventory-svc/main.ts", env), "INVENTORY_DATABASE_URL (inventory-svc): "],
        [await gatewayFault(env), "GATEWAY_DATABASE_URL (gateway): "],
      ]) {
        expect(line.reason).toMatch(said);
        expect(line.reason.startsWith(setting)).toBe(true);
        expect(line).not.toHaveProperty("err");
      }
    },
  );

  test("a certificate of a known authority is refused for another name, and not for the URL's host", async () => {
    const authority = await createAuthority(stack);
    const place = await temporaryFolder("mysql");
    stack.defer(() => place.remove());
    const prepared = await prepareMysqld(place.path, await freePort());
    const database = serverProcess(prepared, { name: "the database", cwd: place.path, env: process.env });
    stack.defer(() => database.stop());
    const exportWith = async (names: readonly string[]) => {
      const { cert, key, ca } = await authority.issue({ names });
      await database.start(`--ssl-cert=${cert}`, `--ssl-key=${key}`, `--ssl-ca=${ca}`);
      const INVENTORY_DATABASE_URL = `${onLocalhost(await createDatabaseOn(prepared.url))}?ssl=true`;
      const env = { INVENTORY_DATABASE_URL, NODE_EXTRA_CA_CERTS: ca };
      const ended = await runScript({ script: "inventory-svc/cli/stock.ts", args: ["export"], env });
      await database.stop();
      return ended;
    };
    const { code, stderr } = await exportWith(["DNS:elsewhere.example"]);
    expect(code).toBe(1);
    expect(stderr).toMatch(
      /^INVENTORY_DATABASE_URL \(inventory-svc\): the server's certificate is for another host .*localhost.*elsewhere\.example/,
    );
    expect(await exportWith(["DNS:localhost"])).toEqual({ code: 0, stdout: "petId,quantity,status\n", stderr: "" });
  });

  test.each([
    ["?ssl=true", "127.0.0.1", "must have a host name for ?ssl=true, not an address"],
    ["?ssl=true\n", "127.0.0.1", "must have a host name for ?ssl=true, not an address"],
    ["?ssl=true", "[::1]", "must have a host name for ?ssl=true, not an address"],
    ["?ssl=1", "db.internal", "must have no parameter other than ?ssl=true"],
    ["?ssl=true&charset=latin1", "db.internal", "must have no parameter other than ?ssl=true"],
    ["#?ssl=true", "db.internal", "must have no #, which is %23 in a password"],
  ])("a URL that ends in %j for the host %s is refused: it %s", async (parameters, host, said) => {
    const INVENTORY_DATABASE_URL = `mysql://a:${secret}@${host}/stock${parameters}`;
    const env = { ...addresses, INVENTORY_DATABASE_URL };
    const { code, stderr } = await runScript({ script: "inventory-svc/main.ts", env });
    expect(code).toBe(78);
    expect(stderr).toContain(`INVENTORY_DATABASE_URL: ${said}`);
    expect(stderr).not.toContain(secret);
  });

  test("a folder that cannot be made ends npm run migrate", async () => {
    const url = `sqlite:${import.meta.filename}/folder/new.sqlite`;
    const env = { GATEWAY_DATABASE_URL: url, INVENTORY_DATABASE_URL: url };
    const said = /^\w+ \([a-z-]+\): the folder of the file cannot be made \(ENOTDIR[^\n]*\)\n$/;
    const { code, stdout, stderr } = await runScript({ script: "deploy/migrate.ts", env });
    expect({ code, stdout, stderr }).toEqual({ code: 1, stdout: "", stderr: expect.stringMatching(said) });
  });

  test("both services ask for npm run migrate when the schema is missing, with the stack at debug", async () => {
    const emptyFile = join(folder, "empty.sqlite");
    await writeFile(emptyFile, "");
    for (const url of [await server.createDatabase(), `sqlite:${emptyFile}`]) {
      const env = { GATEWAY_DATABASE_URL: url, INVENTORY_DATABASE_URL: url };
      const missing =
        /^\w+ \([a-z-]+\): the schema is missing or older, run npm run migrate \(in the package: npx petstore-migrate\), or restore tables that were lost \((no such table|Table ').*\)$/;
      expect((await faultOf("inventory-svc/main.ts", env)).reason).toMatch(missing);
      expect((await gatewayFault(env)).reason).toMatch(missing);
      const { err } = await faultOf("inventory-svc/main.ts", { ...env, LOG_LEVEL: "debug" });
      expect(err.stack).toContain("at ");
    }
  });

  test("commands and services say that the URL has to lead to the primary on a read-only server", async () => {
    await root.query("SET GLOBAL read_only = 1");
    const env = { INVENTORY_DATABASE_URL: ready };
    const readOnly =
      /^INVENTORY_DATABASE_URL \(inventory-svc\): [^\n]*read-only[^\n]*the URL has to lead to the primary\n?$/;
    try {
      const { stderr } = await runScript({ script: "inventory-svc/cli/stock.ts", args: ["export"], env });
      expect(stderr).toMatch(readOnly);
      expect((await faultOf("inventory-svc/main.ts", env)).reason).toMatch(readOnly);
    } finally {
      await root.query("SET GLOBAL read_only = 0");
    }
  });
});

test("a full disk is asked about where a SQLite file cannot grow", async () => {
  const db = new Sqlite(":memory:");
  db.pragma("max_page_count = 1");
  const work = async () => db.exec("CREATE TABLE pets (id INTEGER)");
  await expect(blamingDatabase("INVENTORY_DATABASE_URL", work)).rejects.toThrow(
    "INVENTORY_DATABASE_URL: the file cannot be read or written, is the disk full? (database or disk is full)",
  );
  db.close();
});

describe("the inventory service", () => {
  test("a gateway names an inventory service that has TLS, which the gateway has not", async () => {
    const url = await createSqliteDatabase();
    stack.defer(() => dropDatabase(url));
    await migrateStock(url);
    const files = await (await createAuthority(stack)).issue({ names: ["DNS:inventory.internal"] });
    const service = await startProcess({
      name: "service",
      script: "inventory-svc/main.ts",
      env: {
        ...addresses,
        INVENTORY_DATABASE_URL: url,
        INVENTORY_TLS_CERT: files.cert,
        INVENTORY_TLS_KEY: files.key,
        INVENTORY_TLS_CLIENT_CA: files.ca,
        INVENTORY_TLS_ROLES: "dns:inventory.internal=writer",
      },
    });
    const line = await gatewayFault({ INVENTORY_ADDRESS: service.listen, INVENTORY_TIMEOUT_MS: "1000" });
    expect(line.reason).toMatch(
      /^INVENTORY_ADDRESS \(inventory-svc\): .*only one side uses TLS.* \(GATEWAY_INVENTORY_TLS_CA/,
    );
    expect(line).not.toHaveProperty("err");
    await service.stop();
  });

  test("a gateway names the inventory service when none is at its address", async () => {
    const line = await gatewayFault({
      INVENTORY_ADDRESS: `127.0.0.1:${await freePort()}`,
      INVENTORY_TIMEOUT_MS: "500",
    });
    expect(line.reason).toMatch(/^INVENTORY_ADDRESS \(inventory-svc\): no service answers \(.*ECONNREFUSED/);
  });
});

describe("Redis", () => {
  const away = "Redis is away";
  // The list is not loaded, so that no request is possible yet.
  const inventory = async () => ({ INVENTORY_ADDRESS: `127.0.0.1:${await freePort()}` });

  test("a gateway says at its start that Redis cannot be used because none is there", async () => {
    const REDIS_URL = `redis://:${secret}@127.0.0.1:${await freePort()}`;
    const line = await gatewayFault({ REDIS_URL, ...(await inventory()) }, away);
    expect(line).toMatchObject({
      level: "error",
      setting: "REDIS_URL",
      reason: expect.stringContaining("ECONNREFUSED"),
    });
    expect(line).not.toHaveProperty("err");
  });

  test("a gateway says at its start that Redis cannot be used because the password is wrong", async () => {
    const redis = await startRedisServer({ args: ["--requirepass", "another"] });
    stack.defer(() => redis.stop());
    const line = await gatewayFault(
      { REDIS_URL: redis.url.replace("//", `//:${secret}@`), ...(await inventory()) },
      away,
    );
    expect(line).toMatchObject({ setting: "REDIS_URL", reason: expect.stringMatching(/WRONGPASS|NOAUTH/) });
  });

  test("a gateway says at its start that Redis cannot be used because nothing there answers", async () => {
    const silent = createServer().listen(0, "127.0.0.1");
    stack.defer(() => void silent.close());
    await once(silent, "listening");
    const { port } = silent.address() as { port: number };
    const line = await gatewayFault({ REDIS_URL: `redis://127.0.0.1:${port}`, ...(await inventory()) }, away);
    expect(line).toMatchObject({ setting: "REDIS_URL" });
  });
});
