import { forgetOld, rememberedMs, startForgetting } from "./adjustment-cleanup.ts";

test("what is old is forgotten step by step, each after the one before it, until none is left", async () => {
  const asked: unknown[][] = [];
  const store = {
    forgetAdjustments: async (...args: unknown[]) => {
      asked.push(args);
      return [7n, 9n][asked.length - 1];
    },
  };
  await forgetOld(store, rememberedMs + 1_000, new AbortController().signal);
  expect(asked).toEqual([0n, 7n, 9n].map((after) => [1_000, 500, after]));
});

test("a failure is told and ends nothing, and a stop waits for no pause", async () => {
  const fault = new Error("the database is away");
  const told = Promise.withResolvers<unknown>();
  const store = { forgetAdjustments: () => Promise.reject(fault) };
  const stop = startForgetting({ store, now: () => 0, onError: told.resolve });
  expect(await told.promise).toBe(fault);
  await stop();
});

test("a stop ends a long work after its present step", async () => {
  const begun = Promise.withResolvers<void>();
  let steps = 0n;
  const forgetAdjustments = async () => {
    begun.resolve();
    steps += 1n;
    return steps; // never done
  };
  const stop = startForgetting({ store: { forgetAdjustments }, now: () => 0, onError: () => {} });
  await begun.promise;
  await stop();
  expect(steps).toBe(1n);
});
