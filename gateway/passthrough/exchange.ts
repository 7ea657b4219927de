import type { ClientRequest, IncomingMessage, ServerResponse } from "node:http";
import { Writable } from "node:stream";
import { ApiError, type ErrorCode } from "../http/errors.ts";
import { copyHead } from "./forwarded-headers.ts";

export interface ExchangeOptions {
  /** Of the upstream, for the log. */
  readonly name: string;
  readonly res: ServerResponse;
  readonly next: (error: ApiError) => void;
  /** The longest wait for a connection and a response head together, and for each further piece of the body. */
  readonly timeoutMs: number;
  /** The longest wait for a client that takes nothing of the body. */
  readonly clientTimeoutMs: number;
  /** Sends the request up; what it gets as `sink` stands for the client's wish to have an answer. */
  readonly send: (sink: Writable) => void;
}

/** What an upstream's refusals mean to the caller. Everything else but 2xx and 304 is trouble between us and it. */
const refusals: Readonly<Record<number, ErrorCode>> = {
  400: "invalid_request",
  404: "not_found",
  406: "invalid_request",
  412: "precondition_failed",
  414: "invalid_request",
  422: "invalid_request",
  // The gateway as a whole is above a limit of the upstream, not this caller above one of the gateway's.
  429: "service_unavailable",
  504: "upstream_timeout",
};

/**
 * One request on its way through the gateway. It ends once, whatever else happens: with the upstream's response, with
 * an error for the one error writer, or with a client that has gone.
 */
export class Exchange {
  readonly #options: ExchangeOptions;
  #stage: "queued" | "sent" | "answered" | "over" = "queued";
  /** Ended when the upstream is done with, destroyed to break off with it. */
  #sink = new Writable();
  #timer: NodeJS.Timeout;
  #onUsedConnection = false;
  #repeated = false;

  constructor(options: ExchangeOptions) {
    this.#options = options;
    this.#timer = setTimeout(() => this.#expire(), options.timeoutMs);
    options.res.once("close", () => this.#abandon());
  }

  send(): void {
    this.#options.send(this.#sink);
  }

  /** The request has got a connection, after it has perhaps waited for one. */
  connected(request: ClientRequest): void {
    if (this.#stage === "over") return;
    this.#stage = "sent";
    this.#onUsedConnection = request.reusedSocket;
    // Without a listener Node closes the connection and tells nobody.
    request.once("upgrade", (_response, socket) => {
      socket.destroy();
      this.failed(new Error(`${this.#options.name} switched protocols`));
    });
  }

  /** The upstream has sent its head. */
  answered(response: IncomingMessage): void {
    if (this.#stage === "over") return;
    this.#stage = "answered";
    const status = response.statusCode!;
    if ((status >= 200 && status < 300) || status === 304) {
      this.#pass(response);
    } else {
      this.#drain(response);
      const cause = new Error(`${this.#options.name} answered with status ${status}`);
      this.#end(new ApiError(refusals[status] ?? "upstream_unavailable", { cause }));
    }
  }

  /** The upstream could not be reached, or it broke off. */
  failed(error: NodeJS.ErrnoException): void {
    if (this.#stage === "over") return;
    // The upstream may close an idle connection just as the request goes out on it. A GET can be sent again.
    if (this.#stage === "sent" && this.#onUsedConnection && !this.#repeated && error.code === "ECONNRESET") {
      this.#repeated = true;
      this.#stage = "queued";
      this.#sink.destroy();
      this.#sink = new Writable();
      this.send();
      return;
    }
    this.#breakOff(error.code === "ETIMEDOUT" ? "upstream_timeout" : "upstream_unavailable", error);
  }

  #pass(response: IncomingMessage): void {
    const { res, timeoutMs, clientTimeoutMs } = this.#options;
    // Until the first piece is there, an error can still be told to the client.
    const begin = () => {
      if (!res.headersSent) copyHead(response, res);
    };
    this.#wait(timeoutMs, () => this.#expire());
    response.on("data", (chunk: Buffer) => {
      if (this.#stage === "over") return;
      begin();
      if (res.write(chunk)) {
        this.#timer.refresh();
        return;
      }
      response.pause();
      this.#wait(clientTimeoutMs, () => res.destroy());
    });
    res.on("drain", () => {
      if (this.#stage === "over") return;
      response.resume();
      this.#wait(timeoutMs, () => this.#expire());
    });
    response.on("end", () => {
      if (this.#stage === "over") return;
      begin();
      this.#close();
      this.#sink.end();
      res.end();
    });
  }

  /** Reads a refusal to its end, so that the connection can be used again; one that does not end costs it. */
  #drain(response: IncomingMessage): void {
    const sink = this.#sink;
    const timer = setTimeout(() => sink.destroy(), this.#options.timeoutMs);
    response.on("end", () => sink.end());
    response.on("close", () => clearTimeout(timer));
    response.resume();
  }

  #wait(ms: number, then: () => void): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(then, ms);
  }

  #expire(): void {
    const { name, timeoutMs } = this.#options;
    if (this.#stage === "queued") {
      this.#breakOff("service_unavailable", new Error(`no connection to ${name} became free within ${timeoutMs} ms`));
    } else {
      const awaited = this.#stage === "sent" ? "a response" : "more of the body";
      this.#breakOff("upstream_timeout", new Error(`${name} did not send ${awaited} within ${timeoutMs} ms`));
    }
  }

  /** The client has gone: there is nobody to answer, and no use in an answer. */
  #abandon(): void {
    if (this.#stage === "over") return;
    this.#close();
    this.#sink.destroy();
  }

  #breakOff(code: ErrorCode, cause: Error): void {
    this.#sink.destroy();
    this.#end(new ApiError(code, { cause }));
  }

  #end(error: ApiError): void {
    const { res, next } = this.#options;
    this.#close();
    // Without its last piece the body must not look whole. The error writer still hears of it, for the log.
    if (res.headersSent) res.destroy();
    next(error);
  }

  #close(): void {
    this.#stage = "over";
    clearTimeout(this.#timer);
  }
}
