/** Callers of the public API, who note what they get. */
import { maxQuantity } from "../../proto/pet.ts";
import { ApiSender, revocationMs } from "./api-sender.ts";
import { type CallerWorld, movingPets, nextNumber, unchangedPet } from "./caller-world.ts";
import { meet } from "./events.ts";
import { authorFault, type PastChange, timeFault } from "./history-oracle.ts";
import type { HttpAnswer, HttpRequest } from "./http-client.ts";
import { forgetOneBeforeLast } from "./operators.ts";
import type { AskedChange, Attempt, Read } from "./oracle.ts";
import { at, type Host, nowMs, unixMsAt } from "./virtual-time.ts";
import { wrongRequests } from "./wrong-requests.ts";

/** By then services have begun to forget old changes once more. */
const forgettingMs = 70_000;

const kinds = {
  list: 3,
  gzipList: 3,
  knownList: 2,
  entry: 3,
  knownEntry: 1,
  twoReads: 1,
  changes: 3,
  waitForChanges: 1,
  waitForEntry: 2,
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
  wrong: 0.5,
} as const;

type Leaving = Pick<HttpRequest, "leavesAfterMs" | "halfCloses">;

/** A caller of the public API. */
export class HttpCaller {
  readonly host: Host;
  readonly #world: CallerWorld;
  readonly #api: ApiSender;
  /** Tags that it has got: of the list, and of entries by petId. */
  #listTag = "";
  readonly #entryTags = new Map<number, string>();
  /** The quantities of entries that it knows of. */
  readonly #quantities = new Map<number, number>();
  /** The states of entries that only its own changes can have made, as `petId kind revision`. */
  readonly #made = new Set<string>();
  /** What it has asked for, by the id of the request. */
  readonly #asked = new Map<string, readonly AskedChange[]>();
  readonly #usedKeys = new Set<string>();
  /** Sends the latest changes with a key once more. */
  #repeat: (() => Promise<void>) | undefined;

  constructor(name: string, world: CallerWorld) {
    this.#api = new ApiSender(name, world);
    this.host = this.#api.host;
    this.#world = world;
  }

  /** Sends one request after the other until the run is over. */
  async run(): Promise<void> {
    const { random, isOver, pauseMs, revoked } = this.#world;
    while (!isOver()) {
      await this.#pause(random.chance(0.3) ? 1 : random.between(0, 2 * pauseMs));
      // A key that was revoked ends for requests that are held, too.
      const isHeld = revoked.has(this.host.name) && random.chance(0.5);
      await this.#act(isHeld ? "waitForEntry" : random.weighted(kinds));
    }
    this.#world.judgesOfUse.push(() => this.#api.judgeUse());
    if (!this.#repeat || random.chance(0.95)) return;
    await this.#pause(forgettingMs);
    meet("a repeat a minute later");
    await this.#repeat();
  }

  /** Reads the list, an entry and its history. */
  async readAll(): Promise<void> {
    await this.#readList({});
    await this.#readEntry(1, {});
    await this.#readHistory(1);
  }

  /** Writes all entries at once. @returns whether that was acknowledged */
  async writeAll(): Promise<boolean> {
    const petIds = Array.from({ length: this.#world.pets }, (_, i) => i + 1);
    const changes = await this.#change(petIds, true);
    return changes.every(({ attempts, expected }) => attempts[0]!.outcome.kind === "done" || expected !== undefined);
  }

  /** Repeats adjustments when only a part of their records is left: no part of them may be made again. */
  async repeatForgotten(): Promise<void> {
    const asked = this.#adjustments();
    const headers = { "idempotency-key": this.#newKey() };
    await this.#attempt(asked, headers, false);
    const isMade = ({ attempts }: AskedChange) => attempts[0]!.outcome.kind === "done";
    if (!asked.every(isMade)) return;
    await forgetOneBeforeLast();
    const repeat: AskedChange[] = [];
    for (const change of asked) repeat.push({ ...change, reuses: change, group: repeat, attempts: [] });
    this.#world.changes.push(...repeat);
    await this.#attempt(repeat, headers, false);
    if (repeat.some(isMade)) this.#world.fail("at rest, a request of which half is forgotten was made again");
    else meet("a repeat of which half is forgotten");
  }

  /** Waits for a change of an entry, or of any, that comes after what it has read. */
  async wait(kind: "changes" | "entry", seconds: number): Promise<void> {
    const prefer = `wait=${seconds}`;
    if (kind === "changes") return this.#readChanges(this.#listTag, { prefer });
    return this.#readEntry(1, { prefer, "if-none-match": `"${this.#entryTags.get(1)}"` });
  }

  #pause(ms: number): Promise<void> {
    return new Promise((resolve) => at(this.host, nowMs() + ms, resolve));
  }

  #petId(): number {
    const { random, pets, hotShare } = this.#world;
    return random.chance(hotShare) ? 1 : 1 + random.below(pets);
  }

  async #act(kind: keyof typeof kinds): Promise<void> {
    const { random, isServed } = this.#world;
    switch (kind) {
      case "list":
        return this.#readList({});
      case "gzipList":
        return this.#readList({ "accept-encoding": "gzip" });
      case "knownList":
        return this.#readList(this.#listTag ? { "if-none-match": `"${this.#listTag}"` } : {});
      case "entry":
        return this.#readEntry(random.chance(0.1) ? random.pick(movingPets) : this.#petId(), {});
      case "knownEntry":
      case "waitForEntry": {
        // In a rolling restart some wait for what never comes, for longer than a gateway may take to leave.
        const isLong = kind === "waitForEntry" && isServed && random.chance(0.6);
        const petId = isLong ? unchangedPet : this.#petId();
        if (isLong) await this.#readEntry(petId, {});
        const tag = this.#entryTags.get(petId);
        if (!tag) return this.#readEntry(petId, {});
        const known = { "if-none-match": `"${tag}"` };
        if (kind === "knownEntry") return this.#readEntry(petId, known);
        return this.#readEntry(petId, { ...known, prefer: `wait=${isLong ? 30 : 1 + random.below(8)}` });
      }
      case "twoReads":
        await Promise.all([this.#readList({}), this.#readEntry(this.#petId(), {})]);
        return;
      case "changes":
      case "waitForChanges":
        if (!this.#listTag) return this.#readList({});
        return this.#readChanges(this.#listTag, kind === "changes" ? {} : { prefer: `wait=${1 + random.below(8)}` });
      case "part":
        return this.#readPart([this.#petId(), this.#petId()]);
      case "page":
        return this.#readPage();
      case "history":
        return this.#readHistory(random.chance(0.1) ? random.pick(movingPets) : this.#petId());
      case "set":
        return void (await this.#change([this.#petId()]));
      case "leave":
        return void (await this.#change([this.#petId()], false, { leavesAfterMs: random.between(0, 30) }));
      case "setIfMatch": {
        const petId = this.#petId();
        const expected = this.#knownRevision(petId);
        if (expected === undefined) return this.#readEntry(petId, {});
        return void (await this.#attempt(this.#updates([petId], { expected }), {}, false));
      }
      case "halfClose":
        return void (await this.#change([this.#petId()], false, { halfCloses: true }));
      case "rotate":
        return this.#api.rotate();
      case "wrong":
        return this.#sendWrong(random.pick(wrongRequests));
      case "bulk":
        return void (await this.#change(this.#somePets(), true));
      case "keyed":
        return this.#keyed(this.#updates([random.chance(0.2) ? random.pick(movingPets) : this.#petId()]), false);
      case "keyedBulk":
        return this.#keyed(this.#updates(this.#somePets(), {}, 0.5), true);
      case "adjust":
        return this.#keyed(random.chance(0.5) ? this.#edgeAdjustment() : this.#adjustments(), false);
    }
  }

  #somePets(): number[] {
    const { random, pets } = this.#world;
    return Array.from({ length: pets }, (_, i) => i + 1)
      .filter(() => random.chance(0.4))
      .slice(0, 5)
      .concat(random.chance(0.2) ? random.pick(movingPets) : []);
  }

  async #read(
    read: Omit<Read, "callMs" | "returnMs" | "status" | "tag" | "body">,
    path: string,
    headers: Readonly<Record<string, string>>,
  ): Promise<HttpAnswer | undefined> {
    const callMs = nowMs();
    const waitMs = 1_000 * Number(/wait=(\d+)/.exec(headers.prefer ?? "")?.[1] ?? 0);
    const { timeoutMs, random } = this.#world;
    // Some leave while they wait.
    const leaving = waitMs > 0 && random.chance(0.1) ? { leavesAfterMs: random.between(1, waitMs) } : {};
    const answer = await this.#api.send({ method: "GET", path, headers, ...leaving }, timeoutMs + waitMs);
    if (typeof answer === "string") return undefined;
    const { status } = answer;
    if (![200, 304, 404, 410].includes(status)) return undefined;
    const body = status === 200 ? JSON.parse(answer.body) : undefined;
    const etag: string = answer.headers.etag ?? body?.etag ?? "";
    const tag = etag.replace(/"|-gzip/g, "");
    if (waitMs > 0)
      meet(status === 304 || tag === read.since ? "a wait without a change" : "a wait that a change ended");
    this.#world.reads.push({ ...read, callMs, returnMs: nowMs(), status, tag, body, waitMs });
    if (status === 304 && headers["if-none-match"] !== `"${tag}"`) {
      this.#world.fail(`${path} of ${callMs.toFixed(0)} got 304 ${tag} for ${headers["if-none-match"]}`);
    }
    if (read.kind === "entry") {
      this.#entryTags.set(read.petIds![0]!, tag);
      if (body) this.#quantities.set(read.petIds![0]!, body.quantity);
    } else if (tag) this.#listTag = tag;
    if (status === 410) this.#listTag = "";
    return answer;
  }

  async #readList(headers: Readonly<Record<string, string>>): Promise<void> {
    await this.#read({ kind: "list" }, "/v1/inventory", headers);
  }

  async #readEntry(petId: number, headers: Readonly<Record<string, string>>): Promise<void> {
    await this.#read({ kind: "entry", petIds: [petId] }, `/v1/inventory/${petId}`, headers);
  }

  async #readChanges(known: string, headers: Readonly<Record<string, string>>): Promise<void> {
    const isOfFuture = this.#world.random.chance(0.05);
    const since = isOfFuture ? known.replace(/\d+$/, (revision) => String(BigInt(revision) + 1_000n)) : known;
    await this.#read({ kind: "changes", since }, `/v1/inventory/changes?since=${since}`, headers);
  }

  async #readPart(petIds: readonly number[]): Promise<void> {
    await this.#read({ kind: "part", petIds }, `/v1/inventory?petIds=${petIds}`, {});
  }

  /** Reads a page of the list among the entries that are never removed. */
  async #readPage(): Promise<void> {
    const { random, fail } = this.#world;
    const [after, limit] = [random.below(8), 1 + random.below(4)];
    const petIds = Array.from({ length: limit }, (_, i) => after + 1 + i);
    const path = `/v1/inventory?after=${after}&limit=${limit}`;
    const coding = random.chance(0.5) ? "gzip" : "identity";
    const answer = await this.#read({ kind: "part", petIds }, path, { "accept-encoding": coding });
    const next = `<?limit=${limit}&after=${after + limit}>; rel="next"`;
    if (answer?.status === 200 && answer.headers.link !== next) fail(`${path} leads to ${answer.headers.link}`);
  }

  /** Reads what is kept of an entry's past, or a part of that, page by page. */
  async #readHistory(petId: number): Promise<void> {
    const { random, fail, reads, timeoutMs, hasTrueClocks, keepsRecords } = this.#world;
    const callMs = nowMs();
    const changes: PastChange[] = [];
    const limit = 1 + random.below(20);
    let next = "";
    do {
      const path = `/v1/inventory/${petId}/history?limit=${limit}${next && `&before=${next.slice(1, -1)}`}`;
      const answer = await this.#api.send({ method: "GET", path }, timeoutMs);
      if (typeof answer === "string" || answer.status !== 200) break;
      const page = JSON.parse(answer.body) as { readonly changes: PastChange[]; readonly next: string | null };
      if (page.next !== null && page.changes.length !== limit) fail(`${path} has ${page.changes.length} before a next`);
      if (page.next !== null && page.next !== page.changes.at(-1)?.etag) fail(`${path} leads to ${page.next}`);
      const unixMs = { now: unixMsAt(nowMs()), start: unixMsAt(0) };
      for (const change of page.changes) {
        const wrongTime = hasTrueClocks ? timeFault(change, this.#asked, unixMs) : undefined;
        const fault = authorFault(change, petId, this.#asked, this.#api) ?? wrongTime;
        if (fault) fail(`${path} shows ${JSON.stringify(change)}: ${fault}`);
        const isOwn = this.#made.has(`${petId} ${change.kind} ${change.etag}`) && keepsRecords;
        if (isOwn && change.by !== "you") fail(`${path} shows ${JSON.stringify(change)}, which this caller has made`);
      }
      changes.push(...page.changes);
      next = page.next ?? "";
      const read = { kind: "history", petIds: [petId], status: 200, tag: "" } as const;
      if (next === "") reads.push({ ...read, callMs, returnMs: nowMs(), body: { changes, isWhole: true } });
      else if (random.chance(0.3)) {
        reads.push({ ...read, callMs, returnMs: nowMs(), body: { changes, isWhole: false } });
        break;
      }
    } while (next !== "");
  }

  /** Sends what no caller should send. */
  async #sendWrong([status, request]: (typeof wrongRequests)[number]): Promise<void> {
    const { timeoutMs, fail, revoked, keyOf } = this.#world;
    const headers = request.by
      ? { authorization: `Bearer ${keyOf(request.by).key}`, ...request.headers }
      : request.headers;
    const answer = await this.#api.send({ ...request, headers }, timeoutMs);
    if (typeof answer === "string" || answer.status === status || answer.status >= 500) return;
    if (revoked.has(this.host.name) && [401, 429].includes(answer.status)) return;
    fail(`${request.method} ${request.path} got ${answer.status} ${answer.body} and not ${status}`);
  }

  /** Asks for updates of these entries. */
  #updates(
    petIds: readonly number[],
    more: Pick<AskedChange, "expected" | "reuses"> = {},
    knownShare = 0.1,
  ): readonly AskedChange[] {
    const { random } = this.#world;
    const asked = petIds.map((petId): AskedChange => {
      let number = nextNumber();
      if (number === more.reuses?.quantity) number = nextNumber(); // it would be a repeat
      const mayKnow = !more.reuses && random.chance(knownShare); // mostly there is nothing to change then
      const known = mayKnow ? this.#quantities.get(petId) : undefined;
      const quantity = known ?? (random.chance(0.05) ? maxQuantity - number : number);
      const expected = random.chance(0.2) ? this.#knownRevision(petId) : undefined;
      const mayFind = known !== undefined;
      return { kind: "set", petId, quantity, mayFind, expected, reason: this.#reason(), ...more, attempts: [] };
    });
    this.#world.changes.push(...asked);
    return asked;
  }

  #knownRevision(petId: number): bigint | undefined {
    const tag = this.#entryTags.get(petId);
    return tag ? BigInt(tag.slice(1)) : undefined;
  }

  /** Why a change is made, where a reason is given. */
  #reason(): string | undefined {
    return this.#world.random.chance(0.2) ? `reason ${nextNumber()}` : undefined;
  }

  /** Asks for adjustments that are made all or none: what one entry gets is taken from another one. */
  #adjustments(reuses?: AskedChange): readonly AskedChange[] {
    const { random, pets, changes } = this.#world;
    const petId = reuses ? 1 + ((reuses.petId + 1) % pets) : this.#petId(); // others than those of the first request
    const delta = 1 + random.below(random.chance(0.1) ? 100_000 : 20);
    const group: AskedChange[] = [];
    for (const [one, part] of [
      [petId, delta],
      [1 + (petId % pets), -delta],
    ] as const) {
      const expected = random.chance(0.2) ? this.#knownRevision(one) : undefined;
      group.push({
        kind: "adjust",
        petId: one,
        delta: part,
        expected,
        reason: this.#reason(),
        reuses,
        group,
        attempts: [],
      });
    }
    changes.push(...group);
    return group;
  }

  /** Asks for all that an entry has, or that still goes in, or for one more. */
  #edgeAdjustment(): readonly AskedChange[] {
    const { random, changes } = this.#world;
    const isFull = (quantity: number) => quantity > maxQuantity / 2;
    const known = [...this.#quantities].sort(([, a], [, b]) => b - a);
    const [petId, quantity] = known[random.chance(0.5) ? 0 : random.below(known.length)] ?? [1, 0];
    const amount = (isFull(quantity) ? maxQuantity - quantity : quantity) + random.below(2) || 1;
    const asked: AskedChange = { kind: "adjust", petId, delta: isFull(quantity) ? amount : -amount, attempts: [] };
    changes.push(asked);
    return [asked];
  }

  /** Sends updates of these entries. @returns what became of them */
  async #change(petIds: readonly number[], isBulk = false, way: Leaving = {}): Promise<readonly AskedChange[]> {
    const asked = this.#updates(petIds);
    if (asked.length > 0) await this.#attempt(asked, {}, isBulk, way);
    return asked;
  }

  async #attempt(
    asked: readonly AskedChange[],
    headers: Readonly<Record<string, string>>,
    isBulk: boolean,
    way: Leaving = {},
  ): Promise<void> {
    const { random, keepsRecords, fail } = this.#world;
    const isDone = ({ attempts }: AskedChange) => attempts.some(({ outcome }) => outcome.kind === "done");
    const wereDone = asked.map(isDone);
    const requestId = this.#api.newId();
    this.#asked.set(requestId, asked);
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
    const all = { ...headers, "content-type": "application/json", "x-request-id": requestId };
    const isAdjustment = first.kind === "adjust";
    const bodies = asked.map(({ petId, quantity, delta, reason, expected }) => {
      return { petId, quantity, delta, reason, ifMatch: expected === undefined ? undefined : `"r${expected}"` };
    });
    const { ifMatch } = bodies[0]!;
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
            body: JSON.stringify({ quantity: first.quantity, reason: first.reason }),
          };
    const { timeoutMs, keyedTimeoutMs } = this.#world;
    const limitMs = bodyDelayMs + (headers["idempotency-key"] ? Math.max(keyedTimeoutMs, timeoutMs) : timeoutMs);
    const conditions = request.method === "PATCH" && ifMatch !== undefined ? { "if-match": ifMatch } : {};
    const sent = { ...request, headers: { ...all, ...conditions }, bodyDelayMs, ...way };
    const answer = await this.#api.send(sent, limitMs);
    const results = typeof answer !== "string" && answer.status === 200 ? [JSON.parse(answer.body)].flat() : [];
    for (const [i, attempt] of attempts.entries()) {
      attempt.returnMs = nowMs();
      const result = results[i];
      const { petId } = asked[i]!;
      const what = `${request.method} ${request.path} of ${attempt.callMs.toFixed(0)}`;
      if (results.length > 0 && result?.petId !== petId) fail(`${what}: ${JSON.stringify(result)} for ${petId}`);
      const etag: string | undefined = result?.etag ?? (answer as HttpAnswer).headers?.etag;
      if (result && !result.error) {
        const revision = BigInt(etag!.slice(2, -1));
        attempt.outcome = { kind: "done", revision, quantity: result.quantity, status: result.status };
        this.#entryTags.set(petId, `r${revision}`);
        this.#quantities.set(petId, result.quantity);
        const { kind, mayFind, quantity } = asked[i]!;
        // An entry that another caller has left as it was may have had this quantity by chance.
        const isOthers = (change: AskedChange) =>
          change.mayFind && change.petId === petId && change.quantity === quantity;
        if (!mayFind && !this.#world.changes.some(isOthers)) this.#made.add(`${petId} ${kind} "r${revision}"`);
        const isReplay = result.replayed ?? (answer as HttpAnswer).headers["idempotency-replayed"] === "true";
        if (isReplay) meet("a repeat got its first answer");
        if (!isReplay && wereDone[i] && keepsRecords) fail(`${what} does not pass for a repeat`);
        continue;
      }
      const end = this.#world.revoked.get(this.host.name);
      const isRevoked = end !== undefined && attempt.callMs > end.returnMs + revocationMs;
      const status: number | undefined = result ? result.error.status : (answer as HttpAnswer).status;
      if (status === 412) this.#entryTags.delete(petId);
      if (isRevoked || answer === "refused" || (status !== undefined && status < 500)) {
        // Many requests with a dead key meet the limit of their address.
        attempt.outcome = { kind: "refused", code: String(end && status === 429 ? 401 : status) };
      } else attempt.outcome = { kind: "unknown", isAnswered: status !== undefined };
    }
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
    const most = random.chance(0.3) ? 0 : 20; // some take an error for an answer
    for (let repeats = 0; isOpen() && repeats < most && !isOver(); repeats++) {
      meet("a repeat after a lost answer");
      await this.#pause(random.between(1, 300));
      await this.#attempt(asked, headers, isBulk);
    }
    if (isOpen() || random.chance(0.5)) return;
    await this.#pause(random.between(1, 500));
    if (random.chance(0.7)) return this.#attempt(asked, headers, isBulk);
    // Other changes with the same key change nothing.
    this.#repeat = undefined;
    const [first] = asked as readonly [AskedChange];
    const others = first.kind === "adjust" ? this.#adjustments(first) : this.#updates([first.petId], { reuses: first });
    await this.#attempt(others, headers, false);
    const isMade = ({ attempts }: AskedChange) => attempts.some(({ outcome }) => outcome.kind === "done");
    if (keepsRecords && isMade(first) && others.some(isMade))
      fail(`${headers["idempotency-key"]} has made two changes`);
  }
}
