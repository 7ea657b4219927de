import { ApiError } from "../../http/errors.ts";
import { HeldVersions } from "./held-versions.ts";
import type { Body } from "./snapshot.ts";

const pieceBytes = 10;
const piece = () => Buffer.alloc(pieceBytes);
const version = (pieces: readonly Buffer[]): Body => ({ pieces, length: pieces.length * pieceBytes, text: undefined });
const anew = (count: number) => version(Array.from({ length: count }, piece));
/** The version that follows, in which some of the first pieces have changed. */
const change = ({ pieces }: Body, count: number) => version(pieces.map((same, i) => (i < count ? piece() : same)));

test("readers of one version share it, however many they are", () => {
  const held = new HeldVersions(1);
  const body = anew(10);
  for (let i = 0; i < 1_000; i++) held.hold(body);
});

test("versions share what has not changed between them", () => {
  const held = new HeldVersions(50 * pieceBytes);
  let body = anew(100);
  for (let i = 0; i <= 50; i++) {
    held.hold(body);
    body = change(body, 1);
  }
  expect(() => held.hold(body)).toThrow(ApiError);
});

test("who would hold one version more than may be held is refused, until an older reader has done", () => {
  const held = new HeldVersions(5 * pieceBytes);
  const [first, second, third, fourth] = [anew(10), anew(10), anew(10), anew(10)];
  const releaseFirst = held.hold(first!);
  const releaseSecond = [held.hold(second!), held.hold(second!)];
  expect(() => held.hold(third!)).toThrow(expect.objectContaining({ status: 503 }));
  held.hold(second!); // costs nothing more
  releaseFirst();
  const releaseThird = held.hold(third!);
  for (const release of releaseSecond) release();
  expect(() => held.hold(fourth!)).toThrow(ApiError); // the second has a reader still
  releaseThird();
  held.hold(fourth!);
});

test("a list that is larger than all that may be held is still sent", () => {
  const held = new HeldVersions(1);
  held.hold(anew(10));
  held.hold(anew(10)); // and so is the version that follows
  expect(() => held.hold(anew(10))).toThrow(ApiError);
});
