import type { ErrorReason } from "../proto/reasons.ts";
import type { ChangeOutcome, ChangeRequest } from "./change-requests.ts";
import { ChangeSender, settledBy } from "./change-sender.ts";
import { InventoryError, notSent, type StatusName } from "./inventory-error.ts";

const entry = (petId: bigint, replayed = false) => {
  return { petId, quantity: 1, status: "sold", revision: 7n, replayed } as const;
};
const changes = [1n, 2n, 3n].map((petId) => ({ petId, quantity: 1 }));
const idempotencyKey = { account: "acme", key: "k", fingerprint: "x" };
const keyed = { changes, idempotencyKey };
const adjustments = { changes: changes.map(({ petId }) => ({ petId, delta: 1, requestId: `r${petId}` })) };
const lost = new InventoryError("UNAVAILABLE", "the stream broke");
const undone = notSent("the service is away");
const refused = new InventoryError("FAILED_PRECONDITION", "too few", { reason: "INSUFFICIENT_STOCK" });
const full = new InventoryError("RESOURCE_EXHAUSTED", "too many", { reason: "QUEUE_FULL" });
const all = changes.map(({ petId }) => entry(petId));
const thrice = (outcome: ChangeOutcome) => [outcome, outcome, outcome];

/** Sends changes over sessions with these answers. @returns what became of them, and what was sent */
async function send(
  answers: readonly ChangeOutcome[][],
  request: ChangeRequest,
  mayRetry = async () => true,
  attemptMs = 20_000,
) {
  const sent: ChangeRequest[] = [];
  const leftMs: number[] = [];
  let repeats = 0;
  const submit = async (each: ChangeRequest, endMs: number) => {
    sent.push(each);
    leftMs.push(endMs - performance.now());
    return answers[sent.length - 1]!;
  };
  const endMs = performance.now() + 60_000;
  const counted = () => {
    repeats += 1;
    return mayRetry();
  };
  const sender = new ChangeSender({ submit, isClosed: false }, attemptMs);
  const outcomes = await sender.send(request, { endMs: () => endMs, isWanted: () => true, mayRetry: counted });
  return { outcomes, petIds: sent.map((each) => each.changes.map(({ petId }) => petId)), sent, leftMs, repeats };
}

test("the reason of an outage stays when a repeat meets only the end of its time", async () => {
  const outOfTime = notSent("no service took the change in time", undefined, "DEADLINE_EXCEEDED");
  let attempts = 1;
  const untilTheSecond = async () => {
    attempts += 1;
    if (attempts > 2) throw new Error("the caller has left");
    return true;
  };
  for (const request of [{ changes }, keyed]) {
    attempts = 1;
    const { outcomes, repeats } = await send([thrice(undone), thrice(outOfTime)], request, untilTheSecond);
    expect({ outcomes, repeats }).toEqual({ outcomes: thrice(undone), repeats: 2 });
  }
});

describe("an outcome is the last one", () => {
  const outcomes = { success: entry(1n), refused, full, undone, lost };
  const none = undefined;
  const plain = { changes };

  test.each<[string, ChangeRequest, ChangeOutcome | undefined, boolean, (keyof typeof outcomes)[]]>([
    ["of a change that may happen twice, unless it has certainly not happened", plain, none, false, ["undone"]],
    ["of a change that happens once, unless an outage has prevented it", keyed, none, false, ["undone", "lost"]],
    ["of a repeat after nothing has happened, as of a first attempt", keyed, undone, false, ["undone", "lost"]],
    [
      "of a repeat, if it is a success, while the first attempt may happen",
      keyed,
      lost,
      true,
      ["refused", "full", "undone", "lost"],
    ],
    [
      "of a repeat, if it was decided, once the first attempt cannot happen",
      keyed,
      lost,
      false,
      ["full", "undone", "lost"],
    ],
  ])("%s", (_what, request, earlier, earlierMayHappen, unsettled) => {
    for (const [name, outcome] of Object.entries(outcomes)) {
      const [isSettled] = settledBy(request, [outcome], [earlier], earlierMayHappen);
      expect({ name, isSettled }).toEqual({ name, isSettled: !unsettled.includes(name as keyof typeof outcomes) });
    }
  });

  test("of changes that are all or nothing only together", () => {
    const group = { ...keyed, isAllOrNothing: true };
    const earlier = [none, none, none];
    expect(settledBy(group, [entry(1n), lost, entry(3n)], earlier, false)).toEqual([false, false, false]);
    expect(settledBy(group, [refused, refused, refused], earlier, false)).toEqual([true, true, true]);
    expect(settledBy(keyed, [entry(1n), lost, entry(3n)], earlier, false)).toEqual([true, false, true]);
  });
});

test("changes that do not happen once are sent again only if they have certainly not happened", async () => {
  const { outcomes, petIds, repeats } = await send([[entry(1n), lost, undone], [entry(3n)]], { changes });
  expect(petIds).toEqual([[1n, 2n, 3n], [3n]]);
  expect(outcomes).toEqual([entry(1n), lost, entry(3n)]);
  expect(repeats).toBe(1);
});

test.each([
  ["lost streams", lost],
  ["missed deadlines", new InventoryError("DEADLINE_EXCEEDED", "too late")],
  ["streams that the service cancels", new InventoryError("CANCELLED", "cancelled")],
  ["what has certainly not happened", undone],
])("changes that happen once are sent again after %s", async (_what, error) => {
  for (const request of [keyed, adjustments]) {
    const { outcomes, petIds, sent, repeats } = await send([thrice(error), all], request);
    expect(petIds).toEqual([
      [1n, 2n, 3n],
      [1n, 2n, 3n],
    ]);
    expect(sent[1]).toEqual(request);
    expect(outcomes).toEqual(all);
    expect(repeats).toBe(1);
  }
});

test.each<[StatusName, ErrorReason]>([
  ["NOT_FOUND", "ENTRY_NOT_FOUND"],
  ["ABORTED", "REVISION_MISMATCH"],
  ["RESOURCE_EXHAUSTED", "QUEUE_FULL"],
  ["INTERNAL", "INTERNAL"],
])("no change is sent again after the status %s with the reason %s", async (code, reason) => {
  for (const request of [{ changes }, keyed]) {
    const { petIds } = await send([thrice(new InventoryError(code, "refused", { reason }))], request, undefined, 50);
    expect(petIds).toHaveLength(1);
  }
});

test("changes that are made all or none are sent again as a whole", async () => {
  const group = { ...keyed, isAllOrNothing: true };
  const { outcomes, petIds } = await send([[entry(1n), lost, entry(3n)], all], group);
  expect(petIds).toEqual([
    [1n, 2n, 3n],
    [1n, 2n, 3n],
  ]);
  expect(outcomes).toEqual(all);
});

test("what may have happened stays unknown when its repeat was not sent", async () => {
  let isAllowed = true;
  const once = async () => {
    if (!isAllowed) throw new Error("the caller has left");
    isAllowed = false;
    return true;
  };
  expect((await send([thrice(lost), thrice(undone)], keyed, once, 50)).outcomes).toEqual(thrice(lost));
});

test.each(["endMs", "isWanted"] as const)("%s that throws before a repeat keeps the first outcome", async (name) => {
  const asked: string[] = [];
  const submit = async (_request: ChangeRequest, _untilMs: number, isWanted: () => boolean) => {
    return thrice(isWanted() ? undone : notSent("the caller has left"));
  };
  const sender = new ChangeSender({ submit, isClosed: false }, 20_000);
  const endMs = performance.now() + 60_000;
  const caller = { endMs: () => endMs, isWanted: () => true, mayRetry: () => true };
  const once = () => {
    asked.push(name);
    if (asked.length > 1) throw new Error("not known");
    return caller[name]();
  };
  expect(await sender.send({ changes }, { ...caller, [name]: once })).toEqual(thrice(undone));
  expect(asked).toHaveLength(2);
});

describe("while an attempt without an answer could still be made", () => {
  const attemptMs = 400;

  test.each([
    ["no refusal of a repeat counts", refused],
    ["no full queue counts", full],
  ])("%s, and its success does at once", async (_what, error) => {
    const { outcomes, sent } = await send([thrice(lost), thrice(error), all], keyed);
    expect(outcomes).toEqual(all);
    expect(sent).toHaveLength(3);
  });

  test("a refusal is the outcome once a repeat after that time has got it", async () => {
    const beganMs = performance.now();
    const answers = [thrice(lost), ...Array.from({ length: 100 }, () => thrice(refused))];
    const { outcomes, sent } = await send(answers, keyed, undefined, attemptMs);
    expect(outcomes).toEqual(thrice(refused));
    expect(sent.length).toBeGreaterThan(2);
    expect(performance.now() - beganMs).toBeGreaterThanOrEqual(attemptMs);
  });

  test("a deadline that a stop moves forward counts for a caller that may not repeat", async () => {
    const sender = new ChangeSender({ submit: async () => thrice(undone), isClosed: false }, attemptMs);
    let endMs = performance.now() + 60_000;
    const mayRetry = async () => {
      endMs = performance.now();
      return false;
    };
    const outcomes = await sender.send(keyed, { endMs: () => endMs, isWanted: () => true, mayRetry });
    expect(outcomes).toEqual(thrice(undone));
  });

  test("a caller that may not repeat is told that the outcome is unknown only after that time", async () => {
    const beganMs = performance.now();
    const { outcomes } = await send([thrice(lost)], keyed, () => Promise.reject(new Error("revoked")), attemptMs);
    expect(outcomes).toEqual(thrice(lost));
    expect(performance.now() - beganMs).toBeGreaterThanOrEqual(attemptMs);
  });
});

test("after an unknown commit only what was decided after it is an outcome", async () => {
  const unknown = new InventoryError("UNAVAILABLE", "no answer to COMMIT", { reason: "OUTCOME_UNKNOWN" });
  const gone = new InventoryError("NOT_FOUND", "no entry", { reason: "ENTRY_NOT_FOUND" });
  const { outcomes, sent } = await send([thrice(unknown), thrice(full), thrice(gone)], keyed);
  expect(sent).toHaveLength(3);
  expect(outcomes).toEqual(thrice(gone));
});

test("an attempt at changes that happen once leaves their caller time for another one", async () => {
  expect((await send([all], keyed)).leftMs[0]).toBeLessThanOrEqual(20_000);
  expect((await send([all], { changes })).leftMs[0]).toBeGreaterThan(50_000);
});

test("a repeat waits until it is known that the caller may still make the changes", async () => {
  const known = [false, false, true];
  const { petIds, outcomes, repeats } = await send([thrice(lost), all], keyed, async () => known.shift()!);
  expect(repeats).toBe(3);
  expect(petIds).toHaveLength(2);
  expect(outcomes).toEqual(all);
});

test.each([
  ["that happen once", keyed, lost],
  ["that do not happen once", { changes }, undone],
])("changes %s are not sent again for a caller that has left or may not make them", async (_what, request, error) => {
  const { petIds, outcomes } = await send([thrice(error)], request, () => Promise.reject(new Error("revoked")), 50);
  expect(petIds).toHaveLength(1);
  expect(outcomes).toEqual(thrice(error));
});

test("nothing is repeated once the client is closed", async () => {
  const sender = new ChangeSender({ submit: async () => [undone], isClosed: true }, 60_000);
  const caller = { endMs: () => Number.POSITIVE_INFINITY, isWanted: () => true, mayRetry: () => true };
  expect(await sender.send({ changes: changes.slice(0, 1), idempotencyKey }, caller)).toEqual([undone]);
});

test("a refusal for too many changes, which is the client's own, makes an old outage no younger", async () => {
  let outcome = undone;
  let attempts = 0;
  const submit = async () => {
    attempts += 1;
    return thrice(outcome);
  };
  const sender = new ChangeSender({ submit, isClosed: false }, 500);
  const endMs = performance.now() + 60_000;
  const attemptsOf = async (answer: InventoryError) => {
    outcome = answer;
    attempts = 0;
    await sender.send({ changes }, { endMs: () => endMs, isWanted: () => true, mayRetry: () => true });
    return attempts;
  };
  expect(await attemptsOf(undone)).toBeGreaterThan(1); // held while the outage is young
  expect(await attemptsOf(undone)).toBe(1);
  expect(await attemptsOf(full)).toBe(1);
  expect(await attemptsOf(undone)).toBe(1);
});
