import { followStock } from "./follow.ts";
import { InventoryApiError } from "./inventory-api-error.ts";
import type { InventoryChanges } from "./types.ts";

const { jest } = import.meta;

beforeEach(() => void jest.useFakeTimers());
afterEach(() => {
  jest.useRealTimers();
  jest.restoreAllMocks();
});

const nothing: InventoryChanges = { etag: '"e-1"', changed: [], removed: [] };
const change: InventoryChanges = { etag: '"e-2"', changed: [], removed: [1n] };
const stock = Object.assign([], { etag: '"e-0"' });

/**
 * Follows a stock that gives these answers and then ends; in place of undefined it says that the differences are not
 * known. @returns the times between the questions for them in ms
 */
async function gapsBetween(answers: readonly (InventoryChanges | undefined)[], heldMs = 0): Promise<number[]> {
  const times: number[] = [];
  const changes = async () => {
    times.push(performance.now());
    const answer = answers[times.length - 1];
    if (times.length > answers.length) throw new InventoryApiError("invalid_api_key", "the end");
    if (answer === undefined) throw new InventoryApiError("changes_unavailable", "read the list");
    if (heldMs > 0) await new Promise((resolve) => setTimeout(resolve, heldMs));
    return answer;
  };
  const read = async () => {
    for await (const _event of followStock({ list: async () => stock, changes }, undefined));
  };
  const end = expect(read()).rejects.toThrow("the end");
  await jest.runAllTimersAsync();
  await end;
  return times.slice(1).map((time, i) => time - times[i]!);
}

/** All draws of a jitter have this value, between 0 and 1. */
const draw = (value: number) => void jest.spyOn(Math, "random").mockReturnValue(value);

test.each([
  { drawn: 0, share: 0.5 },
  { drawn: 0.5, share: 0.75 },
])(
  "after instant answers of no change, pauses double from 1 s to 30 s; jitter leaves $share",
  async ({ drawn, share }) => {
    draw(drawn);
    const pausesMs = [1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000].map((ms) => share * ms);
    expect(await gapsBetween(pausesMs.map(() => nothing))).toEqual(pausesMs);
  },
);

test("two that follow do not ask at the same times", async () => {
  const [one, other] = [await gapsBetween([nothing, nothing]), await gapsBetween([nothing, nothing])];
  expect(one).not.toEqual(other);
});

test("a change is followed by a question at once, and the next pause is short again", async () => {
  draw(0);
  expect(await gapsBetween([nothing, nothing, change, nothing])).toEqual([500, 1_000, 0, 500]);
});

test("pauses double when a server gives the same change again and again", async () => {
  draw(0);
  expect(await gapsBetween([change, change, change, change])).toEqual([0, 500, 1_000, 2_000]);
});

test("pauses double while each list is followed by an unknown difference", async () => {
  draw(0);
  expect(await gapsBetween([undefined, undefined, undefined, change, undefined])).toEqual([500, 1_000, 2_000, 0, 500]);
});

test("an answer that was held back is followed by a question at once", async () => {
  expect(await gapsBetween([nothing, nothing, nothing], 1_000)).toEqual([1_000, 1_000, 1_000]);
});

test("a pause ends with the reason of the signal", async () => {
  const stop = new AbortController();
  let left = 10;
  const changes = async () => {
    left -= 1;
    if (left < 0) throw new Error("there was no pause");
    return nothing;
  };
  const events = followStock({ list: async () => stock, changes }, stop.signal);
  await events.next();
  setTimeout(() => stop.abort(new Error("enough")), 100);
  const end = expect(events.next()).rejects.toThrow("enough");
  await jest.advanceTimersByTimeAsync(100);
  await end;
  expect(jest.getTimerCount()).toBe(0);
});
