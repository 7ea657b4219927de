/** What the gateway knows of a request: made at its arrival, filled in on its way, read by the log at its end. */
import type { ServerResponse } from "node:http";
import type { Principal } from "../auth/principal.ts";

/** Headers as name, value, name, value: the form that costs Node least. */
export type HeaderList = readonly string[];

export interface RequestContext {
  readonly requestId: string;
  clientAddress: string;
  /** Unix milliseconds. */
  readonly arrivedAtMs: number;
  /** The arrival by a clock that only goes forward, to measure durations by. */
  readonly startedMs: number;
  /** The name of an operation in the route table, `docs`, or `unknown` for a path that does not exist. */
  route: string;
  /** The limit headers: those of the client's address until admission has decided by the account. */
  limits: HeaderList;
  /** The headers that announce the end of the operation; empty for one that stays. */
  deprecation: HeaderList;
  /** The caller; undefined until admission has found it. */
  principal: Principal | undefined;
  /** What the operation began while the limits were being decided. */
  early: Promise<unknown> | undefined;
}

const key = Symbol("petstore request");

type WithContext = ServerResponse & { [key]?: RequestContext };

/** Gives a response its context. Not in `response.locals`: those belong to the app around the gateway. */
export function setContext(response: ServerResponse, context: RequestContext): void {
  (response as WithContext)[key] = context;
}

/** The context of a response that has passed the gateway's entrance. */
export function contextOf(response: ServerResponse): RequestContext {
  return (response as WithContext)[key]!;
}
