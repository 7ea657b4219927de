-- Sends POST /v1/inventory/adjustments with neighbours among the pets 1 to N, each with a key of its own, and prints the
-- figures as JSON. The script's arguments: N, and the number of adjustments in a request.
local pets, count, sent, prefix

function init(args)
  pets, count = tonumber(args[1]), tonumber(args[2])
  math.randomseed(os.time())
  sent, prefix = 0, string.format("%d-%d", os.time(), math.random(0, 1000000000))
end

function request()
  local first = math.random(1, pets - count + 1)
  local adjustments = {}
  for i = 0, count - 1 do
    adjustments[i + 1] = string.format('{"petId":%d,"delta":1}', first + i)
  end
  sent = sent + 1
  local headers = { ["Idempotency-Key"] = prefix .. "-" .. sent }
  for name, value in pairs(wrk.headers) do headers[name] = value end
  return wrk.format("POST", "/v1/inventory/adjustments", headers, "[" .. table.concat(adjustments, ",") .. "]")
end

function done(summary, latency)
  local e = summary.errors
  io.write(string.format('\n{"requests":%d,"durationUs":%d,"p50Us":%d,"p99Us":%d,"errors":%d}\n', summary.requests,
    summary.duration, latency:percentile(50), latency:percentile(99), e.connect + e.read + e.write + e.status + e.timeout))
end
