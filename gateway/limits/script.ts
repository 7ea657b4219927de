/** The Lua script that counts the requests of accounts on Redis. */
import { lengthsMs } from "./rule.ts";

/**
 * Merges the statements of one gateway about many accounts, as `charge` in `rule.ts` does for one. It goes by the clock
 * of Redis.
 *
 * KEYS: one for each account.
 * ARGV: milliseconds to add to the clock (for tests); then for each account the name of the gateway's counter, the
 * phase in ms, how many requests it wants to admit, and for each window: limit, index, own, synced, heard.
 * Returns the time in Unix ms; then for each account how many requests are admitted, and for each window its total and
 * what is charged to the gateway.
 *
 * Each key is a hash. The field `total` has index, floor and sum of each window, and the field of a counter has index
 * and own. The key goes with its day, and with it the fields of gateways that are gone.
 */
export const chargeScript = `
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[1]
local lengths = { ${lengthsMs.join(", ")} }
local windows = #lengths
local function numbers(text)
  local found = {}
  for number in string.gmatch(text or '', '%d+') do found[#found + 1] = tonumber(number) end
  return found
end
local at = 2
local answer = { now }
for i = 1, #KEYS do
  local gateway, phase, admitted = ARGV[at], tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
  at = at + 3
  local kept = redis.call('HMGET', KEYS[i], 'total', gateway)
  local totals, charges = numbers(kept[1]), numbers(kept[2])
  local day = math.floor((now + phase) / lengths[windows])
  local is_new = totals[3 * windows - 2] ~= day
  if is_new then totals, charges = {}, {} end
  local merged = {}
  for w = 1, windows do
    local index = math.floor((now + phase) / lengths[w])
    local floor, sum, charged, own, synced, heard = 0, 0, 0, 0, 0, 0
    if totals[3 * w - 2] == index then floor, sum = totals[3 * w - 1], totals[3 * w] end
    if charges[2 * w - 1] == index then charged = charges[2 * w] end
    if tonumber(ARGV[at + 1]) == index then
      own, synced, heard = tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4])
    end
    local known = math.max(charged, own, synced)
    sum = sum + known - charged
    local total = math.max(floor, heard + math.max(0, own - synced), sum)
    admitted = math.max(0, math.min(admitted, ARGV[at] - total + known - own))
    merged[w] = { index = index, floor = floor, charged = charged, own = own, known = known, sum = sum, total = total }
    at = at + 5
  end
  answer[#answer + 1] = admitted
  local is_changed, total_field, own_field = false, {}, {}
  for w, m in ipairs(merged) do
    local grown = math.max(0, m.own + admitted - m.known)
    if m.total + grown > m.floor or m.known + grown > m.charged then is_changed = true end
    answer[#answer + 1] = m.total + grown
    answer[#answer + 1] = m.known + grown
    total_field[w] = string.format('%.0f %.0f %.0f', m.index, m.total + grown, m.sum + grown)
    own_field[w] = string.format('%.0f %.0f', m.index, m.known + grown)
  end
  if is_changed then
    if is_new then redis.call('DEL', KEYS[i]) end
    redis.call('HSET', KEYS[i], 'total', table.concat(total_field, ' '), gateway, table.concat(own_field, ' '))
    if is_new then redis.call('PEXPIRE', KEYS[i], (day + 1) * lengths[windows] - phase - now) end
  end
end
return answer
`;
