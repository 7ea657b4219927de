/** What an app around the gateway, and `main.ts`, give to it and get of it. */
import type { Router } from "express";
import type { Registry } from "prom-client";
import type { Logger } from "../runtime/log.ts";
import type { HeaderList } from "./http/request-context.ts";
import type { Observer } from "./observability/requests.ts";

export interface GatewayOptions {
  /** A pino logger; by default JSON lines on standard output, from `LOG_LEVEL` on. */
  readonly log?: Logger;
  /** Unix milliseconds. */
  readonly now?: () => number;
  /** Whether requests and queries get spans: set it where OpenTelemetry's SDK is registered. */
  readonly isTraced?: boolean;
}

export interface Gateway {
  /** The public API; mount it below any path, before any body parser. */
  readonly router: Router;
  readonly metrics: Registry;
  /** The limit headers of an address, for what is answered outside the router. */
  readonly headersFor: (address: string) => HeaderList;
  /** Counts and logs what is answered outside the router. */
  readonly onMalformed: Observer["onMalformed"];
  /**
   * Resolves when the gateway can serve: keys can be looked up, and the list is loaded. Until then the log says what is
   * missing. Rejects when the gateway is closed before.
   */
  ready(): Promise<void>;
  /** Settings of the keys' database that put promises at risk, each with what mends it. */
  readonly risks: readonly string[];
  /** Answers the requests that wait for a change, and lets no more of them wait: for the begin of a stop. */
  endWaits(): void;
  close(): Promise<void>;
}
