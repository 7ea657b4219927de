import { ApiError } from "../../http/errors.ts";
import { HeldVersions } from "./held-versions.ts";
import type { Body } from "./snapshot.ts";

const pieceBytes = 10;
const piece = () => Buffer.alloc(pieceBytes);
const version = (pieces: readonly Buffer[]): Body => ({ pieces, length: pieces.length * pieceBytes, text: undefined });
const newVersion = (count: number) => version(Array.from({ length: count }, piece));
/** The next version, in which the first pieces have changed. */
const change = ({ pieces }: Body, count: number) => version(pieces.map((same, i) => (i < count ? piece() : same)));

test("any number of readers share one version", () => {
  const held = new HeldVersions(1);
  const body = newVersion(10);
  for (let i = 0; i < 1_000; i++) held.hold(body);
});

test("versions share the pieces that did not change between them", () => {
  const held = new HeldVersions(50 * pieceBytes);
  let body = newVersion(100);
  for (let i = 0; i <= 50; i++) {
    held.hold(body);
    body = change(body, 1);
  }
  expect(() => held.hold(body)).toThrow(ApiError);
});

test("a reader that would hold one version too many is refused until an older reader has ended", () => {
  const held = new HeldVersions(5 * pieceBytes);
  const [first, second, third, fourth] = [newVersion(10), newVersion(10), newVersion(10), newVersion(10)];
  const releaseFirst = held.hold(first!);
  const releaseSecond = [held.hold(second!), held.hold(second!)];
  expect(() => held.hold(third!)).toThrow(expect.objectContaining({ status: 503 }));
  held.hold(second!); // adds nothing, because this version is held already
  releaseFirst();
  const releaseThird = held.hold(third!);
  for (const release of releaseSecond) release();
  expect(() => held.hold(fourth!)).toThrow(ApiError); // the second version still has a reader
  releaseThird();
  held.hold(fourth!);
});

test("a list that is larger than the bound is still sent", () => {
  const held = new HeldVersions(1);
  held.hold(newVersion(10));
  held.hold(newVersion(10)); // and so is the next version
  expect(() => held.hold(newVersion(10))).toThrow(ApiError);
});
