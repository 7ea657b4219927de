import { promisify } from "node:util";
import { PetStatus } from "../../proto/gen/petstore/inventory/v1/inventory.ts";
import { expectError, header } from "../support/answers.ts";
import { callApi } from "../support/api.ts";
import { startLocalGateway } from "../support/local-gateway.ts";
import { suiteStack } from "../support/stack.ts";
import { type System, startSystem } from "../support/system.ts";

const largePetId = 9_007_199_254_740_993n;

describe("GET /v1/inventory/changes", () => {
  const stack = suiteStack();
  let system: System;
  let authorization: string;

  beforeAll(async () => {
    system = await startSystem({
      seed: [
        { petId: -3n, quantity: 1, status: "sold" },
        { petId: 2n, quantity: 7, status: "pending" },
        { petId: largePetId, quantity: 3, status: "available" },
      ],
    });
    stack.defer(() => system.close());
    authorization = `Bearer ${system.keys.enterprise}`;
  });

  const ask = (query: string, method = "GET", address = system.address) =>
    callApi(address, { method, path: `/v1/inventory/changes${query}`, headers: { authorization } });
  const since = (etag: string, method = "GET") => ask(`?since=${encodeURIComponent(etag)}`, method);
  const list = (headers: Record<string, string> = {}) =>
    callApi(system.address, { path: "/v1/inventory", headers: { authorization, ...headers } });
  const etagOfList = async (headers: Record<string, string> = {}) => header(await list(headers), "ETag");

  async function patch(petId: bigint, quantity: number): Promise<string> {
    const answer = await callApi(system.address, {
      method: "PATCH",
      path: `/v1/inventory/${petId}`,
      headers: { authorization, "content-type": "application/json" },
      body: JSON.stringify({ quantity }),
    });
    return header(answer, "ETag");
  }
  const create = (petId: bigint) =>
    promisify(system.client.createInventoryItem.bind(system.client))({
      petId,
      quantity: 1,
      status: PetStatus.PET_STATUS_SOLD,
    });
  const remove = (petId: bigint) => promisify(system.client.removeInventoryItem.bind(system.client))({ petId });

  test("is empty when nothing has changed, and has the ETag of the list", async () => {
    const etag = await etagOfList();
    const response = await since(etag);
    expect(response).toMatchObject({
      status: 200,
      text: `{"etag":${JSON.stringify(etag)},"changed":[],"removed":[]}`,
    });
    expect(header(response, "Content-Type")).toBe("application/json");
    expect(header(response, "Cache-Control")).toBe("private, no-cache");
  });

  test("has each change once, in its newest state and in the order of petId, with its ETag", async () => {
    const before = await etagOfList();
    await create(40n);
    await patch(largePetId, 10);
    await patch(-3n, 5);
    const first = await patch(-3n, 6);
    const second = await patch(largePetId, 11);
    const third = await patch(40n, 41);
    const response = await since(before);
    const entries = [
      `{"petId":-3,"quantity":6,"status":"sold","etag":${JSON.stringify(first)}}`,
      `{"petId":40,"quantity":41,"status":"sold","etag":${JSON.stringify(third)}}`,
      `{"petId":9007199254740993,"quantity":11,"status":"available","etag":${JSON.stringify(second)}}`,
    ];
    const etag = JSON.stringify(await etagOfList());
    expect(response.text).toBe(`{"etag":${etag},"changed":[${entries.join(",")}],"removed":[]}`);
    await remove(40n);
  });

  test("names what was removed, and has an entry that was made again among the changed ones", async () => {
    await create(50n);
    await create(51n);
    await create(-60n);
    const before = await etagOfList();
    await remove(50n);
    await remove(51n);
    await remove(-60n);
    await create(51n);
    await create(52n);
    await remove(52n);
    const { changed, removed } = (await since(before)).json<{ changed: { petId: number }[]; removed: number[] }>();
    expect(changed.map(({ petId }) => petId)).toEqual([51]);
    expect(removed).toEqual([-60, 50, 52]);
    await remove(51n);
  });

  test("takes the ETag of either coding, whole, weak or unquoted, and an earlier answer's etag", async () => {
    const plain = await etagOfList();
    const zipped = await etagOfList({ "accept-encoding": "gzip" });
    await patch(2n, 70);
    const { text } = await since(plain);
    for (const tag of [zipped, plain.slice(1, -1), zipped.slice(1, -1), `W/${plain}`]) {
      expect(await since(tag)).toMatchObject({ status: 200, text });
    }
    await patch(2n, 7);
    expect((await since(JSON.parse(text).etag)).json<{ changed: object[] }>().changed).toHaveLength(1);
  });

  test("takes any revision of the present epoch, also one that no list was read at", async () => {
    const epoch = (await etagOfList()).slice(1, 9);
    const fromBegin = (await since(`${epoch}-0`)).json<{ changed: { petId: number }[]; removed: number[] }>();
    const petIds = (await list()).json<{ petId: number }[]>().map(({ petId }) => petId);
    expect(fromBegin.changed.map(({ petId }) => petId)).toEqual(petIds);
    const revision = Number(/\d+/.exec(await patch(2n, 71))![0]);
    await patch(2n, 7);
    for (const each of [revision - 1, revision]) {
      expect((await since(`${epoch}-${each}`)).json()).toMatchObject({ changed: [{ petId: 2, quantity: 7 }] });
    }
  });

  test("of a gateway that has just started has what was removed before its start", async () => {
    const before = await etagOfList();
    await create(80n);
    const between = await etagOfList();
    await remove(80n);
    const young = await startLocalGateway(system.gatewayEnv);
    stack.defer(() => young.close());
    for (const tag of [between, before]) {
      const response = await ask(`?since=${encodeURIComponent(tag)}`, "GET", young.address);
      expect(response).toMatchObject({ status: 200, text: (await since(tag)).text });
      expect(response.json()).toMatchObject({ changed: [], removed: [80] });
    }
  });

  test("shows a PATCH as soon as it is acknowledged, through any gateway", async () => {
    const other = await startLocalGateway(system.gatewayEnv);
    stack.defer(() => other.close());
    for (const quantity of [11, 12, 13]) {
      const before = await etagOfList();
      await patch(2n, quantity);
      for (const address of [system.address, other.address]) {
        const response = await ask(`?since=${encodeURIComponent(before)}`, "GET", address);
        expect(response.json()).toMatchObject({ changed: [{ petId: 2, quantity }], removed: [] });
      }
    }
  });

  test("HEAD /v1/inventory/changes has the headers of GET and no body", async () => {
    const etag = await etagOfList();
    const [full, head] = [await since(etag), await since(etag, "HEAD")];
    expect(head).toMatchObject({ status: 200, text: "" });
    for (const name of ["content-type", "content-length", "cache-control"]) {
      expect([name, head.headers[name]]).toEqual([name, full.headers[name]]);
    }
  });

  test("is 410 for an ETag of another epoch and for one of the future", async () => {
    const etag = await etagOfList();
    const [epoch, revision] = [etag.slice(1, 9), BigInt(etag.slice(10, -1))];
    for (const tag of ["01234567-1", `${epoch}-${revision + 1n}`, `${epoch}-9999999999999999999`]) {
      expectError(await since(tag), 410, "changes_unavailable", /read the list/);
    }
  });

  test.each([
    "",
    "?",
    "?since",
    "?since=",
    "?since=1",
    "?since=r17",
    "?since=%22r17%22",
    "?since=*",
    "?since=abcdefgh-",
    "?since=abcdefgh-01",
    "?since=abcdefgh--1",
    "?since=abcdefgh-1-br",
    "?since=abcdefgh-12345678901234567890",
    "?since=%22abcdefgh-1",
    "?since=abcdefgh-1%22",
    "?since=abcdefgh-1,abcdefgh-2",
    "?since=abcdefgh-1&since=abcdefgh-1",
    "?since=%zz",
    "?Since=abcdefgh-1",
  ])("is 400 that names since for %j", async (query) => {
    expectError(await ask(query), 400, "invalid_request", /\bsince\b/);
  });

  test("takes at most 900 bytes for 10 changes of 10,000 entries with long numbers", async () => {
    const big = await startSystem({
      seed: Array.from({ length: 10_000 }, (_, i) => ({ petId: BigInt(i + 1), quantity: 1, status: "available" })),
    });
    stack.defer(() => big.close());
    const headers = { authorization: `Bearer ${big.keys.enterprise}`, "content-type": "application/json" };
    const etag = header(await callApi(big.address, { method: "HEAD", path: "/v1/inventory", headers }), "ETag");
    for (let i = 0; i < 10; i++) {
      const path = `/v1/inventory/${1_000 * (i + 1)}`;
      await callApi(big.address, { method: "PATCH", path, headers, body: `{"quantity":${10_000 + i}}` });
    }
    const path = `/v1/inventory/changes?since=${encodeURIComponent(etag)}`;
    const response = await callApi(big.address, { path, headers });
    expect(response.json<{ changed: object[] }>().changed).toHaveLength(10);
    expect(Buffer.byteLength(response.text)).toBeLessThanOrEqual(900);
  });
});
