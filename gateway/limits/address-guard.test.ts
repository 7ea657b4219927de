import { AddressGuard } from "./address-guard.ts";
import type { Decision } from "./windows.ts";

const { jest } = import.meta;
const limit = 60;
const minuteMs = 60_000;
const address = "192.0.2.1";

beforeEach(() => void jest.useFakeTimers({ now: 1_000_000 }));
afterEach(() => {
  jest.restoreAllMocks();
  jest.useRealTimers();
});

const remaining = ({ windows }: Decision) => windows[0]!.remaining;
const resetAtMs = ({ windows }: Decision) => windows[0]!.resetAtMs;

describe("the guard of addresses", () => {
  test("the guard of addresses admits exactly the limit, even of requests that arrive at once", async () => {
    const guard = new AddressGuard(limit);
    const decisions = await Promise.all(Array.from({ length: 100 }, () => guard.charge(address)));
    expect(decisions.map(({ admitted }) => admitted)).toEqual(Array.from({ length: 100 }, (_, i) => i < limit));
    expect(decisions.slice(0, limit).map(remaining)).toEqual(Array.from({ length: limit }, (_, i) => limit - 1 - i));
    expect(new Set(decisions.slice(limit).map(remaining))).toEqual(new Set([0]));
  });

  test("the guard of addresses gives every answer of a window the same end, and begins the next window with the first request after it", async () => {
    const guard = new AddressGuard(limit);
    for (let i = 0; i < 2 * limit; i++) {
      const decision = await guard.charge(address);
      expect(resetAtMs(decision)).toBe(1_000_000 + minuteMs);
      expect(guard.currentLimits(address)).toEqual({ ...decision, admitted: i < limit - 1 });
      jest.advanceTimersByTime(1);
    }
    jest.setSystemTime(1_000_000 + minuteMs - 1);
    expect((await guard.charge(address)).admitted).toBe(false);
    jest.setSystemTime(1_000_000 + minuteMs + 500);
    const next = await guard.charge(address);
    expect([next.admitted, remaining(next), resetAtMs(next)]).toEqual([true, limit - 1, Date.now() + minuteMs]);
  });

  test("the guard of addresses gives every answer of a window the same end, although its limiter and it read the clock at different times", async () => {
    let nowMs = 1_000_000;
    jest.spyOn(Date, "now").mockImplementation(() => {
      nowMs += 0.3;
      return Math.floor(nowMs);
    });
    const guard = new AddressGuard(limit);
    const ends = new Set<number>();
    for (let i = 0; i < limit; i++) ends.add(resetAtMs(await guard.charge(address)));
    expect(ends.size).toBe(1);
  });

  test("the guard of addresses begins another window when the clock is set back by an hour", async () => {
    const guard = new AddressGuard(limit);
    for (let i = 0; i < 2 * limit; i++) await guard.charge(address);
    jest.setSystemTime(1_000_000 - 3_600_000);
    expect(resetAtMs(guard.currentLimits(address))).toBe(Date.now() + minuteMs);
    const decision = await guard.charge(address);
    expect([decision.admitted, remaining(decision), resetAtMs(decision)]).toEqual([
      true,
      limit - 1,
      Date.now() + minuteMs,
    ]);
  });

  test("the guard of addresses charges nothing for reading the current limits, which begins no window", async () => {
    const guard = new AddressGuard(limit);
    for (let i = 0; i < 100; i++) expect(remaining(guard.currentLimits(address))).toBe(limit);
    jest.advanceTimersByTime(1_000);
    const decision = await guard.charge(address);
    expect([remaining(decision), resetAtMs(decision)]).toEqual([limit - 1, Date.now() + minuteMs]);
    expect(remaining(guard.currentLimits("192.0.2.2"))).toBe(limit);
  });

  test("the guard of addresses remembers only a bounded number of the latest addresses", async () => {
    const guard = new AddressGuard(limit, 1_000);
    for (let i = 0; i < 5_000; i++) await guard.charge(`address-${i}`);
    expect(jest.getTimerCount()).toBe(1_000); // rate-limiter-flexible has one for each address that it counts
    expect(remaining(await guard.charge("address-4999"))).toBe(limit - 2);
    expect(remaining(await guard.charge("address-0"))).toBe(limit - 1);
  });
});
