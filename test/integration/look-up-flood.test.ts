import { Agent } from "undici";
import { request } from "../support/http.ts";
import { madeUpKey } from "../support/made-keys.ts";
import { suiteStack } from "../support/stack.ts";
import { startSystem } from "../support/system.ts";

const isLong = process.env.FAULTS === "long";
const floodSize = isLong ? 1_000_000 : 20_000;
const callers = 64;
const addresses = Array.from({ length: 1_000 }, (_, i) => `2001:db8:${i}::1`);

const stack = suiteStack();

test("a flood of made-up keys causes no look-up, and new good keys are answered meanwhile", async () => {
  const system = await startSystem({ gatewayEnv: { TRUSTED_PROXIES: "127.0.0.1" } });
  stack.defer(() => system.close());
  const agent = new Agent({ connections: callers + 1 });
  stack.defer(() => agent.destroy());
  const use = async (key: string, from: string) => {
    const headers = { authorization: `Bearer ${key}`, "x-forwarded-for": from };
    const origin = `http://${system.address}`;
    const { statusCode, body } = await agent.request({ origin, path: "/v1/inventory", method: "GET", headers });
    await body.dump();
    return statusCode;
  };

  const statuses = new Map<number, number>();
  let sent = 0;
  const flood = Array.from({ length: callers }, async () => {
    while (sent < floodSize) {
      const status = await use(madeUpKey(), addresses[sent++ % addresses.length]!);
      statuses.set(status, (statuses.get(status) ?? 0) + 1);
    }
  });
  let good = 0;
  let longestMs = 0;
  while (sent < floodSize) {
    const { key } = await system.issueKey();
    const startedMs = performance.now();
    expect(await use(key, addresses[good++ % addresses.length]!)).toBe(200); // of a flooder
    longestMs = Math.max(longestMs, performance.now() - startedMs);
  }
  await Promise.all(flood);

  const metrics = (await request(system.adminAddress, { path: "/metrics" })).text;
  const lookUps = [...metrics.matchAll(/^gateway_key_lookup_duration_seconds_count\{outcome="(\w+)"\} (\d+)$/gm)];
  // The look-up of no key is that of the start.
  expect(Object.fromEntries(lookUps.map(([, outcome, count]) => [outcome, Number(count)]))).toEqual({
    known: good,
    unknown: 0,
    failed: 0,
  });
  expect([...statuses.keys()].sort()).toEqual(isLong ? [401, 429] : [401]);
  if (isLong) console.log(`${floodSize} made-up keys, ${good} good ones: the slowest took ${longestMs.toFixed(0)} ms`);
}, 3_600_000);
