import { setImmediate } from "node:timers/promises";
import { ledgerSteps, startCleanup } from "./cleanup.ts";

/** A stock in which nothing is old. */
const idle = {
  deleteFromLedger: async () => undefined,
  noteTime: async () => {},
  hasGap: async () => false,
  forgetRemovals: async () => false,
};
const silent = { onError: () => {}, onWait: () => {} };

test("old records are deleted until none is left, in steps that each continue after the last one", async () => {
  const asked: unknown[][] = [];
  const store = {
    deleteFromLedger: async (...args: unknown[]) => {
      asked.push(args);
      return [7n, 9n, undefined, -3n][asked.length - 1];
    },
  };
  for (const step of ledgerSteps(store, 60_000)) while (await step());
  expect(asked).toEqual([
    [60_000, 500, "revisions", 0n],
    [60_000, 500, "revisions", 7n],
    [60_000, 500, "revisions", 9n],
    [60_000, 500, "unchanged", 0n],
    [60_000, 500, "unchanged", -3n],
  ]);
});

test("a failed cleanup is reported, and a stop does not wait for the next interval", async () => {
  const fault = new Error("the database is away");
  const reported = Promise.withResolvers<unknown>();
  const store = { deleteFromLedger: () => Promise.reject(fault) };
  const stop = startCleanup({
    ledgerKeptMs: 60_000,
    retention: { ...idle, ...store },
    ...silent,
    onError: reported.resolve,
  });
  expect(await reported.promise).toBe(fault);
  await stop();
});

test("a clock that is set forward within a long cleanup holds up its next step", async () => {
  const waits = Promise.withResolvers<void>();
  let steps = 0n;
  const retention = {
    ...idle,
    deleteFromLedger: async () => {
      steps += 1n;
      return steps; // more always remains
    },
    hasGap: async () => steps === 2n,
  };
  const stop = startCleanup({ ledgerKeptMs: 60_000, retention, ...silent, onWait: waits.resolve });
  await waits.promise;
  await stop();
  expect(steps).toBe(2n);
});

test("a stop ends a long cleanup after the current step", async () => {
  const begun = Promise.withResolvers<void>();
  let steps = 0n;
  const deleteFromLedger = async () => {
    begun.resolve();
    steps += 1n;
    return steps; // more always remains
  };
  const stop = startCleanup({ ledgerKeptMs: 60_000, retention: { ...idle, deleteFromLedger }, ...silent });
  await begun.promise;
  await stop();
  expect(steps).toBe(1n);
});

test("a stop waits for the cleanup's statement that is running, and no statement follows it", async () => {
  const begun = Promise.withResolvers<void>();
  const statement = Promise.withResolvers<bigint>();
  let steps = 0;
  const deleteFromLedger = () => {
    steps += 1;
    begun.resolve();
    return statement.promise;
  };
  const stop = startCleanup({ ledgerKeptMs: 60_000, retention: { ...idle, deleteFromLedger }, ...silent });
  await begun.promise;
  let isStopped = false;
  const stopping = stop().then(() => {
    isStopped = true;
  });
  await setImmediate();
  expect(isStopped).toBe(false);
  statement.resolve(500n);
  await stopping;
  expect(steps).toBe(1);
});

test("old removals are forgotten step by step, also when old records cannot be deleted", async () => {
  const asked: unknown[][] = [];
  const noted = new Set<number>();
  const done = Promise.withResolvers<void>();
  const retention = {
    ...idle,
    deleteFromLedger: () => Promise.reject(new Error("the database is away")),
    noteTime: async (intervalMs: number) => void noted.add(intervalMs),
    forgetRemovals: async (...args: unknown[]) => {
      asked.push(args);
      if (asked.length === 3) done.resolve();
      return asked.length < 3;
    },
  };
  const stop = startCleanup({ ledgerKeptMs: 60_000, retention, ...silent });
  await done.promise;
  await stop();
  const step = [30 * 24 * 3_600_000, 500];
  expect([...noted]).toEqual([3_600_000]);
  expect(asked).toEqual([step, step, step]);
});

test("what is old is deleted, also when the time cannot be noted", async () => {
  const fault = new Error("the disk is full");
  const reported: unknown[] = [];
  const deleted: string[] = [];
  const done = Promise.withResolvers<void>();
  const retention = {
    ...idle,
    noteTime: () => Promise.reject(fault),
    deleteFromLedger: async (_ageMs: number, _limit: number, kind: string) => void deleted.push(kind),
    forgetRemovals: async () => {
      done.resolve();
      return false;
    },
  };
  const onError = (error: unknown) => reported.push(error);
  const stop = startCleanup({ ledgerKeptMs: 60_000, retention, ...silent, onError });
  await done.promise;
  await stop();
  expect(deleted).toEqual(["revisions", "unchanged"]);
  expect(reported).toEqual([fault]);
});
