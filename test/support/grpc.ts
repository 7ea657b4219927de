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
import { InventoryServiceClient, type ListInventoryResponse } from "../../proto/gen/petstore/inventory/v1/inventory.ts";

/** No call of a test waits for longer. */
const timeoutMs = 20_000;

type Method<Req, Res> = (
  request: Req,
  metadata: Metadata,
  options: Partial<CallOptions>,
  done: (error: ServiceError | null, response: Res) => void,
) => ClientUnaryCall;

/** The inventory service as an internal caller sees it. */
export function connectInventory(address: string, credentials = ChannelCredentials.createInsecure()) {
  const client = new InventoryServiceClient(address, credentials);
  /** A unary call, and a way to give it up. */
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
    update: unary(client.updateInventory),
    create: unary(client.createInventoryItem),
    remove: unary(client.removeInventoryItem),
    list: async (options: Partial<CallOptions> = {}) => {
      const call = client.listInventory({}, { deadline: Date.now() + timeoutMs, ...options });
      return await Array.fromAsync(call as AsyncIterable<ListInventoryResponse>);
    },
    check: () => conversation(client.checkInventory()),
    applyUpdates: () => conversation(client.applyUpdates()),
    close: () => client.close(),
  };
}

export type Inventory = ReturnType<typeof connectInventory>;

export interface Conversation<Req, Res> {
  readonly call: ClientDuplexStream<Req, Res>;
  send(...requests: Req[]): void;
  /** The next message; undefined when the stream has ended. Rejects with its error. */
  next(): Promise<Res | undefined>;
}

/** A bidirectional stream, message by message. */
export function conversation<Req, Res>(call: ClientDuplexStream<Req, Res>): Conversation<Req, Res> {
  return {
    call,
    send: (...requests) => {
      for (const request of requests) call.write(request);
    },
    next: messagesOf(call),
  };
}

/** The name of the status that a call ended with. */
export async function statusOf(call: Promise<unknown>): Promise<string> {
  return await call.then(
    () => "OK",
    (error: ServiceError) => (error.code === undefined ? String(error) : status[error.code]!),
  );
}

/** A client of a service that only a .proto file describes, as `grpc.health.v1.Health`. */
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

/** Messages of a stream, one at a time; undefined at its end. */
export function messagesOf<Res>(call: ClientReadableStream<Res>): () => Promise<Res | undefined> {
  const messages = call[Symbol.asyncIterator]() as AsyncIterator<Res>;
  call.on("error", () => {}); // the reader is told
  return async () => (await messages.next()).value;
}
