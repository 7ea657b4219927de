import type { IncomingMessage } from "node:http";
import { RateLimiterMemory } from "rate-limiter-flexible";
import { madeUpKey } from "../../test/support/made-keys.ts";
import { Authenticator } from "../accounts/keys/authenticator.ts";
import { createKey, hashKey } from "../accounts/keys/key-format.ts";
import type { FoundKey } from "../accounts/keys/key-store.ts";
import { publishedPlans } from "../accounts/keys/plans.ts";
import type { Scope } from "../accounts/keys/principal.ts";
import { ApiError } from "../http/api-error.ts";
import type { RequestContext } from "../http/request-context.ts";
import { MemoryWindows } from "../limits/memory-windows.ts";
import { windowsByPlan } from "../limits/windows.ts";
import { AccountGuard, ownAccountLimit } from "./account-guard.ts";
import { createAdmission, type OperationAccess } from "./admission.ts";

const pepper = "a-pepper-that-only-the-tests-know";
const addressGuardPerMinute = 60;
const flooder = "192.0.2.1";
const second = 1_000;

const settle = () => new Promise(setImmediate);

/** The outcome of a request: `passed`, or the code of its error. */
type Outcome = string;

interface SetUp {
  /** The limit of an account, in requests per minute. */
  readonly perMinute?: number;
}

afterEach(() => void import.meta.jest.restoreAllMocks());

/** An admission with a clock and a store of the test's own. */
function setUp({ perMinute = 1_000_000 }: SetUp = {}) {
  const principals = new Map<string, FoundKey>();
  const clock = { nowMs: 1_000_000 };
  const now = () => clock.nowMs;
  import.meta.jest.spyOn(Date, "now").mockImplementation(now); // the guard of addresses uses it
  const store = { total: 0, away: false };
  const findByHash = async (keyHash: Buffer) => {
    store.total += 1;
    await settle();
    if (store.away) throw new Error("the store is away");
    return principals.get(keyHash.toString("hex"));
  };
  const used: string[] = [];
  const reasons: string[] = [];
  const refused: { readonly familyId: string; readonly waitMs: number }[] = [];
  const limiter = new MemoryWindows({ maxAccounts: 1_000, gatewayCount: 1, now });
  const { admit, readmit } = createAdmission({
    authenticator: new Authenticator({ store: { findByHash }, peppers: [pepper], now }),
    onUse: ({ keyId }, use) => used.push(`${keyId} ${use}`),
    limiter,
    windowsFor: windowsByPlan({ ...publishedPlans, free: { perMinute, perDay: 1_000_000 } }),
    ownAccountGuard: new AccountGuard(ownAccountLimit, new RateLimiterMemory(ownAccountLimit), () =>
      reasons.push("account"),
    ),
    addressGuardPerMinute,
    strikes: { throttled: (familyId, waitMs) => refused.push({ familyId, waitMs }) },
    onThrottled: (_plan, reason) => reasons.push(reason),
    now,
  });
  const contextFrom = (address: string) => ({ clientAddress: address }) as RequestContext;
  const send = (key: string, context: RequestContext, operation?: OperationAccess) =>
    outcomeOf(key, context, (request) => admit(request, context, operation));
  type Work = (request: IncomingMessage) => Promise<void>;
  const outcomeOf = async (key: string, context: RequestContext, work: Work): Promise<Outcome> => {
    const headers = { authorization: `Bearer ${key}` };
    const request = { headers, rawHeaders: [], socket: {} } as unknown as IncomingMessage;
    try {
      await work(request);
    } catch (error) {
      expect(error).toBeInstanceOf(ApiError);
      expect(context.limitHeaders).toHaveLength(10);
      return (error as ApiError).code;
    }
    return "passed";
  };
  return {
    clock,
    store,
    used,
    refused,
    reasons,
    newKey: (scopes: readonly Scope[] = [], more: Partial<FoundKey> = {}) => {
      const key = createKey("test", pepper);
      principals.set(hashKey(key, pepper).toString("hex"), {
        keyId: `key_${principals.size}`,
        familyId: `line_${principals.size}`,
        accountId: `acc_${principals.size}`,
        plan: "free",
        limits: null,
        scopes: new Set(scopes),
        expiresAtMs: null,
        endsInMs: Number.POSITIVE_INFINITY,
        bannedUntilMs: 0,
        ...more,
      });
      return key;
    },
    contextFrom,
    send,
    /** A request that was held goes on. */
    goOn: (key: string, context: RequestContext) => outcomeOf(key, context, () => readmit(context)),
    revoke: (key: string) => void principals.delete(hashKey(key, pepper).toString("hex")),
    use: (key: string, address = flooder) => send(key, contextFrom(address)),
  };
}

const times = <T>(count: number, work: (i: number) => T): T[] => Array.from({ length: count }, (_, i) => work(i));
const count = (outcomes: readonly Outcome[], outcome: Outcome) => outcomes.filter((each) => each === outcome).length;

test("made-up keys cause no look-up, and are refused by the limit of their address", async () => {
  const { use, store } = setUp();
  const outcomes = await Promise.all(times(1_000, () => use(madeUpKey())));
  expect(count(outcomes, "invalid_api_key")).toBe(addressGuardPerMinute);
  expect(count(outcomes, "rate_limit_exceeded")).toBe(1_000 - addressGuardPerMinute);
  expect(store.total).toBe(0);
});

test("a valid key passes from an address with nothing left, and an ended key gets 429", async () => {
  const { use, newKey, revoke, clock } = setUp();
  const [known, ended] = [newKey(), newKey()];
  expect(await use(known)).toBe("passed");
  revoke(ended);
  await Promise.all(times(100, () => use(madeUpKey())));
  expect(await use(newKey())).toBe("passed");
  clock.nowMs += 8 * second; // the known key has to be looked up again
  expect(await use(known)).toBe("passed");
  expect(await use(ended)).toBe("rate_limit_exceeded");
  expect(await use(ended, "198.51.100.7")).toBe("invalid_api_key");
});

test("500 new valid keys at once all pass, and get 503 while the store is away", async () => {
  const { use, newKey, store } = setUp();
  store.away = true;
  expect(count(await Promise.all(times(500, () => use(newKey()))), "service_unavailable")).toBe(500);
  store.away = false;
  expect(count(await Promise.all(times(500, () => use(newKey()))), "passed")).toBe(500);
});

test("a refusal is counted with the wait that its answer announces", async () => {
  const { send, contextFrom, newKey, clock, refused } = setUp({ perMinute: 1 });
  const key = newKey();
  expect(await send(key, contextFrom(flooder))).toBe("passed");
  const context = contextFrom(flooder);
  expect(await send(key, context)).toBe("rate_limit_exceeded");
  const resetAtMs = Number(context.limitHeaders[5]) * second;
  expect(refused).toEqual([{ familyId: "line_0", waitMs: resetAtMs - clock.nowMs }]);
  expect(resetAtMs).toBeGreaterThan(clock.nowMs);
});

test("the use of every valid key is recorded, of a banned one and of one beyond its limits too", async () => {
  const { use, newKey, clock, used } = setUp({ perMinute: 1 });
  const [key, banned] = [newKey(), newKey([], { bannedUntilMs: clock.nowMs + 1 })];
  expect(await use(key)).toBe("passed");
  expect(await use(key)).toBe("rate_limit_exceeded");
  expect(await use(banned)).toBe("api_key_banned");
  expect(await use(madeUpKey())).toBe("invalid_api_key");
  expect(used).toEqual(["key_0 charged", "key_0 refused", "key_1 refused"]);
});

describe("uncharged operations", () => {
  const uncharged: OperationAccess = { scope: null, isUncharged: true };

  test("an uncharged operation answers an exhausted, a banned and a scopeless key with its windows", async () => {
    const { send, use, contextFrom, newKey, clock, used } = setUp({ perMinute: 1 });
    const [key, banned] = [newKey(), newKey([], { bannedUntilMs: clock.nowMs + 1 })];
    await use(key);
    for (let i = 0; i < 3; i++) {
      const context = contextFrom(flooder);
      expect(await send(key, context, uncharged)).toBe("passed");
      expect(context.shownWindows).toMatchObject([{ name: "minute", remaining: 0 }, { remaining: 999_999 }]);
      expect(context.limitHeaders.join()).toContain("X-RateLimit-Limit,1,X-RateLimit-Remaining,0");
    }
    const context = contextFrom(flooder);
    expect(await send(banned, context, uncharged)).toBe("passed");
    expect(context.shownWindows).toMatchObject([{ name: "minute", remaining: 1 }, { remaining: 1_000_000 }]);
    expect(used.slice(1)).toEqual([...Array(3).fill("key_0 uncharged"), "key_1 uncharged"]);
  });

  test("an uncharged operation has 60 requests a minute for an account, and its refusals ban none", async () => {
    const { send, use, contextFrom, newKey, refused, reasons } = setUp({ perMinute: 1 });
    const key = newKey();
    for (let i = 0; i < 60; i++) expect(await send(key, contextFrom(flooder), uncharged)).toBe("passed");
    for (let i = 0; i < 40; i++) {
      const context = contextFrom(flooder);
      expect(await send(key, context, uncharged)).toBe("rate_limit_exceeded");
      expect(context.limitHeaders.slice(0, 4)).toEqual(["X-RateLimit-Limit", "60", "X-RateLimit-Remaining", "0"]);
    }
    expect(refused).toEqual([]);
    expect(reasons).toEqual(Array(40).fill("account"));
    expect(await use(key)).toBe("passed");
    expect(await send(newKey(), contextFrom(flooder), uncharged)).toBe("passed");
  });
});

test("a held request goes on only with a key that is still valid, and gets 503 in case of doubt", async () => {
  const { send, goOn, revoke, contextFrom, newKey, clock, store } = setUp();
  const [key, context] = [newKey(), contextFrom(flooder)];
  expect(await send(key, context)).toBe("passed");
  clock.nowMs += 8 * second; // the key has to be looked up again
  store.away = true;
  expect(await goOn(key, context)).toBe("service_unavailable");
  store.away = false;
  expect(await goOn(key, context)).toBe("passed");
  revoke(key);
  clock.nowMs += 8 * second;
  expect(await goOn(key, context)).toBe("invalid_api_key");
});

describe("work during the decision", () => {
  const operation = (began: string[]): OperationAccess => ({
    scope: "inventory:read",
    prefetch: async () => {
      began.push("prefetch");
      return "the list";
    },
  });

  test("what an operation begins while the limits are decided is kept for its handler", async () => {
    const { send, contextFrom, newKey } = setUp();
    const [context, began]: [RequestContext, string[]] = [contextFrom(flooder), []];
    expect(await send(newKey(["inventory:read"]), context, operation(began))).toBe("passed");
    expect(await context.prefetched).toBe("the list");
    expect(began).toEqual(["prefetch"]);
  });

  test("an operation begins nothing for a caller without the scope, which is charged and gets 403", async () => {
    const { send, contextFrom, newKey } = setUp({ perMinute: 1 });
    const began: string[] = [];
    const key = newKey(["store:read"]);
    expect(await send(key, contextFrom(flooder), operation(began))).toBe("insufficient_scope");
    expect(await send(key, contextFrom(flooder), operation(began))).toBe("rate_limit_exceeded");
    expect(began).toEqual([]);
  });

  test("an operation begins nothing for a banned key", async () => {
    const { send, contextFrom, newKey, clock } = setUp();
    const began: string[] = [];
    const key = newKey(["inventory:read"], { bannedUntilMs: clock.nowMs + 1 });
    expect(await send(key, contextFrom(flooder), operation(began))).toBe("api_key_banned");
    expect(began).toEqual([]);
  });

  test("what an operation begins before the decision may fail without harm when it is refused", async () => {
    const { send, contextFrom, newKey } = setUp({ perMinute: 1 });
    const failing: OperationAccess = {
      scope: "inventory:read",
      prefetch: () => Promise.reject(new Error("the stock is away")),
    };
    const key = newKey(["inventory:read"]);
    const context = contextFrom(flooder);
    expect(await send(key, context, failing)).toBe("passed");
    await expect(context.prefetched).rejects.toThrow("the stock is away");
    expect(await send(key, contextFrom(flooder), failing)).toBe("rate_limit_exceeded");
    await settle();
  });
});
