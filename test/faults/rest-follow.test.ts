import { createInventoryClient, type InventoryClient } from "../../client/index.ts";
import { createInventoryApi, type FollowEvent } from "../../rest-client/index.ts";
import { freePort } from "../support/ports.ts";
import type { RunningProcess } from "../support/processes.ts";
import { suiteStack } from "../support/stack.ts";
import { startSystem } from "../support/system.ts";

const stack = suiteStack();
const rounds = process.env.FAULTS === "long" ? 20 : 2;
const entries = 50;

/**
 * A client of the service, closed at the end of its block: one that saw the service die waits before it tries again.
 */
function openInternal(address: string): InventoryClient & Disposable {
  const client = createInventoryClient({ address });
  return Object.assign(client, { [Symbol.dispose]: () => client.close() });
}

/** The number in a tag of the list, as `"epoch-625"` or `"epoch-625-gzip"`, or of an entry, as `"r625"`. */
const revisionOf = (etag: string) => BigInt(/(\d+)(-gzip)?"$/.exec(etag)![1]!);

test(
  "follow() gives every difference once and in order while everything is killed and restarted",
  async () => {
    const seed = Array.from({ length: entries }, (_, i) => ({
      petId: BigInt(i),
      quantity: 0,
      status: "available" as const,
    }));
    const address = `127.0.0.1:${await freePort()}`;
    const system = await startSystem({ seed, gateways: 0, gatewayEnv: { GATEWAY_LISTEN: address } });
    stack.defer(() => system.close());
    let gateway: RunningProcess = await system.startGateway();
    const api = () => createInventoryApi({ baseUrl: `http://${address}/v1`, apiKey: system.keys.enterprise });

    const stop = new AbortController();
    stack.defer(() => stop.abort());
    const stock = new Map<bigint, number>();
    const faults: string[] = [];
    let position = 0n;
    let differences = 0;
    const begun = Promise.withResolvers<void>();
    let onEvent = begun.resolve;
    const apply = (event: FollowEvent) => {
      const revision = revisionOf(event.etag);
      if (event.type === "stock") {
        if (position > 0n) faults.push(`the stock again at ${event.etag}`);
        for (const { petId, quantity } of event.items) stock.set(petId, quantity);
      } else {
        differences += 1;
        if (revision <= position) faults.push(`${event.etag} after ${position}`);
        for (const { petId, quantity, etag } of event.changed) {
          const changedAt = revisionOf(etag);
          if (changedAt <= position || changedAt > revision)
            faults.push(`${petId} of ${etag} in ${position}…${revision}`);
          stock.set(petId, quantity);
        }
        for (const petId of event.removed) if (!stock.delete(petId)) faults.push(`${petId} is removed twice`);
      }
      position = revision;
      onEvent();
    };
    const following = (async () => {
      for await (const event of api().follow(stop)) apply(event);
    })().catch((error) => {
      if (!stop.signal.aborted) throw error;
    });

    const written = new AbortController();
    const writing = (async () => {
      const writer = api();
      for (let i = 1; !written.signal.aborted; i++) {
        // On a busy machine an outage may last longer than the client repeats an update. It may then have happened.
        await writer.update(1 + (i % (entries - 2)), i, stop).catch(() => {});
      }
    })();

    /** Changes an entry of its own, and resolves when the difference has come. */
    const hearOf = async (quantity: number) => {
      const heard = new Promise<void>((resolve) => {
        onEvent = () => stock.get(0n) === quantity && resolve();
      });
      await api().update(0, quantity);
      await Promise.race([heard, following]);
    };

    await begun.promise; // the stock before the first fault, so that each update after it is a difference
    const last = BigInt(entries - 1);
    for (let round = 0; round < rounds; round++) {
      await gateway.kill("SIGKILL");
      gateway = await system.startGateway();
      await system.inventory.kill("SIGKILL");
      await system.restartInventory();
      // Made and removed again, now and then while no gateway knows of it.
      await gateway.stop();
      using internal = openInternal(system.inventory.listen);
      await internal.remove(last);
      if (round % 2 === 0) await internal.create({ petId: last, quantity: round, status: "sold" });
      gateway = await system.startGateway();
      if (round % 2 === 1) await internal.create({ petId: last, quantity: round, status: "sold" });
      await hearOf(round + 1);
    }
    written.abort();
    await writing;
    await hearOf(rounds + 1);
    expect(faults).toEqual([]);
    expect(differences).toBeGreaterThan(rounds);
    const list = await api().list();
    expect([...stock].sort(([a], [b]) => (a < b ? -1 : 1))).toEqual(
      list.map(({ petId, quantity }) => [petId, quantity]),
    );
    stop.abort();
    await following;
  },
  rounds * 90_000,
);
