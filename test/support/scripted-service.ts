import { Metadata, Server, ServerCredentials, type ServerDuplexStream, status } from "@grpc/grpc-js";
import { openInventoryChannel } from "../../client/channel.ts";
import { RpcError, toServiceError } from "../../inventory-svc/rpc/rpc-error.ts";
import {
  type ApplyChangesRequest,
  ApplyChangesResponse,
  type CheckInventoryRequest,
  CheckInventoryResponse,
  InventoryServiceService,
} from "../../proto/gen/petstore/inventory/v1/inventory.ts";
import type { ErrorReason } from "../../proto/reasons.ts";

type Partly<T extends { fromPartial(message: never): unknown }> = Parameters<T["fromPartial"]>[0];

/** A stream as the service sees it, in the hands of a test. */
export interface ScriptedStream<Question, Answer> {
  /** What has arrived on it. */
  readonly questions: readonly Question[];
  accept(): void;
  say(answer: Answer): void;
  /** Ends it as a service that stops does. */
  end(): void;
  /** Breaks it. */
  fail(code?: status): void;
  /** Ends it with a refusal, as only a service does. */
  refuse(reason: ErrorReason): void;
  readonly isCancelled: boolean;
}

export type ChangesStream = ScriptedStream<ApplyChangesRequest, Partly<typeof ApplyChangesResponse>>;
export type ChecksStream = ScriptedStream<CheckInventoryRequest, Partly<typeof CheckInventoryResponse>>;

export interface ScriptedServiceOptions {
  /** Gets each stream of changes when it is opened. */
  readonly onChanges?: (stream: ChangesStream, index: number) => void;
  /** Gets each stream of checks when it is opened. */
  readonly onChecks?: (stream: ChecksStream, index: number) => void;
  /** Gets each question. */
  readonly onQuestion?: (stream: ChangesStream & ChecksStream, index: number) => void;
}

/** Starts a gRPC server whose streams a test answers by hand, and opens a channel to it. */
export async function startScriptedService(stack: AsyncDisposableStack, options: ScriptedServiceOptions) {
  const changes: ChangesStream[] = [];
  const checks: ChecksStream[] = [];
  const script = <Question, Answer>(
    streams: ScriptedStream<Question, Answer>[],
    toAnswer: (partly: Answer) => unknown,
    onOpen: ((stream: ScriptedStream<Question, Answer>, index: number) => void) | undefined,
  ) => {
    return (call: ServerDuplexStream<Question, unknown>) => {
      const questions: Question[] = [];
      const index = streams.length;
      const stream: ScriptedStream<Question, Answer> = {
        questions,
        accept: () => call.sendMetadata(new Metadata()),
        say: (answer) => void call.write(toAnswer(answer)),
        end: () => void call.end(),
        fail: (code = status.UNAVAILABLE) => void call.emit("error", Object.assign(new Error("broken"), { code })),
        refuse: (reason) => void call.emit("error", toServiceError(new RpcError(reason, "refused"))),
        get isCancelled() {
          return call.cancelled;
        },
      };
      streams.push(stream);
      call.on("data", (question: Question) => {
        questions.push(question);
        options.onQuestion?.(stream as never, index);
      });
      call.on("error", () => {});
      if (onOpen) onOpen(stream, index);
      else stream.accept();
    };
  };
  const server = new Server();
  server.addService(InventoryServiceService, {
    applyChanges: script(changes, (partly) => ApplyChangesResponse.fromPartial(partly), options.onChanges),
    checkInventory: script(checks, (partly) => CheckInventoryResponse.fromPartial(partly), options.onChecks),
  });
  const port = await new Promise<number>((resolve, reject) => {
    server.bindAsync("127.0.0.1:0", ServerCredentials.createInsecure(), (error, bound) =>
      error ? reject(error) : resolve(bound),
    );
  });
  stack.defer(() => server.forceShutdown());
  const address = `127.0.0.1:${port}`;
  const stub = openInventoryChannel({ address });
  stack.defer(() => stub.close());
  return { address, stub, changes, checks };
}
