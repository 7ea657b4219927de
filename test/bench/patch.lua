-- Sends PATCH with random quantities for the pets 1 to N, the script's argument, and prints the figures as JSON.
local pets

function init(args)
  pets = tonumber(args[1])
  math.randomseed(os.time())
end

function request()
  local body = string.format('{"quantity":%d}', math.random(0, 2000000000))
  return wrk.format("PATCH", "/v1/inventory/" .. math.random(1, pets), nil, body)
end

function done(summary, latency)
  local e = summary.errors
  io.write(string.format('\n{"requests":%d,"durationUs":%d,"p50Us":%d,"p99Us":%d,"errors":%d}\n', summary.requests,
    summary.duration, latency:percentile(50), latency:percentile(99), e.connect + e.read + e.write + e.status + e.timeout))
end
