import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import type { RequestHandler } from "express";
import { expectError, header } from "../test/support/answers.ts";
import { suiteStack } from "../test/support/cleanup.ts";
import { request } from "../test/support/http.ts";
import { until } from "../test/support/until.ts";
import { ApiError } from "./http/errors.ts";
import type { Locals } from "./http/request-context.ts";
import { type GatewayParts, gateway } from "./routes.ts";

const stack = suiteStack();

/** A gateway that knows nobody, with parts of the test's own. */
async function open(parts: Partial<GatewayParts> = {}) {
  const done: { route: string; status: number; clientAddress: string }[] = [];
  const errors: ApiError[] = [];
  const notHere: RequestHandler = () => {
    throw new ApiError("not_found");
  };
  const router = gateway({
    admission: {
      admit: async () => {
        throw new ApiError("missing_api_key");
      },
      announce: ({ locals }) => {
        locals.limits = ["X-RateLimit-Limit", `of ${locals.clientAddress}`];
      },
      headersFor: () => [],
    },
    docs: (_request, _response, next) => next(),
    listInventory: notHere,
    updateInventory: notHere,
    getPet: notHere,
    getOrders: notHere,
    deprecation: { announce: () => {}, retire: (_request, _response, next) => next() },
    clientAddress: () => "192.0.2.1",
    onDone: (_request, response) => {
      const { route, clientAddress } = response.locals as Locals;
      done.push({ route, clientAddress, status: response.statusCode });
    },
    onError: (error) => errors.push(error),
    now: Date.now,
    ...parts,
  });
  const server = createServer((req, res) => router(req as never, res as never, () => res.destroy()));
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  stack.defer(() => {
    server.close();
    server.closeAllConnections();
  });
  const address = `127.0.0.1:${(server.address() as AddressInfo).port}`;
  return { done, errors, get: (path: string) => request(address, { path, headers: { "x-request-id": "request-1" } }) };
}

test("what fails before the caller is known is answered as any other error, and counted", async () => {
  const fault = new Error("no such socket");
  const { get, done, errors } = await open({
    clientAddress: () => {
      throw fault;
    },
  });
  for (const path of ["/v1/inventory", "/docs/"]) {
    const answer = await get(path);
    expectError(answer, 500, "internal_error");
    expect(header(answer, "X-Request-Id")).toBe("request-1");
    expect(header(answer, "X-RateLimit-Limit")).toBe("of unknown");
  }
  expect(errors.map(({ cause }) => cause)).toEqual([fault, fault]);
  await until(async () => done.length === 2);
  expect(done).toEqual(Array(2).fill({ route: "unknown", clientAddress: "unknown", status: 500 }));
});

test("only what the documentation answers is counted as docs", async () => {
  const { get, done } = await open({
    docs: (req, res, next) => {
      if (req.url === "/docs/") res.writeHead(200).end();
      else if (req.url === "/docs/broken") next(new Error("no such file"));
      else next();
    },
  });
  const paths = ["/docs/", "/docs/broken", "/docs/nothing", "/", "/wp-login.php", "/v1/nothing"];
  for (const path of paths) await get(path);
  await until(async () => done.length === paths.length);
  expect(done.map(({ route, status }) => [route, status])).toEqual([
    ["docs", 200],
    ["docs", 500],
    ["unknown", 401],
    ["unknown", 401],
    ["unknown", 401],
    ["unknown", 401],
  ]);
});
