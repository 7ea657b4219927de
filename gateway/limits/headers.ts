import { bindingWindow, type Decision, type Window } from "./windows.ts";

export type LimitHeaders = Readonly<Record<string, string>>;

/**
 * The headers that every response carries: `X-RateLimit-*` of the contract for the window that binds, and those of
 * draft-ietf-httpapi-ratelimit-headers for all windows.
 */
export function limitHeaders({ windows, nowMs }: Decision): LimitHeaders {
  const binding = bindingWindow(windows);
  return {
    "X-RateLimit-Limit": String(binding.limit),
    "X-RateLimit-Remaining": String(binding.remaining),
    "X-RateLimit-Reset": String(Math.ceil(binding.resetAtMs / 1_000)),
    "RateLimit-Policy": windows.map(({ name, limit, seconds }) => `"${name}";q=${limit};w=${seconds}`).join(", "),
    RateLimit: windows
      .map(({ name, remaining, resetAtMs }) => `"${name}";r=${remaining};t=${secondsUntil(resetAtMs, nowMs)}`)
      .join(", "),
  };
}

/** A banned caller's standing: nothing is left until the ban ends. */
export function banned(windows: readonly Window[], untilMs: number, nowMs: number): Decision {
  return { admitted: false, windows: windows.map((w) => ({ ...w, remaining: 0, resetAtMs: untilMs })), nowMs };
}

/** What `Retry-After` says: whole seconds until the caller has something left again. */
export function retryAfter({ windows, nowMs }: Decision): string {
  return String(secondsUntil(bindingWindow(windows).resetAtMs, nowMs));
}

/** Whole seconds until then, rounded up, at least 1. */
export function secondsUntil(atMs: number, nowMs: number): number {
  return Math.max(1, Math.ceil((atMs - nowMs) / 1_000));
}
