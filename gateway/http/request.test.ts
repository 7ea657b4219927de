import { once } from "node:events";
import { createServer, type IncomingMessage } from "node:http";
import { type AddressInfo, connect } from "node:net";
import { suiteStack } from "../../test/support/stack.ts";
import { readBody, takeBody } from "./request.ts";

const stack = suiteStack();

/** Sends the bytes to a server, and gives the request that it makes of them. */
async function receive(bytes: string): Promise<IncomingMessage> {
  const server = createServer();
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const socket = connect((server.address() as AddressInfo).port, "127.0.0.1");
  stack.defer(() => {
    socket.destroy();
    server.close();
  });
  socket.write(bytes);
  const [request] = (await once(server, "request")) as [IncomingMessage];
  takeBody(request);
  return request;
}

const head = (length: number) => `PATCH / HTTP/1.1\r\nHost: g\r\nContent-Length: ${length}\r\n\r\n`;

test("a body whose length is announced as too large is refused before any of it arrives", async () => {
  const request = await receive(head(16 * 1024 + 1));
  await expect(readBody(request, 1)).rejects.toMatchObject({ status: 413, code: "payload_too_large" });
});

test("a body that does not arrive in time is refused with 408, and its connection is to end", async () => {
  const request = await receive(`${head(16 * 1024)}x`);
  await expect(readBody(request, 1)).rejects.toMatchObject({
    status: 408,
    code: "timeout",
    headers: { Connection: "close" },
  });
});

test("a body of exactly the largest length is read, also when it comes in parts", async () => {
  const body = "x".repeat(16 * 1024);
  expect(await readBody(await receive(head(body.length) + body), 60_000)).toEqual(Buffer.from(body));
});
