import { once } from "node:events";
import { createServer, type ServerResponse } from "node:http";
import { type AddressInfo, connect } from "node:net";
import { suiteStack } from "../../../test/support/stack.ts";
import { until } from "../../../test/support/until.ts";
import { streamBody } from "./send-body.ts";

const stack = suiteStack();
const pieces = Array.from({ length: 64 }, () => Buffer.alloc(1024 * 1024));
const length = 64 * 1024 * 1024; // far more than the kernel takes at once

/**
 * Sends the body to a reader that takes 64 KiB whenever it is told to.
 *
 * @param isSecond whether another response of the connection is still to come when the body is given to its own
 */
async function openReader(leastBytesPerSecond: number, isSecond = false) {
  const server = createServer();
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const socket = connect((server.address() as AddressInfo).port, "127.0.0.1");
  socket.on("error", () => {}).pause();
  const responses: ServerResponse[] = [];
  server.on("request", (_request, response) => void responses.push(response));
  if (isSecond) socket.write("GET / HTTP/1.1\r\nHost: g\r\n\r\n");
  socket.write("GET / HTTP/1.1\r\nHost: g\r\nConnection: close\r\n\r\n");
  await until(() => responses.length === (isSecond ? 2 : 1));
  const response = responses.at(-1)!;
  response.setHeader("Content-Length", length);
  void streamBody(response, { pieces, length }, { allowanceMs: 500, leastBytesPerSecond });
  const waiting = response.writableLength;
  if (isSecond) responses[0]!.end();
  return {
    /** How much of the body was given to the connection before the reader took anything. */
    waiting,
    /** Reads as fast as it can, or a little every 20 ms. @returns whether all was sent when the response was over */
    read: async (little: boolean) => {
      while (!response.closed) {
        if (socket.read(little ? 64 * 1024 : undefined) === null) socket.read();
        await new Promise((resolve) => setTimeout(resolve, little ? 20 : 0));
      }
      return response.writableFinished;
    },
    close: () => {
      socket.destroy();
      server.close();
    },
  };
}

test("a reader that always takes something, but too little for long, is cut off", async () => {
  const reader = await openReader(64 * 1024 * 1024);
  expect(await reader.read(true)).toBe(false);
  reader.close();
});

test("a reader that takes enough gets everything", async () => {
  const reader = await openReader(1024 * 1024);
  expect(await reader.read(false)).toBe(true);
  reader.close();
});

test("a reader that takes too little is cut off also after a wait for another response", async () => {
  const reader = await openReader(64 * 1024 * 1024, true);
  expect(await reader.read(true)).toBe(false);
  reader.close();
});

test("a long body is not given to the connection as a whole before its reader takes anything", async () => {
  const reader = await openReader(1024 * 1024);
  expect(reader.waiting).toBeLessThan(4 * 1024 * 1024);
  reader.close();
});

test("a long body leaves no time-out to the response after it on its connection", async () => {
  const server = createServer();
  const responses: ServerResponse[] = [];
  server.on("request", (_request, response) => void responses.push(response));
  server.listen(0, "127.0.0.1");
  stack.defer(() => void server.close());
  await once(server, "listening");
  const socket = connect((server.address() as AddressInfo).port, "127.0.0.1");
  stack.defer(() => void socket.destroy());
  socket.write("GET / HTTP/1.1\r\nHost: g\r\n\r\n".repeat(2));
  await until(() => responses.length === 2);
  const [first, second] = responses as [ServerResponse, ServerResponse];
  first.setHeader("Content-Length", length);
  void streamBody(first, { pieces, length }, { allowanceMs: 60_000 });
  socket.resume();
  await once(first, "close");
  expect(second.req.socket.timeout ?? 0).toBe(0);
});
