/**
 * One event queue in place of everything by which a process learns of time, of chance and of the world around it.
 *
 * Loaded before any code of the product: `node --import ./test/simulation/virtual-time.ts`. From then on timers,
 * immediates, both clocks and all random values belong to the simulation. Between two events Node runs nothing but the
 * promises and ticks that the first one has left, so the same seed makes the same run.
 */
import { AsyncLocalStorage } from "node:async_hooks";
import crypto from "node:crypto";
import { syncBuiltinESMExports } from "node:module";
import timersPromises from "node:timers/promises";
import zlib from "node:zlib";
import { meet } from "./events.ts";
import { Random } from "./random.ts";

/** A simulated process. Its events wait while it is frozen, and are dropped once it has crashed. */
export class Host {
  readonly name: string;
  isDead = false;
  /** What is added to its clock of the day, in milliseconds. */
  skewMs = 0;
  /** When it has last begun to load the list, or got a part of a long answer. */
  longAnswerMs = Number.NEGATIVE_INFINITY;
  /** Messages that it has sent to services, and calls to them that are not over. */
  questions = 0;
  openCalls = 0;
  #frozenSinceMs: number | undefined;
  #frozenMs = 0;
  #deferred: Event[] = [];
  /** How fast its clock that is never set runs, since when, and what it showed then. */
  #rate = 1;
  #rateSinceMs = 0;
  #elapsedMs = 0;

  constructor(name: string) {
    this.name = name;
  }

  /** What its clock that is never set shows. */
  get elapsedMs(): number {
    return this.#elapsedMs + (clockMs - this.#rateSinceMs) * this.#rate;
  }

  /** When that clock will show a time. */
  timeOf(elapsedMs: number): number {
    return this.#rateSinceMs + (elapsedMs - this.#elapsedMs) / this.#rate;
  }

  /** Lets that clock run at another rate, as NTP does. */
  slew(rate: number): void {
    this.#elapsedMs = this.elapsedMs;
    this.#rateSinceMs = clockMs;
    this.#rate = rate;
  }

  defer(event: Event): void {
    this.#deferred.push(event);
  }

  get isFrozen(): boolean {
    return this.#frozenSinceMs !== undefined;
  }

  /** How long it was frozen so far, for those who judge its deadlines. */
  get frozenMs(): number {
    return this.#frozenMs + (this.#frozenSinceMs === undefined ? 0 : nowMs() - this.#frozenSinceMs);
  }

  freeze(): void {
    if (this.isFrozen || this.isDead) return;
    this.#frozenSinceMs = nowMs();
  }

  /** Lets it go on as an event loop does: timers that are due, then what has arrived, then immediates. */
  thaw(): void {
    if (!this.isFrozen) return;
    this.#frozenMs = this.frozenMs;
    this.#frozenSinceMs = undefined;
    if (this.#deferred.some(({ phase }) => phase === phases.arrival)) meet("a thaw with packets that had arrived");
    for (const event of this.#deferred) queue.push({ ...event, atMs: nowMs(), isCancelled: () => event.isCancelled() });
    this.#deferred = [];
  }

  crash(): void {
    this.isDead = true;
    this.#deferred = [];
  }
}

/** In one moment timers run before what arrives, and that before immediates, as in Node's event loop. */
export const phases = { timer: 0, arrival: 1, immediate: 2 } as const;

interface Event {
  readonly atMs: number;
  readonly phase: number;
  readonly order: number;
  readonly host: Host | undefined;
  readonly run: () => void;
  readonly isCancelled: () => boolean;
}

/** A binary heap by time, phase and order. */
class EventQueue {
  readonly #heap: Event[] = [];

  get size(): number {
    return this.#heap.length;
  }

  push(event: Event): void {
    const heap = this.#heap;
    let at = heap.push(event) - 1;
    while (at > 0) {
      const parent = (at - 1) >> 1;
      if (!isBefore(event, heap[parent]!)) break;
      heap[at] = heap[parent]!;
      at = parent;
    }
    heap[at] = event;
  }

  pop(): Event | undefined {
    const heap = this.#heap;
    const first = heap[0];
    const last = heap.pop();
    if (heap.length === 0 || !last) return first;
    let at = 0;
    for (;;) {
      let child = 2 * at + 1;
      if (child >= heap.length) break;
      if (child + 1 < heap.length && isBefore(heap[child + 1]!, heap[child]!)) child += 1;
      if (!isBefore(heap[child]!, last)) break;
      heap[at] = heap[child]!;
      at = child;
    }
    heap[at] = last;
    return first;
  }

  clear(): void {
    this.#heap.length = 0;
  }
}

function isBefore(a: Event, b: Event): boolean {
  if (a.atMs !== b.atMs) return a.atMs < b.atMs;
  return a.phase !== b.phase ? a.phase < b.phase : a.order < b.order;
}

const real = { setImmediate: globalThis.setImmediate, Date: globalThis.Date };
const hosts = new AsyncLocalStorage<Host | undefined>();
const queue = new EventQueue();

/** 1 January 2026. */
const earliestMs = 1_767_225_600_000;

/** Where the clock of the day begins. */
let startOfDayClockMs = earliestMs;

/** More events than this in one moment are an endless loop. */
const maxEventsAtOnce = 200_000;

/** Of Node's own loop. */
const eventsInTurn = 64;

/** A run that takes longer has a part that never ends. */
const maxRunMs = 3_600_000;

let clockMs = 0;
let events = 0;
let productRandom = new Random(0);
let trace: Trace | undefined;

/** What a run has done: a hash of it, and its lines where they are wanted. */
export class Trace {
  #a = 0x811c9dc5;
  #b = 0x1b873593;
  lines = 0;
  readonly #print: ((line: string) => void) | undefined;

  constructor(print?: (line: string) => void) {
    this.#print = print;
  }

  add(what: string): void {
    const line = `${clockMs.toFixed(3)} ${what}`;
    this.lines += 1;
    for (let i = 0; i < line.length; i++) {
      const code = line.charCodeAt(i);
      this.#a = Math.imul(this.#a ^ code, 0x01000193);
      this.#b = Math.imul(this.#b + code, 0x85ebca6b) ^ (this.#b >>> 13);
    }
    this.#print?.(line);
  }

  get hash(): string {
    return [this.#a, this.#b].map((part) => (part >>> 0).toString(16).padStart(8, "0")).join("");
  }
}

/** Notes something that happens, for the hash of the run and for people. */
export function note(what: string): void {
  trace?.add(what);
}

/** Virtual milliseconds since the begin of the run: the clock that never goes back. */
export function nowMs(): number {
  return clockMs;
}

/** What a clock of the day that nobody has set shows at a time of the run, in Unix milliseconds. */
export function unixMsAt(timeMs: number): number {
  return startOfDayClockMs + timeMs;
}

/** The simulated process that runs now; undefined for the simulation itself. */
export function currentHost(): Host | undefined {
  return hosts.getStore();
}

/** Runs code as a part of a process. */
export function runIn<T>(host: Host | undefined, work: () => T): T {
  return hosts.run(host, work);
}

/** Has something happen to a process later. @returns what takes it back */
export function at(
  host: Host | undefined,
  timeMs: number,
  run: () => void,
  phase: number = phases.arrival,
): () => void {
  let isCancelled = false;
  events += 1;
  const event = { atMs: Math.max(timeMs, clockMs), phase, order: events, host, run, isCancelled: () => isCancelled };
  queue.push(event);
  return () => {
    isCancelled = true;
  };
}

/** Waits, as the simulation itself. */
export function pause(durationMs: number): Promise<void> {
  return new Promise((resolve) => at(undefined, clockMs + durationMs, resolve));
}

export interface RunSettings {
  readonly seed: number;
  /** How much later than others its clock of the day begins. */
  readonly dayOffsetMs?: number;
  readonly trace?: Trace;
  /** Gets what nothing has caught in a process. */
  readonly onUncaught: (error: unknown, host: Host | undefined) => void;
}

/** The next event of a process that runs. What comes to a frozen one waits for its thaw. */
function nextEvent(): Event {
  for (;;) {
    const event = queue.pop();
    if (!event) throw new Error("the simulation waits for something that never happens");
    if (event.host?.isDead || event.isCancelled()) continue;
    if (!event.host?.isFrozen) return event;
    event.host.defer(event);
  }
}

/** Runs events until the work has ended, from an empty queue at time 0. Ends it where nothing is left to happen. */
export async function simulate<T>(settings: RunSettings, work: () => Promise<T>): Promise<T> {
  queue.clear();
  clockMs = 0;
  events = 0;
  productRandom = new Random(settings.seed ^ 0x5eed);
  startOfDayClockMs = earliestMs + (settings.dayOffsetMs ?? 0);
  trace = settings.trace;
  const onRejection = (error: unknown) => settings.onUncaught(error, currentHost());
  process.on("unhandledRejection", onRejection);
  let isOver = false;
  let atOnce = 0;
  const runNext = () => {
    const event = nextEvent();
    atOnce = event.atMs > clockMs ? 0 : atOnce + 1;
    if (atOnce > maxEventsAtOnce) throw new Error("endless loop: time stands still");
    clockMs = Math.max(clockMs, event.atMs);
    if (clockMs > maxRunMs) throw new Error("endless wait: the run does not end");
    try {
      hosts.run(event.host, event.run);
    } catch (error) {
      settings.onUncaught(error, event.host);
    }
  };
  try {
    const result = runIn(undefined, work).finally(() => {
      isOver = true;
    });
    result.catch(() => {});
    await new Promise<void>((resolve, reject) => {
      const step = () => {
        try {
          if (!isOver) runNext();
        } catch (error) {
          isOver = true;
          reject(error as Error);
        }
      };
      // Node runs all promises and ticks that are ready between two immediates. A turn of its loop costs more than an
      // event, so each turn has many.
      const turn = () => {
        if (isOver) return resolve();
        for (let i = 0; i < eventsInTurn; i++) real.setImmediate(step);
        real.setImmediate(turn);
      };
      real.setImmediate(turn);
    });
    return await result;
  } finally {
    process.off("unhandledRejection", onRejection);
    queue.clear();
    trace = undefined;
  }
}

/** What `setTimeout`, `setInterval` and `setImmediate` give. */
class VirtualTimer {
  #cancel: () => void;
  readonly #arm: () => () => void;

  constructor(arm: () => () => void) {
    this.#arm = arm;
    this.#cancel = arm();
  }

  refresh(): this {
    this.#cancel();
    this.#cancel = this.#arm();
    return this;
  }

  ref(): this {
    return this;
  }

  unref(): this {
    return this;
  }

  hasRef(): boolean {
    return true;
  }

  close(): void {
    this.#cancel();
  }

  [Symbol.dispose](): void {
    this.#cancel();
  }
}

/**
 * libuv counts in whole milliseconds, so a timer may end a little early. A clock that is not quite at a whole one by an
 * error of rounding is there: else a timer of a millisecond would end at once, again and again.
 */
function endOf(host: Host | undefined, delayMs: number | undefined): number {
  const wholeMs = Math.trunc(Number(delayMs));
  const endMs = Math.floor(elapsedMs(host) + 1e-6) + (wholeMs >= 1 && wholeMs <= 2 ** 31 - 1 ? wholeMs : 1);
  return host ? host.timeOf(endMs) : endMs;
}

function elapsedMs(host: Host | undefined): number {
  return host ? host.elapsedMs : clockMs;
}

type Callback = (...args: unknown[]) => void;

function virtualTimeout(callback: Callback, delayMs?: number, ...args: unknown[]): VirtualTimer {
  const host = currentHost();
  return new VirtualTimer(() => at(host, endOf(host, delayMs), () => callback(...args), phases.timer));
}

function virtualInterval(callback: Callback, delayMs?: number, ...args: unknown[]): VirtualTimer {
  const host = currentHost();
  const tick = () => {
    timer.refresh();
    callback(...args);
  };
  const timer = new VirtualTimer(() => at(host, endOf(host, delayMs), tick, phases.timer));
  return timer;
}

function virtualImmediate(callback: Callback, ...args: unknown[]): VirtualTimer {
  const host = currentHost();
  return new VirtualTimer(() => at(host, clockMs, () => callback(...args), phases.immediate));
}

const clear = (timer: unknown) => (timer instanceof VirtualTimer ? timer.close() : undefined);

function waiting(start: (done: () => void) => VirtualTimer) {
  return <T>(value: T, { signal }: { signal?: AbortSignal } = {}): Promise<T> => {
    return new Promise((resolve, reject) => {
      const abort = () => {
        timer.close();
        reject(Object.assign(new Error("The operation was aborted"), { name: "AbortError", code: "ABORT_ERR" }));
      };
      const timer = start(() => {
        signal?.removeEventListener("abort", abort);
        resolve(value);
      });
      if (signal?.aborted) abort();
      else signal?.addEventListener("abort", abort, { once: true });
    });
  };
}

const dayClock = () => unixMsAt(Math.floor(clockMs)) + (currentHost()?.skewMs ?? 0);

class VirtualDate extends real.Date {
  constructor(...args: []) {
    super(...((args.length === 0 ? [dayClock()] : args) as []));
  }

  static override now(): number {
    return dayClock();
  }
}

function randomBytes(size: number, done?: (error: null, bytes: Buffer) => void): Buffer | undefined {
  const bytes = Buffer.from(Array.from({ length: size }, () => productRandom.below(256)));
  if (!done) return bytes;
  at(currentHost(), clockMs, () => done(null, bytes));
  return undefined;
}

function randomUUID(): string {
  const hex = (randomBytes(16) as Buffer).toString("hex");
  return hex.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
}

/** The one function of the product that works on another thread. */
function deflateRaw(bytes: Uint8Array, options: object, done: (error: null, deflated: Buffer) => void): void {
  const deflated = zlib.deflateRawSync(bytes, options);
  const tookMs = productRandom.chance(0.2) ? productRandom.between(1, 20) : 0.2; // other work may come first
  at(currentHost(), clockMs + tookMs, () => done(null, deflated));
}

Object.assign(globalThis, {
  setTimeout: virtualTimeout,
  setInterval: virtualInterval,
  setImmediate: virtualImmediate,
  clearTimeout: clear,
  clearInterval: clear,
  clearImmediate: clear,
  Date: VirtualDate,
});
Math.random = () => productRandom.next();
Object.defineProperty(performance, "now", {
  value: () => elapsedMs(currentHost()),
  configurable: true,
  writable: true,
});
Object.assign(timersPromises, {
  setTimeout: (delayMs: number, value: unknown, options?: object) =>
    waiting((done) => virtualTimeout(done, delayMs))(value, options),
  setImmediate: (value: unknown, options?: object) => waiting((done) => virtualImmediate(done))(value, options),
});
Object.assign(crypto, { randomBytes, randomUUID });
Object.assign(zlib, { deflateRaw });
syncBuiltinESMExports();
