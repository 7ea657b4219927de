import { setImmediate } from "node:timers/promises";
import fc from "fast-check";
import { openDatabase } from "../../runtime/database/open.ts";
import { migrate } from "../../runtime/migrations.ts";
import type { Change, Outcome } from "./changes.ts";
import { ExpiredError, GroupCommit, QueueFullError } from "./group-commit.ts";
import { stockMigrations } from "./migrations.ts";
import { StockStore } from "./store.ts";

const change = (n: number): Change => ({ kind: "update", petId: BigInt(n), quantity: n });
const outcome = ({ petId }: Change): Outcome => ({
  kind: "done",
  item: { petId, quantity: Number(petId), status: "available", revision: petId },
});

interface Write {
  /** The petIds of its batch. */
  readonly batch: number[];
  succeed(): void;
  fail(error: Error): void;
  /** Takes what has come since. */
  readonly gather: (() => void) | undefined;
}

/** A database that does each write when it is told to. */
class Database {
  readonly writes: Write[] = [];
  /** Writes that have begun and not ended. */
  running = 0;
  mostAtOnce = 0;

  readonly write = async (changes: readonly Change[], more?: () => readonly Change[]): Promise<readonly Outcome[]> => {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const all = [...changes];
    const batch = all.map(({ petId }) => Number(petId));
    const gather = () => {
      const late = more!();
      all.push(...late);
      batch.push(...late.map(({ petId }) => Number(petId)));
    };
    this.writes.push({ batch, succeed: resolve, fail: reject, gather: more && gather });
    this.running += 1;
    this.mostAtOnce = Math.max(this.mostAtOnce, this.running);
    await promise.finally(() => {
      this.running -= 1;
    });
    return all.map(outcome);
  };

  batches(): number[][] {
    return this.writes.map(({ batch }) => batch);
  }
}

function open({ maxBatch = 100, maxQueued = 100 } = {}) {
  const database = new Database();
  const clock = { nowMs: 0 };
  const commits = new GroupCommit({
    write: database.write,
    maxBatch,
    maxQueued,
    onTurn: () => {},
    now: () => clock.nowMs,
  });
  /** What became of each change so far, in the order in which it became known. */
  const settled: string[] = [];
  const submit = (n: number, isWanted?: () => boolean) =>
    commits.submit(change(n), isWanted).then(
      (result) => {
        settled.push(`${n} ${result.kind === "done" ? `is ${result.item.petId}` : result.kind}`);
      },
      (error: Error) => {
        settled.push(`${n} ${error.name}`);
      },
    );
  return { database, commits, clock, settled, submit };
}

/** Everything that can go on without a write ending has gone on after this. */
const settle = () => setImmediate();

describe("group commit", () => {
  test("what arrives together goes in one write, in the order of arrival", async () => {
    const { database, submit } = open();
    for (const n of [3, 1, 2]) void submit(n);
    await settle();
    expect(database.batches()).toEqual([[3, 1, 2]]);
  });

  test("one write at a time, and everything that waits goes in the next", async () => {
    const { database, submit } = open();
    void submit(1);
    await settle();
    for (const n of [2, 3]) void submit(n);
    await settle();
    void submit(4);
    await settle();
    expect(database.batches()).toEqual([[1]]);
    database.writes[0]!.succeed();
    await settle();
    expect(database.batches()).toEqual([[1], [2, 3, 4]]);
    expect(database.mostAtOnce).toBe(1);
  });

  test("a change is acknowledged only after its write, to its own caller", async () => {
    const { database, submit, settled } = open();
    for (const n of [1, 2]) void submit(n);
    await settle();
    void submit(3);
    await settle();
    expect(settled).toEqual([]);
    database.writes[0]!.succeed();
    await settle();
    expect(settled).toEqual(["1 is 1", "2 is 2"]);
    database.writes[1]!.succeed();
    await settle();
    expect(settled).toEqual(["1 is 1", "2 is 2", "3 is 3"]);
  });

  test("a write has at most maxBatch changes; the rest keeps its place", async () => {
    const { database, submit } = open({ maxBatch: 2 });
    for (const n of [1, 2, 3, 4, 5]) void submit(n);
    for (const i of [0, 1, 2]) {
      await settle();
      database.writes[i]!.succeed();
    }
    expect(database.batches()).toEqual([[1, 2], [3, 4], [5]]);
  });

  describe("the room in a transaction", () => {
    /**
     * Callers with one change at a time behind one thread, as those of a gateway: it needs a while for each answer, and
     * sends what came of all answers of a transaction together.
     *
     * @returns changes per second of the clock, and how many were in a transaction on average, in the last 200 of 300
     */
    async function load({ callers, commitMs, perChangeMs, callerMs }: Record<string, number>, maxBatch = 1_000) {
      const { database, clock, submit } = open({ maxBatch, maxQueued: 10_000 });
      let submitted = 0;
      let freeAtMs = 0;
      const returns: { atMs: number; changes: number }[] = [{ atMs: 0, changes: callers! }];
      const ends: { atMs: number; changes: number }[] = [];
      const arrive = async () => {
        while (returns[0] !== undefined && returns[0].atMs <= clock.nowMs) {
          for (let { changes } = returns.shift()!; changes > 0; changes--) void submit(++submitted);
        }
        await settle();
      };
      for (let n = 0; n < 300; n++) {
        if (database.running === 0) clock.nowMs = Math.max(clock.nowMs, returns[0]!.atMs); // it idles
        await arrive();
        const { batch, succeed } = database.writes.at(-1)!;
        clock.nowMs += commitMs! + perChangeMs! * batch.length;
        await arrive();
        ends.push({ atMs: clock.nowMs, changes: batch.length });
        freeAtMs = Math.max(freeAtMs, clock.nowMs) + callerMs! * batch.length;
        returns.push({ atMs: freeAtMs, changes: batch.length });
        succeed();
        await settle();
      }
      const counted = ends.slice(100);
      const changes = counted.reduce((sum, end) => sum + end.changes, 0);
      return {
        perSecond: changes / ((counted.at(-1)!.atMs - ends[99]!.atMs) / 1_000),
        mean: changes / counted.length,
      };
    }

    test("callers that are slower than the database take turns in small groups, instead of all waiting for one", async () => {
      const { perSecond, mean } = await load({ callers: 256, commitMs: 1, perChangeMs: 0.03, callerMs: 0.06 });
      expect(mean).toBeLessThan(100);
      expect(perSecond).toBeGreaterThan(0.9 * (1_000 / 0.06)); // what the callers can do at all
    });

    test("where commits take long, groups grow until they keep up with the callers", async () => {
      const { perSecond, mean } = await load({ callers: 2_000, commitMs: 20, perChangeMs: 0.01, callerMs: 0.06 });
      expect(mean).toBeGreaterThan(300);
      expect(perSecond).toBeGreaterThan(0.9 * (1_000 / 0.06));
    });

    test("it is never larger than maxBatch", async () => {
      const { mean } = await load({ callers: 500, commitMs: 100, perChangeMs: 0, callerMs: 0 }, 60);
      expect(mean).toBe(60);
    });

    test("a time without changes makes it small again, whatever it was", async () => {
      const { database, clock, submit } = open({ maxBatch: 1_000, maxQueued: 1_000 });
      const write = async (changes: number, tookMs: number) => {
        for (let n = 1; n <= changes; n++) void submit(n);
        await settle();
        clock.nowMs += tookMs;
        database.writes.at(-1)!.succeed();
        await settle();
      };
      await write(1, 5_000);
      await write(500, 0);
      expect(database.batches().map(({ length }) => length)).toEqual([1, 500]);
      clock.nowMs += 3_600_000;
      await write(500, 0);
      expect(database.writes.at(-1)!.batch.length).toBeLessThan(60);
    });

    test("outcomes go out between two transactions, also on SQLite, which writes at once", async () => {
      await using stack = new AsyncDisposableStack();
      const db = openDatabase("sqlite::memory:");
      stack.defer(() => db.destroy());
      await migrate(db, "inventory", stockMigrations, "up");
      const store = new StockStore(db);
      const told: string[] = [];
      const write = async (changes: readonly Change[]) => {
        const outcomes = await store.write(changes);
        told.push(`wrote ${changes.length}`);
        return outcomes;
      };
      const commits = new GroupCommit({ write, maxBatch: 2, maxQueued: 9, onTurn: () => {}, now: () => 0 });
      const send = async (n: number) => {
        await commits.submit(change(n));
        await setImmediate(); // as those who send outcomes do
        told.push(`sent ${n}`);
      };
      await Promise.all([1, 2, 3].map(send));
      expect(told).toEqual(["wrote 2", "sent 1", "sent 2", "wrote 1", "sent 3"]);
    });
  });

  describe("a write that has to wait may take what has come meanwhile", () => {
    test("behind the others, as far as there is room and it is still wanted", async () => {
      const { database, submit, settled } = open({ maxBatch: 4 });
      void submit(1);
      void submit(2);
      await settle();
      void submit(3, () => false);
      for (const n of [4, 5]) void submit(n);
      database.writes[0]!.gather!();
      await settle();
      expect(database.batches()).toEqual([[1, 2, 4]]);
      expect(settled).toEqual(["3 ExpiredError"]);
      database.writes[0]!.succeed();
      await settle();
      expect(settled.slice(1)).toEqual(["1 is 1", "2 is 2", "4 is 4"]);
      expect(database.batches()).toEqual([[1, 2, 4], [5]]);
    });

    test("but not one that is full", async () => {
      const { database, submit } = open({ maxBatch: 2 });
      for (const n of [1, 2, 3]) void submit(n);
      await settle();
      expect(database.writes[0]!.gather).toBeUndefined();
    });

    test("and when it fails, those hear of it too", async () => {
      const { database, submit, settled } = open();
      void submit(1);
      await settle();
      void submit(2);
      database.writes[0]!.gather!();
      void submit(3);
      database.writes[0]!.fail(new RangeError("the disk is full"));
      await settle();
      expect(settled).toEqual(["1 RangeError", "2 RangeError"]);
      database.writes[1]!.succeed();
      await settle();
      expect(settled[2]).toBe("3 is 3");
    });
  });

  test("a full queue refuses with QueueFullError at once, and takes changes again when it has room", async () => {
    const { database, submit, settled } = open({ maxQueued: 2 });
    void submit(1);
    await settle(); // being written, so it waits no longer
    for (const n of [2, 3, 4]) void submit(n);
    await settle();
    expect(settled).toEqual(["4 QueueFullError"]);
    database.writes[0]!.succeed();
    await settle();
    void submit(5);
    database.writes[1]!.succeed();
    await settle();
    expect(database.batches()).toEqual([[1], [2, 3], [5]]);
  });

  test("QueueFullError and ExpiredError are what callers can tell apart", async () => {
    const { commits } = open({ maxQueued: 1 });
    const expired = commits.submit(change(1), () => false);
    await expect(commits.submit(change(2))).rejects.toBeInstanceOf(QueueFullError);
    await expect(expired).rejects.toBeInstanceOf(ExpiredError);
  });

  test("a caller that stopped waiting before its turn is not written, and the others are", async () => {
    const { database, submit, settled } = open();
    let isWanted = true;
    void submit(1);
    await settle();
    void submit(2, () => isWanted);
    void submit(3);
    await settle();
    isWanted = false; // after it joined the queue
    database.writes[0]!.succeed();
    await settle();
    expect(database.batches()).toEqual([[1], [3]]);
    database.writes[1]!.succeed();
    await settle();
    expect(settled).toEqual(["1 is 1", "2 ExpiredError", "3 is 3"]);
  });

  test("a batch of which nobody is left is no write, and the next goes on", async () => {
    const { database, submit, settled } = open({ maxBatch: 2 });
    for (const n of [1, 2]) void submit(n, () => false);
    void submit(3);
    await settle();
    expect(database.batches()).toEqual([[3]]);
    expect(settled).toEqual(["1 ExpiredError", "2 ExpiredError"]);
  });

  test("a failed write fails exactly its batch, and the next goes on", async () => {
    const { database, submit, settled } = open({ maxBatch: 2 });
    for (const n of [1, 2, 3]) void submit(n);
    await settle();
    database.writes[0]!.fail(new RangeError("the disk is full"));
    await settle();
    expect(settled).toEqual(["1 RangeError", "2 RangeError"]);
    database.writes[1]!.succeed();
    await settle();
    expect(settled.at(-1)).toBe("3 is 3");
  });

  test("a write that fails before it begins is a failed write", async () => {
    const write = () => {
      throw new RangeError("no connection");
    };
    const commits = new GroupCommit({ write, maxBatch: 1, maxQueued: 9, onTurn: () => {}, now: () => 0 });
    const results = await Promise.allSettled([commits.submit(change(1)), commits.submit(change(2))]);
    expect(results.map(({ status }) => status)).toEqual(["rejected", "rejected"]);
  });

  test("drain() resolves when nothing waits or is being written", async () => {
    const { database, commits, submit, settled } = open({ maxBatch: 1 });
    await commits.drain(); // there is nothing
    for (const n of [1, 2]) void submit(n);
    void commits.drain().then(() => settled.push("drained"));
    for (const i of [0, 1]) {
      await settle();
      expect(settled).not.toContain("drained");
      database.writes[i]!.succeed();
    }
    await settle();
    expect(settled).toEqual(["1 is 1", "2 is 2", "drained"]);
  });

  test("drain() does not mind a failed write", async () => {
    const { database, commits, submit } = open();
    void submit(1);
    await settle();
    database.writes[0]!.fail(new Error("gone"));
    await expect(commits.drain()).resolves.toBeUndefined();
  });

  test("changes after a quiet time are written like the first", async () => {
    const { database, submit } = open();
    for (const n of [1, 2]) {
      const done = submit(n);
      await settle();
      database.writes.at(-1)!.succeed();
      await done;
    }
    expect(database.batches()).toEqual([[1], [2]]);
  });

  test("whatever comes when, each caller is answered once, in order, and as its write ended", async () => {
    const step = fc.oneof(
      { weight: 5, arbitrary: fc.constantFrom("submit", "submit and leave") },
      { weight: 2, arbitrary: fc.constantFrom("succeed", "fail") },
      { weight: 2, arbitrary: fc.constant("wait") },
    );
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 40 }), async (steps) => {
        const { database, commits, settled, submit } = open({ maxBatch: 3, maxQueued: 5 });
        const ended: Record<string, number[]> = { succeed: [], fail: [] };
        const end = (how: "succeed" | "fail") => {
          const write = database.writes[ended.succeed!.length + ended.fail!.length];
          if (write === undefined) return;
          ended[how]!.push(database.writes.indexOf(write));
          if (how === "succeed") write.succeed();
          else write.fail(new RangeError("failed"));
        };
        let submitted = 0;
        for (const each of steps) {
          if (each === "submit") void submit(++submitted);
          else if (each === "submit and leave") void submit(++submitted, () => false);
          else if (each === "wait") await settle();
          else end(each as "succeed" | "fail");
        }
        for (let drained = false; !drained; end("succeed")) {
          drained = await Promise.race([commits.drain().then(() => true), settle().then(() => false)]);
        }
        await settle();

        const written = database.batches().flat();
        expect(written).toEqual([...written].sort((a, b) => a - b));
        expect(database.mostAtOnce).toBeLessThanOrEqual(1);
        expect(Math.max(0, ...database.batches().map(({ length }) => length))).toBeLessThanOrEqual(3);
        const toldOf = (what: string) =>
          settled.filter((line) => line.endsWith(what)).map((line) => Number(line.split(" ")[0]));
        const of = (writes: number[]) => writes.flatMap((i) => database.batches()[i]!);
        expect(settled.filter((line) => line.includes(" is ")).map((line) => line.split(" is ")[0])).toEqual(
          of(ended.succeed!).map(String),
        );
        expect(toldOf("RangeError")).toEqual(of(ended.fail!));
        expect(settled).toHaveLength(submitted);
        expect(new Set(settled.map((line) => line.split(" ")[0])).size).toBe(submitted);
      }),
    );
  });
});
