import { RateLimiterRes } from "rate-limiter-flexible";
import { AccountGuard, keyedUpdateLimit, MemoryGuardPoints, ownAccountLimit, rotationLimit } from "./account-guard.ts";

const { jest } = import.meta;
const realNow = Date.now;
afterEach(() => void jest.restoreAllMocks());

test("each guard of accounts counts in Redis under a name of its own below petstore:", () => {
  const prefixes = [ownAccountLimit, rotationLimit, keyedUpdateLimit(1)].map(({ keyPrefix }) => keyPrefix);
  for (const prefix of prefixes) expect(prefix).toMatch(/^petstore:/);
  expect(new Set(prefixes).size).toBe(prefixes.length);
});

test("a guard in memory counts on when the clock is set back, and names no wait above its window", async () => {
  const guard = new AccountGuard(ownAccountLimit, new MemoryGuardPoints(ownAccountLimit), () => {});
  for (let i = 0; i < 58; i++) await guard.charge("a");
  jest.spyOn(Date, "now").mockImplementation(() => realNow() - 3_600_000);
  for (const [admitted, remaining] of [
    [true, 1],
    [true, 0],
    [false, 0],
    [false, 0],
  ] as const) {
    const decision = await guard.charge("a");
    expect(decision).toMatchObject({ admitted, states: [{ remaining, used: 60 - remaining }] });
    expect(decision.states[0]!.resetAtMs - decision.nowMs).toBeLessThanOrEqual(60_000);
  }
});

test("every refusal of a guard names the end of its window, also while it is remembered", async () => {
  const guard = new AccountGuard(keyedUpdateLimit(1), new MemoryGuardPoints(keyedUpdateLimit(1)), () => {});
  expect(await guard.charge("a")).toMatchObject({ admitted: true });
  for (let refused = 0; refused < 3; refused++) {
    const { admitted, states, nowMs } = await guard.charge("a");
    expect(admitted).toBe(false);
    expect(states[0]!.resetAtMs - nowMs).toBeGreaterThan(86_000_000);
  }
});

test("large requests at once that a guard in memory refuses take nothing from smaller ones", async () => {
  const guard = new AccountGuard(keyedUpdateLimit(150), new MemoryGuardPoints(keyedUpdateLimit(150)), () => {});
  const decisions = await Promise.all([100, 100, 50].map((cost) => guard.charge("a", cost)));
  expect(decisions.map(({ admitted }) => admitted)).toEqual([true, false, true]);
});

test("an id with nothing left is refused for a minute without Redis, and never after its window", async () => {
  const charged: number[] = [];
  let nowMs = 1_000;
  jest.spyOn(performance, "now").mockImplementation(() => nowMs);
  for (const [leftMs, rememberedMs] of [
    [86_400_000, 60_000],
    [20_000, 19_999],
  ] as const) {
    charged.length = 0;
    const limiter = new MemoryGuardPoints(keyedUpdateLimit(1));
    limiter.consume = async () => {
      charged.push(nowMs);
      throw new RateLimiterRes(0, leftMs, 2, false);
    };
    const guard = new AccountGuard(keyedUpdateLimit(1), limiter, () => {});
    const startedMs = nowMs;
    const endsMs: number[] = [];
    for (const afterMs of [0, 1, rememberedMs, rememberedMs + 1]) {
      nowMs = startedMs + afterMs;
      const { states, nowMs: decidedMs } = await guard.charge("a");
      endsMs.push(Math.round(nowMs + states[0]!.resetAtMs - decidedMs) - startedMs);
    }
    expect(charged).toEqual([startedMs, startedMs + rememberedMs + 1]);
    expect(endsMs).toEqual([leftMs, leftMs, leftMs, rememberedMs + 1 + leftMs]);
  }
});
