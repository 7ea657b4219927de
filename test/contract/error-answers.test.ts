import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { Metadata, Server, ServerCredentials, type ServerDuplexStream, status } from "@grpc/grpc-js";
import { Router } from "express";
import {
  type ApplyChangesRequest,
  type ApplyChangesResponse,
  InventoryServiceService,
} from "../../proto/gen/petstore/inventory/v1/inventory.ts";
import { type Answer, bodyText, expectError, header, linkTo, readLimits } from "../support/answers.ts";
import { callApi, sendToApi } from "../support/api.ts";
import { startLocalGateway } from "../support/local-gateway.ts";
import { startPublicServer } from "../support/public-server.ts";
import { suiteStack } from "../support/stack.ts";
import { type System, startSystem } from "../support/system.ts";
import { until } from "../support/until.ts";

/** Connects a client that keeps its side open when the server closes. */
function connectTo(address: string): Socket {
  const { hostname, port } = new URL(`http://${address}`);
  return connect({ host: hostname, port: Number(port), allowHalfOpen: true }).on("error", () => {});
}

describe("the shape of errors", () => {
  const stack = suiteStack();
  let system: System;
  let authorization: string;
  beforeAll(async () => {
    system = await startSystem({
      seed: [1n, 2n].map((petId) => ({ petId, quantity: 100, status: "available" })),
      gatewayEnv: { ADDRESS_GUARD_PER_MINUTE: "1000000", BODY_TIMEOUT_MS: "1000" },
    });
    stack.defer(() => system.close());
    authorization = `Bearer ${system.keys.enterprise}`;
  });

  const send = (method: string, path: string, headers: Record<string, string> = {}) =>
    callApi(system.address, { method, path, headers: { authorization, ...headers } });
  const head = (line: string, ...lines: string[]) =>
    [line, "Host: g", `Authorization: ${authorization}`, ...lines, "\r\n"].join("\r\n");

  test.each([
    "/index.html",
    "/v1",
    "/v1/",
    "/v1/inventory/",
    "/v1/inventory/1/quantity",
    "/v1//inventory",
    "//v1/inventory",
    "/v1/Inventory",
    "/v1/%69nventory/1/",
    "/v1/store",
    "/v1/store/orders/1",
    "/v1/pets",
    "/v1/pets/1/",
    "/v1/../v1/inventory",
    "/inventory",
    "/docs/nothing",
    "/docs/%2e%2e/package.json",
    "/docs/..%2f..%2fpackage.json",
    "/docs/%zz",
    "/livez",
    "/metrics",
    `/${"x".repeat(8_000)}`,
    "/v1/<script>alert(1)</script>",
  ])("an unknown path is 404: %s", async (path) => {
    expectError(await send("GET", path, { accept: "text/html" }), 404, "not_found");
  });

  test.each([
    ["/v1/inventory/", "operations have no slash at their end"],
    ["/v1/pets/1/?a=1", "operations have no slash at their end"],
    ["/v1/inventori", "no operation has it"],
    ["/inventory", "operations are below /v1"],
    ["/", "operations are below /v1"],
  ])("an unknown path is 404 that says what may be wrong with it: %s", async (path, fault) => {
    const message = `There is no such path: ${fault}. The Link header leads to the documentation.`;
    expect((await send("GET", path)).json()).toMatchObject({ code: "not_found", message });
  });

  test("the icon that browsers ask for needs no key", async () => {
    const answer = await callApi(system.address, { path: "/favicon.ico" });
    expect(answer.status).toBe(200);
    expect(header(answer, "Content-Type")).toBe("image/svg+xml");
  });

  test.each([
    ["POST", "/v1/inventory", "GET, HEAD"],
    ["PUT", "/v1/inventory", "GET, HEAD"],
    ["PATCH", "/v1/inventory", "GET, HEAD"],
    ["DELETE", "/v1/inventory", "GET, HEAD"],
    ["OPTIONS", "/v1/inventory", "GET, HEAD"],
    ["TRACE", "/v1/inventory", "GET, HEAD"],
    ["PROPFIND", "/v1/inventory", "GET, HEAD"],
    ["PATCH", "/v1/inventory/changes", "GET, HEAD"],
    ["PUT", "/v1/inventory/1", "GET, HEAD, PATCH"],
    ["POST", "/v1/inventory/1", "GET, HEAD, PATCH"],
    ["DELETE", "/v1/inventory/1", "GET, HEAD, PATCH"],
    ["PATCH", "/v1/pets/1", "GET, HEAD"],
    ["DELETE", "/v1/pets/1", "GET, HEAD"],
    ["POST", "/v1/store/orders", "GET, HEAD"],
  ])("a method that the resource does not have is 405: %s %s", async (method, path, allow) => {
    // No header overrides the method.
    const answer = await send(method, path, { "x-http-method-override": "PATCH", "content-type": "application/json" });
    expectError(answer, 405, "method_not_allowed");
    expect(header(answer, "Allow")).toBe(allow);
    expect(await system.stored(1n)).toMatchObject({ quantity: 100 });
  });

  test.each([
    "/",
    "/nothing",
    "/v1/inventory/abc",
    "/v1/store/orders/1",
    "/v1//inventory",
    "//v1/inventory",
    `/${"x/".repeat(4_000)}`,
  ])("the link of an error leads from the requested address to what its code means: %s", async (path) => {
    const answer = await send("GET", path);
    const target = new URL(linkTo(answer, "help")!, `http://${system.address}${path}`);
    expect(target.href).toBe(`http://${system.address}/docs/#${answer.json<{ code: string }>().code}`);
    expect(linkTo(answer, "help")!.length).toBeLessThan(100);
  });

  test("an error for HEAD has the headers of the body and no body", async () => {
    for (const [path, expected] of [
      ["/v1/inventory/changes", 400],
      ["/v1/nothing", 404],
      ["/v1/pets/abc", 400],
    ] as const) {
      const answer = await sendToApi(system.address, head(`HEAD ${path} HTTP/1.1`));
      expect(answer.status).toBe(expected);
      expect(answer.body).toHaveLength(0);
      expect(header(answer, "Content-Type")).toBe("application/json");
      expect(Number(header(answer, "Content-Length"))).toBeGreaterThan(0);
    }
  });

  test.each([
    ["an unknown method", "BREW /v1/inventory HTTP/1.1"],
    ["a method in small letters", "get /v1/inventory HTTP/1.1"],
    ["no path", "GET  HTTP/1.1"],
    ["a path without a slash", "GET v1/inventory HTTP/1.1"],
    ["a path with a space", "GET /v1/inven tory HTTP/1.1"],
    ["bytes beyond ASCII", "GET /v1/ümläut HTTP/1.1"],
    ["another protocol", "GET /v1/inventory FTP/1.1"],
    ["an unknown version of HTTP", "GET /v1/inventory HTTP/9.9"],
    ["an absolute address with an invalid host", "GET http://[::bad/v1/inventory HTTP/1.1"],
    ["an absolute address with an unclosed bracket", "GET http://[::1/v1/inventory HTTP/1.1"],
    ["an absolute address with an invalid port", "GET http://a:x/v1/inventory HTTP/1.1"],
    ["an absolute address with a password", "GET http://a:b@c/v1/inventory HTTP/1.1"],
    ["a fragment", "GET /v1/inventory#x HTTP/1.1"],
    ["a fragment after what looks like an invalid host", "GET //a@b:8x/v1/inventory?api_key=x# HTTP/1.1"],
    ["a header without a colon", "GET /v1/inventory HTTP/1.1\r\nnonsense"],
    ["a header with a space in its name", "GET /v1/inventory HTTP/1.1\r\nContent Length: 1"],
    ["a header with a zero byte", "GET /v1/inventory HTTP/1.1\r\nX-A: \0"],
    ["a folded header", "GET /v1/inventory HTTP/1.1\r\nX-A: 1\r\n 2"],
    ["two lengths", "PATCH /v1/inventory/1 HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2"],
    ["a negative length", "PATCH /v1/inventory/1 HTTP/1.1\r\nContent-Length: -1"],
    ["a length and chunks", "PATCH /v1/inventory/1 HTTP/1.1\r\nContent-Length: 4\r\nTransfer-Encoding: chunked"],
    ["chunks and a length", "PATCH /v1/inventory/1 HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 4"],
    ["chunks that are not the last coding", "PATCH /v1/inventory/1 HTTP/1.1\r\nTransfer-Encoding: chunked, gzip"],
    ["two hosts", "GET /v1/inventory HTTP/1.1\r\nHost: h"],
    ["two hosts for the documentation", "GET /docs/ HTTP/1.1\r\nHost: h"],
    ["two hosts for the OpenAPI document", "GET /openapi.json HTTP/1.1\r\nHost: h"],
  ])("invalid HTTP is 400: %s", async (_what, line) => {
    const answer = await sendToApi(system.address, head(line));
    expectError(answer, 400, "invalid_request");
    readLimits(answer);
    expect(await system.stored(1n)).toMatchObject({ quantity: 100 });
    expect(system.gateways[0]!.output().match(/DEP0170.*/)).toBeNull(); // Node would print the whole target
  });

  test.each([
    ["no host", `GET /v1/inventory HTTP/1.1\r\nAuthorization: ${"Bearer x"}\r\n\r\n`],
    ["no host for the documentation", "GET /docs/ HTTP/1.1\r\n\r\n"],
    ["TLS", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"],
    ["HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"],
    ["a chunk with an invalid size", "chunked:zz\r\n"],
    ["a chunk longer than its size", 'chunked:2\r\n{"quantity":5}\r\n0\r\n\r\n'],
  ])("invalid HTTP is 400 and closes its connection: %s", async (_what, text) => {
    const [, body] = text.split("chunked:");
    const chunked = [`Transfer-Encoding: chunked`, "Content-Type: application/json"];
    const bytes = body === undefined ? text : head("PATCH /v1/inventory/1 HTTP/1.1", ...chunked) + body;
    const answer = await sendToApi(system.address, Buffer.from(bytes, "latin1"));
    expectError(answer, 400, "invalid_request");
    readLimits(answer);
    expect(header(answer, "Connection")).toBe("close");
    expect(answer.raw.toString("latin1", 0, 24)).toBe("HTTP/1.1 400 Bad Request");
    expect(Date.parse(header(answer, "Date"))).toBeGreaterThan(Date.now() - 5_000); // RFC 9110 section 6.6.1
    expect(await system.stored(1n)).toMatchObject({ quantity: 100 });
  });

  test("updates in a row before something invalid are all answered, in their order and before that", async () => {
    const update = (quantity: number) => {
      const body = `{"quantity":${quantity}}`;
      const of = [`Content-Type: application/json`, `Content-Length: ${body.length}`];
      return head("PATCH /v1/inventory/2 HTTP/1.1", ...of) + body;
    };
    const { raw } = await sendToApi(system.address, `${update(8)}${update(9)}nonsense\r\n\r\n`, { untilEnd: true });
    const answers = raw.toString().matchAll(/HTTP\/1\.1 (\d+)|"quantity":(\d+)/g);
    expect([...answers].map(([, status, quantity]) => Number(status ?? quantity))).toEqual([200, 8, 200, 9, 400]);
    expect(await system.stored(2n)).toMatchObject({ quantity: 9 });
  });

  test("a head that is too large is 431", async () => {
    for (const size of [17_000, 1_000_000]) {
      const answer = await sendToApi(system.address, head("GET /v1/inventory HTTP/1.1", `X-A: ${"a".repeat(size)}`));
      expectError(answer, 431, "payload_too_large");
    }
  });

  test("a head that does not end is 408", async () => {
    const answer = await sendToApi(system.address, "GET /v1/inventory HTTP/1.1\r\nHost: g\r\n");
    expectError(answer, 408, "timeout");
  });

  test("CONNECT is 405", async () => {
    const answer = await sendToApi(system.address, head("CONNECT 127.0.0.1:22 HTTP/1.1"));
    expectError(answer, 405, "method_not_allowed");
    expect(header(answer, "Allow")).toMatch(/\bGET\b/);
  });

  test("a client that sends 10 MB and then closes gets its error every time", async () => {
    const body = " ".repeat(10_000_000);
    const path = "/v1/inventory/1";
    for (let i = 0; i < 12; i++) {
      const headers = { authorization: i % 2 === 0 ? authorization : "", "content-type": "application/json" };
      const answer = await callApi(system.address, { method: "PATCH", path, headers, body });
      if (i % 2 === 0) expectError(answer, 413, "payload_too_large");
      else expectError(answer, 401, "missing_api_key");
    }
  });

  test("an absolute address, HTTP/1.0 and the offer of an upgrade are accepted", async () => {
    const get = "GET http://elsewhere/v1/inventory HTTP/1.1";
    expect(await sendToApi(system.address, head(get))).toMatchObject({ status: 200 });
    for (const path of ["/openapi.json", "/docs/", "/docs/page.css"]) {
      const free = `GET http://elsewhere${path} HTTP/1.1\r\nHost: elsewhere\r\nConnection: close\r\n\r\n`;
      expect(await sendToApi(system.address, free)).toMatchObject({ status: 200 });
    }
    const old = `GET /v1/inventory HTTP/1.0\r\nAuthorization: ${authorization}\r\n\r\n`;
    expect(await sendToApi(system.address, old)).toMatchObject({ status: 200 });
    const upgrade = head("GET /v1/inventory HTTP/1.1", "Connection: Upgrade", "Upgrade: websocket");
    expect(await sendToApi(system.address, upgrade)).toMatchObject({ status: 200 });
  });

  test.each([
    ["range", "bytes=99999999-"],
    ["if-match", '"x"'],
    ["if-unmodified-since", "Mon, 01 Jan 1990 00:00:00 GMT"],
  ])("the documentation ignores conditions and ranges that it does not support: %s", async (name, value) => {
    for (const path of ["/openapi.json", "/docs/", "/docs/page.css"]) {
      expect(await callApi(system.address, { path, headers: { [name]: value } })).toMatchObject({ status: 200 });
    }
  });

  test("a client that disconnects at any point does not end the process", async () => {
    const beginnings = [
      head("CONNECT 127.0.0.1:22 HTTP/1.1"),
      head("GET /v1/inventory HTTP/1.1"),
      head("PATCH /v1/inventory/1 HTTP/1.1", "Content-Type: application/json", "Content-Length: 10"),
      head("GET /v1/store/orders HTTP/1.1"),
      "nonsense\r\n\r\n",
    ];
    for (const bytes of beginnings) {
      for (let i = 0; i < 5; i++) {
        const socket = connectTo(system.address);
        await new Promise<void>((resolve) => socket.write(bytes, () => resolve()));
        if (i % 2 === 1) await once(socket, "readable");
        socket.resetAndDestroy();
      }
    }
    expect(await send("GET", "/v1/inventory")).toMatchObject({ status: 200 });
    const ended = await Promise.race([system.gateways[0]!.exited.then(() => true), Promise.resolve(false)]);
    expect(ended).toBe(false);
  });

  describe("the request id", () => {
    test.each(["abc", "0af7651916cd43dd8448eb211c80319c", "A-b_c.d:9", "x".repeat(64)])(
      "of the caller is echoed in the headers and not in the body: %s",
      async (id) => {
        for (const path of ["/v1/inventory", "/v1/nothing", "/v1/store/orders", "/openapi.json"]) {
          expect(header(await send("GET", path, { "x-request-id": id }), "X-Request-Id")).toBe(id);
        }
        const stranger = await callApi(system.address, { path: "/v1/inventory", headers: { "x-request-id": id } });
        expect(header(stranger, "X-Request-Id")).toBe(id);
        const failed = await send("GET", "/v1/nothing", { "x-request-id": id });
        if (id.length > 3) expect(failed.text).not.toContain(id);
      },
    );

    test.each(["", "x".repeat(65), "a b", "<script>", 'a"b', "a,b", "ü"])(
      "an unacceptable request id is replaced by a new one: %j",
      async (id) => {
        const made = header(await send("GET", "/v1/nothing", { "x-request-id": id }), "X-Request-Id");
        expect(made).not.toBe(id);
        expect(made).toMatch(/^[\w.:-]{8,64}$/);
      },
    );

    test("each request without a request id gets a new one, and so does one with two ids", async () => {
      const ids = new Set<string>();
      for (let i = 0; i < 5; i++) ids.add(header(await send("GET", "/v1/inventory"), "X-Request-Id"));
      const two = head("GET /v1/nothing HTTP/1.1", "X-Request-Id: one", "X-Request-Id: two");
      ids.add(header(await sendToApi(system.address, two), "X-Request-Id"));
      expect(ids.size).toBe(6);
      expect(ids.has("one") || ids.has("two")).toBe(false);
    });
  });
});

describe("errors of the inventory service", () => {
  const stack = suiteStack();
  const secret = "mysql://root:secret@10.0.0.1 at Store.write (/srv/inventory-svc/stock/store.ts:7:7)";
  let code: status = status.OK;
  let update: () => Promise<Answer>;
  let list: () => Promise<Answer>;

  beforeAll(async () => {
    const service = new Server();
    const fail = (callback: (error: object) => void) => callback({ code, details: secret });
    service.addService(InventoryServiceService, {
      listInventory: (call: { emit(name: string, error: object): void }) => fail((error) => call.emit("error", error)),
      checkInventory: (call: { emit(name: string, error: object): void }) => fail((error) => call.emit("error", error)),
      updateInventory: (_call: unknown, callback: (error: object) => void) => fail(callback),
      applyChanges: (call: ServerDuplexStream<ApplyChangesRequest, ApplyChangesResponse>) => {
        call.sendMetadata(new Metadata());
        call.on("data", ({ groups }: ApplyChangesRequest) => {
          const refused = { item: undefined, replayed: false, refusal: { code, message: secret, details: [] } };
          call.write({ results: groups.flatMap(({ changes }) => changes).map(() => refused) });
        });
      },
    } as never);
    const port = await new Promise<number>((resolve, reject) => {
      service.bindAsync("127.0.0.1:0", ServerCredentials.createInsecure(), (error, bound) =>
        error ? reject(error) : resolve(bound),
      );
    });
    stack.defer(() => service.forceShutdown());
    const system = await startSystem({ gateways: 0 });
    stack.defer(() => system.close());
    const gateway = await startLocalGateway({ ...system.gatewayEnv, INVENTORY_ADDRESS: `127.0.0.1:${port}` });
    stack.defer(() => gateway.close());
    const headers = { authorization: `Bearer ${system.keys.enterprise}`, "content-type": "application/json" };
    const path = "/v1/inventory";
    update = () => callApi(gateway.address, { method: "PATCH", path: `${path}/1`, headers, body: '{"quantity":1}' });
    list = () => callApi(gateway.address, { path, headers });
  });

  test.each<[keyof typeof status, number, string]>([
    ["CANCELLED", 503, "service_unavailable"],
    ["UNKNOWN", 500, "internal_error"],
    ["INVALID_ARGUMENT", 500, "internal_error"],
    ["DEADLINE_EXCEEDED", 504, "timeout"],
    ["PERMISSION_DENIED", 500, "internal_error"],
    ["RESOURCE_EXHAUSTED", 503, "service_unavailable"],
    ["FAILED_PRECONDITION", 500, "internal_error"],
    ["INTERNAL", 500, "internal_error"],
    ["UNAVAILABLE", 503, "service_unavailable"],
    ["UNIMPLEMENTED", 500, "internal_error"],
    ["DATA_LOSS", 500, "internal_error"],
    ["UNAUTHENTICATED", 500, "internal_error"],
  ])(
    "an error of the service with the status %s becomes %d %s, without its text",
    async (name, expected, errorCode) => {
      code = status[name];
      for (const ask of [update, list]) {
        const answer = await ask();
        // A call that ends with one of these and no reason was reset: no service has said that.
        if (ask === list && /^(UNKNOWN|INTERNAL)$/.test(name)) expectError(answer, 503, "service_unavailable");
        else expectError(answer, expected, errorCode);
        expect(bodyText(answer)).not.toMatch(/secret|10\.0\.0\.1|Store/);
        readLimits(answer);
        for (const gone of ["etag", "content-encoding"]) expect(answer.headers[gone]).toBeUndefined();
      }
    },
  );

  test.each<[keyof typeof status, number, string]>([
    ["NOT_FOUND", 404, "not_found"],
    ["ABORTED", 412, "precondition_failed"],
  ])(
    "an error of the inventory service with the status %s for an update becomes %d %s",
    async (name, expected, errorCode) => {
      code = status[name];
      expectError(await update(), expected, errorCode);
    },
  );
});

describe("connections with invalid HTTP", () => {
  const stack = suiteStack();
  const headers = ["X-RateLimit-Limit", "60"];
  const half = "x".repeat(1_000);
  let address: string;
  let accepted: Promise<Socket>;

  beforeAll(async () => {
    const { server, port } = await startPublicServer(stack, {
      // Answers with half a body and nothing more, or with a whole body.
      router: Router().use((request, response) => {
        if (request.url === "/whole") return void response.end("whole");
        response.writeHead(200, { "Content-Length": 2 * half.length });
        response.write(half);
      }),
      keepAliveTimeoutMs: 500,
      requestTimeoutMs: 10_000,
      headersOutsideRouter: () => headers,
    });
    server.on("connection", (socket: Socket) => {
      accepted = Promise.resolve(socket);
    });
    address = `127.0.0.1:${port}`;
  });

  const wrong = [
    ["nonsense", "nonsense\r\n\r\n"],
    ["CONNECT", "CONNECT g:1 HTTP/1.1\r\nHost: g\r\n\r\n"],
  ] as const;

  test.each(wrong)(
    "a connection with invalid HTTP never carries an error in the middle of a body, after %s",
    async (_what, bytes) => {
      for (const paths of [["/"], ["/", "/"], ["/", "/whole"]]) {
        const socket = connectTo(address);
        let received = "";
        socket.on("data", (chunk) => {
          received += chunk;
          if (received.endsWith(half)) socket.write(bytes);
        });
        for (const path of paths) socket.write(`GET ${path} HTTP/1.1\r\nHost: g\r\n\r\n`);
        await until(() => received.endsWith(half));
        const ours = await accepted;
        await until(() => ours.bytesRead === socket.bytesWritten);
        expect(received.match(/HTTP\/1\.1/g)).toHaveLength(1);
        ours.destroy();
        socket.destroy();
        expect(received.endsWith(half)).toBe(true);
      }
    },
  );

  test.each(wrong)(
    "a connection with invalid HTTP is closed soon even if the client keeps it open, after %s",
    async (_what, bytes) => {
      const socket = connectTo(address);
      socket.write(bytes);
      socket.resume();
      await once(socket, "end");
      const ours = await accepted;
      if (!ours.destroyed) await once(ours, "close", { signal: AbortSignal.timeout(5_000) });
      socket.destroy();
    },
  );
});
