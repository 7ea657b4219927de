import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { listenOn } from "../../runtime/admin.ts";
import { type Answer, bodyText, expectError, header, linkTo, readLimits } from "../support/answers.ts";
import { callApi, sendToApi } from "../support/api.ts";
import { startLocalGateway, TestClock } from "../support/local-gateway.ts";
import { freePort } from "../support/ports.ts";
import { suiteStack } from "../support/stack.ts";
import { type Env, type System, startSystem } from "../support/system.ts";

const deprecatedAt = "2026-02-03T04:05:06Z";
const sunsetAt = "2027-08-09T10:11:12Z";

/** Expects the announcement in the form that clients read (RFC 9745, RFC 8594, RFC 8288). */
function expectDeprecation(answer: Answer): void {
  expect(header(answer, "Deprecation")).toBe("@1770091506");
  expect(header(answer, "Sunset")).toBe("Mon, 09 Aug 2027 10:11:12 GMT");
  expect(linkTo(answer, "deprecation")).toMatch(/./);
  expect(linkTo(answer, "sunset")).toMatch(/./);
}

function expectNoDeprecation(answer: Answer): void {
  const { deprecation, sunset } = answer.headers;
  expect({ deprecation, sunset }).toEqual({});
  for (const relation of ["deprecation", "sunset"]) expect(linkTo(answer, relation)).toBeUndefined();
}

/** What an upstream answers: a list of orders, or a pet. */
const recordsAt = (path: string) => (path.includes("/orders") ? "[]" : "{}");

describe("the operations of other services", () => {
  const stack = suiteStack();
  let system: System;
  /** Addresses of gateways, by the upstream that they have. */
  const gateways: Record<string, string> = {};
  let answerUpstream: (request: IncomingMessage, response: ServerResponse) => void;
  let seen: IncomingMessage[] = [];

  beforeAll(async () => {
    system = await startSystem({
      gatewayEnv: {
        ADDRESS_GUARD_PER_MINUTE: "1000000",
        PETS_DEPRECATED_AT: deprecatedAt,
        PETS_SUNSET_AT: sunsetAt,
        UPSTREAM_TIMEOUT_MS: "300",
      },
    });
    stack.defer(() => system.close());
    const upstream = createServer((incoming, response) => {
      seen.push(incoming);
      answerUpstream(incoming, response);
    });
    const ours = `http://${await listenOn(upstream, { host: "127.0.0.1", port: 0 })}/base/`;
    stack.defer(() => {
      upstream.close();
      upstream.closeAllConnections();
    });
    const unreachable = `http://127.0.0.1:${await freePort()}`;
    const upstreams: Record<string, Env> = {
      "our own": { PETS_UPSTREAM_URL: ours, ORDERS_UPSTREAM_URL: ours },
      "none configured": { PETS_UPSTREAM_URL: "", ORDERS_UPSTREAM_URL: "" },
      unreachable: { PETS_UPSTREAM_URL: unreachable, ORDERS_UPSTREAM_URL: unreachable },
    };
    for (const [name, env] of Object.entries(upstreams)) {
      const gateway = await startLocalGateway({ ...system.gatewayEnv, ...env });
      stack.defer(() => gateway.close());
      gateways[name] = gateway.address;
    }
    gateways["the stand-in"] = system.address;
  });

  beforeEach(() => {
    seen = [];
    answerUpstream = ({ url }, response) => {
      response.writeHead(200, { "Content-Type": "application/json" }).end(recordsAt(url!));
    };
  });

  const get = (gateway: string, path: string, headers: Record<string, string> = {}, method = "GET") =>
    callApi(gateways[gateway]!, {
      method,
      path,
      headers: { authorization: `Bearer ${system.keys.enterprise}`, ...headers },
    });

  test("a passed-through operation returns what its service answers, exact to the last digit", async () => {
    const pet = await get("the stand-in", "/v1/pets/9223372036854775807");
    expect(pet.status).toBe(200);
    expect(header(pet, "Content-Type")).toBe("application/json");
    expect(pet.text).toMatch(/^\{"id":9223372036854775807,/);
    const orders = await get("the stand-in", "/v1/store/orders?status=placed");
    expect(orders.status).toBe(200);
    expect(orders.text).toContain('"petId":9223372036854775807,');
    expect(orders.json<unknown[]>().length).toBeGreaterThan(10);
    for (const answer of [pet, orders]) readLimits(answer);
  });

  test("a passed-through operation answers HEAD as GET without the body", async () => {
    for (const path of ["/v1/pets/9223372036854775807", "/v1/store/orders"]) {
      const { headers } = await get("the stand-in", path);
      const answer = await get("the stand-in", path, {}, "HEAD");
      expect(answer).toMatchObject({ status: 200, text: "", headers: { "content-length": headers["content-length"] } });
    }
  });

  test("a passed-through operation is 404 with the contract's Error where the service has nothing", async () => {
    const answer = await get("the stand-in", "/v1/pets/4");
    expectError(answer, 404, "not_found");
    expect(answer.json()).toMatchObject({ message: "The service that owns the pets has no /pets/4." });
  });

  test.each(["abc", "1.5", "007", "9223372036854775808", "%zz", "1%2F..%2Fstore", ".."])(
    "a passed-through operation refuses the petId %s without a request to the service",
    async (petId) => {
      const answer = await sendToApi(
        gateways["our own"]!,
        `GET /v1/pets/${petId} HTTP/1.1\r\nHost: g\r\nAuthorization: Bearer ${system.keys.enterprise}\r\n\r\n`,
      );
      expectError(answer, 400, "invalid_request");
      expect(seen).toEqual([]);
    },
  );

  test("a passed-through operation sends an encoded petId in its plain form, and the same query", async () => {
    expect(await get("our own", "/v1/pets/%2D%31?a=%20b")).toMatchObject({ status: 200 });
    expect(seen.map(({ url }) => url)).toEqual(["/base/pets/-1?a=%20b"]);
  });

  test("a passed-through operation sends on the account and the request id, and never the key", async () => {
    const { key, accountId } = await system.issueKey();
    for (const path of ["/v1/pets/7", "/v1/store/orders"]) {
      const answer = await get("our own", `${path}?page=2&token=${key}`, {
        authorization: `Bearer ${key}`,
        "x-request-id": "the-request",
        "x-account-id": "acc_somebody_else",
        "x-api-key": key,
        cookie: `key=${key}`,
        "x-copy": `a ${key} b`,
      });
      expect(answer.status).toBe(200);
      const incoming = seen.pop()!;
      expect(incoming.headers).toMatchObject({ "x-account-id": accountId, "x-request-id": "the-request" });
      expect(incoming.headers.authorization).toBeUndefined();
      expect(`${incoming.url} ${incoming.rawHeaders.join(" ")}`).not.toContain(key);
      expect(incoming.url).toMatch(/^\/base\/(pets\/7|store\/orders)\?page=2$/);
      expect(incoming.method).toBe("GET");
    }
  });

  test("a passed-through answer has the gateway's limits and request id in place of the service's", async () => {
    answerUpstream = ({ url }, response) => {
      const theirs = "X-RateLimit-Limit X-RateLimit-Remaining X-RateLimit-Reset RateLimit RateLimit-Policy Retry-After";
      for (const name of `${theirs} X-Request-Id Deprecation Sunset Link`.split(" "))
        response.setHeader(name, "theirs");
      response.setHeader("Content-Type", "application/json").end(recordsAt(url!));
    };
    for (const path of ["/v1/pets/7", "/v1/store/orders"]) {
      const answer = await get("our own", path);
      expect(answer).toMatchObject({ status: 200, text: recordsAt(path) });
      expect(readLimits(answer).limit).toBe(1_000_000_000);
      expect(JSON.stringify(answer.headers)).not.toContain("theirs");
    }
  });

  const html = (status: number) => (_incoming: IncomingMessage, response: ServerResponse) =>
    response
      .writeHead(status, { "Content-Type": "text/html", "X-Powered-By": "PHP", Location: "http://10.0.0.1/" })
      .end("<pre>Error: secret\n    at Store.read (/srv/store.js:1:1)</pre>");
  const failures: [number, string, string, string, typeof answerUpstream | undefined][] = [
    [503, "service_unavailable", "is not configured", "none configured", undefined],
    [502, "upstream_unavailable", "refuses the connection", "unreachable", undefined],
    [502, "upstream_unavailable", "breaks off", "our own", (incoming) => incoming.socket.destroy()],
    [504, "upstream_timeout", "is too slow", "our own", () => {}],
    [502, "upstream_unavailable", "answers 500", "our own", html(500)],
    [502, "upstream_unavailable", "answers 503", "our own", html(503)],
    [502, "upstream_unavailable", "redirects", "our own", html(302)],
    [502, "upstream_unavailable", "answers 401", "our own", html(401)],
    [503, "service_unavailable", "answers 429", "our own", html(429)],
    [404, "not_found", "answers 404", "our own", html(404)],
  ];
  test.each(failures)(
    "a passed-through operation answers %d %s when its service %s",
    async (status, code, _what, gateway, upstream) => {
      if (upstream) answerUpstream = upstream;
      for (const path of ["/v1/pets/7", "/v1/store/orders"]) {
        const answer = await get(gateway, path);
        expectError(answer, status, code);
        expect(bodyText(answer)).not.toContain("secret");
        expect(answer.headers.location).toBeUndefined();
        readLimits(answer);
        if (path === "/v1/pets/7") expectDeprecation(answer);
        else expectNoDeprecation(answer);
      }
    },
  );

  describe("the deprecation of GET /v1/pets/{petId}", () => {
    test("is announced in every response of it", async () => {
      const { key } = await system.issueKey({ plan: "enterprise", limits: { perMinute: 1, perDay: 1 } });
      const { key: other } = await system.issueKey({ scopes: ["inventory:read"] });
      const cases: [number, string, Record<string, string>, string?][] = [
        [200, "/v1/pets/1001", {}],
        [200, "/v1/pets/1001", {}, "HEAD"],
        [400, "/v1/pets/abc", {}],
        [400, "/v1/pets/%zz", {}],
        [401, "/v1/pets/1001", { authorization: "" }],
        [401, "/v1/pets/1001", { authorization: "Bearer nonsense" }],
        [403, "/v1/pets/1001", { authorization: `Bearer ${other}` }],
        [404, "/v1/pets/4", {}],
        [200, "/v1/pets/1001", { authorization: `Bearer ${key}` }],
        [429, "/v1/pets/1001", { authorization: `Bearer ${key}` }],
      ];
      for (const [status, path, headers, method] of cases) {
        const answer = await get("the stand-in", path, headers, method);
        expect({ path, status: answer.status }).toEqual({ path, status });
        expectDeprecation(answer);
        readLimits(answer);
      }
    });

    test("is announced in a 304 too", async () => {
      answerUpstream = (_incoming, response) => response.writeHead(304, { ETag: '"1"' }).end();
      const answer = await get("our own", "/v1/pets/7", { "if-none-match": '"1"' });
      expect(answer.status).toBe(304);
      expectDeprecation(answer);
    });

    test("is announced nowhere else", async () => {
      for (const path of ["/v1/inventory", "/v1/store/orders", "/v1/pets", "/v1/pets/1001/", "/openapi.json"]) {
        expectNoDeprecation(await get("the stand-in", path));
      }
    });

    const at = async (env: Env, now: Date) => {
      const clock = new TestClock();
      clock.advance(now.getTime() - clock.now());
      const gateway = await startLocalGateway({ ...system.gatewayEnv, ...env }, clock.now);
      stack.defer(() => gateway.close());
      gateways["another time"] = gateway.address;
      return await get("another time", "/v1/pets/1001");
    };
    const day = 24 * 60 * 60_000;

    test("ends nothing by itself: the operation still answers after the sunset", async () => {
      const answer = await at({}, new Date(Date.parse(sunsetAt) + day));
      expect(answer.status).toBe(200);
      expectDeprecation(answer);
    });

    test("makes the operation 410 from the sunset on when it is announced as gone", async () => {
      const env = { DEPRECATIONS: "getPet=none;gone" }; // its dates have settings of their own
      expect(await at(env, new Date(Date.parse(sunsetAt) - 1_000))).toMatchObject({ status: 200 });
      const answer = await at(env, new Date(sunsetAt));
      expectError(answer, 410, "not_found");
      expectDeprecation(answer);
      readLimits(answer, Date.parse(sunsetAt));
      expectError(await get("another time", "/v1/pets/1001", { authorization: "" }), 401, "missing_api_key");
      expect(await get("another time", "/v1/store/orders")).toMatchObject({ status: 200 });
    });

    test("can be switched off by its settings", async () => {
      expectNoDeprecation(await at({ PETS_DEPRECATED_AT: "none", PETS_SUNSET_AT: "none" }, new Date()));
    });

    test("one setting announces the end of any operation, to its callers and in the document", async () => {
      const announced = "getOrders=2026-02-03T04:05:06Z;2027-08-09T10:11:12Z;https://docs.example/orders;gone";
      await at({ DEPRECATIONS: announced }, new Date(sunsetAt));
      const answer = await get("another time", "/v1/store/orders");
      expectError(answer, 410, "not_found");
      expectDeprecation(answer);
      expect(linkTo(answer, "deprecation")).toBe("https://docs.example/orders");
      const { paths } = JSON.parse((await get("another time", "/openapi.json")).text);
      expect(paths["/store/orders"].get).toMatchObject({ deprecated: true, "x-sunset": "2027-08-09T10:11:12.000Z" });
      expect((await get("another time", "/docs/")).text).toContain("https://docs.example/orders");
    });

    test("operators see how often an account still uses the deprecated GET /v1/pets/{petId}", async () => {
      const { key, account } = await system.issueKey();
      const gateway = await startLocalGateway(system.gatewayEnv);
      gateways.counted = gateway.address;
      for (const path of ["/v1/pets/1001", "/v1/pets/4", "/v1/pets/abc", "/v1/store/orders"]) {
        await get("counted", path, { authorization: `Bearer ${key}` });
      }
      await gateway.close(); // writes its counts
      const { stdout } = await system.runKeys("usage", "--json");
      const accounts = JSON.parse(stdout) as Record<string, unknown>[];
      expect(accounts.find((usage) => usage.account === account)).toMatchObject({ deprecatedRequests: 3 });
    });

    test("the deprecated route announces its end in answers that are made before any route, too", async () => {
      const to = (path: string) => sendToApi(gateways["our own"]!, Buffer.from(`GET ${path} HTTP/1.1\r\n\r\n`));
      const answer = await to("/v1/pets/1001");
      expectError(answer, 400, "invalid_request", "The request has no Host header.");
      expectDeprecation(answer);
      expectNoDeprecation(await to("/v1/store/orders"));
    });
  });
});
