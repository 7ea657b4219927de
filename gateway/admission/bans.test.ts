import type { Ban } from "../accounts/keys/key-store.ts";
import { createBanHandler, nextBan, publishedBanRules } from "./bans.ts";

const rules = publishedBanRules;
const minute = 60_000;
const day = 24 * 60 * minute;

describe("the ban ladder", () => {
  test("goes 5, 15, 60 minutes and stays at 60", () => {
    let nowMs = 0;
    let last: ReturnType<typeof nextBan> | undefined;
    const minutes = Array.from({ length: 4 }, () => {
      last = nextBan(last, rules, nowMs);
      const length = (last.untilMs - nowMs) / minute;
      nowMs = last.untilMs + minute;
      return length;
    });
    expect(minutes).toEqual([5, 15, 60, 60]);
  });

  test("starts again after a day without a ban", () => {
    const first = nextBan(undefined, rules, 0);
    expect(nextBan(first, rules, first.untilMs + day - 1).step).toBe(2);
    expect(nextBan(first, rules, first.untilMs + day).step).toBe(1);
  });

  test("gives two replicas that ban at once the same ban", () => {
    const first = nextBan(undefined, rules, 0);
    expect(nextBan(first, rules, 100)).toBe(first);
  });
});

describe("a ban of a family of keys", () => {
  /** Handlers of two replicas that share a store. */
  function setUp(lastBan?: () => Promise<Ban | undefined>) {
    let stored: Ban | undefined;
    const seen: { bans: [string, Ban, boolean][]; stores: number; errors: unknown[] } = {
      bans: [],
      stores: 0,
      errors: [],
    };
    const store = {
      lastBan: lastBan ?? (async () => stored),
      ban: async (_lineId: string, ban: Ban) => {
        stored = ban;
        seen.stores += 1;
      },
    };
    const replica = (nowMs: number) =>
      createBanHandler({
        store,
        rules,
        onBan: (...ban) => seen.bans.push(ban),
        onError: (error) => seen.errors.push(error),
        now: () => nowMs,
      });
    return { seen, replica, stored: () => stored };
  }

  test("a ban is stored and reported as new once, and by another replica as known", async () => {
    const { seen, replica, stored } = setUp();
    await replica(1_000)("family");
    await replica(1_100)("family");
    const ban = { untilMs: 1_000 + 5 * minute, step: 1, atMs: 1_000 };
    expect(stored()).toEqual(ban);
    expect(seen.bans).toEqual([
      ["family", ban, true],
      ["family", ban, false],
    ]);
    expect(seen.stores).toBe(1);
  });

  test("that cannot be stored is an error for the log and no rejection", async () => {
    const away = new Error("the store is away");
    const { seen, replica } = setUp(() => Promise.reject(away));
    await replica(0)("family");
    expect(seen).toEqual({ bans: [], stores: 0, errors: [away] });
  });
});
