/** The handler of the operation that writes the inventory. */
import type { RequestHandler } from "express";
import { ApiError } from "../http/errors.ts";
import { readBody } from "../http/request.ts";
import { contextOf } from "../http/request-context.ts";
import { writeJson } from "../http/respond.ts";
import { checkMediaType, parseStockUpdate, readPetId, readPrecondition } from "./input.ts";
import { entryEtag, renderItem } from "./list/chunk.ts";
import type { StockClient } from "./stock-client.ts";

export interface UpdateInventoryOptions {
  readonly stock: Pick<StockClient, "update">;
  /** How long the body may take to arrive. */
  readonly bodyTimeoutMs: number;
}

/** PATCH /inventory/{petId}: sets the quantity of one entry. */
export function updateInventory({ stock, bodyTimeoutMs }: UpdateInventoryOptions): RequestHandler {
  return async (request, response) => {
    const petId = readPetId(request.params.petId);
    checkMediaType(request.headers["content-type"], request.headers["content-encoding"]);
    const precondition = readPrecondition(request.headers);
    const { startedMs } = contextOf(response);
    const isWhole = request.complete;
    const quantity = parseStockUpdate(await readBody(request, bodyTimeoutMs));
    const arrivedMs = isWhole ? startedMs : performance.now(); // the time for a slow body is its client's
    const update = { petId, quantity, expectedRevisions: precondition?.revisions };
    const item = await stock
      .update(update, arrivedMs, () => !response.destroyed)
      .catch((error) => {
        if (!precondition || (error as ApiError).code !== "precondition_failed") throw error;
        throw new ApiError("precondition_failed", { message: precondition.unmet, cause: error });
      });
    writeJson(request, response, 200, renderItem(item), ["ETag", entryEtag(item.revision)]);
  };
}
