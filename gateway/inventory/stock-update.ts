import { z } from "zod";
import { ApiError } from "../http/errors.ts";
import { parseJson } from "../http/json.ts";

export const maxQuantity = 2_147_483_647;

const quantityRule = `quantity must be an integer from 0 to ${maxQuantity}`;

/** InventoryUpdate of the contract. Members that it does not name are ignored. */
export const inventoryUpdate = z.object({
  quantity: z.int({ error: quantityRule }).min(0, quantityRule).max(maxQuantity, quantityRule),
});

const mediaTypes = new Set(["application/json", "application/merge-patch+json"]);

/**
 * Checks that a body is said to be JSON in UTF-8.
 *
 * @throws ApiError unsupported_media_type
 */
export function checkMediaType(contentType: string | undefined, contentEncoding: string | undefined): void {
  const [type = "", ...parameters] = (contentType ?? "").toLowerCase().split(";");
  const isUtf8 = parameters.every((parameter) => {
    const [name, value] = parameter.trim().split("=");
    return name !== "charset" || value?.replaceAll('"', "") === "utf-8";
  });
  const isPlain = contentEncoding === undefined || contentEncoding.toLowerCase() === "identity";
  if (!mediaTypes.has(type.trim()) || !isUtf8 || !isPlain) throw new ApiError("unsupported_media_type");
}

/**
 * Reads the body of a stock update.
 *
 * @returns the quantity, 0 to 2147483647
 * @throws ApiError invalid_json, or invalid_request with a message that names what is wrong
 */
export function parseStockUpdate(bytes: Uint8Array): number {
  const value = parseJson(bytes);
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw new ApiError("invalid_request", { message: `The body must be a JSON object, and its ${quantityRule}.` });
  }
  // Only a member of its own counts: not one that an object inherits.
  const quantity = Object.hasOwn(value, "quantity") ? (value as { quantity: unknown }).quantity : undefined;
  if (quantity === undefined) throw new ApiError("invalid_request", { message: "quantity is required." });
  const parsed = inventoryUpdate.shape.quantity.safeParse(quantity);
  if (!parsed.success) throw new ApiError("invalid_request", { message: `${quantityRule}.` });
  return parsed.data === 0 ? 0 : parsed.data; // -0 is an integer too, and JSON writes it as 0
}
