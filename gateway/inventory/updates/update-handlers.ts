/** The handlers of the operations that change quantities. */
import type { IncomingHttpHeaders } from "node:http";
import type { Request, RequestHandler, Response } from "express";
import type { Changed } from "../../../client/index.ts";
import type { AccountGuard } from "../../admission/account-guard.ts";
import type { Admission } from "../../admission/admission.ts";
import { ApiError } from "../../http/api-error.ts";
import { checkMediaType, patchTypes, postTypes, writeJson } from "../../http/json.ts";
import { untilLeaveIsKnown } from "../../http/leaving-clients.ts";
import { readWholeBody, type WholeBodyOptions } from "../../http/request-body.ts";
import { contextOf, hasWaited } from "../../http/request-context.ts";
import {
  type AskedAdjustment,
  type AskedUpdate,
  fingerprintOf,
  parseStockUpdate,
  readIdempotencyKey,
  readPetId,
  readPrecondition,
} from "../input.ts";
import { entryEtag, renderItem } from "../list/chunk.ts";
import type { RequestIdentity, StockClient, UpdateCaller } from "../stock-client.ts";
import { parseAdjustments, parseBulkUpdates } from "./bulk-input.ts";

export interface UpdateInventoryOptions extends WholeBodyOptions {
  readonly stock: Pick<StockClient, "update">;
  /** Looks again at an API key that may have been revoked since its request began. */
  readonly admission: Pick<Admission, "isKeyKnownGood" | "reverifyKeyAndBan">;
  /** Limits the entries that an account updates with an Idempotency-Key. */
  readonly keyedUpdateGuard: AccountGuard;
}

export interface AdjustInventoryOptions extends Omit<UpdateInventoryOptions, "stock"> {
  readonly stock: Pick<StockClient, "adjust">;
}

/** PATCH /inventory/{petId}: sets the quantity of one entry. */
export function updateInventory(options: UpdateInventoryOptions): RequestHandler {
  return async (request, response) => {
    const petId = readPetId(request.params.petId);
    checkMediaType(request.headers, patchTypes);
    const precondition = readPrecondition(request.headers);
    const idempotencyKey = readIdempotencyKey(request.headers);
    const { body, caller } = await readBodyAndCaller(request, response, options);
    const updates = [{ petId, ...parseStockUpdate(body), precondition }];
    await chargeKeyed(options, response, idempotencyKey, updates.length);
    const [item] = await sendUpdates(options, updates, identityOf(response, idempotencyKey, updates), caller);
    if (item instanceof ApiError) throw item;
    const replayed = item!.replayed ? ["Idempotency-Replayed", "true"] : [];
    writeJson(request, response, 200, renderItem(item!), ["ETag", entryEtag(item!.revision), ...replayed]);
  };
}

/** POST /inventory/updates: sets the quantities of up to 100 entries. Each update stands alone. */
export function bulkUpdateInventory(options: UpdateInventoryOptions): RequestHandler {
  return async (request, response) => {
    checkMediaType(request.headers, postTypes);
    refusePreconditions(request.headers);
    const idempotencyKey = readIdempotencyKey(request.headers);
    const { body, caller } = await readBodyAndCaller(request, response, options);
    const updates = parseBulkUpdates(body);
    await chargeKeyed(options, response, idempotencyKey, updates.length);
    const outcomes = await sendUpdates(options, updates, identityOf(response, idempotencyKey, updates), caller);
    const reused = outcomes.find((outcome) => outcome instanceof ApiError && outcome.code === "idempotency_key_reused");
    if (reused) throw reused;
    // Where all failed with 5xx, the answer is that of a single update.
    if (outcomes.every((outcome) => outcome instanceof ApiError && outcome.status >= 500)) throw outcomes[0];
    const results = outcomes.map((outcome, i) => renderOutcome(updates[i]!.petId, outcome));
    writeJson(request, response, 200, `[${results.join(",")}]`, []);
  };
}

/** POST /inventory/adjustments: adds to the quantities of up to 100 entries, or takes from them, all or none. */
export function adjustInventory(options: AdjustInventoryOptions): RequestHandler {
  return async (request, response) => {
    checkMediaType(request.headers, postTypes);
    refusePreconditions(request.headers);
    const idempotencyKey = readIdempotencyKey(request.headers);
    if (idempotencyKey === undefined) {
      const message = "Idempotency-Key is required: it makes a repeat safe after an answer that was lost.";
      throw new ApiError("invalid_request", { message });
    }
    const { body, caller } = await readBodyAndCaller(request, response, options);
    const adjustments = parseAdjustments(body);
    await chargeKeyed(options, response, idempotencyKey, adjustments.length);
    const items = await options.stock.adjust(adjustments, identityOf(response, idempotencyKey, adjustments), caller);
    const replayed = items.some(({ replayed }) => replayed) ? ["Idempotency-Replayed", "true"] : [];
    writeJson(request, response, 200, `[${items.map(renderChanged).join(",")}]`, replayed);
  };
}

async function readBodyAndCaller(
  request: Request,
  response: Response,
  options: Pick<UpdateInventoryOptions, "admission" | "bodyTimeoutMs">,
): Promise<{ readonly body: Buffer; readonly caller: UpdateCaller }> {
  const { body, completeMs } = await readWholeBody(request, response, options);
  return { body, caller: callerOf(request, response, options.admission, completeMs) };
}

/** The caller of a request. Its API key is looked at before each further attempt: a revoked one must not write. */
function callerOf(
  request: Request,
  response: Response,
  admission: UpdateInventoryOptions["admission"],
  completeMs: number,
): UpdateCaller {
  const context = contextOf(response);
  let isConfirmedHere = false;
  const isHere = () => !response.destroyed && (isConfirmedHere || !request.socket.readableEnded);
  return {
    completeMs,
    // A client that has ended its side may have left; after a freeze of this process nothing else shows that. So its
    // changes are not sent until `mayRetry` has made sure that it is still there.
    isWanted: () => isHere() && (!hasWaited(response) || admission.isKeyKnownGood(context)),
    mayRetry: async () => {
      context.waitsForOthersFromMs = performance.now(); // for the end of an outage, and for no work of this thread
      if (request.socket.readableEnded && !isConfirmedHere) {
        await untilLeaveIsKnown(response);
        isConfirmedHere = true;
      }
      if (response.destroyed) throw new ApiError("service_unavailable");
      const { limitHeaders } = context;
      try {
        await admission.reverifyKeyAndBan(context);
        return true;
      } catch (error) {
        context.limitHeaders = limitHeaders; // the answer is still that of this account
        if ((error as ApiError).code !== "service_unavailable") throw error;
        return false;
      }
    },
  };
}

/**
 * Charges the entries that are sent with an Idempotency-Key, because each may leave a record. It is not known yet which
 * of them are repeats, and which will fail.
 *
 * @throws ApiError rate_limit_exceeded
 */
async function chargeKeyed(
  { keyedUpdateGuard }: Pick<UpdateInventoryOptions, "keyedUpdateGuard">,
  response: Response,
  idempotencyKey: string | undefined,
  entries: number,
): Promise<void> {
  if (idempotencyKey === undefined) return;
  const context = contextOf(response);
  await keyedUpdateGuard.admit(context, context.principal!.accountId, entries);
}

/** The identity of a request for changes; with a key, also the fingerprint of what it asks for. */
function identityOf(
  response: Response,
  idempotencyKey: string | undefined,
  asked: readonly (AskedUpdate | AskedAdjustment)[],
): RequestIdentity {
  const { principal, requestId, operationName } = contextOf(response);
  const { accountId: account, keyId } = principal!;
  const identity = { actor: { account, keyId }, originRequestId: requestId };
  if (idempotencyKey === undefined) return identity;
  return {
    ...identity,
    idempotencyKey: { account, key: idempotencyKey, fingerprint: fingerprintOf(operationName, asked) },
  };
}

/** Makes the updates. @returns for each, in order, its entry or the error that answers it */
async function sendUpdates(
  { stock }: UpdateInventoryOptions,
  asked: readonly AskedUpdate[],
  identity: RequestIdentity,
  caller: UpdateCaller,
): Promise<readonly (Changed | ApiError)[]> {
  const changes = asked.map(({ petId, quantity, precondition, reason }) => {
    return { petId, quantity, expectedRevisions: precondition?.revisions, reason };
  });
  const outcomes = await stock.update({ ...identity, changes }, caller);
  return outcomes.map((outcome, i) => {
    const { precondition } = asked[i]!;
    if (!(outcome instanceof ApiError) || !precondition || outcome.code !== "precondition_failed") return outcome;
    return new ApiError("precondition_failed", { message: precondition.unmet, cause: outcome });
  });
}

/** @throws ApiError invalid_request: a precondition in the headers would belong to no entry */
function refusePreconditions(headers: IncomingHttpHeaders): void {
  for (const name of ["If-Match", "If-None-Match"]) {
    if (headers[name.toLowerCase()] === undefined) continue;
    const message = `${name} belongs to no entry here: give each change that needs it an ifMatch of its own.`;
    throw new ApiError("invalid_request", { message });
  }
}

function renderOutcome(petId: bigint, outcome: Changed | ApiError): string {
  if (outcome instanceof ApiError) return `{"petId":${petId},"error":${outcome.body}}`;
  return outcome.replayed ? `${renderChanged(outcome).slice(0, -1)},"replayed":true}` : renderChanged(outcome);
}

function renderChanged(item: Changed): string {
  return `${renderItem(item).slice(0, -1)},"etag":${JSON.stringify(entryEtag(item.revision))}}`;
}
