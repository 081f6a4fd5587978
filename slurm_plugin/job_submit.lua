-- hops: job_submit/lua plugin for Slurm 22.05 and newer, Lua 5.1 to 5.4.
--
-- A job with "hops:" in its comment is checked, freed of what would pin its shape and held: from
-- then on hopsd alone places it. Every other job passes untouched.
--
-- Slurm lets a job through, changed as far as it got, when this script raises an error or
-- returns no number. So nothing here runs outside pcall once a job is known to be ours, and a
-- failed call refuses. It is one file, so that an update cannot leave half of it behind.
--
-- A site with a job_submit.lua of its own calls this one from it:
--     dofile("/etc/hops/job_submit.lua")
--     local hops_submit = slurm_job_submit
--     function slurm_job_submit(job, partitions, uid)
--       local answer = hops_submit(job, partitions, uid)
--       if answer ~= slurm.SUCCESS then return answer end
--       -- ... the site's own rules ...
--       return slurm.SUCCESS
--     end
-- and slurm_job_modify likewise.

local NO_VAL = slurm.NO_VAL or 4294967294 -- Slurm's "not given" of 32-bit fields
local NO_VAL16 = slurm.NO_VAL16 or 65534
local RELEASE = slurm.INFINITE or 4294967295 -- the priority that `scontrol release` asks for
local DENIED = slurm.ESLURM_ACCESS_DENIED or slurm.ERROR -- scontrol shows the code, not the text (22.05)

-- As sbatch writes it: with '/' from 23.11 on, which has this constant since 23.11.3.
local GPU = slurm.GRES_ALLOW_TASK_SHARING and "gres/gpu:" or "gres:gpu:"

-- --ntasks-per-node alone sets SLURM_NTASKS: from 23.02 on, which can be told from 23.11.3 on.
local COUNTS_TASKS_OF_NODE = slurm.GRES_ALLOW_TASK_SHARING ~= nil

local PREFIX = "hops:"

-- The bounds of what a comment may say; hopsd/model/bounds.py has the same, and why.
local MAX_CHARACTERS = 1024
local GPUS = { 1, 65536, "1 to 65536" }
local RANGE_COUNTS = { 2, 256, "2 to 256" }
local NAMED_NODES = { 1, 1024, "1 to 1024" }
local OPTION_CHARACTERS = 8192
local SAMPLES = { 1e-3, 1e18, "1e-3 to 1e18" }
local BATCH = { 1, 10000000, "1 to 1e7" }
local LEARNING_RATE = { 1e-20, 1e6, "1e-20 to 1000000" }

-- Marks a hold by the owner or an operator. Slurm gives a job held by this script and one held by
-- a person the same state, and refuses an admin_comment set here on behalf of anyone but an
-- administrator ("Attempt to change admin_comment", 22.05; operators are not). The begin time is
-- the user's to change, every reader sees it, and no job begins in 2100: this one says "not before
-- it is released".
local USER_HOLD_BEGIN = 4102444800 -- 2100-01-01 00:00:00 UTC

-- hopsd and this script write their marks behind the comment, which no user may change
-- (hopsd/model/reading.py).
local MARK = "#hops-"

-- An operator holds the job: its owner cannot release it.
local HELD_MARK = "#hops-held"

-- The job was taken out of hops: its owner may change it like any other.
local RELEASED_MARK = "#hops-released"

------------------------------------------------------------------------------------------
-- The comment. hopsd/core/submission/comment.py accepts and refuses exactly the same texts.

-- In time proportional to the text, as everything here: Slurm waits meanwhile.
local function trim(text)
  local first = text:find("[^ \t]")
  return first and text:match("^.*[^ \t]", first) or ""
end

local function split(text, separator)
  local parts, from = {}, 1
  while true do
    local at = text:find(separator, from, true)
    parts[#parts + 1] = text:sub(from, at and at - 1)
    if not at then return parts end
    from = at + 1
  end
end

-- One printable line, whatever the user sent.
local function shown(text)
  local short = #text <= 80 and text or text:sub(1, 77) .. "..."
  return "'" .. short:gsub("[^ -~]", "?") .. "'"
end

local function within(number, bound)
  return number and number >= bound[1] and number <= bound[2] and number or nil
end

local function whole(text, bound)
  local digits = trim(text):match("^[0-9]+$")
  return within(digits and tonumber(digits), bound)
end

local function decimal(text, bound)
  local digits = trim(text)
  local mantissa = digits:match("^(.-)[eE][+-]?[0-9]+$") or digits
  if not (mantissa:find("^[0-9]+%.?[0-9]*$") or mantissa:find("^%.[0-9]+$")) then return nil end
  return within(tonumber(digits), bound)
end

local function choice(...)
  local words = { ... }
  return function(value)
    for _, word in ipairs(words) do
      if value == word then return true end
    end
    return false
  end, table.concat(words, " or ")
end

local function accepts_reqs(value)
  local range = split(value, "-")
  if #range == 2 then
    local low, high = whole(range[1], GPUS), whole(range[2], GPUS)
    return low and high and low <= high
  end
  for _, item in ipairs(split(value, ",")) do
    if not whole(item, GPUS) then return false end
  end
  return true
end

local function accepts_lr(value)
  if not value:find(":", 1, true) then
    local rate, gpus = value:match("^(.-)@(.*)$")
    return decimal(rate or value, LEARNING_RATE) and (not gpus or whole(gpus, GPUS))
  end
  local seen = {}
  for _, item in ipairs(split(value, ",")) do
    local gpus, rate = item:match("^(.-):(.*)$")
    local count = gpus and whole(gpus, GPUS)
    if not count or seen[count] or not decimal(rate, LEARNING_RATE) then return false end
    seen[count] = true
  end
  return true
end

local function accepts_app(value)
  local name = value:match("^(.*):[1-9]%d?%d?$") or value
  return #name <= 64 and name:find("^[A-Za-z0-9._-]+$")
end

local shape, shape_text = choice("any", "even", "node")
local yes_or_no, yes_or_no_text = choice("yes", "no")
local rule, rule_text = choice("linear", "sqrt", "none")
local name_text = "1 to 64 of the letters A-Z a-z, digits, '.', '_' and '-'"

-- key -> does it accept this value, and what it accepts
local KEYS = {
  reqs = { accepts_reqs,
    "GPU counts from " .. GPUS[3] .. " joined by ',' or one range min-max such as 1-16" },
  num = { function(value) return whole(value, RANGE_COUNTS) end,
    "a whole number from " .. RANGE_COUNTS[3] },
  samples = { function(value) return decimal(value, SAMPLES) end,
    "a number from " .. SAMPLES[3] .. ", such as 1.28e9" },
  batch = { function(value) return whole(value, BATCH) end, "a whole number from " .. BATCH[3] },
  lr = { accepts_lr,
    "a rate 0.1, one for a GPU count 0.1@4, or one a count 1:0.1,2:0.18, each from "
      .. LEARNING_RATE[3] },
  lr_rule = { rule, rule_text },
  preempt = { yes_or_no, yes_or_no_text },
  workload = { function(value) return #value <= 64 and value:find("^[A-Za-z0-9._-]+$") end,
    name_text },
  cpu = { yes_or_no, yes_or_no_text },
  app = { accepts_app,
    name_text .. "; if it has phases, then ':' and 1 to 999, as in lm:2" },
  shape = { shape, shape_text },
  per_node = { function(value) return whole(value, GPUS) end, "GPUs on each node, from " .. GPUS[3] },
  profile = { yes_or_no, yes_or_no_text },
}
local KEY_NAMES = "reqs, num, samples, batch, lr, lr_rule, preempt, workload, cpu, app, shape, per_node, profile"

-- What follows "hops:" in a comment that others may use as well; nil: nothing is ours. Ours begins
-- with the comment or after a blank, ';' or ','; it goes to the end, or to the first blanks that are
-- not next to ';', '=' or ','.
local function our_part(comment)
  if type(comment) ~= "string" then return nil end
  local first, last, from = nil, nil, 1
  repeat
    first, last = comment:find(PREFIX, from, true)
    if not first then return nil end
    from = last + 1
  until first == 1 or comment:sub(first - 1, first - 1):find("[ \t;,]")
  local text = comment:sub(last + 1):gsub("^[ \t]+", "")
  from = 1
  while true do
    local blank, blank_end = text:find("[ \t]+", from)
    if not blank or blank_end == #text then return trim(text) end
    local beside = text:sub(blank - 1, blank - 1) .. text:sub(blank_end + 1, blank_end + 1)
    if not beside:find("[;=,]") then return text:sub(1, blank - 1) end
    from = blank_end + 1
  end
end

-- Whether some count of the accepted `reqs` is a multiple of `per_node`.
local function has_multiple(reqs, per_node)
  local low, high = reqs:match("^[ \t]*(%d+)[ \t]*%-[ \t]*(%d+)[ \t]*$")
  if low then return high - high % per_node >= tonumber(low) end
  for count in reqs:gmatch("%d+") do
    if count % per_node == 0 then return true end
  end
  return false
end

-- Returns the pairs of an accepted comment, or nil and one line about what is wrong.
local function read_comment(text)
  if #text > MAX_CHARACTERS then
    return nil, "the comment has " .. #text .. " characters; accepted are at most " .. MAX_CHARACTERS
  end
  local part = our_part(text)
  local pieces, pairs_found = part == "" and {} or split(part, ";"), {}
  if #pieces > 1 and trim(pieces[#pieces]) == "" then
    pieces[#pieces] = nil -- a trailing ';' ends the last pair
  end
  for _, piece in ipairs(pieces) do
    local key, value = piece:match("^(.-)=(.*)$")
    if not key then
      return nil, shown(trim(piece)) .. " has no '='; accepted is key=value joined by ';'"
    end
    key, value = trim(key), trim(value)
    if not KEYS[key] then
      return nil, "key " .. shown(key) .. " is unknown; accepted are " .. KEY_NAMES
    end
    if pairs_found[key] then
      return nil, key .. "=" .. shown(value) .. " is the second " .. key .. "; accepted is one"
    end
    if not KEYS[key][1](value) then
      return nil, key .. "=" .. shown(value) .. " is refused; accepted is " .. KEYS[key][2]
    end
    pairs_found[key] = value
  end
  if not pairs_found.reqs then
    return nil, "reqs is missing; accepted is a comment such as 'hops:reqs=1,2,4,8'"
  end
  if pairs_found.num and not pairs_found.reqs:find("-", 1, true) then
    return nil, "num=" .. shown(pairs_found.num) .. " goes with a range only; accepted is reqs=min-max with num"
  end
  local per_node = pairs_found.per_node
  if per_node and pairs_found.shape and pairs_found.shape ~= "even" then
    return nil, "per_node=" .. per_node .. " with shape=" .. pairs_found.shape .. "; accepted is shape=even with it"
  end
  if per_node and not has_multiple(pairs_found.reqs, tonumber(per_node)) then
    return nil, "reqs=" .. shown(pairs_found.reqs) .. " has no multiple of per_node=" .. per_node
      .. "; accepted is one at least, such as reqs=" .. 2 * per_node
  end
  return pairs_found
end

local function ours(comment)
  return our_part(comment) ~= nil
end

------------------------------------------------------------------------------------------
-- The site's choices: hops_site.lua in this script's folder, read when this script is loaded
-- (Slurm does that again when job_submit.lua is touched). For example
--     return { partitions = { "hops", "gpu" }, operators = { 997 } }
-- partitions: where hops jobs may go; the first one for jobs that name none. Without: anywhere.
-- operators: uids beside root and SlurmUser that may change hops jobs: hopsd's own, for one.

local function script_folder()
  return (debug.getinfo(1, "S").source:match("^@(.*/)[^/]*$")) or "./"
end

local function check_site(site)
  if type(site) ~= "table" then return "must return a table" end
  for key, list in pairs(site) do
    local kind = ({ partitions = "string", operators = "number" })[key]
    if not kind then return "key " .. tostring(key) .. "; accepted are partitions and operators" end
    if type(list) ~= "table" or #list == 0 then return key .. " must be a list with an entry" end
    for _, entry in ipairs(list) do
      if type(entry) ~= kind then return key .. " must be a list of " .. kind .. "s" end
    end
  end
end

-- Returns the choices, or {} and what is wrong with them: then hops jobs are refused, since a
-- site that meant to confine them must not find them everywhere.
local function load_site()
  local path = script_folder() .. "hops_site.lua"
  local file, problem, errno = io.open(path)
  if not file then
    if errno == 2 then return {} end
    return {}, problem
  end
  file:close()
  local chunk, syntax = loadfile(path)
  if not chunk then return {}, syntax end
  local ran, site = pcall(chunk)
  problem = not ran and tostring(site) or check_site(site)
  if problem then return {}, path .. ": " .. problem end
  return site
end

-- Slurm runs this script as SlurmUser, who may do everything.
local function own_uid()
  local file = io.open("/proc/self/status")
  if not file then return nil end
  local text = file:read("*a")
  file:close()
  return tonumber(text:match("\nUid:%s+%d+%s+(%d+)"))
end

local SITE, SITE_PROBLEM = load_site()
local PRIVILEGED = { [0] = true }
for _, uid in ipairs(SITE.operators or {}) do PRIVILEGED[uid] = true end
PRIVILEGED[own_uid() or 0] = true

------------------------------------------------------------------------------------------
-- Submission

-- sbatch sends these for options that were not given (22.05 to 26.05).
local function given(value)
  return value ~= nil and value ~= "" and value ~= NO_VAL and value ~= NO_VAL16
end

-- What would pin the job's shape: field, the value that stands for "not given". hopsd asks for all of
-- it again when it places the job: what the script asked for is in the job's admin comment.
local CLEARED = {
  { "tres_per_node", "" }, { "tres_per_job", "" }, { "tres_per_socket", "" },
  { "tres_per_task", "" }, { "cpus_per_tres", "" }, { "mem_per_tres", "" },
  { "ntasks_per_tres", NO_VAL16 }, { "ntasks_per_node", NO_VAL16 }, { "num_tasks", NO_VAL },
  { "cpus_per_task", NO_VAL16 }, { "pn_min_cpus", NO_VAL16 }, { "req_nodes", "" },
  { "req_switch", NO_VAL }, { "wait4switch", NO_VAL },
}

-- The same for what hops ignores with a message: option, field, "not given".
local IGNORED = {
  { "--ntasks-per-socket", "ntasks_per_socket", NO_VAL16 },
  { "--sockets-per-node", "sockets_per_node", NO_VAL16 },
  { "--cores-per-socket", "cores_per_socket", NO_VAL16 },
  { "--threads-per-core, --hint", "threads_per_core", NO_VAL16 },
  { "--core-spec", "core_spec", NO_VAL16 },
  { "--thread-spec", "thread_spec", NO_VAL16 },
  { "--prefer", "prefer", "" },
  { "--segment", "segment_size", 0 },
}

local EXCLUSIVE = 0 -- of the field shared

local CLEARED_FLAGS = {
  { "--gres-flags=enforce-binding", slurm.GRES_ENFORCE_BIND },
  { "--spread-job", slurm.SPREAD_JOB },
  { "--use-min-nodes", slurm.USE_MIN_NODES },
}

local function tell(text)
  pcall(slurm.log_user, "%s", "hops: " .. text)
end

local function default_partition(partitions)
  for name, partition in pairs(partitions or {}) do
    if partition.flag_default == 1 then return name end
  end
end

-- Returns the first partition of a request that the site keeps free of hops jobs.
local function closed_partition(request)
  local open = {}
  for _, name in ipairs(SITE.partitions) do open[name] = true end
  for _, name in ipairs(split(request, ",")) do
    if not open[name] then return name end
  end
end

------------------------------------------------------------------------------------------
-- What the script asks for: a shape that hops keeps, tasks, cores and memory in proportion to the
-- GPUs, and where it may run. It goes to hopsd as one word of the admin comment, which
-- hopsd/core/submission/contract.py reads, and to task_prolog.sh in the job's environment.

local ASKS_MARK = "hops:asks"

-- "gres:gpu:a100:4,gres:VRAM:12G", or "gres/gpu:a100=4" from 23.11 on: name, type and count each.
local function gres_items(text)
  local items = {}
  if not given(text) then return items end
  for _, item in ipairs(split(text, ",")) do
    local words = split((trim(item):gsub("^gres[:/]", ""):gsub("=", ":")), ":")
    local count = #words > 1 and words[#words]:match("^%d+%a?$")
    items[#items + 1] = {
      name = words[1],
      kind = (#words == 3 or #words == 2 and not count) and words[2] or nil,
      count = count or "1",
      text = table.concat(words, ":"),
    }
  end
  return items
end

local SEVERAL_TYPES = "GPUs of several types in one job are not accepted; ask for one type, or none"

-- GPUs of one option, their type, and what else the option asks for. A count of several types is
-- none that one GPU type could give.
local function gpus_of(text)
  local gpus, kind, others
  for _, item in ipairs(gres_items(text)) do
    if item.name == "gpu" and tonumber(item.count) == 0 then
      -- --gres=gpu:0 of a script for CPUs: nothing is asked.
    elseif item.name == "gpu" then
      -- --gres=gpu:8 beside --gpus-per-node=8 says the same twice.
      if gpus and (gpus ~= tonumber(item.count) or kind ~= item.kind) then
        return nil, nil, nil, SEVERAL_TYPES
      end
      gpus, kind = tonumber(item.count), item.kind
    elseif item.name == "shard" or item.name == "mps" then
      return nil, nil, nil, "--gres=" .. item.name .. " is not accepted, as hops gives whole GPUs; ask for gpu"
    elseif item.name ~= "cpu" and item.name ~= "mem" then
      others = (others and others .. "," or "") .. item.text
    end
  end
  return gpus, kind, others
end

local function number_of(text, name)
  for _, item in ipairs(gres_items(text)) do
    if item.name == name then return tonumber(item.count) end
  end
end

-- Words of users go into the admin comment: no blank, no mark of ours.
local function plain(option, text)
  if text and not text:find("^[%w%[%],._:+-]+$") then
    return option .. "=" .. shown(text) .. " is not accepted: letters, digits and []._-:+, only"
  end
end

-- How many nodes a list such as n[1-3],login names; nil: it is no list.
local function named_nodes(text)
  local brackets = text:gsub("[^%[%]]", ""):gsub("%[%]", "")
  if brackets ~= "" then return nil end -- else the patterns below would look on to the end from each of them
  local total = 0
  local flat = text:gsub("%b[]", function(inside) return (inside:gsub(",", ";")) end)
  for _, item in ipairs(split(flat, ",")) do
    local names = 1
    for inside in item:gmatch("%[(.-)%]") do
      local numbers = 0
      for _, part in ipairs(split(inside, ";")) do
        local low, high = part:match("^(%d+)%-(%d+)$")
        if not low and not part:find("^%d+$") then return nil end
        numbers = numbers + (low and math.max(0, tonumber(high) - tonumber(low) + 1) or 1)
      end
      names = names * numbers
    end
    total = total + names
  end
  return total
end

local function too_many_nodes(text)
  if not text then return nil end
  local nodes = named_nodes(text)
  if not nodes then return "--nodelist=" .. shown(text) .. " is no list of nodes; accepted is one such as n[1-3],login" end
  if not within(nodes, NAMED_NODES) then
    return string.format("--nodelist names %.0f nodes; accepted are %s", nodes, NAMED_NODES[3])
  end
end

-- "4/6" as "2/3".
local function ratio(a, b)
  local x, y = a, b
  while y > 0 do x, y = y, x % y end
  return string.format("%d/%d", a / x, b / x)
end

-- The options in the form that hops uses; or nil and what to change.
local function read_options(job)
  local o = {}
  local kind, total_kind, task_kind, problem
  o.per_node, kind, o.gres, problem = gpus_of(job.tres_per_node)
  if problem then return nil, problem end
  o.total, total_kind, _, problem = gpus_of(job.tres_per_job)
  if problem then return nil, problem end
  o.per_task, task_kind, _, problem = gpus_of(job.tres_per_task)
  if problem then return nil, problem end
  local per_socket, socket_kind
  per_socket, socket_kind, _, problem = gpus_of(job.tres_per_socket)
  if problem then return nil, problem end
  if per_socket and not o.per_node then
    if not given(job.sockets_per_node) then
      return nil, "--gpus-per-socket without --sockets-per-node is not accepted; ask for --gpus-per-node"
    end
    o.per_node = per_socket * job.sockets_per_node
    job.sockets_per_node = NO_VAL16 -- or it would be said to be ignored
  end
  o.kind = kind or total_kind or task_kind or socket_kind
  for _, other in pairs({ total_kind, task_kind, socket_kind }) do
    if other ~= o.kind then return nil, SEVERAL_TYPES end
  end
  o.nodes = given(job.max_nodes) and job.max_nodes or given(job.min_nodes) and job.min_nodes > 1 and job.min_nodes or nil
  o.tasks_each = given(job.ntasks_per_node) and job.ntasks_per_node > 0 and job.ntasks_per_node or nil
  o.tasks = given(job.num_tasks) and job.num_tasks > 0 and job.num_tasks or nil
  o.tasks_per_gpu = given(job.ntasks_per_tres) and job.ntasks_per_tres > 0 and job.ntasks_per_tres or nil
  if not o.nodes and o.tasks and o.tasks_each and o.tasks > o.tasks_each then
    o.nodes = math.ceil(o.tasks / o.tasks_each)
  end
  if o.nodes and not o.tasks and o.tasks_each then o.tasks = o.nodes * o.tasks_each end
  if o.tasks and o.tasks == o.nodes then o.tasks_each = 1 end -- no node is without a task
  o.cores = given(job.cpus_per_task) and job.cpus_per_task > 0 and job.cpus_per_task
    or number_of(job.tres_per_task, "cpu")
  o.cores_per_gpu = number_of(job.cpus_per_tres, "gpu")
  o.least_cores = given(job.pn_min_cpus) and job.pn_min_cpus or 0
  o.memory_per_core = given(job.min_mem_per_cpu)
  o.disk = given(job.pn_min_tmp_disk) and job.pn_min_tmp_disk > 0 and job.pn_min_tmp_disk or nil
  o.memory_per_gpu, o.memory_text = number_of(job.mem_per_tres, "gpu"), job.mem_per_tres
  o.exclusive = job.shared == EXCLUSIVE
  if not o.per_node and o.per_task and o.tasks_each then o.per_node = o.per_task * o.tasks_each end
  if not o.total and o.per_task then o.total = o.per_task * (o.tasks or 1) end
  if not o.per_node and o.total and o.nodes == 1 then o.per_node = o.total end
  -- --nodes=2 --gpus=8 --ntasks-per-node=4: a rank a GPU, and so as many GPUs on each node.
  local ranks_each = o.nodes and o.tasks_each and o.nodes * o.tasks_each == o.total
  if not o.per_node and ranks_each then o.per_node = o.tasks_each end
  return o
end

local function shape_of(o)
  if o.nodes and o.nodes > 1 then return "even", o.per_node end
  if o.nodes == 1 or o.per_node then return "node" end
  if o.tasks and o.tasks > 1 then return "even" end
  if o.total or o.exclusive or o.tasks or o.tasks_each then return "node" end
  return "any" -- nothing was asked: such a script was written for hops
end

-- Tasks for each GPU as a ratio, or so many on each node whatever its GPUs; nil: one a node.
local function tasks_of(o)
  if o.tasks_per_gpu then return ratio(o.tasks_per_gpu, 1) end
  if o.per_task and o.per_task > 1 and (o.tasks_each or o.tasks) == 1 then return nil end -- it starts the others
  if o.per_task then return ratio(1, o.per_task) end
  local nodes = o.nodes or 1
  local each = o.tasks_each or o.tasks and o.tasks / nodes or 1
  if each <= 1 then return nil end
  local gpus = o.per_node or o.total and o.total / nodes
  if not gpus or gpus == 0 then return "1/1" end
  if each % gpus == 0 or gpus % each == 0 then return ratio(each * nodes, gpus * nodes) end
  return nil, math.floor(each)
end

-- Cores for each GPU as a ratio. --mincpus is for each node. With memory by cores, one core for each
-- task, as Slurm gives it: more of them would multiply the memory.
local function cores_of(o, tasks, tasks_each, smallest)
  if o.cores_per_gpu then return ratio(o.cores_per_gpu, 1) end
  local nodes = o.nodes or 1
  local own = o.per_node and o.per_node * nodes or o.total
  local gpus = own or math.max(smallest, nodes)
  if gpus == 0 then gpus = nodes end
  local count, of = 0, 1
  local each = o.cores or own and o.memory_per_core and 1
  if each and tasks then
    local a, b = tasks:match("(%d+)/(%d+)")
    count, of = each * a, tonumber(b)
  elseif each then
    count, of = each * (tasks_each or 1) * nodes, gpus
  end
  local least = o.least_cores * nodes
  if least * of > count * gpus then count, of = least, gpus end
  return count > 0 and ratio(count, of) or nil
end

-- The smallest of the counts that are a multiple of `each`.
local function smallest_count(reqs, each)
  each = each or 1
  local least
  for count in reqs:gmatch("%d+") do
    count = tonumber(count)
    if reqs:find("-", 1, true) then count = math.ceil(count / each) * each end
    if count % each == 0 then least = math.min(least or count, count) end
  end
  return least
end

-- Counts of a list that `per_node` leaves out.
local function unused_counts(reqs, per_node)
  local unused = {}
  if reqs:find("-", 1, true) then return unused end
  for count in reqs:gmatch("%d+") do
    if count % per_node ~= 0 then unused[#unused + 1] = count end
  end
  return unused
end

local SIGNALS = { USR1 = "USR1", USR2 = "USR2", TERM = "TERM", INT = "INT", HUP = "HUP",
  ["10"] = "USR1", ["12"] = "USR2", ["15"] = "TERM", ["2"] = "INT", ["1"] = "HUP" }

-- What a site may warn jobs by (hopsd/config/schema.py, checkpoint_signal).
local WARNINGS = { "USR1", "USR2", "HUP", "INT", "TERM", "ALRM", "URG", "XCPU" }

-- The beginning of a script, where all that is looked for stands.
local function looked_at(script)
  return (script or ""):sub(1, 262144)
end

-- The script without its comments. Slurm waits meanwhile: line by line, so that no text takes longer
-- than in proportion to its length.
local function commands_of(script)
  local kept = {}
  for line in looked_at(script):gmatch("[^\n]+") do
    if not line:find("^%s*#") then kept[#kept + 1] = line end
  end
  return table.concat(kept, "\n")
end

-- The signals that the script itself handles, as "USR1,TERM", or "none": where it has a trap (or is a
-- program that speaks of signals), those that it names. Anything else would die of one.
local function traps_of(script)
  local text = " " .. commands_of(script) .. " "
  local named = {}
  if text:find("[^%w_]trap[^%w_]") or text:find("signal[.(]") then
    for _, name in ipairs(WARNINGS) do
      if text:find("[^%w_]" .. name .. "[^%w_]") or text:find("[^%w_]SIG" .. name .. "[^%w_]") then
        named[#named + 1] = name
      end
    end
    for line in text:gmatch("[^\n;]+") do
      local name = SIGNALS[line:match("^%s*trap%s.-%s(%d+)%s*$")]
      if name then named[#named + 1] = name end
    end
  end
  return #named > 0 and table.concat(named, ",") or "none"
end

-- What the value of a --signal asks for, as "batch:USR1:60" or "steps:USR1:60".
local function warning_of(value)
  local flags, rest = value:gsub("[\"']", ""):match("^{?([RB]*)}?:?(.*)$")
  local name, seconds = rest:match("^(%w+)@(%d+)")
  name = SIGNALS[((name or rest:match("^%w+") or ""):upper():gsub("^SIG", ""))]
  return name and (flags:find("B") and "batch:" or "steps:") .. name .. ":" .. (seconds or "60")
end

-- What the job wants to be warned by. Slurm does not pass the option to this script: it is read where
-- it was given, but for one on sbatch's command line, which hopsd reads (hopsd/slurm/submit_line.py).
local function signal_of(job)
  local variable = job.environment and job.environment.SBATCH_SIGNAL
  if given(variable) then return warning_of(variable) end
  for line in looked_at(job.script):gmatch("[^\n]+") do
    local value = line:match("^#SBATCH.*%-%-signal[= ]+(%S+)")
    if value then return warning_of(value) end
  end
end

-- How the script starts its training, where that decides whether the timing plugin gets into it:
-- word, texts of which one stands in its commands.
local STARTS = {
  { "apptainer", "[^%w_]apptainer%s", "[^%w_]singularity%s" },
  { "cleanenv", "%-%-cleanenv", "%-%-containall", "%-%-compat%s" },
  { "writable", "%-%-writable[%s=]", "APPTAINER_WRITABLE=", "SINGULARITY_WRITABLE=" },
  { "enroot", "[^%w_]enroot%s+start" },
  { "shifter", "[^%w_]shifter%s" },
  { "sarus", "[^%w_]sarus%s+run" },
  { "charliecloud", "[^%w_]ch%-run%s" },
  { "bwrap", "[^%w_]bwrap%s" },
  { "pyxis", "%-%-container%-image", "%-%-container%-name" },
  { "isolated", "[^%w_]python[%d.]*%s+%-[BbdOqSsuvx]*[IE]" },
  { "pdsh", "[^%w_]pdsh%s" },
}

-- What apptainer's options in one letter say: -w, -e and -C, also as -ec. Of its words up to the image
-- any may be an option's value; from two in a row on, it is the command in the image that they belong to.
local function letters_of_apptainer(line)
  local clean, writable, plain = false, false, 1
  for word in line:gmatch("%S+") do
    if word:sub(1, 1) == "-" then
      local letters = word:match("^%-(%a+)$") or ""
      clean, writable, plain = clean or letters:find("[eC]"), writable or letters:find("w"), 0
    else
      plain = plain + 1
      if plain > 1 then break end
    end
  end
  return clean, writable
end

-- The words after a command's name, up to the first that is neither an option nor could be the value of
-- one. A command has few of them, so that no line takes long.
local function options_after(line, from)
  local words, after_option = {}, false
  while #words < 32 do
    local first, last = line:find("%S+", from)
    if not first then break end
    words[#words + 1], from = line:sub(first, last), last + 1
    local option = line:sub(first, first) == "-"
    if not option and not after_option then break end
    after_option = option
  end
  return words
end

-- Whether a line runs something in a container by `name`, whose own options come before the command:
-- podman --runtime crun run IMAGE.
local function runs_in_container(line, name)
  local _, last = line:find("[^%w_]" .. name .. "%s")
  while last do
    for _, word in ipairs(options_after(line, last)) do
      if word == "run" or word == "exec" then return true end
    end
    _, last = line:find("[^%w_]" .. name .. "%s", last)
  end
  return false
end

-- deepspeed on several nodes, unless it is told of another way than its own.
local function starts_pdsh(line)
  local launcher = line:find("deepspeed", 1, true)
  local words = launcher and line:sub(launcher)
  if not words or not (words:find("%-%-hostfile") or words:find("%s%-H%s")) then return false end
  return (words:match("%-%-launcher[=%s]+(%a+)") or "pdsh") == "pdsh"
end

local function starts_of(job)
  local text, found, seen = "\n" .. commands_of(job.script):gsub("\\\n", " ") .. "\n", {}, {}
  local function add(word)
    if not seen[word] then found[#found + 1], seen[word] = word, true end
  end
  for _, entry in ipairs(STARTS) do
    for at = 2, #entry do
      if text:find(entry[at]) then add(entry[1]) end
    end
  end
  for line in text:gmatch("[^\n]+") do
    local options = (" " .. line):match("[^%w_]apptainer%s+%a+%s+(%-.*)")
      or (" " .. line):match("[^%w_]singularity%s+%a+%s+(%-.*)")
    local clean, writable = letters_of_apptainer(options or "")
    if clean then add("cleanenv") end
    if writable then add("writable") end
    if starts_pdsh(line) then add("pdsh") end
    if runs_in_container(" " .. line, "docker") then add("docker") end
    if runs_in_container(" " .. line, "podman") or runs_in_container(" " .. line, "podman%-hpc") then add("podman") end
  end
  for line in looked_at(job.script):gmatch("[^\n]+") do
    if line:find("^#SBATCH.*%-%-container%-image") or line:find("^#SBATCH.*%-%-container%-name")
      or line:find("^#SBATCH.*%-%-environment[=%s]") then -- of CSCS' container engine
      add("pyxis")
    end
  end
  for value in text:gmatch("[%s;]PYTHONPATH=([^\n]*)") do
    if not value:find("PYTHONPATH", 1, true) then add("pythonpath") end
  end
  return #found > 0 and table.concat(found, ",") or nil
end

-- The variables that a script sets to a number, or to one unless they are set.
local function numbers_of(text)
  local numbers = {}
  for name, number in text:gmatch("[\n;%s]([%a_][%w_]*)=[\"']?(%d+)") do
    numbers[name] = numbers[name] or number
  end
  for name, same, number in text:gmatch("[\n;%s]([%a_][%w_]*)=[\"']?%${([%a_][%w_]*):%-(%d+)}") do
    if name == same then numbers[name] = numbers[name] or number end
  end
  return numbers
end

-- A count that a job may have; other Luas than 5.1 print no larger ones as whole numbers.
local function plausible(count)
  return count and count <= GPUS[2] and count or nil
end

-- What a launcher's option says, "8" or a variable among `numbers`.
local function count_in(text, option, numbers)
  local value = text:match(option .. "[= ]+[\"']?(%$?{?[%w_]+)")
  local name = value and value:match("^%$?{?([%a_][%w_]*)$")
  if name then value = numbers[name] end
  return value and plausible(tonumber(value))
end

-- A count of ranks on each node that the script does not take from its allocation.
local function fixed_ranks(script, shape)
  local text = "\n" .. commands_of(script)
  local numbers = numbers_of(text)
  local ranks = count_in(text, "%-%-nproc[_-]per[_-]node", numbers) or count_in(text, "%-%-num_gpus", numbers)
    or count_in(text, "trainer%.devices", numbers)
  if ranks or shape ~= "node" then return ranks end
  for line in text:gmatch("[^\n]+") do
    local _, launched = line:find("accelerate launch", 1, true)
    ranks = launched and count_in(line:sub(launched), "%-%-num_processes", numbers)
    if ranks then return ranks end
  end
end

-- Counts for the whole job that the script does not take from its allocation: what sets it, the count,
-- what to write instead; `nodes`: it counts nodes, not GPUs.
local function fixed_total(script, shape)
  local text = "\n" .. commands_of(script)
  local numbers = numbers_of(text)
  local world = numbers.WORLD_SIZE and plausible(tonumber(numbers.WORLD_SIZE))
  if world and world > 1 then return { "WORLD_SIZE", world, "WORLD_SIZE=$SLURM_NTASKS" } end
  for _, option in ipairs({ "%-%-nnodes", "%-%-num_machines", "trainer%.num_nodes", "%-%-num_nodes" }) do
    local nodes = count_in(text, option, numbers)
    local elastic = text:find(option .. "[= ]+[\"']?%d+:") -- torchrun's --nnodes=2:4
    if nodes and nodes > 1 and not elastic then
      return { (option:gsub("%%", "")), nodes, "$SLURM_NNODES in place of the number", nodes = true }
    end
  end
  local processes = shape ~= "node" and count_in(text, "%-%-num_processes", numbers)
  if processes and processes > 1 then
    return { "--num_processes", processes, "$((SLURM_NNODES * SLURM_GPUS_ON_NODE)) in place of the number" }
  end
end

-- The tasks that a step asks for by a number, as srun -n 4 of a script that asks for 4 tasks, or those of each
-- node, where their number there changes.
local function fixed_tasks(script, o)
  if not o.tasks or o.tasks < 2 or not o.tasks_ratio then return nil end
  for line in commands_of(script):gsub("\\\n", " "):gmatch("[^\n]+") do
    local _, last = line:find("srun%s")
    local options = last and " " .. table.concat(options_after(line, last), " ") .. " " or ""
    local count = options:match("%s%-n%s?(%d+)%s") or options:match("%s%-%-ntasks[=%s](%d+)%s")
    if tonumber(count) == o.tasks then
      return { "srun -n", o.tasks, "$SLURM_NTASKS in place of the number" }
    end
    count = not o.each and o.tasks_each and options:match("%s%-%-ntasks%-per%-node[=%s](%d+)%s")
    if count and tonumber(count) > 1 and tonumber(count) == o.tasks_each then
      return { "srun --ntasks-per-node", o.tasks, "$SLURM_NTASKS_PER_NODE in place of the number" }
    end
  end
end

-- Options that are read here or kept for hopsd: Slurm's own limits come after this script, and are wider.
local READ = {
  { "--gres, --gpus-per-node", "tres_per_node" }, { "--gpus", "tres_per_job" }, { "--gpus-per-task", "tres_per_task" },
  { "--gpus-per-socket", "tres_per_socket" }, { "--cpus-per-gpu", "cpus_per_tres" }, { "--mem-per-gpu", "mem_per_tres" },
  { "--nodelist", "req_nodes" }, { "--exclude", "exc_nodes" }, { "--constraint", "features" },
  { "--reservation", "reservation" }, { "--partition", "partition" }, { "--licenses", "licenses" },
}

local function too_long(job)
  for _, entry in ipairs(READ) do
    local length = #(job[entry[2]] or "")
    if length > OPTION_CHARACTERS then
      return string.format("%s has %d characters; accepted are at most %d", entry[1], length, OPTION_CHARACTERS)
    end
  end
end

-- What keeps tasks that have several GPUs each (--gpus-per-task=2) from getting them; nil: nothing.
local function why_no_whole_tasks(o, tasks, reqs)
  local each = tasks and o.per_task or 1
  if each == 1 or o.shape == "any" then return nil end
  if o.shape == "even" then
    if o.each and o.each % each == 0 then return nil end
    return string.format("each task has %d GPUs (--gpus-per-task), and so each node a multiple of that; accepted are --nodes "
      .. "with --ntasks-per-node, or per_node=%d in the comment", each, each)
  end
  local whole = not reqs:find("-", 1, true)
  for count in reqs:gmatch("%d+") do whole = whole and tonumber(count) % each == 0 end
  if whole then return nil end
  return string.format("reqs=%s has counts that are no multiple of the %d GPUs of a task (--gpus-per-task); accepted is a list "
    .. "such as reqs=%d,%d", reqs, each, each, 2 * each)
end

-- Returns what is asked, and the word for it; or nil and what to change.
local function contract(job, pairs_found)
  local o, problem = read_options(job)
  if not o then return nil, problem end
  local nodes = given(job.req_nodes) and job.req_nodes or nil
  problem = plain("--gres", o.kind) or plain("--gres", o.gres) or plain("--nodelist", nodes) or too_many_nodes(nodes)
  if problem then return nil, problem end
  if given(job.features) and job.features:find("*", 1, true) then
    return nil, "--constraint with a node count is not accepted: hops chooses how many nodes; leave out '*N'"
  end
  o.shape, o.each = shape_of(o)
  if pairs_found.shape or pairs_found.per_node then
    o.each = pairs_found.per_node and tonumber(pairs_found.per_node)
    o.shape = pairs_found.per_node and "even" or pairs_found.shape
  end
  if o.each and not has_multiple(pairs_found.reqs, o.each) then
    return nil, string.format("reqs=%s has no multiple of the %d GPUs a node that the options ask for; accepted is one "
      .. "at least, such as reqs=%d,%d, or per_node= or shape= in the comment", pairs_found.reqs, o.each, o.each, 2 * o.each)
  end
  local words, tasks, tasks_each = {}, tasks_of(o)
  -- Slurm gives tasks by cores: of 5 and 6 GPUs, nodes got 6 and 5 tasks (22.05). A task for each GPU is
  -- for task_prolog.sh, which names a node to srun for each of them.
  if o.shape == "any" and (tasks and tasks ~= "1/1" or tasks_each) then
    return nil, "shape=any goes with one task for each GPU (srun python), or one on each node, which starts its own ranks "
      .. "(srun hops-run, torchrun); for others write shape=even, or --ntasks-per-node=1"
  end
  problem = why_no_whole_tasks(o, tasks, pairs_found.reqs)
  if problem then return nil, problem end
  local function add(key, value)
    if value then words[#words + 1] = key .. ":" .. value end
  end
  o.tasks_ratio, o.tasks_of_node = tasks, tasks_each
  add("shape", o.shape)
  add("per_node", o.each and string.format("%d", o.each))
  -- Otherwise Slurm sets no SLURM_NTASKS.
  add("counted", (o.tasks or COUNTS_TASKS_OF_NODE and o.tasks_each) and "yes")
  add("tasks", tasks)
  add("tasks_each", tasks_each and string.format("%d", tasks_each))
  o.cores_ratio = cores_of(o, tasks, tasks_each, smallest_count(pairs_found.reqs))
  add("cores", o.cores_ratio)
  -- Slurm gives whole nodes without GPUs of their own memory by the core: nearly all there is.
  local unasked = not given(job.min_mem_per_node) and not o.memory_per_core and not o.memory_per_gpu
  o.whole_memory = job.min_mem_per_node == 0 or unasked and o.exclusive and not (o.per_node or o.total)
  add("memory", o.whole_memory and "node" or o.memory_per_gpu and string.format("%d", o.memory_per_gpu) or unasked and "default" or nil)
  add("exclusive", o.exclusive and "yes")
  o.signal, o.traps = signal_of(job), traps_of(job.script)
  add("signal", o.signal)
  add("type", o.kind)
  add("gres", o.gres)
  add("disk", o.disk and string.format("%.0f", o.disk))
  add("nodes", given(job.req_nodes) and job.req_nodes)
  add("traps", o.traps)
  add("starts", starts_of(job))
  add("switches", given(job.req_switch) and job.req_switch > 0 and string.format("%.0f", job.req_switch)
    .. (given(job.wait4switch) and string.format("@%.0f", job.wait4switch) or ""))
  o.ranks = fixed_ranks(job.script, o.shape)
  add("ranks", o.ranks and string.format("%d", o.ranks))
  return o, table.concat(words, "|")
end

-- What breaks on other counts than the script's own, with the line to change; nil: nothing is seen.
local function doubt_of_ranks(_, o, pairs_found)
  local ranks = o.ranks
  if not ranks then return nil end
  local fits = o.each == ranks
  if o.shape == "node" then
    fits = not pairs_found.reqs:find("-", 1, true)
    for count in pairs_found.reqs:gmatch("%d+") do fits = fits and tonumber(count) == ranks end
  end
  if fits then return nil end
  return string.format("the script starts %d ranks on each node, however many GPUs it gets there: write --nproc_per_node=gpu "
    .. "or $SLURM_GPUS_ON_NODE in place of the number, or give reqs and per_node= so that each node gets %d", ranks, ranks)
end

local function doubt_of_total(script, o, pairs_found)
  local total = fixed_total(script, o.shape) or fixed_tasks(script, o)
  if not total then return nil end
  local name, count, instead = total[1], total[2], total[3]
  local own = o.per_node and o.per_node * (o.nodes or 1) or o.total
  local wanted = count
  if total.nodes then wanted = o.each and count * o.each else wanted = own or count end
  local fits = wanted ~= nil and not pairs_found.reqs:find("-", 1, true)
  for asked in pairs_found.reqs:gmatch("%d+") do
    local unused = o.each and tonumber(asked) % o.each ~= 0
    fits = fits and (unused or tonumber(asked) == wanted)
  end
  if fits then return nil end
  return string.format("the script counts on %d %s (%s), however many it gets: write %s%s", count,
    total.nodes and "nodes" or "ranks", name, instead, wanted and string.format(", or give reqs=%d", wanted) or "")
end

-- A step on fewer nodes than the job's, which would have all its GPUs: srun refuses it on nodes with
-- different numbers of them.
local function doubt_of_steps(script, o, pairs_found)
  if o.shape ~= "any" or not pairs_found.reqs:find("[2-9]") and not pairs_found.reqs:find("%d%d") then return nil end
  local text = commands_of(script):gsub("\\\n", " ")
  for line in text:gmatch("[^\n]+") do
    local _, last = line:find("srun%s")
    local options = last and " " .. table.concat(options_after(line, last), " ") .. " " or ""
    local fewer = options:find("%s%-[Nn]%s?1%s") or options:find("%s%-%-nodes[=%s]1%s") or options:find("%s%-%-ntasks[=%s]1%s")
    if fewer and not (options:find("%-%-gres[=%s]") or options:find("%-%-gpus")) then
      return "on nodes with different numbers of GPUs srun refuses a step on fewer nodes than the job has (srun -N1 -n1): "
        .. "write --gres=none there, or shape=even in the comment"
    end
  end
end

-- What is lost when the job is moved; nil: nothing is seen.
local function doubt_of_moving(script, o, pairs_found)
  if pairs_found.preempt == "no" then return nil end
  if o.traps ~= "none" and commands_of(script):find("[%s;&|({\"'`]sbatch[%s\"']") then
    return "the script may submit itself once more when it is signalled: leave sbatch out of its trap, since hops itself "
      .. "starts the job again; or write preempt=no"
  end
  if not o.signal and o.traps == "none" then
    return "no warning is asked for in the script (--signal, trap): hops moves the job only after it has been seen to save "
      .. "once (torch.save), and it goes on from what it has saved by then; preempt=no keeps it in place"
  end
end

local SHAPE_TEXT = { any = "GPUs anywhere", node = "all GPUs on one node", even = "the same number of GPUs on each node" }

local function tell_contract(o, pairs_found)
  local text = o.each and string.format("%d GPUs on each node", o.each) or SHAPE_TEXT[o.shape]
  local unused = o.each and unused_counts(pairs_found.reqs, o.each) or {}
  if #unused > 0 then
    text = text .. string.format("; %s of reqs not used, being no multiple of it (per_node= or shape= in the comment changes that)",
      table.concat(unused, ","))
  end
  return text
end

local function why_not(job, pairs_found)
  if job.comment:find(MARK, 1, true) then return MARK .. " in a comment is for hopsd alone" end
  if SITE_PROBLEM then return "no job can be accepted: " .. SITE_PROBLEM end
  local problem = too_long(job)
  if problem then return problem end
  if job.script == nil then return "accepted are batch jobs; submit this one with sbatch" end
  if given(job.array_inx) and given(job.dependency) and job.dependency:find("singleton", 1, true) then
    -- Slurm lets the tasks that it still keeps together go first (22.05), and hops others.
    return "--dependency=singleton of a job array is not accepted; --array=...%1 runs one task at a time"
  end
  if given(job.het_job_offset) then return "heterogeneous jobs are not accepted" end
  if job.cron_job == true then return "scrontab jobs are not accepted" end
  local request = job.partition
  if SITE.partitions and given(request) and closed_partition(request) then
    return "partition " .. shown(closed_partition(request)) .. " takes no hops jobs; accepted are "
      .. table.concat(SITE.partitions, ", ")
  end
end

local function clear_shape(job)
  local ignored = {}
  for _, entry in ipairs(CLEARED) do job[entry[1]] = entry[2] end
  for _, entry in ipairs(IGNORED) do
    local option, field, unset = entry[1], entry[2], entry[3]
    if given(job[field]) and job[field] ~= unset then
      ignored[#ignored + 1] = option
      job[field] = unset
    end
  end
  if given(job.shared) and job.shared ~= EXCLUSIVE then
    ignored[#ignored + 1] = "--oversubscribe, --exclusive=user"
    job.shared = NO_VAL16
  end
  for _, entry in ipairs(CLEARED_FLAGS) do
    local option, flag = entry[1], entry[2]
    -- Lua 5.1 has no operators on bits; flags and their sum are exact in a double.
    if flag and job.bitflags and math.floor(job.bitflags / flag) % 2 == 1 then
      ignored[#ignored + 1] = option
      job.bitflags = job.bitflags - flag
    end
  end
  if job.contiguous == 1 then ignored[#ignored + 1] = "--contiguous" end
  job.min_nodes, job.max_nodes = 1, NO_VAL
  job.min_cpus, job.max_cpus = 1, NO_VAL -- sbatch derives min_cpus from --ntasks
  job.contiguous = 0
  if #ignored > 0 then
    tell("ignored, since hops places by GPUs and nodes: " .. table.concat(ignored, ", "))
  end
end

-- By the smallest shape that it accepts Slurm checks the job against limits, and refuses it where it
-- would refuse a plain job. hopsd clears all of it when it places the job.
local function keep_smallest(job, asked, gpus)
  local kind = GPU .. (asked.kind and asked.kind .. ":" or "")
  job.tres_per_job = kind .. string.format("%d", gpus)
  if asked.each then job.min_nodes = gpus / asked.each end
  job.min_cpus = job.min_nodes * (asked.tasks_of_node or 1) -- a task has a core at least
  for _, each in pairs({ asked.tasks_ratio, asked.cores_ratio }) do
    local count, of = each:match("(%d+)/(%d+)")
    job.min_cpus = math.max(job.min_cpus, math.ceil(count * gpus / of))
  end
  if asked.memory_per_gpu then job.mem_per_tres = asked.memory_text end
  if asked.whole_memory then job.min_mem_per_node = 0 end
end

-- For `hopsctl check`, which asks what a script would be.
local function tell_all(job, partitions, word)
  local found = {
    { "asks", word }, { "comment", job.comment }, { "partition", given(job.partition) and job.partition or default_partition(partitions) },
    { "features", job.features }, { "exclude", job.exc_nodes },
    { "reservation", job.reservation }, { "memory_per_node", job.min_mem_per_node },
    { "memory_per_cpu", job.min_mem_per_cpu },
  }
  for _, pair in ipairs(found) do
    local value = pair[2]
    if type(value) == "number" then value = string.format("%.0f", value) end
    if given(value) then tell("hops-check " .. pair[1] .. " " .. value:gsub("[^ -~]", "?")) end
  end
end

local function accept(job, partitions, pairs_found, asked, word)
  if SITE.partitions and not given(job.partition) then
    local default = default_partition(partitions)
    if not default or closed_partition(default) then job.partition = SITE.partitions[1] end
  end
  for _, doubt in ipairs({ doubt_of_ranks, doubt_of_total, doubt_of_steps, doubt_of_moving }) do
    local text = doubt(job.script, asked, pairs_found)
    if text then tell(text) end
  end
  local words = given(job.admin_comment) and job.admin_comment .. " " or ""
  job.admin_comment = words .. ASKS_MARK .. "|" .. word
  if job.environment then
    job.environment.HOPS_ASKS = word
    -- sbatch derives the first from the second. Empty: another job's may have been handed on.
    local cores = asked.cores and not asked.cores_per_gpu and string.format("%d", asked.cores)
    job.environment.HOPS_CPUS_PER_TASK = cores or ""
    if job.environment.HOPS_CHECK == "1" then tell_all(job, partitions, word) end
  end
  clear_shape(job)
  keep_smallest(job, asked, smallest_count(pairs_found.reqs, asked.each))
  if job.requeue == 0 and pairs_found.preempt ~= "no" then
    tell("--no-requeue is ignored, since the job may move; preempt=no in the comment keeps it")
  end
  if job.requeue ~= 0 or pairs_found.preempt ~= "no" then job.requeue = 1 end
  local held_by_user = job.priority == 0
  if held_by_user then job.begin_time = USER_HOLD_BEGIN end
  job.priority = 0
  if held_by_user then
    tell("kept back until you release it (scontrol release JOB clears --begin, too)")
  else
    tell("to be placed with reqs=" .. pairs_found.reqs .. ", " .. tell_contract(asked, pairs_found)
      .. (given(job.array_inx) and ", for each task of the array" or "")
      .. "; shows as held until its turn comes, hopsctl explain JOB says why it waits")
  end
end

local function submit(job, partitions)
  local pairs_found, problem = read_comment(job.comment)
  problem = problem or why_not(job, pairs_found)
  local asked, word
  if not problem then
    asked, word = contract(job, pairs_found)
    problem = not asked and word
  end
  if problem then
    tell(problem)
    return slurm.ERROR
  end
  accept(job, partitions, pairs_found, asked, word)
  return slurm.SUCCESS
end

local function guarded(what, refusal, act, ...)
  local ran, answer = pcall(act, ...)
  if ran and type(answer) == "number" then return answer end
  pcall(slurm.log_error, "%s", "hops: defect in " .. what .. ": " .. tostring(answer))
  tell("refused, since the submit plugin failed; tell your administrator")
  return refusal
end

-- A user who writes "Hops:reqs=2" means us, and would wait for something that never comes.
local function hint(comment)
  if type(comment) == "string" and ours(comment:lower()) then
    tell("the comment makes this an ordinary job; hops: is written in small letters")
  end
end

function slurm_job_submit(job, partitions, uid)
  if not ours(job.comment) then
    pcall(hint, job.comment)
    return slurm.SUCCESS
  end
  return guarded("slurm_job_submit", slurm.ERROR, submit, job, partitions)
end

------------------------------------------------------------------------------------------
-- Modification. On a held job an innocent `scontrol update nice=5` sets a priority and the job
-- starts (22.05 to 26.05), so its owner gets to change only what leaves hold and shape alone.

local FIXED = {
  "comment", "nice", "requeue", "req_nodes", "exc_nodes", "min_nodes", "max_nodes", "min_cpus",
  "max_cpus", "num_tasks", "cpus_per_task", "pn_min_cpus", "tres_per_node", "tres_per_job",
  "tres_per_socket", "tres_per_task", "tres_bind", "cpus_per_tres", "ntasks_per_node",
  "ntasks_per_socket", "ntasks_per_core", "ntasks_per_tres", "sockets_per_node",
  "cores_per_socket", "threads_per_core", "shared", "contiguous", "core_spec", "thread_spec",
  "req_switch", "wait4switch", "features", "prefer", "reservation", "licenses",
}

-- In an update an empty string is a change: it clears.
local function changed(value)
  return value ~= nil and value ~= NO_VAL and value ~= NO_VAL16
end

local function mentions(text, word)
  return type(text) == "string" and text:find(word, 1, true) ~= nil
end

local function waits(record)
  return record.job_state % 256 == 0 -- the low byte is the base state, 0 is pending
end

-- The begin time of an update, 0 where it has none.
local function begins(job)
  local begin = job.begin_time
  return given(begin) and begin ~= 0 and begin or nil
end

-- When a person held a job, and when hopsd gave one its nodes, by job id. Slurm tells a job's begin
-- time not here, where nothing can come in between; its restart forgets both, and hopsd reads again.
-- A task that Slurm has just taken out of its array's record has a number of its own, and was held
-- under the array's; `lifted`: when it was released alone.
local held, placed, lifted = {}, {}, {}

local function array_of(record)
  local array = record.array_job_id -- 0 of a job that is in none
  return given(array) and array ~= 0 and array or nil
end

local function remember(times, id)
  local now = os.time()
  for other, at in pairs(times) do
    if now - at > 3600 then times[other] = nil end
  end
  times[id] = now
end

local function lately(times, id, seconds)
  return times[id] ~= nil and os.time() - times[id] <= seconds
end

local function lift(record)
  held[record.job_id] = nil
  if array_of(record) then remember(lifted, record.job_id) end
end

local function held_at(record)
  local id, array = record.job_id, array_of(record)
  local at = held[id] or array and held[array]
  return at and not (lifted[id] and lifted[id] >= at) and at or nil
end

-- `scontrol hold 17` asks once for each task of array 17, and each time finds in the request what
-- was answered for the task before: this comment, and a begin time.
local answered

local function answer_with(job, record, comment)
  job.comment, answered = comment, { array = array_of(record), comment = comment }
end

-- hopsd's own requests may have that comment, too: they name nodes, or hold without a person's mark.
local function is_asked_again(job, record)
  if not answered or not answered.array or answered.array ~= array_of(record) then return false end
  if changed(job.req_nodes) or job.priority == 0 and not mentions(job.comment, HELD_MARK) then return false end
  return given(job.comment) and job.comment == answered.comment
end

-- hopsd notes behind the comment what partitions a job asked for that it has placed in fewer. Once
-- somebody else chooses them, that is over.
local function choose_partitions(job, record)
  answer_with(job, record, (record.comment:gsub(" #hops%-partitions=%S*", "")))
  return job.comment
end

local function modify(job, record)
  local again = given(job.partition) and is_asked_again(job, record)
  for _, field in ipairs(FIXED) do
    if changed(job[field]) and not (again and field == "comment") then
      tell(field .. " of a hops job is not yours to change; cancel it and submit it anew")
      return DENIED
    end
  end
  if SITE.partitions and given(job.partition) and closed_partition(job.partition) then
    tell("accepted partitions are " .. table.concat(SITE.partitions, ", "))
    return DENIED
  end
  if given(job.partition) then choose_partitions(job, record) end
  if mentions(record.comment, HELD_MARK) and waits(record) then
    if changed(job.priority) and job.priority ~= 0 or begins(job) and begins(job) ~= USER_HOLD_BEGIN then
      tell("an operator holds it")
      return DENIED
    end
  elseif begins(job) then -- of the owner's own hold
    lift(record)
  end
  if not changed(job.priority) then return slurm.SUCCESS end
  if not waits(record) then
    tell("hold and release are for waiting jobs; `scontrol requeue` makes it one")
    return DENIED
  end
  if job.priority == 0 then
    job.begin_time = USER_HOLD_BEGIN
    remember(held, record.job_id)
    return slurm.SUCCESS
  end
  if job.priority == RELEASE then -- lifts the owner's hold, not the one by hops
    lift(record)
    job.begin_time = os.time()
    job.priority = NO_VAL
    return slurm.SUCCESS
  end
  tell("the priority of a hops job is not yours to change")
  return DENIED
end

local function refuse_joining()
  tell("a job joins hops when it is submitted; submit it anew with this comment")
  return DENIED
end

-- hopsd's request rests on its last reading of the job. A person may have held it since: hopsd's
-- begin time would erase the mark, and its release start the job. These are refused.
local function follow_hopsd(job, record)
  local at = held_at(record)
  if at and os.time() - at <= 600 then
    tell("its owner or an operator holds it")
    return DENIED
  end
  placed[record.job_id] = nil
  if job.priority ~= 0 then remember(placed, record.job_id) end
  return slurm.SUCCESS
end

-- An operator's release lifts a person's hold. The one by hops stays: a job without a place would
-- start with its smallest count, anywhere. As hopsd's own release, it passes once the job has a place.
local function follow_release(job, record)
  local id, at = record.job_id, held_at(record)
  local has_place = lately(placed, id, 600)
  local late = at and lately(placed, id, 60) and placed[id] <= at
  placed[id] = nil
  if late then
    tell("it was held after hops placed it; release it once more if you mean it")
    return DENIED
  end
  lift(record)
  answer_with(job, record, (record.comment:gsub(" #hops%-held", "")))
  if not has_place then
    job.begin_time = os.time()
    job.priority = NO_VAL
    tell("hops starts it when its turn comes; hopsctl release " .. id .. " gives it to plain Slurm")
  end
  return slurm.SUCCESS
end

-- An operator keeps a job back as its owner does, and the owner cannot undo it. hopsd's own hold
-- names a begin time, as its placement does with the nodes; `scontrol hold` and `uhold` do not.
local function follow_operator(job, record)
  if not waits(record) then return slurm.SUCCESS end
  local again = is_asked_again(job, record)
  if again and not changed(job.priority) and not given(job.partition) then
    job.priority, job.begin_time = RELEASE, 0
  end
  if not again and begins(job) and (job.priority == 0 or changed(job.req_nodes)) then
    return follow_hopsd(job, record)
  end
  if given(job.comment) and not again then return slurm.SUCCESS end
  local id, words = record.job_id, record.comment
  if given(job.partition) then words = choose_partitions(job, record) end
  if job.priority == 0 then
    job.begin_time = USER_HOLD_BEGIN
    remember(held, id)
    answer_with(job, record, mentions(words, HELD_MARK) and words or words .. " " .. HELD_MARK)
  elseif job.priority == RELEASE then
    return follow_release(job, record)
  elseif changed(job.priority) or changed(job.nice) then -- Slurm would take it out of its hold
    tell("it would start with GPUs that hops has not chosen; hopsctl release " .. id .. " gives it to plain Slurm")
    return DENIED
  elseif begins(job) then
    lift(record)
  end
  return slurm.SUCCESS
end

-- Another user's job, changed by an account unknown to this script: Slurm carries it out only for
-- its own operators and for coordinators of the job's account, whatever is answered here. They may
-- hold it, and lift any person's hold; the one by hops stays.
local function by_another(job, record)
  local again = is_asked_again(job, record)
  local asks = job.priority == 0 or job.priority == RELEASE or again and not changed(job.priority)
  if given(job.comment) and not again or not asks or not waits(record) then
    return modify(job, record)
  end
  return follow_operator(job, record)
end

function slurm_job_modify(job, record, partitions, uid)
  if not given(job.comment) then answered = nil end
  if not ours(record.comment) then
    local joins = ours(job.comment) and not PRIVILEGED[uid]
    return joins and guarded("slurm_job_modify", DENIED, refuse_joining) or slurm.SUCCESS
  end
  if mentions(record.comment, RELEASED_MARK) then return slurm.SUCCESS end
  if PRIVILEGED[uid] then
    local ran, answer = pcall(follow_operator, job, record)
    return ran and answer or slurm.SUCCESS -- a defect must not keep hopsd from its work
  end
  local act = uid == record.user_id and modify or by_another
  return guarded("slurm_job_modify", DENIED, act, job, record)
end

if SITE_PROBLEM then
  slurm.log_error("%s", "hops: hops jobs are refused: " .. SITE_PROBLEM)
else
  slurm.log_info("%s", "hops: job_submit loaded, partitions: "
    .. (SITE.partitions and table.concat(SITE.partitions, ", ") or "any"))
end

return slurm.SUCCESS
