/** Those who use the system: over HTTP through the gateways, and over gRPC as internal callers. They note what they get. */
import { createInventoryClient } from "../../client/client.ts";
import { InventoryError } from "../../client/index.ts";
import type { Item } from "../../proto/pet.ts";
import { meet } from "./events.ts";
import { type HttpAnswer, type HttpOutcome, type HttpRequest, sendHttp } from "./http-calls.ts";
import type { AskedChange, Attempt, Read } from "./oracle.ts";
import type { Random } from "./random.ts";
import type { SimulatedProcess } from "./simulated-processes.ts";
import type { Network } from "./virtual-network.ts";
import { at, Host, note, nowMs, runIn } from "./virtual-time.ts";

/** What all callers share. */
export interface CallerWorld {
  readonly network: Network;
  readonly random: Random;
  readonly gateways: readonly SimulatedProcess[];
  readonly key: string;
  readonly pets: number;
  readonly pauseMs: number;
  readonly hotShare: number;
  readonly timeoutMs: number;
  readonly keyedTimeoutMs: number;
  readonly isOver: () => boolean;
  readonly changes: AskedChange[];
  readonly reads: Read[];
  readonly fail: (what: string) => void;
}

/** The longest time of a request, with what its connection and this simulation add. */
const slackMs = 1_500;

let lastNumber = 0;

/** Begins the numbers of a run, by which its changes are told apart. */
export function restartNumbers(): void {
  lastNumber = 100;
}

function nextNumber(): number {
  lastNumber += 1;
  return lastNumber;
}

const kinds = {
  list: 3,
  gzipList: 1,
  knownList: 2,
  entry: 3,
  knownEntry: 1,
  changes: 3,
  waitForList: 1,
  waitForEntry: 1,
  part: 1,
  page: 1,
  set: 4,
  setIfMatch: 2,
  bulk: 2,
  keyed: 3,
  keyedBulk: 1,
  leave: 0.5,
} as const;

/** A caller of the public API. */
export class HttpCaller {
  readonly host: Host;
  readonly #world: CallerWorld;
  /** Tags that it has got: of the list, and of entries by petId. */
  #listTag = "";
  readonly #entryTags = new Map<number, string>();

  constructor(name: string, world: CallerWorld) {
    this.host = new Host(name);
    this.#world = world;
  }

  /** Sends one request after the other until the run is over. */
  async run(): Promise<void> {
    const { random, isOver, pauseMs } = this.#world;
    while (!isOver()) {
      await this.#pause(random.chance(0.3) ? 1 : random.between(0, 2 * pauseMs));
      await this.#act(random.weighted(kinds));
    }
  }

  /** Reads the list once. */
  readOnce(): Promise<void> {
    return this.#readList({});
  }

  #pause(ms: number): Promise<void> {
    return new Promise((resolve) => at(this.host, nowMs() + ms, resolve));
  }

  #petId(): number {
    const { random, pets, hotShare } = this.#world;
    return random.chance(hotShare) ? 1 : 1 + random.below(pets);
  }

  async #act(kind: keyof typeof kinds): Promise<void> {
    const { random } = this.#world;
    switch (kind) {
      case "list":
        return this.#readList({});
      case "gzipList":
        return this.#readList({ "accept-encoding": "gzip" });
      case "knownList":
        return this.#readList(this.#listTag ? { "if-none-match": `"${this.#listTag}"` } : {});
      case "waitForList":
        if (!this.#listTag) return this.#readList({});
        return this.#readList({ "if-none-match": `"${this.#listTag}"`, prefer: `wait=${1 + random.below(8)}` });
      case "entry":
        return this.#readEntry(this.#petId(), {});
      case "knownEntry":
      case "waitForEntry": {
        const petId = this.#petId();
        const tag = this.#entryTags.get(petId);
        if (!tag) return this.#readEntry(petId, {});
        const known = { "if-none-match": `"${tag}"` };
        if (kind === "knownEntry") return this.#readEntry(petId, known);
        return this.#readEntry(petId, { ...known, prefer: `wait=${1 + random.below(8)}` });
      }
      case "changes":
        if (!this.#listTag) return this.#readList({});
        return this.#readChanges(this.#listTag, random.chance(0.2) ? { prefer: `wait=${1 + random.below(8)}` } : {});
      case "part":
        return this.#readPart([this.#petId(), this.#petId()]);
      case "page":
        return this.#readPage();
      case "set":
        return void (await this.#change([this.#petId()], {}));
      case "leave":
        return void (await this.#change([this.#petId()], {}, { leavesAfterMs: random.between(0, 30) }));
      case "setIfMatch": {
        const petId = this.#petId();
        const tag = this.#entryTags.get(petId);
        if (!tag) return this.#readEntry(petId, {});
        return void (await this.#change([petId], { "if-match": `"${tag}"` }));
      }
      case "bulk":
        return void (await this.#change(this.#somePets(), {}, { isBulk: true }));
      case "keyed":
        return this.#keyed([this.#petId()], false);
      case "keyedBulk":
        return this.#keyed(this.#somePets(), true);
    }
  }

  #somePets(): number[] {
    const { random, pets } = this.#world;
    return Array.from({ length: pets }, (_, i) => i + 1)
      .filter(() => random.chance(0.4))
      .slice(0, 5);
  }

  /** Sends a request through a gateway that is ready, if there is one, and notes what does not come in time. */
  async #send(
    request: Omit<HttpRequest, "headers"> & { readonly headers?: object },
    limitMs: number,
  ): Promise<HttpOutcome> {
    const { network, random, gateways, key, fail } = this.#world;
    const ready = gateways.filter(({ isReady }) => isReady);
    const { host } = random.pick(ready.length > 0 ? ready : gateways);
    const before = host.frozenMs;
    const startedMs = nowMs();
    // The ids that gateways make go on from run to run, and the ledger has them.
    const id = `${this.host.name}-${startedMs.toFixed(3)}`;
    const headers = { authorization: `Bearer ${key}`, "x-request-id": id, ...request.headers };
    const answer = sendHttp(network, this.host, host.name, { ...request, headers });
    const watch = () => {
      if (host.isDead || nowMs() - startedMs - (host.frozenMs - before) < limitMs + slackMs || host.isFrozen) {
        stop = at(this.host, nowMs() + 500, watch);
        return;
      }
      fail(
        `${request.method} ${request.path} of ${startedMs.toFixed(0)} at ${host.name} has no answer after ${(nowMs() - startedMs).toFixed(0)} ms`,
      );
    };
    let stop = at(this.host, nowMs() + limitMs + slackMs, watch);
    const outcome = await answer;
    stop();
    const said =
      typeof outcome === "string" ? outcome : `${outcome.status} ${outcome.headers.etag ?? ""} ${outcome.body}`;
    note(`${this.host.name} ${request.method} ${request.path} ${host.name} since ${startedMs.toFixed(3)}: ${said}`);
    meet(`answer ${typeof outcome === "string" ? outcome : outcome.status}`);
    if (typeof outcome !== "string") this.#judgeForm(request, outcome);
    return outcome;
  }

  /** Every answer has its labels, and every error the shape of the contract. */
  #judgeForm({ method, path }: Pick<HttpRequest, "method" | "path">, { status, headers, body }: HttpAnswer): void {
    const { fail } = this.#world;
    const missing = ["x-request-id", "ratelimit", "ratelimit-policy"].filter((name) => headers[name] === undefined);
    if (missing.length > 0) fail(`${method} ${path}: ${status} without ${missing}`);
    if (status >= 400 && Object.keys(JSON.parse(body)).sort().join() !== "code,message,status") {
      fail(`${method} ${path}: ${status} with ${body}`);
    }
    if (status === 500) fail(`${method} ${path}: 500 ${body}`);
  }

  async #read(
    read: Omit<Read, "callMs" | "returnMs" | "status" | "tag" | "body">,
    path: string,
    headers: Readonly<Record<string, string>>,
  ): Promise<void> {
    const callMs = nowMs();
    const waitMs = 1_000 * Number(/wait=(\d+)/.exec(headers.prefer ?? "")?.[1] ?? 0);
    const answer = await this.#send({ method: "GET", path, headers }, this.#world.timeoutMs + waitMs);
    if (typeof answer === "string") return;
    const { status } = answer;
    if (![200, 304, 404, 410].includes(status)) return;
    if (waitMs > 0) meet(status === 304 ? "a wait without a change" : "a wait that a change ended");
    const body = status === 200 ? JSON.parse(answer.body) : undefined;
    const etag: string = answer.headers.etag ?? body?.etag ?? "";
    const tag = etag.replace(/"|-gzip/g, "");
    this.#world.reads.push({ ...read, callMs, returnMs: nowMs(), status, tag, body });
    if (read.kind === "entry") this.#entryTags.set(read.petIds![0]!, tag);
    else if (tag) this.#listTag = tag;
    if (status === 410) this.#listTag = "";
  }

  #readList(headers: Readonly<Record<string, string>>): Promise<void> {
    return this.#read({ kind: "list" }, "/v1/inventory", headers);
  }

  #readEntry(petId: number, headers: Readonly<Record<string, string>>): Promise<void> {
    return this.#read({ kind: "entry", petIds: [petId] }, `/v1/inventory/${petId}`, headers);
  }

  #readChanges(since: string, headers: Readonly<Record<string, string>>): Promise<void> {
    return this.#read({ kind: "changes", since }, `/v1/inventory/changes?since=${since}`, headers);
  }

  #readPart(petIds: readonly number[]): Promise<void> {
    return this.#read({ kind: "part", petIds }, `/v1/inventory?petIds=${petIds}`, {});
  }

  #readPage(): Promise<void> {
    const petIds = [2, 3, 4]; // entries up to 9 are never removed
    return this.#read({ kind: "part", petIds }, "/v1/inventory?after=1&limit=3", {});
  }

  /** Sends updates of these entries. @returns what became of them */
  async #change(
    petIds: readonly number[],
    headers: Readonly<Record<string, string>>,
    { isBulk = false, leavesAfterMs }: { readonly isBulk?: boolean; readonly leavesAfterMs?: number } = {},
  ): Promise<readonly AskedChange[]> {
    if (petIds.length === 0) return [];
    const expected = headers["if-match"] === undefined ? undefined : BigInt(headers["if-match"].slice(2, -1));
    const asked = petIds.map((petId): AskedChange => {
      return { kind: "set", petId, quantity: nextNumber(), expected, attempts: [] };
    });
    this.#world.changes.push(...asked);
    await this.#attempt(asked, headers, isBulk, leavesAfterMs);
    return asked;
  }

  async #attempt(
    asked: readonly AskedChange[],
    headers: Readonly<Record<string, string>>,
    isBulk: boolean,
    leavesAfterMs?: number,
  ): Promise<void> {
    const { random } = this.#world;
    const attempts = asked.map(({ attempts }): Attempt => {
      const attempt: Attempt = {
        callMs: nowMs(),
        returnMs: Number.POSITIVE_INFINITY,
        outcome: { kind: "unknown", isAnswered: false },
      };
      attempts.push(attempt);
      return attempt;
    });
    const [first] = asked as readonly [AskedChange];
    const bodyDelayMs = random.chance(0.03) ? random.between(1, 3_000) : 0;
    const all = { ...headers, "content-type": "application/json" };
    const request = isBulk
      ? {
          method: "POST" as const,
          path: "/v1/inventory/updates",
          headers: all,
          body: JSON.stringify(asked.map(({ petId, quantity }) => ({ petId, quantity }))),
        }
      : {
          method: "PATCH" as const,
          path: `/v1/inventory/${first.petId}`,
          headers: all,
          body: JSON.stringify({ quantity: first.quantity }),
        };
    const { timeoutMs, keyedTimeoutMs } = this.#world;
    const limitMs = bodyDelayMs + (headers["idempotency-key"] ? Math.max(keyedTimeoutMs, timeoutMs) : timeoutMs);
    const answer = await this.#send({ ...request, bodyDelayMs, leavesAfterMs }, limitMs);
    const results = typeof answer !== "string" && answer.status === 200 ? [JSON.parse(answer.body)].flat() : [];
    for (const [i, attempt] of attempts.entries()) {
      attempt.returnMs = nowMs();
      const result = results[i];
      const etag: string | undefined = isBulk ? result?.etag : (answer as HttpAnswer).headers?.etag;
      if (result && !result.error) {
        const revision = BigInt(etag!.slice(2, -1));
        attempt.outcome = { kind: "done", revision, quantity: result.quantity };
        this.#entryTags.set(asked[i]!.petId, `r${revision}`);
        if (result.replayed || (answer as HttpAnswer).headers["idempotency-replayed"])
          meet("a repeat got its first answer");
        continue;
      }
      const status: number | undefined = result ? result.error.status : (answer as HttpAnswer).status;
      if (status === 412) this.#entryTags.delete(asked[i]!.petId);
      if (answer === "refused" || (status !== undefined && status < 500)) {
        attempt.outcome = { kind: "refused", code: String(status) };
      } else attempt.outcome = { kind: "unknown", isAnswered: status !== undefined };
    }
  }

  /** Updates with a key, again until they are answered, and once more after that. */
  async #keyed(petIds: readonly number[], isBulk: boolean): Promise<void> {
    const { random, isOver } = this.#world;
    const headers = { "idempotency-key": `key-${nextNumber()}` };
    const asked = await this.#change(petIds, headers, { isBulk });
    if (asked.length === 0) return;
    const isOpen = () => asked.some(({ attempts }) => attempts.every(({ outcome }) => outcome.kind === "unknown"));
    for (let repeats = 0; isOpen() && repeats < 20 && !isOver(); repeats++) {
      meet("a repeat after a lost answer");
      await this.#pause(random.between(1, 300));
      await this.#attempt(asked, headers, isBulk);
    }
    if (isOpen() || random.chance(0.5)) return;
    await this.#pause(random.between(1, 500));
    await this.#attempt(asked, headers, isBulk);
  }
}

const internalKinds = { adjust: 5, create: 1, remove: 1, status: 2, get: 2, getMany: 1, list: 0.5 } as const;

/** Entries that internal callers make and remove. */
const movingPets = [20, 21, 22];

/** An internal caller, with the product's own client. */
export async function runInternalCaller(name: string, world: CallerWorld): Promise<Host> {
  const host = new Host(name);
  const { random, changes, pets, pauseMs, isOver } = world;
  await runIn(host, async () => {
    const client = createInventoryClient({ address: "services" });
    const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));
    const attempt = async (change: AskedChange, work: () => Promise<Partial<Item> & { readonly revision: bigint }>) => {
      const made: Attempt = {
        callMs: nowMs(),
        returnMs: Number.POSITIVE_INFINITY,
        outcome: { kind: "unknown", isAnswered: false },
      };
      change.attempts.push(made);
      try {
        const { revision, quantity, status } = await work();
        made.outcome = {
          kind: "done",
          revision,
          ...(quantity !== undefined && { quantity }),
          ...(status && { status }),
        };
      } catch (error) {
        const { mayHaveHappened, code } = error as InventoryError;
        made.outcome = mayHaveHappened ? { kind: "unknown", isAnswered: true } : { kind: "refused", code };
        if (!(error instanceof InventoryError)) throw error;
      }
      made.returnMs = nowMs();
      const { outcome } = made;
      note(
        `${name} ${change.kind} ${change.petId} ${change.delta ?? change.quantity ?? ""}: ${outcome.kind} ${outcome.kind === "done" ? outcome.revision : ""}`,
      );
      meet(`internal ${change.kind} ${outcome.kind}`);
      return outcome.kind;
    };
    const ask = (change: Omit<AskedChange, "attempts">): AskedChange => {
      const asked = { ...change, attempts: [] };
      changes.push(asked);
      return asked;
    };
    while (!isOver()) {
      await pause(random.between(0, 2 * pauseMs));
      const petId = 1 + random.below(pets);
      const kind = random.weighted(internalKinds);
      if (kind === "adjust") {
        const delta = random.chance(0.5) ? 1 + random.below(9) : -1 - random.below(9);
        const change = ask({ kind, petId, delta });
        const requestId = `adjust-${nextNumber()}`;
        const adjust = async () => (await client.adjust({ petId: BigInt(petId), delta, requestId })).item;
        for (let outcome = await attempt(change, adjust); outcome === "unknown" && !isOver(); ) {
          await pause(random.between(1, 300));
          outcome = await attempt(change, adjust);
        }
      } else if (kind === "create") {
        const moving = random.pick(movingPets);
        const quantity = nextNumber();
        await attempt(ask({ kind, petId: moving, quantity }), () => client.create({ petId: BigInt(moving), quantity }));
      } else if (kind === "remove") {
        const moving = random.pick(movingPets);
        await attempt(ask({ kind, petId: moving }), async () => ({ revision: await client.remove(BigInt(moving)) }));
      } else if (kind === "status") {
        const status = random.pick(["available", "pending", "sold"] as const);
        await attempt(ask({ kind, petId, status }), () => client.setStatus({ petId: BigInt(petId), status }));
      } else await readInternally(kind, petId, client, world);
    }
    client.close();
  });
  return host;
}

type Client = ReturnType<typeof createInventoryClient>;

const toBody = ({ petId, quantity, status }: Item) => ({ petId: Number(petId), quantity, status });

async function readInternally(kind: "get" | "getMany" | "list", petId: number, client: Client, { reads }: CallerWorld) {
  const callMs = nowMs();
  try {
    if (kind === "get") {
      const item = await client.get(BigInt(petId));
      const read = {
        kind: "entry",
        petIds: [petId],
        status: 200,
        tag: `r${item.revision}`,
        body: toBody(item),
      } as const;
      reads.push({ ...read, callMs, returnMs: nowMs() });
    } else if (kind === "getMany") await client.getMany([BigInt(petId), 1n]);
    else for await (const _ of client.list()) meet("a page of the list");
  } catch (error) {
    if (!(error instanceof InventoryError)) throw error;
    if (error.code === "NOT_FOUND" && kind === "get") {
      reads.push({ kind: "entry", petIds: [petId], status: 404, tag: "", body: undefined, callMs, returnMs: nowMs() });
    }
  }
}
