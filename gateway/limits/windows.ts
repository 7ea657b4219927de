/** Decides about requests by fixed windows of time; pure, without a clock or a store. */

/** A fixed window, which begins with its first request. */
export interface Window {
  readonly name: "minute" | "day";
  readonly seconds: number;
  /** Requests that it admits. */
  readonly limit: number;
}

/** A window of one caller at the time of a decision. */
export interface WindowState extends Window {
  /** Requests that were charged to it, as far as this replica has heard. */
  readonly used: number;
  /** Requests that it still admits here. A replica that decides on its own has only its share of what is left. */
  readonly remaining: number;
  /** Unix milliseconds at which the window ends. */
  readonly resetAtMs: number;
}

/** Whether a request may go on, and the caller's windows after it. */
export interface Decision {
  readonly admitted: boolean;
  readonly windows: readonly WindowState[];
  /** Unix milliseconds of the decision, by the clock that `resetAtMs` goes by. */
  readonly nowMs: number;
}

export interface Limiter {
  /** Charges a request of the caller with this id to all of its windows or to none. A denial is a value. */
  decide(id: string, windows: readonly Window[]): Promise<Decision>;
  /** The windows of the caller as they are, without a charge. */
  look(id: string, windows: readonly Window[]): Promise<Decision>;
}

/** What a replica keeps for one window of a caller. */
export interface Count {
  /** Requests that all replicas have admitted, as far as this one has heard. */
  readonly used: number;
  /** Requests that this replica has admitted and the others have not heard of. */
  readonly unsent: number;
  readonly resetAtMs: number;
}

/**
 * Charges a request to all windows or to none: one that a window refuses costs the others nothing.
 *
 * A replica that decides on its own has its share of what was left when it last heard of the others.
 *
 * @param counts what is kept for this caller, in the order of the windows; undefined before its first request
 * @param cost 1, or 0 to look without charging
 * @param replicas how many share the limit while they cannot hear of each other
 */
export function charge(
  counts: readonly Count[] | undefined,
  windows: readonly Window[],
  cost: 0 | 1,
  nowMs: number,
  replicas = 1,
): { readonly decision: Decision; readonly counts: readonly Count[] } {
  const running = windows.map(({ seconds }, i): Count => {
    const count = counts?.[i];
    return count && isRunning(count, seconds, nowMs)
      ? count
      : { used: 0, unsent: 0, resetAtMs: nowMs + seconds * 1_000 };
  });
  const left = windows.map(({ limit }, i) => {
    const { used, unsent } = running[i]!;
    return Math.max(0, Math.ceil(Math.max(0, limit - used) / replicas) - unsent);
  });
  const admitted = left.every((remaining) => remaining >= cost);
  const charged = admitted ? cost : 0;
  return {
    decision: {
      admitted,
      windows: windows.map((window, i) => ({
        ...window,
        used: running[i]!.used + running[i]!.unsent + charged,
        remaining: left[i]! - charged,
        resetAtMs: running[i]!.resetAtMs,
      })),
      nowMs,
    },
    counts: charged === 0 ? (counts ?? []) : running.map((count) => ({ ...count, unsent: count.unsent + charged })),
  };
}

/**
 * Whether a window still runs. A window whose end is further away than its length began before the clock was set back.
 * It counts as over, because its caller would otherwise be refused until the clock is where it was.
 */
export function isRunning({ resetAtMs }: { readonly resetAtMs: number }, seconds: number, nowMs: number): boolean {
  return resetAtMs > nowMs && resetAtMs <= nowMs + seconds * 1_000;
}

/**
 * The window that limits a caller most: an exhausted one (of several, the last to end), else the one with the smallest
 * share left.
 */
export function bindingWindow(windows: readonly WindowState[]): WindowState {
  return windows.reduce((binding, candidate) => {
    if (binding.remaining > 0 && candidate.remaining > 0) {
      return candidate.remaining / candidate.limit < binding.remaining / binding.limit ? candidate : binding;
    }
    const isWorse = binding.remaining > 0 || (candidate.remaining === 0 && candidate.resetAtMs > binding.resetAtMs);
    return isWorse ? candidate : binding;
  });
}
