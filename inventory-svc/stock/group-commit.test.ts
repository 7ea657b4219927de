import { setImmediate } from "node:timers/promises";
import fc from "fast-check";
import { migrate } from "../../runtime/database/migrations.ts";
import { openDatabase } from "../../runtime/database/open.ts";
import { InvariantError } from "../../runtime/invariant.ts";
import { asGroup } from "../../test/support/stock-changes.ts";
import type { Change, Outcome } from "./change.ts";
import { ExpiredError, GroupCommit, QueueFullError } from "./group-commit.ts";
import { stockMigrations } from "./stock-migrations.ts";
import { StockStore } from "./stock-store.ts";
import type { WriteRequest, Written } from "./write.ts";

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

/** A database that ends writes when the test says so. */
class Database {
  readonly writes: Write[] = [];
  /** Writes that have begun and not ended. */
  running = 0;
  mostAtOnce = 0;

  readonly write = async (requests: readonly WriteRequest[]): Promise<Written> => {
    const { promise, resolve: succeed, reject: fail } = Promise.withResolvers<void>();
    const batch = requests.flatMap(({ group }) => group.changes.map(({ petId }) => Number(petId)));
    this.writes.push({ batch, succeed, fail });
    this.running += 1;
    this.mostAtOnce = Math.max(this.mostAtOnce, this.running);
    await promise.finally(() => {
      this.running -= 1;
    });
    const wanted = requests.filter(({ isWanted }) => isWanted());
    return new Map(wanted.map((request) => [request, request.group.changes.map(outcome)]));
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
    store: { writeWanted: database.write },
    maxBatch,
    maxQueued,
    onDequeued: () => {},
    onWritten: (...measures) => measured.push(measures),
    elapsedMs: () => clock.nowMs,
  });
  /** The result of each change so far, in the order in which callers got it. */
  const settled: string[] = [];
  const submit = (n: number, isWanted = isAlwaysWanted) =>
    commits.submit(asGroup([change(n)]), isWanted).then(
      ([result]) => {
        settled.push(`${n} ${result!.kind === "done" ? `is ${result!.item.petId}` : result!.kind}`);
      },
      (error: Error) => {
        settled.push(`${n} ${error.name}`);
      },
    );
  return { database, commits, clock, measured, settled, submit };
}

const isAlwaysWanted = () => true;

/** Resolves when everything has run that does not wait for a lock or a write. */
const settle = () => setImmediate();

describe("group commit", () => {
  test("a group is written in one batch, and counts as all of its changes", async () => {
    const { commits, database } = open({ maxBatch: 48, maxQueued: 120 });
    const group = (from: number, count: number) => Array.from({ length: count }, (_, i) => change(from + i));
    const submitted = [group(0, 1), group(1, 30), group(31, 18), group(49, 60), group(109, 11)].map((each) => {
      return commits.submit(asGroup(each), isAlwaysWanted);
    });
    expect(commits.queued).toBe(120);
    const refused = expect(commits.submit(asGroup(group(200, 1)), isAlwaysWanted)).rejects.toBeInstanceOf(
      QueueFullError,
    );
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

  test.each([
    ["fewer outcomes than changes", [outcome(change(1))]],
    ["more outcomes than changes", [1, 2, 3].map((n) => outcome(change(n)))],
    ["the outcome of another entry", [2, 1].map((n) => outcome(change(n)))],
  ])("a write that gives %s is an error to each caller of its batch", async (_, outcomes) => {
    const commits = new GroupCommit({
      store: { writeWanted: async ([first]) => new Map([[first!, outcomes]]) },
      maxBatch: 100,
      maxQueued: 100,
      onDequeued: () => {},
      onWritten: () => {},
      elapsedMs: () => 0,
    });
    const batch = [asGroup([change(1), change(2)]), asGroup([change(3)])].map((group) =>
      commits.submit(group, isAlwaysWanted),
    );
    for (const { reason } of (await Promise.allSettled(batch)) as PromiseRejectedResult[]) {
      expect(reason).toBeInstanceOf(InvariantError);
    }
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

    test("keeps batches small where callers are slower than the database, so that both work at once", async () => {
      const { perSecond, mean } = await load({ callers: 256, commitMs: 1, perChangeMs: 0.03, callerMs: 0.06 });
      expect(mean).toBeLessThan(100);
      expect(perSecond).toBeGreaterThan(0.9 * (1_000 / 0.06)); // the maximum that the callers can send
    });

    test("grows where commits are slow, until batches keep up with the callers", async () => {
      const { perSecond, mean } = await load({ callers: 2_000, commitMs: 20, perChangeMs: 0.01, callerMs: 0.06 });
      expect(mean).toBeGreaterThan(300);
      expect(perSecond).toBeGreaterThan(0.9 * (1_000 / 0.06));
    });

    test("is never larger than maxBatch", async () => {
      const { mean } = await load({ callers: 500, commitMs: 100, perChangeMs: 0, callerMs: 0 }, 60);
      expect(mean).toBe(60);
    });

    test("is small again after a time without changes", async () => {
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
  });

  test("outcomes are sent between two transactions, even on SQLite, which writes on this thread", async () => {
    await using stack = new AsyncDisposableStack();
    const db = openDatabase("sqlite::memory:");
    stack.defer(() => db.destroy());
    await migrate(db, "inventory", stockMigrations, "up");
    const store = new StockStore(db);
    const events: string[] = [];
    const commits = new GroupCommit({
      store,
      maxBatch: 2,
      maxQueued: 9,
      onDequeued: () => {},
      onWritten: (changes) => events.push(`wrote ${changes}`),
      elapsedMs: () => 0,
    });
    const send = async (n: number) => {
      await commits.submit(asGroup([change(n)]), isAlwaysWanted);
      await setImmediate(); // as a server that sends outcomes does
      events.push(`sent ${n}`);
    };
    await Promise.all([1, 2, 3].map(send));
    expect(events).toEqual(["wrote 2", "sent 1", "sent 2", "wrote 1", "sent 3"]);
  });

  test("each batch is measured with its size, its duration and its end", async () => {
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
    const { commits, database } = open({ maxQueued: 1 });
    const expired = commits.submit(asGroup([change(1)]), () => false);
    await expect(commits.submit(asGroup([change(2)]), isAlwaysWanted)).rejects.toBeInstanceOf(QueueFullError);
    database.writes[0]!.succeed();
    await expect(expired).rejects.toBeInstanceOf(ExpiredError);
  });

  test("a change whose caller has left is refused and not measured, unlike the others", async () => {
    const { database, measured, submit, settled } = open();
    let isWanted = true;
    void submit(1, () => isWanted);
    void submit(2);
    await settle();
    isWanted = false; // during the write
    database.writes[0]!.succeed();
    await settle();
    expect(settled).toEqual(["1 ExpiredError", "2 is 2"]);
    expect(measured).toEqual([[1, 0, true]]);
    void submit(3, () => isWanted);
    await settle();
    database.writes[1]!.succeed();
    await settle();
    expect(settled.at(-1)).toBe("3 ExpiredError");
    expect(measured).toHaveLength(1);
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

  test("a write that fails at once rejects its changes", async () => {
    const writeWanted = () => {
      throw new RangeError("no connection");
    };
    const ignore = () => {};
    const commits = new GroupCommit({
      store: { writeWanted },
      maxBatch: 1,
      maxQueued: 9,
      onDequeued: ignore,
      onWritten: ignore,
      elapsedMs: () => 0,
    });
    const results = await Promise.allSettled([
      commits.submit(asGroup([change(1)]), isAlwaysWanted),
      commits.submit(asGroup([change(2)]), isAlwaysWanted),
    ]);
    expect(results.map(({ status }) => status)).toEqual(["rejected", "rejected"]);
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

  test("each caller is answered once, in order and with its write's result, whatever happens", async () => {
    const step = fc.oneof(
      { weight: 5, arbitrary: fc.constantFrom("submit", "submit and leave") },
      { weight: 2, arbitrary: fc.constantFrom("succeed", "fail") },
      { weight: 2, arbitrary: fc.constant("wait") },
    );
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 40 }), async (steps) => {
        const { database, commits, settled, submit } = open({ maxBatch: 4, maxQueued: 6 });
        const ended: Record<string, number[]> = { succeed: [], fail: [] };
        const end = (how: "succeed" | "fail") => {
          const write = database.writes[ended.succeed!.length + ended.fail!.length];
          if (write === undefined) return;
          ended[how]!.push(database.writes.indexOf(write));
          if (how === "succeed") write.succeed();
          else write.fail(new RangeError("failed"));
        };
        let submitted = 0;
        const left = new Set<number>();
        for (const each of steps) {
          if (each === "submit") void submit(++submitted);
          else if (each === "submit and leave") {
            left.add(++submitted);
            void submit(submitted, () => false);
          } else if (each === "wait") await settle();
          else end(each as "succeed" | "fail");
        }
        for (let drained = false; !drained; end("succeed")) {
          drained = await Promise.race([commits.drain().then(() => true), settle().then(() => false)]);
        }
        await settle();

        const written = database.batches().flat();
        expect(written).toEqual([...written].sort((a, b) => a - b));
        expect(database.mostAtOnce).toBeLessThanOrEqual(1);
        expect(Math.max(0, ...database.batches().map(({ length }) => length))).toBeLessThanOrEqual(4);
        const toldOf = (what: string) =>
          settled.filter((line) => line.endsWith(what)).map((line) => Number(line.split(" ")[0]));
        const of = (writes: number[]) => writes.flatMap((i) => database.batches()[i]!);
        const acknowledged = settled.filter((line) => line.includes(" is "));
        expect(acknowledged).toEqual(of(ended.succeed!).flatMap((n) => (left.has(n) ? [] : `${n} is ${n}`)));
        expect(toldOf("ExpiredError")).toEqual(of(ended.succeed!).filter((n) => left.has(n)));
        expect(toldOf("RangeError")).toEqual(of(ended.fail!));
        expect(settled).toHaveLength(submitted);
        expect(new Set(settled.map((line) => line.split(" ")[0])).size).toBe(submitted);
      }),
    );
  });
});
