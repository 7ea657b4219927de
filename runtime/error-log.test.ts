import { ErrorLog, kindOf, maxKinds } from "./error-log.ts";
import type { Logger } from "./log.ts";

const { jest } = import.meta;

beforeEach(() => void jest.useFakeTimers());
afterEach(() => void jest.useRealTimers());

/** An error log whose lines are kept: the number of the latest error that a line is about, and its count. */
function open(isEnabled = true) {
  const lines: (readonly [number: unknown, count: unknown])[] = [];
  const error = ({ number, count }: Record<string, unknown>) => void lines.push([number, count]);
  const log = new ErrorLog({ isLevelEnabled: () => isEnabled, error } as unknown as Logger, "failed");
  let errors = 0;
  const add = (message = "away", where = "a route") => log.add(where, { err: new Error(message), number: ++errors });
  return { lines, log, add };
}

describe("the log of errors", () => {
  test("has a line for a single error at once, and no other one", () => {
    const { lines, add } = open();
    add();
    expect(lines).toEqual([[1, 1]]);
    jest.advanceTimersByTime(10_000);
    expect(lines).toHaveLength(1);
    expect(jest.getTimerCount()).toBe(0);
  });

  test("has one line for all errors of a kind in a second, about the latest, at the second's end", () => {
    const { lines, add } = open();
    for (let i = 0; i < 100; i++) add();
    jest.advanceTimersByTime(999);
    expect(lines).toEqual([[1, 1]]);
    jest.advanceTimersByTime(1);
    expect(lines.slice(1)).toEqual([[100, 99]]);
  });

  test("has one line a second during an outage, with counts that sum up to all errors", () => {
    const { lines, add } = open();
    for (let i = 0; i < 10_000; i++) {
      add();
      jest.advanceTimersByTime(1);
    }
    expect(lines).toHaveLength(1 + 10);
    expect(lines.reduce((sum, [, count]) => sum + Number(count), 0)).toBe(10_000);
  });

  test("has a line at once for an error after a second without one", () => {
    const { lines, add } = open();
    add();
    add();
    jest.advanceTimersByTime(2_000);
    add();
    expect(lines.slice(2)).toEqual([[3, 1]]);
  });

  test("tells errors apart by their place and their text, but not by digits in it", () => {
    const { lines, add } = open();
    add("no answer after 5.001s");
    add("no answer after 4.999s");
    add("connection lost");
    add("connection lost", "another route");
    expect(lines).toEqual([1, 3, 4].map((number) => [number, 1]));
  });

  test("counts all kinds beyond a bounded number as one kind", () => {
    const { lines, add } = open();
    const name = (i: number) => "x".repeat(i);
    for (let i = 1; i <= 1_000; i++) add(name(i));
    expect(jest.getTimerCount()).toBe(maxKinds + 1);
    jest.advanceTimersByTime(1_000);
    expect(lines.at(-1)).toEqual([1_000, 1_000 - maxKinds - 1]);
    expect(lines).toHaveLength(maxKinds + 2);
  });

  test("has the errors that were only counted when it is closed", () => {
    const { lines, log, add } = open();
    for (let i = 0; i < 5; i++) add();
    log.close();
    expect(lines).toEqual([
      [1, 1],
      [5, 4],
    ]);
    expect(jest.getTimerCount()).toBe(0);
  });

  test("has no line when errors are not logged", () => {
    const { lines, log, add } = open(false);
    add();
    log.close();
    expect(lines).toEqual([]);
  });
});

test.each([
  [new Error("after 5s", { cause: new Error("port 33") }), "after s port "],
  ["a text", " "],
  [undefined, " "],
])("the kind of the error %p is %p", (error, kind) => {
  expect(kindOf(error)).toBe(kind);
});
