/**
 * gRPC as `client/` sees it: a channel that balances calls over services.
 *
 * Messages go through the encoders of the contract. Statuses, cancellations, deadlines, GOAWAY and keepalive behave as
 * grpc-js's do.
 */
import { Readable } from "node:stream";
import { Metadata, type ServiceError, status } from "@grpc/grpc-js";
import { meet } from "./events.ts";
import { type Frame, type Method, methods, type Status } from "./rpc-frames.ts";
import type { End, Network } from "./virtual-network.ts";
import { at, currentHost, type Host, note, nowMs } from "./virtual-time.ts";

const keepaliveMs = 10_000;
const keepaliveTimeoutMs = 5_000;
const maxBackoffMs = 1_000;

/** The status that grpc-js makes of a lost connection: mostly UNAVAILABLE, after some resets another one. */
function lostCode(): status {
  if (Math.random() < 0.7) return status.UNAVAILABLE;
  return Math.random() < 0.5 ? status.RESOURCE_EXHAUSTED : status.INTERNAL;
}

/** A call, at the client: a stream of the answer's messages, which takes the request's. */
class ClientCall extends Readable {
  readonly id: number;
  readonly method: string;
  readonly #definition: Method;
  readonly #channel: Channel;
  readonly #host: Host;
  readonly timeoutMs: number | undefined;
  /** What is sent once the call has a connection. */
  #unsent: Frame[] = [];
  #connection: Connection | undefined;
  #isOver = false;
  #stopDeadline: () => void = () => {};

  constructor(channel: Channel, method: string, id: number, timeoutMs?: number) {
    super({ objectMode: true, read() {}, highWaterMark: 1_000_000 });
    this.id = id;
    this.method = method;
    this.#definition = methods[method]!;
    this.#channel = channel;
    this.timeoutMs = timeoutMs;
    if (timeoutMs !== undefined) {
      const expire = () => {
        this.#send({ kind: "cancel", id });
        this.finish({ code: status.DEADLINE_EXCEEDED, details: "Deadline exceeded" });
      };
      this.#stopDeadline = at(currentHost(), nowMs() + timeoutMs, expire);
    }
    const host = currentHost()!;
    this.#host = host;
    host.openCalls += 1;
    note(`${host.name} opens ${method} ${id}`);
    if (method === "listInventory") host.longAnswerMs = nowMs();
    channel.start(this);
  }

  get isOver(): boolean {
    return this.#isOver;
  }

  write(message: unknown): boolean {
    this.#host.questions += 1;
    onSent(this.method, message);
    this.#send({ kind: "message", id: this.id, bytes: this.#definition.requestSerialize(message) });
    return true;
  }

  end(): void {
    this.#send({ kind: "half-close", id: this.id });
  }

  cancel(): void {
    if (this.#isOver) return;
    this.#send({ kind: "cancel", id: this.id });
    process.nextTick(() => this.finish({ code: status.CANCELLED, details: "Cancelled on client" }));
  }

  /** Goes on over a connection. */
  carry(connection: Connection): void {
    this.#connection = connection;
    connection.end.send({ kind: "open", id: this.id, method: this.method, timeoutMs: this.timeoutMs });
    for (const frame of this.#unsent) connection.end.send(frame);
  }

  #send(frame: Frame): void {
    this.#unsent.push(frame);
    this.#connection?.end.send(frame);
  }

  receive(frame: Frame): void {
    if (this.#isOver) return;
    if (frame.kind === "metadata") {
      this.#unsent = [];
      this.emit("metadata", new Metadata());
    } else if (frame.kind === "message") {
      const message = this.#definition.responseDeserialize(frame.bytes);
      const isPart = this.method === "listInventory" || (message as { more?: boolean } | undefined)?.more;
      if (isPart) currentHost()!.longAnswerMs = nowMs();
      this.push(message);
    } else if (frame.kind === "status") this.finish(frame.status);
    else if (frame.kind === "refused") this.refuse();
  }

  /** Begins again on another connection: the service says that it has not taken the call. */
  refuse(): void {
    meet("a call that a leaving service refused");
    this.#leaveConnection();
    this.#connection = undefined;
    this.#channel.start(this);
  }

  #leaveConnection(): void {
    this.#connection?.calls.delete(this.id);
    this.#connection?.onCallEnd();
  }

  finish({ code, details, metadata = new Metadata() }: Status): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#host.openCalls -= 1;
    this.#stopDeadline();
    this.#leaveConnection();
    if (this.destroyed) return;
    this.push(null);
    if (code !== status.OK) {
      const error = new Error(`${code} ${status[code]}: ${details}`);
      this.emit("error", Object.assign(error, { code, details, metadata }));
    }
    this.emit("status", { code, details, metadata });
  }
}

/** A connection of a channel to one service. */
interface Connection {
  readonly end: End<Frame>;
  readonly calls: Map<number, ClientCall>;
  /** The ids of all its calls, in the order of their begin. */
  readonly begun: number[];
  /** Called when a call has ended. */
  readonly onCallEnd: () => void;
}

/** The way to one service. */
class Subchannel {
  readonly #network: Network;
  readonly #host: Host;
  readonly #address: string;
  readonly #onChange: () => void;
  state: "idle" | "connecting" | "ready" | "failed" = "idle";
  /** The connection that takes calls. */
  connection: Connection | undefined;
  /** All that are open: one that takes no new calls finishes the others. */
  readonly #open = new Set<Connection>();
  #backoffMs = 100;
  #isClosed = false;

  constructor(network: Network, host: Host, address: string, onChange: () => void) {
    this.#network = network;
    this.#host = host;
    this.#address = address;
    this.#onChange = onChange;
  }

  connect(): void {
    if (this.state === "connecting" || this.state === "ready" || this.#isClosed) return;
    this.state = "connecting";
    const timer = setTimeout(() => {
      attempt = undefined;
      this.#fail();
    }, 20_000);
    let attempt: object | undefined = {};
    this.#network.connect<Frame>(
      this.#host,
      this.#address,
      (end) => {
        clearTimeout(timer);
        if (!attempt || this.#isClosed) return end.close();
        this.#use(end);
      },
      () => {
        clearTimeout(timer);
        this.#fail();
      },
    );
  }

  close(): void {
    this.#isClosed = true;
    for (const { end, calls } of this.#open) {
      end.close();
      for (const call of [...calls.values()]) {
        call.finish({ code: status.UNAVAILABLE, details: "Channel closed" });
      }
    }
  }

  #use(end: End<Frame>): void {
    const calls = new Map<number, ClientCall>();
    const onCallEnd = () => {
      if (this.connection === connection || calls.size > 0 || end.isClosed) return;
      end.close();
      lose("no calls are left");
    };
    const connection: Connection = { end, calls, begun: [], onCallEnd };
    this.#open.add(connection);
    this.connection = connection;
    this.state = "ready";
    this.#backoffMs = 100;
    let pong: NodeJS.Timeout | undefined;
    const ping = setInterval(() => {
      end.send({ kind: "ping", id: 0 });
      pong ??= setTimeout(() => {
        meet("a lost connection that a ping found");
        end.close();
        lose("keepalive");
      }, keepaliveTimeoutMs);
    }, keepaliveMs);
    const leave = () => {
      if (this.connection !== connection) return;
      this.connection = undefined;
      this.state = "idle";
      if (!this.#isClosed) this.connect();
      this.#onChange();
    };
    const lose = (why: string) => {
      this.#open.delete(connection);
      clearInterval(ping);
      clearTimeout(pong);
      const code = lostCode();
      for (const call of [...calls.values()]) call.finish({ code, details: `Connection dropped: ${why}` });
      leave();
    };
    end.onClose = () => lose("closed");
    end.onMessage = (frame) => {
      if (frame.kind === "pong") {
        clearTimeout(pong);
        pong = undefined;
      } else if (frame.kind === "goaway") {
        if (calls.size > 0) meet("calls on a connection that takes no more");
        leave();
        for (const id of connection.begun.splice(frame.taken)) calls.get(id)?.refuse();
        onCallEnd();
      } else calls.get(frame.id)?.receive(frame);
    };
    this.#onChange();
  }

  #fail(): void {
    this.state = "failed";
    this.#onChange();
    setTimeout(() => this.connect(), this.#backoffMs * (0.8 + Math.random() * 0.4));
    this.#backoffMs = Math.min(this.#backoffMs * 1.6, maxBackoffMs);
  }
}

/** Balances calls over the services that are connected, each in its turn. */
class Channel {
  readonly #subchannels: readonly Subchannel[];
  readonly #waiting = new Set<ClientCall>();
  #next = Math.floor(Math.random() * 16);
  #lastId = 0;

  constructor(network: Network, host: Host, addresses: readonly string[]) {
    this.#subchannels = addresses.map((address) => new Subchannel(network, host, address, () => this.#serve()));
  }

  call(method: string, timeoutMs?: number): ClientCall {
    this.#lastId += 1;
    return new ClientCall(this, method, this.#lastId, timeoutMs);
  }

  start(call: ClientCall): void {
    this.#waiting.add(call);
    process.nextTick(() => this.#serve());
  }

  close(): void {
    for (const subchannel of this.#subchannels) subchannel.close();
  }

  #serve(): void {
    for (const call of this.#waiting) {
      if (call.isOver) {
        this.#waiting.delete(call);
        continue;
      }
      const connection = this.#pick();
      if (connection) {
        this.#waiting.delete(call);
        connection.calls.set(call.id, call);
        connection.begun.push(call.id);
        call.carry(connection);
      } else if (this.#subchannels.every(({ state }) => state === "failed")) {
        this.#waiting.delete(call);
        call.finish({ code: status.UNAVAILABLE, details: "No connection established" });
      }
    }
  }

  #pick(): Connection | undefined {
    for (const subchannel of this.#subchannels) if (subchannel.state === "idle") subchannel.connect();
    const ready = this.#subchannels.flatMap(({ connection }) => connection ?? []);
    this.#next += 1;
    return ready[this.#next % ready.length];
  }
}

let network: Network;
let addresses: readonly string[];
let onSent: (method: string, message: unknown) => void;

/** Says where the services are that clients call. @param watch gets each message to them when it is sent */
export function useServices(used: Network, names: readonly string[], watch: typeof onSent): void {
  network = used;
  addresses = names;
  onSent = watch;
}

type UnaryDone = (error: ServiceError | null, response?: unknown) => void;

/** Attempts and waits of gRPC's own retries, as `client/channel.ts` asks for them. */
const maxAttempts = 5;
const retryBackoffMs = (attempts: number) => Math.random() * Math.min(1_000, 100 * 3 ** (attempts - 1));

/** Stands for `openInventoryChannel` of `client/channel.ts`. @param retried calls that are sent again */
export function openInventoryChannel(_options?: unknown, retried: readonly string[] = []): object {
  const channel = new Channel(network, currentHost()!, addresses);
  const stub: Record<string, unknown> = { close: () => channel.close() };
  for (const [name, { requestStream, responseStream }] of Object.entries(methods)) {
    if (requestStream) stub[name] = () => channel.call(name);
    else if (responseStream) {
      stub[name] = (request: unknown) => {
        const call = channel.call(name);
        call.write(request);
        call.end();
        return call;
      };
    } else {
      stub[name] = (request: unknown, _: Metadata, { deadline }: { deadline: number }, done: UnaryDone) => {
        let call: ClientCall;
        let isCancelled = false;
        const attempt = (attempts: number) => {
          call = channel.call(name, deadline - Date.now());
          let response: unknown;
          call.on("data", (message) => {
            response = message;
          });
          call.on("error", (error) => {
            const isPassing = (error as ServiceError).code === status.UNAVAILABLE && retried.includes(name);
            if (isCancelled || !isPassing || attempts === maxAttempts) return done(error as ServiceError);
            setTimeout(() => attempt(attempts + 1), retryBackoffMs(attempts));
          });
          call.on("status", ({ code }) => code === status.OK && done(null, response));
          call.write(request);
          call.end();
        };
        attempt(1);
        const cancel = () => {
          isCancelled = true;
          call.cancel();
        };
        return { cancel };
      };
    }
  }
  return stub;
}
