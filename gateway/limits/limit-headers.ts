/** Writes decisions as headers. */
import type { HeaderList } from "../http/request-context.ts";
import { bindingWindow, type Decision, type Window } from "./windows.ts";

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
    "X-RateLimit-Limit",
    String(limit),
    "X-RateLimit-Remaining",
    String(remaining),
    "X-RateLimit-Reset",
    String(Math.ceil(resetAtMs / 1_000)),
    "RateLimit-Policy",
    policyOf(windows),
    "RateLimit",
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
 * The limits of a banned caller: nothing is left until the ban ends, nor of an exhausted window until that ends too.
 */
export function untilBanEnds({ windows, nowMs }: Decision, untilMs: number): Decision {
  const states = windows.map((state) => ({
    ...state,
    remaining: 0,
    resetAtMs: state.remaining === 0 ? Math.max(state.resetAtMs, untilMs) : untilMs,
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
