import { bannedWindows, bindingWindow, limitHeaders, retryAfter, secondsUntil, type Window } from "./windows.ts";

const minute: Window = { name: "minute", lengthSeconds: 60, limit: 3 };
const day: Window = { name: "day", lengthSeconds: 86_400, limit: 5 };
const windows = [minute, day];

/** The headers by name. */
const headers = (...of: Parameters<typeof limitHeaders>): Record<string, string> => {
  const flat = limitHeaders(...of);
  return Object.fromEntries(flat.flatMap((name, i) => (i % 2 === 0 ? [[name, flat[i + 1]!]] : [])));
};

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
    const decision = { admitted: true, states: [state(minute, 1, 60_001), state(day, 1, 86_400_001)], nowMs: 1_500 };
    expect(headers(windows, decision)).toEqual({
      "X-RateLimit-Limit": "3",
      "X-RateLimit-Remaining": "2",
      "X-RateLimit-Reset": "61",
      "RateLimit-Policy": '"minute";q=3;w=60, "day";q=5;w=86400',
      RateLimit: '"minute";r=2;t=59, "day";r=4;t=86399',
    });
  });

  test("the headers have nothing left until the end of a ban", () => {
    const current = { admitted: true, states: [state(minute, 3, 60_000), state(day, 1, 86_400_000)], nowMs: 0 };
    const decision = bannedWindows(current, 300_000, 0);
    expect(headers(windows, decision)).toMatchObject({ "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "300" });
    expect(retryAfter(decision)).toBe("300");
  });

  test("the headers have nothing left until an exhausted window ends, when a ban ends before it", () => {
    const current = { admitted: true, states: [state(minute, 0, 60_000), state(day, 5, 86_400_000)], nowMs: 0 };
    const decision = bannedWindows(current, 300_000, 0);
    expect(headers(windows, decision)).toMatchObject({ "X-RateLimit-Limit": "5", "X-RateLimit-Reset": "86400" });
    expect(retryAfter(decision)).toBe("86400");
  });

  test("a ban and the windows of its caller end by the clock of the ban", () => {
    const current = { admitted: true, states: [state(minute, 1, 60_000), state(day, 5, 86_400_000)], nowMs: 0 };
    const decision = bannedWindows(current, 300_000 + 90_000, 90_000); // the clock of Redis is 90 s behind
    expect(decision.states.map(({ resetAtMs }) => resetAtMs)).toEqual([390_000, 86_490_000]);
    expect(retryAfter(decision)).toBe("86400");
    expect(retryAfter(bannedWindows({ ...current, states: [state(minute, 1, 60_000)] }, 390_000, 90_000))).toBe("300");
  });

  test("Retry-After is in whole seconds, rounded up, and at least one", () => {
    expect([secondsUntil(1_001, 0), secondsUntil(1, 0), secondsUntil(0, 500)]).toEqual([2, 1, 1]);
  });
});
