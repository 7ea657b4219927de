/** Asks the inventory service what was removed after an older position. */
import { type ClientDuplexStream, status } from "@grpc/grpc-js";
import type { CheckInventoryRequest, CheckInventoryResponse } from "../../proto/gen/petstore/inventory/v1/inventory.ts";
import type { Position } from "../../proto/pet.ts";
import { activeTraceparent } from "../../runtime/spans.ts";
import { removalsOf } from "./check-session.ts";
import type { Removal } from "./list/removals.ts";
import { serviceError } from "./status.ts";

/**
 * Reads removals on a stream of their own, because there may be many changes between them and checks must not wait.
 * Only the removals are kept.
 *
 * @param max changes that may be read
 * @param onPart called for each part of the answer but the last
 * @returns undefined when there are more changes, and when the stock does not have the position
 * @throws ServiceError of the stream
 */
export async function readRemovals(
  stream: ClientDuplexStream<CheckInventoryRequest, CheckInventoryResponse>,
  position: Position,
  max: number,
  onPart: () => void,
): Promise<readonly Removal[] | undefined> {
  const removals: Removal[] = [];
  let changes = 0;
  stream.on("error", () => {}); // of the cancellation, after which nothing reads the stream
  try {
    stream.write({ ...position, traceparent: activeTraceparent() });
    for await (const answer of stream as AsyncIterable<CheckInventoryResponse>) {
      changes += answer.changed.length + answer.removedPetIds.length;
      if (answer.reset || changes > max) return undefined;
      removals.push(...removalsOf(answer));
      if (!answer.more) return removals;
      onPart();
    }
    throw serviceError(status.UNAVAILABLE, "the inventory service ended the stream of older changes");
  } finally {
    stream.cancel();
  }
}
