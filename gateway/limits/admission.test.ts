import type { Request, Response } from "express";
import { Authenticator } from "../auth/authenticator.ts";
import { createKey, hashKey } from "../auth/key-format.ts";
import type { Principal } from "../auth/principal.ts";
import { ApiError } from "../http/errors.ts";
import type { Locals } from "../http/request-context.ts";
import { admission } from "./admission.ts";
import { MemoryWindows } from "./memory-windows.ts";
import { contractPlans, windowsOf } from "./plans.ts";

const pepper = "a-pepper-that-only-the-tests-know";
const guardPerMinute = 60;
const flooder = "192.0.2.1";
const second = 1_000;

const settle = () => new Promise(setImmediate);

/** What became of a request: `passed` or the code of the error that it got. */
type Outcome = string;

/** An entrance with a clock and a store of the test's own; a look-up takes some turns of the event loop. */
function setUp({ lookUpTurns = 3 } = {}) {
  const principals = new Map<string, Principal>();
  const clock = { nowMs: 1_000_000, stepMs: 0 };
  const now = () => (clock.nowMs += clock.stepMs);
  const store = { total: 0, underWay: 0, mostAtOnce: 0, away: false };
  const findByHash = async (keyHash: Buffer) => {
    store.total += 1;
    store.underWay += 1;
    store.mostAtOnce = Math.max(store.mostAtOnce, store.underWay);
    for (let turn = 0; turn < lookUpTurns; turn++) await settle();
    store.underWay -= 1;
    if (store.away) throw new Error("the store is away");
    return principals.get(keyHash.toString("hex"));
  };
  const limiter = new MemoryWindows({ maxCallers: 1_000, replicas: 1, now });
  const { admit } = admission({
    authenticator: new Authenticator({ store: { findByHash }, pepper, now }),
    onUse: () => {},
    onLikely: () => {},
    limiter,
    standing: (id, windows) => limiter.peek(id, windows),
    guard: new MemoryWindows({ maxCallers: 1_000, replicas: 1, now }),
    guardPerMinute,
    windowsOf: windowsOf({ ...contractPlans, free: { perMinute: 1_000_000, perDay: 1_000_000 } }),
    refusals: { refused: () => {} },
    onRefused: () => {},
    now,
  });
  return {
    clock,
    store,
    newKey: () => {
      const key = createKey("test");
      principals.set(hashKey(key, pepper).toString("hex"), {
        keyId: `key_${principals.size}`,
        accountId: `acc_${principals.size}`,
        plan: "free",
        limits: null,
        scopes: new Set(),
        expiresAtMs: null,
        bannedUntilMs: 0,
      });
      return key;
    },
    use: async (key: string, address = flooder): Promise<Outcome> => {
      const request = { headers: { authorization: `Bearer ${key}` }, rawHeaders: [] } as unknown as Request;
      const locals = { clientAddress: address, arrivedAtMs: clock.nowMs } as Locals;
      try {
        await admit(request, { locals } as unknown as Response);
      } catch (error) {
        expect(error).toBeInstanceOf(ApiError);
        expect(locals.limits).toHaveLength(10);
        return (error as ApiError).code;
      }
      return "passed";
    },
  };
}

const times = <T>(count: number, work: (i: number) => T): T[] => Array.from({ length: count }, (_, i) => work(i));
const count = (outcomes: readonly Outcome[], outcome: Outcome) => outcomes.filter((each) => each === outcome).length;

describe("a flood of made-up keys from one address", () => {
  test("all at once has as many look-ups as the limit of the address, and hardly more", async () => {
    const { use, store } = setUp();
    const outcomes = await Promise.all(times(1_000, () => use(createKey("test"))));
    expect(store.mostAtOnce).toBeLessThanOrEqual(guardPerMinute);
    expect(store.total).toBeLessThanOrEqual(guardPerMinute + 3);
    expect(count(outcomes, "invalid_api_key")).toBe(guardPerMinute);
    expect(count(outcomes, "rate_limit_exceeded")).toBe(1_000 - guardPerMinute);
  });

  test("that goes on has one look-up at a time, and at most 20 in a second", async () => {
    const { use, store, clock } = setUp();
    await Promise.all(times(200, () => use(createKey("test"))));
    Object.assign(store, { total: 0, mostAtOnce: 0 });
    const seconds = 50;
    for (let i = 0; i < seconds * 50; i++) {
      const outcomes = await Promise.all(times(4, () => use(createKey("test"))));
      expect(count(outcomes, "rate_limit_exceeded")).toBe(4);
      clock.nowMs += second / 50;
    }
    expect(store.mostAtOnce).toBe(1);
    expect(store.total).toBeLessThanOrEqual(20 * (seconds + 1));
    // Quiet times earn no more than a few.
    store.total = 0;
    clock.nowMs += 5 * second;
    for (let i = 0; i < 50; i++) await use(createKey("test"));
    expect(store.total).toBeLessThanOrEqual(5);
  });

  test("stops no good key that was seen before, also when it has to be looked up again", async () => {
    const { use, newKey, clock } = setUp();
    const key = newKey();
    expect(await use(key)).toBe("passed");
    for (let i = 0; i < 20; i++) {
      const flood = Promise.all(times(100, () => use(createKey("test"))));
      expect(await Promise.all(times(5, () => use(key)))).toEqual(Array(5).fill("passed"));
      await flood;
      clock.nowMs += second;
    }
  });

  test("lets a good key that nobody has seen through after some tries, and never calls it invalid", async () => {
    const { use, newKey, clock } = setUp();
    await Promise.all(times(200, () => use(createKey("test"))));
    const key = newKey();
    const outcomes: Outcome[] = [];
    const endMs = clock.nowMs + 50 * second; // within the minute whose limit is spent
    // About 1,000 requests in a second; the good key comes every 20 ms or so, before or behind others of that moment.
    while (outcomes.at(-1) !== "passed" && clock.nowMs < endMs) {
      const flood = Math.random() < 0.5 ? 1 : 2;
      const isGood = Math.random() < 0.07;
      const turn = Math.floor(Math.random() * (flood + 1));
      for (let i = 0; i <= flood; i++) {
        if (i !== turn) void use(createKey("test"));
        else if (isGood) void use(key).then((outcome) => outcomes.push(outcome));
      }
      clock.nowMs += 1.5;
      await settle();
    }
    expect(new Set(outcomes.slice(0, -1))).not.toContain("invalid_api_key");
    expect(outcomes.at(-1)).toBe("passed");
  });

  test("calls no good key invalid at the moment at which the address's minute begins anew", async () => {
    for (let offset = 0; offset < 8; offset++) {
      const { use, newKey, clock } = setUp({ lookUpTurns: 0 });
      const endMs = clock.nowMs + 60 * second;
      await Promise.all(times(100, () => use(createKey("test"))));
      clock.nowMs = endMs - 10;
      for (let i = 0; i < 20; i++) await use(createKey("test")); // those of this second
      clock.nowMs = endMs - offset;
      clock.stepMs = 1; // with each look at it, so that the minute ends between two of them
      expect(await use(newKey())).toMatch(/^(passed|rate_limit_exceeded)$/);
    }
  });

  test("is no concern of other addresses", async () => {
    const { use, newKey } = setUp();
    const flood = Promise.all(times(500, () => use(createKey("test"))));
    expect(await Promise.all(times(50, () => use(newKey(), "198.51.100.7")))).toEqual(Array(50).fill("passed"));
    await flood;
    expect(await use(createKey("test"), "198.51.100.7")).toBe("invalid_api_key");
  });
});

describe("good keys that nobody has seen here, as after a restart", () => {
  test("all pass, 500 of them from one address at once", async () => {
    const { use, newKey, store } = setUp();
    expect(count(await Promise.all(times(500, () => use(newKey()))), "passed")).toBe(500);
    expect(store.mostAtOnce).toBeLessThanOrEqual(guardPerMinute);
    expect(store.total).toBe(500);
  });

  test("pass with 500 requests at once, and one look-up", async () => {
    const { use, newKey, store } = setUp();
    const key = newKey();
    expect(count(await Promise.all(times(500, () => use(key))), "passed")).toBe(500);
    expect(store.total).toBe(1);
  });

  test("are told to try again while the store is away, and wait for nothing", async () => {
    const { use, newKey, store } = setUp();
    store.away = true;
    const outcomes = await Promise.all(times(500, () => use(newKey())));
    expect(count(outcomes, "service_unavailable")).toBe(500);
    expect(store.total).toBeLessThanOrEqual(guardPerMinute);
    store.away = false;
    expect(await use(newKey())).toBe("passed");
  });
});
