/** Callers of the public API, who note what they get. */
import { formFaults } from "./answer-form.ts";
import { meet } from "./events.ts";
import { type HttpAnswer, type HttpOutcome, type HttpRequest, sendHttp } from "./http-calls.ts";
import type { AskedChange, Attempt, Read } from "./oracle.ts";
import type { Random } from "./random.ts";
import type { SimulatedProcess } from "./simulated-processes.ts";
import type { Network } from "./virtual-network.ts";
import { at, Host, note, nowMs } from "./virtual-time.ts";

/** Entries that internal callers make and remove. */
export const movingPets = [20, 21, 22];

/** What all callers share. */
export interface CallerWorld {
  readonly network: Network;
  readonly random: Random;
  readonly gateways: readonly SimulatedProcess[];
  /** The API key of a caller at first. */
  readonly keyOf: (name: string) => string;
  /** When the keys of callers were revoked: the begin and the end of that, by the name of the caller. */
  readonly revoked: ReadonlyMap<string, { readonly callMs: number; readonly returnMs: number }>;
  readonly pets: number;
  readonly pauseMs: number;
  readonly hotShare: number;
  readonly timeoutMs: number;
  readonly keyedTimeoutMs: number;
  /** How long the look-up of a key may take. */
  readonly lookUpMs: number;
  readonly isOver: () => boolean;
  /** Whether nothing happens that a caller may notice. */
  readonly isServed: boolean;
  /** Whether what was recorded of changes is never lost. */
  readonly keepsRecords: boolean;
  readonly changes: AskedChange[];
  readonly reads: Read[];
  /** The values of Idempotency-Key that callers have used. */
  readonly usedKeys: string[];
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
}

/** The longest time of a request, with what its connection and this simulation add. */
const slackMs = 1_500;

/** When a caller gives up that hears nothing: the machine of its gateway may be lost. */
const patienceMs = 45_000;

/** By then services have begun to forget old changes once more. */
const forgettingMs = 70_000;

let lastNumber = 0;

/** Within this time a revoked key is dead everywhere, the way of an answer included. */
const revocationMs = 10_000 + 200;

/** Begins the numbers of a run, by which its changes are told apart. */
export function restartNumbers(): void {
  lastNumber = 100;
}

/** A number that no other change of the run has. */
export function nextNumber(): number {
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
  history: 1,
  set: 4,
  setIfMatch: 2,
  bulk: 2,
  keyed: 3,
  keyedBulk: 1,
  adjust: 2,
  leave: 0.5,
  halfClose: 0.3,
  rotate: 0.1,
} as const;

type Leaving = Pick<HttpRequest, "leavesAfterMs" | "halfCloses">;

/** A caller of the public API. */
export class HttpCaller {
  readonly host: Host;
  readonly #world: CallerWorld;
  #key: string;
  #sent = 0;
  /** Tags that it has got: of the list, and of entries by petId. */
  #listTag = "";
  readonly #entryTags = new Map<number, string>();
  readonly #usedKeys = new Set<string>();
  /** Sends the latest changes with a key once more. */
  #repeat: (() => Promise<void>) | undefined;

  constructor(name: string, world: CallerWorld) {
    this.host = new Host(name);
    this.#world = world;
    this.#key = world.keyOf(name);
  }

  /** Sends more requests than it may, until the run is over. @returns what became of each */
  async hammer(): Promise<readonly LimitedRequest[]> {
    const { random, isOver } = this.#world;
    const sent: LimitedRequest[] = [];
    const isPatient = random.chance(0.5);
    while (!isOver()) {
      const callMs = nowMs();
      const answer = await this.#send({ method: "GET", path: "/v1/inventory/1" }, this.#world.timeoutMs);
      const code = typeof answer === "string" ? answer : answer.status === 429 ? JSON.parse(answer.body).code : "";
      const status = typeof answer === "string" ? 0 : answer.status;
      sent.push({ callMs, returnMs: nowMs(), status, code });
      if (code === "api_key_banned") meet("a ban");
      await this.#pause(status === 429 && isPatient ? 1_000 : random.between(1, 100));
    }
    return sent;
  }

  /** Sends one request after the other until the run is over. */
  async run(): Promise<void> {
    const { random, isOver, pauseMs } = this.#world;
    while (!isOver()) {
      await this.#pause(random.chance(0.3) ? 1 : random.between(0, 2 * pauseMs));
      await this.#act(random.weighted(kinds));
    }
    if (!this.#repeat || random.chance(0.95)) return;
    await this.#pause(forgettingMs);
    meet("a repeat a minute later");
    await this.#repeat();
  }

  /** Reads the list once. */
  readOnce(): Promise<void> {
    return this.#readList({});
  }

  /** Writes an entry once. @returns whether that was acknowledged */
  async writeOnce(): Promise<boolean> {
    const [change] = await this.#change([1], {});
    return change!.attempts[0]!.outcome.kind === "done";
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
        return this.#readEntry(random.chance(0.1) ? random.pick(movingPets) : this.#petId(), {});
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
      case "history":
        return this.#readHistory(this.#petId());
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
      case "halfClose":
        return void (await this.#change([this.#petId()], {}, { halfCloses: true }));
      case "rotate":
        return this.#rotate();
      case "bulk":
        return void (await this.#change(this.#somePets(), {}, { isBulk: true }));
      case "keyed":
        return this.#keyed(this.#updates([this.#petId()]), false);
      case "keyedBulk":
        return this.#keyed(this.#updates(this.#somePets()), true);
      case "adjust":
        return this.#keyed(this.#adjustments(), false);
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
    const { network, random, gateways, fail } = this.#world;
    const ready = gateways.filter(({ isReady }) => isReady);
    const { host } = random.pick(ready.length > 0 ? ready : gateways);
    this.#sent += 1;
    // A gateway's own ids go on through all runs of a process.
    const id = { "x-request-id": `${this.host.name}-${this.#sent}` };
    const headers = { authorization: `Bearer ${this.#key}`, ...id, ...request.headers };
    const standstillMs = () => host.frozenMs + network.heldMs(this.host, host);
    const before = { standstillMs: standstillMs(), heldMs: network.heldMs(this.host, host) };
    const latestMs = limitMs + this.#world.lookUpMs + slackMs;
    const startedMs = nowMs();
    const answer = sendHttp(network, this.host, host.name, { leavesAfterMs: patienceMs, ...request, headers });
    const watch = () => {
      if (host.isDead || nowMs() - startedMs - (standstillMs() - before.standstillMs) < latestMs) {
        stop = at(this.host, nowMs() + 500, watch);
        return;
      }
      fail(
        `${request.method} ${request.path} of ${startedMs.toFixed(0)} at ${host.name} has no answer after ${(nowMs() - startedMs).toFixed(0)} ms`,
      );
    };
    let stop = at(this.host, nowMs() + latestMs, watch);
    const outcome = await answer;
    stop();
    if (nowMs() - startedMs > 1_000) meet("a request that took longer than a second");
    const said =
      typeof outcome === "string" ? outcome : `${outcome.status} ${outcome.headers.etag ?? ""} ${outcome.body}`;
    note(`${this.host.name} ${request.method} ${request.path} ${host.name} since ${startedMs.toFixed(3)}: ${said}`);
    meet(`answer ${typeof outcome === "string" ? outcome : outcome.status}`);
    // Whether a client that has ended its side is still there takes longer to find out than such a deadline.
    const isServed = this.#world.isServed && !(request.halfCloses && this.#world.timeoutMs < 1_000);
    if (isServed && outcome !== "left" && (typeof outcome === "string" || outcome.status >= 500)) {
      fail(`${request.method} ${request.path} of ${startedMs.toFixed(0)} got ${said} although nothing fails`);
    }
    if (typeof outcome !== "string") {
      this.#judgeForm(request, outcome);
      // What the way of an answer has held up was true when the answer was given.
      const isLate = network.heldMs(this.host, host) > before.heldMs;
      this.#judgeKey(request, outcome, isLate ? startedMs : nowMs());
    }
    return outcome;
  }

  /** A revoked key is dead in 10 s, and no other key is. */
  #judgeKey({ method, path }: Pick<HttpRequest, "method" | "path">, { status }: HttpAnswer, timeMs: number): void {
    const { revoked, fail } = this.#world;
    const end = revoked.get(this.host.name);
    if (status === 401) {
      meet("a request with a revoked key");
      if (!end || nowMs() < end.callMs) fail(`${method} ${path} got 401 with a key of ${this.host.name} that works`);
    }
    if (end && timeMs > end.returnMs + revocationMs && (status < 400 || [404, 410, 412].includes(status))) {
      fail(`${method} ${path} got ${status} with the key of ${this.host.name}, revoked by ${end.returnMs.toFixed(0)}`);
    }
  }

  /** Every answer has its labels, and every error the shape of the contract. */
  #judgeForm({ method, path }: Pick<HttpRequest, "method" | "path">, answer: HttpAnswer): void {
    for (const fault of formFaults(answer)) this.#world.fail(`${method} ${path}: ${fault}`);
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
    this.#world.reads.push({ ...read, callMs, returnMs: nowMs(), status, tag, body, waitMs });
    if (status === 304 && headers["if-none-match"] !== `"${tag}"`) {
      this.#world.fail(`${path} of ${callMs.toFixed(0)} got 304 ${tag} for ${headers["if-none-match"]}`);
    }
    if (read.kind === "history") return;
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

  #readHistory(petId: number): Promise<void> {
    return this.#read({ kind: "history", petIds: [petId] }, `/v1/inventory/${petId}/history?limit=20`, {});
  }

  #readPage(): Promise<void> {
    const petIds = [2, 3, 4]; // entries up to 9 are never removed
    return this.#read({ kind: "part", petIds }, "/v1/inventory?after=1&limit=3", {});
  }

  /** Asks for updates of these entries. */
  #updates(petIds: readonly number[], more: Pick<AskedChange, "expected" | "reuses"> = {}): readonly AskedChange[] {
    const asked = petIds.map((petId): AskedChange => {
      return { kind: "set", petId, quantity: nextNumber(), ...more, attempts: [] };
    });
    this.#world.changes.push(...asked);
    return asked;
  }

  /** Asks for adjustments that are made all or none: what one entry gets is taken from another one. */
  #adjustments(): readonly AskedChange[] {
    const { random, pets, changes } = this.#world;
    const petId = this.#petId();
    const delta = 1 + random.below(random.chance(0.1) ? 100_000 : 20);
    const group: AskedChange[] = [];
    group.push({ kind: "adjust", petId, delta, group, attempts: [] });
    group.push({ kind: "adjust", petId: 1 + (petId % pets), delta: -delta, group, attempts: [] });
    changes.push(...group);
    return group;
  }

  /** Sends updates of these entries. @returns what became of them */
  async #change(
    petIds: readonly number[],
    headers: Readonly<Record<string, string>>,
    { isBulk = false, ...way }: { readonly isBulk?: boolean } & Leaving = {},
  ): Promise<readonly AskedChange[]> {
    const expected = headers["if-match"] === undefined ? undefined : BigInt(headers["if-match"].slice(2, -1));
    const asked = this.#updates(petIds, { expected });
    if (asked.length > 0) await this.#attempt(asked, headers, isBulk, way);
    return asked;
  }

  async #attempt(
    asked: readonly AskedChange[],
    headers: Readonly<Record<string, string>>,
    isBulk: boolean,
    way: Leaving = {},
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
    const isAdjustment = first.kind === "adjust";
    const bodies = asked.map(({ petId, quantity, delta }) => ({ petId, ...(isAdjustment ? { delta } : { quantity }) }));
    const request =
      isBulk || isAdjustment
        ? {
            method: "POST" as const,
            path: `/v1/inventory/${isAdjustment ? "adjustments" : "updates"}`,
            body: JSON.stringify(bodies),
          }
        : {
            method: "PATCH" as const,
            path: `/v1/inventory/${first.petId}`,
            body: JSON.stringify({ quantity: first.quantity }),
          };
    const { timeoutMs, keyedTimeoutMs } = this.#world;
    const limitMs = bodyDelayMs + (headers["idempotency-key"] ? Math.max(keyedTimeoutMs, timeoutMs) : timeoutMs);
    const answer = await this.#send({ ...request, headers: all, bodyDelayMs, ...way }, limitMs);
    const results = typeof answer !== "string" && answer.status === 200 ? [JSON.parse(answer.body)].flat() : [];
    for (const [i, attempt] of attempts.entries()) {
      attempt.returnMs = nowMs();
      const result = results[i];
      const etag: string | undefined = result?.etag ?? (answer as HttpAnswer).headers?.etag;
      if (result && !result.error) {
        const revision = BigInt(etag!.slice(2, -1));
        attempt.outcome = { kind: "done", revision, quantity: result.quantity };
        this.#entryTags.set(asked[i]!.petId, `r${revision}`);
        if (result.replayed || (answer as HttpAnswer).headers["idempotency-replayed"])
          meet("a repeat got its first answer");
        continue;
      }
      const end = this.#world.revoked.get(this.host.name);
      const isRevoked = end !== undefined && attempt.callMs > end.returnMs + revocationMs;
      const status: number | undefined = result ? result.error.status : (answer as HttpAnswer).status;
      if (status === 412) this.#entryTags.delete(asked[i]!.petId);
      if (isRevoked || answer === "refused" || (status !== undefined && status < 500)) {
        // Many requests with a dead key meet the limit of their address.
        attempt.outcome = { kind: "refused", code: String(end && status === 429 ? 401 : status) };
      } else attempt.outcome = { kind: "unknown", isAnswered: status !== undefined };
    }
  }

  async #rotate(): Promise<void> {
    const answer = await this.#send({ method: "POST", path: "/v1/keys/rotate" }, 15_000);
    if (typeof answer === "string" || answer.status !== 201) return;
    meet("a rotated key");
    this.#key = JSON.parse(answer.body).key;
  }

  /** @returns a key that this account has not used; sometimes another one has */
  #newKey(): string {
    const { random, usedKeys } = this.#world;
    const others = random.chance(0.3) ? usedKeys.filter((key) => !this.#usedKeys.has(key)) : [];
    if (others.length > 0) meet("a key that another account has used");
    const key = others.length > 0 ? random.pick(others) : `key-${nextNumber()}`;
    usedKeys.push(key);
    this.#usedKeys.add(key);
    return key;
  }

  /** Sends changes with a key, again until they are answered, and once more after that. */
  async #keyed(asked: readonly AskedChange[], isBulk: boolean): Promise<void> {
    if (asked.length === 0) return;
    const { random, isOver, keepsRecords, fail } = this.#world;
    const headers = { "idempotency-key": this.#newKey() };
    this.#repeat = () => this.#attempt(asked, headers, isBulk);
    await this.#attempt(asked, headers, isBulk);
    const isOpen = () => asked.some(({ attempts }) => attempts.every(({ outcome }) => outcome.kind === "unknown"));
    for (let repeats = 0; isOpen() && repeats < 20 && !isOver(); repeats++) {
      meet("a repeat after a lost answer");
      await this.#pause(random.between(1, 300));
      await this.#attempt(asked, headers, isBulk);
    }
    if (isOpen() || random.chance(0.5)) return;
    await this.#pause(random.between(1, 500));
    if (asked[0]!.kind === "adjust" || random.chance(0.7)) return this.#attempt(asked, headers, isBulk);
    // Another update with the same key changes nothing.
    this.#repeat = undefined;
    const [other] = this.#updates([asked[0]!.petId], { reuses: asked[0]! });
    await this.#attempt([other!], headers, false);
    const isMade = ({ attempts }: AskedChange) => attempts.some(({ outcome }) => outcome.kind === "done");
    if (keepsRecords && isMade(asked[0]!) && isMade(other!)) fail(`${headers["idempotency-key"]} has made two changes`);
  }
}
