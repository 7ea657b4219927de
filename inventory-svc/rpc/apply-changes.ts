/** Applies the changes that a stream brings, and says what became of each. */
import { type handleBidiStreamingCall, status } from "@grpc/grpc-js";
import type { Span } from "@opentelemetry/api";
import type {
  ApplyChangesRequest,
  ApplyChangesResponse,
  ChangeResult,
  ChangeGroup as WireGroup,
} from "../../proto/gen/petstore/inventory/v1/inventory.ts";
import { type Item, maxQuantity } from "../../proto/pet.ts";
import { contextOfCaller, failSpan, inSpan, serverSpan } from "../../runtime/spans.ts";
import type { Actor, Change, ChangeGroup, Outcome } from "../stock/change.ts";
import type { GroupCommit } from "../stock/group-commit.ts";
import { asRetryable, RpcError, toRpcError, toRpcStatus } from "./rpc-error.ts";
import { type OnCall, type QuestionStream, questionStreamHandler } from "./served-calls.ts";
import { invalid, readGroup, toWireItem } from "./wire.ts";

export interface ApplyChangesDeps {
  readonly commits: Pick<GroupCommit, "submit">;
  /** Finds the actor of a call by the names in the certificate. */
  readonly actorOf: (certificateNames: string | undefined) => Actor;
  /** Aborted when the server is about to stop. */
  readonly draining: AbortSignal;
  readonly onCall: OnCall;
}

/** Maximum changes of one message, in which an empty group counts as one. */
const maxMessageChanges = 1_000;

/** Makes the handler of ApplyChanges. */
export function applyChanges(
  deps: ApplyChangesDeps,
): handleBidiStreamingCall<ApplyChangesRequest, ApplyChangesResponse> {
  return questionStreamHandler(
    deps.draining,
    (stream) => {
      const caller = deps.actorOf(stream.certificateNames);
      return (message: ApplyChangesRequest) => applyGroups(message, stream, deps, caller);
    },
    (path, durationMs, code, error) => {
      if (error) deps.onCall(path, durationMs, code, error); // a success was counted already, change by change
    },
  );
}

/** Answers one message. Its groups join the transactions that are to come, each on its own. */
async function* applyGroups(
  { groups }: ApplyChangesRequest,
  stream: QuestionStream,
  deps: ApplyChangesDeps,
  caller: Actor,
): AsyncGenerator<ApplyChangesResponse> {
  const startedMs = performance.now();
  const count = groups.reduce((sum, { changes }) => sum + Math.max(changes.length, 1), 0);
  if (count > maxMessageChanges) throw invalid("groups", `must have at most ${maxMessageChanges} changes`);
  const results = groups.map((group) =>
    inSpan("ApplyChanges", serverSpan, contextOfCaller(group.traceparent), (span) =>
      applyGroup(group, stream, deps, { caller, span, startedMs }),
    ),
  );
  const all = (await Promise.all(results)).flat();
  // Ends the stream: without its database a service refuses fastest, and clients would choose it most often.
  if (all.length > 0 && all.every(({ refusal }) => refusal?.code === status.UNAVAILABLE)) stream.takeNoMore();
  yield { results: all };
}

async function applyGroup(
  group: WireGroup,
  stream: QuestionStream,
  { commits, onCall }: ApplyChangesDeps,
  { caller, span, startedMs }: { readonly caller: Actor; readonly span: Span; readonly startedMs: number },
): Promise<ChangeResult[]> {
  const onDone = (error?: RpcError) => {
    if (error) failSpan(span, error);
    onCall(stream.path, performance.now() - startedMs, error?.code ?? status.OK, error);
  };
  const refused = (thrown: unknown): ChangeResult => {
    const error = toRpcError(thrown);
    onDone(error);
    return { item: undefined, replayed: false, refusal: toRpcStatus(error) };
  };
  try {
    const read = readGroup(group, caller);
    const { changes } = read;
    const written = commits.submit(read, stream.wantedUntil(group.deadlineMs));
    const outcomes = await (changes.every(({ once }) => once) ? asRetryable(written) : written);
    return outcomes.map((outcome, i) => {
      try {
        const { kind, item } = appliedOrThrow(changes[i]!, outcome);
        onDone();
        return { item: toWireItem(item), replayed: kind === "replayed", refusal: undefined };
      } catch (refusal) {
        return refused(refusal);
      }
    });
  } catch (thrown) {
    return group.changes.map(() => refused(thrown));
  }
}

/** The result of a change that happened. */
export type Applied = Extract<Outcome, { kind: "done" | "replayed" }>;

/**
 * The outcome of a change that happened, with the entry as it left it. @throws RpcError with the reason of a refusal
 */
export function appliedOrThrow(change: Change, outcome: Outcome): Applied {
  switch (outcome.kind) {
    case "done":
    case "replayed":
      return outcome;
    case "not_found":
      throw notFound(change.petId);
    case "already_exists":
      throw new RpcError("ENTRY_EXISTS", `there is an entry ${change.petId} already`, {
        metadata: { pet_id: String(change.petId) },
      });
    case "revision_mismatch": {
      const { pet_id, revision } = describe(outcome.item);
      throw new RpcError(
        "REVISION_MISMATCH",
        `entry ${pet_id} is at revision ${revision}, not at one that is expected`,
        {
          metadata: { pet_id, revision },
        },
      );
    }
    case "insufficient_stock":
      throw new RpcError("INSUFFICIENT_STOCK", `entry ${change.petId} has only ${outcome.item.quantity} left`, {
        metadata: describe(outcome.item),
      });
    case "quantity_overflow":
      throw new RpcError(
        "QUANTITY_OVERFLOW",
        `entry ${change.petId} has ${outcome.item.quantity} already, and no more than ${maxQuantity} may be`,
        { metadata: describe(outcome.item) },
      );
    case "id_reused": {
      const adjustmentId = change.once?.adjustmentId;
      if (adjustmentId === undefined) {
        throw new RpcError("KEY_REUSED", "the idempotency key was used for another request", {
          metadata: { pet_id: String(change.petId) },
          field: "idempotency_key",
        });
      }
      throw new RpcError("REQUEST_ID_REUSED", "request_id was used for other adjustments", {
        metadata: { request_id: adjustmentId },
        field: "request_id",
      });
    }
    case "group_refused":
      throw new RpcError("GROUP_REFUSED", "another change of the group was refused");
  }
}

/** The outcomes of a group that is all or nothing. @throws RpcError of the change that was refused */
export function allAppliedOrThrow({ changes }: ChangeGroup, outcomes: readonly Outcome[]): readonly Applied[] {
  const refused = outcomes.findIndex(({ kind }) => kind !== "group_refused" && !isApplied(kind));
  if (refused !== -1) appliedOrThrow(changes[refused]!, outcomes[refused]!);
  return outcomes.map((outcome, i) => appliedOrThrow(changes[i]!, outcome));
}

function isApplied(kind: Outcome["kind"]): kind is Applied["kind"] {
  return kind === "done" || kind === "replayed";
}

export function notFound(petId: bigint): RpcError {
  return new RpcError("ENTRY_NOT_FOUND", `there is no entry ${petId}`, { metadata: { pet_id: String(petId) } });
}

function describe({ petId, revision, quantity }: Item) {
  return { pet_id: String(petId), revision: String(revision), quantity: String(quantity) };
}
