import { expectError, header } from "../support/answers.ts";
import { callApi } from "../support/api.ts";
import { suiteStack } from "../support/stack.ts";
import { type System, startSystem } from "../support/system.ts";

describe("If-Match", () => {
  const stack = suiteStack();
  let system: System;
  let authorization: string;

  beforeAll(async () => {
    system = await startSystem({ seed: [{ petId: 1n, quantity: 100, status: "pending" }] });
    stack.defer(() => system.close());
    authorization = `Bearer ${system.keys.enterprise}`;
  });

  const set = (petId: string, quantity: number, headers: Record<string, string> = {}) =>
    callApi(system.address, {
      method: "PATCH",
      path: `/v1/inventory/${petId}`,
      headers: { authorization, "content-type": "application/json", ...headers },
      body: JSON.stringify({ quantity }),
    });

  test("an update with If-Match is applied while the entry still has that ETag", async () => {
    const etag = header(await set("1", 20), "ETag");
    const response = await set("1", 21, { "if-match": etag });
    expect(response.status).toBe(200);
    expect(header(response, "ETag")).not.toBe(etag);
    expect(await set("1", 22, { "if-match": ` ${header(response, "ETag")} ` })).toMatchObject({ status: 200 });
  });

  test("an update with If-Match: * is applied to any entry, and is 404 where there is none", async () => {
    expect(await set("1", 23, { "if-match": "*" })).toMatchObject({ status: 200 });
    expectError(await set("4040", 23, { "if-match": "*" }), 404, "not_found");
  });

  test("an If-Match of more than 2,048 characters is 400", async () => {
    const etag = header(await set("1", 20), "ETag");
    const message = /^If-Match may have at most 2048 characters\.$/;
    expectError(await set("1", 21, { "if-match": etag.padEnd(2_049, ",") }), 400, "invalid_request", message);
    expect(await set("1", 21, { "if-match": etag.padEnd(2_048, ",") })).toMatchObject({ status: 200 });
  });

  test("an update with If-None-Match: *, which wants no entry to be there, changes none", async () => {
    const response = await set("1", 24, { "if-none-match": "*" });
    expectError(response, 412, "precondition_failed", /^There is an entry, which If-None-Match: \* rules out\.$/);
    expectError(await set("4040", 24, { "if-none-match": "*" }), 404, "not_found");
  });

  test.each<[string, (etag: string) => string, RegExp]>([
    ["an older ETag of the entry", (etag) => etag, /not at a revision that an ETag in If-Match names/],
    ["older ETags of the entry", (etag) => `"r1", ${etag}`, /not at a revision that an ETag in If-Match names/],
    ["an unknown ETag", () => '"other"', /not an ETag of an entry: send the one of a read or an update of/],
    ["an ETag with a comma in it", () => '"other,2"', /not an ETag of an entry/],
    ["an ETag with a revision beyond int64", () => '"r9999999999999999999"', /not an ETag of an entry/],
  ])("an update with If-Match of %s is 412, says why, and changes nothing", async (_what, condition, message) => {
    const etag = header(await set("1", 24), "ETag");
    await set("1", 25);
    const response = await set("1", 26, { "if-match": condition(etag) });
    expectError(response, 412, "precondition_failed", message);
    expect(await system.stored(1n)).toMatchObject({ quantity: 25 });
  });

  test.each<[string, (etag: string) => string]>([
    ["last", (etag) => `"r1" , W/"r2",, "other,2","r0",${etag}`],
    ["first", (etag) => `${etag}, "r1"`],
    ["in the middle", (etag) => `\t"r1",${etag}\t,"list-7",`],
  ])("an update with an If-Match that lists the entry's ETag %s is applied", async (_where, condition) => {
    const etag = header(await set("1", 24), "ETag");
    expect(await set("1", 25, { "if-match": condition(etag) })).toMatchObject({ status: 200 });
    expectError(await set("1", 26, { "if-match": condition(etag) }), 412, "precondition_failed");
    expect(await system.stored(1n)).toMatchObject({ quantity: 25 });
  });

  test("takes 20 ETags and no more", async () => {
    const etag = header(await set("1", 24), "ETag");
    const others = Array.from({ length: 19 }, (_, i) => `"r${i}"`);
    expect(await set("1", 25, { "if-match": [...others, etag].join(", ") })).toMatchObject({ status: 200 });
    const tooMany = [...others, '"x"', '"y"'].join(", ");
    expectError(await set("1", 26, { "if-match": tooMany }), 400, "invalid_request", /If-Match.*at most 20 ETags/);
  });

  test.each([
    ["an ETag without its quotes", "r1"],
    ["one quote", '"r1'],
    ["ETags without a comma", '"r1" "r2"'],
    ["a weak mark in lower case", 'w/"r1"'],
    ["a space in an ETag", '"r 1"'],
    ["* in a list", '"r1", *'],
    ["nothing", ""],
    ["commas alone", " , ,"],
  ])("of %s is 400 with the form of an ETag, before the entry is looked for", async (_what, value) => {
    const message = /^If-Match must be \* or a list of ETags in double quotes, such as "r317"\.$/;
    expectError(await set("1", 26, { "if-match": value }), 400, "invalid_request", message);
    expectError(await set("4040", 26, { "if-match": value }), 400, "invalid_request", message);
  });

  test("of the entry's own ETag as a weak one is 412 with the reason that a weak tag never matches", async () => {
    const etag = header(await set("1", 24), "ETag");
    for (const value of [`W/${etag}`, `W/"r1", W/${etag}`]) {
      const response = await set("1", 25, { "if-match": value });
      expectError(response, 412, "precondition_failed", /weak tag \(W\/\) never matches/);
    }
    expect(await system.stored(1n)).toMatchObject({ quantity: 24 });
  });

  test("of the ETag with a leading zero is 412, as tags are compared character by character", async () => {
    const etag = header(await set("1", 24), "ETag");
    expectError(await set("1", 25, { "if-match": etag.replace("r", "r0") }), 412, "precondition_failed");
    expect(await set("1", 26, { "if-match": etag })).toMatchObject({ status: 200 });
  });

  test.each(['"other"', '"r1"'])("of %s is checked after the body and the existence of the entry", async (tag) => {
    expectError(await set("1", -1, { "if-match": tag }), 400, "invalid_request");
    expectError(await set("4040", 23, { "if-match": tag }), 404, "not_found");
  });

  test("of the list's ETag is 412 with the reason that it is not the entry's", async () => {
    const list = await callApi(system.address, { path: "/v1/inventory", headers: { authorization } });
    const response = await set("1", 26, { "if-match": header(list, "ETag") });
    expectError(response, 412, "precondition_failed", /not an ETag of an entry/);
  });

  test("lets exactly one of several concurrent updates succeed", async () => {
    const etag = header(await set("1", 30), "ETag");
    const responses = await Promise.all([41, 42, 43, 44].map((quantity) => set("1", quantity, { "if-match": etag })));
    expect(responses.map(({ status }) => status).sort()).toEqual([200, 412, 412, 412]);
    const winner = responses.find(({ status }) => status === 200)!.json<{ quantity: number }>();
    expect(await system.stored(1n)).toMatchObject({ quantity: winner.quantity });
  });
});
