import { once } from "node:events";
import { createServer, type RequestListener } from "node:http";
import type { AddressInfo } from "node:net";
import { suiteStack } from "../../test/support/stack.ts";
import { ApiError } from "./api-error.ts";
import { writeError } from "./respond.ts";

const stack = suiteStack();

/** The answer of a server with this listener. */
async function ask(listener: RequestListener): Promise<Response> {
  const server = createServer(listener).listen(0, "127.0.0.1");
  stack.defer(() => void server.close());
  await once(server, "listening");
  return await fetch(`http://127.0.0.1:${(server.address() as AddressInfo).port}/`);
}

test("an error takes the place of a body that was about to be written, with none of its headers", async () => {
  const ofBody = {
    ETag: '"1"',
    "Content-Encoding": "gzip",
    "Cache-Control": "max-age=60",
    "Last-Modified": "Mon, 01 Jan 2024 00:00:00 GMT",
  };
  const answer = await ask((request, response) => {
    for (const [name, value] of Object.entries(ofBody)) response.setHeader(name, value);
    response.setHeader("X-Kept", "yes");
    writeError(request, response, new ApiError("not_found"));
  });
  expect(answer.status).toBe(404);
  expect(await answer.json()).toMatchObject({ code: "not_found", status: 404 });
  const headers = Object.fromEntries(answer.headers);
  expect(headers).toMatchObject({ "cache-control": "no-store", "content-type": "application/json", "x-kept": "yes" });
  for (const name of ["etag", "content-encoding", "last-modified"]) expect(headers).not.toHaveProperty(name);
});

test("an error after the beginning of a body cuts it off, so that no part passes for the whole", async () => {
  const answer = await ask((request, response) => {
    response.writeHead(200);
    response.write("[1,", () => writeError(request, response, new Error("lost")));
  });
  await expect(answer.text()).rejects.toThrow();
});
