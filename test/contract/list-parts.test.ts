import { promisify } from "node:util";
import { gunzipSync } from "node:zlib";
import { PetStatus } from "../../proto/gen/petstore/inventory/v1/inventory.ts";
import type { ItemInput } from "../../proto/pet.ts";
import { expectError, header } from "../support/answers.ts";
import { callApi, sendToApi } from "../support/api.ts";
import { startLocalGateway } from "../support/local-gateway.ts";
import { suiteStack } from "../support/stack.ts";
import { type System, startSystem } from "../support/system.ts";

const [smallest, largest] = [-(2n ** 63n), 2n ** 63n - 1n];
/** Some of them beyond 2^53, and two beside each other there. */
const petIds = [smallest, 2n, 10n, 9_007_199_254_740_992n, 9_007_199_254_740_993n, largest];
const seed: readonly ItemInput[] = petIds.map((petId, i) => ({ petId, quantity: i, status: "available" }));
const jsonOf = (ids: readonly bigint[]) =>
  `[${ids.map((id) => `{"petId":${id},"quantity":${petIds.indexOf(id)},"status":"available"}`).join(",")}]`;

describe("parts of GET /v1/inventory", () => {
  const stack = suiteStack();
  let system: System;
  let authorization: string;

  beforeAll(async () => {
    system = await startSystem({ seed });
    stack.defer(() => system.close());
    authorization = `Bearer ${system.keys.enterprise}`;
  });

  const ask = (query: string, headers: Record<string, string> = {}, method = "GET") =>
    callApi(system.address, { method, path: `/v1/inventory${query}`, headers: { authorization, ...headers } });

  async function askForGzip(query: string) {
    const head = `GET /v1/inventory${query} HTTP/1.1\r\nHost: g\r\nAuthorization: ${authorization}\r\n`;
    return await sendToApi(system.address, `${head}Accept-Encoding: gzip\r\n\r\n`);
  }

  describe("by petIds", () => {
    test.each<[string, bigint[]]>([
      ["10,2", [2n, 10n]],
      ["9223372036854775807,-9223372036854775808,9007199254740993", [smallest, 9_007_199_254_740_993n, largest]],
      ["2,3,2,10,2,-7", [2n, 10n]],
      ["2%2C10", [2n, 10n]],
      ["3", []],
      [petIds.join(), petIds],
    ])("petIds=%s gives the entries that exist, exact and in the order of petId", async (asked, expected) => {
      const answer = await ask(`?petIds=${asked}`);
      expect(answer).toMatchObject({ status: 200, text: jsonOf(expected) });
      expect(header(answer, "Content-Type")).toBe("application/json");
      expect(header(answer, "Cache-Control")).toBe("private, no-cache");
      expect(answer.headers.link).toBeUndefined();
    });

    test("petIds may name 100 entries, a duplicate counts once, and 101 are 400", async () => {
      const hundred = Array.from({ length: 100 }, (_, i) => i + 2);
      expect(await ask(`?petIds=${hundred}`)).toMatchObject({ status: 200, text: jsonOf([2n, 10n]) });
      expect(await ask(`?petIds=${[...hundred, ...hundred]}`)).toMatchObject({ status: 200 });
      expectError(await ask(`?petIds=${[...hundred, 1]}`), 400, "invalid_request", /petIds.* 100/);
    });

    test("a hundred of the longest entries come in one answer", async () => {
      const ids = Array.from({ length: 100 }, (_, i) => smallest + BigInt(i) + 1n);
      const create = promisify(system.client.createInventoryItem.bind(system.client));
      const remove = promisify(system.client.removeInventoryItem.bind(system.client));
      const status = PetStatus.PET_STATUS_AVAILABLE;
      await Promise.all(ids.map((petId) => create({ petId, quantity: 2_147_483_647, status })));
      const expected = ids.map((id) => `{"petId":${id},"quantity":2147483647,"status":"available"}`);
      expect((await ask(`?petIds=${ids}`)).text).toBe(`[${expected.join(",")}]`);
      await Promise.all(ids.map((petId) => remove({ petId })));
    });
  });

  describe("by pages", () => {
    /** Follows the pages from a query on. @returns the petIds of each */
    async function pagesFrom(query: string, headers: Record<string, string> = {}): Promise<bigint[][]> {
      const pages: bigint[][] = [];
      for (let next: string | undefined = query; next !== undefined; ) {
        const answer = await ask(next, headers);
        expect(answer.status).toBe(200);
        pages.push([...answer.text.matchAll(/"petId":(-?\d+)/g)].map((match) => BigInt(match[1]!)));
        const link = answer.headers.link as string | undefined;
        const [, target] = /^<([^>]*)>; rel="next"$/.exec(link ?? "") ?? [];
        expect(target === undefined).toBe(link === undefined);
        next = target && new URL(target, `http://${system.address}/v1/inventory${next}`).search;
      }
      return pages;
    }

    test.each([
      [1, [1, 1, 1, 1, 1, 1]],
      [4, [4, 2]],
      [6, [6]],
      [10_000, [6]],
    ])(
      "pages of %i follow each other by Link to the last entry, and the last one has no Link",
      async (limit, sizes) => {
        const pages = await pagesFrom(`?limit=${limit}`);
        expect(pages.flat()).toEqual(petIds);
        expect(pages.map(({ length }) => length)).toEqual(sizes);
      },
    );

    test.each<[string, bigint[]]>([
      ["limit=2&after=2", [10n, 9_007_199_254_740_992n]],
      ["after=3&limit=1", [10n]],
      ["limit=1&after=9007199254740992", [9_007_199_254_740_993n]],
      ["limit=1&after=-9223372036854775808", [2n]],
      ["limit=5&after=9223372036854775806", [largest]],
      ["limit=5&after=9223372036854775807", []],
    ])("%s begins after a petId, whether it has an entry or not", async (query, expected) => {
      expect(await ask(`?${query}`)).toMatchObject({ status: 200, text: jsonOf(expected) });
    });

    test("a page may be compressed, as the list may", async () => {
      const zipped = await askForGzip("?limit=3");
      expect(header(zipped, "Content-Encoding")).toBe("gzip");
      expect(gunzipSync(zipped.body).toString()).toBe(jsonOf(petIds.slice(0, 3)));
      expect(header(zipped, "ETag")).toBe(header(await askForGzip(""), "ETag"));
      expect(header(zipped, "Link")).toBe(header(await ask("?limit=3"), "Link"));
    });

    test("a page of a store without entries is [], and has no Link", async () => {
      const empty = await startSystem();
      stack.defer(() => empty.close());
      const headers = { authorization: `Bearer ${empty.keys.enterprise}` };
      const answer = await callApi(empty.address, { path: "/v1/inventory?limit=1", headers });
      expect(answer).toMatchObject({ status: 200, text: "[]" });
      expect(answer.headers.link).toBeUndefined();
    });

    test("the changes since the ETag of the first page give what came while the others were read", async () => {
      const etag = header(await ask("?limit=2"), "ETag");
      const changed = await callApi(system.address, {
        method: "PATCH",
        path: "/v1/inventory/2",
        headers: { authorization, "content-type": "application/json" },
        body: '{"quantity":100}',
      });
      expect((await ask("?limit=10&after=2")).text).toBe(jsonOf(petIds.slice(2)));
      const path = `/v1/inventory/changes?since=${encodeURIComponent(etag)}`;
      const changes = await callApi(system.address, { path, headers: { authorization } });
      expect(changes.json()).toMatchObject({ changed: [{ petId: 2, quantity: 100, etag: header(changed, "ETag") }] });
      await callApi(system.address, {
        method: "PATCH",
        path: "/v1/inventory/2",
        headers: { authorization, "content-type": "application/json" },
        body: '{"quantity":1}',
      });
    });
  });

  const parts = ["?petIds=2,10", "?limit=2", "?limit=2&after=2"];

  test.each(parts)(
    "GET /v1/inventory%s has the ETag of the list, and is 304 while the list is at it",
    async (query) => {
      const etag = header(await ask(""), "ETag");
      expect(header(await ask(query), "ETag")).toBe(etag);
      const zipped = header(await askForGzip(""), "ETag");
      for (const tag of [etag, zipped, `W/${etag}`, `"other", ${etag}`, "*"]) {
        for (const method of ["GET", "HEAD"]) {
          const answer = await ask(query, { "if-none-match": tag }, method);
          expect(answer).toMatchObject({ status: 304, text: "" });
          expect(header(answer, "ETag")).toBe(etag);
        }
      }
      expect(await ask(query, { "if-none-match": '"other"' })).toMatchObject({ status: 200 });
    },
  );

  test.each(parts)(
    "GET /v1/inventory%s shows an update that was answered before, through any gateway",
    async (query) => {
      const other = await startLocalGateway(system.gatewayEnv);
      stack.defer(() => other.close());
      for (const quantity of [31, 32, 2]) {
        const update = await callApi(system.address, {
          method: "PATCH",
          path: "/v1/inventory/10",
          headers: { authorization, "content-type": "application/json" },
          body: JSON.stringify({ quantity }),
        });
        expect(update.status).toBe(200);
        for (const address of [system.address, other.address]) {
          const path = `/v1/inventory${query.replace(/^\?limit=2$/, "?limit=3")}`;
          const answer = await callApi(address, { path, headers: { authorization } });
          expect(answer.text).toContain(`{"petId":10,"quantity":${quantity},"status":"available"}`);
        }
      }
    },
  );

  test.each(parts)("HEAD /v1/inventory%s has the headers of GET and no body", async (query) => {
    const full = await ask(query);
    const head = await ask(query, {}, "HEAD");
    expect(head).toMatchObject({ status: 200, text: "" });
    for (const name of ["content-type", "content-length", "etag", "link", "vary", "cache-control"]) {
      expect([name, head.headers[name]]).toEqual([name, full.headers[name]]);
    }
  });

  test.each([
    ["petIds=", "petIds"],
    ["petIds=1,,2", "petIds"],
    ["petIds=1,2,", "petIds"],
    ["petIds=1,+2", "petIds"],
    ["petIds=007", "petIds"],
    ["petIds=1.5", "petIds"],
    ["petIds=abc", "petIds"],
    ["petIds=9223372036854775808", "petIds"],
    ["petIds=1&petIds=2", "petIds"],
    ["petIds=1&limit=2", "petIds"],
    ["petIds=1&after=2", "petIds"],
    ["limit=0", "limit"],
    ["limit=", "limit"],
    ["limit=-1", "limit"],
    ["limit=10001", "limit"],
    ["limit=1.5", "limit"],
    ["limit=1e2", "limit"],
    ["limit=010", "limit"],
    ["limit=1&limit=1", "limit"],
    ["limit=1&after=", "after"],
    ["limit=1&after=x", "after"],
    ["limit=1&after=9223372036854775808", "after"],
    ["limit=1&after=1&after=2", "after"],
    ["after=1", "after"],
  ])("GET /v1/inventory?%s is 400 with a message that names %s", async (query, name) => {
    expectError(await ask(`?${query}`), 400, "invalid_request", new RegExp(`^${name} `));
  });

  test("the message about a list of petIds with blanks says that blanks are the fault", async () => {
    expectError(await ask("?petIds=1,%202"), 400, "invalid_request", /comma-separated without blanks/);
  });

  test.each(["", "?petIds=1"])("GET /v1/inventory%s needs the scope inventory:read", async (query) => {
    const { key } = await system.issueKey({ scopes: ["inventory:write"] });
    const headers = { authorization: `Bearer ${key}` };
    expectError(await callApi(system.address, { path: `/v1/inventory${query}`, headers }), 403, "insufficient_scope");
  });
});
