import { Windows } from "./pace.ts";

const policy = '"minute";q=60;w=60, "day";q=1000;w=86400';

function headers(minute: [left: number, seconds: number], day: [left: number, seconds: number] = [900, 80_000]) {
  const state = ([r, t]: [number, number]) => `r=${r};t=${t}`;
  return new Headers({ "RateLimit-Policy": policy, RateLimit: `"minute";${state(minute)}, "day";${state(day)}` });
}

/** Takes over an answer to a request that no limit counts. */
const learnFreely = (windows: Windows, told: Headers, nowMs: number) =>
  windows.learn(told, windows.sentUncharged(), nowMs);

test("one request finds out what is left before the others, and another one if it gets no answer", () => {
  const windows = new Windows();
  expect(windows.waitMs(0)).toBe(0);
  const first = windows.sent(0);
  expect(windows.waitMs(100)).toBe(1_900);
  expect(windows.waitMs(2_000)).toBe(0);
  windows.lose(first);
  expect(windows.waitMs(100)).toBe(0);
  const second = windows.sent(100);
  expect(windows.waitMs(100)).toBe(2_000);
  windows.learn(headers([59, 60]), second, 200);
  expect(windows.waitMs(200)).toBe(0);
});

test("an API that tells no limits does not slow requests down", () => {
  const windows = new Windows();
  windows.learn(new Headers(), windows.sent(0), 10);
  for (let i = 0; i < 1_000; i++) windows.sent(11);
  expect(windows.waitMs(11)).toBe(0);
});

test("requests that have no answer yet count, so no more leave than a window has left", () => {
  const windows = new Windows();
  learnFreely(windows, headers([59, 60]), 0);
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

test("no wait is longer than a timer takes, whatever end of a window is told", () => {
  const windows = new Windows();
  learnFreely(windows, headers([1, 99_999_999_999]), 0);
  windows.sent(0);
  expect(windows.waitMs(1)).toBeGreaterThan(86_400_000);
  expect(windows.waitMs(1)).toBeLessThan(2 ** 31);
  learnFreely(windows, headers([0, 99_999_999_999]), 1);
  expect(windows.spentMs(1)).toBeLessThan(2 ** 31);
});

test("the last fifth of a minute's limit is spread over the rest of the minute", () => {
  const windows = new Windows();
  learnFreely(windows, headers([12, 48]), 0);
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
  learnFreely(windows, headers([59, 60], [10, 80_000]), 0);
  windows.sent(0);
  expect(windows.waitMs(0)).toBe(60_000);
});

test("an answer that was overtaken does not give back what later requests have used", () => {
  const windows = new Windows();
  learnFreely(windows, headers([50, 60]), 0);
  const numbers = Array.from({ length: 45 }, () => windows.sent(0));
  for (const [i, number] of numbers.entries()) windows.learn(headers([5 + i, 60]), number, 0);
  expect(windows.waitMs(0)).toBe(12_000); // 5 are left
});

test("a later answer gives back what a window has more, as after an outage of the server's Redis", () => {
  const windows = new Windows();
  windows.learn(headers([3, 50]), windows.sent(0), 0);
  expect(windows.waitMs(10)).toBeGreaterThan(0);
  learnFreely(windows, headers([50, 50]), 10);
  expect(windows.waitMs(10)).toBe(0);
});

test("requests that never reached the API use nothing up, however many an outage has", () => {
  const windows = new Windows();
  windows.learn(headers([59, 60], [999, 86_400]), windows.sent(0), 0);
  for (let nowMs = 10; nowMs < 3_000_000; nowMs += 10) windows.lose(windows.sent(nowMs));
  expect([windows.waitMs(3_000_000), windows.spentMs(3_000_000)]).toEqual([0, 0]);
  windows.learn(headers([59, 60], [998, 83_400]), windows.sent(3_000_000), 3_000_000);
  expect(windows.waitMs(3_000_000)).toBe(0);
});

test("after lost answers, one request finds out whether they were charged before others leave", () => {
  const windows = new Windows();
  learnFreely(windows, headers([60, 60]), 0);
  const [early, ...others] = Array.from({ length: 48 }, () => windows.sent(0));
  for (const number of others) windows.lose(number);
  expect(windows.waitMs(10)).toBe(0);
  const probe = windows.sent(10);
  expect(windows.waitMs(10)).toBe(2_000);
  windows.learn(headers([59, 60]), early!, 20); // of a request that left before they were lost
  expect(windows.waitMs(20)).toBe(1_990);
  windows.learn(headers([11, 50]), probe, 30);
  expect(windows.waitMs(30)).toBeGreaterThan(4_000);
});

test("answers that are lost at the same time let one request leave, not one for each", () => {
  const windows = new Windows();
  learnFreely(windows, headers([60, 60]), 0);
  const numbers = Array.from({ length: 40 }, () => windows.sent(0));
  let sent = 0;
  for (const number of numbers) {
    windows.lose(number);
    if (windows.waitMs(10) > 0) continue;
    windows.sent(10);
    sent += 1;
  }
  expect(sent).toBe(1);
});

test("a request that no limit counts may be lost without an effect", () => {
  const windows = new Windows();
  learnFreely(windows, headers([59, 60]), 0);
  windows.lose(windows.sentUncharged());
  windows.sent(0);
  expect(windows.waitMs(0)).toBe(0);
});

test("after the end of a window one request asks for the next one, whose answers replace the old", () => {
  const windows = new Windows();
  learnFreely(windows, headers([1, 10]), 0);
  const late = windows.sent(9_000);
  expect(windows.waitMs(9_500)).toBe(500);
  expect(windows.waitMs(10_000)).toBe(0);
  windows.sent(10_000);
  expect(windows.waitMs(10_000)).toBe(2_000);
  learnFreely(windows, headers([59, 60], [800, 79_990]), 10_050);
  expect(windows.waitMs(10_050)).toBe(0);
  windows.learn(headers([0, 1]), late, 10_060); // of the old window
  expect(windows.waitMs(10_060)).toBe(0);
});

/** Asks as often as the pace allows, with answers that come at once. @returns the requests that left in a time */
function requestsBetween(windows: Windows, fromMs: number, toMs: number, answer: (nowMs: number) => Headers): number {
  let count = 0;
  for (let nowMs = fromMs; nowMs < toMs; nowMs += Math.max(windows.waitMs(nowMs), 5)) {
    if (windows.waitMs(nowMs) > 0) continue;
    windows.learn(answer(nowMs), windows.sent(nowMs), nowMs);
    count += 1;
  }
  return count;
}

test("an end that was told too early, as that of an unused window, is replaced once it is over", () => {
  const windows = new Windows();
  learnFreely(windows, headers([60, 60], [1_000, 86_400]), 0);
  const real = (nowMs: number) => headers([59, Math.ceil((86_000 - nowMs) / 1_000)]);
  expect(requestsBetween(windows, 26_000, 26_200, real)).toBe(40);
  expect(requestsBetween(windows, 60_000, 60_200, real)).toBe(40);
});

test("after a ban, whose end is told as that of every window, the pace is that of the windows", () => {
  const windows = new Windows();
  learnFreely(windows, headers([50, 60], [900, 40_000]), 0);
  learnFreely(windows, headers([0, 300], [0, 300]), 1_000);
  const real = (nowMs: number) => headers([59, 60], [890, 40_000 - Math.floor(nowMs / 1_000)]);
  expect(requestsBetween(windows, 302_000, 302_200, real)).toBe(40);
});

test("a window that is spent says for how long", () => {
  const windows = new Windows();
  learnFreely(windows, headers([59, 60], [0, 5_000]), 0);
  expect(windows.spentMs(1_000)).toBe(4_999_000);
  learnFreely(windows, headers([59, 60], [0, 5_000]), 0);
  expect(new Windows().spentMs(0)).toBe(0);
});

test("while a day is spent, a request a minute finds out whether the plan was raised", () => {
  const windows = new Windows();
  windows.learn(headers([59, 60], [0, 5_000]), windows.sent(0), 0);
  expect(windows.waitMs(0)).toBe(60_000);
  windows.learn(headers([59, 60], [0, 4_940]), windows.sent(60_000), 60_000);
  expect(windows.waitMs(60_000)).toBe(60_000);
  windows.learn(headers([59, 60], [9_000, 4_880]), windows.sent(120_000), 120_000);
  expect([windows.waitMs(120_000), windows.spentMs(120_000)]).toEqual([0, 0]);
});

test("a window that is spent for a minute or less is waited for to its end", () => {
  const windows = new Windows();
  windows.learn(headers([0, 60]), windows.sent(0), 50);
  expect(windows.waitMs(50)).toBe(60_000);
  windows.learn(headers([50, 60], [0, 30]), windows.sent(60_050), 60_050);
  expect(windows.waitMs(60_050)).toBe(30_000);
});

test("during a ban a request a minute finds out whether it was lifted, and its answer ends it", () => {
  const windows = new Windows();
  const early = windows.sent(0);
  const refused = windows.sent(0);
  windows.ban(300_000, 0);
  windows.learn(new Headers(), refused, 0);
  expect([windows.banMs(0), windows.waitMs(0)]).toEqual([300_000, 60_000]);
  windows.learn(new Headers(), early, 10); // of a request that left before the ban was told
  learnFreely(windows, headers([50, 60]), 10); // what no limit counts, a banned key may ask
  expect(windows.banMs(10)).toBe(299_990);
  const probe = windows.sent(60_000);
  expect(windows.waitMs(60_000)).toBe(60_000);
  windows.learn(headers([49, 60]), probe, 60_010);
  expect([windows.banMs(60_010), windows.waitMs(60_010)]).toEqual([0, 0]);
});

test("a ban ends at its time", () => {
  const windows = new Windows();
  const refused = windows.sent(0);
  windows.ban(30_000, 0);
  windows.learn(new Headers(), refused, 0);
  expect(windows.waitMs(0)).toBe(30_000);
  expect([windows.banMs(30_000), windows.waitMs(30_000)]).toEqual([0, 0]);
});

test("a changed plan replaces what is known of the limits", () => {
  const windows = new Windows();
  learnFreely(windows, headers([0, 50]), 0);
  learnFreely(
    windows,
    new Headers({ "RateLimit-Policy": '"minute";q=600;w=60', RateLimit: '"minute";r=540;t=50' }),
    10,
  );
  expect(windows.waitMs(10)).toBe(0);
});
