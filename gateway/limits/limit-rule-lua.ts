/**
 * `mergeReport` of `limit-rule.ts` in Lua, for Redis: one rule said twice, which the test beside this file compares.
 */
import { type ChargeAnswer, type CountReport, lengthsMs } from "./limit-rule.ts";

/**
 * Merges the reports of one gateway about many accounts, as `mergeReport` in `limit-rule.ts` does for one. It goes by
 * the clock of Redis.
 *
 * KEYS: one for each account.
 * ARGV: milliseconds to add to the clock (for tests); then for each account the name of the gateway's counts, the
 * phase in ms, how many requests it wants to admit, and for each window: limit, index, own, alone, synced, others.
 * Returns the time in Unix ms; then for each account how many requests are admitted, and for each window what is
 * charged to other gateways and to this one.
 *
 * Each key is a hash. The field `total` has index, highest and sum of each window. For each gateway a field, named
 * after its counts, has the index and what is charged to it. All are doubles, because texts take Redis much longer. The
 * key expires with its day, and with it the fields of gateways that are gone.
 */
export const chargeScript = `
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[1]
local lengths = { ${lengthsMs.join(", ")} }
local windows = #lengths
local max, number = math.max, tonumber
local total_format, own_format = string.rep('ddd', windows), string.rep('dd', windows)
local indexes, highests, sums, charges, owns, knowns, totals = {}, {}, {}, {}, {}, {}, {}
local at, answered = 2, 1
local answer = { now }
for i = 1, #KEYS do
  local key, counts_name, phase, admitted = KEYS[i], ARGV[at], number(ARGV[at + 1]), number(ARGV[at + 2])
  at = at + 3
  local kept = redis.call('HMGET', key, 'total', counts_name)
  local kept_totals = kept[1] and { struct.unpack(total_format, kept[1]) } or {}
  local day = math.floor((now + phase) / lengths[windows])
  local is_new = kept_totals[3 * windows - 2] ~= day
  if is_new then kept_totals = {} end
  local kept_charges = not is_new and kept[2] and { struct.unpack(own_format, kept[2]) } or {}
  for w = 1, windows do
    local index = math.floor((now + phase) / lengths[w])
    local highest, sum, charged, own, alone, synced, others = 0, 0, 0, 0, 0, 0, 0
    if kept_totals[3 * w - 2] == index then highest, sum = kept_totals[3 * w - 1], kept_totals[3 * w] end
    if kept_charges[2 * w - 1] == index then charged = kept_charges[2 * w] end
    if number(ARGV[at + 1]) == index then
      own, alone = number(ARGV[at + 2]), number(ARGV[at + 3])
      synced, others = number(ARGV[at + 4]), number(ARGV[at + 5])
    end
    local known = max(charged, own, synced)
    sum = sum + known - charged
    local total = max(highest + math.min(alone, known - charged), others + known, sum)
    local credit = known - own
    admitted = max(0, math.min(admitted, credit + ARGV[at] - total))
    indexes[w], highests[w], charges[w] = index, highest, charged
    owns[w], knowns[w], sums[w], totals[w] = own, known, sum, total
    at = at + 6
  end
  answered = answered + 1
  answer[answered] = admitted
  local is_changed, total_field, own_field = false, {}, {}
  for w = 1, windows do
    local grown = max(0, owns[w] + admitted - knowns[w])
    local total, charged = totals[w] + grown, knowns[w] + grown
    if total > highests[w] or charged > charges[w] then is_changed = true end
    answer[answered + 1], answer[answered + 2] = total - charged, charged
    answered = answered + 2
    total_field[3 * w - 2], total_field[3 * w - 1], total_field[3 * w] = indexes[w], total, sums[w] + grown
    own_field[2 * w - 1], own_field[2 * w] = indexes[w], charged
  end
  if is_changed then
    if is_new then redis.call('DEL', key) end
    local packed_total = struct.pack(total_format, unpack(total_field))
    redis.call('HSET', key, 'total', packed_total, counts_name, struct.pack(own_format, unpack(own_field)))
    if is_new then redis.call('PEXPIRE', key, (day + 1) * lengths[windows] - phase - now) end
  end
end
return answer
`;

/** Lists the arguments of one account for a call of the script. @param phaseMs of the account */
export function argumentsOf({ countsName, wanted, limits, counts }: CountReport, phaseMs: number): (string | number)[] {
  const ofWindows = counts.flatMap(({ index, own, alone, synced, others }, w) => {
    return [limits[w]!, index, own, alone, synced, others];
  });
  return [countsName, phaseMs, wanted, ...ofWindows];
}

/** Reads what the script has answered about one account. @param account its place among the keys of the call */
export function answerOf(numbers: readonly number[], account: number): ChargeAnswer {
  const at = 1 + account * (1 + 2 * lengthsMs.length);
  const charges = lengthsMs.map((_, w) => ({ others: numbers[at + 2 * w + 1]!, charged: numbers[at + 2 * w + 2]! }));
  return { admittedCount: numbers[at]!, charges };
}
