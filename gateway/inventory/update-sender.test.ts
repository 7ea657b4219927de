import { status } from "@grpc/grpc-js";
import { NotDoneError, serviceError } from "./status.ts";
import { createUpdateSender } from "./update-sender.ts";
import type { UpdateOutcome, UpdateRequest } from "./updates.ts";

const entry = (petId: bigint, isReplayed = false) => {
  return { petId, quantity: 1, status: "sold", revision: 7n, isReplayed } as const;
};
const updates = [1n, 2n, 3n].map((petId) => ({ petId, quantity: 1 }));
const once = { account: "acme", key: "k", fingerprint: "x" };
const lost = serviceError(status.UNAVAILABLE, "the stream broke");
const undone = new NotDoneError("the service is away");

/** Sends updates over a pipeline with these answers. @returns what became of them, and what was sent */
async function send(
  answers: readonly UpdateOutcome[][],
  request: UpdateRequest,
  isWanted = () => true,
  mayRepeat = async () => true,
) {
  const sent: UpdateRequest[] = [];
  const deadlines: number[] = [];
  let repeats = 0;
  const submit = async (each: UpdateRequest, deadlineMs: number) => {
    sent.push(each);
    deadlines.push(deadlineMs - performance.now());
    return answers[sent.length - 1]!;
  };
  const { send } = createUpdateSender({ pipeline: { submit }, callTimeoutMs: 20_000, keyedTimeoutMs: 60_000 });
  const arrivedMs = performance.now() - 10_000;
  const counted = () => {
    repeats += 1;
    return mayRepeat();
  };
  const outcomes = await send(request, { arrivedMs, isWanted, mayRepeat: counted });
  return { outcomes, petIds: sent.map((each) => each.updates.map(({ petId }) => petId)), sent, deadlines, repeats };
}

test("only the updates of a request that have certainly not happened are sent again", async () => {
  const first = [entry(1n), lost, undone];
  const { outcomes, petIds, repeats } = await send([first, [entry(3n)]], { updates });
  expect(petIds).toEqual([[1n, 2n, 3n], [3n]]);
  expect(outcomes).toMatchObject([entry(1n), { code: "service_unavailable" }, entry(3n)]);
  expect(repeats).toBe(1);
});

test.each([
  ["lost streams", lost],
  ["missed deadlines", serviceError(status.DEADLINE_EXCEEDED, "too late")],
  ["streams that the service cancels", serviceError(status.CANCELLED, "cancelled")],
  ["what has certainly not happened", undone],
])("updates with a key are sent again after %s", async (_what, error) => {
  const all = updates.map(({ petId }) => entry(petId));
  const { outcomes, petIds, sent, repeats } = await send([[error, error, error], all], { updates, once });
  expect(petIds).toEqual([
    [1n, 2n, 3n],
    [1n, 2n, 3n],
  ]);
  expect(sent.map((each) => each.once)).toEqual([once, once]);
  expect(outcomes).toEqual(all);
  expect(repeats).toBe(1);
});

test.each([status.NOT_FOUND, status.ABORTED, status.RESOURCE_EXHAUSTED, status.INTERNAL])(
  "no update is sent again after the status %i, with a key or without",
  async (code) => {
    for (const request of [{ updates }, { updates, once }]) {
      const refused = serviceError(code, "refused");
      const { petIds } = await send([[refused, refused, refused]], request);
      expect(petIds).toHaveLength(1);
    }
  },
);

test("what a repeat of the same request finds made is its own result, and only that of another request is replayed", async () => {
  const replayed = updates.map(({ petId }) => entry(petId, true));
  const own = updates.map(({ petId }) => entry(petId));
  const thrice = (error: UpdateOutcome) => [error, error, error];
  expect((await send([thrice(lost), replayed], { updates, once })).outcomes).toEqual(own);
  expect((await send([thrice(undone), replayed], { updates, once })).outcomes).toEqual(replayed);
  expect((await send([replayed], { updates, once })).outcomes).toEqual(replayed);
});

test("an attempt has the deadline of a call: with a key from its start on, without one from the arrival of the request", async () => {
  const all = updates.map(({ petId }) => entry(petId));
  const plain = await send([all], { updates });
  expect(plain.deadlines[0]).toBeLessThanOrEqual(10_000);
  expect(plain.deadlines[0]).toBeGreaterThan(0);
  const keyed = await send([all], { updates, once });
  expect(keyed.deadlines[0]).toBeGreaterThan(15_000);
});

test("nothing is repeated once the caller has left", async () => {
  const { petIds, outcomes } = await send([[lost, lost, lost]], { updates, once }, () => false);
  expect(petIds).toHaveLength(1);
  expect(outcomes).toMatchObject(Array(3).fill({ code: "service_unavailable" }));
});

test("a repeat of updates with a key waits until it is known that the caller may still update", async () => {
  const all = updates.map(({ petId }) => entry(petId));
  const known = [false, false, true];
  const { petIds, outcomes, repeats } = await send(
    [[lost, lost, lost], all],
    { updates, once },
    () => true,
    async () => known.shift()!,
  );
  expect(repeats).toBe(3);
  expect(petIds).toHaveLength(2);
  expect(outcomes).toEqual(all);
});

test.each([
  ["with a key", { updates, once }, lost],
  ["without a key", { updates }, undone],
])("updates %s are not sent again for a caller that may no longer update", async (_what, request, error) => {
  const refuse = () => Promise.reject(new Error("the key was revoked"));
  const { petIds, outcomes } = await send([[error, error, error]], request, () => true, refuse);
  expect(petIds).toHaveLength(1);
  expect(outcomes).toMatchObject(Array(3).fill({ code: "service_unavailable" }));
});

test("updates with a key are repeated for their whole time, also when an outage is older than that", async () => {
  const keyedTimeoutMs = 1_000;
  let isAway = true;
  const submit = async () => (isAway ? [undone] : [entry(1n)]);
  const { send: sendKeyed } = createUpdateSender({ pipeline: { submit }, callTimeoutMs: 100, keyedTimeoutMs });
  const ask = () =>
    sendKeyed(
      { updates: updates.slice(0, 1), once },
      { arrivedMs: performance.now(), isWanted: () => true, mayRepeat: async () => true },
    );
  expect(await ask()).toMatchObject([{ code: "service_unavailable" }]);
  setTimeout(() => {
    isAway = false;
  }, keyedTimeoutMs / 5);
  expect(await ask()).toEqual([entry(1n)]);
});

test("updates with a key are not sent again when the caller has left while it was looked at", async () => {
  let isHere = true;
  const leave = async () => {
    isHere = false;
    return true;
  };
  const { petIds } = await send([[lost, lost, lost]], { updates, once }, () => isHere, leave);
  expect(petIds).toHaveLength(1);
});

test("a repeat of updates with a key has no more than the time of a call left, counted from the begin of a stop", async () => {
  const [callTimeoutMs, keyedTimeoutMs] = [20_000, 60_000];
  const deadlines: number[] = [];
  let endedMs = Number.NaN;
  const submit = async (_request: UpdateRequest, deadlineMs: number) => {
    deadlines.push(deadlineMs);
    if (deadlines.length > 1) return [entry(1n)];
    endSoon();
    endedMs = performance.now();
    return [lost];
  };
  const { send: sendKeyed, endSoon } = createUpdateSender({ pipeline: { submit }, callTimeoutMs, keyedTimeoutMs });
  const caller = { arrivedMs: performance.now(), isWanted: () => true, mayRepeat: async () => true };
  await sendKeyed({ updates: updates.slice(0, 1), once }, caller);
  expect(deadlines[1]).toBeLessThanOrEqual(endedMs + callTimeoutMs);
});

test("in an outage at most 5,000 requests with a key are repeated at a time, and further ones fail at once", async () => {
  let isAway = true;
  let attempts = 0;
  const submit = async () => {
    attempts += 1;
    if (attempts === 15_000) isAway = false; // however often they are repeated, they keep their places
    return isAway ? [undone] : [entry(1n)];
  };
  const timeouts = { callTimeoutMs: 60_000, keyedTimeoutMs: 60_000 };
  const { send: sendKeyed } = createUpdateSender({ pipeline: { submit }, ...timeouts });
  const request = { updates: updates.slice(0, 1), once };
  const caller = { arrivedMs: performance.now(), isWanted: () => true, mayRepeat: async () => true };
  const held = Array.from({ length: 5_000 }, () => sendKeyed(request, caller));
  expect(await sendKeyed(request, caller)).toMatchObject([{ code: "service_unavailable" }]);
  for (const outcomes of await Promise.all(held)) expect(outcomes).toEqual([entry(1n)]);
  isAway = true;
  const next = sendKeyed(request, caller);
  setTimeout(() => {
    isAway = false;
  }, 10);
  expect(await next).toEqual([entry(1n)]);
});
