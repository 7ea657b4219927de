/** The windows of callers, and what a decision about a request says. */
import type { ShownWindow } from "../http/request-context.ts";

/** A fixed window of time. */
export interface Window {
  readonly name: "minute" | "day";
  readonly seconds: number;
  /** Requests that it admits. */
  readonly limit: number;
}

/** A window of one caller at the time of a decision. */
export type WindowState = Window & ShownWindow;

/** Whether a request may go on, and the caller's windows after it. */
export interface Decision {
  readonly admitted: boolean;
  readonly windows: readonly WindowState[];
  /** Unix milliseconds of the decision, by the clock that `resetAtMs` goes by. */
  readonly nowMs: number;
}

/** Counts the requests of accounts. It answers at once unless Redis has to be asked. */
export interface Limiter {
  /** Charges a request of the account with this id to all of its windows or to none. A denial is a value. */
  charge(id: string, windows: readonly Window[]): Decision | Promise<Decision>;
  /** The windows of the account over all gateways, without a charge. */
  readShared(id: string, windows: readonly Window[]): Decision | Promise<Decision>;
  /** The windows of the account as this gateway last heard of them. */
  readLocal(id: string, windows: readonly Window[]): Decision;
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
