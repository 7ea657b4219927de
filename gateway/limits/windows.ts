/** The windows of callers, what a decision about a request says, and how the headers of the answer say it. */

import type { AccountLimits, PlanTable } from "../accounts/keys/plans.ts";
import type { Principal } from "../accounts/keys/principal.ts";
import type { HeaderList, ShownWindow } from "../http/request-context.ts";
import { lengthsMs } from "./limit-rule.ts";

/** A fixed window of time. */
export interface Window {
  /**
   * `minute` or `day` for a window of an account, `minute` for that of an address. A window of an account guard has a
   * name of its own: clients tell an account's windows apart by their names.
   */
  readonly name: string;
  /** Its length. An account's counts take theirs from `lengthsMs`, by the window's place. */
  readonly lengthSeconds: number;
  /** Requests that it admits. */
  readonly limit: number;
}

/** The windows of an account with these limits. */
export function accountWindows({ perMinute, perDay }: AccountLimits): readonly Window[] {
  return [
    { name: "minute", lengthSeconds: lengthsMs[0] / 1_000, limit: perMinute },
    { name: "day", lengthSeconds: lengthsMs[1] / 1_000, limit: perDay },
  ];
}

/** Makes a function that gives the windows of a caller, the same array each time for the same limits object. */
export function windowsByPlan(plans: PlanTable): (principal: Pick<Principal, "plan" | "limits">) => readonly Window[] {
  const byLimits = new WeakMap<AccountLimits, readonly Window[]>(); // limits serve many requests
  return ({ plan, limits }) => {
    const found = limits ?? plans[plan];
    if (found === null) throw new Error(`an account on the plan ${plan} without limits of its own`);
    let windows = byLimits.get(found);
    if (windows === undefined) {
      windows = accountWindows(found);
      byLimits.set(found, windows);
    }
    return windows;
  };
}

/** A window of one caller at some time. */
export type WindowState = Window & ShownWindow;

/** The windows of a caller at one time, and that time. */
export interface WindowsNow {
  readonly states: readonly WindowState[];
  /** Unix milliseconds, by the clock that `resetAtMs` goes by. */
  readonly nowMs: number;
}

/** Whether a request may go on, and the caller's windows after it. */
export interface Decision extends WindowsNow {
  readonly admitted: boolean;
}

/** Counts the requests of accounts. It answers at once unless Redis has to be asked. */
export interface Limiter {
  /**
   * Charges a request of the account with this id to all of its windows or to none. A spent window is a decision, and
   * no error.
   */
  charge(id: string, windows: readonly Window[]): Decision | Promise<Decision>;
  /** The windows of the account over all gateways, without a charge. */
  readShared(id: string, windows: readonly Window[]): WindowsNow | Promise<WindowsNow>;
  /** The windows of the account as this gateway last heard of them. */
  readLocal(id: string, windows: readonly Window[]): WindowsNow;
}

/**
 * The window that limits a caller most: an exhausted one (of several, the last to end), else the one with the smallest
 * share left.
 */
export function bindingWindow(windows: readonly WindowState[]): WindowState {
  let binding = windows[0]!;
  for (let w = 1; w < windows.length; w++) if (bindsMore(windows[w]!, binding)) binding = windows[w]!;
  return binding;
}

function bindsMore(a: WindowState, b: WindowState): boolean {
  if (a.remaining > 0) return b.remaining > 0 && a.remaining / a.limit < b.remaining / b.limit;
  return b.remaining > 0 || a.resetAtMs > b.resetAtMs;
}

/**
 * The names of the limit headers. V8 has to meet them here first: it keeps each name once, and those inside the OpenAPI
 * document have two bytes a character, which every response would then have, too (docs/performance.md).
 */
const names = {
  limit: "X-RateLimit-Limit",
  remaining: "X-RateLimit-Remaining",
  reset: "X-RateLimit-Reset",
  policy: "RateLimit-Policy",
  current: "RateLimit",
} as const;

/**
 * The limit headers of a response: `X-RateLimit-*` of the public API for the binding window, and those of
 * draft-ietf-httpapi-ratelimit-headers for all windows.
 *
 * @param windows the array that the decision was made by
 */
export function limitHeaders(windows: readonly Window[], { states, nowMs }: WindowsNow): HeaderList {
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
    policy = windows.map(({ name, limit, lengthSeconds }) => `"${name}";q=${limit};w=${lengthSeconds}`).join(", ");
    policies.set(windows, policy);
  }
  return policy;
}

/**
 * The limits of a banned caller. Every window shows 0 left and resets when the ban ends; a spent one resets at the
 * later of the two ends.
 *
 * @param current its windows, which may go by the clock of Redis
 * @param untilMs the end of the ban, Unix milliseconds by the clock of gateways
 * @param nowMs the time by that clock, which the result goes by
 */
export function bannedWindows(current: WindowsNow, untilMs: number, nowMs: number): WindowsNow {
  const aheadMs = nowMs - current.nowMs;
  const states = current.states.map((state) => ({
    ...state,
    remaining: 0,
    resetAtMs: state.remaining === 0 ? Math.max(state.resetAtMs + aheadMs, untilMs) : untilMs,
  }));
  return { states, nowMs };
}

/** `Retry-After`: whole seconds until the caller has something left again. */
export function retryAfter({ states, nowMs }: WindowsNow): string {
  return String(secondsUntil(bindingWindow(states).resetAtMs, nowMs));
}

/** Whole seconds from one time to another, rounded up, at least 1. */
export function secondsUntil(atMs: number, nowMs: number): number {
  return Math.max(1, Math.ceil((atMs - nowMs) / 1_000));
}
