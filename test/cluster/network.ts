/** Makes hosts with a network between them, which a test can cut: network namespaces of Linux on a bridge. */
import { execFile } from "node:child_process";
import { randomInt } from "node:crypto";
import { promisify } from "node:util";

const run = promisify(execFile);
const ip = (...args: string[]) => run("ip", args);

export interface Host {
  readonly address: string;
  /** The words before a command that runs it on this host. */
  readonly prefix: readonly string[];
}

export interface Network {
  readonly hosts: readonly Host[];
  /** Drops what a host and the other hosts send to each other. This machine still reaches all. */
  cutFromOthers(host: Host): Promise<void>;
  /** Drops all that a host sends or should get. */
  cutFromAll(host: Host): Promise<void>;
  /** Undoes the cuts of a host. */
  heal(host: Host): Promise<void>;
}

/** Says why this process can make no networks; undefined where it can. */
export async function whyNoNetwork(): Promise<string | undefined> {
  const name = nameOf("try");
  try {
    await ip("netns", "add", name);
    await ip("netns", "delete", name);
    return undefined;
  } catch (error) {
    return `network namespaces need root on Linux and iproute2: ${(error as Error).message}`;
  }
}

/** Starts a network of hosts. It ends with the stack, which needs all of their processes to be gone. */
export async function startNetwork(stack: AsyncDisposableStack, size: number): Promise<Network> {
  const bridge = nameOf("br");
  const subnet = `10.${randomInt(128, 256)}.${randomInt(256)}`; // private, as Group Replication wants it
  await ip("link", "add", bridge, "type", "bridge");
  stack.defer(async () => void (await ip("link", "delete", bridge)));
  await ip("address", "add", `${subnet}.254/24`, "dev", bridge);
  await ip("link", "set", bridge, "up");

  const hosts: (Host & { readonly space: string; readonly link: string })[] = [];
  for (let i = 1; i <= size; i++) {
    const [space, link] = [nameOf("ns"), nameOf("v")];
    await ip("netns", "add", space);
    stack.defer(async () => void (await ip("netns", "delete", space)));
    await ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", space);
    await ip("link", "set", link, "master", bridge, "up");
    await ip("-n", space, "address", "add", `${subnet}.${i}/24`, "dev", "eth0");
    await ip("-n", space, "link", "set", "eth0", "up");
    await ip("-n", space, "link", "set", "lo", "up");
    hosts.push({ address: `${subnet}.${i}`, prefix: ["ip", "netns", "exec", space], space, link });
  }

  /** Adds or deletes routes to nowhere between a host and the others. */
  const routeNowhere = async (verb: "add" | "delete", host: Host) => {
    const one = hosts.find((each) => each === host)!;
    for (const other of hosts.filter((each) => each !== one)) {
      await ip("-n", one.space, "route", verb, "blackhole", other.address);
      await ip("-n", other.space, "route", verb, "blackhole", one.address);
    }
  };
  const cuts = new Map<Host, () => Promise<void>>();
  return {
    hosts,
    cutFromOthers: async (host) => {
      await routeNowhere("add", host);
      cuts.set(host, () => routeNowhere("delete", host));
    },
    cutFromAll: async (host) => {
      const { link } = hosts.find((each) => each === host)!;
      await ip("link", "set", link, "down");
      cuts.set(host, async () => void (await ip("link", "set", link, "up")));
    },
    heal: async (host) => {
      await cuts.get(host)?.();
      cuts.delete(host);
    },
  };
}

/** Names of devices have at most 15 characters. */
const nameOf = (kind: string) => `pets-${kind}-${randomInt(1_000_000)}`;
