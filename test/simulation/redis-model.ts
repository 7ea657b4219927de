/**
 * Stands for the package `ioredis`, and for the one server behind it: the commands and scripts that the product uses.
 *
 * The scripts are replaced by what they do: `limit-rule.ts` for the windows, which `limit-rule-lua.test.ts` compares
 * with its script, and a few lines for the others.
 */
import { EventEmitter } from "node:events";
import { indexAt, type KeptCounts, lengthsMs, mergeReport } from "../../gateway/limits/limit-rule.ts";
import { meet } from "./events.ts";
import type { End, Network } from "./virtual-network.ts";
import { currentHost, Host, note, nowMs } from "./virtual-time.ts";

interface Command {
  readonly id: number;
  readonly name: string;
  readonly args: readonly (string | number)[];
}

type Reply =
  | { readonly id: number; readonly result: unknown }
  | { readonly id: number; readonly error: string }
  | { readonly channel: string; readonly text: string };

type Value = KeptCounts | { count: number } | { readonly strikes: { readonly atMs: number; readonly count: number }[] };

/** The server. It has its data in memory, and loses them when it ends. */
export class RedisServer {
  readonly host = new Host("redis");
  readonly #data = new Map<string, { value: Value; expiresAtMs: number }>();
  readonly #subscribers = new Set<End<Command & Reply>>();

  /** @param data of the server that it takes the place of */
  constructor(network: Network, data: RedisCopy = []) {
    for (const [key, kept] of structuredClone(data)) this.#data.set(key, kept);
    network.listen<Command & Reply>("redis", this.host, (end) => {
      end.onMessage = (command) => {
        const { id, name, args } = command;
        note(`redis ${name} ${args.join(" ")}`);
        if (name === "subscribe") this.#subscribers.add(end);
        end.send({ id, result: this.#run(name, args) } as Command & Reply);
      };
      end.onClose = () => this.#subscribers.delete(end);
    });
  }

  /** What a replica has that is as old as this call. */
  copy(): RedisCopy {
    return structuredClone([...this.#data]);
  }

  #get<Kind extends Value>(key: string): Kind | undefined {
    const kept = this.#data.get(key);
    return kept && kept.expiresAtMs > nowMs() ? (kept.value as Kind) : undefined;
  }

  #set(key: string, value: Value, ms: number): void {
    this.#data.set(key, { value, expiresAtMs: nowMs() + ms });
  }

  #run(name: string, args: readonly (string | number)[]): unknown {
    const key = String(args[0]);
    switch (name) {
      case "chargeWindows":
        return this.#charge(args);
      case "rlflxIncr": {
        const [, points, seconds, limit] = args.map(Number) as [number, number, number, number];
        const kept = this.#get<{ count: number }>(key);
        const ms = kept ? this.#data.get(key)!.expiresAtMs - nowMs() : 1_000 * seconds;
        const count = (kept?.count ?? 0) + points;
        if (count <= limit) this.#set(key, { count }, ms);
        return [count, ms];
      }
      case "countStrikes": {
        const [, count, tooMany, , windowMs] = args.map(Number) as [number, number, number, number, number];
        const kept = this.#get<{ strikes: { atMs: number; count: number }[] }>(key)?.strikes ?? [];
        const strikes = [...kept.filter(({ atMs }) => atMs > nowMs() - windowMs), { atMs: nowMs(), count }];
        const isTooMany = strikes.reduce((sum, one) => sum + one.count, 0) >= tooMany;
        if (isTooMany) this.#data.delete(key);
        else this.#set(key, { strikes }, windowMs);
        return Number(isTooMany);
      }
      case "publish":
        for (const end of this.#subscribers) end.send({ channel: key, text: String(args[1]) } as Command & Reply);
        return this.#subscribers.size;
      default:
        return "OK"; // set, del, ping, subscribe
    }
  }

  #charge(args: readonly (string | number)[]): number[] {
    const nowUnixMs = Date.now();
    const windows = lengthsMs.length;
    const count = args.findIndex((arg) => typeof arg === "number"); // keys are texts, and the offset follows them
    const answer = [nowUnixMs];
    for (let i = 0, from = count + 1; i < count; i++, from += 3 + 6 * windows) {
      const key = String(args[i]);
      const [, phaseMs, wanted] = args.slice(from, from + 3).map(Number) as [number, number, number];
      const stated = Array.from({ length: windows }, (_, w) => {
        const start = from + 3 + 6 * w;
        const [limit, index, own, alone, synced, others] = args.slice(start, start + 6).map(Number) as number[];
        return { limit: limit!, count: { index: index!, own: own!, alone: alone!, synced: synced!, others: others! } };
      });
      const kept = this.#get<KeptCounts>(key) ?? { totals: [], chargesByGateway: new Map() };
      const indexes = lengthsMs.map((lengthMs) => indexAt(nowUnixMs, phaseMs, lengthMs));
      const { admittedCount, charges } = mergeReport(kept, indexes, {
        countsName: String(args[from]),
        wanted,
        limits: stated.map(({ limit }) => limit),
        counts: stated.map(({ count }) => count),
      });
      this.#set(key, kept, lengthsMs.at(-1)!);
      answer.push(admittedCount, ...charges.flatMap(({ others, charged }) => [others, charged]));
    }
    return answer;
  }
}

export type RedisCopy = readonly (readonly [string, { value: Value; expiresAtMs: number }])[];

let network: Network;

/** Says which network the clients connect over. */
export function useRedisNetwork(used: Network): void {
  network = used;
}

interface Options {
  readonly commandTimeout: number;
  readonly connectTimeout: number;
  readonly retryStrategy: (attempts: number) => number;
}

interface Waiting {
  readonly resolve: (result: unknown) => void;
  readonly reject: (error: Error) => void;
}

/** As the class of that name in `ioredis`. */
export class Redis extends EventEmitter {
  readonly isCluster = false;
  readonly #options: Options;
  readonly #host = currentHost()!;
  readonly #waiting = new Map<number, Waiting>();
  #end: End<Command | Reply> | undefined;
  #lastId = 0;
  #attempts = 0;
  #isOver = false;

  constructor(options: Options) {
    super();
    this.#options = options;
    this.#connect();
  }

  duplicate(): Redis {
    return new Redis(this.#options);
  }

  defineCommand(name: string): void {
    Object.assign(this, {
      [name]: (...given: readonly (string | number | readonly (string | number)[])[]) => {
        const args = given.flat() as (string | number)[];
        return this.#send(name, name === "chargeWindows" ? args.slice(1) : args);
      },
    });
  }

  set(key: string): Promise<unknown> {
    return this.#send("set", [key]);
  }

  del(key: string): Promise<unknown> {
    return this.#send("del", [key]);
  }

  ping(): Promise<unknown> {
    return this.#send("ping", []);
  }

  publish(channel: string, text: string): Promise<unknown> {
    return this.#send("publish", [channel, text]);
  }

  subscribe(channel: string): Promise<unknown> {
    return this.#send("subscribe", [channel]);
  }

  disconnect(): void {
    this.#isOver = true;
    this.#lose("Connection is closed.");
  }

  #send(name: string, args: readonly (string | number)[]): Promise<unknown> {
    const end = this.#end;
    if (!end) return Promise.reject(new Error("Stream isn't writeable and enableOfflineQueue options is false"));
    this.#lastId += 1;
    const id = this.#lastId;
    end.send({ id, name, args });
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        reject(new Error("Command timed out"));
        this.#lose("Socket timeout"); // nothing has come for as long
      }, this.#options.commandTimeout);
      const settled =
        <T>(settle: (value: T) => void) =>
        (value: T) => {
          clearTimeout(timer);
          this.#waiting.delete(id);
          settle(value);
        };
      this.#waiting.set(id, { resolve: settled(resolve), reject: settled(reject) });
    });
  }

  #connect(): void {
    let isLate = false;
    const timer = setTimeout(() => {
      isLate = true;
      this.#lose("connect ETIMEDOUT");
    }, this.#options.connectTimeout);
    network.connect<Command | Reply>(
      this.#host,
      "redis",
      (end) => {
        clearTimeout(timer);
        if (isLate || this.#isOver) return end.close();
        this.#end = end;
        this.#attempts = 0;
        end.onMessage = (message) => this.#take(message as Reply);
        end.onClose = () => this.#lose("Connection is closed.");
        this.emit("ready");
      },
      () => {
        clearTimeout(timer);
        if (!isLate) this.#lose("connect ECONNREFUSED");
      },
    );
  }

  #take(reply: Reply): void {
    if ("channel" in reply) {
      meet("an invalidation of a key");
      this.emit("message", reply.channel, reply.text);
    } else if ("error" in reply) this.#waiting.get(reply.id)?.reject(new Error(reply.error));
    else this.#waiting.get(reply.id)?.resolve(reply.result);
  }

  #lose(why: string): void {
    const end = this.#end;
    this.#end = undefined;
    end?.close();
    for (const { reject } of [...this.#waiting.values()]) reject(new Error(why));
    if (this.#isOver) return;
    if (this.listenerCount("error") > 0) this.emit("error", new Error(why));
    this.#attempts += 1;
    const waitMs = this.#options.retryStrategy(this.#attempts);
    setTimeout(() => this.#isOver || this.#connect(), waitMs);
  }
}

/** Clusters are not simulated. */
export class Cluster extends EventEmitter {}
