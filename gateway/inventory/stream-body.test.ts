import { once } from "node:events";
import { createServer, type ServerResponse } from "node:http";
import { type AddressInfo, connect } from "node:net";
import { streamBody } from "./stream-body.ts";

const pieces = Array.from({ length: 64 }, () => Buffer.alloc(1024 * 1024));
const length = 64 * 1024 * 1024; // far more than the kernel takes at once

/** Sends the body to a reader that takes 64 KiB whenever it is told to. */
async function openReader(leastBytesPerSecond: number) {
  const server = createServer();
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const socket = connect((server.address() as AddressInfo).port, "127.0.0.1");
  socket.on("error", () => {}).pause();
  socket.write("GET / HTTP/1.1\r\nHost: g\r\nConnection: close\r\n\r\n");
  const [, response] = (await once(server, "request")) as [unknown, ServerResponse];
  response.setHeader("Content-Length", length);
  void streamBody(response, { pieces, length }, { stallTimeoutMs: 500, leastBytesPerSecond });
  return {
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
