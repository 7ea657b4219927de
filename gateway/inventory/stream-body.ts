/** Sends a long body as fast as its reader takes it. */
import type { ServerResponse } from "node:http";
import { abortWhenStalled } from "../http/respond.ts";

/** What the kernel usually takes at once: a body up to this size waits for no reader. */
const socketBufferBytes = 64 * 1024;

/** Size of one write to the kernel. It copies what the socket has room for; the rest waits as references. */
const batchBytes = 512 * 1024;

/**
 * Sends a body piece by piece, as fast as the reader takes it. What waits is references to the pieces, never copies.
 *
 * @param stallTimeoutMs a reader that takes nothing in this time is cut off
 */
export async function streamBody(
  response: ServerResponse,
  pieces: readonly Buffer[],
  stallTimeoutMs: number,
): Promise<void> {
  if (pieces.length > 1 || pieces[0]!.length > socketBufferBytes) abortWhenStalled(response, stallTimeoutMs);
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
