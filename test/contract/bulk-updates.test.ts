import type { ItemInput } from "../../proto/pet.ts";
import { expectError, expectOutage, header } from "../support/answers.ts";
import { callApi } from "../support/api.ts";
import { suiteStack } from "../support/stack.ts";
import { type System, startSystem } from "../support/system.ts";

const seed: readonly ItemInput[] = [
  { petId: 9_007_199_254_740_992n, quantity: 1, status: "available" },
  { petId: 9_007_199_254_740_993n, quantity: 2, status: "available" },
  { petId: 9_223_372_036_854_775_807n, quantity: 3, status: "sold" },
  { petId: -9_223_372_036_854_775_808n, quantity: 4, status: "sold" },
  ...Array.from({ length: 100 }, (_, i) => ({ petId: BigInt(i + 1), quantity: 5, status: "pending" as const })),
];

describe("POST /v1/inventory/updates", () => {
  const stack = suiteStack();
  let system: System;
  let authorization: string;

  beforeAll(async () => {
    system = await startSystem({ seed });
    stack.defer(() => system.close());
    authorization = `Bearer ${system.keys.enterprise}`;
  });

  const post = (body: string | Buffer, headers: Record<string, string> = {}) =>
    callApi(system.address, {
      method: "POST",
      path: "/v1/inventory/updates",
      headers: { authorization, "content-type": "application/json", ...headers },
      body,
    });
  const update = (...updates: object[]) => post(JSON.stringify(updates));
  const etagOf = async (petId: number, quantity: number) => {
    const [result] = (await update({ petId, quantity })).json<{ etag: string }[]>();
    return result!.etag;
  };
  const list = async () => {
    const answer = await callApi(system.address, { path: "/v1/inventory", headers: { authorization } });
    return { etag: header(answer, "ETag"), text: answer.text };
  };

  test("answers with one result for each update in their order, with the ETag that a PATCH gives", async () => {
    const answer = await update({ petId: 3, quantity: 30 }, { petId: 1, quantity: 10 }, { petId: 2, quantity: 20 });
    expect(answer.status).toBe(200);
    expect(header(answer, "Content-Type")).toBe("application/json");
    expect(answer.text).toMatch(
      /^\[\{"petId":3,"quantity":30,"status":"pending","etag":"\\"r\d+\\""\},\{"petId":1,.*\},\{"petId":2,.*\}\]$/,
    );
    for (const { petId, quantity, etag } of answer.json<{ petId: number; quantity: number; etag: string }[]>()) {
      expect(await system.stored(BigInt(petId))).toEqual({ petId: BigInt(petId), quantity, status: "pending" });
      const patched = await callApi(system.address, {
        method: "PATCH",
        path: `/v1/inventory/${petId}`,
        headers: { authorization, "content-type": "application/json", "if-match": etag },
        body: JSON.stringify({ quantity }),
      });
      expect(patched).toMatchObject({ status: 200, headers: { etag } });
    }
  });

  test("reads and writes petIds exactly, beyond 2^53 too", async () => {
    const ids = ["9007199254740993", "9223372036854775807", "-9223372036854775808"];
    const answer = await post(`[${ids.map((id) => `{"petId":${id},"quantity":77}`)}]`);
    expect(answer.json<{ petId: bigint }[]>().map(({ petId }) => String(petId))).toEqual(ids);
    for (const id of ids) expect(await system.stored(BigInt(id))).toMatchObject({ petId: BigInt(id), quantity: 77 });
    expect(await system.stored(9_007_199_254_740_992n)).toMatchObject({ quantity: 1 });
  });

  test("sets 100 quantities in one request, which counts once against the limits", async () => {
    const { key } = await system.issueKey({ plan: "free" });
    const updates = Array.from({ length: 100 }, (_, i) => ({ petId: i + 1, quantity: 1_000 + i }));
    const answer = await post(JSON.stringify(updates), { authorization: `Bearer ${key}` });
    expect(answer).toMatchObject({ status: 200, headers: { "x-ratelimit-remaining": "59" } });
    expect(answer.json<{ petId: number; quantity: number }[]>()).toMatchObject(updates);
    expect(JSON.parse((await list()).text).filter(({ quantity }: ItemInput) => quantity >= 1_000)).toHaveLength(100);
  });

  test("does the other updates when one has no entry and one is not at its ifMatch", async () => {
    const old = await etagOf(1, 500);
    const present = await etagOf(1, 501);
    const other = await etagOf(2, 501);
    const answer = await update(
      { petId: 1, quantity: 502, ifMatch: old },
      { petId: 4_711, quantity: 502 },
      { petId: 2, quantity: 502, ifMatch: `"x", ${other}` },
      { petId: 3, quantity: 502, ifMatch: "*" },
      { petId: 4, quantity: 502, ifMatch: `W/${present}` },
      { petId: -4_711, quantity: 502, ifMatch: '"r1"' },
    );
    const error = (code: string, status: number) => ({ code, message: expect.any(String), status });
    expect(answer.json()).toEqual([
      { petId: 1, error: error("precondition_failed", 412) },
      { petId: 4_711, error: error("not_found", 404) },
      { petId: 2, quantity: 502, status: "pending", etag: expect.stringMatching(/^"r\d+"$/) },
      { petId: 3, quantity: 502, status: "pending", etag: expect.stringMatching(/^"r\d+"$/) },
      { petId: 4, error: { ...error("precondition_failed", 412), message: expect.stringContaining("weak") } },
      { petId: -4_711, error: error("not_found", 404) },
    ]);
    expect(await system.stored(1n)).toMatchObject({ quantity: 501 });
  });

  test("ignores members that it does not know, and takes integers in any form of JSON", async () => {
    const answer = await post(' [ {"quantity":7.0,"petId":1e1,"status":"sold","__proto__":{"petId":3}} ]\n');
    expect(answer.json()).toMatchObject([{ petId: 10, quantity: 7, status: "pending" }]);
  });

  test.each([
    ["an empty array", "[]", "JSON array of 1 to 100"],
    ["101 updates", JSON.stringify(Array(101).fill({ petId: 1, quantity: 1 })), "JSON array of 1 to 100"],
    ["8,000 empty arrays", `[${Array(8_000).fill("1")}]`, "JSON array of 1 to 100"],
    ["an object", '{"petId":1,"quantity":1}', "JSON array of 1 to 100"],
    ["a text", '"petId"', "JSON array of 1 to 100"],
    ["a number for an update", '[{"petId":1,"quantity":1},7]', /^updates\[1\] must be an object/],
    ["null for an update", "[null]", /^updates\[0\] must be an object/],
    ["arrays nested 8,000 deep", `${"[".repeat(8_000)}${"]".repeat(8_000)}`, /^updates\[0\] must be an object/],
    ["no petId", '[{"quantity":1}]', /^updates\[0\]\.petId is required/],
    ["a petId in quotes", '[{"petId":"1","quantity":1}]', /^updates\[0\]\.petId must be an int64/],
    ["a petId of null", '[{"petId":null,"quantity":1}]', /^updates\[0\]\.petId must be an int64/],
    ["a fraction for a petId", '[{"petId":1.5,"quantity":1}]', /^updates\[0\]\.petId must be an int64/],
    ["a petId of 2^63", '[{"petId":9223372036854775808,"quantity":1}]', /^updates\[0\]\.petId must be an int64/],
    ["a petId that rounding makes one", '[{"petId":9007199254740993.0,"quantity":1}]', /^updates\[0\]\.petId must be/],
    ["a petId of 16,000 digits", `[{"petId":${"9".repeat(16_000)},"quantity":1}]`, /^updates\[0\]\.petId must be/],
    [
      "a petId twice",
      '[{"petId":1,"quantity":1},{"petId":2,"quantity":1},{"petId":1.0,"quantity":1}]',
      /^updates\[2\]\.petId .*updates\[0\]/,
    ],
    ["no quantity", '[{"petId":1,"quantity":1},{"petId":2}]', /^updates\[1\]\.quantity is required/],
    [
      "a negative quantity",
      '[{"petId":1,"quantity":-1}]',
      /^updates\[0\]\.quantity must be an integer from 0 to 2147483647/,
    ],
    ["a quantity that is too large", '[{"petId":1,"quantity":2147483648}]', /^updates\[0\]\.quantity must be/],
    ["a quantity beyond 2^53", '[{"petId":1,"quantity":9007199254740993}]', /^updates\[0\]\.quantity must be/],
    ["a number for ifMatch", '[{"petId":1,"quantity":1,"ifMatch":7}]', /^updates\[0\]\.ifMatch must be a string/],
    [
      "a misspelt ifMatch",
      '[{"petId":1,"quantity":1,"if_match":"x"}]',
      /^updates\[0\]\.if_match is no member: .*ifMatch/,
    ],
    ["an etag", '[{"petId":1,"quantity":1,"etag":"\\"r1\\""}]', /^updates\[0\]\.etag is no member: use ifMatch/],
    [
      "a key",
      '[{"petId":1,"quantity":1,"idempotency_key":"x"}]',
      /^updates\[0\]\.idempotency_key is no member: use the header Idempotency-Key/,
    ],
    ["null for ifMatch", '[{"petId":1,"quantity":1,"ifMatch":null}]', /^updates\[0\]\.ifMatch must be a string/],
    ["an ifMatch without quotes", '[{"petId":1,"quantity":1,"ifMatch":"r1"}]', /^updates\[0\]\.ifMatch must be \* or/],
    [
      "21 tags in ifMatch",
      `[{"petId":1,"quantity":1,"ifMatch":"${Array(21).fill('\\"r1\\"')}"}]`,
      /^updates\[0\]\.ifMatch may name at most 20/,
    ],
  ])("with %s is 400, names what is wrong, and changes nothing", async (_what, body, message) => {
    const before = await list();
    expectError(await post(body), 400, "invalid_request", message);
    expect(await list()).toEqual(before);
  });

  test("changes nothing when only the last of its updates is wrong", async () => {
    const before = await list();
    const right = Array.from({ length: 99 }, (_, i) => ({ petId: i + 1, quantity: 123_456 }));
    expectError(await update(...right, { petId: 100 }), 400, "invalid_request", /^updates\[99\]\.quantity is required/);
    expect(await list()).toEqual(before);
  });

  test.each([
    ["a member twice", '[{"petId":1,"quantity":1,"petId":2}]'],
    ["a comma at the end", '[{"petId":1,"quantity":1},]'],
    ["nothing", ""],
  ])("with %s is 400 invalid_json", async (_what, body) => {
    expectError(await post(body), 400, "invalid_json");
  });

  test.each([
    ["if-match", '"r1"'],
    ["if-match", "*"],
    ["if-none-match", "*"],
  ])("with the header %s: %s is 400, because that would be of no entry", async (name, value) => {
    expectError(
      await post('[{"petId":1,"quantity":1}]', { [name]: value }),
      400,
      "invalid_request",
      /ifMatch of its own/,
    );
  });

  test("takes application/json only, and says so", async () => {
    for (const type of ["application/merge-patch+json", "text/plain", ""]) {
      const answer = await post('[{"petId":1,"quantity":1}]', { "content-type": type });
      expectError(answer, 415, "unsupported_media_type", "application/json in UTF-8");
      expect(header(answer, "Accept-Post")).toBe("application/json");
    }
  });

  test("takes bodies up to 16 KiB", async () => {
    const body = '[{"petId":1,"quantity":1}]';
    expect(await post(body.padEnd(16 * 1024))).toMatchObject({ status: 200 });
    expectError(await post(body.padEnd(16 * 1024 + 1)), 413, "payload_too_large");
  });

  test("needs the scope inventory:write", async () => {
    const { key } = await system.issueKey({ scopes: ["inventory:read"] });
    const answer = await post('[{"petId":1,"quantity":1}]', { authorization: `Bearer ${key}` });
    expectError(answer, 403, "insufficient_scope");
  });

  test.each(["GET", "PATCH", "PUT", "DELETE"])("is 405 for %s, and no update of a petId", async (method) => {
    const answer = await callApi(system.address, { method, path: "/v1/inventory/updates", headers: { authorization } });
    expectError(answer, 405, "method_not_allowed");
    expect(header(answer, "Allow")).toBe("POST");
  });

  test("is the error of a single update when the result of none is known", async () => {
    await using own = new AsyncDisposableStack();
    const alone = await startSystem({ seed, gatewayEnv: { INVENTORY_TIMEOUT_MS: "300" } });
    own.defer(() => alone.close());
    await alone.inventory.kill("SIGKILL");
    const answer = await callApi(alone.address, {
      method: "POST",
      path: "/v1/inventory/updates",
      headers: { authorization: `Bearer ${alone.keys.enterprise}`, "content-type": "application/json" },
      body: '[{"petId":1,"quantity":1},{"petId":2,"quantity":1}]',
    });
    expectOutage(answer);
  });
});
