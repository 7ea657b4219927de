import { openDatabase, retried } from "./open.ts";

const db = openDatabase("sqlite::memory:");

/** Fails as the database did, as often as said, then succeeds. */
function failing(times: number, code: string) {
  let calls = 0;
  const work = async () => {
    calls += 1;
    if (calls <= times) throw Object.assign(new Error("from the database"), { code });
    return "done";
  };
  return { work, calls: () => calls };
}

test("a transaction that the database has taken back runs again, whole", async () => {
  for (const code of ["ER_LOCK_DEADLOCK", "ER_LOCK_WAIT_TIMEOUT", "ER_CHECKREAD", "ER_OPTION_PREVENTS_STATEMENT"]) {
    const { work, calls } = failing(1, code);
    expect(await retried(db, work)).toBe("done");
    expect(calls()).toBe(2);
  }
});

test("it is given up after four tries", async () => {
  const { work, calls } = failing(4, "ER_LOCK_DEADLOCK");
  await expect(retried(db, work)).rejects.toThrow("from the database");
  expect(calls()).toBe(4);
});

test.each(["ER_DUP_ENTRY", "SQLITE_BUSY"])("%s is never retried", async (code) => {
  const { work, calls } = failing(1, code);
  await expect(retried(db, work)).rejects.toThrow("from the database");
  expect(calls()).toBe(1);
});
