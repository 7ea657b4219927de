import { Strikes } from "./strikes.ts";

const second = 1_000;
const minute = 60 * second;
const day = 24 * 60 * minute;

/** A counter with a clock of its own, and the keys that it has reported. */
function counterOf(tooMany: number) {
  const found: string[] = [];
  const clock = { nowMs: 0 };
  const counter = new Strikes({
    tooMany,
    onTooMany: async (keyId) => void found.push(keyId),
    now: () => clock.nowMs,
  });
  const refuse = (keyId: string, atMs: number, waitMs = day) => {
    clock.nowMs = atMs;
    counter.throttled(keyId, waitMs);
  };
  return { found, refuse };
}

describe("the counter of refusals", () => {
  test("reports a key at its 30th refusal within a minute, and again after 30 more", async () => {
    const { found, refuse } = counterOf(30);
    for (let i = 0; i < 90; i++) {
      refuse("k", i * second);
      await Promise.resolve();
      expect(found).toHaveLength(Math.floor((i + 1) / 30));
    }
  });

  test("counts the last 60 seconds, whenever they began", () => {
    for (const [lastMs, expected] of [
      [29 + minute - 1_000, ["k"]],
      [29 + minute, []],
    ] as const) {
      const { found, refuse } = counterOf(30);
      refuse("k", 0); // a minute that begins here ends before the others
      for (let i = 1; i <= 15; i++) refuse("k", 30_000 + i);
      for (let i = 1; i <= 14; i++) refuse("k", 30_000 + lastMs + i);
      refuse("k", 30_000 + lastMs + 15);
      expect(found).toEqual(expected);
    }
  });

  test("never reports a key with 29 refusals in each minute", () => {
    const { found, refuse } = counterOf(30);
    for (let i = 0; i < 5 * 29; i++) refuse("k", Math.floor(i / 29) * minute + (i % 29) * second);
    expect(found).toEqual([]);
  });

  test("leaves out what is refused while a ban is being stored", async () => {
    const found: string[] = [];
    const stored = Promise.withResolvers<void>();
    const onTooMany = (keyId: string) => {
      found.push(keyId);
      return stored.promise;
    };
    let nowMs = 0;
    const counter = new Strikes({ tooMany: 30, onTooMany, now: () => (nowMs += second) });
    const refuse = (times: number) => {
      for (let i = 0; i < times; i++) counter.throttled("k", day);
    };
    refuse(30 + 59);
    expect(found).toEqual(["k"]);
    stored.resolve();
    await stored.promise;
    await Promise.resolve();
    refuse(29);
    expect(found).toEqual(["k"]);
    refuse(1);
    expect(found).toEqual(["k", "k"]);
  });

  test("leaves out those of the second after the first 429", () => {
    const { found, refuse } = counterOf(30);
    for (let i = 0; i < 1_000; i++) refuse("k", i);
    for (let i = 0; i < 28; i++) refuse("k", second + i);
    expect(found).toEqual([]);
    refuse("k", second + 28);
    expect(found).toEqual(["k"]);
  });

  test("never reports a caller that sends a burst whenever its wait is over", () => {
    const { found, refuse } = counterOf(30);
    for (let window = 0; window < 10; window++) {
      const beganMs = window * minute;
      for (let i = 0; i < 100; i++) refuse("k", beganMs + 5 * i, minute - 5 * i);
    }
    expect(found).toEqual([]);
  });

  test("goes on when the clock is set back by an hour", () => {
    const { found, refuse } = counterOf(30);
    refuse("k", 60 * minute);
    for (let i = 0; i < 40; i++) refuse("k", i * second);
    expect(found).toEqual(["k"]);
  });

  test("forgets refusals that a clock which was set back puts in the future", () => {
    const { found, refuse } = counterOf(30);
    refuse("k", 0);
    for (let i = 0; i < 28; i++) refuse("k", 50_000 + i);
    refuse("k", 1_000); // 49 s back
    refuse("k", 57_000); // 105 s after the 28 by a clock that stays
    expect(found).toEqual([]);
  });

  test("counts each key by itself", () => {
    const { found, refuse } = counterOf(2);
    refuse("a", 1 * second);
    refuse("b", 2 * second);
    refuse("a", 3 * second);
    expect(found).toEqual(["a"]);
  });

  test("the counters of refusals of all replicas add up, and one of them reports the key", async () => {
    const totals = new Map<string, number>();
    const found: number[] = [];
    const reported = Promise.withResolvers<void>();
    let nowMs = 0;
    const replicas = [0, 1, 2].map(
      (replica) =>
        new Strikes({
          tooMany: 30,
          onTooMany: async () => {
            found.push(replica);
            reported.resolve();
          },
          share: async (added, tooMany) => {
            for (const [keyId, count] of added) totals.set(keyId, (totals.get(keyId) ?? 0) + count);
            return [...added.keys()].filter((keyId) => {
              const isTooMany = totals.get(keyId)! >= tooMany;
              if (isTooMany) totals.delete(keyId);
              return isTooMany;
            });
          },
          now: () => nowMs,
        }),
    );
    for (let i = 0; i < 11; i++) {
      for (const replica of replicas) replica.throttled("k", day);
      nowMs += second;
    }
    await reported.promise;
    expect(found).toHaveLength(1);
  });

  test("shares none of what is refused while a ban is being stored, which would bring a second ban", async () => {
    const shared = Promise.withResolvers<ReadonlyMap<string, number>>();
    let nowMs = 0;
    const counter = new Strikes({
      tooMany: 30,
      onTooMany: () => new Promise(() => {}),
      share: async (added) => {
        shared.resolve(added);
        return [];
      },
      now: () => (nowMs += second / 2),
    });
    for (let i = 0; i < 30 + 59; i++) counter.throttled("k", day);
    expect([...(await shared.promise)]).toEqual([["k", 30]]);
  });

  test("shares nothing more once its gateway has closed it", () => {
    const { jest } = import.meta;
    jest.useFakeTimers();
    const share = jest.fn(async () => []);
    const counter = new Strikes({ tooMany: 30, onTooMany: async () => {}, share, now: () => 0 });
    counter.throttled("k", day);
    counter.close();
    jest.advanceTimersByTime(minute);
    expect(share).not.toHaveBeenCalled();
    jest.useRealTimers();
  });
});
