/** Tells running gateways that a key has changed. */
import { once } from "node:events";
import { connectRedis } from "../../limits/redis-connection.ts";
import { KeyInvalidations } from "../keys/key-invalidations.ts";

/**
 * Makes gateways look up a changed key or account at once. Without an invalidation they do so within 10 s, so a failed
 * one only prints a warning.
 *
 * @param redisUrl undefined where gateways have no Redis
 * @param id of the key or the account
 */
export async function notifyGateways(redisUrl: string | undefined, id: string): Promise<void> {
  if (redisUrl === undefined) return;
  const redis = connectRedis(redisUrl);
  redis.on("error", () => {}); // the warning below says enough
  try {
    await once(redis, "ready", { signal: AbortSignal.timeout(2_000) });
    await new KeyInvalidations(redis).send(id);
  } catch {
    process.stderr.write(
      "REDIS_URL: Redis cannot be reached, so this change takes up to 10 s to hold at every gateway.\n",
    );
  } finally {
    redis.disconnect();
  }
}
