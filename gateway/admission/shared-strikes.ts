/** Shares the counts of strikes between gateways. */
import type { Cluster, Redis } from "ioredis";
import type { Breaker } from "../limits/redis-breaker.ts";
import { type ShareStrikes, strikeSlotMs, strikeWindowMs } from "./strikes.ts";

/**
 * Adds strikes of one family of keys to those of the last minute, by the clock of Redis.
 *
 * KEYS: one, which holds pairs of numbers: a slot of time in Unix ms, and its strikes.
 * ARGV: strikes to add, how many are too many, the length of a slot and of the window in ms, and milliseconds to add
 * to the clock (for tests).
 * Returns 1 when they are too many, and the count starts again; otherwise 0.
 */
const countStrikesScript = `
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[5]
local slot, window = now - now % ARGV[3], tonumber(ARGV[4])
local counts, total = { [slot] = tonumber(ARGV[1]) }, tonumber(ARGV[1])
for at, count in string.gmatch(redis.call('GET', KEYS[1]) or '', '(%d+) (%d+)') do
  at = tonumber(at)
  if at > now - window and at <= now then -- a later one is from before the clock was set back
    counts[at] = (counts[at] or 0) + count
    total = total + count
  end
end
if total >= tonumber(ARGV[2]) then
  redis.call('SET', KEYS[1], '', 'PX', 1)
  return 1
end
local text = ''
for at, count in pairs(counts) do text = text .. string.format('%.0f %.0f ', at, count) end
redis.call('SET', KEYS[1], text, 'PX', window)
return 0
`;

type Client = (Redis | Cluster) & {
  countStrikes(key: string, ...args: readonly number[]): Promise<0 | 1>;
};

/** @param clockOffsetMs milliseconds to add to the clock of Redis; for tests */
export function strikeSharing(redis: Redis | Cluster, breaker: Breaker, clockOffsetMs = () => 0): ShareStrikes {
  redis.defineCommand("countStrikes", { numberOfKeys: 1, lua: countStrikesScript });
  const client = redis as Client;
  return async (strikes, maxStrikes) => {
    const found = await Promise.all(
      [...strikes].map(async ([familyId, count]) => {
        const key = `petstore:refused:${familyId}`;
        const times = [strikeSlotMs, strikeWindowMs, clockOffsetMs()];
        try {
          const isTooMany = await breaker.run(key, () => client.countStrikes(key, count, maxStrikes, ...times));
          return isTooMany ? [familyId] : [];
        } catch {
          return []; // each gateway goes by its own count
        }
      }),
    );
    return found.flat();
  };
}
