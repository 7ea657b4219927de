import { setImmediate } from "node:timers/promises";
import { deleteOldRecords, retentionMs, startCleanup } from "./cleanup.ts";

/** A stock in which nothing is old. */
const idle = { deleteRecords: async () => undefined, noteTime: async () => {}, forgetRemovals: async () => false };

test("old records are deleted until none is left, in steps that each continue after the last one", async () => {
  const asked: unknown[][] = [];
  const store = {
    deleteRecords: async (...args: unknown[]) => {
      asked.push(args);
      return [7n, 9n][asked.length - 1];
    },
  };
  await deleteOldRecords(store, new AbortController().signal);
  expect(asked).toEqual([0n, 7n, 9n].map((after) => [retentionMs, 500, after]));
});

test("a failed cleanup is reported, and a stop does not wait for the next interval", async () => {
  const fault = new Error("the database is away");
  const reported = Promise.withResolvers<unknown>();
  const store = { deleteRecords: () => Promise.reject(fault) };
  const stop = startCleanup({ retention: { ...idle, ...store }, onError: reported.resolve });
  expect(await reported.promise).toBe(fault);
  await stop();
});

test("a stop ends a long cleanup after the current step", async () => {
  const begun = Promise.withResolvers<void>();
  let steps = 0n;
  const deleteRecords = async () => {
    begun.resolve();
    steps += 1n;
    return steps; // more always remains
  };
  const stop = startCleanup({ retention: { ...idle, deleteRecords }, onError: () => {} });
  await begun.promise;
  await stop();
  expect(steps).toBe(1n);
});

test("a stop waits for the cleanup's statement that is running, and no statement follows it", async () => {
  const begun = Promise.withResolvers<void>();
  const statement = Promise.withResolvers<bigint>();
  let steps = 0;
  const deleteRecords = () => {
    steps += 1;
    begun.resolve();
    return statement.promise;
  };
  const stop = startCleanup({ retention: { ...idle, deleteRecords }, onError: () => {} });
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
  const done = Promise.withResolvers<void>();
  const retention = {
    deleteRecords: () => Promise.reject(new Error("the database is away")),
    noteTime: async (...args: unknown[]) => void asked.push(args),
    forgetRemovals: async (...args: unknown[]) => {
      asked.push(args);
      if (asked.length === 4) done.resolve();
      return asked.length < 4;
    },
  };
  const stop = startCleanup({ retention, onError: () => {} });
  await done.promise;
  await stop();
  const step = [30 * 24 * 3_600_000, 500];
  expect(asked).toEqual([[3_600_000], step, step, step]);
});
