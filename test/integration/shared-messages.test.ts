// Checks that what one caller asks of a client never fails the changes of others, which share its messages.
import {
  type ChangeCaller,
  type ChangeRequest,
  createInventoryClient,
  type InventoryClient,
} from "../../client/index.ts";
import { suiteStack } from "../support/stack.ts";
import { startSystem } from "../support/system.ts";

const stack = suiteStack();
const caller = { endMs: () => performance.now() + 20_000, isWanted: () => true, mayRetry: () => true };
const change = { petId: 1n, quantity: 8 };
const long = "x".repeat(3 * 1024 * 1024);
let inventory: InventoryClient;

beforeAll(async () => {
  const seed = [1n, 2n, 3n].map((petId) => ({ petId, quantity: 1, status: "sold" as const }));
  const system = await startSystem({ gateways: 0, seed });
  stack.defer(() => system.close());
  inventory = createInventoryClient({ address: system.inventory.listen, timeoutMs: 20_000 });
  stack.defer(() => inventory.close());
});

/** What a caller is told: the entry or the error of its first change, or what its call rejects with. */
async function toldOf(request: unknown, given: unknown = caller): Promise<string> {
  try {
    const [outcome] = await inventory.apply(request as ChangeRequest, given as ChangeCaller);
    return outcome instanceof Error ? outcome.message : `quantity ${outcome!.quantity}`;
  } catch (error) {
    return (error as Error).message;
  }
}

/** Expects an update and an adjustment, sent in one turn with the work, to happen once. @returns its result */
async function besideOthers<T>(work: () => Promise<T>): Promise<T> {
  const before = await inventory.get(3n);
  const [result, updated, adjusted] = await Promise.all([
    work(),
    inventory.update({ petId: 2n, quantity: 5 }),
    inventory.adjust({ petId: 3n, delta: 1, requestId: crypto.randomUUID() }),
  ]);
  expect(updated).toMatchObject({ quantity: 5 });
  expect(adjusted).toMatchObject({ item: { quantity: before.quantity + 1 }, replayed: false });
  return result;
}

const ofText = "must be at most 1000 characters, without lone surrogates";

test.each<[string, unknown, string]>([
  ["a petId beyond int64", { changes: [{ ...change, petId: 2n ** 63n }] }, "petId must be from -2^63 to 2^63 - 1"],
  ["a petId that is a number", { changes: [{ ...change, petId: 1 }] }, "petId must be a bigint, such as 1001n"],
  [
    "a quantity beyond int32",
    { changes: [{ ...change, quantity: 2 ** 31 }] },
    "quantity must be an integer from 0 to 2147483647",
  ],
  [
    "a delta beyond int32",
    { changes: [{ petId: 1n, delta: -(2 ** 31) - 1, requestId: "a" }] },
    "delta must be an integer from -2147483648 to 2147483647",
  ],
  [
    "an expected revision beyond int64",
    { changes: [{ ...change, expectedRevisions: [1n, 2n ** 63n] }] },
    "expectedRevisions[1] must be from -2^63 to 2^63 - 1",
  ],
  [
    "a hole among the expected revisions",
    { changes: [{ ...change, expectedRevisions: Array(2).fill(1n, 1) }] },
    "expectedRevisions[0] must be a bigint, such as 1001n",
  ],
  [
    "300,000 expected revisions",
    { changes: [{ ...change, expectedRevisions: Array(300_000).fill(-1n) }] },
    "expectedRevisions must be an array of 1 to 20",
  ],
  ["a hole among the changes", { changes: Array(2).fill(change, 1) }, "an object is needed, with petId, quantity"],
  ["101 changes", { changes: Array(101).fill(change) }, "changes must be an array of 1 to 100"],
  ["a long reason", { changes: [{ ...change, reason: long }] }, `reason ${ofText}`],
  ["half a character in its reason", { changes: [{ ...change, reason: "\u{1f431}".slice(1) }] }, `reason ${ofText}`],
  ["a long request id", { changes: [{ petId: 1n, delta: 1, requestId: long }] }, `requestId ${ofText}`],
  ["a long key", { changes: [change], idempotencyKey: { key: long } }, `key ${ofText}`],
  ["a long account of a key", { changes: [change], idempotencyKey: { key: "a", account: long } }, `account ${ofText}`],
  [
    "a long fingerprint",
    { changes: [change], idempotencyKey: { key: "a", fingerprint: long } },
    `fingerprint ${ofText}`,
  ],
  ["null as its key", { changes: [change], idempotencyKey: null }, "an object is needed, with account, key"],
  ["null as its actor", { changes: [change], actor: null }, "an object is needed, with account, keyId"],
  ["a long actor", { changes: [change], actor: { account: long, keyId: "a" } }, `account ${ofText}`],
  ["a long keyId", { changes: [change], actor: { account: "a", keyId: long } }, `keyId ${ofText}`],
  ["a long id of a request", { changes: [change], originRequestId: long }, `originRequestId ${ofText}`],
  ["a long traceparent", { changes: [change], traceparent: long }, `traceparent ${ofText}`],
  ["a number as its traceparent", { changes: [change], traceparent: 7 }, "traceparent must be a string"],
  [
    "an inherited traceparent of a wrong type",
    { changes: [change], __proto__: { traceparent: Symbol("a") } },
    "traceparent must be a string",
  ],
])("a request with %s is refused, and fails no other caller", async (_what, request, message) => {
  const told = await besideOthers(() => toldOf(request));
  expect(told).toContain(`INVALID_ARGUMENT: ${message}`);
});

test.each<[string, () => Promise<unknown>, string]>([
  ["update", () => inventory.update({ ...change, reason: long }), `reason ${ofText}`],
  ["update", () => inventory.update({ ...change, idempotencyKey: long }), `idempotencyKey ${ofText}`],
  [
    "update",
    () => inventory.update({ ...change, expectedRevision: Array(300_000).fill(-1n) }),
    "expectedRevision must be an array of 1 to 20",
  ],
  ["adjust", () => inventory.adjust({ petId: 1n, delta: 1, requestId: long }), `requestId ${ofText}`],
  [
    "adjustMany",
    () => inventory.adjustMany({ adjustments: Array(2).fill({ petId: 1n, delta: 1 }, 1), requestId: "a" }),
    "an object is needed, with petId, delta",
  ],
])("a call of %s that cannot be sent is refused, and fails no other", async (_what, call, message) => {
  const refused = () => expect(call()).rejects.toThrow(`INVALID_ARGUMENT: ${message}`);
  await besideOthers(refused);
});

test("a traceparent that is none fails no caller", async () => {
  expect(await besideOthers(() => toldOf({ changes: [change], traceparent: "00-x" }))).toBe("quantity 8");
});

test.each<[string, () => unknown, string]>([
  ["is NaN", () => Number.NaN, "INVALID_ARGUMENT: endMs must be a number"],
  ["is a text", () => "5", "INVALID_ARGUMENT: endMs must be a number"],
  ["is over", () => Number.NEGATIVE_INFINITY, "DEADLINE_EXCEEDED: no service took the change in time"],
  ["never comes", () => Number.POSITIVE_INFINITY, "quantity 8"],
  ["is 58 days away", () => performance.now() + 5e9, "quantity 8"],
  [
    "is not given: it throws",
    () => {
      throw new Error("no deadline");
    },
    "no deadline",
  ],
])("a deadline that %s fails no other caller", async (_what, endMs, told) => {
  for (const idempotencyKey of [undefined, { key: crypto.randomUUID() }]) {
    const request = { changes: [change], idempotencyKey };
    expect(await besideOthers(() => toldOf(request, { ...caller, endMs }))).toBe(told);
  }
});

test("an isWanted that throws fails its own caller alone, and nothing of it happens", async () => {
  const isWanted = () => {
    throw new Error("not known");
  };
  await inventory.update({ petId: 1n, quantity: 3 });
  expect(await besideOthers(() => toldOf({ changes: [change] }, { ...caller, isWanted }))).toBe("not known");
  expect(await inventory.get(1n)).toMatchObject({ quantity: 3 });
});

test("what a caller does to its request after the call reaches no message", async () => {
  const mine = { petId: 1n, quantity: 9, expectedRevisions: [(await inventory.get(1n)).revision] };
  const request = { changes: [mine] };
  const told = besideOthers(() => {
    const sent = toldOf(request);
    Object.assign(mine, { quantity: Number.NaN });
    mine.expectedRevisions.pop();
    request.changes.pop();
    return sent;
  });
  expect(await told).toBe("quantity 9");
});

test("63 callers with the longest texts that are sent leave room for another in their message", async () => {
  const text = "\u20ac".repeat(1_000);
  const key = { account: text, key: text, fingerprint: text };
  const longest: ChangeRequest = {
    changes: [{ petId: -1n, delta: -1, requestId: text, reason: text, expectedRevisions: Array(20).fill(-1n) }],
    idempotencyKey: key,
    actor: { account: text, keyId: text },
    originRequestId: text,
    traceparent: text,
  };
  const [updated, ...told] = await Promise.all([
    toldOf({ changes: [change] }),
    ...Array.from({ length: 63 }, () => toldOf(longest)),
  ]);
  expect(updated).toBe("quantity 8");
  expect(new Set(told)).toEqual(new Set(["INVALID_ARGUMENT: account must be 1 to 64 of A-Z a-z 0-9 _ . : -"]));
});
