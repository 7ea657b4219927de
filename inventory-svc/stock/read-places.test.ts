import { setImmediate } from "node:timers/promises";
import { ReadPlaces } from "./read-places.ts";
import { StockUnavailableError, TooManyAtOnceError } from "./stock-errors.ts";

const { jest } = import.meta;

/** Two reads at once and two that wait, with what ends each read. */
function start() {
  const places = new ReadPlaces({ maxRunning: 2, maxWaiting: 2 });
  const reads: ReturnType<typeof Promise.withResolvers<string>>[] = [];
  const take = () =>
    places.take(() => {
      const read = Promise.withResolvers<string>();
      reads.push(read);
      return read.promise;
    });
  return { reads, take };
}

test("reads begin in the order of arrival as others end, also as these fail", async () => {
  const { reads, take } = start();
  const taken = [take(), take(), take(), take()];
  await expect(take()).rejects.toThrow(TooManyAtOnceError);
  expect(reads).toHaveLength(2);
  reads[1]!.reject(new Error("away"));
  await expect(taken[1]).rejects.toThrow("away");
  await setImmediate();
  expect(reads).toHaveLength(3);
  for (const [i, taker] of [0, 2, 3].entries()) {
    reads[taker]!.resolve(`read ${i}`);
    expect(await taken[taker]).toBe(`read ${i}`);
    await setImmediate();
  }
  expect(reads).toHaveLength(4);
});

test("a read that finds no place within 2 s ends, and takes none any more", async () => {
  jest.useFakeTimers({ doNotFake: ["setImmediate", "queueMicrotask", "nextTick"] });
  try {
    const { reads, take } = start();
    const running = [take(), take()];
    const late = expect(take()).rejects.toThrow(StockUnavailableError);
    jest.advanceTimersByTime(1_999);
    const inTime = take();
    jest.advanceTimersByTime(1);
    await setImmediate();
    await late;
    for (const read of reads) read.resolve("read");
    await Promise.all(running);
    await setImmediate();
    expect(reads).toHaveLength(3);
    reads[2]!.resolve("in time");
    expect(await inTime).toBe("in time");
    const next = [take(), take()];
    expect(reads).toHaveLength(5); // no place is lost
    for (const read of reads) read.resolve("next");
    await Promise.all(next);
  } finally {
    jest.useRealTimers();
  }
});
