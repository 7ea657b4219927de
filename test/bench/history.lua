-- Sends GET of the path that is the script's argument, and prints the figures as JSON.
local path

function init(args)
  path = args[1]
end

function request()
  return wrk.format("GET", path)
end

function done(summary, latency)
  local e = summary.errors
  io.write(string.format('\n{"requests":%d,"durationUs":%d,"p50Us":%d,"p99Us":%d,"errors":%d}\n', summary.requests,
    summary.duration, latency:percentile(50), latency:percentile(99), e.connect + e.read + e.write + e.status + e.timeout))
end
