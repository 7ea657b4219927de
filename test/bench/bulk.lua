-- Sends POST /v1/inventory/updates with 100 neighbours among the pets 1 to N, the script's argument, each with a random
-- quantity, and prints the figures as JSON.
local pets

function init(args)
  pets = tonumber(args[1])
  math.randomseed(os.time())
end

function request()
  local first = math.random(1, pets - 99)
  local updates = {}
  for i = 0, 99 do
    updates[i + 1] = string.format('{"petId":%d,"quantity":%d}', first + i, math.random(0, 2000000000))
  end
  return wrk.format("POST", "/v1/inventory/updates", nil, "[" .. table.concat(updates, ",") .. "]")
end

function done(summary, latency)
  local e = summary.errors
  io.write(string.format('\n{"requests":%d,"durationUs":%d,"p50Us":%d,"p99Us":%d,"errors":%d}\n', summary.requests,
    summary.duration, latency:percentile(50), latency:percentile(99), e.connect + e.read + e.write + e.status + e.timeout))
end
