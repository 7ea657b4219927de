/** Takes updates from a stream, and returns a result for each. */
import { type handleBidiStreamingCall, Metadata, type ServerDuplexStream, status } from "@grpc/grpc-js";
import type {
  ApplyUpdatesRequest,
  ApplyUpdatesResponse,
  Update,
  UpdateResult,
} from "../../proto/gen/petstore/inventory/v1/inventory.ts";
import { drainingUpdatesMs } from "../../proto/streams.ts";
import { contextOfCaller, inSpan, serverCall } from "../../runtime/spans.ts";
import type { GroupCommit } from "../stock/group-commit.ts";
import type { OnCall } from "./calls.ts";
import { type RpcError, toRpcError } from "./errors.ts";
import { settled } from "./outcomes.ts";
import { readTimeoutMs, readUpdate, toWireItem } from "./wire.ts";

export interface UpdateStreamDeps {
  readonly commits: Pick<GroupCommit, "submit">;
  /** Aborted when the server is about to stop. */
  readonly draining: AbortSignal;
  readonly onCall: OnCall;
}

type UpdateCall = ServerDuplexStream<ApplyUpdatesRequest, ApplyUpdatesResponse>;

/** Makes the handler of a stream of updates. The results of one transaction go back in one message. */
export function updateStream({
  commits,
  draining,
  onCall,
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

    call.on("data", ({ updates }: ApplyUpdatesRequest) => {
      if (isOver) return;
      for (const update of updates) {
        const startedMs = performance.now();
        const apply = async () => {
          try {
            const item = await applyUpdate(update, call, commits);
            onCall(call.getPath(), performance.now() - startedMs, status.OK, undefined);
            return item;
          } catch (thrown) {
            const error = toRpcError(thrown);
            onCall(call.getPath(), performance.now() - startedMs, error.code, error);
            throw error;
          }
        };
        results.expect(
          inSpan("ApplyUpdates", serverCall, contextOfCaller(update.traceparent), apply).then(
            (item) => ({ id: update.id, item, code: 0, message: "", reason: "" }),
            ({ code, message, reason }: RpcError) => ({ id: update.id, item: undefined, code, message, reason }),
          ),
        );
      }
    });
    call.on("end", () => results.end());
    call.on("close", () => {
      clearTimeout(timer);
      draining.removeEventListener("abort", drain);
    });
    call.on("error", () => {}); // the caller has left, and `isWanted` drops its updates
  };
}

async function applyUpdate(update: Update, call: UpdateCall, commits: UpdateStreamDeps["commits"]) {
  const expiresAtMs = performance.now() + readTimeoutMs(update.timeoutMs);
  const isWanted = () => !call.cancelled && performance.now() < expiresAtMs;
  const change = readUpdate(update);
  return toWireItem(settled(change, await commits.submit(change, isWanted)).item);
}

/** Gathers results until the end of a turn of the event loop, and ends the stream after the last one. */
class ResultWriter {
  readonly #call: UpdateCall;
  #gathered: UpdateResult[] = [];
  #expected = 0;
  #isEnding = false;

  constructor(call: UpdateCall) {
    this.#call = call;
  }

  expect(result: Promise<UpdateResult>): void {
    this.#expected += 1;
    void result.then((value) => {
      if (this.#gathered.length === 0) setImmediate(() => this.#flush());
      this.#gathered.push(value);
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
    this.#expected -= results.length;
    if (this.#call.destroyed || this.#call.cancelled) return;
    this.#call.write({ results, draining: false });
    if (this.#isEnding && this.#expected === 0) this.#call.end();
  }
}
