import {
  type CallOptions,
  ChannelCredentials,
  type Client,
  type ClientDuplexStream,
  type ClientReadableStream,
  type ClientUnaryCall,
  loadPackageDefinition,
  Metadata,
  type ServiceClientConstructor,
  type ServiceError,
  status,
} from "@grpc/grpc-js";
import { loadSync } from "@grpc/proto-loader";
import { BadRequest, ErrorInfo, ResourceInfo, RetryInfo } from "../../proto/gen/google/rpc/error_details.ts";
import { Status } from "../../proto/gen/google/rpc/status.ts";
import {
  ApplyChangesRequest,
  BatchAdjustInventoryRequest,
  InventoryServiceClient,
  ListChangesRequest,
  type ListInventoryResponse,
  UpdateInventoryRequest,
} from "../../proto/gen/petstore/inventory/v1/inventory.ts";

/** The longest wait of any call in a test. */
const timeoutMs = 20_000;

type Method<Req, Res> = (
  request: Req,
  metadata: Metadata,
  options: Partial<CallOptions>,
  done: (error: ServiceError | null, response: Res) => void,
) => ClientUnaryCall;

/** Connects to the inventory service as an internal caller, by default without TLS. */
export function connectInventory(address: string, credentials = ChannelCredentials.createInsecure()) {
  const client = new InventoryServiceClient(address, credentials);
  /** Begins a unary call that can be cancelled. */
  const begin = <Req, Res>(method: Method<Req, Res>, request: Req, options: Partial<CallOptions> = {}) => {
    let call: ClientUnaryCall | undefined;
    const response = new Promise<Res>((resolve, reject) => {
      const all = { deadline: Date.now() + timeoutMs, ...options };
      call = method.call(client, request, new Metadata(), all, (error, value) =>
        error ? reject(error) : resolve(value),
      );
    });
    return { response, cancel: () => call!.cancel() };
  };
  const unary =
    <Req, Res>(method: Method<Req, Res>) =>
    (request: Req, options?: Partial<CallOptions>) =>
      begin(method, request, options).response;
  return {
    client,
    begin,
    get: unary(client.getInventoryItem),
    update: (request: Parameters<typeof UpdateInventoryRequest.fromPartial>[0], options?: Partial<CallOptions>) =>
      begin(client.updateInventory, UpdateInventoryRequest.fromPartial(request), options).response,
    create: unary(client.createInventoryItem),
    remove: unary(client.removeInventoryItem),
    adjust: unary(client.adjustInventory),
    batchAdjust: (
      request: Parameters<typeof BatchAdjustInventoryRequest.fromPartial>[0],
      options?: Partial<CallOptions>,
    ) => begin(client.batchAdjustInventory, BatchAdjustInventoryRequest.fromPartial(request), options).response,
    setStatus: unary(client.setStatus),
    listChanges: (request: Parameters<typeof ListChangesRequest.fromPartial>[0]) =>
      begin(client.listChanges, ListChangesRequest.fromPartial(request)).response,
    batchGet: unary(client.batchGetInventoryItems),
    list: async (options: Partial<CallOptions> = {}) => {
      const call = client.listInventory({}, { deadline: Date.now() + timeoutMs, ...options });
      return await Array.fromAsync(call as AsyncIterable<ListInventoryResponse>);
    },
    check: (options: Partial<CallOptions> = {}) => conversation(client.checkInventory(options)),
    applyChanges: (options: Partial<CallOptions> = {}) => {
      const { send, ...rest } = conversation(client.applyChanges(options));
      const complete = (request: Parameters<typeof ApplyChangesRequest.fromPartial>[0]) =>
        ApplyChangesRequest.fromPartial(request);
      return { ...rest, send: (...requests: Parameters<typeof complete>[0][]) => send(...requests.map(complete)) };
    },
    close: () => client.close(),
  };
}

export type Inventory = ReturnType<typeof connectInventory>;

export interface Conversation<Req, Res> {
  readonly call: ClientDuplexStream<Req, Res>;
  send(...requests: Req[]): void;
  /** Resolves to the next message, or to undefined at the end of the stream. Rejects with the stream's error. */
  next(): Promise<Res | undefined>;
}

/** Sends and reads a bidirectional stream message by message. */
export function conversation<Req, Res>(call: ClientDuplexStream<Req, Res>): Conversation<Req, Res> {
  return {
    call,
    send: (...requests) => {
      for (const request of requests) call.write(request);
    },
    next: messagesOf(call),
  };
}

/** Resolves to the name of the status that a call ended with. */
export async function statusOf(call: Promise<unknown>): Promise<string> {
  return await call.then(
    () => "OK",
    (error: ServiceError) => (error.code === undefined ? String(error) : status[error.code]!),
  );
}

/** A refusal as its google.rpc details describe it to programs. A missing detail is undefined. */
export interface Refusal {
  readonly code: string;
  readonly reason: string | undefined;
  readonly domain: string | undefined;
  readonly metadata: Record<string, string> | undefined;
  readonly fields: readonly string[] | undefined;
  readonly resource: string | undefined;
  readonly retryDelayMs: number | undefined;
}

/** Resolves to the refusal of a call. @throws when the call succeeded, or its details contradict its status */
export async function refusalOf(call: Promise<unknown>): Promise<Refusal> {
  const thrown = await call.then(
    () => undefined,
    (error: ServiceError) => error,
  );
  if (thrown === undefined) throw new Error("the call went well");
  const [trailer] = thrown.metadata.get("grpc-status-details-bin");
  if (trailer === undefined) throw new Error(`a refusal without details: ${thrown.message}`);
  const sent = Status.decode(trailer as Buffer);
  if (sent.code !== thrown.code || sent.message !== thrown.details) {
    throw new Error(`${sent.message} is not ${thrown.message}`);
  }
  return describeRefusal(sent);
}

/** What a google.rpc.Status says to programs. */
export function describeRefusal({ code, details }: Status): Refusal {
  const detail = <T>(name: string, type: { decode(bytes: Uint8Array): T }): T | undefined => {
    const any = details.find(({ typeUrl }) => typeUrl === `type.googleapis.com/google.rpc.${name}`);
    return any && type.decode(any.value);
  };
  const info = detail("ErrorInfo", ErrorInfo);
  const resource = detail("ResourceInfo", ResourceInfo);
  const delay = detail("RetryInfo", RetryInfo)?.retryDelay;
  return {
    code: status[code]!,
    reason: info?.reason,
    domain: info?.domain,
    metadata: info?.metadata,
    fields: detail("BadRequest", BadRequest)?.fieldViolations.map(({ field }) => field),
    resource: resource && `${resource.resourceType} ${resource.resourceName}`,
    retryDelayMs: delay && Number(delay.seconds) * 1_000 + delay.nanos / 1_000_000,
  };
}

/** Connects to a service without generated code, such as `grpc.health.v1.Health`, by its .proto file. */
export function connectService<T>(
  protoFile: string,
  service: string,
  address: string,
  credentials = ChannelCredentials.createInsecure(),
): Client & T {
  let found: unknown = loadPackageDefinition(loadSync(protoFile, { longs: String, enums: String, defaults: true }));
  for (const part of service.split(".")) found = (found as Record<string, unknown>)[part];
  return new (found as ServiceClientConstructor)(address, credentials) as never;
}

/** Reads the messages of a stream, one for each call of the result; undefined at its end. */
export function messagesOf<Res>(call: ClientReadableStream<Res>): () => Promise<Res | undefined> {
  const messages = call[Symbol.asyncIterator]() as AsyncIterator<Res>;
  call.on("error", () => {}); // the iterator reports it
  return async () => (await messages.next()).value;
}
