-- Sends GET with the path of the script's argument, else of the list, and prints the figures as JSON.
function init(args)
  wrk.path = args[1] or "/v1/inventory"
end

function done(summary, latency)
  local e = summary.errors
  io.write(string.format('\n{"requests":%d,"durationUs":%d,"p50Us":%d,"p99Us":%d,"errors":%d}\n', summary.requests,
    summary.duration, latency:percentile(50), latency:percentile(99), e.connect + e.read + e.write + e.status + e.timeout))
end
