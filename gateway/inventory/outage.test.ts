import { jest } from "@jest/globals";
import { Outage } from "./outage.ts";

beforeEach(() => void jest.useFakeTimers());
afterEach(() => void jest.useRealTimers());

const undone = new Error("the service is away");
const isUndone = (error: unknown) => error === undone;

/** The result of held work, or its error, once all waits are over. */
async function outcomeOf(held: Promise<string>): Promise<unknown> {
  const outcome = held.catch((error: unknown) => error);
  await jest.runAllTimersAsync();
  return outcome;
}

/** Work that fails for a time after the first attempt. */
function awayFor(ms: number) {
  let attempts = 0;
  let backAtMs: number | undefined;
  const work = async () => {
    attempts += 1;
    backAtMs ??= performance.now() + ms;
    if (performance.now() < backAtMs) throw undone;
    return "done";
  };
  return { work, attempts: () => attempts };
}

test("work is held until a short outage is over", async () => {
  const { work, attempts } = awayFor(100);
  expect(await outcomeOf(new Outage(10_000).rideOut(work, isUndone))).toBe("done");
  expect(attempts()).toBe(4);
});

test("work that may have happened is never tried again", async () => {
  const { work, attempts } = awayFor(10);
  expect(await outcomeOf(new Outage(2_000).rideOut(work, () => false))).toBe(undone);
  expect(attempts()).toBe(1);
});

test("an outage holds callers until it is as old as its patience, and then none, until something succeeds", async () => {
  const outage = new Outage(1_000);
  const first = awayFor(60_000);
  expect(await outcomeOf(outage.rideOut(first.work, isUndone))).toBe(undone);
  expect(first.attempts()).toBeGreaterThan(4);
  expect(first.attempts()).toBeLessThan(15); // the service that comes back is not flooded
  const late = awayFor(60_000);
  expect(await outcomeOf(outage.rideOut(late.work, isUndone))).toBe(undone);
  expect(late.attempts()).toBe(1);
  await outage.rideOut(async () => "done", isUndone);
  expect(await outcomeOf(outage.rideOut(awayFor(40).work, isUndone))).toBe("done");
});

test("a failure long after the last one begins another outage", async () => {
  const outage = new Outage(100);
  expect(await outcomeOf(outage.rideOut(awayFor(60_000).work, isUndone))).toBe(undone);
  jest.advanceTimersByTime(301); // the patience, and one of the longest waits
  expect(await outcomeOf(outage.rideOut(awayFor(20).work, isUndone))).toBe("done");
});

test("work of a caller that has left is not tried again", async () => {
  const { work, attempts } = awayFor(10);
  expect(await outcomeOf(new Outage(2_000).rideOut(work, isUndone, () => false))).toBe(undone);
  expect(attempts()).toBe(1);
});

test("a caller is held for at most the patience, while others succeed", async () => {
  const outage = new Outage(150);
  const others = setInterval(() => void outage.rideOut(async () => "done", isUndone), 20);
  const held = outage.rideOut(awayFor(60_000).work, isUndone).catch((error: unknown) => error);
  await jest.advanceTimersByTimeAsync(150);
  expect(await held).toBe(undone);
  clearInterval(others);
});

test("a caller that has already waited for as long as the patience is not held", async () => {
  const { work, attempts } = awayFor(60_000);
  const arrivedMs = performance.now() - 10_000;
  expect(await outcomeOf(new Outage(10_000).rideOut(work, isUndone, () => true, arrivedMs))).toBe(undone);
  expect(attempts()).toBe(1);
});

test("work is asked about before each further attempt, with the error of the one before", async () => {
  const errors: unknown[] = [];
  const { work, attempts } = awayFor(60);
  await outcomeOf(new Outage(2_000).rideOut(work, isUndone, (error) => errors.push(error) > 0));
  expect(attempts()).toBeGreaterThan(1);
  expect(errors).toEqual(new Array(attempts() - 1).fill(undone));
});
