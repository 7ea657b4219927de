import { setImmediate } from "node:timers/promises";
import { deleteOldRecords, retentionMs, startRecordCleanup } from "./record-cleanup.ts";

test("old records are deleted step by step until none is left, and each step continues after the previous one", async () => {
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
  const stop = startRecordCleanup({ store, onError: reported.resolve });
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
  const stop = startRecordCleanup({ store: { deleteRecords }, onError: () => {} });
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
  const stop = startRecordCleanup({ store: { deleteRecords }, onError: () => {} });
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
