import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import type { RequestHandler } from "express";
import { expectError, header, linkTo } from "../test/support/answers.ts";
import { request } from "../test/support/http.ts";
import { suiteStack } from "../test/support/stack.ts";
import { until } from "../test/support/until.ts";
import type { Principal } from "./accounts/keys/principal.ts";
import { ApiError, type ErrorCode } from "./http/api-error.ts";
import { toDeprecation } from "./http/deprecations.ts";
import { contextOf } from "./http/request-context.ts";
import { createRouter, type RouterOptions } from "./router.ts";

const stack = suiteStack();
const account = { accountId: "account-1" } as Principal;

const announcement = {
  deprecatedAt: new Date("2026-01-01T00:00:00.000Z"),
  sunsetAt: new Date("2026-07-01T12:00:00.000Z"),
  isGoneAfterSunset: true,
};
const announced = toDeprecation(announcement, "GET /v1/pets/:petId", "getPet");
const sunsetMs = announced.goneFromMs;

/** Serves a router that refuses every request, except where the given parts replace its own. */
async function open(parts: Partial<RouterOptions> = {}) {
  const done: { operationName: string; status: number; clientAddress: string }[] = [];
  const errors: ApiError[] = [];
  const uses: (readonly [accountId: string, operation: string])[] = [];
  const router = createRouter({
    routes: { "GET /v1/pets/:petId": { name: "getPet", scope: "store:read", handler: fail("not_found") } },
    admission: {
      admit: async () => {
        throw new ApiError("missing_api_key");
      },
      setAddressHeaders: (context) => {
        context.limitHeaders = ["X-RateLimit-Limit", `of ${context.clientAddress}`];
      },
    },
    pages: (_request, _response, next) => next(),
    clientAddress: () => "192.0.2.1",
    onDeprecatedUse: (...use) => uses.push(use),
    onDone: (_request, response) => {
      const { operationName, clientAddress } = contextOf(response);
      done.push({ operationName, clientAddress, status: response.statusCode });
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
  const get = (path: string, method = "GET") =>
    request(address, { path, method, headers: { "x-request-id": "request-1" } });
  return { done, errors, uses, get };
}

function fail(code: ErrorCode): RequestHandler {
  return () => {
    throw new ApiError(code);
  };
}

const answer: RequestHandler = (_request, response) => response.writeHead(200).end("{}");

/** Admits every request as one account. */
const openToAll: RouterOptions["admission"] = {
  admit: async (_request, context) => {
    context.principal = account;
    context.limitHeaders = ["X-RateLimit-Limit", "60"];
  },
  setAddressHeaders: () => {},
};

test("a failure before the caller is known is answered and counted like any other error", async () => {
  const fault = new Error("no such socket");
  const { get, done, errors } = await open({
    clientAddress: () => {
      throw fault;
    },
  });
  for (const path of ["/v1/inventory", "/docs/"]) {
    const response = await get(path);
    expectError(response, 500, "internal_error");
    expect(header(response, "X-Request-Id")).toBe("request-1");
    expect(header(response, "X-RateLimit-Limit")).toBe("of unknown");
  }
  expect(errors.map(({ cause }) => cause)).toEqual([fault, fault]);
  await until(async () => done.length === 2);
  expect(done).toEqual(Array(2).fill({ operationName: "unknown", clientAddress: "unknown", status: 500 }));
});

test("only what the documentation answers is counted as docs", async () => {
  const { get, done } = await open({
    pages: (req, res, next) => {
      if (req.url === "/docs/") res.writeHead(200).end();
      else if (req.url === "/docs/broken") next(new Error("no such file"));
      else next();
    },
  });
  const paths = ["/docs/", "/docs/broken", "/docs/nothing", "/", "/wp-login.php", "/v1/nothing"];
  for (const path of paths) await get(path);
  await until(async () => done.length === paths.length);
  expect(done.map(({ operationName, status }) => [operationName, status])).toEqual([
    ["docs", 200],
    ["docs", 500],
    ["unknown", 401],
    ["unknown", 401],
    ["unknown", 401],
    ["unknown", 401],
  ]);
});

test("a request counts under its operation only once it is admitted", async () => {
  for (const [parts, operationName, status] of [
    [{}, "unknown", 401],
    [{ admission: openToAll }, "getPet", 404],
  ] as const) {
    const { get, done } = await open(parts);
    await get("/v1/pets/7");
    await until(async () => done.length === 1);
    expect(done).toEqual([{ operationName, clientAddress: "192.0.2.1", status }]);
  }
});

test("a method that the route table does not have is 405 with the methods that it has", async () => {
  const { get } = await open({ admission: openToAll });
  const response = await get("/v1/pets/7", "PATCH");
  expectError(response, 405, "method_not_allowed");
  expect(header(response, "Allow")).toBe("GET, HEAD");
});

test("a path that cannot be decoded is refused as a fault of its parameter, after its admission", async () => {
  const { get, done } = await open({ admission: openToAll });
  const response = await get("/v1/pets/%zz");
  expectError(response, 400, "invalid_request", /petId/);
  expect(header(response, "X-RateLimit-Limit")).toBe("60");
  await until(async () => done.length === 1);
});

describe("deprecated operations", () => {
  const routes = (handler: RequestHandler): RouterOptions["routes"] => ({
    "GET /v1/pets/:petId": { name: "getPet", scope: "store:read", deprecation: announced, handler },
  });
  const expectAnnounced = (response: Awaited<ReturnType<typeof request>>) => {
    expect(header(response, "Deprecation")).toBe("@1767225600");
    expect(header(response, "Sunset")).toBe("Wed, 01 Jul 2026 12:00:00 GMT");
    for (const relation of ["deprecation", "sunset"]) {
      expect(linkTo(response, relation)).toBe("../../docs/#getPet");
    }
  };

  test("a deprecated operation announces its deprecation in its answers", async () => {
    const { get } = await open({ admission: openToAll, routes: routes(answer), now: () => sunsetMs - 1 });
    expectAnnounced(await get("/v1/pets/7"));
    expectAnnounced(await get("/v1/pets/7", "HEAD"));
  });

  test.each<[ErrorCode, number]>([
    ["not_found", 404],
    ["upstream_timeout", 504],
    ["internal_error", 500],
  ])("a deprecated operation announces its deprecation in the error %s of its handler", async (code, status) => {
    const { get } = await open({ admission: openToAll, routes: routes(fail(code)), now: () => sunsetMs - 1 });
    const response = await get("/v1/pets/7");
    expectError(response, status, code);
    expectAnnounced(response);
  });

  test("a deprecated operation announces its deprecation to a caller that is refused", async () => {
    const { get } = await open({ routes: routes(answer) });
    const response = await get("/v1/pets/7");
    expectError(response, 401, "missing_api_key");
    expectAnnounced(response);
  });

  test("a deprecated operation answers 410 from its sunset on", async () => {
    const { get } = await open({ admission: openToAll, routes: routes(answer), now: () => sunsetMs });
    const response = await get("/v1/pets/7");
    expectError(response, 410, "not_found");
    expectAnnounced(response);
  });

  test("a deprecated operation is counted once for each request of a known account, and no other", async () => {
    const known = await open({ admission: openToAll, routes: routes(answer) });
    for (const method of ["GET", "HEAD"]) await known.get("/v1/pets/7", method);
    const unknown = await open({ routes: routes(answer) });
    await unknown.get("/v1/pets/7");
    await until(async () => known.done.length === 2 && unknown.done.length === 1);
    expect(known.uses).toEqual(Array(2).fill(["account-1", "getPet"]));
    expect(unknown.uses).toEqual([]);
  });
});
