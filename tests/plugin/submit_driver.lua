-- Stands in for slurmctld: loads the plugin named first, then submits one job per line of stdin.
-- A line has fields in hex, separated by blanks: comment, script, --nodelist, SBATCH_SIGNAL and
-- further fields (name=value lines; HOPS_CHECK goes to the job's environment). The answer is what
-- the plugin did with the job, then its messages to the user and its admin comment, in hex.

local told
slurm = {
  SUCCESS = 0, ERROR = -1, ESLURM_ACCESS_DENIED = 2002,
  NO_VAL = 4294967294, NO_VAL16 = 65534, INFINITE = 4294967295,
  log_info = function() end,
  log_error = function(...) error(string.format(...), 0) end,
  log_user = function(...) told[#told + 1] = string.format(...) end,
}
assert(loadfile(arg[1]))()

local function text(hex)
  return (hex:gsub("..", function(byte) return string.char(tonumber(byte, 16)) end))
end

local function hex(bytes)
  return (bytes:gsub(".", function(byte) return string.format("%02x", byte:byte()) end))
end

for line in io.lines() do
  told = {}
  local comment, script, nodes, signal, fields = line:match("^(%x*) ?(%x*) ?(%x*) ?(%x*) ?(%x*)$")
  script = script ~= "" and text(script) or "#!/bin/sh\n"
  local job = { comment = text(comment), script = script, priority = slurm.NO_VAL,
    req_nodes = nodes ~= "" and text(nodes) or nil, environment = { SBATCH_SIGNAL = text(signal) } }
  for name, value in text(fields):gmatch("([%w_]+)=([^\n]+)") do job[name] = tonumber(value) or value end
  if job.HOPS_CHECK then job.environment.HOPS_CHECK = "1" end
  local answer = slurm_job_submit(job, {}, 1000)
  local became = "refused"
  if answer == slurm.SUCCESS then became = job.priority == 0 and "held" or "untouched" end
  io.write(became, " ", hex(table.concat(told, "\n")), " ", hex(job.admin_comment or ""), "\n")
end
