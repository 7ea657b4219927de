import { once } from "node:events";
import { request as httpRequest, type IncomingMessage } from "node:http";
import { connect } from "node:net";
import { promisify } from "node:util";
import { gzipSync } from "node:zlib";
import type { ItemInput } from "../../proto/pet.ts";
import { expectError, header } from "../support/answers.ts";
import { callApi, sendToApi } from "../support/api.ts";
import { suiteStack } from "../support/stack.ts";
import { type System, startSystem } from "../support/system.ts";

const bodyTimeoutMs = 500;
const seed: readonly ItemInput[] = [
  { petId: 1n, quantity: 100, status: "pending" },
  { petId: 9_007_199_254_740_992n, quantity: 1, status: "available" },
  { petId: 9_007_199_254_740_993n, quantity: 2, status: "available" },
  { petId: 9_223_372_036_854_775_807n, quantity: 3, status: "sold" },
  { petId: -9_223_372_036_854_775_808n, quantity: 4, status: "sold" },
];
const untouched = seed[0];

describe("PATCH /v1/inventory/{petId}", () => {
  const stack = suiteStack();
  let system: System;
  let authorization: string;

  beforeAll(async () => {
    system = await startSystem({ seed, gatewayEnv: { BODY_TIMEOUT_MS: `${bodyTimeoutMs}` } });
    stack.defer(() => system.close());
    authorization = `Bearer ${system.keys.enterprise}`;
  });

  const patch = (path: string, body: string | Buffer, headers: Record<string, string> = {}) =>
    callApi(system.address, {
      method: "PATCH",
      path: `/v1/inventory/${path}`,
      headers: { authorization, "content-type": "application/json", ...headers },
      body,
    });
  const set = (path: string, quantity: number, headers: Record<string, string> = {}) =>
    patch(path, JSON.stringify({ quantity }), headers);
  /** A request head, for a body of any kind. */
  const head = (...lines: string[]) =>
    [
      "PATCH /v1/inventory/1 HTTP/1.1",
      "Host: g",
      `Authorization: ${authorization}`,
      "Content-Type: application/json",
      ...lines,
      "\r\n",
    ].join("\r\n");

  describe("valid updates", () => {
    test.each([
      ["1", 1n, "pending"],
      ["%31", 1n, "pending"],
      ["1?quantity=9&petId=2", 1n, "pending"],
      ["9007199254740993", 9_007_199_254_740_993n, "available"],
      ["9223372036854775807", 9_223_372_036_854_775_807n, "sold"],
      ["-9223372036854775808", -9_223_372_036_854_775_808n, "sold"],
    ])(
      "an update of /v1/inventory/%s answers with the exact petId and stores the quantity",
      async (path, petId, status) => {
        const response = await set(path, 77);
        expect(response.status).toBe(200);
        expect(header(response, "Content-Type")).toBe("application/json");
        expect(Number(header(response, "Content-Length"))).toBe(Buffer.byteLength(response.text));
        expect(response.text.replaceAll(/\s/g, "")).toBe(`{"petId":${petId},"quantity":77,"status":"${status}"}`);
        expect(await system.stored(petId)).toEqual({ petId, quantity: 77, status });
      },
    );

    test("an update changes no neighbour whose petId is the same as a double", async () => {
      const before = await system.stored(9_007_199_254_740_992n);
      await set("9007199254740993", 4_711);
      expect(await system.stored(9_007_199_254_740_992n)).toEqual(before);
    });

    test("an update is idempotent", async () => {
      const once = await set("1", 31);
      const twice = await set("1", 31);
      expect(twice).toMatchObject({ status: 200, text: once.text, headers: { etag: once.headers.etag } });
    });

    test.each([
      ["0", "0", 0],
      ["-0", "-0", 0],
      ["2147483647", "2147483647", 2_147_483_647],
      ["5.0", "5.0", 5],
      ["5e0", "5e0", 5],
      ["50e-1", "50e-1", 5],
      ["0.5E+1", "0.5E+1", 5],
      ["5.000 with 400 zeros", `5.${"0".repeat(400)}`, 5],
      ["0 with an exponent", "0e-400", 0],
    ])("an update sets the quantity %s", async (_what, text, quantity) => {
      const response = await patch("1", `{"quantity":${text}}`);
      expect(response).toMatchObject({ status: 200 });
      expect(response.text.replaceAll(/\s/g, "")).toBe(`{"petId":1,"quantity":${quantity},"status":"pending"}`);
      expect(await system.stored(1n)).toMatchObject({ quantity });
    });

    test.each([
      [
        "members that the contract does not name",
        '{"status":"sold","petId":2,"quantity":6,"note":null,"__proto__":{}}',
      ],
      ["white space and a byte order mark", '\ufeff \t\r\n{ "quantity" : 6 }\n'],
      ["the name written with a JSON escape", '{"\\u0071uantity":6}'],
      ["another member that is nested 7,000 deep", `{"x":${"[".repeat(7_000)}${"]".repeat(7_000)},"quantity":6}`],
      ["a member of the same name further inside", '{"x":{"quantity":1,"y":[{"quantity":2}]},"quantity":6}'],
      ["the same value in several members", '{"a":"quantity","b":"quantity","quantity":6}'],
      ["a length of 16 KiB", '{"quantity":6}'.padEnd(16 * 1024)],
    ])("an update may have a body with %s", async (_what, body) => {
      await set("1", 100);
      expect(await patch("1", body)).toMatchObject({ status: 200 });
      expect(await system.stored(1n)).toEqual({ petId: 1n, quantity: 6, status: "pending" });
    });

    test.each([
      "application/json",
      "application/merge-patch+json",
      "Application/JSON",
      'application/json; charset="utf-8"',
      "application/json;charset=UTF-8",
      "application/json ; profile=x; charset=utf-8",
    ])("an update may have the media type %s", async (type) => {
      expect(await set("1", 8, { "content-type": type })).toMatchObject({ status: 200 });
    });

    test("an update may have the content coding identity", async () => {
      expect(await set("1", 8, { "content-encoding": "identity" })).toMatchObject({ status: 200 });
    });

    test("an update may arrive in chunks", async () => {
      const bytes = `${head("Transfer-Encoding: chunked")}5\r\n{"qua\r\n8\r\nntity":9\r\n1\r\n}\r\n0\r\n\r\n`;
      expect(await sendToApi(system.address, bytes)).toMatchObject({ status: 200 });
      expect(await system.stored(1n)).toMatchObject({ quantity: 9 });
    });

    test("an update may wait for 100 Continue", async () => {
      const body = '{"quantity":12}';
      const { hostname, port } = new URL(`http://${system.address}`);
      const sent = httpRequest({
        hostname,
        port,
        method: "PATCH",
        path: "/v1/inventory/1",
        headers: {
          authorization,
          "content-type": "application/json",
          "content-length": body.length,
          expect: "100-continue",
        },
      });
      sent.flushHeaders();
      await once(sent, "continue");
      sent.end(body);
      const [response] = (await once(sent, "response")) as [IncomingMessage];
      response.resume();
      expect(response.statusCode).toBe(200);
      expect(await system.stored(1n)).toMatchObject({ quantity: 12 });
    });

    test.each([
      ["a stray byte", "\0", 400],
      ["something that is no request", "}{ HTTP/1.1\r\n\r\n", 400],
      ["a CONNECT", "CONNECT example:443 HTTP/1.1\r\nHost: example\r\n\r\n", 405],
    ])(
      "an update is answered before %s that follows it, and then its connection is closed",
      async (_what, rest, refusal) => {
        const bytes = `${head("Content-Length: 15")}{"quantity":14}${rest}`;
        const { raw } = await sendToApi(system.address, bytes, { untilEnd: true });
        expect(raw.toString().match(/(?<=HTTP\/1\.1 )\d+/g)).toEqual(["200", String(refusal)]);
        expect(await system.stored(1n)).toMatchObject({ quantity: 14 });
      },
    );

    test("an update is answered also for a client that sends 8 MB of other bytes before it reads", async () => {
      const { hostname, port } = new URL(`http://${system.address}`);
      const socket = connect({ host: hostname, port: Number(port) });
      const more = `CONNECT example:443 HTTP/1.1\r\nHost: example\r\n\r\n${"x".repeat(8_000_000)}`;
      const sent = promisify<string, void>(socket.write.bind(socket) as never);
      await sent(`${head("Content-Length: 15")}{"quantity":15}${more}`);
      let received = "";
      for await (const chunk of socket) received += chunk;
      expect(received).toMatch(/^HTTP\/1\.1 200 /);
    });

    test("an update may have an unknown expectation", async () => {
      const bytes = `${head("Expect: the-unexpected", "Content-Length: 15")}{"quantity":13}`;
      expect(await sendToApi(system.address, bytes)).toMatchObject({ status: 200 });
    });
  });

  describe("the petId", () => {
    const digits = "1".repeat(400);
    test.each([
      ["unknown", "4040"],
      ["zero", "0"],
      ["negative", "-1"],
      ["next to a known one", "9007199254740994"],
      ["the largest but one", "9223372036854775806"],
    ])("an update of a petId that is %s is 404 (%s)", async (_what, path) => {
      expectError(await set(path, 5), 404, "not_found");
      expect(await system.stored(BigInt(path))).toBeUndefined();
    });

    test.each([
      ["text", "abc"],
      ["a fraction", "1.5"],
      ["a whole fraction", "1.0"],
      ["written with leading zeros", "007"],
      ["written with a plus sign", "+1"],
      ["written with an encoded plus sign", "%2B1"],
      ["minus zero", "-0"],
      ["a sign alone", "-"],
      ["written with an exponent", "1e0"],
      ["written in hexadecimal", "0x1"],
      ["written with a space", "%201"],
      ["written with a line end", "1%0A"],
      ["written with a zero byte", "1%00"],
      ["written with a slash", "1%2F"],
      ["written in full-width digits", "%EF%BC%91"],
      ["2^63", "9223372036854775808"],
      ["-2^63 - 1", "-9223372036854775809"],
      ["400 digits long", digits],
      ["not valid percent-encoding", "%zz"],
      ["not UTF-8", "%ff"],
    ])("an update of a petId that is %s is 400 (%s)", async (_what, path) => {
      await set("1", 100);
      expectError(await set(path, 5), 400, "invalid_request", path.startsWith("%zz") || path === "%ff" ? /./ : /petId/);
      expect(await system.stored(1n)).toEqual(untouched);
    });

    test.each(["", "1/", "/1", "1/quantity"])(
      "an update of a petId that is not exactly one segment is 404 (/v1/inventory/%s)",
      async (path) => {
        await set("1", 100);
        expectError(await set(path, 5), 404, "not_found");
        expect(await system.stored(1n)).toEqual(untouched);
      },
    );
  });

  describe("refused updates", () => {
    beforeEach(() => set("1", 100));
    afterEach(async () => expect(await system.stored(1n)).toEqual(untouched));

    test.each([
      ["{}", "{}", /quantity/],
      ["an array", "[]", /quantity/],
      ["an array of one update", '[{"quantity":5}]', /quantity/],
      ["null", "null", /quantity/],
      ["a bare number", "5", /quantity/],
      ["a string", '"quantity"', /quantity/],
      ["names other than quantity", '{"Quantity":5,"quantity ":5}', /quantity/],
      ["a member __proto__", '{"__proto__":{"quantity":5}}', /quantity/],
      ["a member constructor", '{"constructor":{"prototype":{"quantity":5}}}', /quantity/],
      ["a precondition in the body", '{"quantity":5,"ifMatch":"x"}', /ifMatch.*header If-Match/],
      [
        "the entry of a list with its etag",
        '{"petId":1,"quantity":5,"etag":"x"}',
        "etag is no member: use the header If-Match.",
      ],
      ["an idempotencyKey", '{"quantity":5,"idempotencyKey":"x"}', /^idempotencyKey .*header Idempotency-Key/],
      ["null as quantity", '{"quantity":null}', /quantity.*0.*2147483647/],
      ["a string as quantity", '{"quantity":"5"}', /quantity.*0.*2147483647/],
      ["an empty string as quantity", '{"quantity":""}', /quantity.*0.*2147483647/],
      ["true as quantity", '{"quantity":true}', /quantity.*0.*2147483647/],
      ["an array as quantity", '{"quantity":[5]}', /quantity.*0.*2147483647/],
      ["an object as quantity", '{"quantity":{}}', /quantity.*0.*2147483647/],
      ["a fraction", '{"quantity":1.5}', /quantity.*0.*2147483647/],
      ["a fraction that a double rounds to a whole number", '{"quantity":4.99999999999999999999}', /quantity/],
      ["a fraction that a double rounds to zero", '{"quantity":1e-400}', /quantity/],
      ["a number beyond the range of a double", '{"quantity":1e400}', /quantity.*0.*2147483647/],
      ["a negative number", '{"quantity":-1}', /quantity.*0.*2147483647/],
      ["a quantity of 2^31", '{"quantity":2147483648}', /quantity.*0.*2147483647/],
      ["2^32 + 5, which is 5 in 32 bits", '{"quantity":4294967301}', /quantity.*0.*2147483647/],
      ["a quantity nested 8,000 deep", `{"quantity":${"[".repeat(8_000)}${"]".repeat(8_000)}}`, /quantity/],
    ])(
      "an update with a body of %s is answered 400 invalid_request and changes nothing",
      async (_what, body, message) => {
        expectError(await patch("1", body), 400, "invalid_request", message);
      },
    );

    test.each([
      ["no bytes", ""],
      ["white space", "  \n"],
      ["half an object", '{"quantity":5'],
      ["more than one value", '{"quantity":5}{"quantity":5}'],
      ["an object with a trailing comma", '{"quantity":5,}'],
      ["an object with a comment", '{"quantity":5/**/}'],
      ["a number with a leading zero", '{"quantity":05}'],
      ["a number with a plus sign", '{"quantity":+5}'],
      ["NaN", '{"quantity":NaN}'],
      ["a form", "quantity=5"],
      ["invalid UTF-8", Buffer.from([...Buffer.from('{"quantity":5,"x":"'), 0xc3, 0x28, ...Buffer.from('"}')])],
      ["UTF-16", Buffer.from('\ufeff{"quantity":5}', "utf16le")],
    ])("an update with a body of %s is answered 400 invalid_json and changes nothing", async (_what, body) => {
      expectError(await patch("1", body), 400, "invalid_json");
    });

    test("an update without a body or Content-Length is 400 invalid_json and changes nothing", async () => {
      const key = system.keys.enterprise;
      const head = `PATCH /v1/inventory/1 HTTP/1.1\r\nHost: g\r\nAuthorization: Bearer ${key}\r\n`;
      const bytes = `${head}Content-Type: application/json\r\nConnection: close\r\n\r\n`;
      expectError(await sendToApi(system.address, bytes), 400, "invalid_json");
    });

    test.each([
      ["the same name twice", '{"quantity":5,"quantity":6}', /quantity/],
      ["the same name in two spellings", '{"quantity":5,"\\u0071uantity":5}', /quantity/],
      ["another name twice", '{"quantity":5,"note":1,"note":1}', /note/],
      ["a name twice in a nested object", '{"quantity":5,"x":[{"a":{},"a":1}]}', /"a"/],
    ])(
      "an update with %s in its body is answered 400 invalid_json and changes nothing",
      async (_what, body, message) => {
        expectError(await patch("1", body), 400, "invalid_json", message);
      },
    );

    test.each([
      ["40,000 levels", "[".repeat(40_000)],
      ["10 MB", '{"quantity":5}'.padEnd(10_000_000)],
      ["16 KiB and one byte", '{"quantity":5}'.padEnd(16 * 1024 + 1)],
    ])("an update with a body of %s is answered 413 and changes nothing", async (_what, body) => {
      expectError(await patch("1", body), 413, "payload_too_large");
    });

    test("an update with too large a Content-Length is 413 before its body, and changes nothing", async () => {
      const answer = await sendToApi(system.address, head("Expect: 100-continue", "Content-Length: 16385"));
      expectError(answer, 413, "payload_too_large");
    });

    test("an update with endless chunks is 413 once they exceed the limit, and changes nothing", async () => {
      const chunk = `400\r\n${" ".repeat(0x400)}\r\n`;
      const answer = await sendToApi(system.address, head("Transfer-Encoding: chunked") + chunk.repeat(17));
      expectError(answer, 413, "payload_too_large");
    });

    test.each([
      ["stops", "Content-Length: 15", '{"quantity":'],
      ["never begins", "Content-Length: 15", ""],
      ["stops between two chunks", "Transfer-Encoding: chunked", '5\r\n{"qua\r\n'],
    ])("an update with a body that %s is answered 408 and changes nothing", async (_what, framing, part) => {
      const answer = await sendToApi(system.address, head(framing) + part);
      expectError(answer, 408, "timeout");
      expect(header(answer, "Connection")).toBe("close");
    });

    test("an update whose body arrives in any number of drops is 408, and changes nothing", async () => {
      const { hostname, port } = new URL(`http://${system.address}`);
      const headers = { authorization, "content-type": "application/json" };
      const sent = httpRequest({ hostname, port, method: "PATCH", path: "/v1/inventory/1", headers });
      sent.on("error", () => {}); // the connection is closed while drops are under way
      sent.write('{"quantity":5');
      const drops = setInterval(() => sent.write(" "), bodyTimeoutMs / 10);
      const [response] = (await once(sent, "response")) as [IncomingMessage];
      clearInterval(drops);
      response.resume();
      expect(response.statusCode).toBe(408);
      sent.destroy();
    });

    test("an update whose client disconnects in the middle of the body changes nothing", async () => {
      const { hostname, port } = new URL(`http://${system.address}`);
      const headers = { authorization, "content-type": "application/json", "content-length": 15 };
      const sent = httpRequest({ hostname, port, method: "PATCH", path: "/v1/inventory/1", headers });
      sent.on("error", () => {});
      await new Promise((resolve) => sent.write('{"quantity":5', resolve));
      const closed = new Promise((resolve) => sent.once("close", resolve));
      sent.destroy();
      await closed;
      // Once another request is answered, the server has seen it.
      expect(await callApi(system.address, { path: "/openapi.json" })).toMatchObject({ status: 200 });
    });

    test.each([
      ["absent", undefined],
      ["text", "text/plain"],
      ["a form", "application/x-www-form-urlencoded"],
      ["JSON Patch", "application/json-patch+json"],
      ["almost JSON", "application/jsonx"],
      ["a list of two", "text/plain, application/json"],
      ["JSON in UTF-16", "application/json; charset=utf-16"],
      ["JSON in Latin-1", 'application/json; charset="iso-8859-1"'],
      ["JSON in two charsets", "application/json; charset=utf-8; charset=latin1"],
    ])("an update with a media type that is %s is answered 415 and changes nothing", async (_what, type) => {
      const response = await callApi(system.address, {
        method: "PATCH",
        path: "/v1/inventory/1",
        headers: { authorization, ...(type !== undefined && { "content-type": type }) },
        body: '{"quantity":5}',
      });
      expectError(response, 415, "unsupported_media_type");
      expect(header(response, "Accept-Patch")).toBe("application/json, application/merge-patch+json");
    });

    test.each(["gzip", "br", "gzip, identity"])(
      "an update with the content coding %s is answered 415 and changes nothing",
      async (coding) => {
        const body = gzipSync('{"quantity":5}');
        expectError(await patch("1", body, { "content-encoding": coding }), 415, "unsupported_media_type");
      },
    );

    test("an update without a key or with a read-only key changes nothing", async () => {
      const { key } = await system.issueKey({ scopes: ["inventory:read", "store:read"] });
      expectError(await set("1", 5, { authorization: "" }), 401, "missing_api_key");
      expectError(await set("1", 5, { authorization: `Bearer ${key}` }), 403, "insufficient_scope");
    });
  });

  test("a list that is asked for right behind an update on the same connection shows the update", async () => {
    const [host, port] = system.address.split(":");
    const socket = connect(Number(port), host);
    const lines = (line: string, ...more: string[]) =>
      [line, `Host: ${system.address}`, `Authorization: ${authorization}`, ...more, "", ""].join("\r\n");
    let received = "";
    socket.on("data", (chunk) => {
      received += chunk;
    });
    for (let quantity = 1; quantity <= 40; quantity++) {
      const body = `{"quantity":${quantity}}`;
      const media = ["Content-Type: application/json", `Content-Length: ${body.length}`];
      const get = lines("GET /v1/inventory HTTP/1.1");
      socket.write(get + lines("PATCH /v1/inventory/1 HTTP/1.1", ...media) + body + get + get);
    }
    socket.write(lines("GET /v1/nothing HTTP/1.1", "Connection: close"));
    await once(socket, "close");
    const shown = [...received.matchAll(/"petId":1,"quantity":(\d+)/g)].map(([, quantity]) => Number(quantity));
    // Before the update, its own answer, and twice after it.
    expect(shown.slice(1)).toEqual(
      Array.from({ length: 40 }, (_, i) => [i + 1, i + 1, i + 1, i + 1])
        .flat()
        .slice(0, -1),
    );
  });
});
