/** One request on its way to an upstream and its answer on the way back. */
import type { ClientRequest, IncomingMessage, ServerResponse } from "node:http";
import { Writable } from "node:stream";
import { ApiError, type ErrorCode } from "../http/api-error.ts";
import { copyHead } from "./forwarded-headers.ts";

export interface ExchangeOptions {
  /** The name of the upstream, as `pets`. */
  readonly name: string;
  /** The path of the record at the upstream. */
  readonly path: string;
  /** The response to the client. */
  readonly response: ServerResponse;
  readonly next: (error: ApiError) => void;
  /** The longest wait for a response head, and for each further piece of the body. */
  readonly timeoutMs: number;
  /**
   * How long a client may take for all that waits for it, which is 64 to 128 KiB. Taking a part of it does not begin
   * the time again: a client that takes a little now and then would hold a connection for long.
   */
  readonly clientTimeoutMs: number;
  /** Sends the request to the upstream. `sink` stands for the client: destroying it breaks the request off. */
  readonly send: (sink: Writable) => void;
  /**
   * Called before anything is sent to the client: a revoked key must read no more. It returns undefined when no look-up
   * is due, else a promise of one, which rejects with the error that ends the exchange.
   */
  readonly reverifyKeyAndBan: () => Promise<void> | undefined;
  /** Called once the exchange needs no connection to the upstream any more. */
  readonly onClose: () => void;
}

/**
 * An exchange with an upstream. It ends once, whatever else happens: with the upstream's answer, with an error that is
 * given to `next`, or with a client that has left.
 */
export class Exchange {
  readonly #options: ExchangeOptions;
  #stage: "sent" | "answered" | "over" = "sent";
  /**
   * Stands for the client. It is ended at the end of the upstream's answer, and destroyed to break off; it closes when
   * the connection is no longer used.
   */
  #sink!: Writable;
  #timer: NodeJS.Timeout;
  #onUsedConnection = false;
  #repeated = false;
  /** The look-up of the key, while what has arrived waits for it. */
  #lookUp: Promise<void> | undefined;

  constructor(options: ExchangeOptions) {
    this.#options = options;
    this.#timer = setTimeout(() => this.#expire(), options.timeoutMs);
    options.response.once("close", () => this.#abandon());
  }

  send(): void {
    const sink = new Writable();
    this.#sink = sink;
    sink.once("close", () => {
      if (this.#sink === sink) this.#options.onClose(); // else the request was sent again
    });
    this.#options.send(sink);
  }

  /** The request has a connection. */
  connected(request: ClientRequest): void {
    if (this.#stage === "over") return;
    this.#onUsedConnection = request.reusedSocket;
    // Without a listener Node closes the connection and reports nothing.
    request.once("upgrade", (_answer, socket) => {
      socket.destroy();
      this.failed(new Error(`${this.#options.name} switched protocols`));
    });
  }

  /** The upstream has sent its head. */
  answered(answer: IncomingMessage): void {
    if (this.#stage === "over") return;
    this.#stage = "answered";
    const status = answer.statusCode!;
    if ((status >= 200 && status < 300) || status === 304) {
      this.#pass(answer);
      return;
    }
    this.#drain(answer);
    const cause = new Error(`${this.#options.name} answered with status ${status}`);
    this.#end(this.#refusal(status, cause));
  }

  /** The upstream could not be reached, or it broke off. */
  failed(error: NodeJS.ErrnoException): void {
    if (this.#stage === "over") return;
    // The upstream may close an idle connection just as the request goes out on it. A GET can be sent again.
    if (this.#stage === "sent" && this.#onUsedConnection && !this.#repeated && error.code === "ECONNRESET") {
      this.#repeated = true;
      this.#sink.destroy();
      this.send();
      return;
    }
    const code = error.code === "ETIMEDOUT" ? "upstream_timeout" : "upstream_unavailable";
    this.#breakOff(new ApiError(code, { cause: error }));
  }

  #pass(answer: IncomingMessage): void {
    const { response, timeoutMs, clientTimeoutMs } = this.#options;
    // Until the first piece is there, the client can still get an error.
    const begin = () => {
      if (!response.headersSent) copyHead(answer, response);
    };
    this.#wait(timeoutMs, () => this.#expire());
    const send = (piece: Buffer) => {
      begin();
      if (response.write(piece)) {
        this.#timer.refresh();
        return;
      }
      answer.pause();
      this.#wait(clientTimeoutMs, () => response.destroy());
    };
    answer.on("data", (piece: Buffer) => this.#whenGood(answer, () => send(piece)));
    response.on("drain", () => {
      if (this.#stage === "over") return;
      answer.resume();
      this.#wait(timeoutMs, () => this.#expire());
    });
    const end = () => {
      begin();
      this.#close();
      this.#sink.end();
      response.end();
    };
    answer.on("end", () => this.#whenGood(answer, end));
  }

  /**
   * Goes on while the key of the client is good. Reading pauses while the key is looked up. An `end` that Node reports
   * meanwhile waits for the same look-up, so it comes after the last piece.
   */
  #whenGood(answer: IncomingMessage, goOn: () => void): void {
    if (this.#stage === "over") return;
    this.#lookUp ??= this.#options.reverifyKeyAndBan();
    if (!this.#lookUp) return void goOn();
    answer.pause();
    clearTimeout(this.#timer);
    this.#lookUp.then(
      () => {
        this.#lookUp = undefined;
        if (this.#stage === "over") return;
        this.#wait(this.#options.timeoutMs, () => this.#expire());
        answer.resume();
        goOn();
      },
      (error: ApiError) => {
        if (this.#stage !== "over") this.#breakOff(error); // with the error of the look-up, which is that of the key
      },
    );
  }

  /** Reads a refusal to its end, so that its connection can be used again. One that does not end in time is closed. */
  #drain(answer: IncomingMessage): void {
    const sink = this.#sink;
    const timer = setTimeout(() => sink.destroy(), this.#options.timeoutMs);
    answer.on("end", () => sink.end());
    answer.on("close", () => clearTimeout(timer));
    answer.resume();
  }

  #refusal(status: number, cause: Error): ApiError {
    const { name, path } = this.#options;
    const message = `The service that owns the ${name} has no ${path}.`;
    return new ApiError(refusals[status] ?? "upstream_unavailable", status === 404 ? { message, cause } : { cause });
  }

  #wait(ms: number, then: () => void): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(then, ms);
  }

  #expire(): void {
    const { name, timeoutMs } = this.#options;
    const awaited = this.#stage === "sent" ? "a response" : "more of the body";
    const cause = new Error(`${name} did not send ${awaited} within ${timeoutMs} ms`);
    this.#breakOff(new ApiError("upstream_timeout", { cause }));
  }

  /** Stops without an answer, because the client has left. */
  #abandon(): void {
    if (this.#stage === "over") return;
    this.#close();
    this.#sink.destroy();
  }

  #breakOff(error: ApiError): void {
    this.#sink.destroy();
    this.#end(error);
  }

  /** An error tells of the upstream, too: a caller whose key is no longer good gets the error of the key instead. */
  #end(error: ApiError): void {
    const { response, next, reverifyKeyAndBan } = this.#options;
    this.#close();
    // Half a body must not look whole. The error writer still gets the error, for the log.
    if (response.headersSent) response.destroy();
    const lookUp = this.#lookUp ?? reverifyKeyAndBan();
    if (lookUp) lookUp.then(() => next(error), next);
    else next(error);
  }

  #close(): void {
    this.#stage = "over";
    clearTimeout(this.#timer);
  }
}

/**
 * What an upstream's refusals mean to the caller. Everything else but 2xx and 304 is a fault between the two services.
 */
const refusals: Readonly<Record<number, ErrorCode>> = {
  400: "invalid_request",
  404: "not_found",
  406: "invalid_request",
  412: "precondition_failed",
  414: "invalid_request",
  422: "invalid_request",
  // The gateway as a whole is above a limit of the upstream; this caller is not above one of the gateway's.
  429: "service_unavailable",
  504: "upstream_timeout",
};
