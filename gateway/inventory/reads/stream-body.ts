/** Sends a long body as fast as its reader takes it. */
import type { ServerResponse } from "node:http";
import type { Body } from "../list/snapshot.ts";

/** What the kernel usually takes at once: a body up to this size waits for no reader. */
const socketBufferBytes = 64 * 1024;

/** Size of one write to the kernel. It copies what the socket has room for; the rest waits as references. */
const batchBytes = 512 * 1024;

/** A reader that takes less in a second, over the whole of its response, is cut off. */
const leastBytesPerSecond = 16 * 1024;

export interface StreamBodyOptions {
  /** Time that the reader of a long body gets in addition to what the least speed needs. */
  readonly stallTimeoutMs: number;
  readonly leastBytesPerSecond?: number;
}

/**
 * Sends a body piece by piece, as fast as the reader takes it. What waits is references to the pieces, never copies.
 */
export async function streamBody(
  response: ServerResponse,
  { pieces, length }: Pick<Body, "pieces" | "length">,
  options: StreamBodyOptions,
): Promise<void> {
  if (length > socketBufferBytes) abortWhenSlow(response, length, options);
  const closed = new Promise((resolve) => response.once("close", resolve));
  for (let i = 0; i < pieces.length; ) {
    if (response.destroyed) return;
    if (response.writableNeedDrain) {
      await Promise.race([new Promise((resolve) => response.once("drain", resolve)), closed]);
    }
    response.cork();
    for (let bytes = 0; i < pieces.length && bytes < batchBytes; i++) {
      bytes += pieces[i]!.length;
      response.write(pieces[i]);
    }
    response.uncork();
  }
  response.end();
}

function abortWhenSlow(response: ServerResponse, length: number, options: StreamBodyOptions): void {
  const { stallTimeoutMs, leastBytesPerSecond: least = leastBytesPerSecond } = options;
  let timer: NodeJS.Timeout | undefined;
  const begin = () => {
    timer = setTimeout(() => response.destroy(), stallTimeoutMs + (length / least) * 1_000);
  };
  if (response.socket) begin();
  else response.once("socket", begin); // in an app around the gateway, its turn on the connection
  response.once("close", () => clearTimeout(timer));
}
