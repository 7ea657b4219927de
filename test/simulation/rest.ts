/** What everything does again once all faults are over. */
import { ownAccountLimit } from "../../gateway/admission/account-guard.ts";
import { ApiSender } from "./api-sender.ts";
import type { CallerWorld } from "./caller-world.ts";
import { HttpCaller } from "./callers.ts";
import { meet } from "./events.ts";
import type { HttpAnswer, HttpOutcome } from "./http-client.ts";
import { keyedUpdatesPerDay, keylessPerMinute, type SimulatedProcess } from "./simulated-processes.ts";
import { nowMs, pause } from "./virtual-time.ts";
import { judgeWaits } from "./waits-oracle.ts";

/** By then both sides of a lost connection know of it. */
const quietMs = 20_000;

/** By then every gateway has written the use that it has counted. */
const useWrittenMs = 31_000;

/** How long waits for one thing last without a change: one ends before the change comes, the other does not. */
const waitSeconds = [1, 8];

/** When the change comes for which they wait. */
const changeAfterMs = 2_500;

/** More than an account with a low limit may send, also when a minute ends meanwhile. */
const unrefused = 20;

/** In a bulk update that fills a guard. */
const keyedEntries = 12;

/** By then a question that was under way is over. */
const settledMs = 1_000;

/** How long after a restore a caller may still wait for a change of the old stock. */
const restoreMs = 10_000;

interface RestOptions {
  /** Whether the gateways share their limits. */
  readonly hasRedis: boolean;
  /** Restores the stock's database. Resolves when all processes are ready. */
  readonly restore: () => Promise<void>;
}

/** Uses every gateway once more, and says what does not work. */
export async function checkRest(world: CallerWorld, { hasRedis, restore }: RestOptions): Promise<void> {
  await pause(quietMs);
  const caller = new CallerAtRest(world);
  for (const gateway of world.gateways) await caller.use(gateway);
  if (world.isServed) {
    await pause(useWrittenMs - quietMs);
    for (const judgeUse of world.judgesOfUse) await judgeUse();
  }
  if (hasRedis) await checkLimits(world);
  await checkRefusals(world);
  if (hasRedis && world.random.chance(0.05)) await checkGuard(world);
  if (world.random.chance(0.2)) await caller.waitForRestore(restore);
  // The history has a gap after that, and no key may be refused before it.
  if (world.random.chance(0.1)) await new HttpCaller("last", world).repeatForgotten();
  else if (hasRedis && world.random.chance(0.05)) await checkKeyedGuard(world);
  await new ApiSender("last", world).rotateTwice();
  if (world.random.chance(0.05)) await checkAddressGuard(world);
}

/** A caller that goes to one gateway after the other. */
class CallerAtRest {
  readonly #world: CallerWorld;
  readonly #caller: HttpCaller;
  /** The one that it goes to. */
  readonly #gateways: SimulatedProcess[] = [];

  constructor(world: CallerWorld) {
    this.#world = world;
    this.#caller = new HttpCaller("last", { ...world, gateways: this.#gateways });
  }

  /** Reads, writes and waits. */
  async use(gateway: SimulatedProcess): Promise<void> {
    const { reads, latest } = this.#world;
    const fail = (what: string) => this.#world.fail(`at rest, ${gateway.host.name} ${what}`);
    const before = reads.length;
    this.#gateways[0] = gateway;
    await this.#caller.readAll();
    for (const kind of ["list", "entry", ...(this.#world.keepsHistory ? ["history"] : [])]) {
      if (!reads.slice(before).some((read) => read.kind === kind)) fail(`does not answer: ${kind}`);
    }
    const waits = waitSeconds.flatMap((seconds) =>
      (["changes", "entry"] as const).map((kind) => this.#caller.wait(kind, seconds)),
    );
    await pause(changeAfterMs);
    const found = latest();
    if (!(await this.#caller.writeAll())) fail("does not write");
    const commits = latest() === found ? [] : [latest()]; // it may have found what it wanted
    await Promise.all(waits);
    for (const fault of judgeWaits({ commits, reads: reads.slice(before) })) fail(fault);
  }

  /** Waits for changes through every gateway while the stock is restored: each wait has to end soon after that. */
  async waitForRestore(restore: () => Promise<void>): Promise<void> {
    const waits: Promise<{ readonly name: string; readonly endMs: number }>[] = [];
    for (const gateway of this.#world.gateways) {
      this.#gateways[0] = gateway;
      await this.#caller.readAll();
      const wait = this.#caller.wait("changes", (2 * restoreMs) / 1_000);
      waits.push(wait.then(() => ({ name: gateway.host.name, endMs: nowMs() })));
    }
    await restore();
    const restoredMs = nowMs();
    for (const { name, endMs } of await Promise.all(waits)) {
      if (endMs > restoredMs + restoreMs) this.#world.fail(`at rest, a wait at ${name} outlasts a restore`);
      else meet("a wait that a restore ended");
    }
  }
}

/** Gateways that share limits count together what an account asks about itself, to the request. */
async function checkGuard(world: CallerWorld): Promise<void> {
  await pause(1_000 * ownAccountLimit.duration); // what was asked before belongs to a window that is over
  const sender = new ApiSender("last", world);
  const ask = () => sender.send({ method: "GET", path: "/v1/rate_limit" }, world.timeoutMs);
  const admitted = await admittedOf(ownAccountLimit.points + 5, ask);
  if (admitted === ownAccountLimit.points) return;
  world.fail(`at rest, ${admitted} of ${ownAccountLimit.points} questions about an account were answered`);
}

/** They count together the entries that an account sends with a key. */
async function checkKeyedGuard(world: CallerWorld): Promise<void> {
  const sender = new ApiSender("last", world);
  const most = Math.floor(keyedUpdatesPerDay / keyedEntries);
  // None of them is at this revision, so nothing is changed.
  const changes = Array.from({ length: keyedEntries }, (_, i) => ({ petId: i + 1, quantity: 1, ifMatch: '"r0"' }));
  const request = { method: "POST", path: "/v1/inventory/updates", body: JSON.stringify(changes) } as const;
  const ask = (i: number) => {
    const headers = { "content-type": "application/json", "idempotency-key": `guard-${i}` };
    return sender.send({ ...request, headers }, Math.max(world.keyedTimeoutMs, world.timeoutMs));
  };
  const admitted = await admittedOf(most + 5, ask);
  if (admitted !== most) world.fail(`at rest, ${admitted} of ${most} requests with a key were admitted`);
}

/**
 * An address that sends too many requests without a valid key is refused until its Retry-After has passed. A request
 * with a valid key from there is not.
 */
async function checkAddressGuard(world: CallerWorld): Promise<void> {
  const gateway = world.gateways[0]!;
  const fail = (what: string) => world.fail(`at rest, ${gateway.host.name} ${what}`);
  const sender = new ApiSender("reader", { ...world, gateways: [gateway] });
  const ask = async (headers?: object) => {
    const answer = await sender.send({ method: "GET", path: "/v1/inventory/1", headers }, world.timeoutMs);
    return answer as Partial<HttpAnswer>;
  };
  const untilRefused = async () => {
    for (let admitted = 0; admitted <= 2 * keylessPerMinute; admitted++) {
      const { status, headers } = await ask({ authorization: "Bearer nobody" });
      if (status === 429) return { admitted, waitMs: 1_000 * Number(headers!["retry-after"]) };
    }
    return undefined;
  };
  const first = await untilRefused();
  if (!first) return fail("refuses no request without a key");
  const { status } = await ask();
  if (status !== 200) fail(`gave ${status} to a key at a refused address`);
  await pause(first.waitMs + settledMs);
  const second = await untilRefused();
  meet("an address that was refused");
  if (second?.admitted === keylessPerMinute) return;
  fail(`admitted ${second?.admitted ?? "more"} of ${keylessPerMinute} requests without a key`);
}

/** Asks so many times. @returns how often it gets 200 */
async function admittedOf(times: number, ask: (i: number) => Promise<HttpOutcome>): Promise<number> {
  let admitted = 0;
  for (let i = 0; i < times; i++) {
    const answer = await ask(i);
    if (typeof answer !== "string" && answer.status === 200) admitted += 1;
  }
  meet("a guard of an account that refused");
  return admitted;
}

/** A gateway that knows that an account has nothing left asks no service for it. */
async function checkRefusals(world: CallerWorld): Promise<void> {
  const gateways: SimulatedProcess[] = [];
  const sender = new ApiSender("spent", { ...world, gateways });
  const read = async () => {
    const answer = await sender.send({ method: "GET", path: "/v1/inventory" }, world.timeoutMs);
    return (answer as Partial<HttpAnswer>).status;
  };
  for (const gateway of world.gateways) {
    gateways[0] = gateway;
    let admitted = 0;
    while ((await read()) !== 429) {
      admitted += 1;
      if (admitted > unrefused)
        return world.fail(`at rest, ${gateway.host.name} refuses no request of a spent account`);
    }
    await pause(settledMs);
    const before = gateway.host.questions;
    const statuses = [await read(), await read(), await read()];
    const asked = gateway.host.questions - before;
    if (statuses.some((status) => status !== 429)) continue; // another minute has begun
    meet("refusals of a spent account");
    if (asked > 0) world.fail(`at rest, ${gateway.host.name} has asked ${asked} times for what it refused`);
  }
}

/** Gateways that share limits count each other's requests, to the request. */
async function checkLimits(world: CallerWorld): Promise<void> {
  let before: number | undefined;
  for (const gateway of [...world.gateways, ...world.gateways]) {
    const sender = new ApiSender("last", { ...world, gateways: [gateway] });
    const told = await sender.leftAfter("/v1/rate_limit");
    const left = await sender.leftAfter("/v1/inventory/1");
    const isNext = before === undefined || (told === before && left === told - 1) || left > before; // another day
    if (!isNext) {
      world.fail(`at rest, ${gateway.host.name} told ${told} and has ${left} requests left, after ${before}`);
    }
    before = left;
  }
}
