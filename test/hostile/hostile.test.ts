import { execFile } from "node:child_process";
import { once } from "node:events";
import { readdirSync, readFileSync } from "node:fs";
import { type AddressInfo, createServer } from "node:net";
import { join } from "node:path";
import { promisify } from "node:util";
import { suiteStack } from "../support/stack.ts";
import { type System, startSystem } from "../support/system.ts";
import { exchange } from "./http-exchange.ts";

/** Bytes that once were answered wrongly, or easily could be. `KEY` in them is a good key. */
interface KeptCase {
  readonly what: string;
  readonly bytes: string;
  readonly statuses: readonly number[];
}

const folder = join(import.meta.dirname, "kept");
const kept = readdirSync(folder).map((name) => JSON.parse(readFileSync(join(folder, name), "utf8")) as KeptCase);

describe("hostile bytes", () => {
  const stack = suiteStack();
  let system: System;
  beforeAll(async () => {
    const seed = [1n, 2n].map((petId) => ({ petId, quantity: 100, status: "available" as const }));
    system = await startSystem({ seed });
    stack.defer(() => system.close());
  });

  test.each(kept)("$what", async ({ bytes, statuses }) => {
    const input = Buffer.from(bytes.replaceAll("KEY", system.keys.enterprise), "latin1");
    const before = await system.stored(1n);
    expect(await exchange(system.address, input, "127.0.0.1")).toEqual({ statuses, fault: undefined });
    if (!statuses.includes(200)) expect(await system.stored(1n)).toEqual(before);
  });
});

const labels = `X-Request-Id: a\r\nRateLimit: "minute";r=1;t=1\r\nRateLimit-Policy: "minute";q=1;w=60\r\n`;
const error = (status: number) => JSON.stringify({ code: "a", message: "b", status });
const answer = (status: number, head: string, body: string, length = body.length) =>
  `HTTP/1.1 ${status} X\r\n${head}Content-Length: ${length}\r\n\r\n${body}`;

test.each([
  ["no answer", ""],
  ["a fault of the server", answer(500, labels, error(500))],
  ["an answer without its labels", answer(200, "", "")],
  ["another shape of an error", answer(400, labels, "<html>")],
  ["an answer that is cut", answer(200, labels, "", 5)],
  ["a second answer without its labels", answer(400, labels, error(400)) + answer(200, "", "")],
])("the judge of hostile bytes finds %s", async (_what, bytes) => {
  await using stack = new AsyncDisposableStack();
  const server = createServer((socket) =>
    socket
      .on("error", () => {})
      .resume()
      .end(bytes),
  ).listen(0, "127.0.0.1");
  stack.defer(() => void server.close());
  await once(server, "listening");
  const { fault } = await exchange(
    `127.0.0.1:${(server.address() as AddressInfo).port}`,
    Buffer.from("GET"),
    "127.0.0.1",
  );
  expect(fault).toBeDefined();
});

test("5,000 hostile inputs of each kind end no process and get no answer that blames it", async () => {
  const run = promisify(execFile)(process.execPath, ["test/hostile/hostile.ts", "--inputs", "5000"]);
  expect((await run).stdout).toContain("nothing was found");
}, 300_000);
