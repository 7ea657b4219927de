/** The gRPC server of the inventory service. */
import { EventEmitter } from "node:events";
import { readFileSync } from "node:fs";
import { fromBinary, toBinary } from "@bufbuild/protobuf";
import { FileDescriptorProtoSchema, FileDescriptorSetSchema } from "@bufbuild/protobuf/wkt";
import {
  type handleBidiStreamingCall,
  type handleServerStreamingCall,
  Server,
  type ServerCredentials,
  type ServerWritableStream,
  type ServiceDefinition,
  type UntypedHandleCall,
} from "@grpc/grpc-js";
import type { PackageDefinition } from "@grpc/proto-loader";
import { ReflectionService } from "@grpc/reflection";
import { HealthImplementation } from "grpc-health-check";
import type { InventoryServiceServer } from "../proto/gen/petstore/inventory/v1/inventory.ts";
import type { ListenAddress } from "../runtime/settings.ts";
import { boundCalls, boundedInventoryService } from "./rpc/call-bounds.ts";
import { questionStreamHandler } from "./rpc/served-calls.ts";

const serviceName = "petstore.inventory.v1.InventoryService";

const descriptors = new URL("../proto/gen/descriptors.binpb", import.meta.url);

/**
 * The largest message of a caller. A thousand changes, each as large as it may be and in a group of its own, are 1.5
 * MB.
 */
const maxMessageBytes = 2 * 1024 * 1024;

/** Maximum calls under way on a connection: all watches of a service, and some more. Clients queue the rest. */
const maxStreams = 1_024;

export interface RpcServerOptions {
  readonly handlers: InventoryServiceServer;
  /** TLS and the roles of callers: they decide who may connect, and which calls each may make. */
  readonly credentials: ServerCredentials;
  readonly maxConnectionAgeMs: number;
  /** Time for a connection that has reached its age to finish its calls. */
  readonly connectionGraceMs: number;
}

export interface RpcServer {
  /** @returns `host:port` as bound */
  listen(address: ListenAddress): Promise<string>;
  /** Reports SERVING or NOT_SERVING to health checks. It serves calls in either case. */
  setServing(isServing: boolean): void;
  /** Refuses new calls, lets running ones finish for at most `graceMs`, then ends them. */
  close(graceMs: number): Promise<void>;
}

/** Creates the gRPC server with the inventory service, health (grpc.health.v1) and reflection. */
export function createRpcServer({
  handlers,
  credentials,
  maxConnectionAgeMs,
  connectionGraceMs,
}: RpcServerOptions): RpcServer {
  // No pings: a ping makes grpc-js end the calls on a closing connection. The maximum age ends dead connections, too.
  const server = new Server({
    "grpc.max_receive_message_length": maxMessageBytes,
    "grpc.max_concurrent_streams": maxStreams,
    "grpc.max_connection_age_ms": maxConnectionAgeMs,
    "grpc.max_connection_age_grace_ms": connectionGraceMs,
    "grpc-node.flow_control_window": 4 * 1024 * 1024,
    interceptors: boundCalls,
  });
  const health = new HealthImplementation();
  const setServing = (isServing: boolean) => {
    for (const name of ["", serviceName]) health.setStatus(name, isServing ? "SERVING" : "NOT_SERVING");
  };
  setServing(false);
  server.addService(boundedInventoryService, handlers);
  // grpc-health-check never ends a watch, but a stop waits for every call: collect the watches, so that close() can end
  // them. The library calls only addService of a server.
  const healthWatches = new Set<{ end(): void }>();
  health.addToServer({
    addService: (service: ServiceDefinition, calls: Record<"check" | "list" | "watch", UntypedHandleCall>) => {
      const watch = (call: ServerWritableStream<unknown, unknown>) => {
        healthWatches.add(call);
        call.on("cancelled", () => healthWatches.delete(call));
        (calls.watch as handleServerStreamingCall<unknown, unknown>)(call);
      };
      server.addService(service, { ...calls, watch });
    },
  } as unknown as Server);
  // @grpc/reflection answers all questions that come, whether its caller takes the answers or not.
  const closing = new AbortController();
  new ReflectionService(reflectedFiles()).addToServer({
    addService: (service, { ServerReflectionInfo: reflect }) => {
      const answer = async function* (question: unknown) {
        yield await askOnce(reflect as handleBidiStreamingCall<unknown, unknown>, question);
      };
      server.addService(service, {
        ServerReflectionInfo: questionStreamHandler(
          closing.signal,
          () => answer,
          () => {},
        ),
      });
    },
  });

  return {
    listen: ({ host, port }) =>
      new Promise((resolve, reject) => {
        const target = host.includes(":") ? `[${host}]` : host;
        server.bindAsync(`${target}:${port}`, credentials, (error, bound) =>
          error ? reject(new Error(reasonOf(error), { cause: error })) : resolve(`${target}:${bound}`),
        );
      }),
    setServing,
    close: async (graceMs) => {
      closing.abort();
      for (const watch of healthWatches) watch.end();
      let force: NodeJS.Timeout | undefined;
      await new Promise<void>((resolve) => {
        // tryShutdown waits for running calls without a time limit.
        force = setTimeout(() => {
          server.forceShutdown();
          resolve();
        }, graceMs);
        server.tryShutdown(() => resolve());
      });
      clearTimeout(force);
    },
  };
}

/** Asks a handler of streams one question, on a stream that has only this one. */
function askOnce(handle: handleBidiStreamingCall<unknown, unknown>, question: unknown): Promise<unknown> {
  return new Promise((resolve) => {
    const stream = Object.assign(new EventEmitter(), { write: resolve });
    handle(stream as unknown as Parameters<typeof handle>[0]);
    stream.emit("data", question);
  });
}

/**
 * What reflection describes: the contract, the types of its error details, and health. The files are as they were
 * compiled: proto-loader would merge those of a package and lose their imports, and tools refuse files that lack one.
 */
function reflectedFiles(): PackageDefinition {
  const { file } = fromBinary(FileDescriptorSetSchema, readFileSync(descriptors));
  const fileDescriptorProtos = file.map((each) => toBinary(FileDescriptorProtoSchema, each));
  return { contract: { fileDescriptorProtos } } as unknown as PackageDefinition;
}

/** The system's error for the one address, taken out of grpc-js's list of errors. */
function reasonOf({ message }: Error): string {
  return /^No address added .* errors: \[(.*)\]$/.exec(message)?.[1] ?? message;
}
