/** POST /keys/rotate: gives a caller a new key in place of its own. */
import type { Request, RequestHandler } from "express";
import type { AccountGuard } from "../../admission/account-guard.ts";
import { invalidKey, unavailable } from "../../admission/admission-errors.ts";
import { ApiError } from "../../http/api-error.ts";
import { checkMediaType, parseJson, postTypes, writeJson } from "../../http/json.ts";
import { noneNamed } from "../../http/request.ts";
import { readWholeBody, type WholeBodyOptions } from "../../http/request-body.ts";
import { contextOf } from "../../http/request-context.ts";
import { createKey, storedKey } from "../keys/key-format.ts";
import type { Rotation, RotationRefusal, SuccessorKey } from "../keys/key-rotation.ts";

export interface RotateKeyOptions extends WholeBodyOptions {
  readonly rotate: (rotation: Rotation) => Promise<SuccessorKey | RotationRefusal>;
  /** Limits the rotations of a family. */
  readonly guard: AccountGuard;
  /** Gets the family of the keys that have changed. */
  readonly onRotated: (familyId: string) => void;
  /** The pepper of the new keys. */
  readonly pepper: string;
  /** The env in the new keys. */
  readonly keyEnv: string;
}

const maxGraceSeconds = 604_800;
const defaultGraceSeconds = 86_400;

/** The answer is the only place where the new key is ever shown. */
export function rotateOwnKey(options: RotateKeyOptions): RequestHandler {
  const { rotate, guard, onRotated, pepper, keyEnv } = options;
  return async (request, response) => {
    const context = contextOf(response);
    const { body } = await readWholeBody(request, response, options);
    const graceMs = readGraceSeconds(request, body) * 1_000;
    const { keyId: oldId, familyId: oldFamilyId } = context.principal!;
    await guard.admit(context, oldFamilyId);
    const key = createKey(keyEnv, pepper);
    const newKey = storedKey(key, pepper);
    const rotated = await rotate({ oldId, newKey, graceMs, replacesUnused: true }).catch((cause) => {
      throw unavailable(cause);
    });
    if (rotated === "ended") throw invalidKey(); // since it was looked up
    if (rotated === "replaced") throw new ApiError("key_replaced");
    const { keyId, familyId, scopes, expiresAtMs, oldExpiresAtMs } = rotated;
    onRotated(familyId);
    const expiresAt = expiresAtMs === null ? null : isoTime(expiresAtMs);
    const answer = { keyId, key, scopes, expiresAt, previousKeyEndsAt: isoTime(oldExpiresAtMs) };
    writeJson(request, response, 201, JSON.stringify(answer), ["Cache-Control", "no-store"]);
  };
}

/** @throws ApiError invalid_request, invalid_json, unsupported_media_type */
function readGraceSeconds(request: Request, bytes: Buffer): number {
  if (bytes.length === 0) return defaultGraceSeconds;
  checkMediaType(request.headers, postTypes);
  const body = parseJson(bytes);
  if (typeof body !== "object" || body === null || Array.isArray(body)) {
    throw new ApiError("invalid_request", { message: "The body must be a JSON object, or empty." });
  }
  const { graceSeconds = defaultGraceSeconds, ...others } = body as { readonly graceSeconds?: unknown };
  const [other] = Object.keys(others);
  if (other !== undefined) {
    // A misspelt graceSeconds would let a leaked key work for another day.
    throw new ApiError("invalid_request", {
      message: `There is ${noneNamed("member", other)}: the body takes graceSeconds.`,
    });
  }
  if (Number.isInteger(graceSeconds) && (graceSeconds as number) >= 0 && (graceSeconds as number) <= maxGraceSeconds) {
    return graceSeconds as number;
  }
  const message = `graceSeconds must be an integer from 0 to ${maxGraceSeconds}.`;
  throw new ApiError("invalid_request", { message });
}

function isoTime(ms: number): string {
  return new Date(ms).toISOString();
}
