import { promisify } from "node:util";
import { gunzipSync } from "node:zlib";
import { PetStatus } from "../../proto/gen/petstore/inventory/v1/inventory.ts";
import type { ItemInput } from "../../proto/pet.ts";
import { expectError, header } from "../support/answers.ts";
import { callApi, sendToApi } from "../support/api.ts";
import { type LocalGateway, startLocalGateway } from "../support/local-gateway.ts";
import { suiteStack } from "../support/stack.ts";
import { type System, startSystem } from "../support/system.ts";

/** Sorted neither by petId nor by the text of the petId. */
const seed: readonly ItemInput[] = [
  { petId: 9_223_372_036_854_775_807n, quantity: 2_147_483_647, status: "sold" },
  { petId: 10n, quantity: 0, status: "available" },
  { petId: 9_007_199_254_740_993n, quantity: 3, status: "available" },
  { petId: 2n, quantity: 7, status: "pending" },
  { petId: -9_223_372_036_854_775_808n, quantity: 1, status: "sold" },
  { petId: 9_007_199_254_740_992n, quantity: 4, status: "available" },
];
const inOrder = [
  '{"petId":-9223372036854775808,"quantity":1,"status":"sold"}',
  '{"petId":2,"quantity":7,"status":"pending"}',
  '{"petId":10,"quantity":0,"status":"available"}',
  '{"petId":9007199254740992,"quantity":4,"status":"available"}',
  '{"petId":9007199254740993,"quantity":3,"status":"available"}',
  '{"petId":9223372036854775807,"quantity":2147483647,"status":"sold"}',
];
/** More entries than the gateway keeps in one piece. */
const many = 700;

describe("GET /v1/inventory", () => {
  const stack = suiteStack();
  let system: System;
  let authorization: string;

  beforeAll(async () => {
    system = await startSystem({ seed });
    stack.defer(() => system.close());
    authorization = `Bearer ${system.keys.enterprise}`;
  });

  const list = (headers: Record<string, string> = {}, method = "GET") =>
    callApi(system.address, { method, path: "/v1/inventory", headers: { authorization, ...headers } });

  /** The list with its body as bytes. */
  async function listBytes(acceptEncoding: string) {
    const head = `GET /v1/inventory HTTP/1.1\r\nHost: g\r\nAuthorization: ${authorization}\r\n`;
    return await sendToApi(system.address, `${head}Accept-Encoding: ${acceptEncoding}\r\n\r\n`);
  }

  async function patch(petId: bigint, quantity: number) {
    const { status } = await callApi(system.address, {
      method: "PATCH",
      path: `/v1/inventory/${petId}`,
      headers: { authorization, "content-type": "application/json" },
      body: JSON.stringify({ quantity }),
    });
    expect(status).toBe(200);
  }

  test("the list returns every entry once, in the order of petId, exact to the last digit", async () => {
    const response = await list();
    expect(response.status).toBe(200);
    expect(header(response, "Content-Type")).toBe("application/json");
    expect(Number(header(response, "Content-Length"))).toBe(Buffer.byteLength(response.text));
    expect(response.text.replaceAll(/\s/g, "")).toBe(`[${inOrder.join(",")}]`);
    expect(response.text).toContain("9007199254740993");
    expect(response.text).toContain("9223372036854775807");
    for (const item of response.json<object[]>()) expect(Object.keys(item)).toEqual(["petId", "quantity", "status"]);
  });

  test("the list ignores parameters that it does not know", async () => {
    const response = await callApi(system.address, {
      path: "/v1/inventory?status=sold&petids=1&Limit=%zz",
      headers: { authorization },
    });
    expect(response).toMatchObject({ status: 200, text: (await list()).text });
  });

  test("the list answers HEAD with the headers of GET and no body", async () => {
    for (const coding of ["identity", "gzip"]) {
      const get = await list({ "accept-encoding": coding });
      const head = await list({ "accept-encoding": coding }, "HEAD");
      expect(head).toMatchObject({ status: 200, text: "" });
      for (const name of ["content-type", "content-length", "content-encoding", "etag", "vary", "cache-control"]) {
        expect([name, head.headers[name]]).toEqual([name, get.headers[name]]);
      }
    }
  });

  test("the list may be cached by the caller only, which has to revalidate it each time", async () => {
    expect(header(await list(), "Cache-Control")).toBe("private, no-cache");
  });

  describe("the ETag", () => {
    test("the list's ETag is strong, stays while nothing changes and differs after a change", async () => {
      const before = header(await list(), "ETag");
      expect(before).toMatch(/^"[\x21\x23-\x7e]+"$/);
      expect(header(await list(), "ETag")).toBe(before);
      await patch(2n, 7); // its quantity already
      expect(header(await list(), "ETag")).toBe(before);
      await patch(2n, 8);
      const after = header(await list(), "ETag");
      expect(after).not.toBe(before);
      await patch(2n, 7);
      expect([before, after]).not.toContain(header(await list(), "ETag"));
    });

    test("the list's ETag differs for gzip, as its bytes differ", async () => {
      const plain = header(await list(), "ETag");
      const zipped = header(await list({ "accept-encoding": "gzip" }), "ETag");
      expect(zipped).not.toBe(plain);
    });

    const matching: [string, (etag: string) => string][] = [
      ["the tag", (etag) => etag],
      ["the weak form of the tag", (etag) => `W/${etag}`],
      ["a list that contains the tag", (etag) => `"other", W/"more",${etag} , "last"`],
      ["*", () => "*"],
    ];
    test.each(matching)("the list is 304 without a body when If-None-Match has %s", async (_what, condition) => {
      for (const coding of ["identity", "gzip"]) {
        for (const method of ["GET", "HEAD"]) {
          const etag = header(await list({ "accept-encoding": coding }), "ETag");
          const headers = { "accept-encoding": coding, "if-none-match": condition(etag) };
          const response = await list(headers, method);
          expect(response).toMatchObject({ status: 304, text: "" });
          expect(header(response, "ETag")).toBe(etag);
          expect(header(response, "Vary")).toBe("Accept-Encoding");
          expect(response.headers["content-encoding"]).toBeUndefined();
          expect(response.headers["content-type"]).toBeUndefined();
        }
      }
    });

    const differing: [string, (etag: string) => string][] = [
      ["another tag", () => '"other"'],
      ["the tag without its quotes", (etag) => etag.slice(1, -1)],
      ["a part of the tag", (etag) => `${etag.slice(0, -2)}"`],
      ["an empty value", () => ""],
    ];
    test.each(differing)("the list is 200 when If-None-Match has %s", async (_what, condition) => {
      const { headers, text } = await list();
      const response = await list({ "if-none-match": condition(String(headers.etag)) });
      expect(response).toMatchObject({ status: 200, text });
    });

    test("the list is 200 when its ETag no longer matches after a PATCH", async () => {
      const etag = header(await list(), "ETag");
      await patch(2n, 9);
      expect(await list({ "if-none-match": etag })).toMatchObject({ status: 200 });
      await patch(2n, 7);
    });
  });

  describe("the content coding", () => {
    const codings: [string, "gzip" | undefined][] = [
      ["gzip", "gzip"],
      ["deflate, gzip;q=0.5, br", "gzip"],
      ["GZIP", "gzip"],
      ["*", "gzip"],
      [`${"a,".repeat(600)}gzip`, undefined], // longer than what is read
      ["identity", undefined],
      ["br, zstd", undefined],
      ["gzip;q=0", undefined],
      ["gzip;q=0, *", undefined],
      ["gzip;q=0.2, identity;q=0.8", undefined],
      ["", undefined],
    ];
    test.each(codings)("the list with Accept-Encoding %j has Content-Encoding %j", async (accepted, coding) => {
      const response = await listBytes(accepted);
      expect(response.status).toBe(200);
      expect(response.headers["content-encoding"]).toEqual(coding && [coding]);
      expect(response.headers.vary).toEqual(["Accept-Encoding"]);
      expect(Number(header(response, "Content-Length"))).toBe(response.body.length);
      const plain = coding === "gzip" ? gunzipSync(response.body) : response.body;
      expect(plain.toString()).toBe((await list()).text);
    });

    test("the list without Accept-Encoding has no Content-Encoding", async () => {
      expect((await list()).headers["content-encoding"]).toBeUndefined();
    });
  });

  test("the list shows a PATCH once it is acknowledged, in either coding and through any gateway", async () => {
    const other = await startLocalGateway(system.gatewayEnv);
    stack.defer(() => other.close());
    for (const quantity of [11, 12, 13]) {
      await patch(9_007_199_254_740_993n, quantity);
      const item = `{"petId":9007199254740993,"quantity":${quantity},"status":"available"}`;
      const there = await callApi(other.address, { path: "/v1/inventory", headers: { authorization } });
      expect((await list()).text.replaceAll(/\s/g, "")).toContain(item);
      expect(there.text.replaceAll(/\s/g, "")).toContain(item);
      expect(
        gunzipSync((await listBytes("gzip")).body)
          .toString()
          .replaceAll(/\s/g, ""),
      ).toContain(item);
    }
    await patch(9_007_199_254_740_993n, 3);
  });

  test("the list shows an entry once an internal caller has created it, and not after its removal", async () => {
    const create = promisify(system.client.createInventoryItem.bind(system.client));
    const remove = promisify(system.client.removeInventoryItem.bind(system.client));
    const before = (await list()).text;
    await create({ petId: 5n, quantity: 1, status: PetStatus.PET_STATUS_SOLD });
    expect((await list()).json<{ petId: number }[]>().map(({ petId }) => petId)).toContain(5);
    await remove({ petId: 5n });
    expect((await list()).text).toBe(before);
  });

  test.each([
    ["no key", undefined, "missing_api_key"],
    ["a malformed key", "Bearer nonsense", "invalid_api_key"],
  ])("the list is 401 with %s", async (_what, given, code) => {
    const headers: Record<string, string> = given === undefined ? {} : { authorization: given };
    expectError(await callApi(system.address, { path: "/v1/inventory", headers }), 401, code);
  });
});

describe("GET /v1/inventory of a new store", () => {
  const stack = suiteStack();
  let empty: System;
  let gateway: LocalGateway;
  let headers: Record<string, string>;

  beforeAll(async () => {
    empty = await startSystem({ gateways: 0 });
    stack.defer(() => empty.close());
    gateway = await startLocalGateway(empty.gatewayEnv);
    stack.defer(() => gateway.close());
    headers = { authorization: `Bearer ${empty.keys.enterprise}` };
  });

  test("the list of an empty store is [], in either coding", async () => {
    const plain = await callApi(gateway.address, { path: "/v1/inventory", headers });
    expect(plain).toMatchObject({ status: 200, text: "[]" });
    const head = `GET /v1/inventory HTTP/1.1\r\nHost: g\r\nAuthorization: ${headers.authorization}\r\n`;
    const zipped = await sendToApi(gateway.address, `${head}Accept-Encoding: gzip\r\n\r\n`);
    expect(gunzipSync(zipped.body).toString()).toBe("[]");
  });

  test("the list of a store that grows has its entries in the order of petId, not of creation", async () => {
    const create = promisify(empty.client.createInventoryItem.bind(empty.client));
    const ids = Array.from({ length: many }, (_, i) => BigInt(i) * 13_000_000_000_000_000n);
    // The second half is created first.
    const made = [...ids.slice(many / 2), ...ids.slice(0, many / 2)];
    await Promise.all(made.map((petId) => create({ petId, quantity: 1, status: PetStatus.PET_STATUS_AVAILABLE })));
    const { text } = await callApi(gateway.address, { path: "/v1/inventory", headers });
    expect([...text.matchAll(/"petId":(\d+)/g)].map((match) => BigInt(match[1]!))).toEqual(ids);
    JSON.parse(text);
  });
});
