/** What happens in a run besides the work of the product: made of a seed, and small enough to shrink. */
import { Random } from "./random.ts";

export const faultKinds = {
  "freeze a gateway": 3,
  "freeze a service": 4,
  "freeze the stock's database": 3,
  "freeze the keys' database": 1,
  "kill a gateway": 2,
  "lose the machine of a gateway": 1,
  "kill a service": 3,
  "lose the machine of a service": 2,
  "replace a gateway": 2,
  "replace a service": 3,
  "hold gateway to service": 4,
  "hold service to gateway": 3,
  "slow gateway to service": 5,
  "slow service to gateway": 2,
  "slow service to database": 3,
  "cut gateway and service": 4,
  "hold service to database": 4,
  "hold database to service": 3,
  "cut service and database": 2,
  "hold gateway and keys": 1,
  "hold keys to gateway": 1,
  "take back commits": 2,
  "let writers overlap": 2,
  "lose sessions before COMMIT": 3,
  "lose sessions after COMMIT": 3,
  "lock the head": 4,
  "lose gateway to service": 3,
  "lose service to database": 3,
  "fail over the database": 2,
  "switch the database": 4,
  "restore the database": 1,
  "set a clock": 3,
  "slew the clocks": 3,
  "hold caller to gateway": 2,
  "hold gateway to caller": 2,
  "cut caller and gateway": 2,
  "change the pepper": 1,
  "freeze Redis": 2,
  "restart Redis": 2,
  "fail over Redis": 2,
  "hold gateway to Redis": 2,
  "hold Redis to gateway": 2,
  "revoke a key": 3,
} as const;

export type FaultKind = keyof typeof faultKinds;

export interface Fault {
  readonly atMs: number;
  readonly kind: FaultKind;
  /** How long it lasts. */
  readonly forMs: number;
  /** Chooses among the processes that it may hit. */
  readonly which: number;
  readonly other: number;
}

export interface Plan {
  readonly seed: number;
  readonly gateways: number;
  readonly services: number;
  readonly pets: number;
  readonly callers: number;
  /** When callers stop, and faults with them. */
  readonly endMs: number;
  /** The mean pause of a caller between two requests. */
  readonly pauseMs: number;
  /** How often a caller takes the first entry and no other. */
  readonly hotShare: number;
  readonly maxConnectionAgeMs: number;
  /** The most that a message takes, as a rule. */
  readonly latencyMs: number;
  /** Whether the gateways share their limits. */
  readonly hasRedis: boolean;
  /** Requests in a minute of the callers that send more, and in a day. */
  readonly limit: number;
  readonly limitPerDay: number;
  readonly keepsHistory: boolean;
  /** `INVENTORY_TIMEOUT_MS` and `KEYED_UPDATE_TIMEOUT_MS` of the gateways. */
  readonly timeoutMs: number;
  readonly keyedTimeoutMs: number;
  /** `INVENTORY_DATABASE_TIMEOUT_MS` and `INVENTORY_MAX_QUEUED` of the services. */
  readonly silenceMs: number;
  readonly maxQueued: number;
  /** How far into a minute the run begins: the windows of the limits end at times of the day. */
  readonly dayOffsetMs: number;
  readonly faults: readonly Fault[];
}

/** Makes the plan of a seed. */
export function planOf(seed: number): Plan {
  const random = new Random(seed);
  const isViolent = random.chance(0.5);
  const isRestart = !isViolent && random.chance(0.15);
  const endMs = random.pick(isViolent ? [2_000, 4_000] : [4_000, 8_000, 12_000]);
  const callers = 2 + random.below(5);
  const requests = random.pick([40, 80, 160]);
  const latencyMs = random.pick([0.6, 0.6, 3, 15]);
  const count = isViolent ? 6 + random.below(12) : random.below(9);
  const faults = Array.from({ length: count }, () => {
    const kind = isRestart ? random.pick(rolling) : random.weighted(faultKinds);
    return faultOf(random, kind, random.between(300, endMs - 500), durationOf(random, isViolent ? 1_500 : 9_000));
  });
  const plan = {
    seed,
    gateways: 2 + random.below(2),
    services: isRestart ? 3 : 1 + random.below(3),
    pets: 4 + random.below(9),
    callers,
    endMs,
    pauseMs: Math.round((callers * endMs) / requests),
    hotShare: random.pick([0, 0.3, 0.8]),
    hasRedis: random.chance(0.7),
    ...limitsOf(random),
    keepsHistory: random.chance(0.8),
    timeoutMs: random.pick(isRestart || latencyMs > 1 ? [1_000, 2_000, 5_000] : [300, 1_000, 5_000]),
    keyedTimeoutMs: random.pick([1_000, 5_000, 30_000]),
    silenceMs: random.pick([1_000, 3_000, 5_000]),
    maxQueued: isViolent && random.chance(0.3) ? 8 : 10_000,
    maxConnectionAgeMs: random.chance(0.3) ? Math.round(random.between(2_000, 15_000)) : 300_000,
    latencyMs,
    dayOffsetMs: 0,
    faults,
  };
  const special = { ...plan, ...specialOf(plan, random), dayOffsetMs: random.below(60_000) };
  return { ...special, faults: special.faults.toSorted((a, b) => a.atMs - b.atMs) };
}

/** What more than half of the seeds have in place of what they would have: chance alone would bring it too seldom. */
function specialOf({ seed, callers, faults }: Plan, random: Random): Partial<Plan> {
  const isOther = Math.floor(seed / 16) % 2 === 1;
  switch (seed % 16) {
    case 0: {
      // A revocation, and more than the time that it may take. Gateways get the answers to look-ups that began before
      // it only afterwards, and later none. Or one gets none, and the stock's database holds up requests.
      const revocation = faultOf(
        random,
        "revoke a key",
        isOther ? random.between(1_500, 3_500) : random.between(4_900, 5_600),
        0,
      );
      const of = (kind: FaultKind, afterMs: number, forMs: number) =>
        faultOf(random, kind, revocation.atMs + afterMs, forMs);
      const late = (which: number) => [
        { ...of("hold keys to gateway", -1_300, 4_850), which },
        { ...of("hold gateway and keys", 4_500, 8_000), which },
      ];
      const away = isOther
        ? [of("hold gateway and keys", 500, 11_500), of("freeze the stock's database", 5_500, 4_900)]
        : [0, 1, 2].flatMap(late);
      // Sometimes the clock of a gateway is set back at that time.
      const isBack = random.chance(0.3);
      const back = { ...of("set a clock", random.between(-300, 800), 0), which: 5 * random.below(6), other: 5 };
      const times = { endMs: revocation.atMs + 12_700, pauseMs: 135 * callers, timeoutMs: 5_000 };
      if (random.chance(0.3)) {
        // Two gateways get no stream to the only service while a look-up of the key is good, and until it is dead.
        const away = [0, 1].map((which) => {
          const [breakMs, endMs] = [random.between(5_500, 7_500), random.between(10_400, 11_500)];
          return { ...of("lose gateway to service", 2 * breakMs - endMs, 2 * (endMs - breakMs)), which };
        });
        return { ...times, services: 1, faults: [revocation, ...away] };
      }
      const all = [revocation, ...away, ...(isBack ? [back] : []), ...faults.slice(0, 4)];
      return { ...times, hasRedis: !isBack, faults: all };
    }
    case 1: {
      // A service freezes for long while it writes, over a slow way to the database.
      const slow = { ...faultOf(random, "slow service to database", 1_000, 400), other: seed };
      const frozen = { ...slow, kind: "freeze a service", atMs: 1_200, forMs: 5_000 } as const;
      const dense = { services: 2, latencyMs: 0.6, pauseMs: 20 * callers };
      return { ...dense, endMs: 4_000, silenceMs: 1_000, faults: [slow, frozen] };
    }
    case 2: {
      // Many questions under way while streams, connections or a service end, of which no caller may notice anything.
      const dense = { callers: 5, endMs: 4_000, pauseMs: 30, timeoutMs: 5_000, latencyMs: 15, services: 2 };
      const replacement = faultOf(random, "replace a service", random.between(300, 3_000), 0);
      return { ...dense, faults: isOther ? [replacement] : [] };
    }
    case 3: {
      // Streams end while their service is frozen, or waits for its database, and many questions are under way on them.
      const kind = isOther ? "slow service to database" : "freeze a service";
      const at = (atMs: number) => faultOf(random, kind, atMs + random.between(0, 1_500), random.between(800, 2_500));
      const dense = { callers: 5, pauseMs: 120, pets: 4, hotShare: 0.8, latencyMs: 15, timeoutMs: 5_000, services: 2 };
      return { ...dense, endMs: 10_000, faults: [at(5_500), at(7_500)] };
    }
    case 4: {
      // Many callers of one entry, whose updates come late to one of the services, or wait there for the lock. Streams
      // begin meanwhile, and the clocks of the services are slow.
      const kind = isOther ? "lock the head" : "slow gateway to service";
      const late = [1_000, 2_500].map((atMs) => faultOf(random, kind, atMs, random.between(400, 1_400)));
      const hurried = { timeoutMs: 300, latencyMs: 0.6, services: 2, hotShare: 0.8 };
      const times = { endMs: 4_500, pauseMs: 30 * callers, maxConnectionAgeMs: 1_500 };
      const slew = { ...faultOf(random, "slew the clocks", 300, 4_200), other: 0 };
      return { ...times, ...hurried, faults: [slew, ...late] };
    }
    case 5: {
      // Many callers of one entry, while no service is told what became of some transactions. In the other case the
      // database is away when they are repeated.
      const kinds = ["lose sessions after COMMIT", "lose sessions before COMMIT", "fail over the database"] as const;
      const lost = [500, 1_500, 2_500].map((atMs) => {
        return faultOf(random, random.pick(kinds), atMs + random.between(0, 500), random.between(200, 900));
      });
      const away = [500, 4_500].map((atMs) => {
        return { ...faultOf(random, "fail over the database", atMs, random.between(2_500, 3_500)), other: 2 };
      });
      const dense = { latencyMs: 0.6, hotShare: 0.8, pauseMs: 31 * callers };
      if (isOther) return { ...dense, endMs: 9_000, timeoutMs: 5_000, faults: away };
      return { ...dense, endMs: 4_000, timeoutMs: 1_000, faults: lost };
    }
    case 6: {
      // A restore, after which all load the list again. In the other case their streams break meanwhile.
      const restore = faultOf(random, "restore the database", random.between(500, 2_000), random.between(300, 1_500));
      const times = { endMs: 6_000, pauseMs: 40 * callers };
      if (!isOther) return { ...times, faults: [restore, ...faults.slice(0, 2)] };
      const cuts = Array.from({ length: 4 }, () => {
        return faultOf(random, "cut gateway and service", restore.atMs + restore.forMs, 2_500);
      });
      return { ...times, latencyMs: 15, timeoutMs: 5_000, faults: [restore, ...cuts] };
    }
    case 7: {
      // Several servers take writes, and the answers of one of them come late, within a transaction too.
      const overlap = faultOf(random, "let writers overlap", 300, 7_500);
      const kind = isOther ? "hold database to service" : "slow service to database";
      const late = [1_000, 2_500, 4_000].map((atMs) => {
        return faultOf(random, kind, atMs + random.between(0, 500), random.between(400, 950));
      });
      const dense = { services: 2, latencyMs: 0.6, pauseMs: 30 * callers, hotShare: 0.8, silenceMs: 1_000 };
      const timeoutMs = isOther ? 2_000 : 300;
      return { ...dense, endMs: 5_500, timeoutMs, faults: [{ ...overlap, which: 3 }, ...late] };
    }
    case 8: {
      // Some connections break for one side alone. What it has sent comes late, after what it sends to another service.
      const kinds = ["lose gateway to service", "lose gateway to service", "lose service to database"] as const;
      const lost = [500, 2_000, 3_500].map((atMs) => {
        return faultOf(random, random.pick(kinds), atMs + random.between(0, 500), random.between(100, 1_500));
      });
      const dense = { services: 2, latencyMs: 0.6, pauseMs: 32 * callers, hotShare: 0.8, pets: 4 };
      return { ...dense, endMs: 5_500, timeoutMs: random.pick([300, 1_000, 5_000]), faults: lost };
    }
    case 9: {
      // Gateways are replaced one after the other while some requests wait for a change.
      const of = (atMs: number) => faultOf(random, "replace a gateway", atMs + random.between(0, 1_500), 0);
      const rolling = [of(700), of(3_500), ...(isOther ? [of(5_000)] : [])];
      return { services: 2, pets: 8, endMs: 8_000, pauseMs: 130 * callers, timeoutMs: 5_000, faults: rolling };
    }
    default:
      return {};
  }
}

/** In some plans a day of the account ends its requests in the first minute, or in the second one. */
function limitsOf(random: Random): Pick<Plan, "limit" | "limitPerDay"> {
  const limit = 6 + random.below(24);
  return { limit, limitPerDay: random.chance(0.25) ? Math.ceil(limit * random.between(0.5, 1.5)) : 100_000_000 };
}

function faultOf(random: Random, kind: FaultKind, atMs: number, forMs: number): Fault {
  return { atMs: Math.round(atMs), kind, forMs: Math.round(forMs), which: random.below(60), other: random.below(60) };
}

const rolling = ["replace a gateway", "replace a service", "change the pepper"] as const;

/** Whether processes are replaced and nothing fails, which no caller may notice. */
export function isRolling({ faults, gateways, services, timeoutMs }: Plan): boolean {
  const isReplacement = (kind: FaultKind) => (rolling as readonly FaultKind[]).includes(kind);
  const isReplaced = faults.length > 0 && faults.every(({ kind }) => isReplacement(kind));
  // Messages of a service that leaves are late by 150 ms, so two answers in a row take longer than 300 ms.
  return isReplaced && gateways > 1 && services > 1 && timeoutMs >= 1_000;
}

/** Mostly about as long as the time-outs of the product. */
function durationOf(random: Random, mostMs: number): number {
  const longest = Math.min(random.pick([50, 400, 1_500, 5_000, 9_000]), mostMs);
  return random.between(longest / 10, longest);
}
