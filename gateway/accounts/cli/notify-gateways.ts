/** Tells running gateways that keys have changed. */
import { once } from "node:events";
import { connectRedis } from "../../limits/redis-connection.ts";
import { KeyInvalidations } from "../keys/key-invalidations.ts";

/**
 * Tells gateways over Redis which keys or accounts have changed, so that they look them up again at once. Without such
 * a message they do so within 10 s, so a failure only prints a warning.
 *
 * @param redisUrl undefined where gateways have no Redis
 * @param ids of the keys or the accounts
 */
export async function notifyGateways(redisUrl: string | undefined, ...ids: readonly string[]): Promise<void> {
  if (redisUrl === undefined) return;
  const redis = connectRedis(redisUrl);
  redis.on("error", () => {}); // the warning below says enough
  try {
    await once(redis, "ready", { signal: AbortSignal.timeout(2_000) });
    const invalidations = new KeyInvalidations(redis);
    for (const id of ids) await invalidations.send(id);
  } catch {
    process.stderr.write(
      "REDIS_URL: Redis cannot be reached, so this change takes up to 10 s to hold at every gateway.\n",
    );
  } finally {
    redis.disconnect();
  }
}
