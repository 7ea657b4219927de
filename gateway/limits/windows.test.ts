import { limitHeaders, retryAfter, secondsUntil, untilBanEnds } from "./limit-headers.ts";
import { bindingWindow, type Count, charge, type Decision, type Window } from "./windows.ts";

const minute: Window = { name: "minute", seconds: 60, limit: 3 };
const day: Window = { name: "day", seconds: 86_400, limit: 5 };
const windows = [minute, day];

/** Sends one request at each of the times. */
function run(timesMs: readonly number[]): Decision[] {
  let counts: readonly Count[] | undefined;
  return timesMs.map((nowMs) => {
    const charged = charge(counts, windows, 1, nowMs);
    counts = charged.counts;
    return charged.decision;
  });
}

/** The headers by name. */
const headers = (...of: Parameters<typeof limitHeaders>): Record<string, string> => {
  const flat = limitHeaders(...of);
  return Object.fromEntries(flat.flatMap((name, i) => (i % 2 === 0 ? [[name, flat[i + 1]!]] : [])));
};

const left = (decision: Decision | undefined) => decision?.windows.map(({ remaining }) => remaining);

describe("windows", () => {
  test("what was used is told apart from what is left, which is a share for a replica that decides on its own", () => {
    const before = [
      { used: 1, unsent: 0, resetAtMs: 60_000 },
      { used: 1, unsent: 0, resetAtMs: 86_400_000 },
    ];
    const { decision } = charge(before, [minute, day], 1, 1, 2);
    expect(decision.windows.map(({ used, remaining }) => ({ used, remaining }))).toEqual([
      { used: 2, remaining: 0 },
      { used: 2, remaining: 1 },
    ]);
  });

  test("the windows of a caller begin with the first request and end a fixed time after it", () => {
    const [first, second] = run([1_000, 50_000]);
    expect(first!.windows.map((state) => state.resetAtMs)).toEqual([61_000, 86_401_000]);
    expect(second!.windows.map((state) => state.resetAtMs)).toEqual([61_000, 86_401_000]);
  });

  test("a request that the minute refuses charges nothing to the day", () => {
    const decisions = run([0, 0, 0, 1, 2, 3]);
    expect(decisions.map(({ admitted }) => admitted)).toEqual([true, true, true, false, false, false]);
    expect(left(decisions.at(-1))).toEqual([0, 2]);
  });

  test("a request that the day refuses charges nothing to the minute", () => {
    const decisions = run([0, 0, 0, 60_000, 60_000, 60_001]);
    expect(decisions.map(({ admitted }) => admitted)).toEqual([true, true, true, true, true, false]);
    expect(left(decisions.at(-1))).toEqual([1, 0]);
  });

  test("a window is over at the moment of its end, not before", () => {
    const decisions = run([0, 0, 0, 59_999, 60_000]);
    expect(decisions.map(({ admitted }) => admitted)).toEqual([true, true, true, false, true]);
  });

  test("a window whose clock was set back by an hour is over, and its caller is not refused for an hour", () => {
    const hour = 3_600_000;
    const decisions = run([hour, hour, hour, hour, 1, 2]);
    expect(decisions.map(({ admitted }) => admitted)).toEqual([true, true, true, false, true, true]);
    expect(decisions.at(-1)!.windows.map((state) => state.resetAtMs)).toEqual([60_001, 86_400_001]);
  });

  const used = (...counts: number[]): Count[] => counts.map((n) => ({ used: 0, unsent: n, resetAtMs: 60_000 }));

  test("a read of the current limits charges nothing", () => {
    const looked = charge(used(2, 2), windows, 0, 1);
    expect(left(looked.decision)).toEqual([1, 3]);
    expect(looked.counts).toEqual(used(2, 2));
  });

  test("a plan with lower limits keeps what was used and leaves nothing below zero", () => {
    const { decision } = charge(used(3, 3), [{ ...minute, limit: 2 }, day], 1, 1);
    expect(decision.admitted).toBe(false);
    expect(left(decision)).toEqual([0, 2]);
  });

  test("a refused request begins no window", () => {
    const { counts } = charge([used(3)[0]!], windows, 1, 1);
    expect(counts).toHaveLength(1);
  });

  test("a replica without Redis admits its share of the requests that were left at its last exchange", () => {
    const heard: Count[] = [{ used: 40, unsent: 0, resetAtMs: 60_000 }];
    const limit60 = [{ ...minute, limit: 60 }];
    let counts: readonly Count[] = heard;
    const admitted = Array.from({ length: 20 }, () => {
      const charged = charge(counts, limit60, 1, 1, 3);
      counts = charged.counts;
      return charged.decision.admitted;
    });
    expect(admitted.filter(Boolean)).toHaveLength(7); // a third of the 20 left, rounded up
    expect(counts[0]).toMatchObject({ used: 40, unsent: 7 });
  });
});

describe("limit headers", () => {
  const state = (window: Window, usedNow: number, resetAtMs: number) => ({
    ...window,
    used: usedNow,
    remaining: window.limit - usedNow,
    resetAtMs,
  });

  test.each([
    ["the one with the smaller share left", state(minute, 1, 60_000), state(day, 4, 90_000), "day"],
    ["the minute when both shares are equal", state(minute, 0, 60_000), state(day, 0, 90_000), "minute"],
    [
      "the one with the smaller share left, although the other one has only one request left",
      state({ ...minute, limit: 60 }, 50, 60_000),
      state(day, 4, 90_000),
      "minute",
    ],
    ["the exhausted one", state(minute, 3, 60_000), state(day, 4, 90_000), "minute"],
    ["the last to end of two exhausted ones", state(minute, 3, 60_000), state(day, 5, 90_000), "day"],
  ])("the window that the headers describe is %s", (_what, a, b, name) => {
    expect(bindingWindow([a, b]).name).toBe(name);
  });

  test("the headers give the reset in Unix seconds rounded up, and both windows", () => {
    const decision = { admitted: true, windows: [state(minute, 1, 60_001), state(day, 1, 86_400_001)], nowMs: 1_500 };
    expect(headers(windows, decision)).toEqual({
      "X-RateLimit-Limit": "3",
      "X-RateLimit-Remaining": "2",
      "X-RateLimit-Reset": "61",
      "RateLimit-Policy": '"minute";q=3;w=60, "day";q=5;w=86400',
      RateLimit: '"minute";r=2;t=59, "day";r=4;t=86399',
    });
  });

  test("the headers have nothing left until the end of a ban", () => {
    const current = { admitted: true, windows: [state(minute, 3, 60_000), state(day, 1, 86_400_000)], nowMs: 0 };
    const decision = untilBanEnds(current, 300_000);
    expect(headers(windows, decision)).toMatchObject({ "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "300" });
    expect(retryAfter(decision)).toBe("300");
  });

  test("the headers have nothing left until the end of an exhausted window, when a ban ends before that", () => {
    const current = { admitted: true, windows: [state(minute, 0, 60_000), state(day, 5, 86_400_000)], nowMs: 0 };
    const decision = untilBanEnds(current, 300_000);
    expect(headers(windows, decision)).toMatchObject({ "X-RateLimit-Limit": "5", "X-RateLimit-Reset": "86400" });
    expect(retryAfter(decision)).toBe("86400");
  });

  test("Retry-After is in whole seconds, rounded up, and at least one", () => {
    expect([secondsUntil(1_001, 0), secondsUntil(1, 0), secondsUntil(0, 500)]).toEqual([2, 1, 1]);
  });
});
