import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, constants, openSync, writeSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { connect, Socket } from "node:net";
import { join, resolve } from "node:path";
import { text } from "node:stream/consumers";
import { request } from "../support/http.ts";
import type { LogOrder, LogReport } from "../support/log-writer.ts";
import { freePort } from "../support/ports.ts";
import { suiteStack, temporaryFolder } from "../support/stack.ts";
import { type Env, type System, startSystem } from "../support/system.ts";
import { until } from "../support/until.ts";

const root = resolve(import.meta.dirname, "../..");
const stack = suiteStack();
let folder: string;
let pipes = 0;

beforeAll(async () => {
  const temporary = await temporaryFolder("log-output");
  stack.defer(() => temporary.remove());
  folder = temporary.path;
});

function start(script: string, stdout: number | "pipe", env: Env = {}): ChildProcess {
  const child = spawn(process.execPath, [join(root, script)], {
    cwd: folder,
    env: { PATH: process.env.PATH, DRAIN_DELAY_SECONDS: "0", ...env },
    stdio: ["ignore", stdout, "inherit", "ipc"],
  });
  stack.defer(() => void child.kill("SIGKILL"));
  return child;
}

/** A pipe whose ends are file descriptors; nothing reads it before the test does. */
function openPipe() {
  const path = join(folder, `pipe-${pipes++}`);
  execFileSync("mkfifo", [path]);
  const reader = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
  return { reader, writer: openSync(path, constants.O_WRONLY | constants.O_NONBLOCK) };
}

/** Fills a pipe, so that each further write to it has to wait. */
function fill(writer: number): void {
  const piece = Buffer.alloc(4096, " ");
  try {
    for (;;) writeSync(writer, piece);
  } catch {
    return;
  }
}

describe("a gateway whose log is not read", () => {
  const stack = suiteStack();
  let system: System;
  beforeAll(async () => {
    system = await startSystem({ seed: [{ petId: 1n, quantity: 1, status: "available" }], gateways: 0 });
    stack.defer(() => system.close());
  });

  /** Starts a gateway on the writing end of a pipe, and waits until it serves. */
  async function startGateway(writer: number) {
    const [listen, admin] = [`127.0.0.1:${await freePort()}`, `127.0.0.1:${await freePort()}`];
    const addresses = { GATEWAY_LISTEN: listen, GATEWAY_ADMIN_LISTEN: admin };
    const gateway = start("gateway/main.ts", writer, { ...system.gatewayEnv, ...addresses, DRAIN_SECONDS: "600" });
    closeSync(writer);
    const isReady = () => request(admin, { path: "/readyz" }).then(({ status }) => status === 200);
    await until(() => isReady().catch(() => false), { withinMs: 60_000 });
    return { gateway, listen, exited: once(gateway, "exit") };
  }
  const headers = () => ({ authorization: `Bearer ${system.keys.enterprise}` });
  const get = (address: string) => request(address, { path: "/v1/inventory", headers: headers() });

  /** Sends the first part of a request, which a stop waits for. */
  async function keepBusy(address: string) {
    const [host, port] = address.split(":");
    const busy = connect(Number(port), host).on("error", () => {});
    stack.defer(() => void busy.destroy());
    const body = `Content-Type: application/json\r\nContent-Length: 14\r\n\r\n{"quan`;
    busy.write(`PATCH /v1/inventory/1 HTTP/1.1\r\nHost: g\r\nAuthorization: ${headers().authorization}\r\n${body}`);
    expect(await get(address)).toMatchObject({ status: 200 }); // so the bytes above have arrived
  }

  const readers: [string, (pipe: ReturnType<typeof openPipe>) => void][] = [
    ["stands still", ({ writer }) => fill(writer)],
    ["has gone", ({ reader }) => closeSync(reader)],
  ];

  test.each(readers)("a gateway serves and stops when the reader of its log %s", async (_what, stopReading) => {
    const pipe = openPipe();
    stopReading(pipe);
    const { gateway, listen, exited } = await startGateway(pipe.writer);
    const answers = await Promise.all(Array.from({ length: 200 }, () => get(listen)));
    expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([200]));
    gateway.kill("SIGTERM");
    expect(await exited).toEqual([0, null]);
  });

  test("a gateway stops whose log's reader goes while lines are on their way to it", async () => {
    const { reader, writer } = openPipe();
    fill(writer);
    const { gateway, listen, exited } = await startGateway(writer);
    await get(listen);
    closeSync(reader);
    gateway.kill("SIGTERM");
    expect(await exited).toEqual([0, null]);
  });

  test.each(readers)("a second SIGTERM ends a gateway when the reader of its log %s", async (_what, stopReading) => {
    const pipe = openPipe();
    stopReading(pipe);
    const { gateway, listen, exited } = await startGateway(pipe.writer);
    await keepBusy(listen);
    const timer = setInterval(() => gateway.kill("SIGTERM"), 200); // those of the first second count as one
    stack.defer(() => clearInterval(timer));
    expect(await exited).toEqual([1, null]);
  });
});

describe.each(["pipe", "socket"])("the log on a %s", (kind) => {
  /** Starts a process that logs lines on order. Its output is read once `read` is called. */
  async function startWriter() {
    const pipe = kind === "pipe" ? openPipe() : undefined;
    const writer = start("test/support/log-writer.ts", pipe?.writer ?? "pipe"); // Node makes a socket of "pipe"
    if (pipe) closeSync(pipe.writer);
    const output = pipe ? () => new Socket({ fd: pipe.reader, readable: true }) : () => writer.stdout!;
    await once(writer, "message");
    const ask = (order: LogOrder) => writer.send(order);
    const report = async () => (await once(writer, "message"))[0] as LogReport;
    return { ask, report, read: () => text(output()), exited: once(writer, "exit") };
  }

  test("lines that no reader takes are dropped beyond 8 MiB, and one later line counts them", async () => {
    const { ask, report, read } = await startWriter();
    const total = 200_000; // 60 MB
    ask({ lines: total });
    const { grownMiB, lost } = await report();
    expect(grownMiB).toBeLessThan(64);
    const everything = read();
    // A few more lines, until one is kept: they are lost as long as older ones wait for the reader.
    let asked = total;
    let latest = lost;
    for (let before = -1; before !== latest; asked += 1) {
      before = latest;
      ask({ lines: 1 });
      latest = (await report()).lost;
    }
    ask({ lines: 0, exitCode: 0 });
    const lines = (await everything)
      .trimEnd()
      .split("\n")
      .map((line) => JSON.parse(line));
    const gaps = lines.filter(({ msg }) => msg !== "line");
    expect(gaps.length).toBeGreaterThan(0);
    expect(gaps[0]).toMatchObject({ level: "warn", name: "writer", msg: expect.stringContaining("lost") });
    expect(gaps.reduce((sum, gap) => sum + gap.lines, 0)).toBe(latest);
    expect(lines.length - gaps.length + latest).toBe(asked);
  });

  test("no line is lost when the process ends right after it", async () => {
    const { ask, read, exited } = await startWriter();
    const everything = read();
    ask({ lines: 1_000, exitCode: 3 });
    expect((await everything).split('"msg":"line"')).toHaveLength(1_001);
    expect(await exited).toEqual([3, null]);
  });
});

test("the lines of two processes on one pipe stay whole when its reader lags", async () => {
  const { reader, writer } = openPipe();
  fill(writer);
  const writers = [1, 2].map(() => start("test/support/log-writer.ts", writer));
  closeSync(writer);
  await Promise.all(writers.map((each) => once(each, "message")));
  const reports = Promise.all(writers.map((each) => once(each, "message")));
  for (const each of writers) each.send({ lines: 10_000 } satisfies LogOrder);
  await reports;
  const everything = text(new Socket({ fd: reader, readable: true }));
  for (const each of writers) each.send({ lines: 10_000, exitCode: 0 } satisfies LogOrder);
  const lines = (await everything).trim().split("\n");
  expect(lines.filter((line) => JSON.parse(line).msg === "line")).toHaveLength(40_000);
});

test("the log in a file has every line up to the end of the process", async () => {
  const path = join(folder, "log");
  const file = openSync(path, "w");
  const writer = start("test/support/log-writer.ts", file);
  closeSync(file);
  await once(writer, "message");
  const exited = once(writer, "exit");
  writer.send({ lines: 10_000, exitCode: 3 } satisfies LogOrder);
  expect(await exited).toEqual([3, null]);
  expect((await readFile(path, "utf8")).split('"msg":"line"')).toHaveLength(10_001);
});
