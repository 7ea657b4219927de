/** Sends bytes to a gateway, and judges everything that comes back. */
import { connect } from "node:net";
import { type RawResponse, readResponse } from "../support/raw-http.ts";

/** How long a connection may take whose client has said everything: the time of an update, and of a wait. */
const patienceMs = 20_000;

/** Statuses above 499 that say what the client did wrong (RFC 9110 section 15.6.6, RFC 9112 section 6.1). */
const faultsOfClients = new Set([501, 505]);

const isInterim = /^(HTTP\/1\.1 1\d\d [^\r]*\r\n\r\n)+$/;

export interface Exchange {
  readonly statuses: readonly number[];
  /** What is wrong with the answers; undefined when nothing is. */
  readonly fault: string | undefined;
}

/**
 * Sends bytes on a connection of its own, ends that side, and reads until the other side ends.
 *
 * @param from the client's address
 */
export async function exchange(address: string, bytes: Buffer, from: string): Promise<Exchange> {
  const { received, end } = await send(Number(new URL(`http://${address}`).port), bytes, from);
  if (end) return { statuses: [], fault: end };
  const statuses: number[] = [];
  const mayHaveHead = bytes.includes("HEAD");
  for (let rest = received; rest.length > 0; ) {
    try {
      const response = readNext(rest, mayHaveHead);
      // An interim response is no answer: what comes behind an open request may be dropped after one.
      if (!response && isInterim.test(rest.toString("latin1"))) break;
      if (!response) return { statuses, fault: `an answer that is cut: ${rest.toString("latin1", 0, 300)}` };
      statuses.push(response.status);
      const fault = faultOf(response, mayHaveHead);
      if (fault) return { statuses, fault };
      rest = response.rest;
    } catch (error) {
      return { statuses, fault: (error as Error).message };
    }
  }
  const isBlank = /^[\r\n]*$/.test(bytes.toString("latin1"));
  return { statuses, fault: statuses.length > 0 || isBlank ? undefined : "no answer" };
}

function send(port: number, bytes: Buffer, localAddress: string): Promise<{ received: Buffer; end?: string }> {
  return new Promise((resolve) => {
    const parts: Buffer[] = [];
    const socket = connect({ port, host: "127.0.0.1", localAddress });
    const settle = (end?: string) => {
      clearTimeout(timer);
      socket.resetAndDestroy();
      resolve({ received: Buffer.concat(parts), ...(end && { end }) });
    };
    const timer = setTimeout(() => settle("the connection does not end"), patienceMs);
    socket.on("data", (part) => parts.push(part));
    socket.once("end", () => settle());
    socket.once("error", (error) => settle(parts.length > 0 ? undefined : error.message));
    socket.end(bytes);
  });
}

/** Reads an answer. One to HEAD has no body whatever its head says, so the next one begins where a body would. */
function readNext(bytes: Buffer, mayBeHead: boolean): RawResponse | undefined {
  if (mayBeHead) {
    const response = readResponse(bytes, true, true);
    if (response && /^(HTTP\/1\.|$)/.test(response.rest.toString("latin1", 0, 7))) return response;
  }
  return readResponse(bytes, true, false);
}

function faultOf({ status, headers, body }: RawResponse, mayHaveHead: boolean): string | undefined {
  if (status >= 500 && !faultsOfClients.has(status)) return `${status} ${body}`;
  const missing = ["x-request-id", "ratelimit", "ratelimit-policy"].filter((name) => headers[name]?.length !== 1);
  if (missing.length > 0) return `${status} without one ${missing}`;
  if (status < 400 || (mayHaveHead && body.length === 0)) return undefined;
  const error = JSON.parse(body.toString());
  const isError = Object.keys(error).sort().join() === "code,message,status" && error.status === status;
  return isError ? undefined : `${status} with ${body}`;
}
