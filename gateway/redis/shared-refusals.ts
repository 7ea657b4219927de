/** Shares the counts of refusals between replicas. */
import type { Cluster, Redis } from "ioredis";
import { refusalWindowMs, type ShareRefusals } from "../limits/refusals.ts";

/** Keeps the count of each key id under a Redis key that expires a minute after the first refusal. */
export function shareRefusals(redis: Redis | Cluster): ShareRefusals {
  return async (refusals) => {
    const totals = await Promise.all(
      [...refusals].map(async ([keyId, count]) => {
        const name = `petstore:refusals:${keyId}`;
        // One transaction sets the expiry before the count: a count without an expiry would stay forever.
        const results = await redis.multi().set(name, 0, "PX", refusalWindowMs, "NX").incrby(name, count).exec();
        const [error, total] = results![1] as [Error | null, number];
        if (error) throw error;
        return [keyId, total] as const;
      }),
    );
    return new Map(totals);
  };
}
