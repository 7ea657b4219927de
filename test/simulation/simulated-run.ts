/** One run: a system, its callers and its faults in virtual time, and what the oracle says of it. */
import { keyMigrations } from "../../gateway/accounts/cli/account-migrations.ts";
import { createKeyAdmin } from "../../gateway/accounts/cli/key-admin.ts";
import { createKey, storedKey } from "../../gateway/accounts/keys/key-format.ts";
import { stockMigrations } from "../../inventory-svc/stock/stock-migrations.ts";
import { StockStore } from "../../inventory-svc/stock/stock-store.ts";
import { type Migration, migrate } from "../../runtime/database/migrations.ts";
import { databaseDefaults, openDatabase } from "../../runtime/database/open.ts";
import { type CallerWorld, HttpCaller, restartNumbers, runInternalCaller } from "./callers.ts";
import { DatabaseServer } from "./database.ts";
import { meet, takeEvents } from "./events.ts";
import { useNetwork } from "./mysql2-driver.ts";
import { type AskedChange, type Commit, judge, type Read, type Version } from "./oracle.ts";
import type { Fault, FaultKind, Plan } from "./plan.ts";
import { Random } from "./random.ts";
import { useServices } from "./rpc.ts";
import { type SimulatedProcess, startGateway, startService } from "./simulated-processes.ts";
import { Network } from "./virtual-network.ts";
import { Host, note, nowMs, pause, runIn, simulate, Trace } from "./virtual-time.ts";

const pepper = "a pepper of the simulation, which is long enough";

/** What every run begins with: databases with their schemas, some entries, and a key. */
interface Start {
  readonly stock: Buffer;
  readonly keys: Buffer;
  readonly key: string;
}

let start: Promise<Start> | undefined;

const petsAtStart = Array.from({ length: 12 }, (_, i) => BigInt(i + 1));

function makeStart(): Promise<Start> {
  const setUp = new Host("set-up");
  const onUncaught = (error: unknown) => {
    throw error;
  };
  const migrated = async (schema: string, migrations: readonly Migration[]) => {
    const db = openDatabase("sqlite::memory:");
    await migrate(db, schema, migrations, "up");
    return db;
  };
  const imageOf = async (db: Awaited<ReturnType<typeof migrated>>) => {
    return ((await db.client.acquireConnection()) as { serialize(): Buffer }).serialize();
  };
  return simulate({ seed: 1, onUncaught }, () =>
    runIn(setUp, async () => {
      const stock = await migrated("inventory", stockMigrations);
      const entry = { kind: "put", quantity: 50, status: "available" } as const;
      await new StockStore(stock).write(petsAtStart.map((petId) => ({ ...entry, petId })));
      const keys = await migrated("gateway", keyMigrations);
      const key = createKey("live", pepper);
      await createKeyAdmin(keys, Date.now).issue({
        account: "callers",
        plan: "enterprise",
        limits: { perMinute: 1_000_000, perDay: 100_000_000 },
        scopes: ["inventory:read", "inventory:write"],
        ...storedKey(key, pepper),
      });
      return { stock: await imageOf(stock), keys: await imageOf(keys), key };
    }),
  );
}

export interface RunResult {
  readonly hash: string;
  readonly violations: readonly string[];
  readonly events: Readonly<Record<string, number>>;
  readonly virtualMs: number;
  readonly requests: number;
}

/** Runs a plan. @param print gets each line of the trace */
export async function run(plan: Plan, print?: (line: string) => void): Promise<RunResult> {
  start ??= makeStart();
  const begun = await start;
  const trace = new Trace(print);
  takeEvents();
  const system = new System(plan, begun);
  const onUncaught = (error: unknown, host: Host | undefined) => {
    system.fail(`${host?.name ?? "a process"} would have ended: ${(error as Error).stack ?? error}`);
  };
  let virtualMs = 0;
  try {
    await simulate({ seed: plan.seed, trace, onUncaught }, async () => {
      await system.run();
      virtualMs = nowMs();
    });
  } catch (error) {
    system.fail(`the run did not end: ${(error as Error).stack}`);
  }
  const violations = [...system.violations, ...judge(system)];
  return {
    hash: trace.hash,
    violations,
    events: takeEvents(),
    virtualMs,
    requests: system.reads.length + system.changes.length,
  };
}

/** A process by its place, which others take after it. */
type Slot = { running: SimulatedProcess; readonly start: () => SimulatedProcess };

class System {
  readonly commits: Commit[] = [];
  readonly changes: AskedChange[] = [];
  readonly reads: Read[] = [];
  readonly violations: string[] = [];
  readonly #plan: Plan;
  readonly #start: Start;
  readonly #network: Network;
  readonly #random: Random;
  #stock!: DatabaseServer;
  #keys!: DatabaseServer;
  #gateways: Slot[] = [];
  #services: Slot[] = [];
  #isOver = false;

  constructor(plan: Plan, begun: Start) {
    this.#plan = plan;
    this.#start = begun;
    this.#random = new Random(plan.seed ^ 0x51f15eed);
    this.#network = new Network(new Random(plan.seed ^ 0x7e7));
  }

  fail(what: string): void {
    this.violations.push(what);
    note(`VIOLATION ${what}`);
  }

  async run(): Promise<void> {
    const { services, gateways, callers, endMs, faults, timeoutMs, keyedTimeoutMs } = this.#plan;
    const network = this.#network;
    restartNumbers();
    useNetwork(network);
    const names = Array.from({ length: services }, (_, i) => `service-${i}`);
    useServices(network, names);
    this.#openStock(this.#start.stock);
    this.#keys = new DatabaseServer("keys-db", network, "keys", this.#start.keys, new Random(this.#plan.seed ^ 0xd2));
    this.#look(true);
    this.#services = names.map((name) => slot(() => startService(network, name, this.#plan)));
    const settings = { pepper, redisUrl: undefined, replicas: gateways, timeoutMs, keyedTimeoutMs };
    this.#gateways = Array.from({ length: gateways }, (_, i) => {
      return slot(() => startGateway(network, `gateway-${i}`, settings));
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
      key: this.#start.key,
      isOver: () => this.#isOver,
      changes: this.changes,
      reads: this.reads,
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
    ];
    const injected = faults.map(async (fault) => {
      await pause(fault.atMs);
      await followed(fault.kind, this.#inject(fault));
    });
    await pause(endMs - (nowMs() - beganMs));
    this.#isOver = true;
    note("callers stop");
    const ended = Promise.all([...injected, ...all]).then(() => true);
    if (!(await Promise.race([ended, pause(120_000)])))
      throw new Error(`two minutes later there wait: ${[...waiting]}`);
    await this.#untilReady("at the end");
    await this.#readLast(world);
    await this.#stopAll();
  }

  #openStock(image: Buffer): void {
    this.#stock = new DatabaseServer("stock-db", this.#network, "stock", image, new Random(this.#plan.seed ^ 0xd1));
    const server = this.#stock;
    server.onCommit = () => server === this.#stock && this.#look(false);
  }

  /** Notes the state of the stock after a commit, if that has changed it. */
  #look(isWhole: boolean): void {
    const { sqlite } = this.#stock;
    const head = sqlite.prepare("select epoch, revision from stock_head").get() as Pick<Commit, "epoch" | "revision">;
    const last = this.commits.at(-1);
    if (last?.revision === head.revision && last.epoch === head.epoch) return;
    const from = isWhole ? -1n : last!.revision;
    const rows = sqlite
      .prepare(
        "select pet_id as petId, quantity, status, revision, removed from stock where revision > ? order by revision",
      )
      .all(from) as Record<keyof Version, never>[];
    this.commits.push({
      ...head,
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

  /** Once all faults are over, every gateway shows the latest state. */
  async #readLast(world: CallerWorld): Promise<void> {
    await pause(20_000); // lost connections are noticed after 15 s
    for (const gateway of this.#gateways) {
      const before = this.reads.length;
      const caller = new HttpCaller("last", { ...world, gateways: [gateway.running] });
      await caller.readOnce();
      if (this.reads.length === before) this.fail(`at rest, ${gateway.running.host.name} does not serve the list`);
    }
  }

  async #stopAll(): Promise<void> {
    for (const { running } of [...this.#gateways, ...this.#services]) {
      const left = await Promise.race([running.stop(), pause(30_000)]);
      if (!left) this.fail(`the stop of ${running.host.name} does not end`);
      else if (left.length > 0) this.fail(`${running.host.name} has stopped with connections to ${left}`);
    }
  }

  /** Lets a fault happen, and ends it. */
  async #inject({ kind, forMs, which, other }: Fault): Promise<void> {
    const gateway = this.#gateways[which % this.#gateways.length]!;
    const service = this.#services[other % this.#services.length]!;
    note(`FAULT ${kind} ${which} ${other} for ${forMs}`);
    meet(kind);
    const network = this.#network;
    const held = async (from: string, to: string) => {
      network.setHeld({ name: from }, { name: to }, true);
      await pause(forMs);
      network.setHeld({ name: from }, { name: to }, false);
    };
    const frozen = async (host: Host) => {
      host.freeze();
      await pause(forMs);
      host.thaw();
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
      await Promise.race([running.stop(), pause(45_000)]);
      if (hit.running !== running) return;
      hit.running = hit.start();
    };
    const gatewayName = gateway.running.host.name;
    const serviceName = service.running.host.name;
    const faults: Record<FaultKind, () => Promise<void>> = {
      "freeze a gateway": () => frozen(gateway.running.host),
      "freeze a service": () => frozen(service.running.host),
      "freeze the stock's database": () => frozen(this.#stock.host),
      "freeze the keys' database": () => frozen(this.#keys.host),
      "kill a gateway": () => killed(gateway, false),
      "kill a service": () => killed(service, false),
      "lose the machine of a service": () => killed(service, true),
      "replace a gateway": () => replaced(gateway),
      "replace a service": () => replaced(service),
      "hold gateway to service": () => held(gatewayName, serviceName),
      "hold service to gateway": () => held(serviceName, gatewayName),
      "cut gateway and service": async () => network.cut({ name: gatewayName }, { name: serviceName }),
      "hold service to database": () => held(serviceName, "stock-db"),
      "hold database to service": () => held("stock-db", serviceName),
      "cut service and database": async () => network.cut({ name: serviceName }, { name: "stock-db" }),
      "hold gateway and keys": async () => {
        await Promise.all([held(gatewayName, "keys-db"), held("keys-db", gatewayName)]);
      },
      "make commits fail": async () => {
        const { faults } = this.#stock;
        const probability = 0.1 + (which % 4) / 10;
        faults[(["deadlock", "lostBefore", "lostAfter"] as const)[other % 3]!] = probability;
        await pause(forMs);
        Object.assign(faults, { deadlock: 0, lostBefore: 0, lostAfter: 0 });
      },
      "fail over the database": async () => {
        const old = this.#stock;
        old.host.crash();
        network.drop(old.host, other % 3 === 0);
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
      "set a clock": async () => {
        const { host } = (which % 2 ? gateway : service).running;
        host.skewMs += (other - 30) * 1_000;
      },
    };
    await faults[kind]();
    note(`END ${kind}`);
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
    this.#openStock(backup);
    this.#stock.onCommit = () => {};
    const operator = new Host("operator");
    await runIn(operator, async () => {
      const db = openDatabase("mysql://petstore:petstore@stock/stock", databaseDefaults);
      await new StockStore(db).beginEpoch();
      await db.destroy();
    });
    const server = this.#stock;
    this.#look(true);
    server.onCommit = () => server === this.#stock && this.#look(false);
    for (const service of this.#services) service.running = service.start();
  }
}

function slot(begin: () => SimulatedProcess): Slot {
  return { running: begin(), start: begin };
}
