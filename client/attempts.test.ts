import { Outage, untilSettled } from "./attempts.ts";

const { jest } = import.meta;

beforeEach(() => void jest.useFakeTimers());
afterEach(() => void jest.useRealTimers());

/** Work that settles some time after its first attempt. */
function awayFor(ms: number) {
  let attempts = 0;
  let backAtMs: number | undefined;
  const work = async () => {
    attempts += 1;
    backAtMs ??= performance.now() + ms;
    return performance.now() >= backAtMs;
  };
  return { work, attempts: () => attempts };
}

async function end(work: Promise<void>): Promise<void> {
  await jest.runAllTimersAsync();
  await work;
}

test("work is tried again until it is settled, without a flood for a service that comes back", async () => {
  const { work, attempts } = awayFor(1_000);
  const startedMs = performance.now();
  await end(untilSettled(work, () => startedMs + 10_000));
  expect(attempts()).toBeGreaterThan(5);
  expect(attempts()).toBeLessThan(15);
});

test("work is not tried again after the end of the patience", async () => {
  const { work, attempts } = awayFor(60_000);
  const endMs = performance.now() + 150;
  await end(untilSettled(work, () => endMs));
  expect(performance.now()).toBeLessThan(endMs + 1);
  const before = attempts();
  await end(untilSettled(work, () => endMs));
  expect(attempts()).toBe(before + 1);
});

test("an outage holds callers until it is as old as its patience, and again after a success", () => {
  const outage = new Outage(1_000);
  const beganMs = performance.now();
  expect(outage.failed()).toBe(beganMs + 1_000);
  jest.advanceTimersByTime(900);
  expect(outage.failed()).toBe(beganMs + 1_000);
  jest.advanceTimersByTime(900);
  expect(outage.failed()).toBe(beganMs + 1_000);
  outage.succeeded();
  expect(outage.failed()).toBe(performance.now() + 1_000);
});

test("a failure long after the last one begins another outage", () => {
  const outage = new Outage(100);
  outage.failed();
  jest.advanceTimersByTime(301); // the patience, and one of the longest waits
  expect(outage.failed()).toBe(performance.now() + 100);
});
