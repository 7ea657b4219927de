import fc from "fast-check";
import {
  type ChargeAnswer,
  type CountReport,
  indexAt,
  type KeptCounts,
  lengthsMs,
  mergeReport,
  phaseMsOf,
} from "./limit-rule.ts";
import { MemoryWindows } from "./memory-windows.ts";
import { accountWindows, type WindowsNow } from "./windows.ts";

const account = "acc_1";
const phaseMs = phaseMsOf(account);
const limit = 60;
const windows = accountWindows({ perMinute: limit, perDay: 1_000_000 });
const size = 3;

/** The begin of a day of the account. */
const beginMs = 20_000 * lengthsMs[1] - phaseMs;

const nothingKept = (): KeptCounts => ({ totals: [], chargesByGateway: new Map() });
const copyOf = ({ totals, chargesByGateway }: KeptCounts): KeptCounts => ({
  totals,
  chargesByGateway: new Map(chargesByGateway),
});

/** Gateways over kept counts in place of Redis. The gateways are real, the network and the clock are the test's own. */
class Deployment {
  nowMs = beginMs + 1;
  redis = nothingKept();
  #replica = nothingKept();
  readonly gateways = Array.from({ length: size }, () => this.#newGateway());
  /** Requests that were admitted in the minute that runs. */
  admitted = 0;

  #newGateway(): MemoryWindows {
    return new MemoryWindows({ maxAccounts: 10, gatewayCount: size, now: () => this.nowMs });
  }

  /** A gateway ends, with what only it knows, and another one takes its place. */
  replace(gateway: number): void {
    this.gateways[gateway] = this.#newGateway();
  }

  countsOf(gateway: number) {
    return this.gateways[gateway]!.countsOf(account);
  }

  report(gateway: number, wanted: number): CountReport {
    const counts = this.countsOf(gateway);
    const name = this.gateways[gateway]!.nameOf(counts);
    const limits = windows.map((window) => window.limit);
    return { countsName: name, wanted, limits, counts: [{ ...counts.minute }, { ...counts.day }] };
  }

  execute(report: CountReport): ChargeAnswer {
    const indexes = lengthsMs.map((lengthMs) => indexAt(this.nowMs, phaseMs, lengthMs));
    return mergeReport(this.redis, indexes, report);
  }

  /** The replica catches up. */
  replicate(): void {
    this.#replica = copyOf(this.redis);
  }

  /** The replica takes the place of its master. */
  failOver(): void {
    this.redis = copyOf(this.#replica);
  }

  /** A call that nothing happens to. @returns how many of its requests were admitted */
  call(gateway: number, wanted: number): number {
    const answer = this.execute(this.report(gateway, wanted));
    this.gateways[gateway]!.learn(this.countsOf(gateway), this.nowMs, answer);
    this.admitted += answer.admittedCount;
    return answer.admittedCount;
  }

  /** Requests that a gateway decides about without Redis. @returns how many were admitted */
  alone(gateway: number, requests: number): number {
    let admitted = 0;
    for (let i = 0; i < requests; i++) if (this.gateways[gateway]!.charge(account, windows).admitted) admitted += 1;
    this.admitted += admitted;
    return admitted;
  }

  /** Requests whose call gets no answer, so that their gateway decides about them. */
  unanswered(gateway: number, requests: number): number {
    const admitted = this.alone(gateway, requests);
    const { minute, day } = this.countsOf(gateway);
    minute.alone = 0;
    day.alone = 0;
    return admitted;
  }

  /** Every gateway reports what it knows, as it does when Redis is back. */
  stateAll(): void {
    for (const gateway of this.gateways.keys()) this.call(gateway, 0);
  }

  /** Every gateway asks for more than there is. */
  spend(): void {
    for (const gateway of this.gateways.keys()) this.call(gateway, 1_000);
  }

  /** What a gateway that has just heard of Redis shows its caller, and what Redis would admit to it next. */
  remaining(gateway: number) {
    this.call(gateway, 0);
    const memory = this.gateways[gateway]!;
    const decision = memory.read(memory.countsOf(account), windows, 1);
    const shown = Math.min(...decision.states.map(({ remaining }) => remaining));
    const indexes = lengthsMs.map((lengthMs) => indexAt(this.nowMs, phaseMs, lengthMs));
    const next = mergeReport(copyOf(this.redis), indexes, this.report(gateway, 1_000)).admittedCount;
    return { shown, next, isSpent: memory.isSpent(memory.countsOf(account), windows, 1) };
  }

  /** What is charged to each gateway beyond what it admitted. */
  credits(): number[] {
    return [...this.gateways.keys()].map((gateway) => {
      const { own, synced } = this.countsOf(gateway).minute;
      return synced - own;
    });
  }

  /** What Redis counts as admitted once all have spoken. */
  used(): number {
    this.stateAll();
    return this.credits().reduce((total, credit) => total - credit, this.redis.totals[0]?.highest ?? 0);
  }
}

const kinds = [
  "call",
  "lost call",
  "lost answer",
  "late call",
  "repeated call",
  "death",
  "no data",
  "older data",
] as const;
type Kind = (typeof kinds)[number];
interface Step {
  readonly kind: Kind;
  readonly gateway: number;
  readonly requests: number;
}

/** Runs steps, and executes the late calls at the end of it or at some later step. @returns the number of faults */
function run(deployment: Deployment, steps: readonly Step[]): number {
  const late: CountReport[] = [];
  let faults = 0;
  for (const { kind, gateway, requests } of steps) {
    if (kind !== "call") faults += 1;
    if (requests % 4 === 0) deployment.replicate();
    if (requests % 5 === 0) for (const report of late.splice(0, 1)) deployment.execute(report);
    const report = deployment.report(gateway, requests);
    if (kind === "lost answer" || kind === "repeated call") deployment.execute(report);
    if (kind === "late call") late.push(report);
    if (kind === "death") deployment.replace(gateway);
    if (kind === "no data") deployment.redis = nothingKept();
    if (kind === "older data") deployment.failOver();
    if (/^(lost|late)/.test(kind)) deployment.unanswered(gateway, requests);
    else if (/call/.test(kind)) deployment.call(gateway, requests);
  }
  for (const report of late) deployment.execute(report);
  return faults;
}

const sequences = (...faults: Kind[]) =>
  fc.array(
    fc.record({
      kind: fc.oneof({ weight: 3, arbitrary: fc.constant<Kind>("call") }, fc.constantFrom(...faults)),
      gateway: fc.nat(size - 1),
      requests: fc.integer({ min: 1, max: 25 }),
    }),
    { minLength: 1, maxLength: 60 },
  );

const numRuns = 2_000;

describe("counts that only grow", () => {
  test("without a fault exactly the limit is admitted, while gateways come and go", () => {
    fc.assert(
      fc.property(sequences("death"), (steps) => {
        const deployment = new Deployment();
        run(deployment, steps);
        const wanted = steps.reduce((sum, { kind, requests }) => sum + (kind === "call" ? requests : 0), 0);
        expect(deployment.admitted).toBe(Math.min(limit, wanted));
        expect(deployment.used()).toBe(deployment.admitted);
      }),
      { numRuns },
    );
  });

  test("calls that are lost, late, repeated or not answered are charged once", () => {
    fc.assert(
      fc.property(sequences("lost call", "lost answer", "late call", "repeated call"), (steps) => {
        const deployment = new Deployment();
        const faults = run(deployment, steps);
        const before = deployment.admitted;
        expect(before).toBeLessThanOrEqual(limit + faults * (limit + size));
        expect(deployment.used()).toBe(before);
        deployment.spend();
        expect(deployment.admitted).toBeLessThanOrEqual(Math.max(limit, before));
        const total = deployment.redis.totals[0]!.highest;
        expect(total).toBeGreaterThanOrEqual(limit);
        expect(Math.max(...deployment.credits())).toBeLessThanOrEqual(total - limit);
      }),
      { numRuns },
    );
  });

  test("a Redis that loses data has the right counts again once all gateways have spoken", () => {
    fc.assert(
      fc.property(sequences("lost call", "no data", "older data"), (steps) => {
        const deployment = new Deployment();
        const faults = run(deployment, steps);
        const before = deployment.admitted;
        expect(before).toBeLessThanOrEqual(limit + faults * (limit + size));
        expect(deployment.used()).toBe(before);
        deployment.spend();
        expect(deployment.admitted).toBe(Math.max(limit, before));
      }),
      { numRuns },
    );
  });

  test("counts are right after every short sequence of lost answers and of data a replica lacked", () => {
    const steps: ((deployment: Deployment) => void)[] = [0, 1].flatMap((gateway) => [
      (deployment) => deployment.call(gateway, 1),
      (deployment) => {
        deployment.execute(deployment.report(gateway, 1)); // its answer is lost
        deployment.unanswered(gateway, 1);
      },
      (deployment) => deployment.alone(gateway, 1),
    ]);
    steps.push((deployment) => deployment.replicate());
    steps.push((deployment) => deployment.failOver());
    for (let sequence = 0; sequence < steps.length ** 5; sequence++) {
      const deployment = new Deployment();
      for (let rest = sequence; rest > 0; rest = Math.floor(rest / steps.length)) {
        steps[rest % steps.length]!(deployment);
      }
      const taken = [sequence.toString(steps.length), deployment.used()];
      if (taken[1] !== deployment.admitted) expect(taken).toEqual([taken[0], deployment.admitted]);
    }
  });

  test("with all faults together each fault gives at most one more allowance", () => {
    fc.assert(
      fc.property(sequences(...kinds.filter((kind) => kind !== "death")), (steps) => {
        const deployment = new Deployment();
        const faults = run(deployment, steps);
        expect(deployment.used()).toBeGreaterThanOrEqual(deployment.admitted);
        deployment.spend();
        expect(deployment.admitted).toBeLessThanOrEqual(limit + faults * (limit + size));
      }),
      { numRuns },
    );
  });

  test("gateways that end take with them what they admitted alone, and what a lost Redis knew", () => {
    fc.assert(
      fc.property(sequences(...kinds), (steps) => {
        const deployment = new Deployment();
        const faults = run(deployment, steps);
        deployment.stateAll();
        const own = [...deployment.gateways.keys()].map((gateway) => deployment.countsOf(gateway).minute.own);
        const total = deployment.redis.totals[0]?.highest ?? 0;
        expect(total).toBeGreaterThanOrEqual(own.reduce((sum, each) => sum + each, 0));
        for (const gateway of deployment.gateways.keys()) {
          const { synced, others } = deployment.countsOf(gateway).minute;
          expect(synced + others).toBeLessThanOrEqual(total);
        }
        deployment.spend();
        expect(deployment.admitted).toBeLessThanOrEqual(limit + faults * (limit + size));
      }),
      { numRuns },
    );
  });

  test("counts are right once all have spoken, after ends of gateways, lost data and outages", () => {
    type Event = "call" | "end" | "no data" | "outage";
    const event = fc.record({
      kind: fc.constantFrom<Event>("call", "call", "end", "no data", "outage"),
      gateway: fc.nat(size - 1),
      requests: fc.integer({ min: 1, max: 25 }),
    });
    fc.assert(
      fc.property(fc.array(event, { minLength: 1, maxLength: 40 }), (events) => {
        const deployment = new Deployment();
        for (const { kind, gateway, requests } of events) {
          if (kind === "call") deployment.call(gateway, requests);
          if (kind === "end") deployment.replace(gateway);
          if (kind === "no data") deployment.redis = nothingKept();
          if (kind === "outage") for (const each of deployment.gateways.keys()) deployment.alone(each, requests);
          deployment.stateAll();
        }
        expect(deployment.used()).toBe(deployment.admitted);
      }),
      { numRuns },
    );
  });

  test("what a gateway shows as remaining is what Redis admits to it next, after any fault", () => {
    fc.assert(
      fc.property(sequences(...kinds), (steps) => {
        const deployment = new Deployment();
        run(deployment, steps);
        for (const gateway of deployment.gateways.keys()) {
          const { shown, next, isSpent } = deployment.remaining(gateway);
          expect([shown, isSpent]).toEqual([next, next === 0]);
        }
      }),
      { numRuns },
    );
  });

  test("what was charged for unanswered requests is used by later ones of that gateway", () => {
    const deployment = new Deployment();
    deployment.call(0, 30);
    deployment.execute(deployment.report(0, 25)); // its answer is lost
    expect(deployment.unanswered(0, 25)).toBe(10); // a third of what was left
    expect(deployment.call(1, 10)).toBe(5); // the others count all 25
    expect(deployment.call(0, 20)).toBe(15);
    expect(deployment.admitted).toBe(limit);
  });

  test("what was charged for unanswered requests can be used after Redis has lost its data", () => {
    const deployment = new Deployment();
    deployment.execute(deployment.report(0, 25)); // its answer is lost
    deployment.call(0, 0);
    deployment.call(1, 5);
    deployment.redis = nothingKept();
    deployment.call(1, 0);
    expect(deployment.call(0, 100)).toBe(limit - 5);
  });

  test("what a gateway admitted alone counts as soon as it has told a Redis that has lost its data", () => {
    const deployment = new Deployment();
    deployment.call(1, 20);
    deployment.call(0, 10);
    expect(deployment.alone(0, 5)).toBe(5);
    deployment.redis = nothingKept();
    deployment.call(0, 0);
    expect(deployment.call(2, 100)).toBe(limit - 35);
  });

  test("what others have heard of a gone gateway counts after Redis has lost its data", () => {
    const deployment = new Deployment();
    deployment.call(0, 30);
    deployment.call(1, 10);
    deployment.replace(0);
    deployment.redis = nothingKept();
    expect(deployment.call(0, 5)).toBe(5); // before the other one has spoken
    deployment.call(1, 0);
    deployment.spend();
    expect(deployment.admitted).toBe(limit + 5);
  });
});

describe("windows by the clock", () => {
  const left = ({ states }: WindowsNow) => states.map(({ remaining }) => remaining);

  test("a day of an account begins with a minute, at a second that differs between accounts", () => {
    const phases = Array.from({ length: 1_000 }, (_, i) => phaseMsOf(`acc_${i}`));
    expect(phases.filter((phase) => phase % 1_000 !== 0 || phase < 0 || phase >= 86_400_000)).toEqual([]);
    expect(new Set(phases).size).toBeGreaterThan(950);
    const deployment = new Deployment();
    deployment.nowMs = beginMs;
    const ends = deployment.gateways[0]!.readShared(account, windows).states.map(
      ({ resetAtMs }) => resetAtMs - beginMs,
    );
    expect(ends).toEqual([60_000, 86_400_000]);
  });

  test("a window ends at its time for Redis and for a gateway alone", () => {
    for (const ask of [
      (deployment: Deployment) => deployment.call(0, 1),
      (deployment: Deployment) => deployment.alone(0, 1),
    ]) {
      const deployment = new Deployment();
      deployment.nowMs = beginMs + 59_999;
      ask(deployment);
      expect(left(deployment.gateways[0]!.readShared(account, windows))[1]).toBeLessThan(1_000_000);
      deployment.nowMs = beginMs + 60_000;
      expect(deployment.call(1, 1_000)).toBe(limit);
      expect(left(deployment.gateways[1]!.readShared(account, windows))[0]).toBe(0);
      deployment.nowMs = beginMs + 86_400_000;
      expect(left(deployment.gateways[0]!.readShared(account, windows))[0]).toBe(limit / size);
      expect(deployment.call(0, 1)).toBe(1);
      expect(deployment.redis.chargesByGateway.size).toBe(1); // the gateways of the day before are forgotten
    }
  });

  test("a window that the clock was set back from is over", () => {
    const deployment = new Deployment();
    deployment.nowMs = beginMs + 3_600_000;
    deployment.spend();
    expect(deployment.call(0, 1)).toBe(0);
    deployment.nowMs = beginMs;
    expect(deployment.call(0, 1_000)).toBe(limit);
  });

  test("requests that a gateway admitted alone are charged to their own windows, not to later ones", () => {
    const deployment = new Deployment();
    expect(deployment.alone(0, 5)).toBe(5);
    deployment.nowMs += 60_000;
    deployment.call(0, 1);
    expect(deployment.redis.totals.map(({ highest }) => highest)).toEqual([1, 6]);
  });

  test("a report that charges nothing and tells nothing leaves Redis as it is", () => {
    const deployment = new Deployment();
    deployment.stateAll();
    expect(deployment.redis).toEqual(nothingKept());
    deployment.call(0, 5);
    const before = copyOf(deployment.redis);
    deployment.stateAll();
    expect(deployment.redis).toEqual(before);
  });
});
