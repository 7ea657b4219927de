import { retryConflicts } from "./retry.ts";

/** Fails as the database did, as often as said, then succeeds. */
function failing(times: number, errno: number) {
  let calls = 0;
  const work = async () => {
    calls += 1;
    if (calls <= times) throw Object.assign(new Error("from the database"), { errno });
    return "done";
  };
  return { work, calls: () => calls };
}

test("a transaction that lost a deadlock, a wait or a race runs again, whole", async () => {
  for (const errno of [1213, 1205, 1020]) {
    const { work, calls } = failing(1, errno);
    expect(await retryConflicts(work)).toBe("done");
    expect(calls()).toBe(2);
  }
});

test("it is given up after three retries", async () => {
  const { work, calls } = failing(4, 1213);
  await expect(retryConflicts(work)).rejects.toThrow("from the database");
  expect(calls()).toBe(4);
});

test("any other error is never retried", async () => {
  const { work, calls } = failing(1, 1062);
  await expect(retryConflicts(work)).rejects.toThrow("from the database");
  expect(calls()).toBe(1);
});
