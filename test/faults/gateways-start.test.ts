import { generated } from "../../inventory-svc/cli/entries.ts";
import { memoryMiB, peakMemoryMiB } from "../bench/measure.ts";
import { request } from "../support/http.ts";
import { suiteStack } from "../support/stack.ts";
import { type System, startSystem } from "../support/system.ts";

/** `npm run test:faults` runs the long version, of a million entries. */
const size = process.env.FAULTS === "long" ? 1_000_000 : 200_000;
const gateways = 8;

describe(`gateways of a stock of ${size} entries`, () => {
  const stack = suiteStack();
  let system: System;

  beforeAll(async () => {
    system = await startSystem({
      database: "mysql",
      gateways: 0,
      seed: await Array.fromAsync(generated(size)),
      // All of them together take longer, but no part of the list does.
      gatewayEnv: { LOG_LEVEL: "warn", INVENTORY_TIMEOUT_MS: "3000" },
      inventoryEnv: { LOG_LEVEL: "fatal" },
    });
    stack.defer(() => system.close());
  }, 180_000);

  /** Lists that the service has sent to their end so far. */
  async function listsSent(): Promise<number> {
    const { text } = await request(system.inventory.admin, { path: "/metrics" });
    const counts = text.matchAll(/^inventory_rpc_duration_seconds_count\{.*method="ListInventory".*\} (\d+)$/gm);
    return [...counts].reduce((sum, [, count]) => sum + Number(count), 0);
  }

  test("gateways that start at the same moment all get ready, and none has to begin its list again", async () => {
    const timed = async () => {
      const startedMs = performance.now();
      const gateway = await system.startGateway();
      return { gateway, tookMs: performance.now() - startedMs };
    };
    const alone = await timed();
    await alone.gateway.stop();
    const before = await listsSent();
    const { pid } = system.inventory;
    const aloneMiB = memoryMiB(pid);
    const startedMs = performance.now();
    const together = await Promise.all(Array.from({ length: gateways }, timed));
    const tookMs = performance.now() - startedMs;
    const times = together.map((each) => (each.tookMs / 1_000).toFixed(1)).join(", ");
    console.log(
      `${size} entries: one gateway is ready after ${(alone.tookMs / 1_000).toFixed(1)} s, ${gateways} together after ${times} s, ` +
        `${(tookMs / alone.tookMs / gateways).toFixed(2)} of ${gateways} times one; the service took ${aloneMiB.toFixed(0)} MiB after one, at most ${peakMemoryMiB(pid).toFixed(0)}`,
    );
    expect(before).toBe(1);
    expect((await listsSent()) - before).toBe(gateways);
    for (const { gateway } of together) {
      expect((await request(gateway.admin, { path: "/readyz" })).status).toBe(200);
      expect(gateway.output()).not.toContain("not ready yet");
    }
    const headers = { authorization: `Bearer ${system.keys.enterprise}` };
    const lists = new Set<string>();
    for (const { gateway } of together) {
      lists.add((await request(gateway.listen, { path: "/v1/inventory", headers })).text);
    }
    expect(lists.size).toBe(1);
    expect([...lists][0]!.match(/"petId"/g)).toHaveLength(size);
  }, 600_000);
});
