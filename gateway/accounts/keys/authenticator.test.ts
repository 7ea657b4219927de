import { jest } from "@jest/globals";
import { Authenticator } from "./authenticator.ts";
import { createKey, hashKey } from "./key-format.ts";
import type { FoundKey } from "./key-store.ts";

const pepper = "a-pepper-that-only-the-tests-know";
const oldPepper = "the-pepper-before-that-of-the-tests";

interface Question {
  readonly token: string;
  readonly answer: (principal: FoundKey | null | undefined) => void;
  readonly fail: (error: Error) => void;
}

/**
 * An authenticator with clocks and a store of the test's own. The store answers from `keys` at once or, while `slow`,
 * when the test calls `answer`.
 */
function setUp() {
  const keys = new Map<string, FoundKey | null>();
  const hashes = new Map<string, string>();
  const asked: Question[] = [];
  const clock = { unixMs: 1_000_000, elapsedMs: 500 };
  const state = { slow: false, away: false };
  const authenticator = new Authenticator({
    peppers: [pepper, oldPepper],
    now: () => clock.unixMs,
    elapsedMs: () => clock.elapsedMs,
    store: {
      findByHash: (keyHash) => {
        const token = hashes.get(keyHash.toString("hex")) ?? "";
        const { promise, resolve, reject } = Promise.withResolvers<FoundKey | null | undefined>();
        asked.push({ token, answer: resolve, fail: reject });
        if (state.away) reject(new Error("the store is unavailable"));
        else if (!state.slow) resolve(keys.get(token));
        return promise;
      },
    },
  });
  return {
    authenticator,
    asked,
    clock,
    state,
    pass: (ms: number) => {
      clock.unixMs += ms;
      clock.elapsedMs += ms;
    },
    /** A key that the store knows, unless `isKnown` is false. */
    newKey: (more: Partial<FoundKey> = {}, isKnown = true, under = pepper) => {
      const token = createKey("test", under);
      hashes.set(hashKey(token, under).toString("hex"), token);
      const principal: FoundKey = {
        keyId: `key_${hashes.size}`,
        familyId: `key_${hashes.size}`,
        accountId: `acc_${hashes.size}`,
        plan: "free",
        limits: null,
        scopes: new Set(),
        expiresAtMs: null,
        endsInMs: Number.POSITIVE_INFINITY,
        bannedUntilMs: 0,
        ...more,
      };
      if (isKnown) keys.set(token, principal);
      return {
        token,
        principal,
        end: () => void keys.set(token, null),
        change: (changes: Partial<FoundKey>) => void keys.set(token, { ...principal, ...changes }),
      };
    },
    use: (token: string) => authenticator.authenticate(token),
  };
}

/** Runs everything that is pending in this process. */
const settle = () => new Promise(setImmediate);

describe("known keys", () => {
  test("a known key is looked up again in the background after 4 s, and before a use after 8 s", async () => {
    const { use, newKey, pass, asked, state } = setUp();
    const { token, principal } = newKey();
    for (let i = 0; i < 3; i++) expect(await use(token)).toEqual(principal);
    pass(3_999);
    expect(await use(token)).toEqual(principal);
    expect(asked).toHaveLength(1);

    state.slow = true;
    pass(1);
    expect(await use(token)).toEqual(principal); // no request waits for the second look-up
    expect(await use(token)).toEqual(principal);
    expect(asked).toHaveLength(2);
    pass(4_000);
    const waiting = use(token);
    await settle();
    expect(asked).toHaveLength(2); // the request shares the look-up that is under way
    asked[1]!.answer(principal);
    expect(await waiting).toEqual(principal);
  });

  test("a known key in constant use ends within 8 s of its end, even without an invalidation", async () => {
    const { use, newKey, pass } = setUp();
    const key = newKey();
    let goodForMs = 0;
    await use(key.token);
    pass(100);
    key.end();
    while ((await use(key.token)) !== undefined) {
      pass(250);
      goodForMs += 250;
      await settle();
    }
    expect(goodForMs).toBeLessThanOrEqual(8_000);
  });

  test("a known key is as old as the question that found it, not as its answer", async () => {
    const { use, newKey, pass, state, asked } = setUp();
    const { token, principal } = newKey();
    state.slow = true;
    const first = use(token);
    pass(5_000);
    asked[0]!.answer(principal);
    expect(await first).toBe(principal);
    pass(3_000);
    state.slow = false;
    await use(token); // the answer is 3 s old, and the question 8 s
    expect(asked).toHaveLength(2);
  });

  test("a known key is remembered from its look-up until it expires, and no other key is", async () => {
    const { use, newKey, pass, authenticator, asked } = setUp();
    const { token, principal } = newKey({ endsInMs: 2_000 });
    expect(authenticator.remembered(token)).toBeUndefined();
    await use(token);
    pass(1_999);
    expect(authenticator.remembered(token)).toEqual(principal);
    pass(1);
    expect(authenticator.remembered(token)).toBeUndefined();
    expect(asked).toHaveLength(1);
  });

  test("a known key ends at the moment of its expiry, even between two look-ups", async () => {
    const { use, newKey, pass, asked } = setUp();
    const { token, end } = newKey({ endsInMs: 2_000 });
    expect(await use(token)).toBeDefined();
    pass(1_999);
    expect(await use(token)).toBeDefined();
    expect(asked).toHaveLength(1);
    end();
    pass(1);
    expect(await use(token)).toBeUndefined();
    expect(asked).toHaveLength(2);
  });

  test.each([-3_600_000, 3_600_000])("a key's end does not move when the clock is set by %d ms", async (stepMs) => {
    const { use, newKey, clock, pass } = setUp();
    const key = newKey({ endsInMs: 2_000 });
    await use(key.token);
    clock.unixMs += stepMs;
    key.change({ endsInMs: 1_000 });
    pass(1_000);
    expect(await use(key.token)).toBeDefined();
    key.end();
    pass(1_000);
    expect(await use(key.token)).toBeUndefined();
  });

  test.each([
    ["set back by an hour", -3_600_000, 8_000],
    ["set back by 5 s", -5_000, 8_000],
    ["set ahead by an hour", 3_600_000, 0],
  ])("a known key is not valid for longer when the clock is %s", async (_what, stepMs, passMs) => {
    const { use, newKey, clock, pass } = setUp();
    const key = newKey();
    await use(key.token);
    key.end();
    clock.unixMs += stepMs;
    pass(passMs);
    expect(await use(key.token)).toBeUndefined();
  });

  test("a known key gets no longer life when the machine sleeps, although one clock stands still", async () => {
    const { use, newKey, clock } = setUp();
    const key = newKey();
    await use(key.token);
    key.end();
    clock.unixMs += 8_000;
    expect(await use(key.token)).toBeUndefined();
  });
});

describe("ended keys", () => {
  test("keys that have ended cost one look-up each in an hour, up to 50,000 of them", async () => {
    const { use, newKey, pass, asked } = setUp();
    const ended = Array.from({ length: 50_000 }, () => newKey());
    for (const { token, end } of ended) {
      end();
      expect(await use(token)).toBeUndefined();
    }
    for (const ms of [8_000, 3_591_999]) {
      pass(ms);
      for (const { token } of ended) await use(token);
    }
    expect(asked).toHaveLength(50_000);
    pass(1);
    expect(await use(ended[0]!.token)).toBeUndefined();
    expect(asked).toHaveLength(50_001);
  });

  test("keys that have ended keep no new key from its look-up, once each of them was looked up", async () => {
    const { use, newKey, pass, asked, state } = setUp();
    const ended = Array.from({ length: 1_000 }, () => newKey());
    for (const { token, end } of ended) {
      end();
      await use(token);
    }
    pass(8_000);
    state.slow = true;
    for (const { token } of ended) void use(token);
    const { token, principal } = newKey();
    const found = use(token);
    asked.at(-1)!.answer(principal);
    expect(await found).toEqual(principal);
  });
});

describe("unknown keys", () => {
  test("an unknown key is not looked up again for 8 s", async () => {
    const { use, newKey, pass, asked } = setUp();
    const { token } = newKey({}, false);
    for (let i = 0; i < 3; i++) expect(await use(token)).toBeUndefined();
    pass(7_999);
    expect(await use(token)).toBeUndefined();
    expect(asked).toHaveLength(1);
    pass(1);
    expect(await use(token)).toBeUndefined();
    expect(asked).toHaveLength(2);
  });

  test("a key that was made up or has a typo costs no look-up, and displaces no unknown key", async () => {
    const { use, newKey, asked } = setUp();
    const { token } = newKey({}, false);
    await use(token);
    const typo = token.slice(0, -1) + (token.endsWith("x") ? "y" : "x");
    const madeUp = Array.from({ length: 50_001 }, () => createKey("test", "a-pepper-of-somewhere-else-entirely"));
    for (const each of ["", "null", typo, `${token}x`, "k".repeat(10_000), ...madeUp]) {
      expect(await use(each)).toBeUndefined();
    }
    await use(token);
    expect(asked).toHaveLength(1);
  });

  test("an unknown key displaces no valid key, and 50,000 unknown ones are remembered", async () => {
    const { use, newKey, asked } = setUp();
    const { token } = newKey();
    await use(token);
    const unknown = Array.from({ length: 50_001 }, () => newKey({}, false).token);
    for (const each of unknown) await use(each);
    asked.length = 0;
    expect(await use(token)).toBeDefined();
    await use(unknown.at(-1)!);
    expect(asked).toEqual([]);
    await use(unknown[0]!); // the oldest is no longer remembered
    expect(asked).toHaveLength(1);
  });
});

describe("look-ups", () => {
  test("a key of the old pepper is found with one look-up, as one of the current pepper is", async () => {
    const { use, newKey, pass, asked } = setUp();
    const [old, current] = [newKey({}, true, oldPepper), newKey()];
    for (const { token, principal } of [old, current]) expect(await use(token)).toEqual(principal);
    expect(asked.map(({ token }) => token)).toEqual([old.token, current.token]);
    pass(5_000);
    expect(await use(old.token)).toEqual(old.principal);
    expect(asked).toHaveLength(3);
  });

  test("200 requests at once with a new key are one look-up", async () => {
    const { use, newKey, asked, state } = setUp();
    const { token, principal } = newKey();
    state.slow = true;
    const uses = Array.from({ length: 200 }, () => use(token));
    await settle();
    asked[0]!.answer(principal);
    for (const found of await Promise.all(uses)) expect(found).toEqual(principal);
    expect(asked).toHaveLength(1);
  });

  test("an answer that comes 8 s after its look-up is not used, as after a freeze of the process", async () => {
    for (const isKnown of [true, false]) {
      const { use, newKey, pass, asked, state } = setUp();
      const { token, principal } = newKey();
      if (isKnown) await use(token);
      pass(8_000);
      asked.length = 0;
      state.slow = true;
      const before = use(token);
      pass(8_000);
      const after = use(token);
      expect(asked).toHaveLength(1);
      asked[0]!.answer(principal);
      await settle();
      expect(asked).toHaveLength(2);
      asked[1]!.answer(null); // revoked meanwhile
      for (const late of [before, after]) expect(await late).toBeUndefined();
    }
  });

  test("at most 1,000 new keys are looked up at once, and known keys go on beside them", async () => {
    const { use, newKey, pass, asked, state } = setUp();
    const known = newKey();
    await use(known.token);
    pass(8_000);
    state.slow = true;
    const waiting = Array.from({ length: 1_000 }, () => newKey()).map(({ token }) => ({ token, answer: use(token) }));
    await expect(use(newKey().token)).rejects.toThrow("1000 keys that this gateway has not used yet");
    const shared = use(waiting[0]!.token);
    const refresh = use(known.token);
    expect(asked).toHaveLength(1_002);
    for (const { answer } of asked) answer(known.principal);
    for (const each of [shared, refresh, ...waiting.map(({ answer }) => answer)]) expect(await each).toBeDefined();
    state.slow = false;
    expect(await use(newKey().token)).toBeDefined();
  });
});

describe("invalidations", () => {
  test("an invalidation causes a look-up at the next use of the key", async () => {
    const { use, newKey, authenticator } = setUp();
    const key = newKey();
    const other = newKey();
    await use(key.token);
    await use(other.token);
    key.end();
    authenticator.forget(key.principal.keyId);
    expect(await use(key.token)).toBeUndefined();
    expect(await use(other.token)).toEqual(other.principal);
  });

  test("an invalidation of an account reaches all of its keys and no others", async () => {
    const { use, newKey, authenticator, asked } = setUp();
    const keys = Array.from({ length: 6 }, (_, i) => newKey({ accountId: i % 3 === 0 ? "acc_other" : "acc_one" }));
    for (const { token } of keys) await use(token);
    for (const { change } of keys) change({ plan: "pro" });
    asked.length = 0;
    authenticator.forget("acc_one");
    const plans: (string | undefined)[] = [];
    for (const { token } of keys) plans.push((await use(token))?.plan);
    expect(plans).toEqual(["free", "pro", "pro", "free", "pro", "pro"]);
    expect(asked).toHaveLength(4);
  });

  test("an invalidation of a family reaches all of its keys and no others", async () => {
    const { use, newKey, authenticator, asked } = setUp();
    const keys = Array.from({ length: 6 }, (_, i) => newKey({ familyId: i % 3 === 0 ? "key_other" : "key_first" }));
    for (const { token } of keys) await use(token);
    asked.length = 0;
    authenticator.forget("key_first");
    for (const { token } of keys) await use(token);
    expect(asked).toHaveLength(4);
  });

  test("a look-up counts only for the requests before an invalidation that arrives during it", async () => {
    const { use, newKey, authenticator, asked, state } = setUp();
    const { token, principal } = newKey();
    state.slow = true;
    const before = use(token);
    await settle();
    authenticator.forget(principal.keyId);
    const after = use(token);
    await settle();
    expect(asked).toHaveLength(2);
    asked[1]!.answer(undefined); // revoked, as the second look-up sees it
    expect(await after).toBeUndefined();
    asked[0]!.answer(principal); // the first one was slower
    expect(await before).toEqual(principal);
    expect(await use(token)).toBeUndefined();
  });

  test("an invalidation during a look-up of a known key makes later requests wait for a new one", async () => {
    const { use, newKey, authenticator, asked, state, pass } = setUp();
    const { token, principal } = newKey();
    await use(token);
    state.slow = true;
    pass(5_000);
    expect(await use(token)).toEqual(principal); // and looks it up in the background
    const banned = { ...principal, bannedUntilMs: 9_000_000 };
    authenticator.forget(principal.keyId);
    const later = use(token);
    await settle();
    asked[1]!.answer(principal);
    await settle();
    const another = use(token);
    await settle();
    expect(asked).toHaveLength(3);
    asked[2]!.answer(banned);
    expect(await later).toEqual(banned);
    expect(await another).toEqual(banned);
    // Neither answer has replaced a newer one.
    const next = use(token);
    await settle();
    asked[3]?.answer(banned);
    expect(await next).toEqual(banned);
  });

  test("an invalidation of an unknown id changes nothing", async () => {
    const { use, newKey, authenticator, asked } = setUp();
    const { token } = newKey();
    await use(token);
    authenticator.forget("key_of_another");
    await use(token);
    expect(asked).toHaveLength(1);
  });
});

describe("an unavailable store", () => {
  test("a known key works for 8 s without the store, then no key works until the store is back", async () => {
    const { use, newKey, pass, state } = setUp();
    const { token, principal } = newKey();
    await use(token);
    state.away = true;
    pass(7_999);
    expect(await use(token)).toEqual(principal);
    pass(1);
    for (let i = 0; i < 3; i++) await expect(use(token)).rejects.toThrow("the store is unavailable");
    await expect(use(newKey().token)).rejects.toThrow("the store is unavailable");
    state.away = false;
    expect(await use(token)).toEqual(principal);
  });

  test("no request waits longer than 2 s for a look-up, whose answer still counts when it comes", async () => {
    jest.useFakeTimers();
    try {
      const { use, newKey, asked, state } = setUp();
      const { token, principal } = newKey();
      state.slow = true;
      const first = expect(use(token)).rejects.toThrow("no answer within 2000 ms");
      await jest.advanceTimersByTimeAsync(1_500);
      const second = use(token);
      await jest.advanceTimersByTimeAsync(600);
      await first;
      asked[0]!.answer(principal);
      expect(await second).toEqual(principal);
      expect(await use(token)).toEqual(principal);
      expect(asked).toHaveLength(1);
    } finally {
      jest.useRealTimers();
    }
  });

  test("a failed look-up is not remembered as an answer", async () => {
    const { use, newKey, state, asked } = setUp();
    const { token, principal } = newKey();
    state.away = true;
    await expect(use(token)).rejects.toThrow("the store is unavailable");
    state.away = false;
    expect(await use(token)).toEqual(principal);
    expect(asked).toHaveLength(2);
  });

  test("a failed look-up in the background fails no request", async () => {
    const { use, newKey, pass, asked, state } = setUp();
    const { token, principal } = newKey();
    await use(token);
    pass(5_000);
    state.away = true;
    for (let i = 0; i < 3; i++) {
      expect(await use(token)).toEqual(principal);
      await settle();
    }
    expect(asked).toHaveLength(4);
  });
});
