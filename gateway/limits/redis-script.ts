/**
 * Decides on the requests of many callers in one call, as `charge` does for one: a request is charged to all of its
 * caller's windows or to none. Redis's clock counts, so replicas need not agree on theirs.
 *
 * A replica says with each request what it knows of the caller: that way counts outlive a Redis that lost its data,
 * and what a replica admitted while Redis was away is charged when it is back.
 *
 * KEYS: one for each request. ARGV: milliseconds to add to the clock (for tests), the number of windows, then for each
 * request and window: limit, length in ms, and what the replica knows: used, end in Unix ms, admitted on its own.
 * Returns the time in Unix ms, then for each request: 1 or 0, and for each window used and end in Unix ms.
 * Kept under each key: used and end of each window, as text.
 */
export const decideScript = `
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[1]
local windows = tonumber(ARGV[2])
local at = 2
local answer = { now }
for i = 1, #KEYS do
  local kept = redis.call('GET', KEYS[i])
  local numbers = kept and string.gmatch(kept, '%d+')
  local used, ends, admitted = {}, {}, 1
  for w = 1, windows do
    local limit, length = tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
    local known_used, known_end, away = tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4]), tonumber(ARGV[at + 5])
    at = at + 5
    local u, e = 0, 0
    if numbers then
      u, e = tonumber(numbers() or 0), tonumber(numbers() or 0)
    end
    if e > now then
      if known_end == e and known_used > u then u = known_used end
      u = u + away
    elseif known_end > now then
      u, e = known_used + away, known_end
    else
      u, e = 0, now + length
    end
    if u >= limit then admitted = 0 end
    used[w], ends[w] = u, e
  end
  answer[#answer + 1] = admitted
  local text, last = {}, 0
  for w = 1, windows do
    used[w] = used[w] + admitted
    answer[#answer + 1] = used[w]
    answer[#answer + 1] = ends[w]
    -- a window without a request in it has not begun
    local e = used[w] > 0 and ends[w] or 0
    text[w] = string.format('%.0f %.0f', used[w], e)
    if e > last then last = e end
  end
  if last > 0 then
    redis.call('SET', KEYS[i], table.concat(text, ' '), 'PX', string.format('%.0f', last - now))
  end
end
return answer
`;
