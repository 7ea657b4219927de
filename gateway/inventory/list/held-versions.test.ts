import { ApiError } from "../../http/errors.ts";
import { entryJson, makeChunk } from "./chunk.ts";
import { HeldVersions } from "./held-versions.ts";
import { Snapshot } from "./snapshot.ts";
import { applyChanges } from "./stock-list.ts";

const item = (petId: number, quantity: number) =>
  ({ petId: BigInt(petId), quantity, status: "available", revision: 1n }) as const;
const edit = (petId: number) => ({ petId: BigInt(petId), json: entryJson(item(petId, 1)) });

/** 100 chunks of 256 entries: large enough to be sent in pieces. */
const first = new Snapshot(
  "epoch",
  1n,
  Array.from({ length: 100 }, (_, i) => makeChunk(Array.from({ length: 256 }, (_, j) => edit(i * 256 + j)))),
);
/** The next version, in which one entry of each of these chunks has changed. */
const change = (from: Snapshot, chunks: readonly number[]) =>
  applyChanges(from, {
    kind: "changes",
    position: { epoch: "epoch", revision: from.revision + 1n },
    changed: chunks.map((chunk) => item(chunk * 256, 2)),
    removed: [],
  });
const allChunks = Array.from({ length: 100 }, (_, i) => i);
const size = first.plain().length;

test("readers of one version share it, however many they are", () => {
  const held = new HeldVersions(1);
  for (let i = 0; i < 1_000; i++) held.hold(first.plain());
});

test("versions share what has not changed between them", () => {
  // The first chunk counts anew in each version: it stands without its comma, in a Buffer of its own.
  const held = new HeldVersions(size / 2);
  let version = first;
  for (let i = 0; i < 20; i++) {
    held.hold(version.plain());
    version = change(version, [i]);
  }
  const more = () => {
    for (let i = 20; i < 60; i++) {
      held.hold(version.plain());
      version = change(version, [i]);
    }
  };
  expect(more).toThrow(ApiError);
});

test("who would hold a version more than may be held is refused, until an older reader has done", () => {
  const held = new HeldVersions(size / 2);
  const second = change(first, allChunks);
  const third = change(second, allChunks);
  const release = held.hold(first.plain());
  const releaseSecond = held.hold(second.plain());
  expect(() => held.hold(third.plain())).toThrow(expect.objectContaining({ status: 503 }));
  held.hold(second.plain()); // costs nothing more
  release();
  held.hold(third.plain());
  releaseSecond();
  expect(() => held.hold(change(third, allChunks).plain())).toThrow(ApiError); // the second has a reader still
});
