import { deleteOldAdjustments, retentionMs, startAdjustmentCleanup } from "./adjustment-cleanup.ts";

test("old adjustments are deleted step by step until none is left, and each step continues after the previous one", async () => {
  const asked: unknown[][] = [];
  const store = {
    deleteAdjustments: async (...args: unknown[]) => {
      asked.push(args);
      return [7n, 9n][asked.length - 1];
    },
  };
  await deleteOldAdjustments(store, new AbortController().signal);
  expect(asked).toEqual([0n, 7n, 9n].map((after) => [retentionMs, 500, after]));
});

test("a failed cleanup is reported, and a stop does not wait for the next interval", async () => {
  const fault = new Error("the database is away");
  const reported = Promise.withResolvers<unknown>();
  const store = { deleteAdjustments: () => Promise.reject(fault) };
  const stop = startAdjustmentCleanup({ store, onError: reported.resolve });
  expect(await reported.promise).toBe(fault);
  await stop();
});

test("a stop ends a long cleanup after the current step", async () => {
  const begun = Promise.withResolvers<void>();
  let steps = 0n;
  const deleteAdjustments = async () => {
    begun.resolve();
    steps += 1n;
    return steps; // more always remains
  };
  const stop = startAdjustmentCleanup({ store: { deleteAdjustments }, onError: () => {} });
  await begun.promise;
  await stop();
  expect(steps).toBe(1n);
});
