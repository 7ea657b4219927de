import { RefusalCounter } from "./refusals.ts";

const minute = 60_000;

/** A counter with a clock of its own that tells which keys it found to be refused too often. */
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

describe("refusals", () => {
  test("the 30th within a minute is one too many, told once", () => {
    const { found, refuse } = counterOf(30);
    for (let i = 0; i < 29; i++) refuse("k", i);
    expect(found).toEqual([]);
    for (let i = 29; i < 90; i++) refuse("k", i);
    expect(found).toEqual(["k"]);
  });

  test("29 in each minute are never too many", () => {
    const { found, refuse } = counterOf(30);
    for (let i = 0; i < 5 * 29; i++) refuse("k", Math.floor(i / 29) * minute + (i % 29));
    expect(found).toEqual([]);
  });

  test("requests that were under way when the first 429 went out do not count", () => {
    const { found, refuse } = counterOf(30);
    for (let i = 0; i < 100; i++) refuse("k", 10 + i, 10);
    expect(found).toEqual([]);
  });

  test("keys are counted apart", () => {
    const { found, refuse } = counterOf(2);
    refuse("a", 1);
    refuse("b", 2);
    refuse("a", 3);
    expect(found).toEqual(["a"]);
  });

  test("replicas that share their counts find it together, and one of them says so", async () => {
    const totals = new Map<string, number>();
    const found: number[] = [];
    const told = Promise.withResolvers<void>();
    const replicas = [0, 1, 2].map(
      (replica) =>
        new RefusalCounter({
          tooMany: 30,
          onTooMany: () => {
            found.push(replica);
            told.resolve();
          },
          share: async (added) => {
            for (const [keyId, count] of added) totals.set(keyId, (totals.get(keyId) ?? 0) + count);
            return new Map(totals);
          },
          now: () => 1_000,
        }),
    );
    for (const replica of replicas) for (let i = 0; i < 11; i++) replica.refused("k", 1_000 + i);
    await told.promise;
    expect(found).toHaveLength(1);
  });
});
