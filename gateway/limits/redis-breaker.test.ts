import { Breaker } from "./redis-breaker.ts";

const never = () => new Promise<never>(() => {});
const answer = async () => "answer";
const refuse = async () => {
  throw new Error("refused");
};

/** A breaker whose probes the test answers. */
function setUp() {
  const probe = { isAnswered: false, keys: [] as string[] };
  const changes: boolean[] = [];
  const breaker = new Breaker({
    probe: async (key) => {
      probe.keys.push(key);
      if (!probe.isAnswered) throw new Error("still away");
    },
    probeIntervalMs: 10,
    onChange: (isOpen) => changes.push(isOpen),
  });
  return { breaker, probe, changes };
}

/** The outcomes of calls that have ended without waiting for anything outside this process. */
async function outcomes(...calls: Promise<unknown>[]): Promise<unknown[]> {
  const pending = new Promise((resolve) => setImmediate(() => resolve("pending")));
  return await Promise.all(calls.map((call) => Promise.race([call.catch(({ message }) => message), pending])));
}

test("calls wait together for one time-out of a frozen Redis, and after it none waits", async () => {
  const { breaker, changes } = setUp();
  const first = breaker.run("a", never);
  await new Promise((resolve) => setTimeout(resolve, 150));
  const second = breaker.run("b", never);
  expect(await outcomes(first, second)).toEqual(["pending", "pending"]);
  await expect(first).rejects.toThrow("no answer within 200 ms");
  expect(await outcomes(second, breaker.run("c", never))).toEqual(["Redis is away", "Redis is away"]);
  expect(changes).toEqual([true]);
  breaker.end();
});

test("a breaker that has ended probes no more, also when a call fails that was under way", async () => {
  const { breaker, probe, changes } = setUp();
  const { promise, reject } = Promise.withResolvers<never>();
  const underWay = breaker.run("a", () => promise);
  breaker.end();
  reject(new Error("Connection is closed."));
  await expect(underWay).rejects.toThrow("Connection is closed.");
  await new Promise((resolve) => setTimeout(resolve, 30)); // three times the interval of the probes
  expect([breaker.isOpen, probe.keys, changes]).toEqual([true, [], []]);
  expect(await outcomes(breaker.run("a", answer))).toEqual(["Redis is away"]);
});

test("an error of Redis ends no other call, and opens the breaker until a probe succeeds", async () => {
  const { breaker, probe, changes } = setUp();
  const { promise, resolve } = Promise.withResolvers<string>();
  const other = breaker.run("a", () => promise);
  await expect(breaker.run("b", refuse)).rejects.toThrow("refused");
  expect(await outcomes(other, breaker.run("c", answer))).toEqual(["pending", "Redis is away"]);
  resolve("late");
  expect(await other).toBe("late");
  while (probe.keys.length < 3) await new Promise(setImmediate);
  expect(breaker.isOpen).toBe(true);
  probe.isAnswered = true;
  while (breaker.isOpen) await new Promise(setImmediate);
  expect(new Set(probe.keys)).toEqual(new Set(["b"]));
  expect(await breaker.run("c", answer)).toBe("answer");
  expect(changes).toEqual([true, false]);
});

test("a late answer to a probe of an outage does not end the next outage", async () => {
  const probes: (() => void)[] = [];
  const breaker = new Breaker({
    probe: () => new Promise<void>((resolve) => probes.push(resolve)),
    probeIntervalMs: 10,
    onChange: () => {},
  });
  breaker.open("a", new Error("away"));
  while (probes.length < 2) await new Promise(setImmediate);
  probes[1]!();
  await new Promise(setImmediate);
  expect(breaker.isOpen).toBe(false);
  breaker.open("b", new Error("away again"));
  probes[0]!();
  await new Promise(setImmediate);
  expect(breaker.isOpen).toBe(true);
  breaker.end();
});
