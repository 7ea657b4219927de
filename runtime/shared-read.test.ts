import { randomBytes } from "node:crypto";
import { setImmediate } from "node:timers/promises";
import { promisify } from "node:util";
import { type Patience, SharedRead } from "./shared-read.ts";

const { jest } = import.meta;

/** A shared read whose reads end when the test says so. */
function open(patience?: Patience) {
  const reads: PromiseWithResolvers<string>[] = [];
  const shared = new SharedRead(() => {
    const read = Promise.withResolvers<string>();
    reads.push(read);
    return read.promise;
  }, patience);
  return { reads, shared };
}

test("a question that arrives while no read is under way begins one in the same turn", async () => {
  const { reads, shared } = open();
  const answer = shared.next();
  await Promise.resolve();
  expect(reads).toHaveLength(1);
  reads[0]!.resolve("a");
  expect(await answer).toBe("a");
});

test("a question that arrives during a read is answered by a read that begins after its arrival", async () => {
  const { reads, shared } = open();
  const early = shared.next();
  await setImmediate();
  const late = shared.next();
  await setImmediate();
  expect(reads).toHaveLength(1);
  reads[0]!.resolve("old");
  expect(await early).toBe("old");
  await setImmediate();
  expect(reads).toHaveLength(2);
  reads[1]!.resolve("new");
  expect(await late).toBe("new");
});

test("questions that arrive together, or during one read, cost one read", async () => {
  const { reads, shared } = open();
  const together = [shared.next(), shared.next(), shared.next()];
  await setImmediate();
  const during = [shared.next(), shared.next()];
  await setImmediate();
  reads[0]!.resolve("a");
  expect(await Promise.all(together)).toEqual(["a", "a", "a"]);
  await setImmediate();
  reads[1]!.resolve("b");
  expect(await Promise.all(during)).toEqual(["b", "b"]);
  await setImmediate();
  expect(reads).toHaveLength(2);
});

test.each(["an answer", "a failure", "the error of late questions"])(
  "many questions get %s over several turns of the event loop",
  async (what) => {
    const { reads, shared } = open({ timeoutMs: 10, lateError: () => new Error("late") });
    const turns = new Set<number>();
    let turn = 0;
    const note = () => void turns.add(turn);
    const arrivedMs = performance.now();
    const answers = Promise.all(Array.from({ length: 600 }, () => shared.next(arrivedMs).then(note, note)));
    let isOver = false;
    void answers.then(() => {
      isOver = true;
    });
    await Promise.resolve();
    if (what === "an answer") reads[0]!.resolve("a");
    if (what === "a failure") reads[0]!.reject(new Error("made by the test"));
    for (; !isOver; turn++) await setImmediate();
    expect(turns.size).toBe(3); // at most 256 in each
  },
);

test("no question is late once its answer is there, however long the other callers use it", async () => {
  const { reads, shared } = open({ timeoutMs: 100, lateError: () => new Error("late") });
  const answers = Array.from({ length: 600 }, () => shared.next());
  void answers[0]!.then(() => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 200));
  await setImmediate();
  reads[0]!.resolve("a");
  expect(new Set(await Promise.all(answers))).toEqual(new Set(["a"]));
});

test("a read that fails reaches all questions that waited for it and no other one", async () => {
  const { reads, shared } = open();
  const failed = Promise.allSettled([shared.next(), shared.next()]);
  await setImmediate();
  const later = shared.next();
  reads[0]!.reject(new Error("away"));
  const reason = new Error("away");
  expect(await failed).toEqual([
    { status: "rejected", reason },
    { status: "rejected", reason },
  ]);
  await setImmediate();
  reads[1]!.resolve("back");
  expect(await later).toBe("back");
});

describe("the wait of a question", () => {
  beforeEach(() => void jest.useFakeTimers());
  afterEach(() => void jest.useRealTimers());

  const timeoutMs = 1_000;
  /** The longest time after a deadline until its question ends. */
  const tickMs = 50;
  const late = new Error("late");
  const patience = { timeoutMs, lateError: () => late };
  const pass = (ms: number) => jest.advanceTimersByTimeAsync(ms);

  /** Notes how a question ends, and after how many milliseconds. */
  function watch(answer: Promise<string>) {
    const startedMs = performance.now();
    const seen: { end?: unknown; ms?: number } = {};
    const note = (end: unknown) => Object.assign(seen, { end, ms: performance.now() - startedMs });
    answer.then(note, note);
    return seen;
  }

  test("ends a time-out after its arrival, whether its read is under way or waits for another", async () => {
    const { shared } = open(patience);
    const seen: ReturnType<typeof watch>[] = [];
    for (let question = 0; question < 20; question++) {
      seen.push(watch(shared.next()));
      await pass(97);
    }
    await pass(timeoutMs + tickMs);
    for (const { end, ms } of seen) {
      expect(end).toBe(late);
      expect(ms).toBeGreaterThanOrEqual(timeoutMs);
      expect(ms).toBeLessThanOrEqual(timeoutMs + tickMs);
    }
  });

  test("counts from the arrival of its request, which may be earlier than the question", async () => {
    const { shared } = open(patience);
    await pass(timeoutMs);
    const recent = watch(shared.next());
    const old = watch(shared.next(performance.now() - 900));
    await pass(100 + tickMs);
    expect([recent.end, old.end]).toEqual([undefined, late]);
  });

  test("the end of a question's wait does not end the read for the questions that arrived later", async () => {
    const { reads, shared } = open(patience);
    const early = watch(shared.next());
    await pass(900);
    const [second, third] = [watch(shared.next()), watch(shared.next())];
    await pass(200);
    expect(early.end).toBe(late);
    reads[0]!.resolve("old");
    await pass(0);
    expect([second.end, third.end]).toEqual([undefined, undefined]);
    reads[1]!.resolve("new");
    await pass(0);
    expect([second.end, third.end]).toEqual(["new", "new"]);
  });

  test("goes on while the read makes progress, for the questions that wait for the next read, too", async () => {
    const { reads, shared } = open(patience);
    const first = watch(shared.next());
    await pass(500);
    const second = watch(shared.next());
    for (let part = 0; part < 5; part++) {
      await pass(450);
      shared.progress();
    }
    expect([first.end, second.end]).toEqual([undefined, undefined]);
    reads[0]!.resolve("a");
    await pass(timeoutMs + tickMs);
    expect([first.end, second.end]).toEqual(["a", late]);
  });

  test("ends with the error of a setback while its read is retried, not with an earlier read's", async () => {
    const { reads, shared } = open(patience);
    const away = new Error("away");
    const held = watch(shared.next());
    await pass(10);
    shared.setback(away);
    const next = watch(shared.next());
    await pass(500);
    const later = watch(shared.next());
    await pass(600);
    expect([held.end, next.end]).toEqual([away, away]);
    reads[0]!.reject(away);
    await pass(timeoutMs);
    expect(later.end).toBe(late);
  });

  test("leaves no timer when all questions have ended", async () => {
    const { reads, shared } = open(patience);
    const seen = watch(shared.next());
    await pass(1);
    reads[0]!.resolve("a");
    await pass(2 * timeoutMs);
    expect(seen.end).toBe("a");
    expect(jest.getTimerCount()).toBe(0);
  });
});

test("a question whose answer arrives while the thread is busy gets it, however late that is", async () => {
  const patience = { timeoutMs: 20, lateError: () => new Error("late") };
  const shared = new SharedRead(() => promisify(randomBytes)(1), patience);
  const answer = shared.next();
  await Promise.resolve(); // the read has begun
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 100);
  expect(await answer).toHaveLength(1);
});
