import { randomBytes } from "node:crypto";
import { crc32, gunzipSync, gzipSync } from "node:zlib";
import { combineCrc32, deflateBlock, joinGzip, storedBlock } from "./gzip.ts";

describe("gzip from blocks", () => {
  test("the checksum of a text follows from those of its parts", () => {
    for (const [a, b] of [
      [0, 0],
      [1, 0],
      [0, 1],
      [3, 5],
      [1_000, 70_000],
      [65_536, 65_537],
    ] as const) {
      const [first, second] = [randomBytes(a), randomBytes(b)];
      expect(combineCrc32(crc32(first), crc32(second), b)).toBe(crc32(Buffer.concat([first, second])));
    }
  });

  test("any blocks in any order make one valid gzip stream", async () => {
    const texts = ["[", ...Array.from({ length: 50 }, (_, i) => `{"petId":${i}},`.repeat(i)), "]"];
    const blocks = await Promise.all(
      texts.map((text) => (text.length < 3 ? storedBlock(text) : deflateBlock(Buffer.from(text)))),
    );
    expect(gunzipSync(Buffer.concat(joinGzip(blocks))).toString()).toBe(texts.join(""));
    expect(gunzipSync(Buffer.concat(joinGzip(blocks.toReversed()))).toString()).toBe(texts.toReversed().join(""));
  });

  test("a gzip stream from blocks has the header of Node's own, which holds no flag and no time", () => {
    const [header] = joinGzip([]);
    expect(header).toHaveLength(10);
    expect(header!.subarray(0, 9)).toEqual(gzipSync("").subarray(0, 9)); // the last byte is the operating system
  });

  test("no blocks make the gzip stream of an empty text", () => {
    expect(gunzipSync(Buffer.concat(joinGzip([]))).toString()).toBe("");
  });
});
