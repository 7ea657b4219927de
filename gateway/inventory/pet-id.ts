import { ApiError } from "../http/errors.ts";

const max = 2n ** 63n - 1n;
const min = -(2n ** 63n);

/** An int64 as it is written in one way only: no sign but minus, no zero in front, no fraction. */
const canonical = /^(?:0|-?[1-9]\d{0,18})$/;

/**
 * Reads the petId of a path.
 *
 * @throws ApiError invalid_request
 */
export function parsePetId(text: string): bigint {
  if (canonical.test(text)) {
    const petId = BigInt(text);
    if (petId >= min && petId <= max) return petId;
  }
  throw notAPetId();
}

/** The error for what stands in the place of a petId and is none. */
export function notAPetId(cause?: unknown): ApiError {
  return new ApiError("invalid_request", { message: "petId must be an int64 in decimal, as in /inventory/42.", cause });
}
