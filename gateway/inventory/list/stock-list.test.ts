import { setImmediate } from "node:timers/promises";
import { gunzipSync } from "node:zlib";
import { context, createContextKey, ROOT_CONTEXT } from "@opentelemetry/api";
import { AsyncLocalStorageContextManager } from "@opentelemetry/context-async-hooks";
import fc from "fast-check";
import type { StockChanges } from "../../../client/index.ts";
import type { ListedItem } from "../../../proto/pet.ts";
import { InvariantError } from "../../../runtime/invariant.ts";
import { collectGarbage } from "../../../test/support/garbage.ts";
import { PlainStock as Stock } from "../../../test/support/plain-stock.ts";
import type { CheckProgress } from "./load-list.ts";
import { type Body, epochTagOf, Snapshot } from "./snapshot.ts";
import { nextSnapshot, StockList } from "./stock-list.ts";

const { jest } = import.meta;

const timeoutMs = 60_000;

const text = ({ pieces, length }: Body): string => {
  const bytes = Buffer.concat(pieces);
  expect(bytes.length).toBe(length);
  return bytes.toString();
};

const unzipped = async (snapshot: Snapshot): Promise<string> => {
  const { pieces, length } = await snapshot.deflate(() => {});
  const bytes = Buffer.concat(pieces);
  expect(bytes.length).toBe(length);
  return gunzipSync(bytes).toString();
};

describe("StockList", () => {
  test("the list of an empty stock is an empty array, plain and gzip", async () => {
    const snapshot = await new StockList(new Stock(), timeoutMs).readFresh();
    expect(text(snapshot.plain())).toBe("[]");
    expect(await unzipped(snapshot)).toBe("[]");
  });

  test("the list after any changes in any steps is the JSON of the stock, in the order of petId", async () => {
    const petId = fc.oneof(
      fc.bigInt({ min: -40n, max: 2_000n }),
      fc.bigInt({ min: 4_000n, max: 9_100n }),
      fc.constantFrom(2n ** 63n - 1n, -(2n ** 63n), 2n ** 53n + 1n),
    );
    const change = fc.oneof(
      { weight: 4, arbitrary: fc.tuple(fc.constant("set" as const), petId, fc.nat(2_147_483_647)) },
      { weight: 1, arbitrary: fc.tuple(fc.constant("remove" as const), petId, fc.constant(0)) },
    );
    const steps = fc.array(fc.array(change, { maxLength: 80 }), { maxLength: 12 });
    await fc.assert(
      fc.asyncProperty(
        fc.oneof({ weight: 5, arbitrary: fc.nat(1_500) }, fc.constant(9_000)),
        steps,
        async (seeded, allSteps) => {
          const stock = new Stock();
          for (let i = 0; i < seeded; i++) stock.set(BigInt(i), i);
          const list = new StockList(stock, timeoutMs);
          for (const step of [[], ...allSteps]) {
            for (const [kind, id, quantity] of step) kind === "set" ? stock.set(id, quantity) : stock.remove(id);
            const snapshot = await list.readFresh();
            expect(text(snapshot.plain())).toBe(stock.json());
            expect(await unzipped(snapshot)).toBe(stock.json());
          }
          expect(stock.loads).toBe(1);
        },
      ),
      { numRuns: 60 },
    );
  });

  test("many changes come in several answers, and a failure between two of them loses none", async () => {
    const stock = new Stock();
    for (let i = 0n; i < 1_000n; i++) stock.set(i, 1);
    const list = new StockList(stock, timeoutMs);
    const before = await list.readFresh();
    const json = stock.json();
    for (let i = 999n; i >= 0n; i--) stock.set(i, 2);
    stock.maxChanges = 100;
    stock.checks = 0;
    stock.before = async () => {
      if (stock.checks === 3) throw new Error("the service is away");
      stock.set(BigInt(stock.checks), 3); // an entry of a later answer
      stock.set(999n - BigInt(stock.checks), 3); // an entry of the first one
    };
    await expect(list.readFresh()).rejects.toThrow("away");
    expect(text((await list.readFresh()).plain())).toBe(stock.json());
    expect([stock.checks, stock.loads]).toEqual([12, 1]);
    expect(text(before.plain())).toBe(json);
  });

  test("while a check comes in several answers, the list before it still tells what has changed", async () => {
    const stock = new Stock();
    for (let i = 0n; i < 1_000n; i++) stock.set(i, 1);
    const list = new StockList(stock, timeoutMs);
    const before = await list.readFresh();
    stock.set(1n, 2);
    const known = await list.readFresh();
    for (let i = 0n; i < 1_000n; i++) stock.set(i, 3);
    stock.maxChanges = 100;
    const since = { epochTag: epochTagOf(before.epoch), revision: before.revision };
    const shown: string[] = [];
    stock.before = async () => {
      const { pieces, text: changes } = await list.changesSince(since, { accountId: "a", hasLeft: () => false });
      shown.push(JSON.parse(changes ?? Buffer.concat(pieces).toString()).etag, list.last!.snapshot.etag);
    };
    await list.readFresh();
    expect(shown).toEqual(Array(20).fill(known.etag));
  });

  test("a load during which more changes than an answer has ends with all of them", async () => {
    const stock = new Stock();
    for (let i = 0n; i < 1_000n; i++) stock.set(i, 1);
    stock.maxChanges = 100;
    const load = stock.load.bind(stock);
    stock.load = async function* (after) {
      yield* load(after);
      for (let i = 0n; i < 1_000n; i++) stock.set(i, 2);
    };
    const list = new StockList(stock, timeoutMs);
    expect(text((await list.readFresh()).plain())).toBe(stock.json());
    expect([stock.checks, stock.loads]).toEqual([10, 1]);
  });

  test("a list that is emptied and filled again is still that of the stock", async () => {
    const stock = new Stock();
    for (let i = 0n; i < 1_000n; i++) stock.set(i, 1);
    const list = new StockList(stock, timeoutMs);
    await list.readFresh();
    for (let i = 0n; i < 1_000n; i++) stock.remove(i);
    expect(text((await list.readFresh()).plain())).toBe("[]");
    for (let i = 5_000n; i > 0n; i--) stock.set(i, 2);
    expect(text((await list.readFresh()).plain())).toBe(stock.json());
  });

  test("a change renders only its chunk of the list again, and leaves a snapshot of a reader alone", async () => {
    const stock = new Stock();
    for (let i = 0n; i < 10_000n; i++) stock.set(i, 1);
    const list = new StockList(stock, timeoutMs);
    const before = await list.readFresh();
    const json = stock.json();
    stock.set(5_000n, 2);
    const after = await list.readFresh();
    expect(after.chunks.filter((chunk) => !before.chunks.includes(chunk))).toHaveLength(1);
    expect(text(before.plain())).toBe(json);
    expect(text(after.plain())).toBe(stock.json());
  });

  test("the body of a list is a few pieces, and a change replaces only one of them", async () => {
    const stock = new Stock();
    for (let i = 0n; i < 20_000n; i++) stock.set(i, 1);
    const list = new StockList(stock, timeoutMs);
    const before = await list.readFresh();
    stock.set(9_000n, 2);
    const after = await list.readFresh();
    for (const [was, is] of [
      [before.plain(), after.plain()],
      [await before.deflate(() => {}), await after.deflate(() => {})],
    ] as const) {
      expect(is.pieces.length).toBeLessThan(20);
      const shared = is.pieces.filter((piece) => piece.length > 100 && was.pieces.includes(piece));
      const large = is.pieces.filter((piece) => piece.length > 100);
      expect(shared).toHaveLength(large.length - 1);
    }
  });

  test("however many states of the list are wanted as gzip, two of them are compressed", async () => {
    const stock = new Stock();
    for (let i = 0n; i < 5_000n; i++) stock.set(i, 1);
    const list = new StockList(stock, timeoutMs);
    const wanted: Promise<{ etag: string; body: Body }>[] = [];
    let latest: Snapshot | undefined;
    for (let quantity = 2; quantity < 12; quantity++) {
      stock.set(9n, quantity);
      latest = await list.readFresh();
      wanted.push(list.gzipOf(latest));
    }
    const [first, ...others] = await Promise.all(wanted);
    expect(new Set(others).size).toBe(1);
    expect(others[0]!.etag).toBe(latest!.gzipEtag);
    expect(first!.etag).not.toBe(latest!.gzipEtag);
    expect(gunzipSync(Buffer.concat(others[0]!.body.pieces)).toString()).toBe(stock.json());
    expect((await list.gzipOf(latest!)).body).toBe(others[0]!.body);
  });

  test("a list of many megabytes is sent from the chunks themselves, without a second copy", async () => {
    const stock = new Stock();
    for (let i = 0n; i < 180_000n; i++) stock.set(i, 1);
    const snapshot = await new StockList(stock, timeoutMs).readFresh();
    const { pieces } = snapshot.plain();
    expect(snapshot.chunks.slice(1).every(({ json }, i) => pieces[i + 1] === json)).toBe(true);
    expect(text(snapshot.plain())).toBe(stock.json());
  });

  test("a stock without a change gives the same snapshot with the same ETag", async () => {
    const stock = new Stock();
    stock.set(1n, 1);
    const list = new StockList(stock, timeoutMs);
    expect(await list.readFresh()).toBe(await list.readFresh());
  });

  test("the list that a reset made useless leaves the memory before the next one is loaded", async () => {
    const stock = new Stock();
    const list = new StockList(stock, timeoutMs);
    const readOne = async () => new WeakRef(await list.readFresh());
    const old = await readOne();
    stock.epoch = "another epoch";
    const [asked, loading] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    stock.load = async function* () {
      asked.resolve();
      await loading.promise;
      yield* Stock.prototype.load.call(stock, undefined);
    };
    const reloaded = list.readFresh();
    await asked.promise;
    await setImmediate(); // a WeakRef keeps its object until the end of its turn
    collectGarbage();
    expect(old.deref()).toBeUndefined();
    loading.resolve();
    expect((await reloaded).epoch).toBe("another epoch");
  });

  test("another epoch, or a revision beyond the stock's, loads the list again under another ETag", async () => {
    const stock = new Stock();
    stock.set(1n, 1);
    stock.set(2n, 1);
    const list = new StockList(stock, timeoutMs);
    const { etag } = await list.readFresh();
    stock.epoch = "restored1-of-the-test";
    const restored = await list.readFresh();
    expect(restored.etag).not.toBe(etag);
    stock.items.delete(2n);
    stock.revision = 1n;
    expect(text((await list.readFresh()).plain())).toBe(stock.json());
    expect(stock.loads).toBe(3);
  });

  test("a list whose services are on different stocks is refused, and not loaded over and over", async () => {
    const stock = new Stock();
    const list = new StockList(
      { load: (after) => stock.load(after), changesAfter: async () => ({ kind: "reset" }) },
      timeoutMs,
    );
    await expect(list.readFresh()).rejects.toMatchObject({ code: "service_unavailable" });
    expect(stock.loads).toBe(3);
  });

  describe("changes that cannot be", () => {
    const changed = { petId: 1n, quantity: 9, status: "sold", revision: 3n, removed: false } as const;
    const position = { epoch: "epoch-of-the-test", revision: 3n };
    const real = { kind: "changes", position, floor: 2n, more: false } as const;
    test.each<[string, Partial<StockChanges>]>([
      ["take the list back", { position: { ...real.position, revision: 1n }, items: [] }],
      ["are of another epoch", { position: { ...real.position, epoch: "another" }, items: [changed] }],
      ["are no newer than the list", { items: [{ ...changed, revision: 2n }] }],
      ["are newer than their position", { items: [{ ...changed, revision: 4n }] }],
      ["lower the floor", { items: [changed], floor: 1n }],
    ])("changes that %s are refused, and the list stays as it is", async (_, fault) => {
      const stock = new Stock();
      stock.set(1n, 1);
      stock.set(2n, 1);
      stock.floor = 2n;
      const list = new StockList(stock, timeoutMs);
      const before = await list.readFresh();
      const { changesAfter } = stock;
      stock.changesAfter = async () => ({ ...real, items: [], ...fault }) as StockChanges;
      await expect(list.readFresh()).rejects.toThrow(InvariantError);
      stock.changesAfter = changesAfter;
      expect(await list.readFresh()).toBe(before);
      expect(stock.loads).toBe(1);
    });

    test("changes that name an entry twice are refused, and the next read loads the list again", async () => {
      const stock = new Stock();
      stock.set(1n, 1);
      stock.set(2n, 1);
      const list = new StockList(stock, timeoutMs);
      await list.readFresh();
      const { changesAfter } = stock;
      stock.changesAfter = async () => ({ ...real, items: [changed, { ...changed, petId: 2n }, changed] });
      await expect(list.readFresh()).rejects.toThrow(InvariantError);
      stock.changesAfter = changesAfter;
      expect(text((await list.readFresh()).plain())).toBe(stock.json());
      expect(stock.loads).toBe(2);
    });
  });

  test("a failed check fails the reads that waited for it, and the next one works", async () => {
    const stock = new Stock();
    const list = new StockList(stock, timeoutMs);
    stock.before = async () => {
      throw new Error("away");
    };
    const both = [list.readFresh(), list.readFresh()];
    expect((await Promise.allSettled(both)).map(({ status }) => status)).toEqual(["rejected", "rejected"]);
    stock.before = async () => {};
    expect(text((await list.readFresh()).plain())).toBe("[]");
  });

  test("reads of the list that arrive together share a check", async () => {
    const stock = new Stock();
    const list = new StockList(stock, timeoutMs);
    await Promise.all(Array.from({ length: 50 }, () => list.readFresh()));
    expect(stock.checks).toBe(1);
  });

  test("a check runs in the trace of its first read, also when it follows another check", async () => {
    context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
    const traces: unknown[] = [];
    const key = createContextKey("trace");
    const { promise: hold, resolve: release } = Promise.withResolvers<void>();
    const stock = new Stock();
    stock.before = async () => {
      traces.push(context.active().getValue(key));
      if (traces.length === 1) await hold;
    };
    const list = new StockList(stock, timeoutMs);
    const read = (trace: string) => context.with(ROOT_CONTEXT.setValue(key, trace), () => list.readFresh());
    const first = read("first");
    await setImmediate();
    const later = [read("second"), read("third")];
    release();
    await Promise.all([first, ...later]);
    context.disable();
    expect(traces).toEqual(["first", "second"]);
  });

  test("reads of the list that arrive during a check share the next one", async () => {
    const stock = new Stock();
    const list = new StockList(stock, timeoutMs);
    await list.readFresh();
    stock.checks = 0;
    const { promise: begun, resolve: begin } = Promise.withResolvers<void>();
    stock.before = async () => {
      begin();
      await setImmediate();
    };
    const first = list.readFresh();
    await begun;
    await Promise.all([first, ...Array.from({ length: 50 }, () => list.readFresh())]);
    expect(stock.checks).toBe(2);
  });
});

describe("waiting reads", () => {
  beforeEach(() => void jest.useFakeTimers());
  afterEach(() => void jest.useRealTimers());
  const pass = (ms: number) => jest.advanceTimersByTimeAsync(ms);
  const shortMs = 1_000;
  const never = () => new Promise<never>(() => {});

  test("a read of a stock that does not answer ends a time-out after its arrival, queued or not", async () => {
    const stock = new Stock();
    const list = new StockList(stock, shortMs);
    await list.readFresh();
    stock.before = never;
    const ends: string[] = [];
    for (const name of ["first", "second"]) {
      list.readFresh().catch(({ status, code }) => ends.push(`${name} ${status} ${code}`));
      await pass(900);
    }
    expect(ends).toEqual(["first 504 timeout"]);
    await pass(150);
    expect(ends).toEqual(["first 504 timeout", "second 504 timeout"]);
  });

  test("a read waits for a load for as long as its parts keep coming, and no longer", async () => {
    const stock = new Stock();
    let partMs = 900;
    stock.load = async function* () {
      for (let petId = 1n; petId <= 5n; petId++) {
        await new Promise((resolve) => setTimeout(resolve, partMs));
        stock.set(petId, 1);
        yield {
          position: { epoch: stock.epoch, revision: 0n },
          items: [{ ...stock.items.get(petId)!, removed: false }],
        };
      }
    };
    const read = new StockList(stock, shortMs).readFresh();
    await pass(5 * partMs);
    expect(text((await read).plain())).toBe(stock.json());
    partMs = 1_200;
    const late = expect(new StockList(stock, shortMs).readFresh()).rejects.toMatchObject({ code: "timeout" });
    await pass(partMs);
    await late;
  });

  test("a read, also of gzip after a reset, waits for a check while its parts keep coming", async () => {
    const stock = new Stock();
    const list = new StockList(stock, shortMs);
    const before = await list.readFresh();
    stock.changesAfter = async () => ({ kind: "reset" });
    await expect(list.readFresh()).rejects.toMatchObject({ code: "service_unavailable" });
    let report: CheckProgress | undefined;
    const changes = Promise.withResolvers<StockChanges>();
    stock.changesAfter = (_position, given) => {
      report = given;
      return changes.promise;
    };
    const read = list.readFresh();
    const compressed = list.gzipOf(before);
    for (let part = 0; part < 5; part++) {
      await pass(900);
      report!.progress();
    }
    changes.resolve({ kind: "reset" });
    stock.changesAfter = Stock.prototype.changesAfter;
    expect(text((await read).plain())).toBe("[]");
    expect(gunzipSync(Buffer.concat((await compressed).body.pieces)).toString()).toBe("[]");
  });
});

describe("linearizability", () => {
  /** Reads and writes at random while answers are delayed at random. @returns how many reads missed a write */
  async function violations(list: { readFresh(): Promise<Snapshot> }, stock: Stock): Promise<number> {
    const pause = () => new Promise<void>((resolve) => setTimeout(resolve, Math.random() * 3));
    stock.after = pause;
    let missed = 0;
    await Promise.all(
      Array.from({ length: 20 }, async (_, reader) => {
        for (let i = 0; i < 30; i++) {
          if (reader < 4) stock.set(BigInt(reader), i);
          const acknowledged = stock.revision;
          const { revision } = await list.readFresh();
          if (revision < acknowledged) missed += 1;
          if (reader % 2 === 0) await pause();
        }
      }),
    );
    return missed;
  }

  test("no read of the list is older than what was acknowledged before it began", async () => {
    const stock = new Stock();
    expect(await violations(new StockList(stock, timeoutMs), stock)).toBe(0);
  });

  test("the test of linearizability fails for a list whose reads join the check that is under way", async () => {
    const stock = new Stock();
    const list = new StockList(stock, timeoutMs);
    let running: Promise<Snapshot> | undefined;
    const broken = {
      readFresh: () => {
        running ??= list.readFresh().finally(() => {
          running = undefined;
        });
        return running;
      },
    };
    expect(await violations(broken, stock)).toBeGreaterThan(0);
  });
});

describe("nextSnapshot", () => {
  test("a list that grows one entry at a time, from its end to its beginning, stays in few chunks", () => {
    let snapshot = new Snapshot("e", 0n, []);
    for (let petId = 2_000n; petId > 0n; petId--) {
      const revision = snapshot.revision + 1n;
      const items: ListedItem[] = [{ petId, quantity: 1, status: "sold", revision, removed: false }];
      const position = { epoch: "e", revision };
      snapshot = nextSnapshot(snapshot, { kind: "changes", position, items, floor: 0n, more: false });
    }
    expect(snapshot.chunks.length).toBeLessThan(20);
    expect(snapshot.chunks.flatMap(({ petIds }) => [...petIds])).toEqual(
      Array.from({ length: 2_000 }, (_, i) => BigInt(i + 1)),
    );
  });

  test("splits chunks for a large batch, so that none grows without bound", async () => {
    const stock = new Stock();
    stock.set(0n, 0);
    const snapshot = await new StockList(stock, timeoutMs).readFresh();
    const items = Array.from(
      { length: 5_000 },
      (_, i): ListedItem => ({ petId: BigInt(i), quantity: 1, status: "sold", revision: 9n, removed: false }),
    );
    const next = nextSnapshot(snapshot, {
      kind: "changes",
      position: { epoch: "e", revision: 9n },
      items,
      floor: 0n,
      more: false,
    });
    expect(Math.max(...next.chunks.map(({ petIds }) => petIds.length))).toBeLessThanOrEqual(512);
  });
});
