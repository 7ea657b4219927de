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
  expect(cut).toEqual(["0"]);
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
