import { nextBan, publishedBanRules, RefusalCounter } from "./bans.ts";

const rules = publishedBanRules;
const minute = 60_000;
const day = 24 * 60 * minute;

describe("the ban ladder", () => {
  test("goes 5, 15, 60 minutes and stays there while the key keeps on", () => {
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

  test("begins anew after a day without a ban", () => {
    const first = nextBan(undefined, rules, 0);
    expect(nextBan(first, rules, first.untilMs + day - 1).step).toBe(2);
    expect(nextBan(first, rules, first.untilMs + day).step).toBe(1);
  });

  test("two replicas that ban at once agree on one step", () => {
    const first = nextBan(undefined, rules, 0);
    expect(nextBan(first, rules, 100)).toBe(first);
  });
});

describe("refusals", () => {
  test("the 30th within a minute is one too many, and the count begins anew after it", () => {
    const counter = new RefusalCounter(rules);
    const verdicts = Array.from({ length: 31 }, (_, i) => counter.refused("k", i, i));
    expect(verdicts.indexOf(true)).toBe(29);
    expect(verdicts.filter(Boolean)).toHaveLength(1);
  });

  test("29 in each minute bring no ban", () => {
    const counter = new RefusalCounter(rules);
    for (let i = 0; i < 5 * 29; i++) {
      const atMs = Math.floor(i / 29) * minute + (i % 29);
      expect(counter.refused("k", atMs, atMs)).toBe(false);
    }
  });

  test("requests that were under way when the first 429 went out do not count", () => {
    const counter = new RefusalCounter(rules);
    for (let i = 0; i < 100; i++) expect(counter.refused("k", 10, 10 + i)).toBe(false);
  });

  test("keys are counted apart", () => {
    const counter = new RefusalCounter({ ...rules, refusals: 2 });
    expect(counter.refused("a", 1, 1)).toBe(false);
    expect(counter.refused("b", 2, 2)).toBe(false);
    expect(counter.refused("a", 3, 3)).toBe(true);
  });
});
