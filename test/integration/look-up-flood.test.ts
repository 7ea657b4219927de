import { createKey } from "../../gateway/auth/key-format.ts";
import { callApi } from "../support/api.ts";
import { suiteStack } from "../support/cleanup.ts";
import { startSystem } from "../support/system.ts";

const stack = suiteStack();

test("a flood of made-up keys from one network stops no good key from elsewhere, known or not", async () => {
  const system = await startSystem({
    gatewayEnv: { TRUSTED_PROXIES: "127.0.0.1", OVERLOAD_REQUESTS: "300", OVERLOAD_DELAY_MS: "10" },
  });
  stack.defer(() => system.close());
  const use = async (key: string, from: string) => {
    const headers = { authorization: `Bearer ${key}`, "x-forwarded-for": from };
    return (await callApi(system.address, { path: "/v1/inventory", headers })).status;
  };
  const known = system.keys.enterprise!;
  expect(await use(known, "192.0.2.1")).toBe(200);
  const strangers = await Promise.all(Array.from({ length: 10 }, async () => (await system.issueKey()).key));

  let isOver = false;
  let sites = 0;
  const flood = Array.from({ length: 600 }, async () => {
    while (!isOver) await use(createKey("test"), `2001:db8:1:${(++sites).toString(16)}::1`);
  });
  const statuses: number[] = [];
  for (const [i, key] of strangers.entries()) {
    statuses.push(await use(key, `198.51.100.${i}`), await use(known, "192.0.2.1"));
  }
  isOver = true;
  await Promise.all(flood);
  expect(statuses).toEqual(Array(20).fill(200));
  expect(sites).toBeGreaterThan(600);
}, 60_000);
