/** The operators' port of a process. */
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import type { Registry } from "prom-client";
import type { Logger } from "./log.ts";
import { gauge } from "./metrics.ts";
import { OperatorError, reasonFields } from "./operator-error.ts";
import type { ListenAddress } from "./settings.ts";

export interface AdminOptions {
  readonly listen: ListenAddress;
  readonly metrics: Registry;
  /** Resolves when the process can serve, with what operators should know; rejects with the reason when it cannot. */
  readonly checkReady: () => Promise<readonly string[]>;
  /**
   * Gets a line when a process that was ready cannot serve for a reason that an operator can mend, and when it can
   * again.
   */
  readonly log: Logger;
}

/**
 * Opens the operators' port: `/livez` (the process runs), `/readyz` (200 when it can serve, else 503, with a text) and
 * `/metrics` (Prometheus text, with `process_ready`).
 */
export async function startAdmin({ listen, metrics, checkReady, log }: AdminOptions): Promise<AdminServer> {
  let isReady = false;
  let wasReady = false;
  let isAway = false;
  const noteReady = () => {
    if (isAway) log.info("ready again");
    [isReady, wasReady, isAway] = [true, true, false];
  };
  const noteAway = (error: Error) => {
    isReady = false;
    if (!wasReady || isAway || !(error instanceof OperatorError)) return;
    isAway = true;
    log.warn(reasonFields(error, log), "not ready");
  };
  let isAsking = false;
  const help = "1 when /readyz was 200 at the latest look; each scrape looks again";
  // It shows what is known and does not wait: a database that is silent must not hold up a scrape.
  gauge({ name: "process_ready", help, registry: metrics }, () => {
    if (!isAsking) {
      isAsking = true;
      void checkReady()
        .then(noteReady, noteAway)
        .then(() => {
          isAsking = false;
        });
    }
    return Number(isReady);
  });
  const server = createServer((request, response) => {
    const answer = (status: number, text: string, type = "text/plain; charset=utf-8") => {
      response.writeHead(status, { "Content-Type": type, "Content-Length": Buffer.byteLength(text) });
      response.end(text);
    };
    switch (request.url) {
      case "/livez":
        answer(200, "ok\n");
        break;
      case "/readyz":
        checkReady().then(
          (notes) => {
            noteReady();
            answer(200, ["ok", ...notes, ""].join("\n"));
          },
          (error: Error) => {
            noteAway(error);
            answer(503, `${error.message}\n`);
          },
        );
        break;
      case "/metrics":
        metrics.metrics().then(
          (text) => answer(200, text, metrics.contentType),
          (error: Error) => answer(500, `${error.message}\n`),
        );
        break;
      default:
        answer(404, "not found\n");
    }
  });
  const address = await listenOn(server, listen);
  return { address, close: () => closeNow(server) };
}

export interface AdminServer {
  /** `host:port` as bound. */
  readonly address: string;
  close(): Promise<void>;
}

/** Names the setting at fault when listening fails. @throws OperatorError */
export async function blamingSetting<T>(setting: string, listening: Promise<T>): Promise<T> {
  try {
    return await listening;
  } catch (error) {
    throw new OperatorError(`${setting}: ${(error as Error).message}`, { cause: error });
  }
}

/** Closes a server with all its connections, those in use included. */
export function closeNow(server: Server): Promise<void> {
  return new Promise((resolve) => {
    server.close(() => resolve());
    server.closeAllConnections();
  });
}

/** Listens. @returns `host:port` as bound, which differs from the setting when its port was 0 */
export function listenOn(server: Server, { host, port }: ListenAddress): Promise<string> {
  return new Promise((resolve, reject) => {
    server.once("error", reject);
    server.listen(port, host, () => {
      server.off("error", reject);
      const bound = server.address() as AddressInfo;
      resolve(`${bound.family === "IPv6" ? `[${bound.address}]` : bound.address}:${bound.port}`);
    });
  });
}
