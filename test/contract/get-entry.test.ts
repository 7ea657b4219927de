import { promisify } from "node:util";
import { PetStatus } from "../../proto/gen/petstore/inventory/v1/inventory.ts";
import type { ItemInput } from "../../proto/pet.ts";
import { expectError, header } from "../support/answers.ts";
import { callApi } from "../support/api.ts";
import { startLocalGateway } from "../support/local-gateway.ts";
import { suiteStack } from "../support/stack.ts";
import { type System, startSystem } from "../support/system.ts";

const seed: readonly ItemInput[] = [
  { petId: -9_223_372_036_854_775_808n, quantity: 1, status: "sold" },
  { petId: 2n, quantity: 7, status: "pending" },
  { petId: 9_007_199_254_740_992n, quantity: 4, status: "available" },
  { petId: 9_007_199_254_740_993n, quantity: 3, status: "available" },
  { petId: 9_223_372_036_854_775_807n, quantity: 2_147_483_647, status: "sold" },
];

describe("GET /v1/inventory/{petId}", () => {
  const stack = suiteStack();
  let system: System;
  let authorization: string;

  beforeAll(async () => {
    system = await startSystem({ seed });
    stack.defer(() => system.close());
    authorization = `Bearer ${system.keys.enterprise}`;
  });

  const get = (petId: bigint | string, headers: Record<string, string> = {}, method = "GET") =>
    callApi(system.address, { method, path: `/v1/inventory/${petId}`, headers: { authorization, ...headers } });

  const patch = (petId: bigint, quantity: number, headers: Record<string, string> = {}) =>
    callApi(system.address, {
      method: "PATCH",
      path: `/v1/inventory/${petId}`,
      headers: { authorization, "content-type": "application/json", ...headers },
      body: JSON.stringify({ quantity }),
    });

  test.each(seed)(
    "returns the entry $petId exactly, for its caller alone to keep",
    async ({ petId, quantity, status }) => {
      const response = await get(petId);
      expect(response).toMatchObject({
        status: 200,
        text: `{"petId":${petId},"quantity":${quantity},"status":"${status}"}`,
      });
      expect(header(response, "Content-Type")).toBe("application/json");
      expect(header(response, "Cache-Control")).toBe("private, no-cache");
    },
  );

  test("an entry has the ETag that a PATCH gives, and a PATCH takes it as If-Match", async () => {
    const read = header(await get(2n), "ETag");
    const updated = await patch(2n, 8, { "if-match": read });
    expect(updated.status).toBe(200);
    expect(header(await get(2n), "ETag")).toBe(header(updated, "ETag"));
    expectError(await patch(2n, 9, { "if-match": read }), 412, "precondition_failed");
  });

  test("an entry keeps its ETag while other entries change", async () => {
    const before = header(await get(2n), "ETag");
    await patch(9_007_199_254_740_992n, 44);
    expect(header(await get(2n), "ETag")).toBe(before);
  });

  test.each([
    ["the tag", (etag: string) => etag],
    ["the weak form of the tag", (etag: string) => `W/${etag}`],
    ["a list that contains the tag", (etag: string) => `"other", ${etag}`],
    ["*", () => "*"],
  ])("is 304 without a body when If-None-Match has %s", async (_what, condition) => {
    const etag = header(await get(2n), "ETag");
    for (const method of ["GET", "HEAD"]) {
      const response = await get(2n, { "if-none-match": condition(etag) }, method);
      expect(response).toMatchObject({ status: 304, text: "" });
      expect(header(response, "ETag")).toBe(etag);
    }
  });

  test("is 200 when If-None-Match has an older tag, that of another entry or that of the list", async () => {
    const older = header(await get(2n), "ETag");
    await patch(2n, 70);
    const other = header(await get(9_007_199_254_740_993n), "ETag");
    const list = header(await callApi(system.address, { path: "/v1/inventory", headers: { authorization } }), "ETag");
    for (const tag of [older, other, list])
      expect(await get(2n, { "if-none-match": tag })).toMatchObject({ status: 200 });
  });

  test("HEAD /v1/inventory/{petId} has the headers of GET and no body", async () => {
    const full = await get(2n);
    const head = await get(2n, {}, "HEAD");
    expect(head).toMatchObject({ status: 200, text: "" });
    for (const name of ["content-type", "content-length", "etag", "cache-control"]) {
      expect([name, head.headers[name]]).toEqual([name, full.headers[name]]);
    }
  });

  test.each(["1", "-7", "9007199254740994", "0"])("GET /v1/inventory/%s, which has no entry, is 404", async (petId) => {
    expectError(await get(petId), 404, "not_found");
    expectError(await get(petId, { "if-none-match": "*" }), 404, "not_found");
  });

  test.each(["abc", "007", "+1", "1.5", "9223372036854775808", "-0", "0x10", "%31%00"])(
    "GET /v1/inventory/%s, which is no petId, is 400",
    async (petId) => {
      expectError(await get(petId), 400, "invalid_request", /petId/);
    },
  );

  test("shows a PATCH as soon as it is acknowledged, through any gateway", async () => {
    const other = await startLocalGateway(system.gatewayEnv);
    stack.defer(() => other.close());
    for (const quantity of [11, 12, 13]) {
      const etag = header(await patch(2n, quantity), "ETag");
      for (const address of [system.address, other.address]) {
        const response = await callApi(address, { path: "/v1/inventory/2", headers: { authorization } });
        expect(response.json()).toMatchObject({ quantity });
        expect(header(response, "ETag")).toBe(etag);
      }
    }
  });

  test("an entry is shown once it is made, not after its removal, and has a new tag when remade", async () => {
    const create = promisify(system.client.createInventoryItem.bind(system.client));
    const remove = promisify(system.client.removeInventoryItem.bind(system.client));
    const item = { petId: 5n, quantity: 1, status: PetStatus.PET_STATUS_SOLD };
    await create(item);
    const first = header(await get(5n), "ETag");
    await remove({ petId: 5n });
    expectError(await get(5n), 404, "not_found");
    await create(item);
    expect(header(await get(5n), "ETag")).not.toBe(first);
  });

  test("counts as one request", async () => {
    const { key } = await system.issueKey({ plan: "enterprise", limits: { perMinute: 3, perDay: 100 } });
    const statuses = [];
    for (let i = 0; i < 4; i++) {
      const headers = { authorization: `Bearer ${key}`, "if-none-match": "*" };
      statuses.push((await callApi(system.address, { path: "/v1/inventory/2", headers })).status);
    }
    expect(statuses).toEqual([304, 304, 304, 429]);
  });
});
