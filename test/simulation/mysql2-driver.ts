/** Stands for the package `mysql2`: connections over the simulated network. */
import { EventEmitter } from "node:events";
import type { Answer, DriverError, Packet } from "./database.ts";
import type { End, Network } from "./virtual-network.ts";
import { currentHost, type Host } from "./virtual-time.ts";

let network: Network;

/** Says which network the connections go over. */
export function useNetwork(used: Network): void {
  network = used;
}

type Done = (error: Error | null, results?: unknown, fields?: unknown) => void;

/** What Knex and `openDatabase` use of a socket: when it was silent for long, and its end. */
class Stream extends EventEmitter {
  bytesRead = 0;
  destroyed = false;
  #timeoutMs = 0;
  #timer: NodeJS.Timeout | undefined;

  setTimeout(ms: number): this {
    this.#timeoutMs = ms;
    this.active();
    return this;
  }

  /** Notes that something was sent or has arrived. */
  active(): void {
    clearTimeout(this.#timer);
    if (this.#timeoutMs > 0 && !this.destroyed) this.#timer = setTimeout(() => this.emit("timeout"), this.#timeoutMs);
  }

  destroy(): void {
    if (this.destroyed) return;
    this.destroyed = true;
    clearTimeout(this.#timer);
    this.emit("close");
  }
}

class Connection extends EventEmitter {
  readonly stream = new Stream();
  readonly #host: Host = currentHost()!;
  #end: End<Packet | Answer> | undefined;
  /** What is sent one after the other: each waits for the answer to the one before. */
  readonly #waiting: { readonly packet: Packet; readonly done: Done }[] = [];
  #isUnderWay = false;
  #isClosing = false;

  constructor({ host, connectTimeout }: { readonly host: string; readonly connectTimeout: number }) {
    super();
    this.#address = host;
    this.#connectTimeoutMs = connectTimeout;
    this.stream.on("close", () => this.#lose());
  }

  readonly #address: string;
  readonly #connectTimeoutMs: number;

  connect(done: (error?: Error) => void): void {
    const timer = setTimeout(() => fail("ETIMEDOUT"), this.#connectTimeoutMs);
    const fail = (code: string) => {
      clearTimeout(timer);
      if (this.stream.destroyed) return;
      this.stream.destroy();
      done(errorOf({ code, message: `connect ${code}`, fatal: true }));
    };
    network.connect<Packet | Answer>(
      this.#host,
      this.#address,
      (end) => {
        clearTimeout(timer);
        if (this.stream.destroyed) return end.close();
        this.#end = end;
        end.onMessage = (answer) => this.#take(answer as Answer);
        end.onClose = () => this.stream.destroy();
        done();
      },
      () => fail("ECONNREFUSED"),
    );
  }

  query(options: { sql: string } | string, bindings: readonly unknown[] | Done | undefined, done?: Done): void {
    const sql = typeof options === "string" ? options : options.sql;
    const end = typeof bindings === "function" ? bindings : done!;
    this.#send({ sql, bindings: typeof bindings === "function" ? [] : (bindings ?? []) }, end);
  }

  ping(done: Done): void {
    this.#send({ sql: "", bindings: [] }, done);
  }

  promise() {
    return {
      query: (sql: string): Promise<[unknown, unknown]> =>
        new Promise((resolve, reject) => {
          this.query(sql, [], (error, results) => (error ? reject(error) : resolve([results, []])));
        }),
    };
  }

  end(done: (error?: Error) => void): void {
    this.#isClosing = true;
    this.stream.destroy();
    done();
  }

  destroy(): void {
    this.#isClosing = true;
    this.stream.destroy();
  }

  #send(packet: Packet, done: Done): void {
    if (this.stream.destroyed || !this.#end) {
      const message = "Can't add new command when connection is in closed state";
      process.nextTick(() => done(errorOf({ code: "PROTOCOL_CONNECTION_LOST", message, fatal: true })));
      return;
    }
    this.#waiting.push({ packet, done });
    this.#sendNext();
  }

  #sendNext(): void {
    const [next] = this.#waiting;
    if (!next || this.#isUnderWay || this.stream.destroyed) return;
    this.#isUnderWay = true;
    this.stream.active();
    this.#end!.send(next.packet);
  }

  #take(answer: Answer): void {
    this.stream.bytesRead += 1;
    this.stream.active();
    const answered = this.#waiting.shift();
    if (!answered) return;
    const { done } = answered;
    if ("error" in answer) done(errorOf(answer.error));
    else done(null, answer.results.length === 1 ? answer.results[0] : answer.results, []);
    this.#isUnderWay = false;
    this.#sendNext();
  }

  #lose(): void {
    this.#end?.close();
    const lost = {
      code: "PROTOCOL_CONNECTION_LOST",
      message: "Connection lost: The server closed the connection.",
      fatal: true,
    };
    for (const { done } of this.#waiting.splice(0)) done(errorOf(lost));
    if (!this.#isClosing && this.listenerCount("error") > 0) this.emit("error", errorOf(lost));
  }
}

function errorOf(fault: DriverError): Error {
  return Object.assign(new Error(fault.message), fault, { sqlMessage: fault.message });
}

/** As `mysql2.createConnection`. */
export function createConnection(settings: { readonly host: string; readonly connectTimeout: number }): Connection {
  return new Connection(settings);
}
