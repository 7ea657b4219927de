import { pino } from "pino";
import type { ChargeOutcome } from "../../admission/admission.ts";
import { UsageRecorder } from "./usage-recorder.ts";
import type { AccountMinute, DeprecatedUse } from "./usage-store.ts";

const minute = 60_000;
const day = 24 * 60 * minute;
const start = Date.UTC(2026, 0, 31, 12, 0, 10);
const minuteStart = start - 10_000;

/** A recorder with a clock and a store of the test's own, which writes when it is closed. */
function setUp() {
  const clock = { nowMs: start };
  const touched = new Map<string, number>();
  const deprecated: DeprecatedUse[] = [];
  const added: AccountMinute[][] = [];
  const forgotten: number[] = [];
  const faults = { touch: 0, deprecated: 0, minutes: 0, minutesAfter: 0 };
  const during = { countDeprecatedUse: () => {}, readSteps: async () => {} };
  const logged: string[] = [];
  const writing = { now: 0, mostAtOnce: 0 };
  const fail = (what: "touch" | "deprecated" | "minutes") => {
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
        during.countDeprecatedUse();
        fail("deprecated");
        deprecated.push(...uses);
      },
      addMinutes: async (minutes) => {
        writing.now += 1;
        writing.mostAtOnce = Math.max(writing.mostAtOnce, writing.now);
        for (let turn = 0; turn < 5; turn++) await new Promise(setImmediate);
        writing.now -= 1;
        if (added.length >= faults.minutesAfter) fail("minutes");
        added.push([...minutes]);
      },
      forgetMinutesBefore: async (ms) => void forgotten.push(ms),
      readSteps: async ({ accountId, stepMs }) => {
        await during.readSteps();
        return added
          .flat()
          .filter((minute) => minute.accountId === accountId)
          .map(({ minuteStartMs, requests, refused }) => ({
            stepStartMs: minuteStartMs - (minuteStartMs % stepMs),
            requests,
            refused,
          }));
      },
      readDeprecatedUse: async ({ accountId }) =>
        deprecated.filter((use) => use.accountId === accountId).reduce((sum, { requests }) => sum + requests, 0),
    },
  });
  const use = (accountId: string, times = 1, kind: ChargeOutcome = "charged") => {
    for (let i = 0; i < times; i++) recorder.used({ keyId: `key of ${accountId}`, accountId }, kind);
  };
  const useDeprecated = (accountId: string, operation = "getPet") => recorder.deprecatedUsed(accountId, operation);
  return {
    recorder,
    clock,
    use,
    useDeprecated,
    touched,
    deprecated,
    added,
    forgotten,
    faults,
    during,
    logged,
    writing,
  };
}

/** Sums up the requests by account and minutes since the start. */
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

  test("is written with the refused requests, and without those that are not charged", async () => {
    const { recorder, use, added, touched } = setUp();
    use("a", 3);
    use("a", 2, "refused");
    use("b", 4, "uncharged");
    await recorder.close();
    expect(added.flat()).toEqual([{ accountId: "a", minuteStartMs: minuteStart, requests: 5, refused: 2 }]);
    expect(touched.has("key of b")).toBe(true);
  });

  test("is written in small transactions", async () => {
    const { recorder, use, added } = setUp();
    for (let i = 0; i < 250; i++) use(`a${i}`);
    await recorder.close();
    expect(added.map((minutes) => minutes.length)).toEqual([100, 100, 50]);
  });

  test("is deleted after 8 days", async () => {
    const { recorder, forgotten } = setUp();
    await recorder.close();
    expect(forgotten).toEqual([start - 8 * day]);
  });

  test("is kept after a failed write, and no part of it is written twice", async () => {
    const { recorder, use, useDeprecated, added, faults, logged, deprecated } = setUp();
    for (let i = 0; i < 150; i++) use(`a${i}`, 2);
    useDeprecated("a1");
    Object.assign(faults, { touch: 1, deprecated: 1, minutes: 1, minutesAfter: 1 });
    await recorder.close();
    expect(logged).toEqual(Array(3).fill("the use of keys is written later: counts are kept"));
    expect(added.flat()).toHaveLength(100);
    for (let i = 0; i < 150; i++) use(`a${i}`);
    useDeprecated("a1");
    await recorder.close();
    expect(Object.values(summed(added))).toEqual(Array(150).fill(3));
    expect(deprecated).toMatchObject([{ accountId: "a1", requests: 2 }]);
  });

  test("has the last use of each key after a failed write, also of those that are used no more", async () => {
    const { recorder, clock, use, touched, faults } = setUp();
    use("a");
    use("b");
    faults.touch = 1;
    await recorder.save();
    clock.nowMs += minute;
    use("b");
    await recorder.close();
    expect(Object.fromEntries(touched)).toEqual({ "key of a": start, "key of b": start + minute });
    touched.clear();
    await recorder.close();
    expect(touched.size).toBe(0);
  });

  test("is kept by minutes while the database is away, for 300,000 at most: the oldest are lost", async () => {
    const { recorder, clock, use, added, faults } = setUp();
    for (let i = 0; i < 5; i++) {
      for (let account = 0; account < 100_000; account++) use(`${account}`);
      clock.nowMs += minute;
      faults.minutes = 1;
      await recorder.save();
    }
    await recorder.close();
    const rows = added.flat().map(({ accountId, minuteStartMs }) => `${accountId} ${minuteStartMs}`);
    expect(new Set(rows).size).toBe(300_000);
    const lostMs = minuteStart + 2 * minute;
    expect(added.flat().filter(({ minuteStartMs }) => minuteStartMs < lostMs)).toEqual([]);
  });

  test("is written again where an account has more of it meanwhile, and only what is new", async () => {
    const { recorder, use, added } = setUp();
    for (let i = 0; i < 150; i++) use(`a${i}`, 3);
    const writing = recorder.save();
    await new Promise(setImmediate);
    use("a0", 2);
    use("b");
    await writing;
    expect(added.flat()).toHaveLength(150);
    await recorder.close();
    expect(added.flat().slice(150)).toMatchObject([
      { accountId: "a0", requests: 2 },
      { accountId: "b", requests: 1 },
    ]);
  });

  test("is written by one write at a time, however slow the database is", async () => {
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

describe("the use of deprecated operations", () => {
  test("is summed up by account, operation and day, and written once", async () => {
    const { recorder, useDeprecated, deprecated } = setUp();
    for (const accountId of ["a", "b", "a"]) useDeprecated(accountId);
    useDeprecated("a", "getOrders");
    await recorder.close();
    await recorder.close();
    const atMs = start - (start % day);
    expect(deprecated).toEqual([
      { accountId: "a", operation: "getPet", requests: 2, atMs },
      { accountId: "b", operation: "getPet", requests: 1, atMs },
      { accountId: "a", operation: "getOrders", requests: 1, atMs },
    ]);
  });

  test("counts on the UTC day of the request, whenever it is written", async () => {
    const { recorder, clock, useDeprecated, deprecated, faults } = setUp();
    const today = Date.UTC(2026, 0, 31);
    clock.nowMs = today + day - 15_000; // 23:59:45Z
    useDeprecated("b");
    useDeprecated("a");
    faults.deprecated = 1;
    await recorder.close();
    useDeprecated("a");
    clock.nowMs = today + day + 15_000;
    useDeprecated("b");
    faults.deprecated = 1;
    await recorder.close();
    useDeprecated("b");
    await recorder.close();
    const days = deprecated.map(({ accountId, requests, atMs }) => [accountId, requests, utcDay(atMs)]);
    expect(days).toEqual([
      ["b", 1, "2026-01-31"],
      ["a", 2, "2026-01-31"],
      ["b", 2, "2026-02-01"],
    ]);
  });

  test("is written in small transactions, and none twice after one that failed", async () => {
    const { recorder, useDeprecated, deprecated, during, faults } = setUp();
    const written: number[] = [];
    during.countDeprecatedUse = () => {
      if (written.push(deprecated.length) === 2) faults.deprecated = 1;
    };
    for (let i = 0; i < 250; i++) useDeprecated(`a${i}`);
    await recorder.close();
    await recorder.close();
    expect(written).toEqual([0, 100, 100, 200]);
    expect(deprecated.map(({ requests }) => requests)).toEqual(Array(250).fill(1));
    expect(new Set(deprecated.map(({ accountId }) => accountId)).size).toBe(250);
  });

  test("that is counted during a failed write is written with the rest", async () => {
    const { recorder, clock, useDeprecated, deprecated, faults, during } = setUp();
    useDeprecated("a");
    faults.deprecated = 1;
    during.countDeprecatedUse = () => {
      useDeprecated("a");
      clock.nowMs += day;
      useDeprecated("a");
    };
    await recorder.close();
    during.countDeprecatedUse = () => {};
    await recorder.close();
    const days = Object.fromEntries(deprecated.map(({ requests, atMs }) => [utcDay(atMs), requests]));
    expect(days).toEqual({ "2026-01-31": 2, "2026-02-01": 1 });
  });

  test("is kept for at most a week while the database is away", async () => {
    const { recorder, clock, useDeprecated, deprecated, faults } = setUp();
    for (let i = 0; i < 10; i++) {
      useDeprecated("a");
      faults.deprecated = 1;
      await recorder.close();
      clock.nowMs += day;
    }
    await recorder.close();
    expect(deprecated.map(({ atMs }) => (start - (start % day) + 10 * day - atMs) / day)).toEqual([
      7, 6, 5, 4, 3, 2, 1,
    ]);
  });
});

describe("the use of an account that is read", () => {
  const hour = 60 * minute;
  const range = { accountId: "a", fromMs: minuteStart, stepMs: hour };

  test("has what is stored and what is not written yet, from its start on", async () => {
    const { recorder, clock, use, useDeprecated } = setUp();
    use("a", 1);
    useDeprecated("a");
    await recorder.close();
    use("a", 2, "refused");
    use("b", 50);
    useDeprecated("a");
    useDeprecated("b");
    clock.nowMs += minute;
    use("a", 4);
    clock.nowMs += hour;
    use("a", 8);
    clock.nowMs -= 2 * hour;
    use("a", 100);
    clock.nowMs -= day;
    useDeprecated("a");
    expect(await recorder.read(range)).toEqual({
      steps: [
        { stepStartMs: minuteStart, requests: 7, refused: 2 },
        { stepStartMs: minuteStart + hour, requests: 8, refused: 0 },
      ],
      deprecated: 2,
    });
  });

  test("counts each request once while it is being written, whatever the read has seen", async () => {
    const { recorder, use, added, during } = setUp();
    use("a", 3);
    const writing = recorder.close();
    await new Promise(setImmediate);
    const total = async () => (await recorder.read(range)).steps.reduce((sum, { requests }) => sum + requests, 0);
    expect(await total()).toBe(3); // asked during a write
    await writing;
    use("a", 4);
    let reads = 0;
    during.readSteps = async () => {
      reads += 1;
      if (reads === 1) await recorder.close(); // a write during the read
    };
    expect(await total()).toBe(7);
    expect(reads).toBe(2);
    expect(added.flat()).toHaveLength(2);
  });
});

test("a read of the use of an account fails in the end if counts are written at each attempt", async () => {
  const { recorder, use, during } = setUp();
  let reads = 0;
  during.readSteps = async () => {
    reads += 1;
    use("a");
    void recorder.close(); // begins a write
    await new Promise(setImmediate);
  };
  const read = recorder.read({ accountId: "a", fromMs: minuteStart, stepMs: minute });
  await expect(read).rejects.toThrow("counts were being written");
  expect(reads).toBe(3);
});
