import { EventEmitter } from "node:events";
import type { ServerResponse } from "node:http";
import { performance } from "node:perf_hooks";
import { Overload } from "./overload.ts";

const { jest } = import.meta;
const maxDelayMs = 100;
const probeMs = 50;

beforeEach(() => void jest.useFakeTimers());
afterEach(() => {
  jest.useRealTimers();
  jest.restoreAllMocks();
});

/** An overload whose event loop is as late and as busy as the test says. */
function setUp({ maxWaiting = 2 } = {}) {
  const loop = { nowMs: 1_000, utilization: 0.5 };
  jest.spyOn(performance, "now").mockImplementation(() => loop.nowMs);
  const use = () => ({ idle: 0, active: 0, utilization: loop.utilization });
  jest.spyOn(performance, "eventLoopUtilization").mockImplementation(use);
  const changes: boolean[] = [];
  const refused: ServerResponse[] = [];
  const others = { count: 0, counted: 0 };
  const overload = new Overload({
    maxDelayMs,
    maxWaiting,
    onRefusal: () => refused.push({} as ServerResponse),
    onChange: (isOverloaded) => changes.push(isOverloaded),
  });
  /** The event loop gets to its next timer so much late. */
  const probe = (delayMs = 0) => {
    loop.nowMs += probeMs + delayMs;
    jest.advanceTimersByTime(probeMs);
  };
  return {
    loop,
    changes,
    refused,
    others,
    probe,
    /** A second in which no timer is late. */
    passSecond: () => {
      for (let i = 0; i < 1_000 / probeMs; i++) probe();
    },
    nextTurn: () => jest.runOnlyPendingTimers(),
    enter: () => {
      const response = new EventEmitter();
      const countForOthers = () => {
        others.counted += 1;
        return others.count;
      };
      const isIn = overload.enter(response as ServerResponse, countForOthers);
      return { isIn, close: () => void response.emit("close") };
    },
  };
}

test("an overload begins when the event loop is later than the bound, and is announced once", () => {
  const { probe, changes } = setUp();
  for (let i = 0; i < 100; i++) probe(i % 10);
  probe(maxDelayMs);
  expect(changes).toEqual([]);
  probe(maxDelayMs + 1);
  probe(maxDelayMs + 1);
  expect(changes).toEqual([true]);
});

test("an overload ends after a second with the event loop idle for a tenth, and may begin again", () => {
  const { probe, passSecond, changes, loop } = setUp();
  probe(maxDelayMs + 1);
  loop.utilization = 0.95;
  for (let i = 0; i < 5; i++) passSecond();
  expect(changes).toEqual([true]);
  loop.utilization = 0.85;
  passSecond();
  expect(changes).toEqual([true, false]);
  for (let i = 0; i < 5; i++) passSecond();
  expect(changes).toEqual([true, false]);
  probe(maxDelayMs + 1);
  expect(changes).toEqual([true, false, true]);
});

test("an overload refuses a request while too many others wait, and takes one when they are over", () => {
  const { probe, enter, refused } = setUp({ maxWaiting: 2 });
  probe(maxDelayMs + 1);
  const [first, , third] = [enter(), enter(), enter()];
  expect([first.isIn, third.isIn]).toEqual([true, false]);
  third.close();
  const fourth = enter();
  expect(fourth.isIn).toBe(false);
  expect(refused).toHaveLength(2);
  for (const { close } of [first, fourth]) close();
  expect(enter().isIn).toBe(true);
});

test("no request is refused without an overload, however many wait", () => {
  const { enter, refused, others } = setUp({ maxWaiting: 2 });
  for (let i = 0; i < 100; i++) expect(enter().isIn).toBe(true);
  expect(refused).toEqual([]);
  expect(others.counted).toBe(0);
});

test("an overload makes room of the responses that wait for others, and counts them once a turn", () => {
  const { probe, enter, others, nextTurn } = setUp({ maxWaiting: 2 });
  probe(maxDelayMs + 1);
  others.count = 1;
  expect([enter().isIn, enter().isIn, enter().isIn, enter().isIn]).toEqual([true, true, true, false]);
  expect(others.counted).toBe(1);
  nextTurn();
  others.count = 3;
  expect([enter().isIn, enter().isIn]).toEqual([true, false]);
  expect(others.counted).toBe(2);
});
