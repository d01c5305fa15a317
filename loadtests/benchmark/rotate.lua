-- wrk script: POSTs the bodies in turn. Arguments: body files. Prints one line of JSON at the end.
local requests, at = {}, 0

function init(files)
  wrk.headers["Content-Type"] = "application/json"
  for _, name in ipairs(files) do
    local file = assert(io.open(name, "rb"))
    requests[#requests + 1] = wrk.format("POST", nil, nil, file:read("*a"))
    file:close()
  end
end

function request()
  at = at % #requests + 1
  return requests[at]
end

function done(summary, latency, _)
  local e = summary.errors
  io.write(string.format('RESULT {"requests":%d,"seconds":%.6f,"p50_ms":%.3f,"p99_ms":%.3f,"not_200":%d,"socket":%d,"timeout":%d}\n',
    summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3,
    e.status, e.connect + e.read + e.write, e.timeout))
end
