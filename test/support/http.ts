import { connect } from "node:net";
import { Agent } from "undici";
import { type RawResponse, readResponse } from "./raw-http.ts";

export type { RawResponse } from "./raw-http.ts";

/**
 * Sends exact bytes and reads the response to them, for requests that no HTTP client would send.
 *
 * @param address `host:port` or `[v6]:port`
 * @param options `untilEnd`: wait until the server has closed the connection
 * @throws Error with what was received, when the connection ends or the time is up before a complete response
 */
export function rawRequest(
  address: string,
  bytes: string | Buffer,
  { timeoutMs = 10_000, untilEnd = false }: { timeoutMs?: number; untilEnd?: boolean } = {},
): Promise<RawResponse> {
  const { hostname, port } = new URL(`http://${address}`);
  const toHead = /^\s*HEAD /.test(bytes.toString("latin1").slice(0, 10));
  return new Promise((resolve, reject) => {
    let received: Buffer = Buffer.alloc(0);
    // URL leaves out port 80.
    const socket = connect({ host: hostname.replace(/^\[|\]$/g, ""), port: Number(port || 80) });
    const end = (settle: () => void) => {
      clearTimeout(timer);
      socket.destroy();
      settle();
    };
    const fail = (reason: string) =>
      end(() => reject(new Error(`${reason}; received: ${JSON.stringify(received.toString("latin1"))}`)));
    const tryResponse = (ended: boolean) => {
      try {
        const response = readResponse(received, ended, toHead);
        if (response !== undefined) end(() => resolve(response));
        else if (ended) fail("the connection ended before a complete response");
      } catch (error) {
        fail((error as Error).message);
      }
    };
    const timer = setTimeout(() => fail(`no complete response in ${timeoutMs} ms`), timeoutMs);
    socket.on("data", (chunk) => {
      received = Buffer.concat([received, chunk]);
      if (!untilEnd) tryResponse(false);
    });
    socket.once("end", () => tryResponse(true));
    socket.once("error", (error) => fail(error.message));
    socket.write(bytes);
  });
}

export interface RequestOptions {
  readonly method?: string;
  /** Sent as it is. */
  readonly path: string;
  readonly headers?: Record<string, string | string[]>;
  readonly body?: string | Buffer;
}

export interface Response {
  readonly status: number;
  /** Lower-cased names; an array where a name occurred more than once. */
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly text: string;
  /** The body, as `parseJson` reads it. */
  json<T = unknown>(): T;
}

// One connection per request: a kept one would fail after a server's restart, which is not what the tests check.
const agent = new Agent({ pipelining: 0, headersTimeout: 30_000, bodyTimeout: 30_000, connect: { timeout: 5_000 } });

/** Sends an ordinary request. Resolves for any status and rejects only without a response. */
export async function request(
  address: string,
  { method = "GET", path, headers, body }: RequestOptions,
): Promise<Response> {
  const options = { origin: `http://${address}`, path, method: method as "GET", headers, body };
  const response = await agent.request(options);
  const text = await response.body.text();
  return { status: response.statusCode, headers: response.headers, text, json: <T>() => parseJson(text) as T };
}

/** Parses JSON with exact 64-bit integers: those beyond 2^53 become `bigint`, all other numbers stay `number`. */
export function parseJson(text: string): unknown {
  // TypeScript's types do not have the third argument yet.
  const reviver = (_key: string, value: unknown, { source }: { source?: string }) =>
    typeof value === "number" && !Number.isSafeInteger(value) && source !== undefined && /^-?\d+$/.test(source)
      ? BigInt(source)
      : value;
  return JSON.parse(text, reviver as (key: string, value: unknown) => unknown);
}
