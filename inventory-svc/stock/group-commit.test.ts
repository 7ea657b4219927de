import { setImmediate } from "node:timers/promises";
import fc from "fast-check";
import { migrate } from "../../runtime/database/migrations.ts";
import { openDatabase } from "../../runtime/database/open.ts";
import type { Change, ChangeGroup, Outcome } from "./changes.ts";
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
}

/** A database that gives turns and ends writes when the test says so. */
class Database {
  /** True when other services write too: then turns that may grow wait for the lock. */
  mayHaveOtherWriters = false;
  /** The requested turns, as whether each may grow. */
  readonly turns: boolean[] = [];
  /** The waits for the lock. */
  readonly locks: { grant(): void; deny(error: Error): void }[] = [];
  readonly writes: Write[] = [];
  /** Turns that are taken and not released. */
  open = 0;
  /** Writes that have begun and not ended. */
  running = 0;
  mostAtOnce = 0;

  readonly takeTurn = async (mayGrow: boolean) => {
    this.turns.push(mayGrow);
    if (mayGrow && this.mayHaveOtherWriters) {
      const { promise, resolve: grant, reject: deny } = Promise.withResolvers<void>();
      this.locks.push({ grant, deny });
      await promise;
    }
    this.open += 1;
    const release = async () => {
      this.open -= 1;
    };
    return { write: this.#write, [Symbol.asyncDispose]: release };
  };

  readonly #write = async (groups: readonly ChangeGroup[]): Promise<readonly (readonly Outcome[])[]> => {
    const { promise, resolve: succeed, reject: fail } = Promise.withResolvers<void>();
    this.writes.push({ batch: groups.flat().map(({ petId }) => Number(petId)), succeed, fail });
    this.running += 1;
    this.mostAtOnce = Math.max(this.mostAtOnce, this.running);
    await promise.finally(() => {
      this.running -= 1;
    });
    return groups.map((group) => group.map(outcome));
  };

  batches(): number[][] {
    return this.writes.map(({ batch }) => batch);
  }
}

function open({ maxBatch = 100, maxQueued = 100 } = {}) {
  const database = new Database();
  const clock = { nowMs: 0 };
  /** The measures of each batch. */
  const measured: unknown[][] = [];
  const commits = new GroupCommit({
    takeTurn: database.takeTurn,
    maxBatch,
    maxQueued,
    onDequeued: () => {},
    onWritten: (...measures) => measured.push(measures),
    now: () => clock.nowMs,
  });
  /** The result of each change so far, in the order in which callers got it. */
  const settled: string[] = [];
  const submit = (n: number, isWanted?: () => boolean) =>
    commits.submit([change(n)], isWanted).then(
      ([result]) => {
        settled.push(`${n} ${result!.kind === "done" ? `is ${result!.item.petId}` : result!.kind}`);
      },
      (error: Error) => {
        settled.push(`${n} ${error.name}`);
      },
    );
  return { database, commits, clock, measured, settled, submit };
}

/** Resolves when everything has run that does not wait for a lock or a write. */
const settle = () => setImmediate();

describe("group commit", () => {
  test("a group is written in one batch, and counts as all of its changes", async () => {
    const { commits, database } = open({ maxBatch: 48, maxQueued: 120 });
    const group = (from: number, count: number) => Array.from({ length: count }, (_, i) => change(from + i));
    const submitted = [group(0, 1), group(1, 30), group(31, 18), group(49, 60), group(109, 11)].map((each) => {
      return commits.submit(each);
    });
    expect(commits.queued).toBe(120);
    const refused = expect(commits.submit(group(200, 1))).rejects.toBeInstanceOf(QueueFullError);
    expect(commits.queued).toBe(120);
    await refused;
    for (const size of [31, 18, 60, 11]) {
      await setImmediate();
      expect(database.batches().at(-1)).toHaveLength(size);
      database.writes.at(-1)!.succeed();
    }
    const outcomes = await Promise.all(submitted);
    expect(outcomes.map(({ length }) => length)).toEqual([1, 30, 18, 60, 11]);
    expect(outcomes[3]![59]).toMatchObject({ kind: "done", item: { petId: 108n } });
    expect(commits.queued).toBe(0);
  });

  test("changes that arrive together share one write, in the order of arrival", async () => {
    const { database, submit } = open();
    for (const n of [3, 1, 2]) void submit(n);
    await settle();
    expect(database.batches()).toEqual([[3, 1, 2]]);
  });

  test("one write runs at a time, and all changes that wait share the next one", async () => {
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

  test("a change is acknowledged to its own caller, after its write and not before", async () => {
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

  test("a write has at most maxBatch changes, and the others keep their places", async () => {
    const { database, submit } = open({ maxBatch: 2 });
    for (const n of [1, 2, 3, 4, 5]) void submit(n);
    for (const i of [0, 1, 2]) {
      await settle();
      database.writes[i]!.succeed();
    }
    expect(database.batches()).toEqual([[1, 2], [3, 4], [5]]);
  });

  describe("the batch limit", () => {
    /**
     * Plays callers with one change at a time on one thread, as in a gateway. The thread takes some time for each
     * answer, and sends the next changes of all answers of a transaction together.
     *
     * @returns changes per second of the clock, and their mean number in a transaction, in the last 200 of 300
     *   transactions
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
        if (database.running === 0) clock.nowMs = Math.max(clock.nowMs, returns[0]!.atMs); // the database is idle
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

    test("the batch limit keeps batches small where callers are slower than the database, so that both work at the same time", async () => {
      const { perSecond, mean } = await load({ callers: 256, commitMs: 1, perChangeMs: 0.03, callerMs: 0.06 });
      expect(mean).toBeLessThan(100);
      expect(perSecond).toBeGreaterThan(0.9 * (1_000 / 0.06)); // the maximum that the callers can send
    });

    test("the batch limit grows where commits are slow, until batches keep up with the callers", async () => {
      const { perSecond, mean } = await load({ callers: 2_000, commitMs: 20, perChangeMs: 0.01, callerMs: 0.06 });
      expect(mean).toBeGreaterThan(300);
      expect(perSecond).toBeGreaterThan(0.9 * (1_000 / 0.06));
    });

    test("the batch limit is never larger than maxBatch", async () => {
      const { mean } = await load({ callers: 500, commitMs: 100, perChangeMs: 0, callerMs: 0 }, 60);
      expect(mean).toBe(60);
    });

    test("the batch limit is small again after a time without changes", async () => {
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

    test("the batch limit counts a wait for the lock as time in which the database is busy", async () => {
      const { database, clock, submit } = open({ maxBatch: 1_000, maxQueued: 1_000 });
      database.mayHaveOtherWriters = true;
      for (const n of [1, 2]) void submit(n);
      await settle();
      clock.nowMs += 5_000;
      database.locks[0]!.grant();
      await settle();
      database.writes[0]!.succeed();
      await settle();
      for (let n = 1; n <= 500; n++) void submit(n);
      await settle();
      database.locks[1]!.grant();
      await settle();
      expect(database.batches().map(({ length }) => length)).toEqual([2, 500]);
    });
  });

  test("outcomes are sent between two transactions, even on SQLite, which writes without leaving the thread", async () => {
    await using stack = new AsyncDisposableStack();
    const db = openDatabase("sqlite::memory:");
    stack.defer(() => db.destroy());
    await migrate(db, "inventory", stockMigrations, "up");
    const store = new StockStore(db);
    const events: string[] = [];
    const commits = new GroupCommit({
      takeTurn: (mayGrow) => store.takeTurn(mayGrow),
      maxBatch: 2,
      maxQueued: 9,
      onDequeued: () => {},
      onWritten: (changes) => events.push(`wrote ${changes}`),
      now: () => 0,
    });
    const send = async (n: number) => {
      await commits.submit([change(n)]);
      await setImmediate(); // as a server that sends outcomes does
      events.push(`sent ${n}`);
    };
    await Promise.all([1, 2, 3].map(send));
    expect(events).toEqual(["wrote 2", "sent 1", "sent 2", "wrote 1", "sent 3"]);
  });

  describe("waits for the lock", () => {
    test("a turn that waits for the lock takes the changes that arrive meanwhile, up to the batch limit and if they are still wanted", async () => {
      const { database, submit, settled } = open({ maxBatch: 4 });
      database.mayHaveOtherWriters = true;
      void submit(1);
      void submit(2);
      await settle();
      void submit(3, () => false);
      for (const n of [4, 5]) void submit(n);
      database.locks[0]!.grant();
      await settle();
      expect(database.batches()).toEqual([[1, 2, 4]]);
      expect(settled).toEqual(["3 ExpiredError"]);
      database.writes[0]!.succeed();
      await settle();
      expect(settled.slice(1)).toEqual(["1 is 1", "2 is 2", "4 is 4"]);
      expect(database.batches()).toEqual([[1, 2, 4], [5]]);
    });

    test("a turn that waits for the lock is not requested where no change can join: for a single change and for a full batch", async () => {
      const { database, submit } = open({ maxBatch: 3 });
      for (const batch of [[1], [2, 3], [4, 5, 6], [7, 8, 9, 10]]) {
        for (const n of batch) void submit(n);
        await settle();
        database.writes.at(-1)!.succeed();
        await settle();
      }
      expect(database.turns).toEqual([false, true, false, false, false]);
    });

    test("a turn that waits for the lock is released unused when no caller waits any more", async () => {
      const { database, measured, submit, settled } = open();
      database.mayHaveOtherWriters = true;
      let isWanted = true;
      for (const n of [1, 2]) void submit(n, () => isWanted);
      await settle();
      isWanted = false;
      database.locks[0]!.grant();
      await settle();
      expect(settled).toEqual(["1 ExpiredError", "2 ExpiredError"]);
      expect(database).toMatchObject({ open: 0, writes: [] });
      expect(measured).toEqual([]);
    });

    test("a turn that gets no lock rejects the changes that waited from its beginning, and later changes get the next turn", async () => {
      const { database, clock, measured, submit, settled } = open();
      database.mayHaveOtherWriters = true;
      void submit(1);
      void submit(2, () => false);
      void submit(3);
      await settle();
      void submit(4);
      clock.nowMs = 7;
      database.locks[0]!.deny(new RangeError("no lock"));
      await settle();
      expect(settled).toEqual(["2 ExpiredError", "1 RangeError", "3 RangeError"]);
      expect(measured).toEqual([[2, 7, false]]);
      expect(database.batches()).toEqual([[4]]);
      database.writes[0]!.succeed();
      await settle();
      expect(settled.at(-1)).toBe("4 is 4");
    });

    test("a turn that gets no lock is measured as no batch when no caller waits any more", async () => {
      const { database, measured, submit, settled } = open();
      database.mayHaveOtherWriters = true;
      for (const n of [1, 2]) void submit(n, () => false);
      await settle();
      database.locks[0]!.deny(new RangeError("no lock"));
      await settle();
      expect(settled).toEqual(["1 ExpiredError", "2 ExpiredError"]);
      expect(measured).toEqual([]);
    });
  });

  test("a failed write rejects the changes that joined late, and no later ones", async () => {
    const { database, submit, settled } = open();
    database.mayHaveOtherWriters = true;
    for (const n of [1, 2]) void submit(n);
    await settle();
    void submit(3);
    database.locks[0]!.grant();
    await settle();
    void submit(4);
    database.writes[0]!.fail(new RangeError("the disk is full"));
    await settle();
    expect(settled).toEqual(["1 RangeError", "2 RangeError", "3 RangeError"]);
    database.writes[1]!.succeed();
    await settle();
    expect(settled[3]).toBe("4 is 4");
  });

  test("each batch is measured with its size, its duration and its end, and releases its turn", async () => {
    const { database, clock, measured, submit } = open({ maxBatch: 2 });
    for (const n of [1, 2, 3]) void submit(n);
    await settle();
    clock.nowMs = 5;
    database.writes[0]!.succeed();
    await settle();
    clock.nowMs = 12;
    database.writes[1]!.fail(new RangeError("the disk is full"));
    await settle();
    expect(measured).toEqual([
      [2, 5, true],
      [1, 7, false],
    ]);
    expect(database.open).toBe(0);
  });

  test("a full queue refuses a change at once, and takes changes again when it has room", async () => {
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

  test("callers can tell a full queue from an expired change", async () => {
    const { commits } = open({ maxQueued: 1 });
    const expired = commits.submit([change(1)], () => false);
    await expect(commits.submit([change(2)])).rejects.toBeInstanceOf(QueueFullError);
    await expect(expired).rejects.toBeInstanceOf(ExpiredError);
  });

  test("a change whose caller stopped waiting is not written, and the others are", async () => {
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

  test("a batch without a wanted change is not written, and the next one is", async () => {
    const { database, submit, settled } = open({ maxBatch: 2 });
    for (const n of [1, 2]) void submit(n, () => false);
    void submit(3);
    await settle();
    expect(database.batches()).toEqual([[3]]);
    expect(settled).toEqual(["1 ExpiredError", "2 ExpiredError"]);
  });

  test("a failed write rejects exactly its batch, and the next one is written", async () => {
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

  test("a turn that fails at once, or whose write does, rejects its changes", async () => {
    const fail = () => {
      throw new RangeError("no connection");
    };
    for (const takeTurn of [fail, async () => ({ write: fail, [Symbol.asyncDispose]: async () => {} })]) {
      const ignore = () => {};
      const options = { takeTurn, maxBatch: 1, maxQueued: 9, onDequeued: ignore, onWritten: ignore, now: () => 0 };
      const commits = new GroupCommit(options);
      const results = await Promise.allSettled([commits.submit([change(1)]), commits.submit([change(2)])]);
      expect(results.map(({ status }) => status)).toEqual(["rejected", "rejected"]);
    }
  });

  test("drain() resolves when nothing waits or is being written", async () => {
    const { database, commits, submit, settled } = open({ maxBatch: 1 });
    await commits.drain(); // nothing waits
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

  test("drain() resolves after a failed write, too", async () => {
    const { database, commits, submit } = open();
    void submit(1);
    await settle();
    database.writes[0]!.fail(new Error("gone"));
    await expect(commits.drain()).resolves.toBeUndefined();
  });

  test("changes after an idle time are written like the first ones", async () => {
    const { database, submit } = open();
    for (const n of [1, 2]) {
      const done = submit(n);
      await settle();
      database.writes.at(-1)!.succeed();
      await done;
    }
    expect(database.batches()).toEqual([[1], [2]]);
  });

  test("each caller is answered once, in order and with the result of its write, in any sequence of events", async () => {
    const step = fc.oneof(
      { weight: 5, arbitrary: fc.constantFrom("submit", "submit and leave") },
      { weight: 2, arbitrary: fc.constantFrom("succeed", "fail") },
      { weight: 2, arbitrary: fc.constantFrom("grant", "grant", "deny") },
      { weight: 2, arbitrary: fc.constant("wait") },
    );
    await fc.assert(
      fc.asyncProperty(fc.boolean(), fc.array(step, { maxLength: 40 }), async (mayHaveOtherWriters, steps) => {
        const { database, commits, settled, submit } = open({ maxBatch: 4, maxQueued: 6 });
        database.mayHaveOtherWriters = mayHaveOtherWriters;
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
          else if (each === "grant") database.locks.at(-1)?.grant();
          else if (each === "deny") database.locks.at(-1)?.deny(new TypeError("no lock"));
          else end(each as "succeed" | "fail");
        }
        for (let drained = false; !drained; end("succeed")) {
          database.locks.at(-1)?.grant();
          drained = await Promise.race([commits.drain().then(() => true), settle().then(() => false)]);
        }
        await settle();

        const written = database.batches().flat();
        expect(written).toEqual([...written].sort((a, b) => a - b));
        expect(database.mostAtOnce).toBeLessThanOrEqual(1);
        expect(Math.max(0, ...database.batches().map(({ length }) => length))).toBeLessThanOrEqual(4);
        expect(database.open).toBe(0);
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
