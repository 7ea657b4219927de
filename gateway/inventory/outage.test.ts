import { Outage } from "./outage.ts";

const undone = new Error("the service is away");
const isUndone = (error: unknown) => error === undone;

/** Work that fails for a time after the first attempt. */
function awayFor(ms: number) {
  let attempts = 0;
  let backAtMs: number | undefined;
  const work = async () => {
    attempts += 1;
    backAtMs ??= performance.now() + ms;
    if (performance.now() < backAtMs) throw undone;
    return "done";
  };
  return { work, attempts: () => attempts };
}

test("work is held until a short outage is over", async () => {
  let attempts = 0;
  const work = async () => {
    attempts += 1;
    if (attempts < 4) throw undone;
    return "done";
  };
  expect(await new Outage(10_000).rideOut(work, isUndone)).toBe("done");
  expect(attempts).toBe(4);
});

test("work that may have happened is never tried again", async () => {
  const { work, attempts } = awayFor(10);
  await expect(new Outage(2_000).rideOut(work, () => false)).rejects.toBe(undone);
  expect(attempts()).toBe(1);
});

test("an outage holds callers until it is as old as its patience, and then none, until something succeeds", async () => {
  const outage = new Outage(1_000);
  const first = awayFor(60_000);
  await expect(outage.rideOut(first.work, isUndone)).rejects.toBe(undone);
  expect(first.attempts()).toBeLessThan(15); // the service that comes back is not flooded
  // The outage is younger than its first caller by a moment, for which the second one is held.
  await expect(outage.rideOut(awayFor(60_000).work, isUndone)).rejects.toBe(undone);
  const late = awayFor(60_000);
  await expect(outage.rideOut(late.work, isUndone)).rejects.toBe(undone);
  expect(late.attempts()).toBe(1);
  await outage.rideOut(async () => "done", isUndone);
  expect(await outage.rideOut(awayFor(40).work, isUndone)).toBe("done");
});

test("a failure long after the last one begins another outage", async () => {
  const outage = new Outage(100);
  await expect(outage.rideOut(awayFor(60_000).work, isUndone)).rejects.toBe(undone);
  await new Promise((resolve) => setTimeout(resolve, 350));
  expect(await outage.rideOut(awayFor(20).work, isUndone)).toBe("done");
});

test("work of a caller that has left is not tried again", async () => {
  const { work, attempts } = awayFor(10);
  await expect(new Outage(2_000).rideOut(work, isUndone, () => false)).rejects.toBe(undone);
  expect(attempts()).toBe(1);
});

test("a caller is held for at most the patience, while others succeed", async () => {
  const outage = new Outage(150);
  const others = setInterval(() => void outage.rideOut(async () => "done", isUndone), 20);
  await expect(outage.rideOut(awayFor(60_000).work, isUndone)).rejects.toBe(undone);
  clearInterval(others);
});

test("a caller that has already waited for as long as the patience is not held", async () => {
  const { work, attempts } = awayFor(60_000);
  const arrivedMs = performance.now() - 10_000;
  await expect(new Outage(10_000).rideOut(work, isUndone, () => true, arrivedMs)).rejects.toBe(undone);
  expect(attempts()).toBe(1);
});

test("work is asked about before each further attempt, with the error of the one before", async () => {
  const errors: unknown[] = [];
  const { work, attempts } = awayFor(60);
  await new Outage(2_000).rideOut(work, isUndone, (error) => errors.push(error) > 0);
  expect(errors).toEqual(new Array(attempts() - 1).fill(undone));
});
