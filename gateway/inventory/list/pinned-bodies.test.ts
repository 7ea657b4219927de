import { PinnedBodies } from "./pinned-bodies.ts";
import type { Body } from "./snapshot.ts";

// So large that what a reader itself costs is nothing beside it; but for that size there are no bytes in it.
const pieceBytes = 2 ** 40;
const piece = () => ({ buffer: { byteLength: pieceBytes } }) as unknown as Buffer;
const version = (pieces: readonly Buffer[]): Body => ({ pieces, length: pieces.length * pieceBytes, text: undefined });
const newVersion = (count: number) => version(Array.from({ length: count }, piece));
/** The next version, in which the first pieces have changed. */
const change = ({ pieces }: Body, count: number) => version(pieces.map((same, i) => (i < count ? piece() : same)));

/** A bound of some pieces, and the readers that were cut off, by name. */
function bound(pieces: number) {
  const pinnedBodies = new PinnedBodies(pieces * pieceBytes);
  const cut: string[] = [];
  return {
    hold: (name: string, body: Body, account = "acme") => pinnedBodies.pin(body, account, () => cut.push(name)),
    cut,
  };
}

test("any number of readers share one version of the list", () => {
  const { hold, cut } = bound(1);
  const body = newVersion(10);
  for (let i = 0; i < 1_000; i++) hold(`${i}`, body);
  expect(cut).toEqual([]);
});

test("a thousand readers within a MiB are too many: the account with the most loses its oldest", () => {
  const pinnedBodies = new PinnedBodies(2 ** 20);
  const body = { pieces: [Buffer.alloc(10_000)], length: 10_000, text: undefined };
  const cut: string[] = [];
  const hold = (account: string, i: number) => pinnedBodies.pin(body, account, () => cut.push(`${account} ${i}`));
  for (let i = 0; i < 5; i++) hold("honest", i);
  for (let i = 0; i < 1_000; i++) hold("greedy", i);
  expect(cut.length).toBeGreaterThan(1_000 - 2 ** 20 / 30_000);
  expect(cut).toEqual(cut.map((_, i) => `greedy ${i}`));
});

test("the pieces of a version are counted once, however many accounts read it", () => {
  const { hold } = bound(1_000);
  let counted = 0;
  const countedPiece = {
    get buffer() {
      counted += 1;
      return { byteLength: pieceBytes };
    },
  } as unknown as Buffer;
  const body = version(Array(100).fill(countedPiece));
  const releases = Array.from({ length: 256 }, (_, i) => hold(`${i}`, body, `account ${i}`));
  for (const release of releases) release();
  expect(counted).toBe(200); // at its beginning and its end
});

test("versions of the list share the pieces that did not change between them", () => {
  const { hold, cut } = bound(50);
  let body = newVersion(100);
  for (let i = 0; i <= 50; i++) {
    hold(`${i}`, body);
    body = change(body, 1);
  }
  expect(cut).toEqual([]);
  hold("51", body);
  expect(cut).toEqual(["0", "1", "2", "3"]); // down to 15/16 of the bound
});

test("the readers that an account has on its oldest version are cut off for a new one, no others", () => {
  const { hold, cut } = bound(5);
  hold("a", newVersion(10));
  const second = newVersion(10);
  hold("b", second);
  hold("c", second);
  expect(cut).toEqual([]); // the latest version and one before it always have room
  hold("d", newVersion(10));
  expect(cut).toEqual(["a"]);
  hold("e", newVersion(10));
  expect(cut).toEqual(["a", "b", "c"]);
});

test("a version of the list that is released in time costs no reader anything", () => {
  const { hold, cut } = bound(5);
  const release = hold("a", newVersion(10));
  hold("b", newVersion(10));
  release();
  release(); // once more changes nothing
  hold("c", newVersion(10));
  expect(cut).toEqual([]);
});

test("a reader that was cut off holds nothing, and its end releases nothing twice", () => {
  const { hold, cut } = bound(5);
  const releaseFirst = hold("a", newVersion(10));
  hold("b", newVersion(10));
  hold("c", newVersion(10));
  expect(cut).toEqual(["a"]);
  releaseFirst();
  hold("d", newVersion(10));
  expect(cut).toEqual(["a", "b"]);
});

test("a list that is larger than the bound is still sent", () => {
  const { hold, cut } = bound(1);
  hold("a", newVersion(10));
  hold("b", newVersion(10)); // and so is the next version
  expect(cut).toEqual([]);
  hold("c", newVersion(10));
  expect(cut).toEqual(["a"]);
});

test("a reader is not cut off for what another account holds, however old its version is", () => {
  const { hold, cut } = bound(50);
  const oldest = newVersion(10);
  hold("honest", oldest, "honest");
  hold("greedy 0", oldest, "greedy");
  for (let i = 1; i < 20; i++) hold(`greedy ${i}`, newVersion(10), "greedy");
  hold("honest, too", newVersion(10), "honest");
  expect(cut).toEqual(Array.from({ length: 16 }, (_, i) => `greedy ${i}`));
});

test("of accounts that hold the same, the first one loses its readers, whatever it held before", () => {
  const { hold, cut } = bound(5);
  hold("over", newVersion(10), "second")();
  hold("a", newVersion(10), "first");
  hold("b", newVersion(10), "second");
  hold("c", newVersion(10), "third");
  expect(cut).toEqual(["a"]);
});

test("a fast account that reads many versions with shared parts is not cut off for a slow one", () => {
  const { hold, cut } = bound(400);
  const releases: (() => void)[] = [];
  let body = newVersion(100);
  for (let i = 0; i < 200; i++) {
    releases.push(hold(`fast ${i}`, body, "fast"));
    if (i >= 40) releases.shift()!();
    body = change(body, 1);
    if (i % 30 === 29) hold(`slow ${i}`, newVersion(100), "slow");
  }
  expect(cut.length).toBeGreaterThan(0);
  expect(cut.filter((name) => name.startsWith("fast"))).toEqual([]);
});

test("the only reader of the oldest version is not cut off for an account that reads many others", () => {
  const { hold, cut } = bound(20);
  let body = newVersion(100);
  hold("patient", body, "patient");
  for (let i = 0; i < 40; i++) {
    body = change(body, 1 + (i % 3));
    hold(`greedy ${i}`, body, "greedy");
  }
  expect(cut.length).toBeGreaterThan(0);
  expect(cut.filter((name) => !name.startsWith("greedy"))).toEqual([]);
});

describe("slow readers of old bodies are cut off", () => {
  test.each([5, 7])("and not those of the present list, where %d accounts read slowly", (slow) => {
    const { hold, cut } = bound(256);
    let list = newVersion(60);
    for (let i = 0; i < slow; i++) hold(`slow ${i}`, newVersion(58), `slow ${i}`);
    const reads: (() => void)[] = [];
    for (let i = 0; i < 2_000; i++) {
      if (i % 100 === 0) list = change(list, 2);
      reads.push(hold(`quick ${i}`, list, `quick ${i % 300}`));
      if (reads.length > 200) reads.shift()!();
    }
    expect(cut.length).toBeGreaterThan(0);
    expect(cut.filter((name) => name.startsWith("quick"))).toEqual([]);
  });

  test("and not the other readers of an account that has lost one", () => {
    const { hold, cut } = bound(25);
    hold("slow", newVersion(6), "both");
    const short = newVersion(0);
    for (let i = 0; i < 400; i++) hold(`quick ${i}`, short, "both");
    for (let i = 0; i < 8; i++) hold(`slow ${i}`, newVersion(6), `slow ${i}`);
    expect(cut).toContain("slow");
    expect(cut.filter((name) => name.startsWith("quick"))).toEqual([]);
  });
});

describe("above the bound", () => {
  /** @param accounts that take turns */
  function bound(maxBytes: number, accounts = 1) {
    const pinnedBodies = new PinnedBodies(maxBytes);
    let [pins, cuts] = [0, 0];
    return {
      pinnedBodies,
      /** Begins to read bodies. @returns how many readers each cut off */
      cutsOf: (bodies: readonly Body[]): number[] =>
        bodies.map((body) => {
          const before = cuts;
          pinnedBodies.pin(body, `account ${pins++ % accounts}`, () => (cuts += 1));
          return cuts - before;
        }),
    };
  }
  const bodyOf = (length: number): Body => ({ pieces: [Buffer.allocUnsafeSlow(length)], length, text: undefined });
  const small = bodyOf(10_000);
  const large = bodyOf(10_000_000);

  test.each([1, 3, 1_000])(
    "a new reader looks at a few bodies, not at the thousands that %d accounts read",
    (accounts) => {
      let looks = 0;
      const countedBodies = (count: number) =>
        Array.from({ length: count }, (): Body => {
          const body = bodyOf(10_000);
          return new Proxy(body, {
            get: (_, name: keyof Body) => {
              looks += 1;
              return body[name];
            },
          });
        });
      const { cutsOf } = bound(64 * 2 ** 20, accounts);
      expect(cutsOf(countedBodies(3_000)).some((count) => count > 0)).toBe(true);
      looks = 0;
      const cuts = cutsOf(countedBodies(1_000));
      // A search looks at each body once, and makes room for a sixteenth of them.
      expect(looks / cuts.length).toBeLessThan(2 * 16);
      expect(cuts.filter((count) => count > 0).length).toBeLessThan(cuts.length / 25);
    },
  );

  test("a new reader cuts off no more than what it brings and a sixteenth of the bound", () => {
    const { cutsOf, pinnedBodies } = bound(2 ** 20);
    pinnedBodies.pin(large, "another", () => {})();
    expect(Math.max(...cutsOf(Array(600).fill(small)))).toBe(0);
    const [first, ...others] = cutsOf([large, ...Array(20).fill(small)]);
    expect(first).toBeLessThanOrEqual(Math.ceil((large.length + 2 ** 20 / 16) / 2 ** 15));
    expect(Math.max(...others)).toBeLessThan(4); // there is room again
  });

  test("thousands of readers of one body let no account take more with long ones", () => {
    const { pinnedBodies } = bound(64 * 2 ** 20);
    const taken = new Set<object>();
    const hold = (body: Body, bytes: number) => {
      const one = { bytes };
      taken.add(one);
      pinnedBodies.pin(body, "acme", () => taken.delete(one));
    };
    for (let i = 0; i < 2_000; i++) hold(small, 2 ** 15); // what a reader costs beside its body
    for (let i = 0; i < 100; i++) {
      hold(bodyOf(large.length), large.length);
      const bytes = [...taken].reduce((sum, one) => sum + (one as { bytes: number }).bytes, 0);
      expect(bytes).toBeLessThan(64 * 2 ** 20 + 2 * large.length);
    }
  });

  test("the end of the longest body costs no other reader anything", () => {
    const { cutsOf, pinnedBodies } = bound(2 ** 20);
    const release = pinnedBodies.pin(large, "another", () => {});
    expect(Math.max(...cutsOf(Array(300).fill(small)))).toBe(0);
    release();
    expect(cutsOf([small])).toEqual([0]);
  });
});
