import type { ServerResponse } from "node:http";
import { cutWhenStalled } from "../http/stall.ts";

/** So much the kernel takes at once, as a rule: nobody has to wait for the reader. */
const socketBufferBytes = 64 * 1024;

/** So much is handed to the kernel in one call. It copies what the socket has room for; the rest waits as references. */
const batchBytes = 512 * 1024;

/**
 * Sends a body piece by piece, as fast as the reader takes it: what waits is references to the pieces, never copies.
 *
 * @param stallTimeoutMs a reader that takes nothing for so long is cut off
 */
export async function sendPieces(
  response: ServerResponse,
  pieces: readonly Buffer[],
  stallTimeoutMs: number,
): Promise<void> {
  if (pieces.length > 1 || pieces[0]!.length > socketBufferBytes) cutWhenStalled(response, stallTimeoutMs);
  const closed = new Promise((go) => response.once("close", go));
  for (let i = 0; i < pieces.length; ) {
    if (response.destroyed) return;
    if (response.writableNeedDrain) await Promise.race([new Promise((go) => response.once("drain", go)), closed]);
    response.cork();
    for (let bytes = 0; i < pieces.length && bytes < batchBytes; i++) {
      bytes += pieces[i]!.length;
      response.write(pieces[i]);
    }
    response.uncork();
  }
  response.end();
}
