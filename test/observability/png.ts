import { crc32, deflateSync } from "node:zlib";
import type { Page } from "playwright-core";

/**
 * Takes a picture of a page with at most 256 colours, which is a third of the size of one with all colours.
 *
 * @param fullPage or only what the screen shows
 */
export async function smallPicture(page: Page, fullPage = true): Promise<Buffer> {
  const whole = (await page.screenshot({ fullPage })).toString("base64");
  const { width, height, palette, pixels } = (await page.evaluate(`(${withFewColours})("${whole}")`)) as {
    width: number;
    height: number;
    palette: number[];
    pixels: string;
  };
  const size = Buffer.alloc(13);
  size.writeUInt32BE(width, 0);
  size.writeUInt32BE(height, 4);
  size.set([8, 3], 8); // bits of a pixel, which is a place in the palette
  const rows = Buffer.from(pixels, "base64");
  const lines = Array.from({ length: height }, (_, y) => [
    Buffer.of(0), // no filter
    rows.subarray(y * width, (y + 1) * width),
  ]).flat();
  return Buffer.concat([
    Buffer.from("\x89PNG\r\n\x1a\n", "latin1"),
    chunk("IHDR", size),
    chunk("PLTE", Buffer.from(palette)),
    chunk("IDAT", deflateSync(Buffer.concat(lines), { level: 9 })),
    chunk("IEND", Buffer.alloc(0)),
  ]);
}

function chunk(name: string, content: Buffer): Buffer {
  const body = Buffer.concat([Buffer.from(name, "latin1"), content]);
  const [length, sum] = [Buffer.alloc(4), Buffer.alloc(4)];
  length.writeUInt32BE(content.length);
  sum.writeUInt32BE(crc32(body));
  return Buffer.concat([length, body, sum]);
}

/** Runs in the page: keeps frequent colours of a picture and takes the nearest of them for all others. */
const withFewColours = `async (base64) => {
  const bitmap = await createImageBitmap(new Blob([Uint8Array.fromBase64(base64)], { type: "image/png" }));
  const { width, height } = bitmap;
  const canvas = new OffscreenCanvas(width, height).getContext("2d");
  canvas.drawImage(bitmap, 0, 0);
  const { data } = canvas.getImageData(0, 0, width, height);
  const colours = new Uint32Array(width * height).map((_, i) => (data[4 * i] << 16) | (data[4 * i + 1] << 8) | data[4 * i + 2]);
  const counts = new Map();
  for (const colour of colours) counts.set(colour, (counts.get(colour) ?? 0) + 1);
  // The most frequent ones would be shades of few colours, so one is kept of each group of similar colours.
  const groups = Map.groupBy(counts, ([colour]) => colour & 0xf8f8f8).values().map((group) => group.toSorted((a, b) => b[1] - a[1])[0]);
  const kept = [...groups].sort((a, b) => b[1] - a[1]).slice(0, 256).map(([colour]) => colour);
  const partsOf = (colour) => [colour >> 16, (colour >> 8) & 255, colour & 255];
  const palette = kept.map(partsOf);
  const distance = (a, b) => a.reduce((sum, part, i) => sum + (part - b[i]) ** 2, 0);
  const nearest = new Map([...counts.keys()].map((colour) => {
    const distances = palette.map((each) => distance(each, partsOf(colour)));
    return [colour, distances.indexOf(Math.min(...distances))];
  }));
  const pixels = Uint8Array.from(colours, (colour) => nearest.get(colour));
  return { width, height, palette: palette.flat(), pixels: pixels.toBase64() };
}`;
