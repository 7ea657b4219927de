/** Writes decisions as headers. */
import type { HeaderList } from "../http/request-context.ts";
import { bindingWindow, type Decision, type Window } from "./windows.ts";

/**
 * The names are constants of the module, because V8 keeps one text for each name and makes it of two bytes a character
 * when it meets the name first in a document with other letters, as the OpenAPI document is: then every response is
 * made of two bytes a character, and converted when it is sent (docs/performance.md).
 */
const names = {
  limit: "X-RateLimit-Limit",
  remaining: "X-RateLimit-Remaining",
  reset: "X-RateLimit-Reset",
  policy: "RateLimit-Policy",
  current: "RateLimit",
} as const;

/**
 * The limit headers of a response: `X-RateLimit-*` of the contract for the binding window, and those of
 * draft-ietf-httpapi-ratelimit-headers for all windows.
 *
 * @param windows the array that the decision was made by
 */
export function limitHeaders(windows: readonly Window[], { windows: states, nowMs }: Decision): HeaderList {
  const { limit, remaining, resetAtMs } = bindingWindow(states);
  let current = "";
  for (const state of states) {
    const comma = current === "" ? "" : ", ";
    current += `${comma}"${state.name}";r=${state.remaining};t=${secondsUntil(state.resetAtMs, nowMs)}`;
  }
  return [
    names.limit,
    String(limit),
    names.remaining,
    String(remaining),
    names.reset,
    String(Math.ceil(resetAtMs / 1_000)),
    names.policy,
    policyOf(windows),
    names.current,
    current,
  ];
}

/** `RateLimit-Policy` of each set of windows: the same text for all callers of a plan. */
const policies = new WeakMap<readonly Window[], string>();

function policyOf(windows: readonly Window[]): string {
  let policy = policies.get(windows);
  if (policy === undefined) {
    policy = windows.map(({ name, limit, seconds }) => `"${name}";q=${limit};w=${seconds}`).join(", ");
    policies.set(windows, policy);
  }
  return policy;
}

/**
 * The limits of a banned caller: no window has anything left before the ban ends, and a spent one not before its own
 * end.
 *
 * @param current its windows, which may go by the clock of Redis
 * @param untilMs the end of the ban, Unix milliseconds by the clock of gateways
 * @param nowMs the time by that clock, which the result goes by
 */
export function untilBanEnds(current: Decision, untilMs: number, nowMs: number): Decision {
  const aheadMs = nowMs - current.nowMs;
  const states = current.windows.map((state) => ({
    ...state,
    remaining: 0,
    resetAtMs: state.remaining === 0 ? Math.max(state.resetAtMs + aheadMs, untilMs) : untilMs,
  }));
  return { admitted: false, windows: states, nowMs };
}

/** `Retry-After`: whole seconds until the caller has something left again. */
export function retryAfter({ windows, nowMs }: Decision): string {
  return String(secondsUntil(bindingWindow(windows).resetAtMs, nowMs));
}

/** Whole seconds from one time to another, rounded up, at least 1. */
export function secondsUntil(atMs: number, nowMs: number): number {
  return Math.max(1, Math.ceil((atMs - nowMs) / 1_000));
}
