import { once } from "node:events";
import type { ServerResponse } from "node:http";
import { connect, type Socket } from "node:net";
import { Router } from "express";
import { startPublicServer } from "../../test/support/public-server.ts";
import { suiteStack } from "../../test/support/stack.ts";
import { until } from "../../test/support/until.ts";

const stack = suiteStack();
const get = "GET / HTTP/1.1\r\nHost: g\r\n\r\n";
const long = Buffer.alloc(8 * 1024 * 1024, "#"); // far more than the kernel takes at once

/** Starts a server whose requests the test answers. */
async function start() {
  const responses: ServerResponse[] = [];
  const router = Router().use((_request, response) => void responses.push(response));
  const { server, close, port } = await startPublicServer(stack, { router });
  return {
    server,
    close,
    responses,
    /** Opens a client, sends the bytes and waits until `count` requests in all have arrived. */
    open: async (bytes: string, count: number): Promise<Socket> => {
      const socket = connect(port, "127.0.0.1");
      stack.defer(() => void socket.destroy());
      socket.write(bytes);
      await until(() => responses.length === count);
      return socket;
    },
  };
}

/** Reads to the end of the connection. @returns how many whole long bodies came */
async function readBodies(socket: Socket): Promise<number> {
  let bytes = 0;
  for await (const chunk of socket) bytes += chunk.length;
  return Math.floor(bytes / long.length);
}

test("a client gets the whole of an answer that it has not taken yet when the server stops", async () => {
  const { server, close, responses, open } = await start();
  const socket = await open(get, 1);
  const response = responses[0]!.writeHead(200, { "Content-Length": long.length }).end(long);
  expect([response.writableEnded, response.closed]).toEqual([true, false]);
  const stopped = close();
  await until(() => !server.listening);
  expect(await readBodies(socket)).toBe(1);
  await stopped;
});

test("a stop closes an idle connection at once, while the answer on another one is not taken yet", async () => {
  const { close, responses, open } = await start();
  const [idle, reader] = [await open(get, 1), await open(get, 2)];
  responses[0]!.end("1");
  responses[1]!.end(long);
  await once(responses[0]!, "close");
  const stopped = close();
  idle.resume();
  await once(idle, "close");
  expect(responses[1]!.closed).toBe(false);
  reader.resume();
  await stopped;
  expect(responses[1]!.writableFinished).toBe(true);
});

test("a stop waits for the rest of a request that has begun to arrive on a used connection", async () => {
  const { server, close, responses, open } = await start();
  const socket = await open(get, 1);
  const accepted = responses[0]!.socket!;
  responses[0]!.end("1");
  await once(responses[0]!, "close");
  socket.write(get.slice(0, -2));
  await until(() => accepted.bytesRead === 2 * get.length - 2);
  const stopped = close();
  await until(() => !server.listening);
  socket.write(get.slice(-2));
  await until(() => responses.length === 2);
  responses[1]!.end("2");
  socket.resume();
  await stopped;
  expect(responses[1]!.writableFinished).toBe(true);
});
