/** Sends requests: at the pace that the limits allow, and again where an answer is missing. */

import { tellsOthers } from "./headers.ts";
import { InventoryApiError, readError } from "./inventory-api-error.ts";
import { maxWaitMs, type Pace } from "./pace.ts";

export interface SenderOptions {
  /** Base address of the API, which ends in /v1. */
  readonly baseUrl: string;
  readonly apiKey: string;
  readonly fetch: typeof globalThis.fetch;
  /** The turns of all requests of the key. */
  readonly pace: Pace;
}

/** A request that may be sent more than once: an update among them has an Idempotency-Key. */
export interface ApiRequest {
  readonly method?: "GET" | "PATCH" | "POST";
  /** The path below the base address, as `/inventory`. */
  readonly path: string;
  readonly headers?: Readonly<Record<string, string>> | undefined;
  readonly body?: string;
  /** Whether the account's windows do not count it, so that it waits for none and a banned key may send it. */
  readonly isUncharged?: boolean;
  /** Whether it goes on until it succeeds or is refused for good. */
  readonly isPatient?: boolean;
  /** Time in ms for which the gateway may hold the answer back. */
  readonly maxHoldMs?: number;
  readonly signal?: AbortSignal | undefined;
}

export interface Answer {
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
}

/**
 * How long an answer may be silent, before it begins and within it: longer than a gateway with the default settings
 * repeats an update.
 */
const silenceTimeoutMs = 45_000;
/** How long a request that fails is repeated, beside the wait for the end of a window. */
const patienceMs = 60_000;
const firstPauseMs = 200;
const maxPauseMs = 10_000;

/** Makes the function that sends all requests of one key. */
export function createSender({
  baseUrl,
  apiKey,
  fetch,
  pace,
}: SenderOptions): (request: ApiRequest) => Promise<Answer> {
  if (!baseUrl) throw new TypeError("baseUrl is missing");
  if (!apiKey) throw new TypeError("apiKey is missing"); // such as a variable of the environment that is not set
  const root = baseUrl.replace(/\/+$/, "");
  const authorization = `Bearer ${apiKey}`;
  new Request(root, { headers: { authorization } }); // throws for an invalid address or key
  if (!root.endsWith("/v1")) throw new TypeError("baseUrl must end in /v1");

  /**
   * Resolves with an answer of 2xx, or of 304 to an `If-None-Match`.
   *
   * @throws InventoryApiError for every other outcome; the reason of `signal` once that is aborted
   */
  async function send(request: ApiRequest): Promise<Answer> {
    const { isUncharged = false, isPatient = false, signal } = request;
    const headers = new Headers({ ...request.headers, Authorization: authorization }); // throws for invalid values
    let failingSinceMs: number | undefined;
    let limitMs = 0; // the longest wait for the end of a window, which uses up no patience
    for (let pauseMs = firstPauseMs; ; pauseMs = Math.min(2 * pauseMs, maxPauseMs)) {
      const askedMs = performance.now();
      const number = isUncharged ? pace.uncharged() : await pace.turn(isPatient, signal);
      if (failingSinceMs !== undefined) failingSinceMs += performance.now() - askedMs; // it waited for its turn
      const outcome = await attempt(request, headers, number);
      if (!(outcome instanceof InventoryApiError)) return outcome;
      if (!isPassing(outcome)) throw outcome;

      const nowMs = performance.now();
      const { status, retryAfterMs = 0 } = outcome;
      failingSinceMs ??= nowMs;
      if (status === 429) limitMs = Math.max(limitMs, retryAfterMs);
      // A patient request cuts a longer `retryAfterMs` short: a limit may be raised, or an outage end early.
      const waitMs = Math.min(retryAfterMs, maxWaitMs) + pauseMs * (0.5 + Math.random() / 2);
      const isTooLong = retryAfterMs > maxWaitMs || nowMs + waitMs > failingSinceMs + limitMs + patienceMs;
      if (isTooLong && !isPatient) throw outcome;
      await pause(waitMs, signal);
    }
  }

  async function attempt(request: ApiRequest, headers: Headers, number: number): Promise<Answer | InventoryApiError> {
    const { method = "GET", path, body = null, maxHoldMs = 0, signal } = request;
    const connection = new AbortController();
    const cut = () => connection.abort();
    let timer = setTimeout(cut, silenceTimeoutMs + maxHoldMs);
    const onPart = () => {
      clearTimeout(timer);
      timer = setTimeout(cut, silenceTimeoutMs);
    };
    signal?.addEventListener("abort", cut);
    try {
      signal?.throwIfAborted();
      const response = await fetch(root + path, { method, headers, body, signal: connection.signal });
      onPart();
      const text = await readText(response, onPart);
      const { status } = response;
      const error =
        response.ok || (status === 304 && headers.has("If-None-Match")) ? undefined : readError(response, text);
      if (error?.code === "api_key_banned") pace.beginBan(error.retryAfterMs ?? 0);
      if (status < 500 && !(error && tellsOthers(response.headers))) pace.learn(response.headers, number);
      else pace.lose(number);
      return error ?? { status, headers: response.headers, text };
    } catch (cause) {
      pace.lose(number);
      signal?.throwIfAborted();
      return new InventoryApiError("no_answer", `${method} ${path} got no answer (${reasonOf(cause)})`, { cause });
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener("abort", cut);
    }
  }

  return send;
}

/**
 * Why `fetch` failed: Node and Bun give a code, as `ENOTFOUND` or `ECONNREFUSED`; browsers tell no more than that it
 * did.
 */
function reasonOf(fault: unknown): string {
  const { name, message, code, cause } = fault as Error & { code?: unknown; cause?: { code?: unknown } };
  if (name === "AbortError") return "the time was up";
  return String(cause?.code ?? (typeof code === "string" ? code : message));
}

/** Reads a body, and tells of each part of it: a long list may take its time. */
async function readText({ body }: Response, onPart: () => void): Promise<string> {
  const reader = body?.getReader();
  const decoder = new TextDecoder();
  let text = "";
  for (;;) {
    const part = await reader?.read();
    onPart();
    if (!part?.value) return text + decoder.decode();
    text += decoder.decode(part.value, { stream: true });
  }
}

/** Whether the same request can succeed later. */
function isPassing({ code, status }: InventoryApiError): boolean {
  return status === 0 || status === 408 || status >= 500 || (status === 429 && code !== "api_key_banned");
}

/** @throws the reason of `signal` once that is aborted */
export function pause(ms: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    const abort = () => {
      clearTimeout(timer);
      reject(signal!.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", abort);
      resolve();
    }, ms);
    signal?.addEventListener("abort", abort, { once: true });
  });
}
