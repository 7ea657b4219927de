/** The Lua script that decides about requests on Redis. */

/**
 * Decides about requests of many callers in one call, as `charge` does for one: a request is charged to all of its
 * caller's windows or to none. It goes by the clock of Redis, so replicas need not agree on theirs.
 *
 * A replica sends with each question what it knows of the caller. So counts survive a Redis that lost its data, and
 * what a replica admitted while Redis was away is charged later, if its window has not ended by then. Where
 * Redis began a window again and a replica knows of one that ends sooner, that one goes on, with the requests of both.
 * The end that this replaces is kept until it has passed: a replica that still knows the window by it would charge its
 * requests a second time.
 *
 * KEYS: one for each caller.
 * ARGV: milliseconds to add to the clock (for tests), the number of windows; then for each caller the number of its
 * requests, and for each window: limit, length in ms, and what the replica knows: used, end in Unix ms, and unsent
 * (admitted by this replica alone).
 * Returns the time in Unix ms; then for each caller how many of its requests are admitted, and for each window used and
 * end in Unix ms.
 * Each key holds three numbers for each window, as text: used, end, and the end that was replaced (0 without one).
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
  local used, ends, replaced = {}, {}, {}
  local admitted = tonumber(ARGV[at + 1])
  at = at + 1
  for w = 1, windows do
    local known_used, known_end = tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4])
    local latest_end = now + ARGV[at + 2] -- of a later end the clock has been set back since: its window is over
    if known_end > latest_end then known_end = 0 end
    local unsent = known_end > now and ARGV[at + 5] or 0
    local u, e, r = 0, 0, 0
    if numbers then
      u, e, r = tonumber(numbers() or 0), tonumber(numbers() or 0), tonumber(numbers() or 0)
    end
    if r <= now or r > latest_end then r = 0 end
    if known_end == r then known_end = 0 end -- what the replica knows of this window has been joined
    if e > now and e <= latest_end then
      if known_end == e and known_used > u then
        u = known_used
      elseif known_used > 0 and known_end > now and known_end < e then -- it is from Redis: a window begun alone has 0
        u, e, r = u + known_used, known_end, e
      end
    elseif known_end > now then
      u, e = known_used, known_end
    else
      u, e = 0, latest_end
    end
    u = u + unsent
    local left = ARGV[at + 1] - u
    if left < admitted then admitted = left end
    used[w], ends[w], replaced[w] = u, e, r
    at = at + 5
  end
  if admitted < 0 then admitted = 0 end
  answer[#answer + 1] = admitted
  local text, last = '', 0
  for w = 1, windows do
    local u, e = used[w] + admitted, ends[w]
    answer[#answer + 1] = u
    answer[#answer + 1] = e
    if u == 0 then e = 0 end -- a window without a request has not begun
    last = math.max(last, e, replaced[w])
    text = text .. string.format('%.0f %.0f %.0f ', u, e, replaced[w])
  end
  if last > 0 then redis.call('SET', KEYS[i], text, 'PX', string.format('%.0f', last - now)) end
end
return answer
`;
