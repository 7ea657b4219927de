import { Windows } from "./pace.ts";

const policy = '"minute";q=60;w=60, "day";q=1000;w=86400';

function headers(minute: [left: number, seconds: number], day: [left: number, seconds: number] = [900, 80_000]) {
  const state = ([r, t]: [number, number]) => `r=${r};t=${t}`;
  return new Headers({ "RateLimit-Policy": policy, RateLimit: `"minute";${state(minute)}, "day";${state(day)}` });
}

test("one request finds out what is left before the others leave, and another one when that gets no answer", () => {
  const windows = new Windows();
  expect(windows.waitMs(0)).toBe(0);
  windows.sent(0);
  expect(windows.waitMs(100)).toBe(1_900);
  expect(windows.waitMs(2_000)).toBe(0);
  windows.learnNothing();
  expect(windows.waitMs(100)).toBe(0);
  windows.learn(headers([59, 60]), 200);
  expect(windows.waitMs(200)).toBe(0);
});

test("an API that tells no limits does not slow requests down", () => {
  const windows = new Windows();
  windows.sent(0);
  windows.learn(new Headers(), 10);
  for (let i = 0; i < 1_000; i++) windows.sent(11);
  expect(windows.waitMs(11)).toBe(0);
});

test("requests that have no answer yet count, so no more leave than a window has left", () => {
  const windows = new Windows();
  windows.learn(headers([59, 60]), 0);
  let left = 0;
  while (windows.waitMs(0) === 0) {
    windows.sent(0);
    left += 1;
  }
  expect(left).toBe(47); // 12 of 60 are kept for the rest of the minute
  expect(windows.waitMs(0)).toBe(5_000);
  for (let i = 0; i < 12; i++) windows.sent(0);
  expect(windows.waitMs(0)).toBe(60_000);
});

test("the last fifth of a minute's limit is spread over the rest of the minute", () => {
  const windows = new Windows();
  windows.learn(headers([12, 48]), 0);
  const times: number[] = [];
  for (let nowMs = 0; nowMs < 48_000; nowMs += 1) {
    if (windows.waitMs(nowMs) > 0) continue;
    windows.sent(nowMs);
    times.push(nowMs);
  }
  expect(times).toHaveLength(12);
  const gaps = times.slice(1).map((time, i) => time - times[i]!);
  expect(Math.min(...gaps)).toBeGreaterThanOrEqual(3_900);
});

test("while something is left of the day, requests are at most a minute apart", () => {
  const windows = new Windows();
  windows.learn(headers([59, 60], [10, 80_000]), 0);
  windows.sent(0);
  expect(windows.waitMs(0)).toBe(60_000);
});

test("an answer that was overtaken does not give back what later requests have used", () => {
  const windows = new Windows();
  windows.learn(headers([3, 50]), 0);
  windows.learn(headers([20, 50]), 10);
  for (let i = 0; i < 3; i++) windows.sent(10);
  expect(windows.waitMs(10)).toBe(49_990);
});

test("after the end of a window one request asks for the next one, whose answers replace the old", () => {
  const windows = new Windows();
  windows.learn(headers([1, 10]), 0);
  windows.sent(9_000);
  expect(windows.waitMs(9_500)).toBe(500);
  expect(windows.waitMs(10_000)).toBe(0);
  windows.sent(10_000);
  expect(windows.waitMs(10_000)).toBe(2_000);
  windows.learn(headers([59, 60], [800, 79_990]), 10_050);
  expect(windows.waitMs(10_050)).toBe(0);
  windows.learn(headers([0, 1]), 10_060); // of the old window, late
  expect(windows.waitMs(10_060)).toBe(0);
});

/** Asks as often as the pace allows, with answers that come at once. @returns the requests that left in a time */
function requestsBetween(windows: Windows, fromMs: number, toMs: number, answer: (nowMs: number) => Headers): number {
  let count = 0;
  for (let nowMs = fromMs; nowMs < toMs; nowMs += Math.max(windows.waitMs(nowMs), 5)) {
    if (windows.waitMs(nowMs) > 0) continue;
    windows.sent(nowMs);
    windows.learn(answer(nowMs), nowMs);
    count += 1;
  }
  return count;
}

test("an end that was told too early, as that of a window without a request, is replaced once it is over", () => {
  const windows = new Windows();
  windows.learn(headers([60, 60], [1_000, 86_400]), 0);
  const real = (nowMs: number) => headers([59, Math.ceil((86_000 - nowMs) / 1_000)]);
  expect(requestsBetween(windows, 26_000, 26_200, real)).toBe(40);
  expect(requestsBetween(windows, 60_000, 60_200, real)).toBe(40);
});

test("after a ban, whose end is told as that of every window, the pace is that of the windows", () => {
  const windows = new Windows();
  windows.learn(headers([50, 60], [900, 40_000]), 0);
  windows.learn(headers([0, 300], [0, 300]), 1_000);
  const real = (nowMs: number) => headers([59, 60], [890, 40_000 - Math.floor(nowMs / 1_000)]);
  expect(requestsBetween(windows, 302_000, 302_200, real)).toBe(40);
});

test("a window that is spent says for how long", () => {
  const windows = new Windows();
  windows.learn(headers([59, 60], [0, 5_000]), 0);
  expect(windows.spentMs(1_000)).toBe(4_999_000);
  windows.learn(headers([59, 60], [0, 5_000]), 0);
  expect(new Windows().spentMs(0)).toBe(0);
});

test("a changed plan replaces what is known of the limits", () => {
  const windows = new Windows();
  windows.learn(headers([0, 50]), 0);
  windows.learn(new Headers({ "RateLimit-Policy": '"minute";q=600;w=60', RateLimit: '"minute";r=540;t=50' }), 10);
  expect(windows.waitMs(10)).toBe(0);
});
