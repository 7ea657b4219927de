import { request as openRequest } from "node:http";
import { setTimeout as delay } from "node:timers/promises";
import { rawRequest, request } from "./http.ts";
import { madeUpKey } from "./made-keys.ts";
import type { System } from "./system.ts";

/** A load that does not wait for answers, so that it goes on while the system is slow or away. */
export interface Load {
  /** Reads of the list in each round besides the others; 0 at first. */
  moreReads: number;
  /** The body of an update comes late in each round of this number; 0, at first, for never. */
  slowEvery: number;
  stop(): Promise<void>;
}

const everyMs = 200;

/** Five times a second sends a little of everything: invalid HTTP, and 12 requests, of which 5 get to the inventory. */
export function startLoad({ address, keys }: Pick<System, "address" | "keys">): Load {
  const json = { "content-type": "application/json" };
  const as = (key: string, more = {}) => ({ headers: { authorization: `Bearer ${key}`, ...more } });
  const update = { method: "PATCH", ...as(keys.enterprise, json) };
  const everything = (round: number): Promise<unknown>[] => [
    request(address, { path: "/v1/inventory", ...as(keys.enterprise) }),
    request(address, { path: "/v1/inventory/1", body: JSON.stringify({ quantity: round }), ...update }),
    request(address, { path: "/v1/inventory/9", body: JSON.stringify({ quantity: round }), ...update }),
    request(address, { path: "/v1/pets/1", ...as(keys.enterprise) }),
    request(address, { path: "/v1/store/orders", ...as(keys.enterprise) }),
    request(address, { path: `/v1/made-up/${round}`, ...as(keys.enterprise) }),
    request(address, { path: "/v1/inventory", ...as(keys.free) }),
    request(address, { path: "/v1/inventory", ...as(keys.pro) }),
    request(address, { path: "/v1/inventory", ...as(keys.business) }),
    request(address, { path: "/v1/inventory" }),
    request(address, { path: "/v1/inventory", ...as(madeUpKey()) }),
    request(address, { path: "/openapi.json" }),
    rawRequest(address, "nonsense\r\n\r\n"),
  ];
  const underWay = new Set<Promise<unknown>>();
  const send = (answers: readonly Promise<unknown>[]) => {
    for (const answer of answers) {
      const over = answer.catch(() => {}).finally(() => underWay.delete(over));
      underWay.add(over);
    }
  };
  let round = 0;
  const timer = setInterval(() => {
    round += 1;
    send(everything(round));
    send(
      Array.from({ length: load.moreReads }, () => request(address, { path: "/v1/inventory", ...as(keys.enterprise) })),
    );
    if (load.slowEvery > 0 && round % load.slowEvery === 0) send([sendSlowly(address, update.headers)]);
  }, everyMs);
  const load: Load = {
    moreReads: 0,
    slowEvery: 0,
    stop: async () => {
      clearInterval(timer);
      await Promise.all(underWay);
    },
  };
  return load;
}

/** Sends an update whose body comes 3 s after its head. */
async function sendSlowly(address: string, headers: Record<string, string>): Promise<void> {
  const body = '{"quantity":1}';
  const slow = openRequest(`http://${address}/v1/inventory/1`, {
    method: "PATCH",
    headers: { ...headers, "content-length": body.length },
  });
  const answered = new Promise((resolve, reject) => slow.on("response", resolve).on("error", reject));
  slow.flushHeaders();
  await delay(3_000);
  slow.end(body);
  ((await answered) as NodeJS.ReadableStream).resume();
}
