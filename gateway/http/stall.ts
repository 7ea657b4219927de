import type { ServerResponse } from "node:http";

/**
 * Cuts off a reader that takes nothing for so long; one that is slow is not. Node restarts this time-out at every byte
 * that the kernel takes, also in the middle of a piece.
 */
export function cutWhenStalled(response: ServerResponse, stallTimeoutMs: number): void {
  response.setTimeout(stallTimeoutMs, () => response.destroy());
}
