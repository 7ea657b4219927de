import { type ChargeAnswer, type Charges, phaseMsOf } from "./limit-rule.ts";
import { MemoryWindows } from "./memory-windows.ts";
import type { Decision, WindowsNow } from "./windows.ts";
import { accountWindows } from "./windows.ts";

const minuteMs = 60_000;
const id = "acc_1";

/** Windows in memory, and a clock of the test's own that begins with a day of the account. */
function setUp({ gatewayCount = 1, perMinute = 3, perDay = 5, maxAccounts = 10 } = {}) {
  const clock = { nowMs: 20_000 * 86_400_000 - phaseMsOf(id) };
  const memory = new MemoryWindows({ maxAccounts, gatewayCount, now: () => clock.nowMs });
  const windows = accountWindows({ perMinute, perDay });
  const ask = (account = id) => memory.charge(account, windows);
  const look = (account = id) => memory.readShared(account, windows);
  /** Sends one request at each of the times since the begin of the day. */
  const at = (...timesMs: number[]) => {
    const beginMs = clock.nowMs;
    return timesMs.map((ms) => {
      clock.nowMs = beginMs + ms;
      return ask();
    });
  };
  return { clock, memory, ask, look, at };
}

const left = ({ states }: WindowsNow) => states.map(({ remaining }) => remaining);
/** An answer of Redis that has charged the same in both windows. */
const answerOf = (admitted: number, charges: Charges): ChargeAnswer => ({
  admittedCount: admitted,
  charges: [charges, charges],
});
const admitted = (decisions: readonly Decision[]) => decisions.map((decision) => decision.admitted);

test("a step of this machine's clock begins no window again once Redis has told its time", () => {
  let nowMs = 20_000 * 86_400_000 - phaseMsOf(id) + 1;
  let elapsedMs = 0;
  const memory = new MemoryWindows({ maxAccounts: 10, gatewayCount: 1, now: () => nowMs, elapsedMs: () => elapsedMs });
  const windows = accountWindows({ perMinute: 3, perDay: 1_000 });
  const ask = (count: number) =>
    admitted(Array.from({ length: count }, () => memory.charge(id, windows))).filter(Boolean).length;
  memory.followClock(nowMs, elapsedMs);
  expect(ask(4)).toBe(3);
  for (const stepMs of [-600_000, 600_000, -5_000]) {
    nowMs += stepMs;
    expect(ask(1)).toBe(0);
  }
  elapsedMs += minuteMs;
  expect(ask(4)).toBe(3);
});

test("a request that the minute refuses charges nothing to the day", () => {
  const decisions = setUp().at(0, 0, 0, 1, 2, 3);
  expect(admitted(decisions)).toEqual([true, true, true, false, false, false]);
  expect(left(decisions.at(-1)!)).toEqual([0, 2]);
});

test("a request that the day refuses charges nothing to the minute", () => {
  const decisions = setUp().at(0, 0, 0, minuteMs, minuteMs, minuteMs + 1);
  expect(admitted(decisions)).toEqual([true, true, true, true, true, false]);
  expect(left(decisions.at(-1)!)).toEqual([1, 0]);
});

test("a window is over at the moment of its end, not before", () => {
  expect(admitted(setUp().at(0, 0, 0, minuteMs - 1, minuteMs))).toEqual([true, true, true, false, true]);
});

test("a window whose clock was set back by an hour is over", () => {
  const decisions = setUp().at(0, 0, 0, 0, -3_600_000);
  expect(admitted(decisions)).toEqual([true, true, true, false, true]);
  expect(decisions.at(-1)!.states[0]!.resetAtMs).toBe(decisions.at(-1)!.nowMs + minuteMs);
});

test("a look charges nothing, and shows the end of windows to an account without a request", () => {
  const { clock, look, ask } = setUp();
  clock.nowMs += 20_000;
  for (let i = 0; i < 10; i++) expect(left(look())).toEqual([3, 5]);
  expect(look().states.map(({ resetAtMs }) => resetAtMs - clock.nowMs)).toEqual([40_000, 86_380_000]);
  expect(left(ask())).toEqual([2, 4]);
});

test("a plan with lower limits keeps what was used and leaves nothing below zero", () => {
  const { memory, at } = setUp();
  at(0, 0, 0);
  const decision = memory.charge(id, accountWindows({ perMinute: 2, perDay: 5 }));
  expect(decision.admitted).toBe(false);
  expect(decision.states.map(({ used, remaining }) => [used, remaining])).toEqual([
    [3, 0],
    [3, 2],
  ]);
});

test("a gateway without Redis admits its share of what was left when it last heard of the others", () => {
  const { memory, ask, clock } = setUp({ gatewayCount: 3, perMinute: 60, perDay: 1_000 });
  memory.learn(memory.countsOf(id), clock.nowMs, answerOf(10, { others: 30, charged: 10 }));
  const decisions = Array.from({ length: 20 }, () => ask());
  expect(admitted(decisions).filter(Boolean)).toHaveLength(7); // a third of the 20 left, rounded up
  expect(decisions.at(-1)!.states[0]).toMatchObject({ used: 47, remaining: 0 });
  expect(memory.decidedAlone).toBe(20);
});

test("the counts of the running day are listed one at a time, also those that come meanwhile", () => {
  const { clock, memory, ask, look } = setUp();
  ask("yesterday");
  clock.nowMs += 86_400_000;
  look("only looked");
  for (const account of ["first", "second"]) ask(account);
  const running = memory.running();
  const names = [running.next().value!.id];
  ask("third");
  for (const { id } of running) names.push(id);
  expect(names).toEqual(["first", "second", "third"]);
});

test("beyond the bound on memory, accounts of past days are forgotten before those of today", () => {
  for (const isAlone of [true, false]) {
    const { memory, ask, clock } = setUp({ maxAccounts: 2 });
    const use = (account: string) => {
      if (isAlone) ask(account);
      else memory.learn(memory.countsOf(account), clock.nowMs, answerOf(1, { others: 0, charged: 1 }));
    };
    for (const account of ["active", "quiet"]) use(account);
    clock.nowMs += 86_400_000;
    use("active");
    use("new");
    expect(left(ask("active"))).toEqual([1, 3]);
  }
});

test("an account beyond the bound on memory has other counts when it comes back", () => {
  const { memory, ask } = setUp({ maxAccounts: 2 });
  ask("first");
  const name = memory.nameOf(memory.countsOf("first"));
  for (const account of ["second", "third"]) ask(account);
  expect(left(ask("first"))).toEqual([2, 4]);
  expect(memory.nameOf(memory.countsOf("first"))).not.toBe(name);
  expect(left(ask("third"))).toEqual([1, 3]);
});
