// Start and stop of an inventory service process, and what its callers see while its database is away.
import { copyFile, mkdtemp, open, readdir, rename, rm, symlink } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { ChannelCredentials, Client, type ClientReadableStream, status } from "@grpc/grpc-js";
import { protoPath } from "grpc-health-check";
import type { Change } from "../../inventory-svc/stock/change.ts";
import { type DatabaseServer, startPrivateDatabaseServer } from "../support/database-server.ts";
import { createMysqlDatabase, createSqliteDatabase, dropDatabase } from "../support/databases.ts";
import { connectInventory, connectService, messagesOf, statusOf } from "../support/grpc.ts";
import { request } from "../support/http.ts";
import { holdWriteLock, migrateStock, openStock, untilRunning } from "../support/open-stock.ts";
import { freePort } from "../support/ports.ts";
import { cleanup, runScript, startProcess, startScript } from "../support/processes.ts";
import { suiteStack } from "../support/stack.ts";
import { until } from "../support/until.ts";

const script = "inventory-svc/main.ts";
const settings = (url: string, more: Record<string, string> = {}) => ({
  INVENTORY_LISTEN: "127.0.0.1:0",
  INVENTORY_ADMIN_LISTEN: "127.0.0.1:0",
  INVENTORY_DATABASE_URL: url,
  ...more,
});
/** Longer than any stream lives. */
const deadlineMs = 60_000;
/** So long that a stop that waits for its end outlasts its test. */
const longDrain = { DRAIN_SECONDS: "600" };
const create = (petId: bigint): Change => ({ kind: "create", petId, quantity: 1, status: "sold" });

interface Health {
  watch(request: object): ClientReadableStream<{ status: string }>;
}

const stack = suiteStack();
stack.defer(cleanup);

function connect(address: string) {
  const inventory = connectInventory(address);
  stack.defer(() => inventory.close());
  return inventory;
}

function watchHealth(address: string) {
  const client = connectService<Health>(protoPath, "grpc.health.v1.Health", address);
  stack.defer(() => client.close());
  const call = client.watch({ service: "" });
  const next = messagesOf(call);
  return { cancel: () => call.cancel(), next: async () => (await next())?.status };
}

async function newDatabase(creating: Promise<string>): Promise<string> {
  const url = await creating;
  stack.defer(() => dropDatabase(url));
  return url;
}

/** Creates a stock with entries 1 to 3 on the server that all suites share. @returns its URL */
async function newStock(): Promise<string> {
  const url = await newDatabase(createMysqlDatabase());
  await migrateStock(url);
  const { store, close } = openStock(url);
  await store.write([create(1n), create(2n), create(3n)]);
  await close();
  return url;
}

/** Parses the lines of the log; fails on any other output. */
const logOf = (output: string) => output.split("\n").map((line) => JSON.parse(line) as Record<string, unknown>);

describe("configurations", () => {
  const run = (env: Record<string, string>) => runScript({ script, env });

  test("a configuration is refused with exit code 78 and all its faults, without their values", async () => {
    const secret = "s3cret";
    const { code, stdout, stderr } = await run({
      INVENTORY_LISTEN: "everywhere",
      INVENTORY_ADMIN_LISTEN: "127.0.0.1:99999",
      INVENTORY_DATABASE_URL: `mysql://pets:${secret}@127.0.0.1`,
      INVENTORY_DATABASE_POOL: "0",
      INVENTORY_DATABASE_TIMEOUT_MS: "5s",
      INVENTORY_MAX_BATCH: "1e3",
      INVENTORY_INSECURE: "maybe",
      LOG_LEVEL: "loud",
      DRAIN_SECONDS: "-1",
    });
    expect({ code, stdout }).toEqual({ code: 78, stdout: "" });
    expect(stderr.split("\n")).toEqual([
      "The configuration has 9 faults:",
      "  INVENTORY_LISTEN: must be host:port, as in 127.0.0.1:8080",
      "  INVENTORY_ADMIN_LISTEN: must be host:port, as in 127.0.0.1:8080",
      "  INVENTORY_DATABASE_URL: must be sqlite:path/to/file or mysql://user:password@host:port/database, with / # % of a password percent-encoded",
      "  INVENTORY_DATABASE_POOL: must be a whole number from 1 to 500",
      "  INVENTORY_DATABASE_TIMEOUT_MS: must be a whole number from 100 to 600000",
      "  INVENTORY_MAX_BATCH: must be a whole number from 1 to 5000",
      "  INVENTORY_INSECURE: must be 1 or 0",
      "  LOG_LEVEL: must be one of fatal, error, warn, info, debug, trace, silent",
      "  DRAIN_SECONDS: must be a whole number from 0 to 3600",
      "",
    ]);
  });

  test.each(["0.0.0.0:0", "[::]:0", "10.1.2.3:0", "inventory.example:0"])(
    "a configuration that listens on %s without TLS is refused with exit code 78",
    async (listen) => {
      const { code, stderr } = await run(settings("sqlite:stock.sqlite", { INVENTORY_LISTEN: listen }));
      expect(code).toBe(78);
      expect(stderr).toMatch(/^The configuration has a fault:\n {2}INVENTORY_LISTEN: .*INVENTORY_INSECURE=1.*\n$/);
    },
  );

  test.each([
    ["0.0.0.0:0", "1"],
    ["localhost:0", "0"],
  ])("a configuration that listens on %s is accepted with INVENTORY_INSECURE=%s", async (listen, insecure) => {
    const url = await newDatabase(createSqliteDatabase());
    await migrateStock(url);
    const service = await startProcess({
      name: "service",
      script,
      env: settings(url, { INVENTORY_LISTEN: listen, INVENTORY_INSECURE: insecure }),
    });
    const port = new URL(`http://${service.listen}`).port;
    expect(await connect(`localhost:${port}`).list()).toHaveLength(1);
    expect(await service.stop()).toBe(0);
  });

  test("an address in use ends the process with exit code 1, and the log names the address", async () => {
    const url = await newDatabase(createSqliteDatabase());
    await migrateStock(url);
    const first = await startProcess({ name: "first", script, env: settings(url) });
    const { code, stderr } = await run(settings(url, { INVENTORY_LISTEN: first.listen }));
    expect(code).toBe(1);
    expect(stderr).toMatch(/^INVENTORY_LISTEN: listen EADDRINUSE/m);
    expect(stderr).toContain(first.listen);
    const admin = await run(settings(url, { INVENTORY_ADMIN_LISTEN: first.admin }));
    expect(admin).toMatchObject({
      code: 1,
      stderr: expect.stringMatching(/^INVENTORY_ADMIN_LISTEN: .*EADDRINUSE.*\n$/),
    });
    await first.stop();
  });

  test("the configuration is explained by --help, with every setting and its default", async () => {
    const { code, stdout } = await runScript({ script, args: ["--help"] });
    expect(code).toBe(0);
    for (const name of Object.keys(settings(""))) expect(stdout).toContain(name);
    expect(stdout).toMatch(/INVENTORY_LISTEN .*\(default: 127\.0\.0\.1:50051\)/);
  });
});

describe("stops", () => {
  test("a stopping service finishes running calls, takes no new ones and loses no change", async () => {
    const url = await newStock();
    const service = await startProcess({ name: "service", script, env: settings(url, longDrain) });
    const inventory = connect(service.listen);
    const health = watchHealth(service.listen);
    expect(await health.next()).toBe("SERVING");
    const check = inventory.check();
    check.send({ epoch: "", revision: 0n });
    expect(await check.next()).toMatchObject({ reset: true });
    const changes = inventory.applyChanges();
    const lock = await holdWriteLock(url);
    const update = inventory.update({ petId: 1n, quantity: 5 });
    changes.send({ groups: [{ changes: [{ petId: 2n, quantity: 6 }], deadlineMs }] });
    await untilRunning(url, "select", "update");

    await service.kill("SIGTERM");
    expect(await health.next()).toBe("NOT_SERVING");
    expect(await check.next()).toBeUndefined(); // it ends, because no question is open
    expect(await request(service.admin, { path: "/readyz" })).toMatchObject({ status: 503, text: "draining\n" });
    expect(await statusOf(connect(service.listen).get({ petId: 1n }))).toBe("UNAVAILABLE");
    expect(await health.next()).toBeUndefined(); // the watch ends without delaying the stop
    await lock.release();

    expect(await update).toMatchObject({ item: { quantity: 5 } });
    expect(await changes.next()).toMatchObject({ results: [{ item: { quantity: 6 } }] });
    expect(await changes.next()).toBeUndefined();
    expect(await service.exited).toBe(0);
    const { store, close } = openStock(url);
    expect([await store.get(1n), await store.get(2n)]).toMatchObject([{ quantity: 5 }, { quantity: 6 }]);
    await close();
  });

  test("a stopping service first reports that it is not ready, and serves for DRAIN_DELAY_SECONDS", async () => {
    const env = settings(await newStock(), { DRAIN_SECONDS: "15", DRAIN_DELAY_SECONDS: "3" });
    const service = await startProcess({ name: "service", script, env });
    const health = watchHealth(service.listen);
    expect(await health.next()).toBe("SERVING");
    const changes = connect(service.listen).applyChanges();
    await service.kill("SIGTERM");
    expect(await health.next()).toBe("NOT_SERVING");
    expect(await request(service.admin, { path: "/readyz" })).toMatchObject({ status: 503, text: "draining\n" });
    expect(await connect(service.listen).update({ petId: 1n, quantity: 5 })).toMatchObject({ item: { quantity: 5 } });
    changes.send({ groups: [{ changes: [{ petId: 2n, quantity: 6 }], deadlineMs }] });
    expect(await changes.next()).toMatchObject({ results: [{ item: { quantity: 6 } }] });
    expect(await changes.next()).toBeUndefined();
    health.cancel();
    expect(await service.exited).toBe(0);
  });

  test("a stopping inventory service ends streams that callers keep open, and does no more there", async () => {
    const url = await newStock();
    const service = await startProcess({ name: "service", script, env: settings(url, longDrain) });
    const [quiet, busy] = [connect(service.listen).applyChanges(), connect(service.listen).applyChanges()];
    const send = (quantity: number) => busy.send({ groups: [{ changes: [{ petId: 1n, quantity }], deadlineMs }] });
    send(1);
    let last = (await busy.next())!.results[0]!.item;
    await service.kill("SIGTERM");
    for (let quantity = 2; ; quantity++) {
      send(quantity);
      const answer = await busy.next();
      if (!answer) break;
      last = answer.results[0]!.item;
    }
    expect(await quiet.next()).toBeUndefined();
    expect(await service.exited).toBe(0);
    const { store, close } = openStock(url);
    expect(await store.get(1n)).toMatchObject({ quantity: last!.quantity, revision: last!.revision });
    await close();
  });

  test("a stopping inventory service waits at most DRAIN_SECONDS for a call that never ends", async () => {
    const env = settings(await newStock(), { DRAIN_SECONDS: "1" });
    const service = await startProcess({ name: "service", script, env });
    const client = new Client(service.listen, ChannelCredentials.createInsecure());
    stack.defer(() => client.close());
    const same = (bytes: Buffer) => bytes;
    const check = "/grpc.health.v1.Health/Check";
    // A request that does not end.
    client
      .makeBidiStreamRequest(check, same, same)
      .on("error", () => {})
      .write(Buffer.alloc(0));
    // Answered on the same connection, so the request before has arrived.
    await new Promise((resolve) => client.makeUnaryRequest(check, same, same, Buffer.alloc(0), resolve));
    await service.kill("SIGTERM");
    expect(await service.exited).toBe(0);
  });

  test("a stopping inventory service ends by force, with exit code 1, when a write does not end", async () => {
    const url = await newStock();
    // The database's wait for the lock outlasts the stop.
    const slow = { DRAIN_SECONDS: "1", INVENTORY_DATABASE_TIMEOUT_MS: "8000" };
    const service = await startProcess({ name: "service", script, env: settings(url, slow) });
    const lock = await holdWriteLock(url);
    const update = statusOf(connect(service.listen).update({ petId: 1n, quantity: 5 }));
    await untilRunning(url, "select", "update");
    await service.kill("SIGTERM");
    expect(await service.exited).toBe(1);
    expect(await update).toMatch(/^(UNAVAILABLE|CANCELLED)$/);
    await lock.release();
  });

  test("a stopping service that waits for its database ends its calls, then itself with code 0", async () => {
    const listen = `127.0.0.1:${await freePort()}`;
    const url = await newDatabase(createSqliteDatabase());
    const env = settings(url, { INVENTORY_LISTEN: listen, DRAIN_DELAY_SECONDS: "10" });
    const waiting = await startScript({ name: "waiting", script, env });
    await waiting.waitForLine((line) => line.includes("not ready yet") || undefined, 20_000);
    const health = watchHealth(listen);
    expect(await health.next()).toBe("NOT_SERVING");
    await waiting.kill("SIGTERM");
    expect(await health.next()).toBe("NOT_SERVING"); // the stop says it again
    expect(await health.next()).toBeUndefined(); // its end, not a broken connection
    expect(await waiting.exited).toBe(0);
    expect(waiting.output()).not.toMatch(/"ready"|by force|the stop failed/);
  });

  test("a stopping inventory service that still waits for its database ends at once", async () => {
    const waiting = await startScript({
      name: "waiting",
      script,
      env: settings(await newDatabase(createSqliteDatabase())),
    });
    await waiting.waitForLine((line) => line.includes("not ready yet") || undefined, 20_000);
    await waiting.kill("SIGTERM");
    expect(await waiting.exited).toBe(0);
  });
});

test("a SQLite file with a damaged middle keeps the service unready, and the log names it", async () => {
  const url = await newDatabase(createSqliteDatabase());
  await migrateStock(url);
  const { db, store, close } = openStock(url);
  await store.write(Array.from({ length: 5_000 }, (_, i) => create(BigInt(i))));
  await db.raw("pragma wal_checkpoint(truncate)");
  await close();
  const path = url.slice("sqlite:".length);
  await using file = await open(path, "r+");
  const { size } = await file.stat();
  await file.write(Buffer.alloc(4_096, 0xff), 0, 4_096, Math.floor(size / 8_192) * 4_096);

  const service = await startScript({ name: "service", script, env: settings(url) });
  const line = await service.waitForLine((text) => (text.includes("not ready yet") ? text : undefined), 20_000);
  expect(line).toContain(`the SQLite file ${path} is damaged`);
  expect(line).toContain("restore a backup");
  const openFiles = () => readdir(`/proc/${service.pid}/fd`).then(({ length }) => length);
  const before = await openFiles();
  await delay(2_000); // it tries again four times a second
  expect(await openFiles()).toBeLessThan(before + 4);
  await service.kill("SIGTERM");
  expect(await service.exited).toBe(0);
  expect(service.output()).not.toContain('"ready"');
});

const losses: [string, (path: string) => Promise<void>][] = [
  ["deleted", (path) => rm(path)],
  ["left without its log", (path) => rm(`${path}-wal`)],
  ["replaced", (path) => copyFile(path, `${path}.copy`).then(() => rename(`${path}.copy`, path))],
];
test.each([
  ...losses.map((loss) => [...loss, false] as const),
  ...losses.map(([how, lose]) => [`${how}, behind a link,`, lose, true] as const),
])("after a SQLite file is %s the service is not ready, and acknowledges no update", async (_how, lose, isLinked) => {
  const url = await newDatabase(createSqliteDatabase());
  await migrateStock(url);
  const path = url.slice("sqlite:".length);
  const link = join(await mkdtemp(join(tmpdir(), "link-")), "stock.sqlite");
  stack.defer(() => rm(dirname(link), { recursive: true }));
  await symlink(path, link);
  const env = settings(isLinked ? `sqlite:${link}` : url);
  const service = await startProcess({ name: "inventory-svc", script, env });
  stack.defer(async () => void (await service.stop()));
  const inventory = connect(service.listen);
  await inventory.create({ petId: 1n, quantity: 1, status: 0 });
  await lose(path);
  expect(await statusOf(inventory.update({ petId: 1n, quantity: 2 }))).toBe("UNAVAILABLE");
  const { status, text } = await request(service.admin, { path: "/readyz" });
  expect({ status, text }).toEqual({
    status: 503,
    text: expect.stringContaining("was deleted or replaced while it was open"),
  });
});

describe("migrations", () => {
  test("a schema under migration keeps the service unready until it is complete, without a restart", async () => {
    const url = await newDatabase(createSqliteDatabase());
    const admin = `127.0.0.1:${await freePort()}`;
    const listen = `127.0.0.1:${await freePort()}`;
    const env = settings(url, { INVENTORY_ADMIN_LISTEN: admin, INVENTORY_LISTEN: listen });
    const service = await startScript({ name: "service", script, env });
    await service.waitForLine((line) => line.includes("not ready yet") || undefined, 20_000);
    expect(await request(admin, { path: "/livez" })).toMatchObject({ status: 200 });
    expect(await request(admin, { path: "/readyz" })).toMatchObject({
      status: 503,
      text: expect.stringMatching(
        /^INVENTORY_DATABASE_URL \(inventory-svc\): the schema is .*run npm run migrate.*\n$/,
      ),
    });
    const health = watchHealth(listen);
    expect(await health.next()).toBe("NOT_SERVING");
    expect(await statusOf(connect(listen).get({ petId: 1n }))).toBe("UNAVAILABLE");

    await migrateStock(url);
    const ready = await service.waitForLine((line) => (line.includes('"ready"') ? line : undefined), 20_000);
    const { version } = (await import("../../package.json", { with: { type: "json" } })).default;
    expect(JSON.parse(ready)).toMatchObject({ listen, admin, version });
    expect(await health.next()).toBe("SERVING");
    expect(await request(admin, { path: "/readyz" })).toMatchObject({ status: 200 });
    expect(await statusOf(connect(listen).get({ petId: 1n }))).toBe("NOT_FOUND");
    health.cancel();
    expect(await service.stop(20_000)).toBe(0);
    logOf(service.output());
  });
});

describe("outages of the database", () => {
  let server: DatabaseServer;
  let url: string;
  beforeAll(async () => {
    server = await startPrivateDatabaseServer();
    stack.defer(() => server.stop());
    url = await server.createDatabase();
    await migrateStock(url);
    const { store, close } = openStock(url);
    await store.write([create(1n), create(2n)]);
    await close();
  });
  const env = () => settings(url, { INVENTORY_DATABASE_TIMEOUT_MS: "500" });

  /** Makes every kind of call, with a deadline of 10 s. @returns the statuses that they end with, each once */
  async function callAll(address: string): Promise<string[]> {
    const inventory = connect(address);
    const inTime = { deadline: Date.now() + 10_000 };
    const check = inventory.check(inTime);
    check.send({ epoch: "", revision: 0n });
    const changes = inventory.applyChanges(inTime);
    changes.send({ groups: [{ changes: [{ petId: 1n, quantity: 5 }], deadlineMs: 10_000 }] });
    const ends = await Promise.all([
      statusOf(inventory.get({ petId: 1n }, inTime)),
      statusOf(inventory.list(inTime)),
      statusOf(check.next()),
      statusOf(inventory.update({ petId: 1n, quantity: 5 }, inTime)),
      statusOf(inventory.create({ petId: 9n, quantity: 5, status: 1 }, inTime)),
      changes.next().then((answer) => status[answer!.results[0]!.refusal?.code ?? status.OK]!),
    ]);
    inventory.close();
    check.call.cancel();
    changes.call.end();
    return [...new Set(ends)];
  }
  const untilServing = (address: string) => {
    const inventory = connect(address);
    return until(async () => (await statusOf(inventory.get({ petId: 1n }))) === "OK");
  };

  test("a database server that is down when the service starts keeps it unready until it is up", async () => {
    await server.kill("SIGKILL");
    const admin = `127.0.0.1:${await freePort()}`;
    const service = await startScript({ name: "service", script, env: { ...env(), INVENTORY_ADMIN_LISTEN: admin } });
    await service.waitForLine((line) => line.includes("not ready yet") || undefined, 20_000);
    expect(await request(admin, { path: "/readyz" })).toMatchObject({ status: 503 });
    await server.restart();
    const address = await service.waitForLine((line) => /"listen":"([^"]+)"/.exec(line)?.[1], 20_000);
    expect(await request(admin, { path: "/readyz" })).toMatchObject({ status: 200 });
    expect(await connect(address).get({ petId: 2n })).toMatchObject({ item: { petId: 2n, quantity: 1 } });
    expect(await service.stop(20_000)).toBe(0);
    // The reason for the wait is logged once, not four times a second, and never with the password.
    expect(logOf(service.output()).filter(({ msg }) => msg === "not ready yet").length).toBeLessThanOrEqual(3);
    expect(service.output()).not.toContain(new URL(url).password);
  });

  test("a killed database server makes calls UNAVAILABLE until it is back, logged without a stack", async () => {
    const service = await startProcess({ name: "service", script, env: env() });
    expect(await callAll(service.listen)).toContain("OK");
    await server.kill("SIGKILL");
    expect(await callAll(service.listen)).toEqual(["UNAVAILABLE"]);
    expect(await request(service.admin, { path: "/readyz" })).toMatchObject({ status: 503 });
    await server.restart();
    await untilServing(service.listen);
    expect(await connect(service.listen).update({ petId: 1n, quantity: 77 })).toMatchObject({ item: { quantity: 77 } });
    expect(await request(service.admin, { path: "/readyz" })).toMatchObject({ status: 200 });
    expect(await service.stop()).toBe(0);
    const faults = logOf(service.output()).filter(({ err }) => err !== undefined);
    expect(faults).not.toEqual([]);
    expect(JSON.stringify(faults)).not.toMatch(/"stack"|select /);
  });

  test("a frozen database server makes calls UNAVAILABLE before their deadlines, until it goes on", async () => {
    const service = await startProcess({ name: "service", script, env: env() });
    expect(await callAll(service.listen)).toContain("OK"); // so there are open connections
    await server.kill("SIGSTOP");
    // The first round uses open connections, the second one new ones that the server never answers.
    for (let round = 0; round < 2; round++) {
      expect(await callAll(service.listen)).toEqual(["UNAVAILABLE"]);
    }
    await server.kill("SIGCONT");
    await untilServing(service.listen);
    expect(await connect(service.listen).update({ petId: 1n, quantity: 78 })).toMatchObject({ item: { quantity: 78 } });
    expect(await service.stop()).toBe(0);
    logOf(service.output());
  });
});
