/** Takes updates from a stream, and returns a result for each. */
import { type handleBidiStreamingCall, Metadata, type ServerDuplexStream, status } from "@grpc/grpc-js";
import type { Span } from "@opentelemetry/api";
import type {
  ApplyUpdatesRequest,
  ApplyUpdatesResponse,
  Update,
  UpdateResult,
} from "../../proto/gen/petstore/inventory/v1/inventory.ts";
import { drainingUpdatesMs } from "../../proto/streams.ts";
import { contextOfCaller, failSpan, inSpan, serverCall } from "../../runtime/spans.ts";
import type { Change, ChangeGroup, Outcome } from "../stock/changes.ts";
import type { GroupCommit } from "../stock/group-commit.ts";
import { type OnCall, whileWanted } from "./calls.ts";
import { RpcError, toRpcError } from "./errors.ts";
import { type Settled, settled } from "./outcomes.ts";
import { readKeyedUpdates, readTimeoutMs, readUpdate, toWireItem } from "./wire.ts";

export interface UpdateStreamDeps {
  readonly commits: Pick<GroupCommit, "submit">;
  /** Aborted when the server is about to stop. */
  readonly draining: AbortSignal;
  readonly onCall: OnCall;
  /** For how long a message that is read now may have waited. */
  readonly waitedMs: () => number;
}

type UpdateCall = ServerDuplexStream<ApplyUpdatesRequest, ApplyUpdatesResponse>;

/** Makes the handler of a stream of updates. The results of one transaction go back in one message. */
export function updateStream({
  commits,
  draining,
  onCall,
  waitedMs,
}: UpdateStreamDeps): handleBidiStreamingCall<ApplyUpdatesRequest, ApplyUpdatesResponse> {
  return (call) => {
    call.sendMetadata(new Metadata()); // accepts the stream: the caller sends nothing before
    const results = new ResultWriter(call);
    let isOver = false;
    let timer: NodeJS.Timeout | undefined;
    const drain = () => {
      results.sayDraining();
      // A caller that ignores it must not hold up the stop. Updates that were not taken have not happened.
      timer = setTimeout(() => {
        isOver = true;
        results.end();
      }, drainingUpdatesMs);
    };
    if (draining.aborted) drain();
    draining.addEventListener("abort", drain);

    const take = (updates: readonly Update[], read: () => ChangeGroup) => {
      const startedMs = performance.now();
      const apply = async (span: Span) => {
        const settled = await applyTogether(updates, read, call, commits, waitedMs());
        const error = settled.find((each) => each instanceof RpcError);
        if (error) failSpan(span, error);
        return settled.map((each, i) => {
          const refusal = each instanceof RpcError ? each : undefined;
          onCall(call.getPath(), performance.now() - startedMs, refusal?.code ?? status.OK, refusal);
          return toResult(updates[i]!.id, each);
        });
      };
      results.expect(inSpan("ApplyUpdates", serverCall, contextOfCaller(updates[0]?.traceparent), apply));
    };
    call.on("data", ({ updates, keyed }: ApplyUpdatesRequest) => {
      if (isOver) return;
      for (const update of updates) take([update], () => [readUpdate(update)]);
      for (const request of keyed) take(request.updates, () => readKeyedUpdates(request));
    });
    call.on("end", () => results.end());
    call.on("close", () => {
      clearTimeout(timer);
      draining.removeEventListener("abort", drain);
    });
    call.on("error", () => {}); // the caller has left, and `whileWanted` drops its updates
  };
}

/** @returns for each update what became of it */
async function applyTogether(
  updates: readonly Update[],
  read: () => ChangeGroup,
  call: UpdateCall,
  commits: UpdateStreamDeps["commits"],
  waitedMs: number,
): Promise<(Settled | RpcError)[]> {
  try {
    const timeoutMs = Math.min(...updates.map((update) => readTimeoutMs(update.timeoutMs)));
    const group = read();
    const outcomes = await commits.submit(group, whileWanted(call, timeoutMs, waitedMs));
    return outcomes.map((outcome, i) => settledOrRefused(group[i]!, outcome));
  } catch (thrown) {
    const error = toRpcError(thrown);
    return updates.map(() => error);
  }
}

function settledOrRefused(change: Change, outcome: Outcome): Settled | RpcError {
  try {
    return settled(change, outcome);
  } catch (refusal) {
    return toRpcError(refusal);
  }
}

function toResult(id: number, settled: Settled | RpcError): UpdateResult {
  if (settled instanceof RpcError) {
    const { code, message, reason } = settled;
    return { id, item: undefined, code, message, reason, replayed: false };
  }
  const { kind, item } = settled;
  return { id, item: toWireItem(item), code: 0, message: "", reason: "", replayed: kind === "replayed" };
}

/** Gathers results until the end of a turn of the event loop, and ends the stream after the last one. */
class ResultWriter {
  readonly #call: UpdateCall;
  #gathered: UpdateResult[] = [];
  /** Requests whose results are not sent yet. */
  #expected = 0;
  /** Requests whose results are gathered. */
  #answered = 0;
  #isEnding = false;

  constructor(call: UpdateCall) {
    this.#call = call;
  }

  expect(results: Promise<readonly UpdateResult[]>): void {
    this.#expected += 1;
    void results.then((values) => {
      if (this.#answered === 0) setImmediate(() => this.#flush());
      this.#answered += 1;
      this.#gathered.push(...values);
    });
  }

  /** Ends the stream after the results that are still expected: no more updates will be taken. */
  end(): void {
    this.#isEnding = true;
    if (this.#expected === 0) this.#call.end();
  }

  sayDraining(): void {
    if (!this.#call.destroyed) this.#call.write({ results: [], draining: true });
  }

  #flush(): void {
    const results = this.#gathered;
    this.#gathered = [];
    this.#expected -= this.#answered;
    this.#answered = 0;
    if (this.#call.destroyed || this.#call.cancelled) return;
    this.#call.write({ results, draining: false });
    if (this.#isEnding && this.#expected === 0) this.#call.end();
  }
}
