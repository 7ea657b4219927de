import { existsSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { createServer as createHttpServer } from "node:http";
import { createServer } from "node:net";
import { dirname, join } from "node:path";
import { Redis } from "ioredis";
import { listenOn } from "../../runtime/admin.ts";
import { openDatabase } from "../../runtime/database/open.ts";
import { callApi } from "../support/api.ts";
import { type DatabaseServer, startPrivateDatabaseServer } from "../support/database-server.ts";
import { createMysqlDatabase, createSqliteDatabase, describeEachDatabase, dropDatabase } from "../support/databases.ts";
import { parseJson, rawRequest, request } from "../support/http.ts";
import { connectMysql } from "../support/mysql-client.ts";
import { cleanup, runScript, startProcess } from "../support/processes.ts";
import { startRedisServer } from "../support/redis-server.ts";
import { suiteStack, temporaryFolder } from "../support/stack.ts";

async function query(url: string, statement: string): Promise<Record<string, unknown>[]> {
  const connection = await connectMysql(url);
  try {
    const [rows] = await connection.query(statement);
    return rows as Record<string, unknown>[];
  } finally {
    await connection.end();
  }
}

describe("a private database server", () => {
  const stack = suiteStack();
  let server: DatabaseServer;
  beforeAll(async () => {
    server = await startPrivateDatabaseServer();
    stack.defer(() => server.stop());
  });

  test("is set to have every commit on disk before it is acknowledged or readers see it", async () => {
    const [settings] = await query(
      server.url(""),
      "SELECT @@innodb_flush_log_at_trx_commit AS redo, @@log_bin AS binlog, @@sync_binlog AS synced, @@innodb_doublewrite AS doublewrite",
    );
    expect(settings).toMatchObject({ redo: 1, binlog: 1, synced: 1 });
    expect(String(settings?.doublewrite)).toMatch(/^(1|ON)$/);
  });

  test("creates databases in utf8mb4 and drops no others", async () => {
    const url = await server.createDatabase();
    expect(await query(url, "SELECT @@character_set_database AS charset")).toEqual([{ charset: "utf8mb4" }]);
    await server.dropDatabase(url);
    await expect(query(url, "SELECT 1")).rejects.toMatchObject({ code: "ER_BAD_DB_ERROR" });
    await expect(server.dropDatabase(server.url("mysql"))).rejects.toThrow("not a database of the tests");
  });

  test("keeps committed rows across kill -9 and a restart on the same port", async () => {
    const url = await server.createDatabase();
    await query(url, "CREATE TABLE kept (id BIGINT PRIMARY KEY)");
    await query(url, "INSERT INTO kept VALUES (7)");
    await server.kill("SIGKILL");
    expect(server.pid).toBeUndefined();
    await expect(query(url, "SELECT 1")).rejects.toMatchObject({ code: "ECONNREFUSED" });
    await server.restart();
    expect(await query(url, "SELECT id FROM kept")).toEqual([{ id: 7 }]);
    await server.restart();
    expect(await query(url, "SELECT id FROM kept")).toEqual([{ id: 7 }]);
  });
});

describe("a Redis server", () => {
  const stack = suiteStack();

  test("of the tests can be suspended, resumed, killed and restarted empty", async () => {
    const server = await startRedisServer();
    stack.defer(() => server.stop());
    const client = new Redis(server.url, { commandTimeout: 200, maxRetriesPerRequest: 20 });
    stack.defer(() => client.disconnect());
    client.on("error", () => {}); // it reconnects by itself
    await client.set("pet", "cat");
    await server.kill("SIGSTOP");
    await expect(client.get("pet")).rejects.toThrow("Command timed out");
    await server.kill("SIGCONT");
    expect(await client.get("pet")).toBe("cat");
    await server.kill("SIGKILL");
    expect(server.pid).toBeUndefined();
    await server.restart();
    const later = new Redis(server.url);
    stack.defer(() => later.disconnect());
    expect(await later.get("pet")).toBeNull();
  });

  test("of the tests can be stopped while it is suspended", async () => {
    const server = await startRedisServer();
    await server.kill("SIGSTOP");
    await server.stop();
    expect(server.pid).toBeUndefined();
  });
});

describeEachDatabase("a database of a suite", (url) => {
  test("is empty and accepts tables", async () => {
    const db = openDatabase(url());
    try {
      await db.schema.createTable("pets", (table) => table.bigInteger("id").primary());
      await db("pets").insert({ id: 9_223_372_036_854_775_807n });
      expect(await db("pets")).toEqual([{ id: 9_223_372_036_854_775_807n }]);
    } finally {
      await db.destroy();
    }
  });
});

test("dropDatabase removes databases of the tests and refuses any other", async () => {
  const sqlite = await createSqliteDatabase();
  await dropDatabase(sqlite);
  expect(existsSync(dirname(sqlite.slice("sqlite:".length)))).toBe(false);
  await expect(dropDatabase("sqlite:.data/gateway.sqlite")).rejects.toThrow("not a database of the tests");
  const mysql = await createMysqlDatabase();
  await dropDatabase(mysql);
  await expect(query(mysql, "SELECT 1")).rejects.toMatchObject({ code: "ER_BAD_DB_ERROR" });
});

/** Stands for a process of the system: prints where it listens, and drains on SIGTERM. */
const exampleProcess = `
  import { createServer } from "node:http";
  if (process.env.FAULT) { console.error("no good: " + process.env.FAULT); process.exit(78); }
  const server = createServer((request, response) => response.end(JSON.stringify(process.env)));
  server.listen(0, "127.0.0.1", () => {
    const address: string = "127.0.0.1:" + (server.address() as { port: number }).port;
    console.log("{ not JSON");
    console.log(JSON.stringify({ msg: "ready", listen: address, admin: address }));
  });
  process.on("SIGTERM", () => { console.log("draining"); process.exit(3); });
`;

describe("a process of the system", () => {
  const stack = suiteStack();
  stack.defer(cleanup);
  let script: string;
  beforeAll(async () => {
    const folder = await temporaryFolder("script");
    stack.defer(() => folder.remove());
    script = join(folder.path, "main.ts");
    await writeFile(script, exampleProcess);
  });

  test("is ready when it logs so, has a clean environment and stops on SIGTERM", async () => {
    const running = await startProcess({ name: "example", script, env: { COLOR: "blue" } });
    const response = await request(running.listen, { path: "/" });
    expect(response.status).toBe(200);
    const { PATH, HOME, NODE_COMPILE_CACHE: _, ...others } = response.json<Record<string, string>>();
    expect({ PATH, HOME }).toEqual({ PATH: process.env.PATH, HOME: process.env.HOME });
    expect(others).toEqual({ COLOR: "blue", DRAIN_DELAY_SECONDS: "0" }); // no balancer waits in the tests
    expect(await running.stop()).toBe(3);
    expect(running.output()).toContain("draining");
  });

  test("the start of a process rejects with its output when it ends before it is ready", async () => {
    const starting = startProcess({ name: "example", script, env: { FAULT: "colour" } });
    await expect(starting).rejects.toThrow(/example ended before it was ready, with 78[\s\S]*no good: colour/);
    expect(await runScript({ script, env: { FAULT: "size" } })).toEqual({
      code: 78,
      stdout: "",
      stderr: "no good: size\n",
    });
  });

  test("is gone after kill -9 and after cleanup()", async () => {
    const one = await startProcess({ name: "one", script });
    await one.kill("SIGKILL");
    expect(await one.exited).toBeNull();
    const two = await startProcess({ name: "two", script });
    await cleanup();
    await expect(request(two.listen, { path: "/" })).rejects.toMatchObject({ code: "ECONNREFUSED" });
  });
});

/** Answers every connection with the same bytes, a few at a time, and then closes it. */
async function answering(bytes: string, close: boolean) {
  const server = createServer((socket) => {
    socket.on("error", () => {});
    socket.once("data", async () => {
      for (const part of bytes.match(/[\s\S]{1,7}/g) ?? []) {
        socket.write(part);
        await new Promise(setImmediate);
      }
      if (close) socket.end();
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return { server, address: `127.0.0.1:${(server.address() as { port: number }).port}` };
}

describe("a raw request", () => {
  const head = "HTTP/1.1 200 OK\r\nX-A: 1\r\nx-a: 2\r\n";
  test.each([
    ["Content-Length", `${head}Content-Length: 5\r\n\r\nhello`, false, "hello"],
    ["chunks", `${head}Transfer-Encoding: chunked\r\n\r\n2;x=y\r\nhe\r\n3\r\nllo\r\n0\r\nT: 1\r\n\r\n`, false, "hello"],
    ["a body up to the end of the connection", `${head}\r\nhello`, true, "hello"],
    ["100 Continue first", `HTTP/1.1 100 Continue\r\n\r\n${head}Content-Length: 0\r\n\r\n`, false, ""],
  ])("reads a response with %s", async (_how, bytes, close, body) => {
    const { server, address } = await answering(bytes, close);
    const response = await rawRequest(address, "GET / HTTP/1.1\r\n\r\n");
    server.close();
    expect(response).toMatchObject({ status: 200, headers: { "x-a": ["1", "2"] } });
    expect(response.body.toString()).toBe(body);
    expect(response.raw.toString()).toBe(bytes);
  });

  test.each([
    ["the connection ends early", `${head}Content-Length: 9\r\n\r\nhello`, true, "ended before a complete response"],
    ["the time is up", `${head}Content-Length: 9\r\n\r\nhello`, false, "no complete response in 200 ms"],
    ["it is not HTTP", "SSH-2.0-OpenSSH\r\n\r\n", false, "not a status line"],
  ])("fails when %s", async (_why, bytes, close, message) => {
    const { server, address } = await answering(bytes, close);
    await expect(rawRequest(address, "GET / HTTP/1.1\r\n\r\n", { timeoutMs: 200 })).rejects.toThrow(message);
    server.close();
  });

  test("expects no body in the answer to HEAD", async () => {
    const { server, address } = await answering(`${head}Content-Length: 9\r\n\r\n`, false);
    expect((await rawRequest(address, "HEAD / HTTP/1.1\r\n\r\n")).body).toHaveLength(0);
    server.close();
  });
});

describe("a call of the API", () => {
  const stack = suiteStack();
  const limits = { "x-ratelimit-limit": 60, "x-ratelimit-remaining": 59, "x-ratelimit-reset": 1767225660 };
  const always = { ...limits, "ratelimit-policy": '"minute";q=60;w=60', ratelimit: '"minute";r=59;t=60' };
  const tags = { etag: '"1-1"', vary: "Accept-Encoding", "cache-control": "private, no-cache" };
  const listed = { "content-type": "application/json", "x-request-id": "1", ...always, ...tags };
  let address: string;
  let answer: { status: number; headers: Record<string, string | number>; body: string };
  beforeAll(async () => {
    const server = createHttpServer((_request, response) => {
      response.writeHead(answer.status, answer.headers).end(answer.body);
    });
    address = await listenOn(server, { host: "127.0.0.1", port: 0 });
    stack.defer(() => void server.close());
  });

  test("accepts an answer that the OpenAPI document describes", async () => {
    answer = { status: 200, headers: listed, body: '[{"petId":9223372036854775807,"quantity":1,"status":"sold"}]' };
    expect(await callApi(address, { path: "/v1/inventory" })).toMatchObject({ status: 200 });
  });

  test.each([
    ["an undocumented status", { status: 202 }, "the status is not documented"],
    ["an undocumented header", { headers: { ...listed, "x-secret": "1" } }, "x-secret is not documented"],
    ["a wrong header value", { headers: { ...listed, "x-ratelimit-limit": "many" } }, "X-RateLimit-Limit: many"],
    [
      "a missing header",
      { headers: { ...always, ...tags, "content-type": "application/json" } },
      "X-Request-Id is missing",
    ],
    [
      "an undocumented media type",
      { headers: { ...listed, "content-type": "text/html" } },
      "Content-Type text/html is not documented",
    ],
    ["a wrong body", { body: '[{"petId":"1","quantity":1,"status":"sold"}]' }, "/0/petId must be integer"],
    [
      "a wrong error body",
      { status: 503, headers: { ...listed, ...always }, body: '{"code":"broken"}' },
      "must have required property",
    ],
  ])("fails for %s", async (_what, given, fault) => {
    answer = { status: 200, headers: listed, body: "[]", ...given };
    await expect(callApi(address, { path: "/v1/inventory" })).rejects.toThrow(fault);
  });
});

test("parseJson keeps 64-bit integers exact", () => {
  expect(parseJson('{"max":9223372036854775807,"small":[3,-1.5,1e300],"text":"9223372036854775807"}')).toEqual({
    max: 9_223_372_036_854_775_807n,
    small: [3, -1.5, 1e300],
    text: "9223372036854775807",
  });
});
