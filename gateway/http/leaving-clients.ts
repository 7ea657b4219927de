/** Finds out whether a client that has ended its side of the connection has left, or waits for its answer. */
import type { ServerResponse } from "node:http";
import { hurry } from "./request-context.ts";

const askMs = 250;

/**
 * Keeps asking a client that sends no more whether it is still there, until its answer begins. When it has left, its
 * kernel refuses what it is sent, and the second write fails. One that has only ended its side takes interim responses
 * as it takes others (RFC 9110 section 15.2).
 */
export function askWhetherThere(response: ServerResponse): void {
  hurry(response);
  if (response.req.httpVersion !== "1.1") return;
  const ask = () => {
    if (!response.headersSent) response.writeProcessing();
  };
  ask();
  const timer = setInterval(ask, askMs).unref();
  response.once("close", () => clearInterval(timer));
}

/** Waits until it is known whether a client that has ended its side has left. If so, its response is destroyed. */
export async function untilLeaveIsKnown(response: ServerResponse): Promise<void> {
  if (response.destroyed) return;
  await new Promise((resolve) => {
    const timer = setTimeout(resolve, 2 * askMs + 100); // the second question fails
    response.once("close", resolve).once("close", () => clearTimeout(timer));
  });
}
