import { Standstill } from "./standstill.ts";

const { jest } = import.meta;
const tickMs = 100;
let clock: { nowMs: number };
let standstill: Standstill;
beforeEach(() => {
  jest.useFakeTimers();
  clock = { nowMs: 5_000 };
  standstill = new Standstill(() => clock.nowMs);
  run(1_000);
});
afterEach(() => {
  standstill.close();
  jest.useRealTimers();
});

/** Time in which the process runs. */
function run(ms: number): void {
  for (let passedMs = 0; passedMs < ms; passedMs += tickMs) {
    clock.nowMs += tickMs;
    jest.advanceTimersByTime(tickMs);
  }
}

/** Time in which the process stands still: its timer does not run. */
function freeze(ms: number): void {
  clock.nowMs += ms;
}

test("a message has not waited while the process runs", () => {
  expect(standstill.waitedMs).toBe(0);
  run(10_000);
  expect(standstill.waitedMs).toBe(0);
});

test("a message that is read after a standstill may have waited since before it, whether the timer has run or not", () => {
  freeze(3_000);
  expect(standstill.waitedMs).toBe(3_000);
  run(tickMs);
  expect(standstill.waitedMs).toBe(3_100);
});

test("a standstill that only the timer has noticed counts for what is read after it", () => {
  freeze(3_000);
  run(tickMs);
  expect(standstill.waitedMs).toBe(3_100);
});

test("a message has not waited any more when the process has run for a second after a standstill", () => {
  freeze(3_000);
  run(900);
  expect(standstill.waitedMs).toBe(3_900);
  run(200);
  expect(standstill.waitedMs).toBe(0);
});

test("a pause of 300 ms is no standstill", () => {
  freeze(300);
  expect(standstill.waitedMs).toBe(0);
  run(tickMs);
  expect(standstill.waitedMs).toBe(0);
});

test("a second standstill counts from its own begin", () => {
  freeze(3_000);
  run(500);
  freeze(2_000);
  expect(standstill.waitedMs).toBe(2_000);
});

test("a standstill that is closed leaves no timer", () => {
  standstill.close();
  expect(jest.getTimerCount()).toBe(0);
});
