// The part of a gateway that uses Redis, as replicas that share one.
import { setTimeout as delay } from "node:timers/promises";
import { pino } from "pino";
import { Registry } from "prom-client";
import { redisState, type SharedState } from "../../gateway/admission/shared-state.ts";
import { MemoryWindows } from "../../gateway/limits/memory-windows.ts";
import { accountWindows } from "../../gateway/limits/windows.ts";
import { newAccount } from "./accounts.ts";
import type { Stack } from "./stack.ts";
import { until as untilTrue } from "./until.ts";

export const until = (check: () => Promise<boolean>, withinMs = 15_000) => untilTrue(check, { withinMs, everyMs: 20 });

export const windows = accountWindows({ perMinute: 50, perDay: 1_000 });
let names = 0;
export const newName = () => `name-${++names}`;

/** The part of a gateway that uses Redis. */
export interface Replica extends SharedState {
  /** The ids in the invalidations that it received. */
  readonly heard: string[];
  /** The messages that it logged. */
  readonly logged: string[];
  /** The reasons that it gave for what it logged. */
  readonly reasons: string[];
}

export function startReplica(stack: Stack, url: string): Replica {
  const [heard, logged, reasons]: [string[], string[], string[]] = [[], [], []];
  const write = (line: string) => {
    const { msg, reason } = JSON.parse(line);
    logged.push(msg);
    if (reason !== undefined) reasons.push(reason);
  };
  const log = pino({ level: "info" }, { write });
  const memory = new MemoryWindows({ maxAccounts: 10_000, gatewayCount: 2, now: Date.now });
  const limits = { memory, gatewayCount: 2, keyedUpdatesPerDay: 1_000, onThrottled: () => {} };
  const state = redisState({ ...limits, redisUrl: url, log, metrics: new Registry() });
  stack.defer(() => state.close());
  state.onInvalidation((id) => heard.push(id));
  return { ...state, heard, logged, reasons };
}

export type Pair = readonly [Replica, Replica];

export const ask = async (replica: Replica, caller: string) => replica.limiter.charge(caller, windows);

/** Sends 80 requests of each caller at once, half to each replica. @returns the number admitted of each caller */
export async function admittedOf(pair: Pair, callers: readonly string[]): Promise<number[]> {
  const decisions = callers.map((caller) =>
    Promise.all(Array.from({ length: 80 }, (_, i) => ask(pair[i % 2]!, caller))),
  );
  return (await Promise.all(decisions)).map((each) => each.filter(({ admitted }) => admitted).length);
}

/** Whether each replica counts what the other admits, for enough callers to reach all nodes of a cluster. */
export async function isExact([a, b]: Pair): Promise<boolean> {
  const left = await Promise.all(
    Array.from({ length: 20 }, async () => {
      const caller = newAccount();
      const states = [await ask(a, caller), await ask(b, caller), await ask(a, caller)];
      return states.map((decision) => decision.states[0]!.remaining).join();
    }),
  );
  return left.every((each) => each === "49,48,47");
}

/** Whether both replicas hear what each of them notifies. */
export async function areNoticesSent(pair: Pair): Promise<boolean> {
  const ids = pair.map((replica) => {
    const id = newName();
    replica.invalidate(id);
    return id;
  });
  const areHeard = () => pair.every(({ heard }) => ids.every((id) => heard.includes(id)));
  for (let i = 0; i < 50 && !areHeard(); i++) await delay(10);
  return areHeard();
}

export async function isBack(pair: Pair): Promise<boolean> {
  return (await isExact(pair)) && (await areNoticesSent(pair));
}

/**
 * Acts until no replica has counted Redis as away meanwhile, as they may on a busy machine: then no count is exact.
 * @returns what the last `act` has returned
 */
export async function whileNear<T>(pair: Pair, act: () => Promise<T>): Promise<T> {
  for (;;) {
    await until(() => isBack(pair));
    for (const { logged } of pair) logged.length = 0;
    const result = await act();
    if (pair.every(({ logged }) => logged.length === 0)) return result;
  }
}

/** What the guard of accounts leaves 20 accounts that ask once at each replica. */
export async function guardLeaves(pair: Pair): Promise<string[]> {
  const ask = async (replica: Replica, id: string) => (await replica.guards.ownAccount.charge(id)).states[0]!.remaining;
  return await Promise.all(
    Array.from({ length: 20 }, async () => {
      const id = newName();
      return `${await ask(pair[0], id)},${await ask(pair[1], id)}`;
    }),
  );
}

/** Whether the counts of a replica reach Redis. */
export async function isCounting(replica: Replica): Promise<boolean> {
  return (await ask(replica, newAccount())).states[0]!.remaining === 49;
}
