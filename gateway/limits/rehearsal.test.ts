import fc from "fast-check";
import { contractPlans, parsePlans, quotaWindows } from "./plans.ts";
import { type MinuteCount, peaksOf, rehearse } from "./rehearsal.ts";
import { type Count, charge } from "./windows.ts";

const minute = 60_000;
const dayStart = Date.UTC(2026, 0, 31);

/** Counts at minutes after the beginning of a day. */
const at = (...counts: [number, number][]): MinuteCount[] =>
  counts.map(([minutes, requests]) => ({ minuteStartMs: dayStart + minutes * minute, requests }));

describe("a rehearsal of limits", () => {
  test.each<[string, MinuteCount[], number, number, [number, number, number]]>([
    ["nothing", [], 1, 1, [0, 0, 0]],
    ["traffic within them", at([0, 60], [1, 60], [1_440, 60]), 60, 120, [0, 0, 0]],
    ["a minute above them", at([0, 60], [5, 61], [6, 70]), 60, 1_000, [11, 2, 1]],
    ["a day above them", at([0, 50], [1, 50], [2, 50]), 60, 120, [30, 1, 1]],
    ["a day that goes on after its end", at([0, 50], [1, 50], [2, 50], [3, 10]), 60, 100, [60, 2, 1]],
    ["what the minute refuses, which costs nothing of the day", at([0, 1_000], [1, 40]), 60, 100, [940, 1, 1]],
    ["each day by itself", at([0, 100], [1_440, 100], [2_879, 100]), 100, 100, [100, 1, 1]],
  ])("counts %s", (_what, minutes, perMinute, perDay, [requests, refusedMinutes, days]) => {
    expect(rehearse(minutes, { perMinute, perDay })).toEqual({ requests, minutes: refusedMinutes, days });
  });

  test("agrees with the windows themselves where those begin with full minutes and days", () => {
    const traffic = fc.array(fc.tuple(fc.integer({ min: 0, max: 3 }), fc.integer({ min: 0, max: 9 })), {
      maxLength: 40,
    });
    fc.assert(
      fc.property(
        traffic,
        fc.integer({ min: 1, max: 8 }),
        fc.integer({ min: 1, max: 30 }),
        (steps, perMinute, perDay) => {
          const windows = quotaWindows({ perMinute, perDay });
          let counts: readonly Count[] | undefined = [];
          let [minutes, refused] = [0, 0];
          const counted: MinuteCount[] = [];
          for (const [pause, requests] of steps) {
            minutes += 1 + pause;
            if (minutes >= 1_440) break;
            counted.push(...at([minutes, requests]));
            for (let i = 0; i < requests; i++) {
              const charged = charge(counts, windows, 1, dayStart + minutes * minute);
              counts = charged.counts;
              if (!charged.decision.admitted) refused += 1;
            }
          }
          expect(rehearse(counted, { perMinute, perDay }).requests).toBe(refused);
        },
      ),
    );
  });

  test("knows the busiest minute and day", () => {
    expect(peaksOf(at([0, 5], [1, 9], [2, 9], [1_440, 20]))).toEqual({
      minute: { minuteStartMs: dayStart + 1_440 * minute, requests: 20 },
      day: { day: "2026-01-31", requests: 23 },
      requests: 43,
    });
  });
});

describe("a table of plans", () => {
  test("names plans and their limits; the others stay as they are", () => {
    const free = { perMinute: 30, perDay: 500 };
    expect(parsePlans("free=30/500", contractPlans)).toEqual({ ...contractPlans, free });
    const business = { perMinute: 1, perDay: 9_999_999_999 };
    expect(parsePlans(" free=30/500 , business=1/9999999999", contractPlans)).toEqual({
      ...contractPlans,
      free,
      business,
    });
  });

  test.each([
    "",
    "free",
    "free=30",
    "free=0/5",
    "free=30/-5",
    "gold=1/2",
    "enterprise=1/2",
    "free=1/2,",
    "free=1/2 pro=1/2",
  ])("is not %j", (text) => {
    expect(parsePlans(text, contractPlans)).toBeUndefined();
  });
});
