import { setImmediate } from "node:timers/promises";
import { SharedRead } from "./shared-read.ts";

/** A shared read whose reads end when the test says so. */
function open() {
  const reads: PromiseWithResolvers<string>[] = [];
  const shared = new SharedRead(() => {
    const read = Promise.withResolvers<string>();
    reads.push(read);
    return read.promise;
  });
  return { reads, shared };
}

test("a question that arrives while no read is under way begins one in the same turn of the event loop", async () => {
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
