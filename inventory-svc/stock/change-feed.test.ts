import type { Position } from "../../proto/pet.ts";
import { ChangeFeed, maxWatches } from "./change-feed.ts";
import { TooManyAtOnceError } from "./stock-errors.ts";
import type { ChangesPage } from "./stock-store.ts";

/** A stock that has only a revision, and a change feed of it whose reads are counted. */
function stock(revision: bigint) {
  const state = { revision, reads: 0, atOnce: 0, mostAtOnce: 0 };
  const read = async (from: Position): Promise<ChangesPage> => {
    state.reads += 1;
    state.mostAtOnce = Math.max(state.mostAtOnce, ++state.atOnce);
    await new Promise(setImmediate);
    state.atOnce -= 1;
    if (from.epoch !== "e") return { kind: "reset" };
    const rows = from.revision === state.revision ? [] : [{ petId: from.revision } as never];
    return { kind: "changes", position: { epoch: "e", revision: state.revision }, rows, floor: 0n, more: false };
  };
  return { state, feed: new ChangeFeed(read) };
}

const at = (revision: bigint) => ({ epoch: "e", revision });
const many = <T>(count: number, of: (i: number) => T) => Array.from({ length: count }, (_, i) => of(i));
const next = async (watch: AsyncGenerator<ChangesPage>) => (await watch.next()).value as ChangesPage;

describe("the change feed", () => {
  const ends = new AbortController();
  afterAll(() => ends.abort());

  test("reads once in each round for all watches at the same position", async () => {
    const { state, feed } = stock(7n);
    const watches = many(500, () => feed.follow(at(7n), ends.signal));
    for (const page of await Promise.all(watches.map(next))) expect(page).toMatchObject({ rows: [] });
    expect(state.reads).toBe(1);

    const told = watches.map(next);
    state.revision = 8n;
    for (const page of await Promise.all(told)) expect(page).toMatchObject({ position: at(8n) });
    expect(state.reads).toBe(2);
    await Promise.all(watches.map((watch) => watch.return(undefined)));
  });

  test("reads one page at a time for watches at different positions, and each gets its own page", async () => {
    const { state, feed } = stock(100n);
    const watches = many(50, (i) => feed.follow(at(BigInt(i)), ends.signal));
    const pages = await Promise.all(watches.map(next));
    expect(pages).toMatchObject(many(50, (i) => ({ position: at(100n), rows: [{ petId: BigInt(i) }] })));
    expect(state).toMatchObject({ reads: 50, mostAtOnce: 1 });
    await Promise.all(watches.map((watch) => watch.return(undefined)));
  });

  test("ends the watches that wait for an unreadable page, and no other watch", async () => {
    const { feed } = stock(1n);
    const failing = new ChangeFeed(async ({ revision }) => {
      if (revision === 2n) throw new Error("away");
      return { kind: "changes", position: at(revision), rows: [], floor: 0n, more: false };
    });
    const [two, three] = [failing.follow(at(2n), ends.signal), failing.follow(at(3n), ends.signal)];
    const told = [two.next(), three.next()];
    await expect(told[0]).rejects.toThrow("away");
    await expect(told[1]).resolves.toMatchObject({ value: { position: at(3n) } });
    await three.return(undefined);
    expect(await next(feed.follow({ epoch: "other", revision: 1n }, ends.signal))).toEqual({ kind: "reset" });
  });

  test("refuses a watch while the maximum number is open", async () => {
    const { feed } = stock(1n);
    const watches = many(maxWatches, () => feed.follow(at(1n), ends.signal));
    await Promise.all(watches.map(next));
    await expect(feed.follow(at(1n), ends.signal).next()).rejects.toThrow(TooManyAtOnceError);
    await watches[0]!.return(undefined);
    const another = feed.follow(at(1n), ends.signal);
    expect(await next(another)).toMatchObject({ rows: [] });
    await Promise.all([another, ...watches].map((watch) => watch.return(undefined)));
  });

  test("reads no page for stopped watches, and ends queued ones at once", async () => {
    const reading = Promise.withResolvers<ChangesPage>();
    const read: bigint[] = [];
    const feed = new ChangeFeed(({ revision }) => {
      read.push(revision);
      return reading.promise;
    });
    const stopped = new AbortController();
    const first = feed.follow(at(1n), ends.signal);
    const told = first.next();
    const gone = many(10, (i) => feed.follow(at(BigInt(i + 2)), stopped.signal).next());
    stopped.abort();
    for (const end of await Promise.all(gone)) expect(end.done).toBe(true);
    reading.resolve({ kind: "changes", position: at(1n), rows: [], floor: 0n, more: false });
    await told;
    expect(await next(feed.follow(at(20n), ends.signal))).toMatchObject({ position: at(1n) });
    expect(read).toEqual([1n, 20n]);
    await first.return(undefined);
  });

  test("ends a stopped watch in the next round", async () => {
    const { feed } = stock(1n);
    const stopped = new AbortController();
    const watch = feed.follow(at(1n), stopped.signal);
    await watch.next();
    const end = watch.next();
    stopped.abort();
    expect(await end).toEqual({ done: true, value: undefined });
  });
});
