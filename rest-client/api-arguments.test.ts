import { toHours, toLimit, toPetId, toPetIds, toQuantity, toWaitSeconds } from "./api-arguments.ts";
import { createInventoryApi, type InventoryApi } from "./index.ts";

const maxInt64 = 2n ** 63n - 1n;

test("every int64 is a petId, as a number where that is exact", () => {
  const ids = [1001, 2 ** 53 - 1, maxInt64, -maxInt64 - 1n];
  expect(ids.map(toPetId)).toEqual([1001n, 9007199254740991n, maxInt64, -maxInt64 - 1n]);
});

test("1 to 100 petIds are taken together", () => {
  expect(toPetIds(Array.from({ length: 100 }, (_, i) => i)).at(-1)).toBe(99n);
});

test("the message about a string that should be a number shows it in quotes", () => {
  expect(() => toPetId("1002" as never)).toThrow('or a number: "1002"');
  expect(() => toQuantity("5" as never)).toThrow('from 0 to 2147483647: "5"');
});

test("quantities, waits, hours and limits are taken within their bounds", () => {
  expect([toQuantity(0), toQuantity(2 ** 31 - 1)]).toEqual([0, 2_147_483_647]);
  expect([toWaitSeconds(), toWaitSeconds(0), toWaitSeconds(90)]).toEqual([0, 0, 90]);
  expect([toHours(1), toHours(168)]).toEqual([1, 168]);
  expect([toLimit(1), toLimit(10_000)]).toEqual([1, 10_000]);
});

const misspelt = { ifmatch: '"r1"' } as object;
const wrongIds = [2 ** 53, -(2 ** 53), 1.5, Number.NaN, maxInt64 + 1n, -maxInt64 - 2n, "1001" as unknown as bigint];
const wrongQuantities = [-1, 1.5, 2 ** 31, Number.NaN, "5" as unknown as number, undefined as unknown as number];

test.each<{ argument: string; calls: ((api: InventoryApi) => Promise<unknown>)[] }>([
  {
    argument: "petId",
    calls: wrongIds.flatMap((id) => [
      (api) => api.get(id),
      (api) => api.list({ petIds: [1, id] }),
      (api) => api.update(id, 1),
      (api) => api.updateMany([{ petId: id, quantity: 1 }]),
      (api) => api.adjust(id, 1),
      (api) => api.history(id),
    ]),
  },
  {
    argument: "petIds",
    calls: [[], Array.from({ length: 101 }, () => 1)].map((petIds) => (api) => api.list({ petIds })),
  },
  { argument: "limit", calls: [0, 1.5, 10_001].map((limit) => (api) => api.pages({ limit }).next()) },
  { argument: "limit", calls: [0, 1.5, 101].map((limit) => (api) => api.history(1, { limit })) },
  {
    argument: "delta",
    calls: [0, -0, 1.5, 2 ** 31, -(2 ** 31), "1" as never, undefined as never].map(
      (delta) => (api) =>
        api.adjustMany([
          { petId: 1, delta: 1 },
          { petId: 2, delta },
        ]),
    ),
  },
  {
    argument: "adjustments",
    calls: [0, 101].map(
      (length) => (api) => api.adjustMany(Array.from({ length }, (_, petId) => ({ petId, delta: 1 }))),
    ),
  },
  {
    argument: "reason",
    calls: ["", "x".repeat(201), "a\nb", "\u0085", "\ud800", 7 as never, null as never].flatMap((reason) => [
      (api) => api.update(1, 1, { reason }),
      (api) => api.updateMany([{ petId: 1, quantity: 1, reason }]),
      (api) => api.adjust(1, 1, { reason }),
    ]),
  },
  {
    argument: "ifMatch",
    calls: ["", " "].map((ifMatch) => (api) => api.adjust(1, 1, { ifMatch })),
  },
  {
    argument: "quantity",
    calls: wrongQuantities.flatMap((quantity) => [
      (api) => api.update(1, quantity),
      (api) =>
        api.updateMany([
          { petId: 1, quantity: 1 },
          { petId: 2, quantity },
        ]),
    ]),
  },
  {
    argument: "waitSeconds",
    calls: [-1, 0.5, 91].map((waitSeconds) => (api) => api.changes('"e-1"', { waitSeconds })),
  },
  { argument: "hours", calls: [0, 1.5, 169].map((hours) => (api) => api.usage({ hours })) },
  { argument: "since", calls: ["", " ", null as unknown as string].map((since) => (api) => api.changes(since)) },
  {
    argument: "graceSeconds",
    calls: [-1, 0.5, 604_801].map((graceSeconds) => (api) => api.rotateKey({ graceSeconds })),
  },
  {
    argument: "ifmatch",
    calls: [
      (api) => api.update(1, 1, misspelt),
      (api) => api.adjust(1, 1, misspelt),
      (api) => api.updateMany([{ petId: 1, quantity: 1, ...misspelt }]),
      (api) => api.adjustMany([{ petId: 1, delta: 1, ...misspelt }]),
      (api) => api.updateMany([], misspelt),
      (api) => api.adjustMany([{ petId: 1, delta: 1 }], misspelt),
      (api) => api.list(misspelt),
      (api) => api.pages(misspelt).next(),
      (api) => api.get(1, misspelt),
      (api) => api.history(1, misspelt),
      (api) => api.changes('"e-1"', misspelt),
      async (api) => api.follow(misspelt),
      (api) => api.pet(1, misspelt),
      (api) => api.orders(misspelt),
      (api) => api.rateLimit(misspelt),
      (api) => api.usage(misspelt),
      (api) => api.rotateKey(misspelt),
    ],
  },
])("a wrong $argument is a TypeError before anything is sent", async ({ argument, calls }) => {
  let sent = 0;
  const fetch = async () => {
    sent += 1;
    return new Response("[]");
  };
  const api = createInventoryApi({ baseUrl: "http://localhost/v1", apiKey: "key", fetch });
  for (const call of calls) {
    const error = (await call(api).catch((thrown) => thrown)) as TypeError;
    expect(error).toBeInstanceOf(TypeError);
    expect(error.message).toMatch(new RegExp(`^${argument}\\b`));
  }
  expect(sent).toBe(0);
});

test.each<[given: unknown, message: string]>([
  [undefined, "createInventoryApi takes { baseUrl, apiKey, fetch }"],
  [null, "createInventoryApi takes { baseUrl, apiKey, fetch }"],
  ["http://localhost/v1", "createInventoryApi takes { baseUrl, apiKey, fetch }"],
  [{ apiKey: "key" }, "baseUrl is missing"],
  [{ baseUrl: "http://localhost/v1" }, "apiKey is missing"],
  [{ baseUrl: "http://localhost", apiKey: "key" }, "baseUrl must end in /v1"],
  [{ baseUrl: "http://localhost/v1", apiKey: "key", timeout: 1 }, "timeout is no option of createInventoryApi, which"],
])("a client made of %j is a TypeError that says what is wrong", (given, message) => {
  const make = () => createInventoryApi(given as never);
  expect(make).toThrow(TypeError);
  expect(make).toThrow(message);
});
