/** What the callers of a run share. */
import type { AskedChange, Commit, Read } from "./oracle.ts";
import type { Random } from "./random.ts";
import type { SimulatedProcess } from "./simulated-processes.ts";
import type { Network } from "./virtual-network.ts";

/** Entries that internal callers make and remove. */
export const movingPets = [20, 21, 22];

/** An entry that is there from the start, and that nobody changes where a plan has fewer pets. */
export const unchangedPet = 12;

export interface ApiKey {
  readonly id: string;
  readonly accountId: string;
  readonly key: string;
}

/** What all callers share. */
export interface CallerWorld {
  readonly network: Network;
  readonly random: Random;
  readonly gateways: readonly SimulatedProcess[];
  /** The API key of a caller at first. */
  readonly keyOf: (name: string) => ApiKey;
  /** When the keys of callers were revoked: the begin and the end of that, by the name of the caller. */
  readonly revoked: ReadonlyMap<string, { readonly callMs: number; readonly returnMs: number }>;
  readonly pets: number;
  readonly pauseMs: number;
  readonly hotShare: number;
  readonly timeoutMs: number;
  readonly keyedTimeoutMs: number;
  /** How long the look-up of a key may take. */
  readonly lookUpMs: number;
  /** When the minute of the account with a low limit ends that runs at a time. */
  readonly minuteEndMs: (atMs: number) => number;
  readonly isOver: () => boolean;
  /** The latest change of the stock. */
  readonly latest: () => Commit;
  /** Whether nothing happens that a caller may notice. */
  readonly isServed: boolean;
  /** Whether the past of entries is kept. */
  readonly keepsHistory: boolean;
  /** Whether what was recorded of changes is never lost. */
  readonly keepsRecords: boolean;
  /** Whether no clock of the day is set. */
  readonly hasTrueClocks: boolean;
  readonly changes: AskedChange[];
  readonly reads: Read[];
  /** The values of Idempotency-Key that callers have used. */
  readonly usedKeys: string[];
  /** Each compares the requests of a caller with the use of its account, when gateways have written that. */
  readonly judgesOfUse: (() => Promise<void>)[];
  readonly fail: (what: string) => void;
}

/** What became of a request of the caller that has a low limit. */
export interface LimitedRequest {
  readonly callMs: number;
  readonly returnMs: number;
  /** 0 without an answer. */
  readonly status: number;
  /** Of a refusal. */
  readonly code: string;
  /** What its answer says is left of the minute; NaN where it says nothing. */
  readonly left: number;
  /** How long it was told to wait; NaN without that. */
  readonly waitSeconds: number;
}

let lastNumber = 0;

/** Begins the numbers of a run, by which its changes are told apart. */
export function restartNumbers(): void {
  lastNumber = 100;
}

/** A number that no other change of the run has. */
export function nextNumber(): number {
  lastNumber += 1;
  return lastNumber;
}
