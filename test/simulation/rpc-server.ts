/** gRPC as `inventory-svc/rpc` sees it: a server that hands calls to their handlers, as grpc-js does. */
import { Readable } from "node:stream";
import { Metadata, type ServiceError, status } from "@grpc/grpc-js";
import type { InventoryServiceServer } from "../../proto/gen/petstore/inventory/v1/inventory.ts";
import { meet } from "./events.ts";
import { type Frame, type Method, methods, type Status } from "./rpc-frames.ts";
import type { End, Network } from "./virtual-network.ts";
import { currentHost, type Host, note } from "./virtual-time.ts";

/** A call, at the service. */
class ServerCall extends Readable {
  readonly #method: Method;
  readonly #connection: End<Frame>;
  readonly #id: number;
  readonly #deadlineMs: number;
  request: unknown;
  readonly metadata = new Metadata();
  cancelled = false;
  #isEnded = false;
  readonly #onEnd: () => void;

  constructor(method: Method, connection: End<Frame>, id: number, timeoutMs: number | undefined, onEnd: () => void) {
    super({ objectMode: true, read() {}, highWaterMark: 1_000_000 });
    this.#method = method;
    this.#connection = connection;
    this.#id = id;
    this.#onEnd = onEnd;
    this.#deadlineMs = timeoutMs === undefined ? Number.POSITIVE_INFINITY : Date.now() + timeoutMs;
    this.on("error", (error: Partial<ServiceError>) => {
      const { code = status.UNKNOWN, details = "", metadata } = error;
      this.finish({ code, details, metadata });
    });
    if (timeoutMs !== undefined) {
      setTimeout(() => this.finish({ code: status.DEADLINE_EXCEEDED, details: "Deadline exceeded" }), timeoutMs);
    }
  }

  getPath(): string {
    return this.#method.path;
  }

  getDeadline(): number {
    return this.#deadlineMs;
  }

  /** No caller has a certificate here. */
  getAuthContext(): object {
    return {};
  }

  sendMetadata(): void {
    this.#connection.send({ kind: "metadata", id: this.#id });
  }

  write(message: unknown, done?: () => void): boolean {
    if (this.#isEnded) return false;
    const bytes = this.#method.responseSerialize(message);
    this.#connection.send({ kind: "message", id: this.#id, bytes }, done);
    return true;
  }

  end(): void {
    this.finish({ code: status.OK, details: "" });
  }

  finish(sent: Status): void {
    if (this.#isEnded) return;
    this.#isEnded = true;
    // grpc-js reports the end of its stream once it is sent, which a client that reads nothing holds up.
    this.#connection.send({ kind: "status", id: this.#id, status: sent }, () => this.cancel());
  }

  /** What `resetCall` uses. */
  readonly call = {
    stream: {
      close: () => {
        this.#connection.send({ kind: "status", id: this.#id, status: { code: status.CANCELLED, details: "reset" } });
        this.cancel();
      },
    },
  };

  /** Its client has left, or it has ended. */
  cancel(): void {
    if (this.cancelled) return;
    this.#isEnded = true;
    this.cancelled = true;
    this.#onEnd();
    this.emit("cancelled", "cancelled");
    this.destroy();
  }

  receive(frame: Frame): void {
    if (this.destroyed) return;
    if (frame.kind === "message") this.push(this.#method.requestDeserialize(frame.bytes));
    else if (frame.kind === "half-close") this.push(null);
    else if (frame.kind === "cancel") this.cancel();
  }
}

type Handler = (call: ServerCall, done: (error: ServiceError | null, response: unknown) => void) => void;

/** Serves the handlers of a service at an address. */
export class RpcServer {
  readonly #network: Network;
  readonly #address: string;
  readonly #host: Host;
  readonly #handlers: Readonly<Record<string, Handler>>;
  readonly #connections = new Map<End<Frame>, Map<number, ServerCall>>();
  /** How many calls of a connection were taken or refused. */
  readonly #taken = new WeakMap<End<Frame>, number>();
  #isClosing = false;
  #onIdle: () => void = () => {};

  constructor(used: Network, address: string, handlers: InventoryServiceServer) {
    this.#network = used;
    this.#address = address;
    this.#host = currentHost()!;
    this.#handlers = handlers as unknown as Readonly<Record<string, Handler>>;
  }

  listen(maxConnectionAgeMs: number, graceMs: number): void {
    this.#network.listen<Frame>(this.#address, this.#host, (end) => {
      const calls = new Map<number, ServerCall>();
      this.#connections.set(end, calls);
      end.onMessage = (frame) => this.#receive(end, calls, frame);
      end.onClose = () => {
        this.#connections.delete(end);
        for (const call of [...calls.values()]) call.cancel();
        this.#look();
      };
      setTimeout(() => {
        if (end.isClosed) return;
        end.send({ kind: "goaway", id: 0, taken: Number.POSITIVE_INFINITY });
        setTimeout(() => this.#drop(end), graceMs);
      }, maxConnectionAgeMs);
    });
  }

  /** As `close` of `grpc-server.ts`: refuses new calls, lets the running ones finish, then ends them. */
  async close(graceMs: number): Promise<void> {
    this.#isClosing = true;
    this.#network.unlisten(this.#address, this.#host);
    for (const end of this.#connections.keys()) end.send({ kind: "goaway", id: 0, taken: Number.POSITIVE_INFINITY });
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, graceMs);
      this.#onIdle = () => {
        clearTimeout(timer);
        resolve();
      };
      this.#look();
    });
    for (const end of [...this.#connections.keys()]) this.#drop(end);
  }

  #drop(end: End<Frame>): void {
    const calls = this.#connections.get(end);
    if (!calls) return;
    this.#connections.delete(end);
    end.send({ kind: "goaway", id: 0, taken: this.#taken.get(end) ?? 0 });
    end.close();
    for (const call of [...calls.values()]) call.cancel();
  }

  #look(): void {
    if (this.#isClosing && [...this.#connections.values()].every((calls) => calls.size === 0)) this.#onIdle();
  }

  #receive(end: End<Frame>, calls: Map<number, ServerCall>, frame: Frame): void {
    if (frame.kind === "ping") return void end.send({ kind: "pong", id: 0 });
    if (frame.kind !== "open") {
      if (frame.kind === "message" && !calls.has(frame.id)) meet("a question after the end of its stream");
      calls.get(frame.id)?.receive(frame);
      return;
    }
    this.#taken.set(end, (this.#taken.get(end) ?? 0) + 1);
    if (this.#isClosing) end.send({ kind: "refused", id: frame.id });
    else this.#begin(end, calls, frame);
  }

  #begin(end: End<Frame>, calls: Map<number, ServerCall>, frame: Extract<Frame, { kind: "open" }>): void {
    const { id, method: name, timeoutMs } = frame;
    const method = methods[name]!;
    const call = new ServerCall(method, end, id, timeoutMs, () => {
      calls.delete(id);
      this.#look();
    });
    calls.set(id, call);
    note(`${this.#host.name} takes ${name} ${id} of ${end.peer.host.name}`);
    const handler = this.#handlers[name]!;
    if (method.requestStream) {
      handler(call, () => {});
      return;
    }
    // The request of any other call is one message.
    call.once("data", (request) => {
      call.request = request;
      handler(call, (error, response) => {
        if (error) return void call.emit("error", error);
        call.write(response);
        call.end();
      });
    });
  }
}
