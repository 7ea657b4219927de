import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { type AddressInfo, connect } from "node:net";
import { suiteStack } from "../../test/support/stack.ts";
import { ApiError } from "./api-error.ts";
import { readWholeBody, takeBody, type WholeBodyOptions } from "./request-body.ts";
import { type RequestContext, setContext } from "./request-context.ts";

const stack = suiteStack();

/** Sends the bytes to a server. @returns the sender, and what reads the body of the request that they make */
async function receive(bytes: string) {
  const server = createServer();
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const socket = connect((server.address() as AddressInfo).port, "127.0.0.1");
  stack.defer(() => {
    socket.destroy();
    server.close();
  });
  socket.write(bytes);
  const [request, response] = (await once(server, "request")) as [IncomingMessage, ServerResponse];
  setContext(response, {} as RequestContext);
  takeBody(request);
  const readBody = (bodyTimeoutMs: number, reverifyKeyAndBan: Reverify = async () => {}) =>
    readWholeBody(request, response, { admission: { reverifyKeyAndBan }, bodyTimeoutMs });
  return { socket, request, response, readBody };
}

type Reverify = WholeBodyOptions["admission"]["reverifyKeyAndBan"];

const head = (length: number) => `PATCH / HTTP/1.1\r\nHost: g\r\nContent-Length: ${length}\r\n\r\n`;

test("a body whose length is announced as too large is refused before any of it arrives", async () => {
  const { readBody } = await receive(head(16 * 1024 + 1));
  await expect(readBody(1)).rejects.toMatchObject({ status: 413, code: "payload_too_large" });
});

test("a body that becomes too large costs one error, and nothing looks at the rest of it", async () => {
  const { socket, request, readBody } = await receive(
    "POST / HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: chunked\r\n\r\n",
  );
  const chunk = `2000\r\n${"x".repeat(0x2000)}\r\n`;
  socket.write(chunk.repeat(3));
  await expect(readBody(60_000)).rejects.toMatchObject({ status: 413, code: "payload_too_large" });
  expect(request.listenerCount("data")).toBe(0);
  socket.write(`${chunk}0\r\n\r\n`);
  await once(request, "end"); // it is dropped, and holds nothing up
});

test("a body that does not arrive in time is refused with 408, and its connection is to end", async () => {
  const { readBody } = await receive(`${head(16 * 1024)}x`);
  await expect(readBody(1)).rejects.toMatchObject({
    status: 408,
    code: "timeout",
    headers: { Connection: "close" },
  });
});

test("a body of exactly the largest length is read, also when it comes in parts", async () => {
  const body = "x".repeat(16 * 1024);
  const { readBody } = await receive(head(body.length) + body);
  expect(await readBody(60_000)).toMatchObject({ body: Buffer.from(body) });
});

test("a late body is refused when its key was revoked or its client has left meanwhile", async () => {
  const late = async () => {
    const { socket, ...received } = await receive(head(1));
    setImmediate(() => socket.write("x"));
    return { socket, ...received };
  };
  const revoked = await late();
  const refusal = new ApiError("invalid_api_key");
  await expect(revoked.readBody(60_000, () => Promise.reject(refusal))).rejects.toBe(refusal);
  const { socket, response, readBody } = await late();
  const leave = async () => {
    socket.destroy();
    await once(response, "close");
  };
  await expect(readBody(60_000, leave)).rejects.toMatchObject({ message: "The caller has left." });
});
