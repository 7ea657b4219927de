/**
 * The network between simulated processes: connections that deliver in order, late, or never.
 *
 * A way that is held keeps what is sent on it, as TCP does, and delivers all of it when it is released: late bytes. The
 * end of a process closes its connections; the loss of its machine tells nobody.
 */
import { meet } from "./events.ts";
import type { Random } from "./random.ts";
import { at, type Host, note, nowMs, runIn } from "./virtual-time.ts";

/** One direction between two hosts. */
class Way {
  /** By how much everything on it is late. */
  delayMs = 0;
  readonly waiting: (() => void)[] = [];
  #heldSinceMs: number | undefined;
  #heldMs = 0;

  get isHeld(): boolean {
    return this.#heldSinceMs !== undefined;
  }

  /** For how long it was held so far. */
  get heldMs(): number {
    return this.#heldMs + (this.#heldSinceMs === undefined ? 0 : nowMs() - this.#heldSinceMs);
  }

  hold(): void {
    this.#heldSinceMs = nowMs();
  }

  release(): void {
    this.#heldMs = this.heldMs;
    this.#heldSinceMs = undefined;
    if (this.waiting.length > 0) meet("bytes that came late");
    for (const send of this.waiting.splice(0)) send();
  }
}

/** One side of a connection. */
export class End<Message = unknown> {
  readonly host: Host;
  onMessage: (message: Message) => void = () => {};
  /** Called once, after the last message, when the other side has closed or is known to be gone. */
  onClose: () => void = () => {};
  isClosed = false;
  /** Whether its process has it; before, it belongs to an attempt to connect. */
  isOpen = false;
  readonly #network: Network;
  peer!: End<Message>;
  #lastArrivalMs = 0;

  constructor(host: Host, network: Network) {
    this.host = host;
    this.#network = network;
  }

  /** Sends a message. @param onSent called when it is at the other host, which may not have looked at it yet */
  send(message: Message, onSent?: () => void): void {
    if (this.isClosed) return;
    const { peer, host } = this;
    this.#transmit(() => {
      if (!peer.isClosed) peer.onMessage(message);
      if (onSent) at(host, nowMs(), onSent);
    });
  }

  /** Closes this side now; the other one learns of it after what was sent before. */
  close(): void {
    if (this.isClosed) return;
    this.isClosed = true;
    this.#network.forget(this);
    this.#transmit(() => this.peer.hearClose());
  }

  /** Closes without a word to the other side. */
  vanish(): void {
    this.isClosed = true;
    this.#network.forget(this);
  }

  hearClose(): void {
    if (this.isClosed) return;
    this.isClosed = true;
    this.#network.forget(this);
    meet("a connection that the other side has ended");
    this.onClose();
  }

  /** Ends for this side at once. The other side still gets what was sent before, and learns of the end after that. */
  lose(laterMs: number): void {
    if (this.isClosed) return;
    const { peer } = this;
    this.#transmit(() => at(peer.host, nowMs() + laterMs, () => peer.hearClose()));
    this.hearClose();
  }

  #transmit(deliver: () => void): void {
    const { peer } = this;
    const way = this.#network.wayBetween(this.host, peer.host);
    const send = () => {
      const arrivalMs = Math.max(this.#lastArrivalMs, nowMs() + way.delayMs + this.#network.latencyMs());
      this.#lastArrivalMs = arrivalMs;
      at(peer.host, arrivalMs, deliver);
    };
    if (way.isHeld) way.waiting.push(send);
    else send();
  }
}

/** What listens at a host: takes connections, or refuses them. */
export type Listener<Message> = (end: End<Message>) => void;

export class Network {
  readonly #random: Random;
  readonly #ways = new Map<string, Way>();
  readonly #ends = new Set<End<never>>();
  readonly #listeners = new Map<string, { readonly host: Host; readonly accept: Listener<never> }>();

  readonly #mostMs: number;

  /** @param mostMs that a message takes, but for one in a hundred */
  constructor(random: Random, mostMs: number) {
    this.#random = random;
    this.#mostMs = mostMs;
  }

  latencyMs(): number {
    if (this.#random.chance(0.01)) return this.#random.between(1, 60);
    return this.#random.between(0.05, this.#mostMs);
  }

  /** For how long the ways between two hosts were held so far. */
  heldMs(a: Host, b: Host): number {
    return this.wayBetween(a, b).heldMs + this.wayBetween(b, a).heldMs;
  }

  listen<Message>(address: string, host: Host, accept: Listener<Message>): void {
    this.#listeners.set(address, { host, accept: accept as Listener<never> });
  }

  unlisten(address: string, host: Host): void {
    if (this.#listeners.get(address)?.host === host) this.#listeners.delete(address);
  }

  /**
   * Opens a connection.
   *
   * @param onFailure called when nobody listens; never where the way is held
   */
  connect<Message>(from: Host, address: string, onOpen: (end: End<Message>) => void, onFailure: () => void): void {
    const listener = this.#listeners.get(address);
    if (!listener || listener.host.isDead) {
      at(from, nowMs() + this.latencyMs(), onFailure);
      return;
    }
    const near = new End<Message>(from, this);
    const far = new End<Message>(listener.host, this);
    near.peer = far;
    far.peer = near;
    near.onClose = onFailure; // until it is open
    this.#ends.add(near as End<never>).add(far as End<never>);
    // The kernel of the far host accepts, also while its process is frozen.
    const there = this.wayBetween(from, listener.host);
    const back = this.wayBetween(listener.host, from);
    const answer = (fromMs: number) =>
      at(from, fromMs + this.latencyMs(), () => {
        near.isOpen = !near.isClosed;
        if (near.isOpen) onOpen(near);
      });
    const arrive = () => {
      if (listener.host.isDead) {
        far.vanish();
        if (near.isClosed) return; // it has failed before, when the end of the other host was heard
        near.vanish();
        at(from, nowMs() + this.latencyMs(), onFailure);
        return;
      }
      const arrivalMs = nowMs() + this.latencyMs();
      at(listener.host, arrivalMs, () => {
        far.isOpen = !far.isClosed;
        if (far.isOpen) listener.accept(far as End<never>);
      });
      if (back.isHeld) back.waiting.push(() => answer(Math.max(nowMs(), arrivalMs)));
      else answer(arrivalMs);
    };
    if (there.isHeld) there.waiting.push(arrive);
    else arrive();
  }

  wayBetween(from: Pick<Host, "name">, to: Pick<Host, "name">): Way {
    const name = `${from.name}>${to.name}`;
    const way = this.#ways.get(name) ?? new Way();
    this.#ways.set(name, way);
    return way;
  }

  /** Holds or releases one direction between two hosts. */
  setHeld(from: Pick<Host, "name">, to: Pick<Host, "name">, isHeld: boolean): void {
    const way = this.wayBetween(from, to);
    if (way.isHeld === isHeld) return;
    note(`${isHeld ? "hold" : "release"} ${from.name}>${to.name} ${way.waiting.length}`);
    if (isHeld) way.hold();
    else runIn(undefined, () => way.release());
  }

  /** Makes one direction between two hosts slow. */
  setDelay(from: Pick<Host, "name">, to: Pick<Host, "name">, delayMs: number): void {
    note(`delay ${from.name}>${to.name} ${delayMs}`);
    if (delayMs > 0) meet("a way that has got slow");
    this.wayBetween(from, to).delayMs = delayMs;
  }

  /** The first host's sides of the connections between two. */
  #endsBetween(a: Pick<Host, "name">, b: Pick<Host, "name">): readonly End<never>[] {
    return [...this.#ends].filter((end) => end.host.name === a.name && end.peer.host.name === b.name);
  }

  /** Breaks the connections between two hosts: both sides learn of it. */
  cut(a: Pick<Host, "name">, b: Pick<Host, "name">): void {
    note(`cut ${a.name} ${b.name}`);
    for (const end of this.#endsBetween(a, b)) {
      const { peer } = end;
      at(end.host, nowMs(), () => end.hearClose());
      at(peer.host, nowMs(), () => peer.hearClose());
    }
  }

  /**
   * Breaks the connections of a host to another one for the first of them alone: what it has sent still comes.
   *
   * @param laterMs how long after that the other one learns of the end
   */
  lose(near: Pick<Host, "name">, far: Pick<Host, "name">, laterMs: number): void {
    note(`lose ${near.name}>${far.name}`);
    for (const end of this.#endsBetween(near, far)) {
      meet("a break of which one side knows");
      at(end.host, nowMs(), () => end.lose(laterMs));
    }
  }

  /** Ends the connections of a host that has crashed. @param isSilent whether its machine is lost, too */
  drop(host: Host, isSilent: boolean): void {
    for (const end of [...this.#ends]) {
      if (end.host !== host) continue;
      if (isSilent) end.vanish();
      else runIn(undefined, () => end.close());
    }
    for (const [address, listener] of this.#listeners) if (listener.host === host) this.#listeners.delete(address);
  }

  forget(end: End<never>): void {
    this.#ends.delete(end);
  }

  /** The other ends of the connections of a host, for a look at what a stop leaves behind. */
  peersOf(host: Host): string[] {
    return [...this.#ends].filter((end) => end.host === host && end.isOpen).map(({ peer }) => peer.host.name);
  }
}
