/** Sends requests to the public API with the key of a caller, and judges what every answer has. */
import { formFaults, resetFault } from "./answer-form.ts";
import type { ApiKey, CallerWorld, LimitedRequest } from "./caller-world.ts";
import { meet } from "./events.ts";
import { type HttpAnswer, HttpClient, type HttpOutcome, type HttpRequest } from "./http-client.ts";
import type { SimulatedProcess } from "./simulated-processes.ts";
import { at, Host, note, nowMs, unixMsAt } from "./virtual-time.ts";

/** The longest time of a request, with what its connection and this simulation add. */
const slackMs = 1_500;

/** When a caller gives up that hears nothing: the machine of its gateway may be lost. */
const patienceMs = 45_000;

/** Within this time a revoked key is dead everywhere, the way of an answer included. */
export const revocationMs = 10_000 + 200;

const rotation = { method: "POST", path: "/v1/keys/rotate" } as const;

/** What is not counted as use of an account. */
const unchargedPaths = ["/v1/rate_limit", "/v1/usage"];

/** So long after a gateway has begun to leave, a client may still go on with a connection that it has kept. */
const leavingMs = 1_000;

/** A caller of the public API, with its key. */
export class ApiSender {
  readonly host: Host;
  readonly #world: CallerWorld;
  readonly #client: HttpClient;
  #key: ApiKey;
  /** The key before the latest rotation, which still works. */
  #oldKey: ApiKey | undefined;
  /** The ids of the keys of its requests, by the id of the request. */
  readonly #keyIds = new Map<string, string>();
  #ids = 0;
  /** Requests that have no answer yet. */
  #open = 0;
  /** Requests that may count as use of its account, and those that do. */
  #sent = 0;
  #served = 0;

  constructor(name: string, world: CallerWorld) {
    this.host = new Host(name);
    this.#world = world;
    this.#client = new HttpClient(world, this.host);
    this.#key = world.keyOf(name);
  }

  /** Sends a request through a gateway that is ready, if there is one, and notes what does not come in time. */
  async send(
    request: Omit<HttpRequest, "headers"> & { readonly headers?: object },
    limitMs: number,
  ): Promise<HttpOutcome> {
    const { network, random, gateways, fail, hasTrueClocks } = this.#world;
    const mayUse = ({ isReady, leavesMs = Number.NEGATIVE_INFINITY, host }: SimulatedProcess) =>
      isReady || (nowMs() < leavesMs + leavingMs && this.#client.keeps(host.name));
    const usable = gateways.filter(mayUse);
    const { host, leavesMs } = random.pick(usable.length > 0 ? usable : gateways);
    const key = this.#oldKey !== undefined && random.chance(0.2) ? this.#oldKey : this.#key;
    const headers = { authorization: `Bearer ${key.key}`, "x-request-id": this.newId(), ...request.headers };
    this.#keyIds.set(headers["x-request-id"], key.id);
    const standstillMs = () => host.frozenMs + network.heldMs(this.host, host);
    const before = { standstillMs: standstillMs(), heldMs: network.heldMs(this.host, host) };
    const latestMs = (limitMs + this.#world.lookUpMs + slackMs) * (1 + this.#open); // it may wait for others
    const startedMs = nowMs();
    const isOwnKey = request.raw === undefined && headers.authorization === `Bearer ${key.key}`;
    const isCharged = isOwnKey && !unchargedPaths.includes(request.path);
    if (isCharged) this.#sent += 1;
    const answer = this.#client.send(host.name, { leavesAfterMs: patienceMs, ...request, headers });
    // A read may wait for a long answer as well, which takes a time-out after each part when its stream falls silent.
    const longMs = () => {
      if (request.method !== "GET" || host.longAnswerMs <= startedMs) return 0;
      return host.longAnswerMs - startedMs + this.#world.timeoutMs;
    };
    const watch = () => {
      if (host.isDead || nowMs() - startedMs - (standstillMs() - before.standstillMs) < latestMs + longMs()) {
        stop = at(this.host, nowMs() + 500, watch);
        return;
      }
      fail(
        `${request.method} ${request.path} of ${startedMs.toFixed(0)} at ${host.name} has no answer after ${(nowMs() - startedMs).toFixed(0)} ms`,
      );
    };
    let stop = at(this.host, nowMs() + latestMs, watch);
    this.#open += 1;
    const outcome = await answer;
    this.#open -= 1;
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
      if (isCharged && outcome.status < 500 && outcome.status !== 401) this.#served += 1;
      for (const fault of formFaults(outcome)) fail(`${request.method} ${request.path}: ${fault}`);
      const id = outcome.headers["x-request-id"];
      const isOwn = id === headers["x-request-id"] || request.raw !== undefined;
      if (!isOwn) fail(`${request.method} ${request.path} got the answer of ${id}`);
      // What the way of an answer has held up was true when the answer was given.
      const isLate = network.heldMs(this.host, host) > before.heldMs;
      const times = { call: unixMsAt(startedMs), return: unixMsAt(nowMs()) };
      const wrongReset = hasTrueClocks ? resetFault(outcome.headers, times) : undefined;
      if (wrongReset) fail(`${request.method} ${request.path} of ${startedMs.toFixed(0)}: ${wrongReset}`);
      if (leavesMs !== undefined && outcome.headers.connection !== "close") {
        fail(`${request.method} ${request.path} keeps its connection to ${host.name}, which leaves`);
      } else if (leavesMs !== undefined) meet("a request to a gateway that leaves");
      if (isOwnKey) this.#judgeKey(request, outcome, isLate ? startedMs : nowMs());
    }
    return outcome;
  }

  /** A revoked key is dead in 10 s, and no other key is. */
  #judgeKey({ method, path }: Pick<HttpRequest, "method" | "path">, { status }: HttpAnswer, timeMs: number): void {
    const { revoked, fail, timeoutMs } = this.#world;
    // A change that has been sent to the service may still be made.
    const deadMs = revocationMs + (method === "GET" ? 0 : timeoutMs);
    const end = revoked.get(this.host.name);
    if (status === 401) {
      meet("a request with a revoked key");
      if (!end || nowMs() < end.callMs) fail(`${method} ${path} got 401 with a key of ${this.host.name} that works`);
    }
    if (end && timeMs > end.returnMs + deadMs && (status < 400 || [404, 410, 412].includes(status))) {
      fail(`${method} ${path} got ${status} with the key of ${this.host.name}, revoked by ${end.returnMs.toFixed(0)}`);
    }
  }

  /** @returns an id for a request: a gateway's own ids go on through all runs of a process */
  newId(): string {
    this.#ids += 1;
    return `${this.host.name}-${this.#ids}`;
  }

  /** @returns the id of the key of a request */
  keyIdOf(requestId: string): string | undefined {
    return this.#keyIds.get(requestId);
  }

  /** Gets a new key in place of its own. @param graceSeconds for which the old one still works */
  async rotate(graceSeconds = 86_400): Promise<void> {
    this.#oldKey = undefined; // even without an answer, it may end now
    const key = this.#key;
    const headers = { "content-type": "application/json" };
    const answer = await this.send({ ...rotation, headers, body: JSON.stringify({ graceSeconds }) }, 15_000);
    if (typeof answer === "string" || answer.status !== 201) return;
    meet("a rotated key");
    const { keyId, key: newKey, expiresAt } = JSON.parse(answer.body);
    if (expiresAt !== null)
      this.#world.fail(`the key of ${this.host.name}, which had no end, has one after a rotation`);
    this.#key = { ...key, id: keyId, key: newKey };
    if (graceSeconds > 0) this.#oldKey = key;
  }

  /**
   * Rotates its key twice, and uses the three keys: the first one ends, and the others work. Sometimes it does not wait
   * for the answer at first, and rotates the same key again.
   */
  async rotateTwice(): Promise<void> {
    const keys = [this.#key];
    const { random } = this.#world;
    if (random.chance(0.5)) {
      await this.send({ ...rotation, leavesAfterMs: random.between(1, 30) }, 15_000);
      await this.#pause(1_000);
    }
    await this.rotate();
    keys.push(this.#key);
    const endsSoon = random.chance(0.5);
    const graceSeconds = endsSoon ? random.pick([0, 2]) : undefined;
    await this.rotate(graceSeconds);
    keys.push(this.#key);
    const statusOf = async ({ key }: { readonly key: string }) => {
      const request = { method: "GET", path: "/v1/inventory/1", headers: { authorization: `Bearer ${key}` } } as const;
      const answer = await this.#client.send(this.#world.gateways[0]!.host.name, request);
      return typeof answer === "string" ? answer : answer.status;
    };
    if (graceSeconds === 2) {
      await this.#pause(1_000);
      await statusOf(keys[1]!); // the gateway knows it shortly before its end
      await this.#pause(1_500);
      if ((await statusOf(keys[1]!)) !== 401) this.#world.fail("a key outlived the grace of its rotation");
    }
    await this.#pause(revocationMs);
    for (const [i, key] of keys.entries()) {
      const status = await statusOf(key);
      if (status !== (i === 0 || (i === 1 && endsSoon) ? 401 : 200))
        this.#world.fail(`key ${i + 1} of two rotations got ${status}`);
    }
    if (endsSoon) return;
    // The last one is in use, so the one before cannot get another one in its place.
    const headers = { authorization: `Bearer ${keys[1]!.key}` };
    const answer = await this.#client.send(this.#world.gateways[0]!.host.name, { ...rotation, headers });
    const { status, body } = answer as HttpAnswer;
    if (status !== 409)
      this.#world.fail(`the rotation of a key whose successor is in use got ${status ?? answer} ${body}`);
  }

  /** Asks gateways for the use of its account. Each request counts once, whichever gateway has answered it. */
  async judgeUse(): Promise<void> {
    const { gateways, fail, timeoutMs } = this.#world;
    for (const _ of gateways) {
      const answer = await this.send({ method: "GET", path: "/v1/usage" }, timeoutMs);
      if (typeof answer === "string" || answer.status !== 200) continue;
      const { steps } = JSON.parse(answer.body) as { readonly steps: { served: number; refused: number }[] };
      const counted = steps.reduce((sum, { served, refused }) => sum + served + refused, 0);
      meet("an account's use");
      if (counted >= this.#served && counted <= this.#sent) continue;
      fail(`the use of ${this.host.name} is ${counted} requests, of ${this.#sent} with ${this.#served} successes`);
    }
  }

  /** Sends a request. @returns how many of the day are left after it; NaN where no answer says it */
  async leftAfter(path: "/v1/inventory/1" | "/v1/rate_limit"): Promise<number> {
    const answer = await this.send({ method: "GET", path }, this.#world.timeoutMs);
    return typeof answer === "string" ? Number.NaN : Number(/"day";r=(\d+)/.exec(answer.headers.ratelimit ?? "")?.[1]);
  }

  /** Sends more requests than it may, some of them at once, until the run is over. @returns what became of each */
  async hammer(): Promise<readonly LimitedRequest[]> {
    const { random, isOver, minuteEndMs } = this.#world;
    const sent: LimitedRequest[] = [];
    const patience = random.pick(["none", "a second", "the minute"]);
    if (random.chance(0.5)) {
      const callMs = nowMs();
      await this.rotate();
      sent.push({ callMs, returnMs: nowMs(), status: 0, code: "", left: Number.NaN, waitSeconds: Number.NaN });
    }
    while (!isOver()) {
      // A question about the limits is not counted.
      if (random.chance(0.05)) await this.send({ method: "GET", path: "/v1/rate_limit" }, this.#world.timeoutMs);
      const atOnce = random.chance(0.5) ? 1 : 2 + random.below(3);
      const answers = await Promise.all(Array.from({ length: atOnce }, () => this.#readLimited()));
      sent.push(...answers);
      const isRefused = answers.some(({ status }) => status === 429);
      if (patience === "none" || !isRefused) await this.#pause(random.between(1, 350));
      else if (patience === "a second") await this.#pause(1_000);
      else await this.#pause(minuteEndMs(nowMs()) + 1 - nowMs());
    }
    return sent;
  }

  async #readLimited(): Promise<LimitedRequest> {
    const callMs = nowMs();
    const answer = await this.send({ method: "GET", path: "/v1/inventory/1" }, this.#world.timeoutMs);
    const code = typeof answer === "string" ? answer : answer.status === 429 ? JSON.parse(answer.body).code : "";
    if (code === "api_key_banned") meet("a ban");
    const { status = 0, headers = {} } = answer as Partial<HttpAnswer>;
    const left = Number(/"minute";r=(\d+)/.exec(headers.ratelimit ?? "")?.[1]);
    return { callMs, returnMs: nowMs(), status, code, left, waitSeconds: Number(headers["retry-after"]) };
  }

  #pause(ms: number): Promise<void> {
    return new Promise((resolve) => at(this.host, nowMs() + ms, resolve));
  }
}
