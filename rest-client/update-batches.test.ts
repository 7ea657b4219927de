import { createInventoryApi, type EntryUpdate } from "./index.ts";

interface Sent {
  readonly key: string;
  readonly body: string;
}

/** An API that makes every update, and the requests that it got. */
function open() {
  const sent: Sent[] = [];
  const fetch = async (_address: unknown, { headers, body }: RequestInit = {}) => {
    sent.push({ key: new Headers(headers).get("idempotency-key")!, body: String(body) });
    const done = (id: string) => `{"petId":${id},"quantity":1,"status":"sold","etag":"\\"r1\\""}`;
    const results = petIds(String(body)).map(done);
    return new Response(String(body).startsWith("[") ? `[${results}]` : done("1"), { headers: { ETag: '"r1"' } });
  };
  return { sent, api: createInventoryApi({ baseUrl: "http://localhost/v1", apiKey: "key", fetch }) };
}

const petIds = (body: string) => [...body.matchAll(/"petId":(\d+)/g)].map(([, id]) => id!);
const bytesOf = (text: string) => Buffer.byteLength(text);
const maxBytes = 16 * 1024;

const entries = (count: number, rest?: Partial<EntryUpdate>): EntryUpdate[] =>
  Array.from({ length: count }, (_, petId) => ({ petId, quantity: 1, ...rest }));

test.each([
  "",
  " ",
  '""',
  '"night',
  "two words",
  "two\nlines",
  "night\n",
  "é",
  "k".repeat(65),
  null as unknown as string,
])("a key that the API does not take is a TypeError before anything is sent: %j", async (idempotencyKey) => {
  const { api, sent } = open();
  const rule = new TypeError("idempotencyKey must be 1 to 64 of A-Z a-z 0-9 _ . : -");
  await expect(api.update(1, 1, { idempotencyKey })).rejects.toThrow(rule);
  await expect(api.updateMany(entries(1), { idempotencyKey })).rejects.toThrow(rule);
  expect(sent).toEqual([]);
});

test("a quoted key is the same as the bare one", async () => {
  const { api, sent } = open();
  await api.update(1, 1, { idempotencyKey: '"order-7"' });
  await api.updateMany(entries(101), { idempotencyKey: '"night"' });
  expect(sent.map(({ key }) => key)).toEqual(["order-7", "night", "night.100"]);
});

test.each([
  { count: 100, longest: 64 },
  { count: 101, longest: 60 },
  { count: 1_000, longest: 60 },
  { count: 1_001, longest: 59 },
])(
  "with $count updates a key may have $longest characters, and a longer one sends nothing",
  async ({ count, longest }) => {
    const { api, sent } = open();
    await api.updateMany(entries(count), { idempotencyKey: "k".repeat(longest) });
    const keys = sent.splice(0).map(({ key }) => key);
    expect(keys.filter((key) => !/^[\w.:-]{1,64}$/.test(key))).toEqual([]);
    expect(new Set(keys).size).toBe(Math.ceil(count / 100));
    await api.updateMany(entries(count), { idempotencyKey: `"${"k".repeat(longest)}"` });
    expect(sent.splice(0).map(({ key }) => key)).toEqual(keys);
    const refused = expect(api.updateMany(entries(count), { idempotencyKey: "k".repeat(longest + 1) })).rejects;
    await refused.toThrow(longest === 64 ? TypeError : `idempotencyKey must have at most ${longest} characters`);
    expect(sent).toHaveLength(0);
  },
);

test("requests are as few as their bytes allow, and no larger than 16 KiB", async () => {
  const { api, sent } = open();
  const list = Array.from({ length: 20 }, (_, i) => `"r${10n ** 18n + BigInt(i)}"`).join(", ");
  const ids = Array.from({ length: 250 }, (_, i) => String(i));
  const results = await api.updateMany(entries(250, { ifMatch: list }), { idempotencyKey: "night" });
  expect(results.map(({ petId }) => String(petId))).toEqual(ids);
  expect(sent.flatMap(({ body }) => petIds(body))).toEqual(ids);
  expect(Math.max(...sent.map(({ body }) => bytesOf(body)))).toBeLessThanOrEqual(maxBytes);
  const keys = sent.map(({ body }, i) => (i === 0 ? "night" : `night.${petIds(body)[0]}`));
  expect(sent.map(({ key }) => key)).toEqual(keys);
  const parts = sent.map(({ body }) => JSON.parse(body) as unknown[]);
  const withOneMore = parts.slice(1).map(([next], i) => bytesOf(JSON.stringify([...parts[i]!, next])));
  expect(withOneMore.filter((bytes) => bytes <= maxBytes)).toEqual([]);
});

test.each([
  { size: "16 KiB", way: "in one request", tooMany: 0, requests: 1 },
  { size: "16 KiB and a byte", way: "in two requests", tooMany: 1, requests: 2 },
])("updates of $size go $way", async ({ tooMany, requests }) => {
  const { api, sent } = open();
  const two = entries(2, { ifMatch: "" });
  const free = maxBytes - bytesOf(JSON.stringify(two));
  const ifMatch = "é".repeat(Math.floor(free / 4)); // two bytes each, in each of two entries
  const last = ifMatch + "x".repeat(free - 2 * bytesOf(ifMatch) + tooMany);
  await api.updateMany([
    { ...two[0]!, ifMatch },
    { ...two[1]!, ifMatch: last },
  ]);
  expect(sent).toHaveLength(requests);
  expect(sent.reduce((sum, { body }) => sum + bytesOf(body), 0)).toBe(maxBytes + tooMany + (requests - 1));
});

test("an update that is too large by itself goes alone, after those before it", async () => {
  const { api, sent } = open();
  const [first, second, third] = entries(3) as [EntryUpdate, EntryUpdate, EntryUpdate];
  await api.updateMany([first, { ...second, ifMatch: "x".repeat(maxBytes) }, third], { idempotencyKey: "night" });
  expect(sent.map(({ key, body }) => [key, petIds(body)])).toEqual([
    ["night", ["0"]],
    ["night.1", ["1"]],
    ["night.2", ["2"]],
  ]);
});

test("a petId that is named twice in a call is refused before anything is sent", async () => {
  const { api, sent } = open();
  const all = [...entries(130), { petId: 3, quantity: 77 }];
  await expect(api.updateMany(all)).rejects.toThrow("petId 3 is named twice: at 3 and 130");
  const two = [3n, 3].map((petId) => ({ petId, delta: -1 }));
  await expect(api.adjustMany(two)).rejects.toThrow("petId 3 is named twice: at 0 and 1");
  expect(sent).toEqual([]);
});
