/** Faults of the node that takes the writes, and how long the writes were away after each. */
import { setTimeout as delay } from "node:timers/promises";
import type { Tiers } from "../faults/cluster.ts";
import { checkHistory, type Effect, type Verdict } from "../faults/history.ts";
import { until } from "../support/until.ts";
import { type DatabaseCluster, patientMs } from "./database-cluster.ts";
import type { Host, Network } from "./network.ts";
import type { WriterSwitch } from "./writer-switch.ts";

export interface WriterFault {
  readonly name: string;
  /** Resolves once another node takes the writes and all nodes are part of the cluster again. */
  run(): Promise<void>;
}

/** @param promote what happens once the writer is dead, for a cluster that does not replace it by itself */
export function writerFaults(
  { nodes, switchTo, rejoin }: DatabaseCluster,
  { writer }: WriterSwitch,
  promote = async (_node: DatabaseCluster["nodes"][number]) => {},
) {
  const oldAndNext = async () => {
    const old = await writer();
    return { old, next: nodes[(nodes.indexOf(old) + 1) % nodes.length]! };
  };
  return {
    planned: {
      name: "planned switch",
      run: async () => {
        const { next } = await oldAndNext();
        await switchTo(next);
        await writer(next);
        await delay(500); // both services work on the new writer for a while
      },
    },
    killed: {
      name: "writer killed",
      run: async () => {
        const { old, next } = await oldAndNext();
        await old.kill();
        await promote(next);
        await writer();
        await rejoin(old);
      },
    },
    frozen: {
      name: "writer frozen until it is replaced",
      run: async () => {
        const { old } = await oldAndNext();
        await old.freeze();
        await writer();
        await old.thaw();
        await rejoin(old);
      },
    },
  } satisfies Record<string, WriterFault>;
}

/** Cuts in the network of the node that takes the writes. The nodes are on the hosts of the network, in their order. */
export function writerCuts({ nodes, rejoin }: DatabaseCluster, { writer }: WriterSwitch, network: Network) {
  const cut = (name: string, drop: (host: Host) => Promise<void>): WriterFault => ({
    name,
    run: async () => {
      const old = await writer();
      const host = network.hosts[nodes.indexOf(old)]!;
      await drop(host);
      await until(async () => (await writer()) !== old, { withinMs: patientMs, everyMs: 100 });
      await network.heal(host);
      await rejoin(old);
    },
  });
  return {
    fromOthers: cut("writer cut off from the other nodes", network.cutFromOthers),
    fromAll: cut("writer cut off from the other nodes and the services", network.cutFromAll),
  };
}

/** Repeats each fault so many times, in turns. */
export function inTurns(...wanted: readonly (readonly [times: number, fault: WriterFault])[]): WriterFault[] {
  const rounds = Math.max(...wanted.map(([times]) => times));
  return Array.from({ length: rounds }, (_, round) =>
    wanted.filter(([times]) => round < times).map(([, fault]) => fault),
  ).flat();
}

/**
 * Checks the history of reads and writes while faults happen, and prints what they did. Every second writer has a key
 * for each update, which then happens once.
 */
export async function checkThrough(faults: readonly WriterFault[], tiers: Tiers, pets: number): Promise<Verdict> {
  const key = tiers.system.keys.enterprise;
  const disturbances = faults.map((fault) => fault.run);
  const updates = { isKeyed: "half" } as const;
  const verdict = await checkHistory(tiers, { key, pets, readers: 8, reads: 500, updates, disturbances });
  console.info(verdict);
  printEffects(faults, verdict.effects);
  return verdict;
}

/** Prints what each kind of fault did: how long no update was acknowledged, and how many requests got no 200. */
function printEffects(faults: readonly WriterFault[], effects: readonly Effect[]): void {
  const pairs = faults.map(({ name }, i) => ({ name, ...effects[i]! }));
  const table = [...Map.groupBy(pairs, ({ name }) => name)].map(([fault, of]) => {
    const gaps = of.map(({ gapMs }) => gapMs).sort((a, b) => a - b);
    const refused = of.map((each) => each.refused).sort((a, b) => a - b);
    const middle = of.length >> 1;
    return {
      fault,
      times: of.length,
      medianMs: gaps[middle],
      maxMs: gaps.at(-1),
      medianRefused: refused[middle],
      maxRefused: refused.at(-1),
    };
  });
  console.table(table);
}
