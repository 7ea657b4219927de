import { nextBan, publishedBanRules } from "./bans.ts";

const rules = publishedBanRules;
const minute = 60_000;
const day = 24 * 60 * minute;

describe("the ban ladder", () => {
  test("the ban ladder goes 5, 15, 60 minutes and stays at 60", () => {
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

  test("the ban ladder starts again after a day without a ban", () => {
    const first = nextBan(undefined, rules, 0);
    expect(nextBan(first, rules, first.untilMs + day - 1).step).toBe(2);
    expect(nextBan(first, rules, first.untilMs + day).step).toBe(1);
  });

  test("the ban ladder gives two replicas that ban at once the same ban", () => {
    const first = nextBan(undefined, rules, 0);
    expect(nextBan(first, rules, 100)).toBe(first);
  });
});
