/** One run: a system, its callers and its faults in virtual time, and what the oracle says of it. */

import type { ApplyChangesRequest } from "../../proto/gen/petstore/inventory/v1/inventory.ts";
import { ApiSender, revocationMs } from "./api-sender.ts";
import { type CallerWorld, type LimitedRequest, restartNumbers } from "./caller-world.ts";
import { HttpCaller } from "./callers.ts";
import { type DatabaseFaults, DatabaseServer } from "./database.ts";
import { meet, takeEvents } from "./events.ts";
import { type FirstState, firstState, pepper } from "./first-state.ts";
import { runInternalCaller, runWatch } from "./internal-callers.ts";
import { judgeLimits, limitRules, minuteEndMs } from "./limits-oracle.ts";
import { LookUps } from "./look-ups-oracle.ts";
import { useNetwork } from "./mysql2-driver.ts";
import { beginEpoch, lockHead, revokeKeys } from "./operators.ts";
import { type AskedChange, type Commit, judge, type Read, type Version } from "./oracle.ts";
import { type Fault, type FaultKind, isRolling, type Plan } from "./plan.ts";
import { Random } from "./random.ts";
import { RedisServer, useRedisNetwork } from "./redis-model.ts";
import { checkRest } from "./rest.ts";
import { useServices } from "./rpc-client.ts";
import { type SimulatedProcess, startGateway, startService } from "./simulated-processes.ts";
import { Network } from "./virtual-network.ts";
import { type Host, note, nowMs, pause, simulate, Trace } from "./virtual-time.ts";
import { judgeWaits } from "./waits-oracle.ts";

export interface RunResult {
  readonly hash: string;
  readonly violations: readonly string[];
  readonly events: Readonly<Record<string, number>>;
  readonly virtualMs: number;
  readonly requests: number;
}

/** Runs a plan. @param print gets each line of the trace */
export async function run(plan: Plan, print?: (line: string) => void): Promise<RunResult> {
  const begun = await firstState();
  const trace = new Trace(print);
  takeEvents();
  const system = new System(plan, begun);
  const onUncaught = (error: unknown, host: Host | undefined) => {
    system.fail(`${host?.name ?? "a process"} would have ended: ${(error as Error).stack ?? error}`);
  };
  let virtualMs = 0;
  try {
    await simulate({ seed: plan.seed, dayOffsetMs: plan.dayOffsetMs, trace, onUncaught }, async () => {
      await system.run();
      virtualMs = nowMs();
    });
  } catch (error) {
    system.fail(`the run did not end: ${(error as Error).stack}`);
  }
  const violations = [
    ...system.violations,
    ...judge(system),
    ...(plan.faults.length === 0 ? judgeWaits(system) : []),
    ...judgeLimits(system.limited, limitRules(plan, begun.limitedAccount)),
    ...system.lookUps.judge(plan),
  ];
  system.close();
  return {
    hash: trace.hash,
    violations,
    events: takeEvents(),
    virtualMs,
    requests: system.reads.length + system.changes.length,
  };
}

/** How much faster or slower a clock runs: two of them differ by less than 0.5 %, as `docs/guarantees.md` asks for. */
const maxSlew = 0.0022;

/** How long a process may take to leave where nothing fails: longer than any request that waits for no change. */
const longestStopMs = 10_000;

/** Internal callers that keep a copy of the stock. */
const watches = ["watch-0", "watch-1"];

/** A process by its place, which others take after it. */
type Slot = { running: SimulatedProcess; readonly start: () => SimulatedProcess };

class System {
  readonly commits: Commit[] = [];
  readonly floors: { readonly atMs: number; readonly revision: bigint }[] = [];
  readonly changes: AskedChange[] = [];
  readonly reads: Read[] = [];
  readonly lookUps = new LookUps();
  readonly violations: string[] = [];
  limited: readonly LimitedRequest[] = [];
  readonly #revoked = new Map<string, { readonly callMs: number; readonly returnMs: number }>();
  readonly #plan: Plan;
  readonly #start: FirstState;
  readonly #network: Network;
  readonly #random: Random;
  #stock!: DatabaseServer;
  #keys!: DatabaseServer;
  readonly #databases: DatabaseServer[] = [];
  #redis!: RedisServer;
  #gateways: Slot[] = [];
  /** Of the gateways that start from now on: that of new keys first. */
  #peppers: readonly [string, string] = [pepper, `not ${pepper}`];
  #services: Slot[] = [];
  #isOver = false;
  /** What happens in the next COMMIT. */
  readonly #onCommit = new Set<() => void>();
  /** While this lasts, commits belong to the restored state. */
  #isRestoring = false;

  constructor(plan: Plan, begun: FirstState) {
    this.#plan = plan;
    this.#start = begun;
    this.#random = new Random(plan.seed ^ 0x51f15eed);
    this.#network = new Network(new Random(plan.seed ^ 0x7e7), plan.latencyMs);
  }

  fail(what: string): void {
    this.violations.push(what);
    note(`VIOLATION ${what}`);
  }

  async run(): Promise<void> {
    const { services, gateways, callers, endMs, faults, hasRedis, timeoutMs, keyedTimeoutMs } = this.#plan;
    const network = this.#network;
    restartNumbers();
    useNetwork(network);
    const names = Array.from({ length: services }, (_, i) => `service-${i}`);
    useServices(network, names, (method, message) => {
      if (method === "applyChanges") this.#judgeSent(message as ApplyChangesRequest);
    });
    this.#openStock(this.#start.stock);
    this.#keys = this.#openDatabase("keys", this.#start.keys, 0xd2);
    this.#keys.onRead = (statement, [row]) => this.lookUps.note(statement, row);
    this.#keys.sqlite
      .prepare("update accounts set per_minute = ?, per_day = ? where id = ?")
      .run(this.#plan.limit, this.#plan.limitPerDay, this.#start.limitedAccount);
    useRedisNetwork(network);
    this.#redis = new RedisServer(network);
    this.#look(true);
    this.#services = names.map((name) => slot(() => startService(network, name, this.#plan)));
    const settings = { hasRedis, replicas: gateways, timeoutMs, keyedTimeoutMs };
    this.#gateways = Array.from({ length: gateways }, (_, i) => {
      return slot(() => startGateway(network, `gateway-${i}`, { ...settings, peppers: this.#peppers }));
    });
    await this.#untilReady("at the start");

    const running = this.#gateways;
    const world: CallerWorld = {
      ...this.#plan,
      network,
      random: this.#random,
      get gateways() {
        return running.map((gateway) => gateway.running);
      },
      keyOf: (name) => this.#start.apiKeys.get(name)!,
      revoked: this.#revoked,
      isOver: () => this.#isOver,
      latest: () => this.commits.at(-1)!,
      minuteEndMs: (atMs) => minuteEndMs(atMs, this.#start.limitedAccount),
      changes: this.changes,
      reads: this.reads,
      usedKeys: [],
      judgesOfUse: [],
      // For an update whose body comes late, and before a repeat, it is looked up again.
      lookUpMs: faults.some(({ kind }) => /keys/.test(kind)) ? 2 * 2_000 : 0,
      isServed: faults.length === 0 || isRolling(this.#plan),
      keepsRecords: faults.every(({ kind }) => kind !== "restore the database"),
      hasTrueClocks: faults.every(({ kind }) => kind !== "set a clock"),
      fail: (what) => this.fail(what),
    };
    const beganMs = nowMs();
    const waiting = new Set<string>();
    const followed = (name: string, work: Promise<unknown>) => {
      waiting.add(name);
      return work.finally(() => waiting.delete(name));
    };
    const all = [
      ...Array.from({ length: callers }, (_, i) => followed(`caller-${i}`, new HttpCaller(`caller-${i}`, world).run())),
      followed("internal", runInternalCaller("internal", world)),
      ...watches.map((name) => followed(name, runWatch(name, world))),
      followed("limited", new ApiSender("limited", world).hammer()).then((requests) => {
        this.limited = requests as readonly LimitedRequest[];
      }),
    ];
    // A rolling restart replaces one process after the other.
    let last: Promise<unknown> = Promise.resolve();
    const injected = faults.map(async (fault) => {
      await pause(fault.atMs);
      if (isRolling(this.#plan)) last = last.then(() => this.#inject(fault));
      else last = this.#inject(fault);
      await followed(fault.kind, last);
    });
    await pause(endMs - (nowMs() - beganMs));
    this.#isOver = true;
    note("callers stop");
    const ended = Promise.all([...injected, ...all]).then(() => true);
    if (!(await Promise.race([ended, pause(120_000)])))
      throw new Error(`two minutes later there wait: ${[...waiting]}`);
    await this.#untilReady("at the end");
    const restore = async () => {
      await this.#restore(0);
      await this.#untilReady("after a restore");
    };
    await checkRest(world, { hasRedis, restore });
    await this.#stopAll();
  }

  /** No change is sent for an account whose keys were revoked ten seconds before. */
  #judgeSent({ groups }: ApplyChangesRequest): void {
    for (const [name, { returnMs }] of this.#revoked) {
      if (nowMs() <= returnMs + revocationMs) continue;
      const { accountId } = this.#start.apiKeys.get(name)!;
      if (groups.some(({ account }) => account === accountId)) this.fail(`a change of ${name} is sent with a dead key`);
    }
  }

  #openDatabase(address: string, image: Buffer, salt: number): DatabaseServer {
    const random = new Random(this.#plan.seed ^ salt);
    const database = new DatabaseServer(`${address}-db`, this.#network, address, image, random);
    this.#databases.push(database);
    return database;
  }

  /** Frees what V8 does not see of the databases. */
  close(): void {
    for (const { sqlite } of this.#databases) sqlite.close();
  }

  #openStock(image: Buffer): void {
    this.#stock = this.#openDatabase("stock", image, 0xd1);
    const server = this.#stock;
    server.onCommit = () => {
      if (server !== this.#stock || this.#isRestoring) return;
      this.#look(false);
      for (const work of this.#onCommit) work();
    };
  }

  /** Does something within the next COMMIT, before the answer to it; after this time also without a COMMIT. */
  #inCommit(work: () => void, withinMs: number): Promise<void> {
    return new Promise((resolve) => {
      const once = () => {
        if (!this.#onCommit.delete(once)) return;
        work();
        resolve();
      };
      this.#onCommit.add(once);
      void pause(withinMs).then(once);
    });
  }

  /** Notes the state of the stock after a commit, if that has changed it. */
  #look(isWhole: boolean): void {
    const stock = this.#stock;
    const [head] = stock.read<Commit & { floor: bigint }>("select epoch, revision, floor from stock_head");
    if (head!.floor !== this.floors.at(-1)?.revision) this.floors.push({ atMs: nowMs(), revision: head!.floor });
    const last = this.commits.at(-1);
    if (last?.revision === head!.revision && last.epoch === head!.epoch) return;
    const rows = stock.read<Record<keyof Version, never>>(
      "select pet_id as petId, quantity, status, revision, removed from stock where revision > ? order by revision",
      isWhole ? -1n : last!.revision,
    );
    const { epoch, revision } = head!;
    this.commits.push({
      epoch,
      revision,
      atMs: nowMs(),
      isRestore: isWhole && last !== undefined,
      rows: rows.map((row) => ({
        ...row,
        petId: Number(row.petId),
        quantity: Number(row.quantity),
        removed: Number(row.removed) === 1,
      })),
    });
  }

  /** Everything is whole by now: within seconds all processes can serve. */
  async #untilReady(when: string): Promise<void> {
    const sinceMs = nowMs();
    const all = [...this.#services, ...this.#gateways];
    while (!all.every(({ running }) => running.isReady)) {
      await pause(50);
      if (nowMs() - sinceMs < 60_000) continue;
      const away = all.filter(({ running }) => !running.isReady).map(({ running }) => running.host.name);
      throw new Error(`not ready after a minute, ${when}: ${away}`);
    }
  }

  async #stopAll(): Promise<void> {
    for (const { running } of [...this.#gateways, ...this.#services]) {
      const left = await Promise.race([running.stop(), pause(30_000)]);
      if (!left) this.fail(`the stop of ${running.host.name} does not end`);
      else if (left.length > 0) this.fail(`${running.host.name} has stopped and left ${left}`);
    }
  }

  /** Lets a fault happen, and ends it. */
  async #inject({ kind, forMs, which, other }: Fault): Promise<void> {
    const gateway = this.#gateways[which % this.#gateways.length]!;
    const service = this.#services[other % this.#services.length]!;
    note(`FAULT ${kind} for ${forMs}, at ${gateway.running.host.name} or ${service.running.host.name}`);
    meet(kind);
    const network = this.#network;
    const held = async (from: string, to: string) => {
      network.setHeld({ name: from }, { name: to }, true);
      await pause(forMs);
      network.setHeld({ name: from }, { name: to }, false);
    };
    const slow = async (from: string, to: string, lastsMs = forMs) => {
      network.setDelay({ name: from }, { name: to }, forMs);
      await pause(lastsMs);
      network.setDelay({ name: from }, { name: to }, 0);
    };
    const flapping = async (from: string, to: string) => {
      const gapMs = 20 + other;
      for (let leftMs = forMs; leftMs > 0; leftMs -= gapMs) {
        network.cut({ name: from }, { name: to });
        await pause(gapMs);
      }
    };
    const lost = async (from: string, to: string) => {
      network.setHeld({ name: from }, { name: to }, true);
      await pause(forMs / 2);
      network.lose({ name: from }, { name: to }, 40 * other);
      await pause(forMs / 2);
      network.setHeld({ name: from }, { name: to }, false);
    };
    const frozen = async (host: Host) => {
      host.freeze();
      await pause(forMs);
      host.thaw();
    };
    const failing = async (how: keyof DatabaseFaults) => {
      const { faults } = this.#stock;
      faults[how] = 0.1 + (which % 4) / 10;
      await pause(forMs);
      faults[how] = 0;
    };
    const killed = async (hit: Slot, isSilent: boolean) => {
      const { host } = hit.running;
      host.crash();
      hit.running.isReady = false;
      network.drop(host, isSilent);
      await pause(forMs);
      if (hit.running.host === host) hit.running = hit.start();
    };
    const replaced = async (hit: Slot) => {
      const { running } = hit;
      if (running.host.isDead || !running.isReady) return;
      const beganMs = nowMs();
      await Promise.race([running.stop(), pause(45_000)]);
      const isLong = nowMs() > beganMs + longestStopMs && isRolling(this.#plan);
      if (isLong) this.fail(`${running.host.name} took ${(nowMs() - beganMs).toFixed(0)} ms to leave`);
      if (hit.running !== running) return;
      hit.running = hit.start();
    };
    const gatewayName = gateway.running.host.name;
    const serviceName = service.running.host.name;
    const callerName = `caller-${other % this.#plan.callers}`;
    /** All that call services: gateways, and internal callers. */
    const clientNames = [...this.#gateways.map(({ running }) => running.host.name), "internal", ...watches];
    const clientName = clientNames[which % clientNames.length]!;
    const faults: Record<FaultKind, () => Promise<void>> = {
      "freeze a gateway": () => frozen(gateway.running.host),
      "freeze a service": () => frozen(service.running.host),
      "freeze the stock's database": () => frozen(this.#stock.host),
      "freeze the keys' database": () => frozen(this.#keys.host),
      "kill a gateway": () => killed(gateway, false),
      "lose the machine of a gateway": () => killed(gateway, true),
      "kill a service": () => killed(service, false),
      "lose the machine of a service": () => killed(service, true),
      "replace a gateway": () => replaced(gateway),
      "replace a service": async () => {
        // So late do its clients hear that it leaves: some of them still call it.
        for (const name of clientNames) network.setDelay({ name: serviceName }, { name }, 150);
        await replaced(service);
        for (const name of clientNames) network.setDelay({ name: serviceName }, { name }, 0);
      },
      "hold gateway to service": () => held(clientName, serviceName),
      "hold service to gateway": () => held(serviceName, clientName),
      // So long that a stream which opens meanwhile carries questions that are late, too.
      "slow gateway to service": () => slow(clientName, serviceName, 3 * forMs),
      "slow service to gateway": () => slow(serviceName, clientName),
      "slow service to database": () => slow(serviceName, "stock-db"),
      "cut gateway and service": () => flapping(clientName, serviceName),
      "hold caller to gateway": () => held(callerName, gatewayName),
      "hold gateway to caller": () => held(gatewayName, callerName),
      "cut caller and gateway": () => flapping(callerName, gatewayName),
      "hold service to database": () => held(serviceName, "stock-db"),
      "hold database to service": () => held("stock-db", serviceName),
      "cut service and database": () => flapping(serviceName, "stock-db"),
      "hold gateway and keys": async () => {
        await Promise.all([held(gatewayName, "keys-db"), held("keys-db", gatewayName)]);
      },
      "hold keys to gateway": () => held("keys-db", gatewayName),
      "take back commits": () => failing("deadlock"),
      "let writers overlap": () => failing("overtaken"),
      "lose sessions before COMMIT": () => failing("lostBefore"),
      "lose sessions after COMMIT": () => failing("lostAfter"),
      "lock the head": () => lockHead(forMs),
      "lose gateway to service": () => lost(clientName, serviceName),
      "lose service to database": () => lost(serviceName, "stock-db"),
      "fail over the database": async () => {
        const old = this.#stock;
        const crash = () => {
          old.host.crash();
          network.drop(old.host, other % 3 === 0);
        };
        if (other % 2 === 0) await this.#inCommit(crash, 500);
        else crash();
        await pause(forMs);
        if (this.#stock === old) this.#openStock(old.sqlite.serialize());
      },
      "switch the database": async () => {
        const old = this.#stock;
        if (old.host.isDead || old.host.isFrozen) return;
        old.demote();
        this.#openStock(old.sqlite.serialize());
      },
      "restore the database": () => this.#restore(forMs),
      "freeze Redis": () => frozen(this.#redis.host),
      "restart Redis": async () => {
        this.#endRedis();
        await pause(forMs);
        if (this.#redis.host.isDead) this.#redis = new RedisServer(network); // else another fault has started one
      },
      "fail over Redis": async () => {
        const copy = this.#redis.copy();
        await pause(forMs);
        this.#endRedis();
        this.#redis = new RedisServer(network, copy);
      },
      "hold gateway to Redis": () => held(gatewayName, "redis"),
      "hold Redis to gateway": () => held("redis", gatewayName),
      "revoke a key": () => this.#revoke(`caller-${which % this.#plan.callers}`),
      "set a clock": async () => {
        const servers = [this.#stock, this.#keys, this.#redis];
        const hosts = [gateway.running.host, service.running.host, ...servers.map((server) => server.host)];
        hosts[which % hosts.length]!.skewMs += (other - 30) * 1_000;
      },
      "slew the clocks": async () => {
        const hosts = [...this.#gateways, ...this.#services].map(({ running }) => running.host);
        const share = other % 2 === 0 ? maxSlew : -maxSlew;
        for (const host of hosts) host.slew(host.name.startsWith("gateway") ? 1 + share : 1 - share);
        await pause(forMs);
        for (const host of hosts) host.slew(1);
      },
      "change the pepper": async () => {
        // As `docs/operations/keys-and-plans.md` says: all gateways take keys of both.
        this.#peppers = [this.#peppers[1], this.#peppers[0]];
        for (const one of this.#gateways) await replaced(one);
      },
    };
    await faults[kind]();
    note(`END ${kind}`);
  }

  #endRedis(): void {
    this.#redis.host.crash();
    this.#network.drop(this.#redis.host, false);
  }

  async #revoke(name: string): Promise<void> {
    const callMs = nowMs();
    this.#revoked.set(name, { callMs, returnMs: Number.POSITIVE_INFINITY });
    await revokeKeys(name);
    this.#revoked.set(name, { callMs, returnMs: nowMs() });
  }

  /** As `docs/operations/databases.md` says: stop the services, restore, begin an epoch, start the services. */
  async #restore(forMs: number): Promise<void> {
    const backup = this.#stock.sqlite.serialize();
    await pause(forMs);
    for (const { running } of this.#services) {
      running.host.crash();
      running.isReady = false;
      this.#network.drop(running.host, false);
    }
    this.#stock.host.crash();
    this.#network.drop(this.#stock.host, false);
    this.#isRestoring = true;
    this.#openStock(backup);
    await beginEpoch();
    this.#isRestoring = false;
    this.#look(true);
    for (const service of this.#services) service.running = service.start();
  }
}

function slot(begin: () => SimulatedProcess): Slot {
  return { running: begin(), start: begin };
}
