import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import type { Knex } from "knex";
import { acquireConnection, releaseConnection } from "../../runtime/database/knex-internals.ts";
import { askAgain, type DatabaseOptions, databaseDefaults, openDatabase } from "../../runtime/database/open.ts";
import { createMysqlDatabase, dropDatabase } from "../support/databases.ts";
import { startLink } from "../support/link.ts";

interface PromiseConnection {
  promise(): { query(sql: string): Promise<unknown> };
}

/** Passes connections on, and lets the first one fall silent once the server has accepted its account. */
async function startProxy(stack: AsyncDisposableStack, port: number): Promise<number> {
  const sockets = new Set<Socket>();
  let connections = 0;
  const proxy = createServer((client) => {
    const isFirst = ++connections === 1;
    const server = connect(port, "127.0.0.1");
    for (const socket of [client, server]) sockets.add(socket.on("error", () => {}));
    server.pipe(client);
    client.on("data", (chunk) => {
      // Packets that answer the handshake have a number above 0; a command begins again at 0.
      if (isFirst && chunk[3] === 0) return;
      server.write(chunk);
    });
    client.on("close", () => server.destroy());
  }).listen(0, "127.0.0.1");
  await once(proxy, "listening");
  stack.defer(() => {
    for (const socket of sockets) socket.destroy();
    proxy.close();
  });
  return (proxy.address() as AddressInfo).port;
}

/** Opens a new database, which is dropped at the end. */
async function openNew(stack: AsyncDisposableStack, options: Partial<DatabaseOptions> = {}): Promise<Knex> {
  const url = await createMysqlDatabase();
  stack.defer(() => dropDatabase(url));
  const db = openDatabase(url, { ...databaseDefaults, ...options });
  stack.defer(() => db.destroy());
  return db;
}

test("a first connection that falls silent after its handshake delays no later one", async () => {
  await using stack = new AsyncDisposableStack();
  const url = new URL(await createMysqlDatabase());
  const direct = url.href;
  stack.defer(() => dropDatabase(direct));
  url.port = String(await startProxy(stack, Number(url.port)));
  const db = openDatabase(url.href, { ...databaseDefaults, acquireTimeoutMs: 5_000, silenceTimeoutMs: 1_000 });
  stack.defer(() => db.destroy());
  await expect(db.raw("SELECT 1")).rejects.toThrow();
  const [rows] = await db.raw("SELECT 'two' AS answer");
  expect(rows).toEqual([{ answer: "two" }]);
});

test("an answer that came while this thread was busy beyond the silence time-out is read", async () => {
  await using stack = new AsyncDisposableStack();
  const db = await openNew(stack, { silenceTimeoutMs: 300 });
  await db.raw("SELECT 1"); // so that there is a connection
  const sent = once(db, "query");
  const answer = db.raw("SELECT 'late' AS answer").then(([rows]) => rows);
  await sent;
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 900);
  expect(await answer).toEqual([{ answer: "late" }]);
});

test("one connection to the database stays open while nobody uses it", async () => {
  await using stack = new AsyncDisposableStack();
  const db = await openNew(stack, { silenceTimeoutMs: 300 });
  const connectionId = async () => (await db.raw("SELECT CONNECTION_ID() AS id"))[0][0].id;
  const opened = await connectionId();
  await delay(3_000); // longer than a silence, and longer than the time after which the others are closed
  expect(await connectionId()).toBe(opened);
});

test("an idle connection whose server answers no more is closed", async () => {
  await using stack = new AsyncDisposableStack();
  const url = new URL(await createMysqlDatabase());
  const direct = url.href;
  stack.defer(() => dropDatabase(direct));
  const link = await startLink(stack, Number(url.port));
  url.port = String(link.port);
  const db = openDatabase(url.href, { ...databaseDefaults, silenceTimeoutMs: 300 });
  stack.defer(() => db.destroy());
  const connection = await acquireConnection<{ stream: Socket }>(db);
  await releaseConnection(db, connection);
  link.silence();
  await once(connection.stream, "close");
});

test("the error of a query says what the database has said, and no statement", async () => {
  await using stack = new AsyncDisposableStack();
  const db = await openNew(stack);
  const failing = [() => db("none").where({ id: 1 }).first("a"), () => db.transaction((trx) => trx("none").delete())];
  for (const fail of failing) {
    const { message } = await fail().then(
      () => new Error("it did not fail"),
      (error: Error) => error,
    );
    expect(message).toMatch(/^Table '[^']*none' doesn't exist$/);
  }
});

test("a statement that waits behind a question to the server is not sent when the question fails", async () => {
  await using stack = new AsyncDisposableStack();
  const db = await openNew(stack);
  await db.raw("CREATE TABLE written (id INT PRIMARY KEY)");
  const connection = await acquireConnection<PromiseConnection>(db);
  await connection.promise().query("SET SESSION max_join_size = 1, sql_big_selects = 0"); // the question is too large
  const question = askAgain(connection);
  const waiting = connection.promise().query("INSERT INTO written VALUES (1)");
  await expect(question).rejects.toThrow("MAX_JOIN_SIZE");
  await expect(waiting).rejects.toThrow();
  await releaseConnection(db, connection);
  expect((await db.raw("SELECT id FROM written"))[0]).toEqual([]);
});
