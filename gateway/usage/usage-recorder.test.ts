import { pino } from "pino";
import type { DeprecatedUse } from "../auth/key-store.ts";
import type { AccountMinute } from "./traffic.ts";
import { UsageRecorder } from "./usage-recorder.ts";

const minute = 60_000;
const day = 24 * 60 * minute;
const start = Date.UTC(2026, 0, 31, 12, 0, 10);
const minuteStart = start - 10_000;

/** A recorder with a clock and stores of the test's own, that writes when it is closed. */
function setUp() {
  const clock = { nowMs: start };
  const touched = new Map<string, number>();
  const deprecated: DeprecatedUse[] = [];
  const added: AccountMinute[][] = [];
  const forgotten: number[] = [];
  const faults = { touch: 0, deprecated: 0, traffic: 0, trafficAfter: 0 };
  const meanwhile = { deprecated: () => {} };
  const logged: string[] = [];
  const writing = { now: 0, mostAtOnce: 0 };
  const fail = (what: "touch" | "deprecated" | "traffic") => {
    if (faults[what] === 0) return;
    faults[what] -= 1;
    throw new Error("the database is away");
  };
  const recorder = new UsageRecorder({
    intervalMs: day,
    now: () => clock.nowMs,
    log: pino({}, { write: (line: string) => void logged.push(JSON.parse(line).msg) }),
    store: {
      touch: async (uses) => {
        fail("touch");
        for (const { keyId, atMs } of uses) touched.set(keyId, atMs);
      },
      countDeprecatedUse: async (uses) => {
        meanwhile.deprecated();
        fail("deprecated");
        deprecated.push(...uses);
      },
    },
    traffic: {
      add: async (minutes) => {
        writing.now += 1;
        writing.mostAtOnce = Math.max(writing.mostAtOnce, writing.now);
        for (let turn = 0; turn < 5; turn++) await new Promise(setImmediate);
        writing.now -= 1;
        if (faults.trafficAfter > 0 && added.length >= faults.trafficAfter) fail("traffic");
        else if (faults.trafficAfter === 0) fail("traffic");
        added.push([...minutes]);
      },
      forgetBefore: async (ms) => void forgotten.push(ms),
    },
  });
  const use = (accountId: string, times = 1) => {
    for (let i = 0; i < times; i++) recorder.used({ keyId: `key of ${accountId}`, accountId });
  };
  return { recorder, clock, use, touched, deprecated, added, forgotten, faults, meanwhile, logged, writing };
}

/** Requests by account and minutes since the start. */
const summed = (added: readonly AccountMinute[][]) => {
  const sums: Record<string, number> = {};
  for (const { accountId, minuteStartMs, requests } of added.flat()) {
    const name = `${accountId}+${(minuteStartMs - minuteStart) / minute}`;
    sums[name] = (sums[name] ?? 0) + requests;
  }
  return sums;
};

const utcDay = (ms: number) => new Date(ms).toISOString().slice(0, 10);

describe("the use of keys", () => {
  test("is summed up by account and minute, and written once", async () => {
    const { recorder, clock, use, added, touched } = setUp();
    use("a", 3);
    use("b");
    clock.nowMs += 49_999; // the end of the minute
    use("a");
    clock.nowMs += 1;
    use("a", 2);
    clock.nowMs -= minute; // a clock that is set back
    use("b");
    await recorder.close();
    expect(summed(added)).toEqual({ "a+0": 4, "b+0": 2, "a+1": 2 });
    expect(added.flat()).toHaveLength(3);
    expect(touched.get("key of a")).toBe(start + 50_000);
    await recorder.close();
    expect(added.flat()).toHaveLength(3);
  });

  test("is written in small transactions", async () => {
    const { recorder, use, added } = setUp();
    for (let i = 0; i < 250; i++) use(`a${i}`);
    await recorder.close();
    expect(added.map((minutes) => minutes.length)).toEqual([100, 100, 50]);
  });

  test("is forgotten after 7 days", async () => {
    const { recorder, forgotten } = setUp();
    await recorder.close();
    expect(forgotten).toEqual([start - 7 * day]);
  });

  test("that cannot be written waits, and what was written is not written again", async () => {
    const { recorder, use, added, faults, logged, deprecated } = setUp();
    for (let i = 0; i < 150; i++) use(`a${i}`, 2);
    recorder.deprecatedRouteUsed("a1");
    Object.assign(faults, { touch: 1, deprecated: 1, traffic: 1, trafficAfter: 1 });
    await recorder.close();
    expect(logged).toEqual(Array(3).fill("the use of keys could not be noted"));
    expect(added.flat()).toHaveLength(100);
    for (let i = 0; i < 150; i++) use(`a${i}`);
    recorder.deprecatedRouteUsed("a1");
    await recorder.close();
    expect(Object.values(summed(added))).toEqual(Array(150).fill(3));
    expect(deprecated).toMatchObject([{ accountId: "a1", requests: 2 }]);
  });

  test("of the deprecated route counts on the UTC day of the request, whenever it is written", async () => {
    const { recorder, clock, deprecated, faults } = setUp();
    const today = Date.UTC(2026, 0, 31);
    clock.nowMs = today + day - 15_000; // 23:59:45Z
    recorder.deprecatedRouteUsed("b");
    recorder.deprecatedRouteUsed("a");
    faults.deprecated = 1;
    await recorder.close();
    recorder.deprecatedRouteUsed("a");
    clock.nowMs = today + day + 15_000;
    recorder.deprecatedRouteUsed("b");
    faults.deprecated = 1;
    await recorder.close();
    recorder.deprecatedRouteUsed("b");
    await recorder.close();
    const days = deprecated.map(({ accountId, requests, atMs }) => [accountId, requests, utcDay(atMs)]);
    expect(days).toEqual([
      ["b", 1, "2026-01-31"],
      ["a", 2, "2026-01-31"],
      ["b", 2, "2026-02-01"],
    ]);
    await recorder.close();
    expect(deprecated).toHaveLength(3);
  });

  test("of the deprecated route is written with the earlier day first, so that gateways cannot deadlock", async () => {
    const { recorder, clock, deprecated, faults, meanwhile } = setUp();
    recorder.deprecatedRouteUsed("a");
    faults.deprecated = 1;
    meanwhile.deprecated = () => {
      clock.nowMs += day;
      recorder.deprecatedRouteUsed("a"); // before the other day is put back
    };
    await recorder.close();
    meanwhile.deprecated = () => {};
    await recorder.close();
    expect(deprecated.map(({ atMs }) => utcDay(atMs))).toEqual(["2026-01-31", "2026-02-01"]);
  });

  test("of the deprecated route waits for a week at most", async () => {
    const { recorder, clock, deprecated, faults } = setUp();
    for (let i = 0; i < 10; i++) {
      recorder.deprecatedRouteUsed("a");
      faults.deprecated = 1;
      await recorder.close();
      clock.nowMs += day;
    }
    await recorder.close();
    expect(deprecated.map(({ atMs }) => (start - (start % day) + 10 * day - atMs) / day)).toEqual([
      7, 6, 5, 4, 3, 2, 1,
    ]);
  });

  test("waits for an hour at most, so that memory stays bounded while the database is away", async () => {
    const { recorder, clock, use, added, faults } = setUp();
    for (let i = 0; i < 100; i++) {
      use("a");
      clock.nowMs += minute;
      faults.traffic = 1;
      await recorder.close();
    }
    faults.traffic = 0;
    await recorder.close();
    expect(Object.keys(summed(added))).toEqual(Array.from({ length: 60 }, (_, i) => `a+${40 + i}`));
  });

  test("is written by one at a time, however slow the database is", async () => {
    const { recorder, use, added, writing } = setUp();
    const closing: Promise<void>[] = [];
    for (let i = 0; i < 3; i++) {
      use("a");
      closing.push(recorder.close());
      await new Promise(setImmediate);
    }
    await Promise.all(closing);
    expect(summed(added)).toEqual({ "a+0": 3 });
    expect(writing.mostAtOnce).toBe(1);
  });
});
