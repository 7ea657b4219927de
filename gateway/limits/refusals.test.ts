import { RefusalCounter } from "./refusals.ts";

const minute = 60_000;

/** A counter with a clock of its own, and the keys that it has reported. */
function counterOf(tooMany: number) {
  const found: string[] = [];
  const clock = { nowMs: 0 };
  const counter = new RefusalCounter({ tooMany, onTooMany: (keyId) => found.push(keyId), now: () => clock.nowMs });
  const refuse = (keyId: string, atMs: number, arrivedAtMs = atMs) => {
    clock.nowMs = atMs;
    counter.refused(keyId, arrivedAtMs);
  };
  return { found, refuse };
}

describe("counting refusals", () => {
  test("reports a key once, at its 30th refusal within a minute", () => {
    const { found, refuse } = counterOf(30);
    for (let i = 0; i < 29; i++) refuse("k", i);
    expect(found).toEqual([]);
    for (let i = 29; i < 90; i++) refuse("k", i);
    expect(found).toEqual(["k"]);
  });

  test("never reports a key with 29 refusals in each minute", () => {
    const { found, refuse } = counterOf(30);
    for (let i = 0; i < 5 * 29; i++) refuse("k", Math.floor(i / 29) * minute + (i % 29));
    expect(found).toEqual([]);
  });

  test("leaves out requests that were under way when the first 429 went out", () => {
    const { found, refuse } = counterOf(30);
    for (let i = 0; i < 100; i++) refuse("k", 10 + i, 10);
    expect(found).toEqual([]);
  });

  test("goes on when the clock is set back by an hour", () => {
    const { found, refuse } = counterOf(30);
    refuse("k", 60 * minute);
    for (let i = 0; i < 40; i++) refuse("k", i);
    expect(found).toEqual(["k"]);
  });

  test("counts each key by itself", () => {
    const { found, refuse } = counterOf(2);
    refuse("a", 1);
    refuse("b", 2);
    refuse("a", 3);
    expect(found).toEqual(["a"]);
  });

  test("adds up the counts of replicas, and one of them reports the key", async () => {
    const totals = new Map<string, number>();
    const found: number[] = [];
    const reported = Promise.withResolvers<void>();
    const replicas = [0, 1, 2].map(
      (replica) =>
        new RefusalCounter({
          tooMany: 30,
          onTooMany: () => {
            found.push(replica);
            reported.resolve();
          },
          share: async (added) => {
            for (const [keyId, count] of added) totals.set(keyId, (totals.get(keyId) ?? 0) + count);
            return new Map(totals);
          },
          now: () => 1_000,
        }),
    );
    for (const replica of replicas) for (let i = 0; i < 11; i++) replica.refused("k", 1_000 + i);
    await reported.promise;
    expect(found).toHaveLength(1);
  });
});
