/** Applies the changes that a stream brings, and says what became of each. */
import { status } from "@grpc/grpc-js";
import type { Span } from "@opentelemetry/api";
import type {
  ApplyChangesRequest,
  ApplyChangesResponse,
  ChangeResult,
  ChangeGroup as WireGroup,
} from "../../proto/gen/petstore/inventory/v1/inventory.ts";
import { contextOfCaller, failSpan, inSpan, serverCall } from "../../runtime/spans.ts";
import { type Actor, onceOf } from "../stock/change.ts";
import type { GroupCommit } from "../stock/group-commit.ts";
import { entryOrRefuse } from "./outcomes.ts";
import { asRetryable, type RpcError, toRpcError, toStatus } from "./rpc-error.ts";
import type { OnCall, QuestionStream } from "./served-calls.ts";
import { invalid, readGroup, toWireItem } from "./wire.ts";

export interface ApplyChangesDeps {
  readonly commits: Pick<GroupCommit, "submit">;
  /** Who makes a call, by the names in the certificate. */
  readonly callerOf: (certificateNames: string | undefined) => Actor;
  readonly onCall: OnCall;
}

/** Maximum changes of one request, and groups. */
const maxChanges = 1_000;

/** Answers one request. Its groups join the transactions that are to come, each on its own. */
export async function* applyChanges(
  { groups }: ApplyChangesRequest,
  stream: QuestionStream,
  deps: ApplyChangesDeps,
): AsyncGenerator<ApplyChangesResponse> {
  const startedMs = performance.now();
  const count = groups.reduce((sum, { changes }) => sum + Math.max(changes.length, 1), 0);
  if (count > maxChanges) throw invalid("groups", `must have at most ${maxChanges} changes`);
  const caller = deps.callerOf(stream.certificateNames);
  const results = groups.map((group) =>
    inSpan("ApplyChanges", serverCall, contextOfCaller(group.traceparent), (span) =>
      applyGroup(group, stream, deps, { caller, span, startedMs }),
    ),
  );
  yield { results: (await Promise.all(results)).flat() };
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
    return { item: undefined, replayed: false, refusal: toStatus(error) };
  };
  try {
    const read = readGroup(group, caller);
    const { changes } = read;
    const written = commits.submit(read, stream.whileWanted(group.deadlineMs));
    const outcomes = await (changes.every(onceOf) ? asRetryable(written) : written);
    return outcomes.map((outcome, i) => {
      try {
        const { kind, item } = entryOrRefuse(changes[i]!, outcome);
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
