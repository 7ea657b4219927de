import { until } from "../../test/support/until.ts";
import { type ShareStrikes, Strikes } from "./strikes.ts";

const second = 1_000;
const minute = 60 * second;
const day = 24 * 60 * minute;

/** Strikes with a clock of its own, and the keys that it has reported. */
function strikesOf(maxStrikes: number) {
  const found: string[] = [];
  const clock = { nowMs: 0 };
  const strikes = new Strikes({
    maxStrikes,
    onTooMany: async (keyId) => void found.push(keyId),
    now: () => clock.nowMs,
  });
  const throttle = (keyId: string, atMs: number, waitMs = day - atMs) => {
    clock.nowMs = atMs;
    strikes.throttled(keyId, waitMs);
  };
  return { found, throttle };
}

describe("strikes", () => {
  test("reports a key at its 30th strike within a minute, and again after 30 more", async () => {
    const { found, throttle } = strikesOf(30);
    for (let i = 0; i < 90; i++) {
      throttle("k", i * second);
      await Promise.resolve();
      expect(found).toHaveLength(Math.floor((i + 1) / 30));
    }
  });

  test("counts the last 60 seconds, whenever they began", () => {
    for (const [lastMs, expected] of [
      [29 + minute - 1_000, ["k"]],
      [29 + minute, []],
    ] as const) {
      const { found, throttle } = strikesOf(30);
      throttle("k", 0); // a minute that begins here ends before the others
      for (let i = 1; i <= 15; i++) throttle("k", 30_000 + i);
      for (let i = 1; i <= 14; i++) throttle("k", 30_000 + lastMs + i);
      throttle("k", 30_000 + lastMs + 15);
      expect(found).toEqual(expected);
    }
  });

  test("never reports a key with 29 strikes in each minute", () => {
    const { found, throttle } = strikesOf(30);
    for (let i = 0; i < 5 * 29; i++) throttle("k", Math.floor(i / 29) * minute + (i % 29) * second);
    expect(found).toEqual([]);
  });

  test("leaves out what is throttled while a ban is being stored", async () => {
    const found: string[] = [];
    const stored = Promise.withResolvers<void>();
    const onTooMany = (keyId: string) => {
      found.push(keyId);
      return stored.promise;
    };
    let nowMs = 0;
    const strikes = new Strikes({ maxStrikes: 30, onTooMany, now: () => (nowMs += second) });
    const throttle = (times: number) => {
      for (let i = 0; i < times; i++) strikes.throttled("k", day - nowMs);
    };
    throttle(30 + 59);
    expect(found).toEqual(["k"]);
    stored.resolve();
    await stored.promise;
    await Promise.resolve();
    throttle(29);
    expect(found).toEqual(["k"]);
    throttle(1);
    expect(found).toEqual(["k", "k"]);
  });

  test("leaves out those of the second after the first 429", () => {
    const { found, throttle } = strikesOf(30);
    for (let i = 0; i < 1_000; i++) throttle("k", i);
    for (let i = 0; i < 28; i++) throttle("k", second + i);
    expect(found).toEqual([]);
    throttle("k", second + 28);
    expect(found).toEqual(["k"]);
  });

  test("never reports a caller that sends a burst whenever its wait is over", () => {
    const { found, throttle } = strikesOf(30);
    for (let window = 0; window < 10; window++) {
      const beganMs = window * minute;
      for (let i = 0; i < 100; i++) throttle("k", beganMs + 5 * i, minute - 5 * i);
    }
    expect(found).toEqual([]);
  });

  test("never reports a caller that sends a burst exactly when its window ends", () => {
    const { found, throttle } = strikesOf(30);
    for (let window = 0; window < 10; window++) {
      const lateMs = window % 2 === 0 ? 200 : 0; // the wait is counted from the decision, and heard of only then
      for (let i = 0; i < 100; i++) throttle("k", window * minute + lateMs + i, minute - i);
    }
    expect(found).toEqual([]);
  });

  test("leaves out those of the second after a 429 whose wait ends before the one told until now", () => {
    const { found, throttle } = strikesOf(30);
    throttle("k", 0, 360 * minute); // the day is spent; then a higher plan, or a Redis that is back, has some left
    const minuteEndMs = 61 * minute;
    const throttleInMinute = (atMs: number) => throttle("k", atMs, minuteEndMs - atMs);
    for (let i = 0; i < 1_000; i++) throttleInMinute(60 * minute + i);
    expect(found).toEqual([]);
    for (let i = 0; i < 29; i++) throttleInMinute(60 * minute + second + i);
    expect(found).toEqual(["k"]);
  });

  test("counts on within a wait whose end is told half a second earlier", () => {
    const { found, throttle } = strikesOf(30);
    throttle("k", 0, minute);
    for (let i = 0; i < 29; i++) throttle("k", second + i, minute - second - i - (i < 10 ? 0 : second / 2));
    expect(found).toEqual(["k"]);
  });

  test("goes on when the clock is set back by an hour", () => {
    const { found, throttle } = strikesOf(30);
    throttle("k", 60 * minute);
    for (let i = 0; i < 40; i++) throttle("k", i * second);
    expect(found).toEqual(["k"]);
  });

  test("forgets strikes that a clock which was set back puts in the future", () => {
    const { found, throttle } = strikesOf(30);
    throttle("k", 0);
    for (let i = 0; i < 28; i++) throttle("k", 50_000 + i);
    throttle("k", 1_000); // 49 s back
    throttle("k", 57_000); // 105 s after the 28 by a clock that stays
    expect(found).toEqual([]);
  });

  test("counts each key by itself", () => {
    const { found, throttle } = strikesOf(2);
    throttle("a", 1 * second);
    throttle("b", 2 * second);
    throttle("a", 3 * second);
    expect(found).toEqual(["a"]);
  });

  /** Strikes at several gateways, which add them up. */
  function gatewaysOf(count: number) {
    const totals = new Map<string, number>();
    const found: number[] = [];
    const clock = { nowMs: 0 };
    const share: ShareStrikes = async (added, maxStrikes) => {
      for (const [keyId, strikes] of added) totals.set(keyId, (totals.get(keyId) ?? 0) + strikes);
      const over = [...added.keys()].filter((keyId) => totals.get(keyId)! >= maxStrikes);
      for (const keyId of over) totals.delete(keyId);
      return over;
    };
    const gateways = Array.from({ length: count }, (_, i) => {
      return new Strikes({ maxStrikes: 30, onTooMany: async () => void found.push(i), share, now: () => clock.nowMs });
    });
    return { gateways, found, clock };
  }

  test("the strikes of all replicas add up, and one of them reports the key", async () => {
    const { gateways, found, clock } = gatewaysOf(3);
    for (let i = 0; i < 11; i++) {
      for (const gateway of gateways) gateway.throttled("k", day - clock.nowMs);
      clock.nowMs += second;
    }
    await until(() => found.length > 0);
    expect(found).toHaveLength(1);
  });

  test("a caller that sends a burst to many gateways whenever its wait is over is never reported", async () => {
    const { jest } = import.meta;
    jest.useFakeTimers();
    const { gateways, found, clock } = gatewaysOf(40);
    for (const beganMs of [50 * second, minute, 2 * minute]) {
      clock.nowMs = beganMs;
      const waitMs = minute - (beganMs % minute);
      for (let i = 0; i < 100; i++) gateways[i % 40]!.throttled("k", waitMs);
      await jest.advanceTimersByTimeAsync(second);
    }
    expect(found).toEqual([]);
    jest.useRealTimers();
  });

  test("shares no strike while a ban is being stored, which would bring a second ban", async () => {
    const shared = Promise.withResolvers<ReadonlyMap<string, number>>();
    let nowMs = 0;
    const strikes = new Strikes({
      maxStrikes: 30,
      onTooMany: () => new Promise(() => {}),
      share: async (added) => {
        shared.resolve(added);
        return [];
      },
      now: () => (nowMs += second / 2),
    });
    for (let i = 0; i < 30 + 59; i++) strikes.throttled("k", day - nowMs);
    expect([...(await shared.promise)]).toEqual([["k", 29]]); // all but the first
  });

  test("shares nothing more once its gateway has closed it", () => {
    const { jest } = import.meta;
    jest.useFakeTimers();
    const share = jest.fn(async () => []);
    const strikes = new Strikes({ maxStrikes: 30, onTooMany: async () => {}, share, now: () => 0 });
    strikes.throttled("k", day);
    strikes.close();
    jest.advanceTimersByTime(minute);
    expect(share).not.toHaveBeenCalled();
    jest.useRealTimers();
  });
});
