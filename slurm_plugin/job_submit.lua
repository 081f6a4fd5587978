-- hops: job_submit/lua plugin for Slurm 22.05 and newer, Lua 5.1 to 5.5.
--
-- A job with "hops:" in its comment is checked, freed of everything that would pin its shape, and held:
-- from then on only hopsd places it. Every other job passes untouched.
--
-- If this script raises an error or does not return a number, Slurm accepts the job with the changes made
-- so far. So once a job is known to be ours, everything here runs inside pcall, and a failed call refuses
-- the job.
--
-- The script is a single file, and its chapters are not separate files, for three reasons. Slurm loads it through
-- whatever link or copy a site puts beside slurm.conf, and Lua does not follow links, so it would look for parts in
-- the wrong place. Slurm reloads it when its own time stamp grows, never for that of a part (22.05 to 26.05). And an
-- interrupted update must not mix two releases, since slurmctld does not start if the script fails to load.
--
-- A site with a job_submit.lua of its own calls this one at its end, before its last `return`:
--     dofile("/usr/share/hops/slurm/job_submit.lua")
-- The site's functions, which are defined by then, run first: they see each job as its user requested it.

if rawget(_G, "hops_is_loaded") then return slurm.SUCCESS end -- a site's script calls it twice
hops_is_loaded = true

local NO_VAL = slurm.NO_VAL or 4294967294 -- Slurm's "not given" in 32-bit fields
local NO_VAL16 = slurm.NO_VAL16 or 65534
local RELEASE = slurm.INFINITE or 4294967295 -- the priority that `scontrol release` asks for
local DENIED = slurm.ESLURM_ACCESS_DENIED or slurm.ERROR -- scontrol shows the code, not the text (22.05)

-- As sbatch writes it: with '/' from 23.11 on, which is recognized by a constant of 23.11.3 and later.
local GPU = slurm.GRES_ALLOW_TASK_SHARING and "gres/gpu:" or "gres:gpu:"

-- Whether --ntasks-per-node alone sets SLURM_NTASKS: so from 23.02 on, but only 23.11.3 and later can be recognized.
local COUNTS_TASKS_OF_NODE = slurm.GRES_ALLOW_TASK_SHARING ~= nil

local PREFIX = "hops:"

-- The bounds of a comment's values; hopsd/model/bounds.py has the same, with the reasons.
local MAX_CHARACTERS = 1024
local GPUS = { 1, 65536, "1 to 65536" }
local RANGE_COUNTS = { 2, 256, "2 to 256" }
local NAMED_NODES = { 1, 1024, "1 to 1024" }
local OPTION_CHARACTERS = 8192
local SAMPLES = { 1e-3, 1e18, "1e-3 to 1e18" }
local BATCH = { 1, 10000000, "1 to 1e7" }
local LEARNING_RATE = { 1e-20, 1e6, "1e-20 to 1000000" }

-- Marks a hold by the owner or an operator. To Slurm, a job held by this script and one held by a
-- person have the same state, and it refuses an admin_comment set here on behalf of anyone but an
-- administrator ("Attempt to change admin_comment", 22.05; operators are not administrators). Users
-- may change the begin time, every reader sees it, and no job begins in 2100: this begin time means
-- "not before it is released".
local USER_HOLD_BEGIN = 4102444800 -- 2100-01-01 00:00:00 UTC

-- hopsd and this script append their marks to the comment, which no user may change
-- (hopsd/model/reading.py).
local MARK = "#hops-"

-- An operator holds the job, so its owner cannot release it.
local HELD_MARK = "#hops-held"

-- The job was given back to plain Slurm, so its owner may change it like any other.
local RELEASED_MARK = "#hops-released"

------------------------------------------------------------------------------------------
-- Text and messages.

-- Slurm waits for this script, so everything here takes time at most in proportion to the text.
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

-- Text of a user as one short printable line, in quotes.
local function shown(text)
  local short = #text <= 80 and text or text:sub(1, 77) .. "..."
  return "'" .. short:gsub("[^ -~]", "?") .. "'"
end

-- Words without duplicates, joined by ","; nil if there are none.
local function joined(words)
  local list, seen = {}, {}
  for _, word in ipairs(words) do
    if not seen[word] then list[#list + 1], seen[word] = word, true end
  end
  return #list > 0 and table.concat(list, ",") or nil
end

-- Whether a list such as "USR1,TERM" has the word.
local function has(list, word)
  return list ~= nil and ("," .. list .. ","):find("," .. word .. ",", 1, true) ~= nil
end

-- Whether an option was given: otherwise sbatch sends one of these values (22.05 to 26.05).
local function given(value)
  return value ~= nil and value ~= "" and value ~= NO_VAL and value ~= NO_VAL16
end

local function tell(text)
  pcall(slurm.log_user, "%s", "hops: " .. text)
end

-- Whether `hopsctl check` asks how a script would be treated.
local function is_check(job) return job.environment ~= nil and job.environment.HOPS_CHECK == "1" end

------------------------------------------------------------------------------------------
-- The comment. hopsd/core/submission/comment.py accepts and refuses exactly the same texts.

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

-- Readers of values: they return nil or false for an invalid one.
local function is_one_of(...)
  local words = { ... }
  return function(value)
    for _, word in ipairs(words) do
      if value == word then return true end
    end
    return false
  end
end

local function is_whole_from(bound)
  return function(value) return whole(value, bound) end
end

local function is_reqs(value)
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

local function is_lr(value)
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

local function is_name(value)
  return #value <= 64 and value:find("^[A-Za-z0-9._-]+$")
end

local function is_app(value)
  return is_name(value:match("^(.*):[1-9]%d?%d?$") or value)
end

local NAME_TEXT = "1 to 64 of the letters A-Z a-z, digits, '.', '_' and '-'"

-- Key, accepted values (completes "give ..."), and the reader of values. hopsd's own table is KEYS in
-- hopsd/core/submission/comment.py; tests/plugin/test_comment.py compares the two.
local KEYS = {
  { "reqs", "GPU counts from " .. GPUS[3] .. " joined by ',' or one range such as 1-16", is_reqs },
  { "num", "a whole number from " .. RANGE_COUNTS[3], is_whole_from(RANGE_COUNTS) },
  { "samples", "a number from " .. SAMPLES[3] .. ", such as 1.28e9", function(value) return decimal(value, SAMPLES) end },
  { "batch", "a whole number from " .. BATCH[3], is_whole_from(BATCH) },
  { "lr", "a rate 0.1, one for a GPU count 0.1@4, or one a count 1:0.1,2:0.18, each from " .. LEARNING_RATE[3], is_lr },
  { "lr_rule", "linear or sqrt or none", is_one_of("linear", "sqrt", "none") },
  { "preempt", "yes or no", is_one_of("yes", "no") },
  { "workload", NAME_TEXT, is_name },
  { "cpu", "yes or no", is_one_of("yes", "no") },
  { "app", NAME_TEXT .. "; if it has phases, then ':' and 1 to 999, as in lm:2", is_app },
  { "shape", "any or even or node", is_one_of("any", "even", "node") },
  { "per_node", "GPUs on each node, from " .. GPUS[3], is_whole_from(GPUS) },
  { "profile", "yes or no", is_one_of("yes", "no") },
  { "segment", "nodes in a rack together, from " .. GPUS[3], is_whole_from(GPUS) },
  { "interactive", "yes or no", is_one_of("yes", "no") },
}
local FLAGS = { interactive = true } -- keys that mean yes without a value
local KEY_NAMES, KEY_OF = {}, {}
for position, key in ipairs(KEYS) do
  KEY_NAMES[position], KEY_OF[key[1]] = key[1], { accepts = key[2], read = key[3] }
end

-- Returns our part of a comment that others may use as well, and where it ends; nil if nothing is ours. The part
-- follows "hops:" at the beginning or after a blank, ';' or ','. It ends at the end of the comment, or at the
-- first blanks that are not next to ';', '=' or ','.
local function our_part(comment)
  if type(comment) ~= "string" then return nil end
  local first, last, from = nil, nil, 1
  repeat
    first, last = comment:find(PREFIX, from, true)
    if not first then return nil end
    from = last + 1
  until first == 1 or comment:sub(first - 1, first - 1):find("[ \t;,]")
  local begin = comment:find("[^ \t]", last + 1) or #comment + 1
  from = begin
  while true do
    local blank, blank_end = comment:find("[ \t]+", from)
    if not blank or blank_end == #comment then return trim(comment:sub(begin)), #comment end
    local neighbours = comment:sub(blank - 1, blank - 1) .. comment:sub(blank_end + 1, blank_end + 1)
    if not neighbours:find("[;=,]") then return comment:sub(begin, blank - 1), blank - 1 end
    from = blank_end + 1
  end
end

-- The text after our part if it looks like more of it, such as "2,4" in "hops:reqs=1 2,4"; otherwise nil.
local function unread_part(comment)
  local part, last = our_part(comment)
  local rest = trim(comment:sub(last + 1))
  if rest == "" then return nil end
  local last_key = trim(part:match("([^;]*)$"):match("^[^=]*"))
  if last_key == "workload" or last_key == "app" or rest:find("^[-@:]?[ \t]*[0-9]") then return rest end
  for _, key in ipairs(KEY_NAMES) do
    if (" " .. rest):find("[ \t;,]" .. key .. "[ \t]*=") then return rest end
  end
end

-- What the user should know about a comment that is not refused; nil if nothing.
local function remark(comment)
  if type(comment) ~= "string" then return nil end
  if our_part(comment) then
    local rest = unread_part(comment)
    return rest and "not read: " .. shown(rest) .. "; the part for hops ends at the first blank that is not next"
      .. " to ';', '=' or ','"
  end
  local text = comment:lower()
  if our_part(text) then return "an ordinary job: write hops: in small letters to have hops place it" end
  text = " " .. text
  if text:find("[ \t;,]hops?[ \t]*[:=;]") or text:find("[ \t;,:._-]reqs?[ \t]*=[ \t]*[0-9]") then
    return "an ordinary job: to have hops place it, begin the comment with hops:reqs="
  end
end

-- Whether any count of the valid `reqs` is a multiple of `per_node`.
local function has_multiple(reqs, per_node)
  local low, high = reqs:match("^[ \t]*(%d+)[ \t]*%-[ \t]*(%d+)[ \t]*$")
  if low then return high - high % per_node >= tonumber(low) end
  for count in reqs:gmatch("%d+") do
    if count % per_node == 0 then return true end
  end
  return false
end

-- Maps spellings of a key to the same text: "req" and "reqs", "lr-rule" and "lr_rule", "LR" and "lr".
local function normal(key)
  return (key:gsub("[^A-Za-z0-9]", ""):lower():gsub("s+$", ""))
end

local function unknown_key(key)
  local hint = ""
  for _, name in ipairs(KEY_NAMES) do
    if hint == "" and normal(name) == normal(key) then hint = "did you mean " .. name .. "? " end
  end
  return "unknown key " .. shown(key) .. ": " .. hint .. "The keys are " .. table.concat(KEY_NAMES, ", ")
end

-- Why values that are valid by themselves cannot be combined; nil if they can.
local function why_not_together(values)
  local reqs, per_node, shape = values.reqs, values.per_node, values.shape
  if not reqs then return "reqs is missing: give the GPU counts, as in hops:reqs=1,2,4,8" end
  if values.interactive == "yes" and not reqs:find("^[0-9]+$") then
    return "reqs=" .. shown(reqs) .. " with interactive: a session keeps its GPUs, so give one count"
  end
  if values.num and not reqs:find("-", 1, true) then
    return "num=" .. shown(values.num) .. " goes with a range only: write reqs=min-max, or leave num out"
  end
  if per_node and shape and shape ~= "even" then
    return "per_node=" .. per_node .. " with shape=" .. shape .. ": leave one out, or write shape=even"
  end
  if per_node and not has_multiple(reqs, tonumber(per_node)) then
    return string.format("reqs=%s has no multiple of per_node=%s: add one, such as %d", shown(reqs), per_node, 2 * per_node)
  end
end

-- Returns the values of a comment by key, or nil and one line about what is wrong.
local function read_comment(comment)
  if #comment > MAX_CHARACTERS then
    return nil, "the comment has " .. #comment .. " characters: write at most " .. MAX_CHARACTERS
  end
  local part = our_part(comment)
  local pieces, values = part == "" and {} or split(part, ";"), {}
  if #pieces > 1 and trim(pieces[#pieces]) == "" then
    pieces[#pieces] = nil -- a trailing ';' ends the last pair
  end
  for _, piece in ipairs(pieces) do
    local key, value = piece:match("^(.-)=(.*)$")
    if not key and FLAGS[trim(piece)] then key, value = trim(piece), "yes" end
    if not key then return nil, shown(trim(piece)) .. " has no '=': write key=value joined by ';'" end
    key, value = trim(key), trim(value)
    if not KEY_OF[key] then return nil, unknown_key(key) end
    if values[key] then return nil, key .. "=" .. shown(value) .. " is the second " .. key .. ": give one" end
    if not KEY_OF[key].read(value) then
      return nil, key .. "=" .. shown(value) .. " is not valid: give " .. KEY_OF[key].accepts
    end
    values[key] = value
  end
  local problem = why_not_together(values)
  if problem then return nil, problem end
  if values.interactive == "yes" then values.preempt = "no" end
  return values
end

local function ours(comment)
  return our_part(comment) ~= nil
end

------------------------------------------------------------------------------------------
-- The site's choices: hops_site.lua beside the job_submit.lua that Slurm loads, read when that is loaded
-- (Slurm loads it again when job_submit.lua is touched). For example
--     return { partitions = { "hops", "gpu" }, operators = { 997 }, signal = "USR2" }
-- partitions: where hops jobs may run; the first one is for jobs that name none. By default, anywhere.
-- operators: uids besides root and SlurmUser that may change hops jobs, such as hopsd's own.
-- signal: hopsd's slurm.checkpoint_signal, if it is not USR1; only messages to users need it.

-- The folders of the running scripts: the first is that of Slurm's own job_submit.lua, which is this file or a
-- site's that calls it, the last is that of this file.
local function script_folders()
  local folders = {}
  for level = 1, 250 do
    local info = debug.getinfo(level, "S")
    if not info then break end
    local folder = info.source:match("^@(.*/)[^/]*$")
    if folder then table.insert(folders, 1, folder) end
  end
  return folders
end

local FOLDERS = script_folders() -- now, since a site's script is not running when Slurm calls the functions below

-- Opens a file beside one of these scripts; returns it and its path, or nil, the error and its number.
local function open_beside(name)
  for _, folder in ipairs(FOLDERS) do
    local file, problem, errno = io.open(folder .. name)
    if file or errno ~= 2 then return file, file and folder .. name or problem, errno end
  end
  return nil, nil, 2
end

local function check_site(site)
  if type(site) ~= "table" then return "must return a table" end
  if site.signal ~= nil and type(site.signal) ~= "string" then return "signal must be a name such as USR2" end
  for key, list in pairs(site) do
    local kind = ({ partitions = "string", operators = "number", signal = "string" })[key]
    if not kind then return "key " .. tostring(key) .. ": the keys are partitions, operators and signal" end
    if key == "signal" then list = { list } end
    if type(list) ~= "table" or #list == 0 then return key .. " must be a list with an entry" end
    for _, entry in ipairs(list) do
      if type(entry) ~= kind then return key .. " must be a list of " .. kind .. "s" end
    end
  end
end

-- Returns the choices, or {} and what is wrong with them. Hops jobs are then refused: a site that meant
-- to confine them must not find them everywhere.
local function load_site()
  local file, path, errno = open_beside("hops_site.lua")
  if not file then return {}, errno ~= 2 and path or nil end
  file:close()
  local chunk, syntax = loadfile(path)
  if not chunk then return {}, syntax end
  local ran, site = pcall(chunk)
  local problem = not ran and tostring(site) or check_site(site)
  if problem then return {}, path .. ": " .. problem end
  return site
end

-- The uid of SlurmUser, who may do everything: Slurm runs this script as that user.
local function own_uid()
  local file = io.open("/proc/self/status")
  if not file then return nil end
  local text = file:read("*a")
  file:close()
  return tonumber(text:match("\nUid:%s+%d+%s+(%d+)"))
end

-- Appends the lines of slurm.conf and of the files that it includes to `lines`, in lower case and without comments;
-- returns false if some of the files cannot be read.
local function read_conf(name, lines, depth)
  local file = name:sub(1, 1) == "/" and io.open(name) or open_beside(name)
  if not file or depth > 4 then return false end
  local complete, begun = true, ""
  for raw in file:lines() do
    local line = begun .. raw:gsub("#.*", "")
    local continued = line:match("^(.*)\\%s*$")
    local included = line:match("^%s*[Ii][Nn][Cc][Ll][Uu][Dd][Ee]%s+(%S+)")
    if not continued and included then
      complete = read_conf(included, lines, depth + 1) and complete
    elseif not continued then
      lines[#lines + 1] = line:lower()
    end
    begun = continued or ""
  end
  file:close()
  return complete
end

-- Whether Slurm keeps the content of a job's output file at a restart, by the slurm.conf beside this script.
local function appends_output()
  local lines, value = {}, nil
  read_conf("slurm.conf", lines, 0)
  for _, line in ipairs(lines) do value = line:match("^%s*jobfileappend%s*=%s*(%d+)") or value end
  return value ~= nil and value ~= "0"
end

local SITE, SITE_PROBLEM = load_site()
local APPENDS_OUTPUT = appends_output()
SITE.signal = SITE.signal or "USR1"
local PRIVILEGED = { [0] = true }
for _, uid in ipairs(SITE.operators or {}) do PRIVILEGED[uid] = true end
PRIVILEGED[own_uid() or 0] = true

local function default_partition(partitions)
  for name, partition in pairs(partitions or {}) do
    if partition.flag_default == 1 then return name end
  end
end

-- Returns the first partition of a request that the site closes to hops jobs.
local function closed_partition(request)
  local open = {}
  for _, name in ipairs(SITE.partitions) do open[name] = true end
  for _, name in ipairs(split(request, ",")) do
    if not open[name] then return name end
  end
end

------------------------------------------------------------------------------------------
-- Options. What the script requests: a shape that hops keeps, tasks, cores and memory in proportion to the
-- GPUs, and where it may run. This is passed to hopsd as one word of the admin comment, which
-- hopsd/core/submission/options_text.py reads, and to task_prolog.sh in the job's environment.

local EXCLUSIVE = 0 -- the value of the field shared for --exclusive

local ASKS_MARK = "hops:asks"
local WORD_CHARACTERS = 10240 -- every reading of the queue contains the word of each job

-- Splits "gres:gpu:a100:4,gres:VRAM:12G", or "gres/gpu:a100=4" from 23.11 on, into names, types and counts.
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

local SEVERAL_TYPES = "a hops job has GPUs of one type: ask for one type, or for none"

-- Returns the GPUs of one option, their type, and the option's other GRES; or the problem. Counts of several types
-- are refused, since one GPU type could not provide them.
local function gpus_of(text)
  local gpus, kind, others
  for _, item in ipairs(gres_items(text)) do
    if item.name == "gpu" and tonumber(item.count) == 0 then
      -- --gres=gpu:0 of a script for CPUs requests nothing.
    elseif item.name == "gpu" then
      -- --gres=gpu:8 with --gpus-per-node=8 says the same twice.
      if gpus and kind ~= item.kind then return nil, nil, nil, SEVERAL_TYPES end
      if gpus and gpus ~= tonumber(item.count) then
        return nil, nil, nil, string.format("the options ask for %d and for %s GPUs on a node (--gres, --gpus-per-node): "
          .. "give one of them", gpus, item.count)
      end
      gpus, kind = tonumber(item.count), item.kind
    elseif item.name == "shard" or item.name == "mps" then
      return nil, nil, nil, "--gres=" .. item.name .. " asks for parts of GPUs, and hops gives whole ones: ask for gpu"
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

-- Users' words go into the admin comment, so they must have neither blanks nor our marks.
local function plain(option, text)
  if text and not text:find("^[%w%[%],._:+-]+$") then
    return option .. "=" .. shown(text) .. ": write it with letters, digits and []._-:+, alone"
  end
end

-- How many nodes a list such as n[1-3],login names; nil if it is not a valid list.
local function named_nodes(text)
  local brackets = text:gsub("[^%[%]]", ""):gsub("%[%]", "")
  if brackets ~= "" then return nil end -- otherwise the patterns below would search to the end from each bracket
  local total = 0
  local flat = text:gsub("%b[]", function(inside) return (inside:gsub(",", ";")) end)
  for _, item in ipairs(split(flat, ",")) do
    local names = 1
    for inside in item:gmatch("%[(.-)%]") do
      local numbers = 0
      for _, part in ipairs(split(inside, ";")) do
        local low, high = part:match("^(%d+)%-(%d+)$")
        low, high = low or part:match("^%d+$"), high or part:match("^%d+$")
        -- An empty range would make another of any length count as none; Lua 5.1 is exact up to 2^53.
        if not low or #low > 15 or tonumber(high) < tonumber(low) then return nil end
        numbers = numbers + tonumber(high) - tonumber(low) + 1
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
  if not nodes then return "--nodelist=" .. shown(text) .. " is not a list of nodes: write one such as n[1-3],login" end
  if not within(nodes, NAMED_NODES) then
    return string.format("--nodelist names %.0f nodes: name %s", nodes, NAMED_NODES[3])
  end
end

-- A reduced fraction: 4 and 6 give "2/3".
local function ratio(a, b)
  local x, y = a, b
  while y > 0 do x, y = y, x % y end
  return string.format("%d/%d", a / x, b / x)
end

-- Returns the options in the form that hops uses; or nil and what the user must change.
local function read_options(job)
  local o = {}
  local kind, total_kind, task_kind, problem, _
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
      return nil, "--gpus-per-socket needs --sockets-per-node; or ask for --gpus-per-node"
    end
    o.per_node = per_socket * job.sockets_per_node
    job.sockets_per_node = NO_VAL16 -- otherwise the user would be told that it is ignored
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
  -- With --ntasks, --ntasks-per-node is a maximum. Scripts start as many ranks as it says (sbatch passes it on
  -- as SLURM_NTASKS_PER_NODE), whatever srun starts.
  local nodes = o.nodes or 1
  if o.tasks and o.tasks_each and o.tasks < nodes * o.tasks_each and o.tasks % nodes == 0 then
    o.most_tasks_each, o.tasks_each = o.tasks_each, o.tasks / nodes
  end
  if o.tasks and o.tasks == o.nodes then o.tasks_each = 1 end -- every node has a task
  o.cores = given(job.cpus_per_task) and job.cpus_per_task > 0 and job.cpus_per_task
    or number_of(job.tres_per_task, "cpu")
  o.cores_per_gpu = number_of(job.cpus_per_tres, "gpu")
  o.least_cores = given(job.pn_min_cpus) and job.pn_min_cpus or 0
  o.memory_per_core = given(job.min_mem_per_cpu) and job.min_mem_per_cpu or nil
  o.disk = given(job.pn_min_tmp_disk) and job.pn_min_tmp_disk > 0 and job.pn_min_tmp_disk or nil
  o.memory_per_gpu, o.memory_text = number_of(job.mem_per_tres, "gpu"), job.mem_per_tres
  o.exclusive = job.shared == EXCLUSIVE
  if not o.per_node and o.per_task and o.tasks_each then o.per_node = o.per_task * o.tasks_each end
  if not o.total and o.per_task then o.total = o.per_task * (o.tasks or 1) end
  if not o.per_node and o.total and o.nodes == 1 then o.per_node = o.total end
  -- --nodes=2 --gpus=8 --ntasks-per-node=4 means one rank per GPU, and so as many GPUs on each node.
  local ranks_each = o.nodes and o.tasks_each and o.nodes * o.tasks_each == o.total
  if not o.per_node and ranks_each then o.per_node = o.tasks_each end
  return o
end

local function shape_of(o)
  if o.nodes and o.nodes > 1 then return "even", o.per_node end
  if o.nodes == 1 or o.per_node then return "node" end
  -- sbatch derives --ntasks from --ntasks-per-node alone: --exclusive --ntasks-per-node=8 means a whole node.
  local fills_node = o.exclusive and not o.total and o.tasks == (o.most_tasks_each or o.tasks_each)
  if o.tasks and o.tasks > 1 and not fills_node then return "even" end
  if o.total or o.exclusive or o.tasks or o.tasks_each then return "node" end
  return "any" -- a script that requests nothing was written for hops
end

-- Returns the tasks per GPU as a ratio; or nil and their number on each node, whatever its GPUs; or nil for one per node.
local function tasks_of(o)
  if o.tasks_per_gpu then return ratio(o.tasks_per_gpu, 1) end
  if o.per_task and o.per_task > 1 and (o.tasks_each or o.tasks) == 1 then return nil end -- the task starts the others
  if o.per_task then return ratio(1, o.per_task) end
  local nodes = o.nodes or 1
  local each = o.tasks_each or o.tasks and o.tasks / nodes or 1
  if each <= 1 then return nil end
  local gpus = o.per_node or o.total and o.total / nodes
  if not gpus or gpus == 0 then return "1/1" end
  if each % gpus == 0 or gpus % each == 0 then return ratio(each * nodes, gpus * nodes) end
  return nil, math.floor(each)
end

-- The cores per GPU as a ratio. --mincpus is per node. With memory per core, each task gets one core, as in Slurm:
-- more cores would multiply the memory.
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

-- The smallest of the counts that are multiples of `each`.
local function smallest_count(reqs, each)
  each = each or 1
  local least
  for item in reqs:gmatch("%d+") do
    local count = tonumber(item)
    if reqs:find("-", 1, true) then count = math.ceil(count / each) * each end
    if count % each == 0 then least = math.min(least or count, count) end
  end
  return least
end

-- The counts of a list that `per_node` rules out.
local function unused_counts(reqs, per_node)
  local unused = {}
  if reqs:find("-", 1, true) then return unused end
  for count in reqs:gmatch("%d+") do
    if count % per_node ~= 0 then unused[#unused + 1] = count end
  end
  return unused
end

-- Options that are read here or kept for hopsd. Slurm checks its own, wider limits only after this script.
local READ = {
  { "--gres, --gpus-per-node", "tres_per_node" }, { "--gpus", "tres_per_job" }, { "--gpus-per-task", "tres_per_task" },
  { "--gpus-per-socket", "tres_per_socket" }, { "--cpus-per-gpu", "cpus_per_tres" }, { "--mem-per-gpu", "mem_per_tres" },
  { "--nodelist", "req_nodes" }, { "--exclude", "exc_nodes" }, { "--constraint", "features" },
  { "--reservation", "reservation" }, { "--partition", "partition" }, { "--licenses", "licenses" },
}

local function length_problem(job)
  for _, entry in ipairs(READ) do
    local length = #(job[entry[2]] or "")
    if length > OPTION_CHARACTERS then
      return string.format("%s has %d characters: write at most %d", entry[1], length, OPTION_CHARACTERS)
    end
  end
end

-- Why tasks with several GPUs each (--gpus-per-task=2) could not get them, and what to change; nil if they could.
local function why_no_whole_tasks(o, tasks, reqs)
  local each = tasks and o.per_task or 1
  if each == 1 or o.shape == "any" then return nil end
  if o.shape == "even" then
    if o.each and o.each % each == 0 then return nil end
    return string.format("GPUs per node must be a multiple of --gpus-per-task=%d: add --nodes with --ntasks-per-node, "
      .. "or per_node=%d in the comment", each, each)
  end
  local whole = not reqs:find("-", 1, true)
  for count in reqs:gmatch("%d+") do whole = whole and tonumber(count) % each == 0 end
  if whole then return nil end
  return string.format("every count of reqs=%s must be a multiple of --gpus-per-task=%d: write reqs=%d,%d",
    reqs, each, each, 2 * each)
end

------------------------------------------------------------------------------------------
-- The script's text: the signals that it handles, the programs that it starts, the counts that it fixes, and what it
-- would repeat.

-- Lua allows 200 local names at a time. Those of this chapter end with it, except for these functions.
local commands_of, option_in, traps_of, ends_of, signal_of, open_mode_of, has_flag, segment_of, segments_of,
    repeats_of, options_after, starts_of, fixed_on_node, fixed_in_job, fixed_port, fixed_tasks
do
local SIGNALS = { USR1 = "USR1", USR2 = "USR2", TERM = "TERM", INT = "INT", HUP = "HUP",
  ["10"] = "USR1", ["12"] = "USR2", ["15"] = "TERM", ["2"] = "INT", ["1"] = "HUP" }

-- The signals by which a site may warn jobs (hopsd/config/schema.py, checkpoint_signal).
local WARNINGS = { "USR1", "USR2", "HUP", "INT", "TERM", "ALRM", "URG", "XCPU" }

-- How many of a script's handlers are read, and how much of each.
local MAX_HANDLERS = 32
local HANDLER_CHARACTERS = 4096
local MAX_FUNCTIONS = 16

-- The beginning of a script, which contains everything that is searched for.
local function beginning_of(script)
  return (script or ""):sub(1, 262144)
end

-- The script without its comments. It is read line by line, since Slurm waits meanwhile: no text may take longer
-- than in proportion to its length.
function commands_of(script)
  local kept = {}
  for line in beginning_of(script):gmatch("[^\n]+") do
    if not line:find("^%s*#") then kept[#kept + 1] = line end
  end
  return table.concat(kept, "\n")
end

-- The lines with sbatch's options, which end at the first command.
local function option_lines(script)
  local lines = {}
  for line in beginning_of(script):gmatch("[^\n]+") do
    if line:find("^#SBATCH%s") then lines[#lines + 1] = line end
    if line:find("^[^#]") and line:find("%S") then break end
  end
  return lines
end

-- The value of an option in these lines, of which the last counts; nil if the option is not there.
function option_in(script, pattern)
  local value
  for _, line in ipairs(option_lines(script)) do value = line:match(pattern) or value end
  return value
end

-- The signals at the end of a trap's line.
local function signals_in(text)
  local names = {}
  for word in text:match("^[^\n;&|)]*"):gmatch("%w+") do
    local name = word:gsub("^SIG", "")
    name = SIGNALS[name] or name
    for _, known in ipairs(WARNINGS) do
      if name == known then names[#names + 1] = name end
    end
  end
  return names
end

-- The handlers in a shell's text, as { what it runs, its signals, the text that names them }; `-` resets a handler. A
-- shell that ignores a signal ('') handles it no better: neither it nor the programs that it starts save anything.
local function handlers_of(text)
  local handlers = {}
  for at in text:gmatch("[^%w_]trap[ \t]+()") do
    local from = text:match("^%-%-[ \t]+()", at) or at
    local quote = text:match("^[\"']", from)
    local last = quote and text:find(quote, from + 1, true) or text:find("[ \t\n;]", from)
    if not last or #handlers >= MAX_HANDLERS then break end
    local runs = text:sub(quote and from + 1 or from, math.min(last - 1, from + HANDLER_CHARACTERS))
    if not runs:find("%S") then runs = "-" end
    handlers[#handlers + 1] = { runs, signals_in(text:sub(last + 1, last + 128)), " " .. text:sub(last + 1, last + 128):match("^[^\n;&|)]*") }
  end
  return handlers
end

-- The signals that the script itself handles, as "USR1,TERM", or "none": those of its traps or, if it is a program
-- that uses signals, those that it names. The script would die of any other signal.
function traps_of(script)
  local text = "\n" .. commands_of(script):gsub("\\\n", " ") .. "\n"
  if text:find("[%s;&|]exec[ \t]+hops%-lane[%s\"']") then return "USR1,USR2,TERM,INT,HUP" end
  local names, handlers = {}, handlers_of(text)
  for _, handler in ipairs(handlers) do
    for _, name in ipairs(handler[1] == "-" and {} or handler[2]) do names[#names + 1] = name end
  end
  if #handlers == 0 and text:find("signal[.(]") then
    for _, name in ipairs(WARNINGS) do
      if text:find("[^%w_]" .. name .. "[^%w_]") or text:find("[^%w_]SIG" .. name .. "[^%w_]") then
        names[#names + 1] = name
      end
    end
  end
  return joined(names) or "none"
end

-- Where the functions in a shell's text begin, by name. This takes a single pass: a search for each name in a handler
-- would take time in proportion to the number of names times the length of the text.
local function functions_of(text)
  local begins = {}
  for _, pattern in ipairs({ "()[%s;]([%a_][%w_]*)[ \t]*%([ \t]*%)", "()[%s;]function[ \t]+([%a_][%w_]*)" }) do
    for first, name in text:gmatch(pattern) do begins[name] = begins[name] or first end
  end
  return begins
end

-- The body of the function that begins at `first`.
local function body_at(text, first)
  local body = text:sub(first, first + HANDLER_CHARACTERS)
  local last, same = body:find("\n[ \t]*}"), body:find("[; \t]}[ \t]*\n")
  return body:sub(1, math.min(last or #body, same or #body))
end

-- What a handler runs, with the bodies of the functions that it names, at most MAX_FUNCTIONS; and whether these are all.
local function acts_of(text, begins, runs)
  local acts, seen, count = { " " .. runs .. " " }, {}, 0
  for name in runs:gmatch("[%a_][%w_]*") do
    if begins[name] and not seen[name] then
      if count == MAX_FUNCTIONS then return table.concat(acts, " "), false end
      seen[name], count = true, count + 1
      acts[#acts + 1] = body_at(text, begins[name])
    end
  end
  return table.concat(acts, " ") .. " ", true
end

-- Whether a shell that runs this handler may end because of the signal, so that Slurm takes the job for completed: the
-- handler exits, lets the training end, or interrupts the script's only `wait`.
local function may_end(text, begins, runs)
  local acts, complete = acts_of(text, begins, runs)
  if not complete then return true end
  if not runs:find("[^%w_]") and not runs:find("^true$") and not begins[runs] then return true end -- defined elsewhere
  for _, word in ipairs({ "exit", "kill", "wait", "exec", "scancel", "sbatch" }) do
    if acts:find("[^%w_]" .. word .. "[^%w_]") then return true end
  end
  local _, waits = text:gsub("[^%w_]wait%f[^%w_]", "")
  return waits == 1 and not (text:find("[^%w_]while[^%w_]") or text:find("[^%w_]until[^%w_]"))
end

-- Those of the handled signals on which the script may end as if it had completed, as "USR1,TERM"; nil if none. A script
-- that makes Slurm requeue the job never ends that way.
function ends_of(script, traps)
  local text = ("\n" .. commands_of(script) .. "\n"):gsub("\\\n", " ")
  if traps == "none" or text:find("scontrol[ \t\"',]+requeue") or text:find("HOPS_REQUEUE_EXIT_CODE", 1, true)
    or text:find("exit[ \t(]+85[^%d]") then
    return nil
  end
  local handlers, begins, names = handlers_of(text), functions_of(text), {}
  if #handlers == 0 then return not text:find("exec[ \t]+hops%-lane") and traps or nil end -- not a shell: unknown
  for _, handler in ipairs(handlers) do
    if handler[1] ~= "-" and may_end(text, begins, handler[1]) then
      for _, name in ipairs(handler[2]) do names[#names + 1] = name end
    end
  end
  return joined(names)
end

-- The warning that a value of --signal requests, as "batch:USR1:60" or "steps:USR1:60"; nil for a value by which Slurm
-- sends no warning.
local function warning_of(value)
  local flags, rest = value:gsub("[\"']", ""):match("^{?([RB]*)}?:?(.*)$")
  local name, seconds = rest:match("^(%w+)@(%d+)")
  name = SIGNALS[((name or rest:match("^%w+") or ""):upper():gsub("^SIG", ""))]
  if not name or seconds and #seconds > 5 then return nil end -- Slurm's limit is 65535
  return (flags:find("B") and "batch:" or "steps:") .. name .. ":" .. (seconds or "60")
end

-- The warning that the job requests. Slurm does not pass the option to this script, so it is read from the environment
-- and the script; one on sbatch's command line is read by hopsd (hopsd/slurm/submit_line.py).
function signal_of(job)
  local variable = job.environment and job.environment.SBATCH_SIGNAL
  if given(variable) then return warning_of(variable) end
  local value = option_in(job.script, "^#SBATCH.*%-%-signal[= ]+(%S+)")
  return value and warning_of(value)
end

-- "append", "truncate" or nil: what the script wants to happen to its output file at a restart. Slurm does not pass the
-- option to this script (22.05 to 26.05).
function open_mode_of(job)
  local variable = job.environment and job.environment.SBATCH_OPEN_MODE
  local value = given(variable) and variable or option_in(job.script, "^#SBATCH.*%-%-open%-mode[= ]+[\"']?(%a+)")
  local letter = value and value:sub(1, 1):lower()
  return letter == "a" and "append" or letter == "t" and "truncate" or nil
end

-- Whether a job has a flag; `flag` is nil if this Slurm does not know it. Lua 5.1 has no bit operators, but flags and
-- their sum are exact in a double.
function has_flag(job, flag)
  return flag and job.bitflags and math.floor(job.bitflags / flag) % 2 == 1
end

-- How many nodes at a time must be in one block. Slurm passes --segment to this script from 26.05 on; before, it is read
-- from the comment, the environment and the script.
function segment_of(job, values)
  local variable = job.environment and job.environment.SBATCH_SEGMENT_SIZE
  local size = values.segment or given(job.segment_size) and job.segment_size > 0 and string.format("%.0f", job.segment_size)
    or given(variable) and variable or option_in(job.script, "^#SBATCH.*%-%-segment[= ]+[\"']?(%d+)")
  size = tonumber(size)
  return size and size >= 1 and size % 1 == 0 and size <= GPUS[2] and string.format("%.0f", size) or nil
end

-- Where segments must be by sbatch's options of these names: "spread", "consolidate", both joined by ',', or nil.
function segments_of(job)
  local words = {}
  for _, name in ipairs({ "spread", "consolidate" }) do
    local flag, variable = slurm[name:upper() .. "_SEGMENTS"], job.environment and job.environment["SBATCH_" .. name:upper() .. "_SEGMENTS"]
    local asked = given(variable) or option_in(job.script, "^#SBATCH.*(%-%-" .. name .. "%-segments)")
    if flag then asked = has_flag(job, flag) end
    if asked then words[#words + 1] = name end
  end
  return joined(words)
end

-- Whether a shell submits a job when it is stopped: Slurm ends it by TERM, on which it runs its EXIT trap.
local function resubmits(text)
  local begins = functions_of(text)
  for _, handler in ipairs(handlers_of(text)) do
    local runs, last = handler[1], handler[3]
    local stops = last:find("TERM", 1, true) or last:find("EXIT", 1, true) or last:find("[ \t]15%f[^%d]") or last:find("[ \t]0%f[^%d]")
    if stops and acts_of(text, begins, runs):find("[^%w_]sbatch[^%w_]") then return true end
  end
  return false
end

-- The commands that start a training program: the first start has not run the lines after it when the job is moved.
local PROGRAMS = { "srun", "python[%d.]*", "torchrun", "accelerate", "deepspeed", "mpirun", "mpiexec", "hops%-run" }

local function starts_program(line)
  for _, name in ipairs(PROGRAMS) do
    if (" " .. line .. " "):find("[^%w_]" .. name .. "%s") then return true end
  end
  return false
end

-- Whether the script fails at once if it finds files of an earlier start: it has a guard against an existing output
-- folder, or a mkdir or mv that cannot succeed twice.
local function refuses_again(text)
  -- Local to the function: Lua allows 200 local variables in a file.
  local THERE, NOT_THERE = "%[+%s+%-[def]%s[^%]]*%]+", "%[+%s+!%s+%-[def]%s[^%]]*%]+"
  local FAILS = "[^%w_]exit%s+[$1-9]"
  local inside, strict, lines = false, false, 0
  for raw in text:gmatch("[^\n]+") do
    -- The patterns search to the end from each bracket, so long texts are cut: what people write is shorter.
    lines = lines + 1
    if lines > 200 then return false end
    local line = (" " .. raw:sub(1, 512)):gsub("[^%w_]test%s+(%!?%s*%-[def]%s+%S+)", " [ %1 ]")
    strict = strict or (" " .. line):find("%sset%s+%-%a*e") ~= nil
    if line:find("^%s*if%s+" .. THERE) then inside = true end
    if inside and (line:find("^%s*el") or line:find("[;%s]else%s")) then inside = false end
    if inside and (" " .. line):find(FAILS) then return true end
    if (" " .. line .. " "):find("[^%w_]fi[^%w_]") then inside = false end
    if line:find(THERE .. "%s*&&.*" .. FAILS) or line:find(NOT_THERE .. "%s*||.*" .. FAILS) then return true end
    local once = line:find("^%s*mkdir%s+[^-%s]") or line:find("^%s*mv%s+[^-%s]")
    if once and (strict or line:find("||.*" .. FAILS)) and not line:find("$(", 1, true) then return true end
    if starts_program(line) then return false end
  end
  return false
end

-- What a second start of the script would repeat, or what the script does when it is stopped: hops does not start such a
-- script just to measure it, and does not move one that submits a job when it is stopped, or refuses a second start.
function repeats_of(script)
  local text = "\n" .. commands_of(script)
  local words = {}
  if text:find("[%s;&|({\"'`]sbatch[%s\"']") then words[#words + 1] = "submits" end
  local joined_lines = text:gsub("\\\n", " ")
  if resubmits(joined_lines .. "\n") then words[#words + 1] = "resubmits" end
  if refuses_again(joined_lines) then words[#words + 1] = "refuses" end
  -- submitit's checkpoint makes Slurm requeue the job.
  if text:find("scontrol[ \t\"',]+requeue") or text:find("submitit.core._submit", 1, true) then words[#words + 1] = "requeues" end
  if text:find("SLURM_RESTART_COUNT", 1, true) then words[#words + 1] = "counts" end
  return joined(words)
end

-- How the script starts its training, as far as that decides whether the timing plugin reaches it: the word for hopsd,
-- and patterns of which one matches the script's commands.
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

-- What apptainer's one-letter options say: -w, -e and -C, also combined as in -ec. Any word before the image may be an
-- option's value, but after two words in a row the options are those of the command in the image.
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

-- The words after a command's name, up to the first that can be neither an option nor an option's value. At most 32, so
-- that no line takes long.
function options_after(line, from)
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

-- Whether a line runs something in a container by `name`, whose own options come before its command, as in
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

-- Whether a line starts deepspeed on several nodes by pdsh, its default launcher.
local function starts_pdsh(line)
  local launcher = line:find("deepspeed", 1, true)
  local words = launcher and line:sub(launcher)
  if not words or not (words:find("%-%-hostfile") or words:find("%s%-H%s")) then return false end
  return (words:match("%-%-launcher[=%s]+(%a+)") or "pdsh") == "pdsh"
end

function starts_of(job)
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
  for _, line in ipairs(option_lines(job.script)) do
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

-- The variables that a script sets to a number, also as a default.
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

-- The count, if a job may have it; Luas other than 5.1 do not print larger ones as whole numbers.
local function plausible(count)
  return count and count >= 1 and count <= GPUS[2] and count or nil
end

-- The count in a launcher's option: 8, a variable among `numbers`, or a list such as 0,1,2,3.
local function count_in(text, option, numbers)
  local value = text:match(option .. "[= ]+[\"']?([%w_${},]+)")
  if not value then return nil end
  local name = value:match("^%${?([%a_][%w_]*)}?$")
  if name then value = numbers[name] or "" end
  if value:find("^%d+,[%d,]*%d$") then return plausible(#split(value, ",")) end
  return plausible(tonumber(value:match("^%d+$")))
end

local GPUS_HERE = "write $SLURM_GPUS_ON_NODE in place of the number"

-- How scripts fix the GPUs of each node: an option's pattern and name, what to do instead, and a word that the script
-- must contain as well (Ray's --num_gpus is for the whole cluster).
local NODE_COUNTS = {
  { "%-%-nproc[_-]per[_-]node", "--nproc_per_node", "write --nproc_per_node=gpu" },
  { "%-%-num_gpus", "--num_gpus", GPUS_HERE, "deepspeed" },
  { "trainer%.devices", "trainer.devices", GPUS_HERE },
  { "trainer%.n_gpus_per_node", "trainer.n_gpus_per_node", GPUS_HERE },
  { "%-%-tensor[_-]parallel[_-]size", "--tensor-parallel-size", GPUS_HERE },
  { "%-%-devices", "--devices", GPUS_HERE },
}

-- Fixed counts are tables: `count`; `name`, the option or variable that sets it; `instead`, what to do instead; `roles`,
-- whether the GPUs have different roles; `nodes`, whether it counts nodes.

-- The GPUs that the script names one by one, for one program or for several with different roles.
local function listed_gpus(text)
  local count, highest, lists = 0, 0, {}
  for list in text:gmatch("CUDA_VISIBLE_DEVICES=[\"']?(%d[%d,]*)") do
    local items = split(list, ",")
    for _, item in ipairs(items) do highest = math.max(highest, tonumber(item) or 0) end
    if not lists[list] then lists[#lists + 1], lists[list], count = list, true, #items end
  end
  if #lists > 1 then count = highest + 1 end
  return plausible(count) and {
    count = count, name = "CUDA_VISIBLE_DEVICES", roles = #lists > 1, instead = "leave CUDA_VISIBLE_DEVICES to Slurm",
  }
end

-- The count of a loop over GPU numbers: for gpu in 0 1 2 3, {0..3} or $(seq 0 3).
local function looped_gpus(text)
  local chooses = {}
  for name in text:gmatch("CUDA_VISIBLE_DEVICES=[\"']?%${?([%a_][%w_]*)") do chooses[name] = true end
  local function loop(name, count)
    local over_gpus = chooses[name] or name:lower():find("gpu") or name:lower():find("device")
    return over_gpus and plausible(count) and {
      count = count, name = "for " .. name .. " in", instead = "write $(seq 0 $((SLURM_GPUS_ON_NODE - 1))) in place of the list",
    }
  end
  for name, list in text:gmatch("for ([%a_][%w_]*) in ([%d ]+)[;\n]") do
    local _, count = list:gsub("%d+", "")
    if loop(name, count) then return loop(name, count) end
  end
  for name, last in text:gmatch("for ([%a_][%w_]*) in {0%.%.(%d+)}") do
    if loop(name, last + 1) then return loop(name, last + 1) end
  end
  for name, last in text:gmatch("for ([%a_][%w_]*) in [$`(]+seq 0 (%d+)") do
    if loop(name, last + 1) then return loop(name, last + 1) end
  end
end

-- A count of GPUs or ranks on each node that the script does not take from its allocation.
function fixed_on_node(script, shape)
  local text = "\n" .. commands_of(script) .. "\n"
  local listed, numbers = listed_gpus(text), numbers_of(text)
  if listed and listed.roles then return listed end
  for _, entry in ipairs(NODE_COUNTS) do
    local pattern, name, instead, beside = entry[1], entry[2], entry[3], entry[4]
    local count = (not beside or text:find(beside, 1, true)) and count_in(text, pattern, numbers)
    if count then return { count = count, name = name, instead = instead } end
  end
  if shape == "node" then
    for line in text:gmatch("[^\n]+") do
      local _, launched = line:find("accelerate launch", 1, true)
      local count = launched and count_in(line:sub(launched), "%-%-num_processes", numbers)
      if count then return { count = count, name = "--num_processes", instead = GPUS_HERE } end
    end
  end
  return listed or looped_gpus((text:gsub("[ \t]+", " ")))
end

-- A count for the whole job that the script does not take from its allocation.
function fixed_in_job(script, shape)
  local text = "\n" .. commands_of(script)
  local numbers = numbers_of(text)
  local world = numbers.WORLD_SIZE and plausible(tonumber(numbers.WORLD_SIZE))
  if world and world > 1 then return { name = "WORLD_SIZE", count = world, instead = "write WORLD_SIZE=$SLURM_NTASKS" } end
  for _, option in ipairs({ "%-%-nnodes", "%-%-num_machines", "trainer%.num_nodes", "%-%-num_nodes" }) do
    local nodes = count_in(text, option, numbers)
    local elastic = text:find(option .. "[= ]+[\"']?%d+:") -- torchrun's --nnodes=2:4
    if nodes and nodes > 1 and not elastic then
      return { name = option:gsub("%%", ""), count = nodes, instead = "write $SLURM_NNODES in place of the number", nodes = true }
    end
  end
  local processes = shape ~= "node" and count_in(text, "%-%-num_processes", numbers)
  if processes and processes > 1 then
    return { name = "--num_processes", count = processes, instead = "write $((SLURM_NNODES * SLURM_GPUS_ON_NODE)) in place of the number" }
  end
end

-- Options and variables that set a port, which every job of the script would then use.
local PORTS = {
  { "MASTER_PORT", "[\n;%s]MASTER_PORT=[\"']?(%d+)" },
  { "--master_port", "%-%-master[_-]port[= ]+[\"']?(%d+)" },
  { "--main_process_port", "%-%-main_process_port[= ]+[\"']?(%d+)" },
  { "--rdzv_endpoint", "%-%-rdzv[_-]endpoint[= ]+[\"']?[^%s:=]*:(%d+)" }, -- no '=', or it would search past the next one
}
function fixed_port(script)
  local text = "\n" .. commands_of(script)
  for _, entry in ipairs(PORTS) do
    local port = text:match(entry[2])
    if port and #port <= 5 and tonumber(port) > 0 then return port, entry[1] end
  end
  local port = numbers_of(text).MASTER_PORT -- MASTER_PORT=${MASTER_PORT:-29500}
  if port and #port <= 5 and tonumber(port) > 0 then return port, "MASTER_PORT" end
end

-- The number of tasks that a step fixes, as srun -n 4 in a script that requests 4 tasks, or those of each node if their
-- number there may change.
function fixed_tasks(script, o)
  if not o.tasks or o.tasks < 2 or not o.tasks_ratio then return nil end
  for line in commands_of(script):gsub("\\\n", " "):gmatch("[^\n]+") do
    local _, last = line:find("srun%s")
    local options = last and " " .. table.concat(options_after(line, last), " ") .. " " or ""
    local count = options:match("%s%-n%s?(%d+)%s") or options:match("%s%-%-ntasks[=%s](%d+)%s")
    if tonumber(count) == o.tasks then
      return { name = "srun -n", count = o.tasks, instead = "write $SLURM_NTASKS in place of the number" }
    end
    count = not o.each and o.tasks_each and options:match("%s%-%-ntasks%-per%-node[=%s](%d+)%s")
    if count and tonumber(count) > 1 and tonumber(count) == o.tasks_each then
      return { name = "srun --ntasks-per-node", count = o.tasks, instead = "write $SLURM_NTASKS_PER_NODE in place of the number" }
    end
  end
end
end -- of the chapter

------------------------------------------------------------------------------------------
-- What the cluster has. Slurm checks a held job's size only when it is released, so users are told at submission what no
-- node could provide. Such a job is not refused, since slurm.conf may be about to change.

local CLUSTER_SECONDS = 60 -- slurm.conf may change; reading a large one takes some milliseconds
local KNOWN_NODES = 65536 -- names are not checked if there are more

-- The names of a valid list such as n[08-10,12],login.
local function names_in(text)
  local flat, names = text:gsub("%b[]", function(inside) return (inside:gsub(",", ";")) end), {}
  local function add(item)
    local before, inside, after = item:match("^(.-)%[(.-)%](.*)$")
    if not before then
      names[#names + 1] = item
      return
    end
    for _, part in ipairs(split(inside, ";")) do
      local low, high = part:match("^(%d+)%-(%d+)$")
      for number = tonumber(low or part), tonumber(high or part) do
        add(before .. string.format("%0" .. #(low or part) .. "d", number) .. after)
      end
    end
  end
  for _, item in ipairs(split(flat, ",")) do add(item) end
  return names
end

-- Reads the nodes in slurm.conf as { count, memory in MB, CPUs, GPUs by type }, with "" for GPUs without a type. `names`
-- has the names of all nodes and node sets as keys, and is nil if there are too many. `complete` says whether there can
-- be no others.
local function read_cluster()
  local lines, default, cluster, total = {}, {}, { nodes = {}, names = {}, at = os.time() }, 0
  cluster.complete = read_conf("slurm.conf", lines, 0)
  for _, line in ipairs(lines) do
    if line:find("^%s*maxnodecount%s*=") then cluster.complete = false end -- nodes may join at any time
    local names, set = line:match("^%s*nodename%s*=%s*(%S+)"), line:match("^%s*nodeset%s*=%s*(%S+)")
    if set and cluster.names then cluster.names[set] = true end
    local node = {
      gres = line:match("%sgres%s*=%s*(%S+)") or default.gres,
      memory = tonumber(line:match("%srealmemory%s*=%s*(%d+)")) or default.memory,
      cpus = tonumber(line:match("%scpus%s*=%s*(%d+)")) or default.cpus,
    }
    if names == "default" then
      default = node
    elseif names then
      node.count, node.gpus = named_nodes(names), {}
      for _, item in ipairs(gres_items(node.gres and node.gres:gsub("%b()", ""))) do
        local kind = item.kind or ""
        if item.name == "gpu" then node.gpus[kind] = (node.gpus[kind] or 0) + (tonumber(item.count) or 1) end
      end
      if node.count then cluster.nodes[#cluster.nodes + 1] = node else cluster.complete = false end
      total = total + (node.count or math.huge)
      if total > KNOWN_NODES then cluster.names = nil end
      for _, name in ipairs(cluster.names and names_in(names) or {}) do cluster.names[name] = true end
    end
  end
  return cluster
end

local known_cluster
local function cluster_now()
  if not known_cluster or os.time() - known_cluster.at > CLUSTER_SECONDS then known_cluster = read_cluster() end
  return known_cluster
end

-- The most GPUs of one type that the job's shape allows on nodes with that memory, and the existing types.
local function room_for(cluster, o, memory)
  local most, totals, kinds = 0, {}, {}
  for _, node in ipairs(cluster.nodes) do
    for kind, gpus in pairs(node.gpus) do
      if kind ~= "" and not totals[kind] then kinds[#kinds + 1] = kind end
      totals[kind] = totals[kind] or 0
      local is_asked = not o.kind or kind == "" or kind == o.kind:lower()
      if is_asked and (node.memory or math.huge) >= memory then
        totals[kind] = totals[kind] + (o.each and (gpus >= o.each and o.each or 0) or gpus) * node.count
        most = math.max(most, gpus)
      end
    end
  end
  table.sort(kinds)
  if o.shape == "node" then return most, kinds end
  local total, untyped = 0, totals[""] or 0
  for kind, gpus in pairs(totals) do total = math.max(total, gpus + (kind ~= "" and untyped or 0)) end
  return total, kinds
end

-- Why the cluster cannot provide `count` GPUs; nil if it can.
local function why_no_room(cluster, job, o, count)
  local memory = given(job.min_mem_per_node) and job.min_mem_per_node or 0
  local room, kinds = room_for(cluster, o, memory)
  if count <= room then return nil end
  local without_memory = room_for(cluster, o, 0)
  if o.kind and without_memory == 0 then
    return string.format("no node has GPUs of the type %s: the types are %s", o.kind, table.concat(kinds, ", "))
  elseif count <= without_memory then
    return string.format("%d GPUs with --mem=%.0fM: %s that much memory", count, memory,
      o.shape == "node" and "no node with as many has" or "too few nodes have")
  end
  local most = o.shape == "node" and "the most on one node are %d" or o.each and "nodes with %d each have %d in all" or "the cluster has %d of one type"
  return string.format("%d GPUs%s: " .. most, count, o.kind and " of the type " .. o.kind or "", o.each and o.shape ~= "node" and o.each or room, room)
end

-- Warns if the script asks for no GPUs, and for a number of tasks that it can never have: each GPU gets one.
local function warn_of_tasks(_, o, values)
  if o.per_node or o.total or o.tasks_per_gpu or o.tasks_ratio ~= "1/1" then return nil end
  local tasks = o.tasks or o.tasks_each
  local low, high = values.reqs:match("(%d+)%s*%-%s*(%d+)")
  if low and tasks >= tonumber(low) and tasks <= tonumber(high) then return nil end
  for count in values.reqs:gmatch("%d+") do
    if tonumber(count) == tasks then return nil end
  end
  return string.format("the script asks for %d tasks and for no GPUs, so it gets one task for each GPU: if several share a GPU, say "
    .. "how many GPUs they share (--gpus)", tasks)
end

-- Warns if the job requests more cores per GPU than a GPU's share of its node, which is the most that hops gives.
local function warn_of_cores(_, o, values)
  if not o.cores_ratio or o.exclusive or values.cpu == "yes" then return nil end
  local a, b = o.cores_ratio:match("(%d+)/(%d+)")
  local wanted, share = a / b, 0
  for _, node in ipairs(cluster_now().nodes) do
    local gpus, is_asked = 0, not o.kind
    for kind, count in pairs(node.gpus) do
      gpus, is_asked = gpus + count, is_asked or kind == "" or kind == o.kind:lower()
    end
    if gpus > 0 and is_asked then share = math.max(share, (node.cpus or math.huge) / gpus) end
  end
  if share == 0 or wanted <= share then return nil end
  return string.format("the job gets at most %g CPU cores with each GPU instead of %g: no GPU comes with more than its share of "
    .. "its node", share, wanted)
end

-- Why Slurm would refuse a plain job with this valid --nodelist, and whether that is certain; nil if it would not.
local function unknown_nodes(text)
  local function missing(cluster)
    local words = {}
    if #cluster.nodes == 0 or not cluster.names then return nil end
    for _, name in ipairs(names_in(text)) do
      if not cluster.names[name:lower()] then words[#words + 1] = name end
    end
    return joined(words)
  end
  local names = missing(cluster_now())
  if names and known_cluster.at ~= os.time() then -- nodes may have been added since
    known_cluster = read_cluster()
    names = missing(known_cluster)
  end
  return names and "Invalid node name specified: slurm.conf has no " .. shown(names) .. " (--nodelist)", known_cluster.complete
end

-- Warns the user if the cluster cannot provide what the job requests; nil if it can.
local function warn_of_room(_, o, values, job)
  local cluster = cluster_now()
  if o.unknown_nodes then return o.unknown_nodes .. ". hops cannot start the job until nodes join that have these names" end
  if values.cpu == "yes" or #cluster.nodes == 0 then return nil end
  local why = why_no_room(cluster, job, o, smallest_count(values.reqs, o.each))
  local until_then = cluster.complete and "" or ", until nodes join that have them"
  if why then return "Requested node configuration is not available: " .. why .. ". hops cannot start the job" .. until_then end
  if is_check(job) then return nil end -- hopsctl check itself reports on each count
  local never = {}
  local list = values.reqs:find("-", 1, true) and "" or values.reqs
  for item in list:gmatch("%d+") do
    local count = tonumber(item)
    local fits = count % (o.each or 1) ~= 0 or not why_no_room(cluster, job, o, count)
    if not fits then never[#never + 1] = item end
  end
  return joined(never) and "never on this cluster as it is: " .. joined(never) .. " GPUs"
end

------------------------------------------------------------------------------------------
-- The request: options and script together, as a word for hopsd.

-- Returns the request, and the word for it; or nil and what the user must change.
local function read_request(job, values)
  local o, problem = read_options(job)
  if not o then return nil, problem end
  local nodes = given(job.req_nodes) and job.req_nodes or nil
  problem = plain("--gres", o.kind) or plain("--gres", o.gres) or plain("--nodelist", nodes) or too_many_nodes(nodes)
  if problem then return nil, problem end
  if nodes then
    local unknown, is_sure = unknown_nodes(nodes)
    if is_sure and unknown then return nil, unknown end
    o.unknown_nodes = unknown
  end
  if given(job.features) and job.features:find("*", 1, true) then
    return nil, "the number of nodes is hops' choice: leave '*N' out of --constraint"
  end
  o.shape, o.each = shape_of(o)
  if values.interactive == "yes" and o.shape == "any" then o.shape = "node" end
  if values.shape or values.per_node then
    o.each = values.per_node and tonumber(values.per_node)
    o.shape = values.per_node and "even" or values.shape
  end
  if o.each and not has_multiple(values.reqs, o.each) then
    return nil, string.format("reqs=%s has no multiple of the %d GPUs a node that the options ask for: add one, such as "
      .. "reqs=%d,%d, or per_node= or shape= to the comment", values.reqs, o.each, o.each, 2 * o.each)
  end
  local words, tasks, tasks_each = {}, tasks_of(o)
  -- Slurm distributes tasks by cores: nodes with 5 and 6 GPUs got 6 and 5 tasks (22.05). task_prolog.sh provides a task
  -- for each GPU, by naming a node to srun for each of them.
  if o.shape == "any" and (tasks and tasks ~= "1/1" or tasks_each) then
    return nil, "shape=any goes with one task for each GPU (srun python), or one on each node, which starts its own ranks "
      .. "(srun hops-run, torchrun): write shape=even in the comment, or --ntasks-per-node=1"
  end
  problem = why_no_whole_tasks(o, tasks, values.reqs)
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
  if o.most_tasks_each then
    local gpus = o.per_node or o.total and o.total / (o.nodes or 1)
    add("most_tasks", gpus and gpus > 0 and gpus % 1 == 0 and ratio(o.most_tasks_each, gpus) or nil)
  end
  o.cores_ratio = cores_of(o, tasks, tasks_each, smallest_count(values.reqs))
  add("cores", o.cores_ratio)
  -- If whole nodes are requested without GPUs, Slurm gives memory per core, which is nearly all of it.
  local unasked = not given(job.min_mem_per_node) and not o.memory_per_core and not o.memory_per_gpu
  o.whole_memory = job.min_mem_per_node == 0 or unasked and o.exclusive and not (o.per_node or o.total)
  add("memory", o.whole_memory and "node" or o.memory_per_gpu and string.format("%d", o.memory_per_gpu) or unasked and "default" or nil)
  add("per_core", o.memory_per_core and (o.cores or o.cores_per_gpu) and string.format("%.0f", o.memory_per_core))
  add("exclusive", o.exclusive and "yes")
  o.signal, o.traps = signal_of(job), traps_of(job.script)
  add("preempt", values.preempt == "yes" and "yes") -- the user says that the job tolerates moves
  add("signal", o.signal)
  add("type", o.kind)
  add("gres", o.gres)
  add("disk", o.disk and string.format("%.0f", o.disk))
  add("nodes", given(job.req_nodes) and job.req_nodes)
  add("traps", o.traps)
  o.ends = ends_of(job.script, o.traps)
  add("ends", o.ends)
  add("starts", starts_of(job))
  add("switches", given(job.req_switch) and job.req_switch > 0 and string.format("%.0f", job.req_switch)
    .. (given(job.wait4switch) and string.format("@%.0f", job.wait4switch) or ""))
  o.segment, o.segment_is_ours = segment_of(job, values), job.segment_size ~= nil
  add("segment", o.segment)
  add("segments", o.segment and segments_of(job))
  o.fixed = fixed_on_node(job.script, o.shape)
  add("ranks", o.fixed and string.format("%d", o.fixed.count))
  o.repeats = repeats_of(job.script)
  add("repeats", o.repeats)
  add("time_min", given(job.time_min) and job.time_min > 0 and string.format("%.0f", job.time_min) or nil)
  local word = table.concat(words, "|")
  if #word > WORD_CHARACTERS then
    return nil, string.format("the options take %d characters: shorten --gres or --nodelist", #word)
  end
  return o, word
end

------------------------------------------------------------------------------------------
-- Messages: what users should change, and what may happen to their jobs.

-- Warns of a script that breaks on GPU counts other than its own, and says what to change; nil if none is seen.
local function warn_of_fixed_gpus(_, o, values)
  local fixed = o.fixed
  if not fixed then return nil end
  local fits = o.each == fixed.count
  if o.shape == "node" or fixed.count == 1 then -- a single GPU is on a single node
    fits = not values.reqs:find("-", 1, true)
    for count in values.reqs:gmatch("%d+") do fits = fits and tonumber(count) == fixed.count end
  end
  if fits then return nil end
  local wanted = string.format(o.shape == "node" and "give reqs=%d" or "give reqs and per_node= so that each node gets %d", fixed.count)
  if fixed.roles then
    return string.format("the script gives roles to %d GPUs of a node (%s): %s", fixed.count, fixed.name, wanted)
  end
  return string.format("the script fixes %d GPU%s on each node (%s), however many it gets there: %s, or %s",
    fixed.count, fixed.count == 1 and "" or "s", fixed.name, fixed.instead, wanted)
end

local function warn_of_fixed_total(script, o, values)
  local fixed = fixed_in_job(script, o.shape) or fixed_tasks(script, o)
  if not fixed then return nil end
  local asked = o.per_node and o.per_node * (o.nodes or 1) or o.total
  local wanted = fixed.count
  if fixed.nodes then wanted = o.each and fixed.count * o.each else wanted = asked or fixed.count end
  local fits = wanted ~= nil and not values.reqs:find("-", 1, true)
  for count in values.reqs:gmatch("%d+") do
    local unused = o.each and tonumber(count) % o.each ~= 0
    fits = fits and (unused or tonumber(count) == wanted)
  end
  if fits then return nil end
  return string.format("the script fixes %d %s (%s), however many it gets: %s%s", fixed.count,
    fixed.nodes and "nodes" or "ranks", fixed.name, fixed.instead, wanted and string.format(", or give reqs=%d", wanted) or "")
end

local function warn_of_port(script, o)
  local port, name = fixed_port(script)
  if not port or o.exclusive then return nil end
  return string.format("the script uses port %s (%s), and fails beside another job with it: write "
    .. "$((20000 + SLURM_JOB_ID %% 10000)) in place of the number", port, name)
end

-- Warns of a step on fewer nodes than the job has: by default it requests all of the job's GPUs, and srun refuses that on
-- nodes with different numbers of GPUs.
local function warn_of_steps(script, o, values)
  if o.shape ~= "any" or not values.reqs:find("[2-9]") and not values.reqs:find("%d%d") then return nil end
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

-- Whether the job may get more than one GPU count.
local function has_other_counts(o, values)
  local counts = {}
  if values.reqs:find("-", 1, true) then return true end
  for item in values.reqs:gmatch("%d+") do
    local count = tonumber(item)
    if count % (o.each or 1) == 0 then counts[count] = true end
  end
  local first = next(counts)
  return first ~= nil and next(counts, first) ~= nil
end

-- The signal that hops sends before it stops the job: its name, "steps", "shell" or "trap", and the seconds until the
-- stop. If hops sends none, nil and the reason; nil alone if the script does not handle it.
local function signal_before_move(o)
  local target, name, seconds = (o.signal or ""):match("^(%w+):(%w+):(%d+)$")
  if target == "steps" then return name, target, tonumber(seconds) end
  name = name or SITE.signal
  if has(o.ends, name) then
    return nil, string.format("on %s the script may end as if it were done, so hops does not send it: have the trap run scontrol "
      .. "requeue $SLURM_JOB_ID, and hops sends it", name)
  elseif has(o.traps, name) then
    return name, target and "shell" or "trap", tonumber(seconds)
  elseif target then
    return nil, string.format("--signal=B: is for the script's shell, which has no handler for %s, so hops does not send it", name)
  end
end

local function output_after_restart(job)
  local mode = open_mode_of(job)
  if mode == "truncate" then
    return ". Each restart empties its output file, as --open-mode=truncate asks"
  elseif not mode and not APPENDS_OUTPUT then
    return ". Each restart empties its output file unless sbatch has --open-mode=append"
  end
  return ""
end

-- Whether a step has the same samples on any GPU count, as far as the script's text shows.
local function keeps_batch(script)
  local commands = commands_of(script)
  return (commands:find("HOPS_FRAMEWORK_SAVES=1", 1, true) or commands:find("ElasticLoader", 1, true)) ~= nil
end

-- All that users should know about moves, for `hopsctl check`.
local function explain_moves(script, o, values, job)
  local others, vouched = has_other_counts(o, values), values.preempt == "yes"
  local name, target, seconds = signal_before_move(o)
  local text = "the job may be stopped and restarted, also on other nodes" .. (others and " or another GPU count: " or ": ")
  if not name and target then
    text = text .. target .. (vouched and "" or ". The job is not moved until it has called torch.save once")
  elseif not name then
    text = text .. "the script does not handle " .. SITE.signal .. " (--signal, trap), so "
      .. (vouched and "" or "hops will not move it until it has called torch.save once, and ") .. "work since the last save is lost"
  elseif target == "trap" then
    text = text .. "hops sends the script " .. name .. " before (trap), which then starts from its first line"
  else
    text = text .. string.format("hops sends %s %s %d s ahead, and the script then starts from its first line",
      target == "steps" and "the steps that srun starts" or "it", name, seconds)
  end
  if target == "steps" and not vouched and not has(o.repeats, "requeues") then
    text = text .. ". It is not moved before hops has seen that they handle the signal, or has seen torch.save once"
  end
  if others and not keeps_batch(script) then
    text = text .. ". On another GPU count a step has another number of samples and the epoch begins again, unless the script keeps its "
      .. "place: hops_profiler.ElasticLoader keeps both, as do Trainer, Lightning and Accelerate with --signal=USR1@60"
  end
  return text .. output_after_restart(job) .. ". preempt=no in the comment disables moving"
end

-- The same in few words: with the text that follows, sbatch's output should fit into three lines of 80 columns.
local function summarize_moves(script, o, values, job)
  local name, target, seconds = signal_before_move(o)
  local text = "may restart on other nodes"
  if has_other_counts(o, values) then
    text = text .. " or another GPU count" .. (keeps_batch(script) and "" or " (and batch)")
  end
  if target == "steps" and values.preempt ~= "yes" and not has(o.repeats, "requeues") then
    text = text .. " if ranks handle " .. name
  elseif seconds then
    text = text .. string.format(" %d s after %s", seconds, name)
  elseif name then
    text = text .. " after a signal"
  else
    text = (target and target .. ". It " or "") .. text .. (values.preempt == "yes" and "" or " after a torch.save")
  end
  return text .. "; preempt=no in the comment forbids it" .. output_after_restart(job) .. ". More: hopsctl check"
end

-- What may happen to a job that hops may move, and how to prevent it; nil if the job stays in place.
local function warn_of_moves(script, o, values, job)
  if values.preempt == "no" then return nil end
  if option_in(script, "^#SBATCH.*%-%-deadline[= ]+(%S+)") then -- Slurm does not pass the option to this script
    return "hops does not move the job while it runs, since Slurm would end it if its whole --time no longer fits before its --deadline"
  elseif has(o.repeats, "resubmits") then
    return "the script submits a job when it is stopped (trap), so hops does not move it: leave sbatch out of the trap, and "
      .. "hops starts the job again by itself"
  elseif has(o.repeats, "refuses") then
    return "the script fails if a file or folder of an earlier start exists, so hops does not move it: make it continue from "
      .. "there, and hops may"
  end
  return is_check(job) and explain_moves(script, o, values, job) or summarize_moves(script, o, values, job)
end

-- Before 26.05 this script cannot remove --segment from a job.
local function warn_of_segment(script, o)
  if not o.segment or o.segment_is_ours or not option_in(script, "^#SBATCH.*%-%-segment[= ]") then return nil end
  return string.format("topology/block of this Slurm starts no job with --segment on nodes that hops names: write segment=%s in "
    .. "the comment in place of it", o.segment)
end

-- What profile=yes will do; nil without it. hopsd/core/queue/profiling.py decides.
local function warn_of_profile(_, o, values)
  if values.profile ~= "yes" then return nil end
  local why = values.preempt == "no" and "preempt=no forbids stopping the job"
    or smallest_count(values.reqs, o.each) > 1 and "the job needs more GPUs than the one of such a run"
    or o.fixed and o.fixed.count > 1 and "the script fixes more GPUs (" .. o.fixed.name .. ") than the one of such a run"
    or o.repeats and "the script submits jobs, requeues itself, reads SLURM_RESTART_COUNT or fails at a second start"
  if why then return "profile=yes has no effect: " .. why end
  return "to measure it (profile=yes), hops first runs the script on one GPU of each type, stops it midway and starts it again"
end

-- "1, 2, 4 or 8 GPUs" from reqs, without the counts that `per_node` rules out.
local function counts_text(reqs, per_node)
  local low, high = reqs:match("^[ \t]*(%d+)[ \t]*%-[ \t]*(%d+)")
  if low then return string.format("%d to %d GPUs", low, high) end
  local counts, seen = {}, {}
  for item in reqs:gmatch("%d+") do
    local count = tonumber(item)
    if count % (per_node or 1) == 0 and not seen[count] then counts[#counts + 1], seen[count] = count, true end
  end
  table.sort(counts)
  local last = string.format("%d GPU%s", counts[#counts], counts[#counts] == 1 and "" or "s")
  counts[#counts] = nil
  for position, count in ipairs(counts) do counts[position] = string.format("%d", count) end
  return (#counts > 0 and table.concat(counts, ", ") .. " or " or "") .. last
end

local SHAPE_TEXT = { any = " on any nodes", node = ", all on one node", even = ", as many on each node" }

local function accepted_text(o, values)
  local text = "accepted: " .. counts_text(values.reqs, o.each)
    .. (o.each and string.format(", %d on each node", o.each) or SHAPE_TEXT[o.shape])
  local unused = o.each and unused_counts(values.reqs, o.each) or {}
  if #unused > 0 then
    text = text .. string.format(" (not %s, being no multiple of it; per_node= or shape= in the comment changes that)",
      table.concat(unused, ","))
  end
  return text
end

------------------------------------------------------------------------------------------
-- Submission.

local function refusal_of(job, values)
  if job.comment:find(MARK, 1, true) then return "leave " .. MARK .. " out of the comment: it is hopsd's own mark" end
  if SITE_PROBLEM then return "no job is accepted until an administrator fixes this: " .. SITE_PROBLEM end
  local problem = length_problem(job)
  if problem then return problem end
  if given(job.het_job_offset) or option_in(job.script, "^#SBATCH%s+(%a+job)%s*$") then
    return "no heterogeneous jobs (hetjob, ' : '): submit the parts as separate jobs, or leave hops: out of every comment"
  end
  if job.script == nil and values.interactive ~= "yes" then -- also a later part of a heterogeneous job, under --test-only
    return "only batch jobs: submit it with sbatch, the parts of a heterogeneous job (hetjob, ' : ') as separate jobs; or, for "
      .. "a session by srun or salloc, write hops:reqs=" .. values.reqs .. ";interactive"
  end
  if given(job.array_inx) and given(job.dependency) and job.dependency:find("singleton", 1, true) then
    -- Slurm runs the tasks first that it still keeps in one record (22.05), but hops runs others first.
    return "--dependency=singleton does not go with a job array: write --array=...%1 for one task at a time"
  end
  if job.cron_job == true then return "no scrontab jobs: leave hops: out of the comment" end
  local request = job.partition
  if SITE.partitions and given(request) and closed_partition(request) then
    return "partition " .. shown(closed_partition(request)) .. " takes no hops jobs: choose from "
      .. table.concat(SITE.partitions, ", ")
  end
end

-- Fields that would pin the job's shape, and their values for "not given". hopsd requests all of them again when it
-- places the job: the script's requests are in the job's admin comment.
local CLEARED = {
  { "tres_per_node", "" }, { "tres_per_job", "" }, { "tres_per_socket", "" },
  { "tres_per_task", "" }, { "cpus_per_tres", "" }, { "mem_per_tres", "" },
  { "ntasks_per_tres", NO_VAL16 }, { "ntasks_per_node", NO_VAL16 }, { "num_tasks", NO_VAL },
  { "cpus_per_task", NO_VAL16 }, { "pn_min_cpus", NO_VAL16 }, { "req_nodes", "" },
  { "req_switch", NO_VAL }, { "wait4switch", NO_VAL },
}

-- The same for options that hops ignores with a message: option, field, value for "not given".
local IGNORED = {
  { "--ntasks-per-socket", "ntasks_per_socket", NO_VAL16 },
  { "--sockets-per-node", "sockets_per_node", NO_VAL16 },
  { "--cores-per-socket", "cores_per_socket", NO_VAL16 },
  { "--threads-per-core, --hint", "threads_per_core", NO_VAL16 },
  { "--core-spec", "core_spec", NO_VAL16 },
  { "--thread-spec", "thread_spec", NO_VAL16 },
  { "--prefer", "prefer", "" },
}

local IGNORED_FLAGS = {
  { "--gres-flags=enforce-binding", slurm.GRES_ENFORCE_BIND },
  { "--spread-job", slurm.SPREAD_JOB },
  { "--use-min-nodes", slurm.USE_MIN_NODES },
  -- Slurm would restart the job on the nodes that it had, before hops sees it (25.11 and later).
  { "--requeue=expedite", slurm.EXPEDITED_REQUEUE },
}

local function clear_flag(job, flag)
  local there = has_flag(job, flag)
  if there then job.bitflags = job.bitflags - flag end
  return there
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
  for _, entry in ipairs(IGNORED_FLAGS) do
    local option, flag = entry[1], entry[2]
    if clear_flag(job, flag) then ignored[#ignored + 1] = option end
  end
  -- hopsd itself names nodes that keep the segments. topology/block accepts named nodes of several blocks only if each
  -- node is a segment of its own (26.05).
  if job.segment_size ~= nil then job.segment_size = 1 end
  clear_flag(job, slurm.SPREAD_SEGMENTS)
  clear_flag(job, slurm.CONSOLIDATE_SEGMENTS)
  if job.contiguous == 1 then ignored[#ignored + 1] = "--contiguous" end
  job.min_nodes, job.max_nodes = 1, NO_VAL
  job.min_cpus, job.max_cpus = 1, NO_VAL -- sbatch derives min_cpus from --ntasks
  job.contiguous = 0
  if #ignored > 0 then
    tell("ignored, since hops chooses GPUs and nodes: " .. table.concat(ignored, ", "))
  end
end

-- Requests the smallest shape that the job accepts, so that Slurm checks it against limits, and refuses it if it would
-- refuse a plain job. hopsd clears this request when it places the job.
local function keep_smallest(job, asked, gpus)
  local kind = GPU .. (asked.kind and asked.kind .. ":" or "")
  job.tres_per_job = kind .. string.format("%d", gpus)
  if asked.each then job.min_nodes = gpus / asked.each end
  job.min_cpus = job.min_nodes * (asked.tasks_of_node or 1) -- a task has at least one core
  for _, each in pairs({ asked.tasks_ratio, asked.cores_ratio }) do
    local count, of = each:match("(%d+)/(%d+)")
    job.min_cpus = math.max(job.min_cpus, math.ceil(count * gpus / of))
  end
  if asked.memory_per_gpu then job.mem_per_tres = asked.memory_text end
  if asked.whole_memory then job.min_mem_per_node = 0 end
end

local function report_to_check(job, partitions, word)
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

local function accept(job, partitions, values, asked, word)
  if SITE.partitions and not given(job.partition) then
    local default = default_partition(partitions)
    if not default or closed_partition(default) then job.partition = SITE.partitions[1] end
  end
  local rest = remark(job.comment)
  if rest then tell(rest) end
  if job.requeue == 0 and not values.preempt then
    values.preempt = "no"
    tell("--no-requeue: hops does not stop or move the job, as with preempt=no, and Slurm does not requeue it where a node "
      .. "fails. Write preempt=yes in the comment to let hops do so")
  elseif job.requeue == 0 and values.preempt == "yes" then
    job.requeue = 1
    tell("--no-requeue is ignored, since preempt=yes in the comment lets hops move the job")
  end
  for _, warn in ipairs({ warn_of_fixed_gpus, warn_of_fixed_total, warn_of_steps, warn_of_port, warn_of_profile, warn_of_segment, warn_of_tasks, warn_of_cores,
    warn_of_room }) do
    local text = warn(job.script, asked, values, job)
    if text then tell(text) end
  end
  local moves = warn_of_moves(job.script, asked, values, job)
  if moves then tell(moves) end
  local words = given(job.admin_comment) and job.admin_comment .. " " or ""
  job.admin_comment = words .. ASKS_MARK .. "|" .. word
  if job.environment then
    job.environment.HOPS_ASKS = word
    job.environment.HOPS_JOB_ID = "new" -- not another job's, which sbatch may pass on; task_prolog.sh sets it
    -- Not with --cpus-per-gpu, from which sbatch derives --cpus-per-task. Empty, not unset: sbatch may have passed on
    -- another job's.
    local cores = asked.cores and not asked.cores_per_gpu and string.format("%d", asked.cores)
    job.environment.HOPS_CPUS_PER_TASK = cores or ""
  end
  if is_check(job) then report_to_check(job, partitions, word) end
  clear_shape(job)
  keep_smallest(job, asked, smallest_count(values.reqs, asked.each))
  if job.requeue ~= 0 then job.requeue = 1 end
  local held_by_user = job.priority == 0
  if held_by_user then job.begin_time = USER_HOLD_BEGIN end
  job.priority = 0
  if held_by_user then
    tell("held until you run `scontrol release JOB` (this also clears --begin)")
  else
    tell(accepted_text(asked, values) .. (given(job.array_inx) and ", for each task of the array" or "")
      .. (values.interactive == "yes" and ", as a session that nothing moves" or "")
      .. (moves and not is_check(job) and "; held until its turn"
        or ". squeue shows it held until hops starts it; `hopsctl explain JOB` says why"))
  end
end

local function submit(job, partitions)
  local values, problem = read_comment(job.comment)
  problem = problem or refusal_of(job, values)
  local asked, word
  if not problem then
    asked, word = read_request(job, values)
    problem = not asked and word
  end
  if problem then
    tell(problem)
    return slurm.ERROR
  end
  accept(job, partitions, values, asked, word)
  return slurm.SUCCESS
end

------------------------------------------------------------------------------------------
-- Modification. On a held job an innocent `scontrol update nice=5` sets a priority, and the job starts
-- (22.05 to 26.05). So its owner may change only what does not affect its hold and shape.

local FIXED = {
  "comment", "nice", "requeue", "req_nodes", "exc_nodes", "min_nodes", "max_nodes", "min_cpus",
  "max_cpus", "num_tasks", "cpus_per_task", "pn_min_cpus", "tres_per_node", "tres_per_job",
  "tres_per_socket", "tres_per_task", "tres_bind", "cpus_per_tres", "ntasks_per_node",
  "ntasks_per_socket", "ntasks_per_core", "ntasks_per_tres", "sockets_per_node",
  "cores_per_socket", "threads_per_core", "shared", "contiguous", "core_spec", "thread_spec",
  "req_switch", "wait4switch", "features", "prefer", "reservation", "licenses",
}

-- Whether an update changes a field. An empty string is a change, which clears the field.
local function changed(value)
  return value ~= nil and value ~= NO_VAL and value ~= NO_VAL16
end

local function mentions(text, word)
  return type(text) == "string" and text:find(word, 1, true) ~= nil
end

local function waits(record)
  return record.job_state % 256 == 0 -- the low byte is the base state; 0 means pending
end

-- The begin time of an update, nil if it sets none.
local function begins(job)
  local begin = job.begin_time
  return given(begin) and begin ~= 0 and begin or nil
end

-- When a person held a job, and when hopsd placed one, by job id. They are kept here, where requests are
-- handled one at a time, because Slurm does not pass a job's begin time to this script. A restart of Slurm
-- loses both, but hopsd then reads the jobs again. A task that Slurm has just taken out of its array's record
-- has a number of its own, but was held under the array's number; `lifted` is when it was released by itself.
local held, placed, lifted = {}, {}, {}

local function array_of(record)
  local array = record.array_job_id -- 0 if the job is in no array
  return given(array) and array ~= 0 and array or nil
end

local function remember(times, id)
  local now = os.time()
  for other, at in pairs(times) do
    if now - at > 3600 then times[other] = nil end
  end
  times[id] = now
end

local function is_recent(times, id, seconds)
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

-- `scontrol hold 17` calls this script once for each task of array 17, and each request has what was set for
-- the previous task: this comment, and a begin time.
local answered

local function set_comment(job, record, comment)
  job.comment, answered = comment, { array = array_of(record), comment = comment }
end

-- Whether a request repeats the answer to the previous task. hopsd's own requests may have that comment, too, but
-- they name nodes, or hold without a person's mark.
local function is_repeated(job, record)
  if not answered or not answered.array or answered.array ~= array_of(record) then return false end
  if changed(job.req_nodes) or job.priority == 0 and not mentions(job.comment, HELD_MARK) then return false end
  return given(job.comment) and job.comment == answered.comment
end

-- If hopsd places a job in fewer partitions than it asked for, it appends those to the comment. This mark is removed
-- once somebody else chooses partitions.
local function choose_partitions(job, record)
  set_comment(job, record, (record.comment:gsub(" #hops%-partitions=%S*", "")))
  return job.comment
end

local function modify(job, record)
  local again = given(job.partition) and is_repeated(job, record)
  for _, field in ipairs(FIXED) do
    if changed(job[field]) and not (again and field == "comment") then
      tell("cannot change " .. field .. " of a hops job: cancel it and submit it again")
      return DENIED
    end
  end
  if SITE.partitions and given(job.partition) and closed_partition(job.partition) then
    tell("choose a partition from " .. table.concat(SITE.partitions, ", "))
    return DENIED
  end
  if given(job.partition) then choose_partitions(job, record) end
  if mentions(record.comment, HELD_MARK) and waits(record) then
    if changed(job.priority) and job.priority ~= 0 or begins(job) and begins(job) ~= USER_HOLD_BEGIN then
      tell("an operator holds it")
      return DENIED
    end
  elseif begins(job) then -- a new begin time ends the owner's own hold
    lift(record)
  end
  if not changed(job.priority) then return slurm.SUCCESS end
  if not waits(record) then
    tell("hold and release are for waiting jobs: run `scontrol requeue` first")
    return DENIED
  end
  if job.priority == 0 then
    job.begin_time = USER_HOLD_BEGIN
    remember(held, record.job_id)
    return slurm.SUCCESS
  end
  if job.priority == RELEASE then -- lifts the owner's hold, but not hops' own
    lift(record)
    job.begin_time = os.time()
    job.priority = NO_VAL
    return slurm.SUCCESS
  end
  tell("cannot change the priority of a hops job")
  return DENIED
end

local function refuse_joining()
  tell("cannot add hops: to a submitted job; cancel it and resubmit with this comment")
  return DENIED
end

-- hopsd's request is based on its last reading of the job. If a person has held the job since, it is refused: hopsd's
-- begin time would erase the mark, and its release would start the job.
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

-- An operator's release lifts a person's hold. hops' own hold stays: an unplaced job would start with its smallest
-- count, on any nodes. Like hopsd's own release, it passes if the job is placed.
local function follow_release(job, record)
  local id, at = record.job_id, held_at(record)
  local has_place = is_recent(placed, id, 600)
  local late = at and is_recent(placed, id, 60) and placed[id] <= at
  placed[id] = nil
  if late then
    tell("it was held after hops placed it; release it again if that is intended")
    return DENIED
  end
  lift(record)
  set_comment(job, record, (record.comment:gsub(" #hops%-held", "")))
  if not has_place then
    job.begin_time = os.time()
    job.priority = NO_VAL
    tell("hops starts it when its turn comes; hopsctl release " .. id .. " gives it to plain Slurm")
  end
  return slurm.SUCCESS
end

-- An operator may hold a job as its owner may, but the owner cannot undo that. hopsd's own hold sets a begin time, and
-- so does its placement, with the nodes; `scontrol hold` and `uhold` do not.
local function follow_operator(job, record)
  if not waits(record) then return slurm.SUCCESS end
  local again = is_repeated(job, record)
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
    set_comment(job, record, mentions(words, HELD_MARK) and words or words .. " " .. HELD_MARK)
  elseif job.priority == RELEASE then
    return follow_release(job, record)
  elseif changed(job.priority) or changed(job.nice) then -- Slurm would end the hold
    tell("it would start with GPUs that hops has not chosen; hopsctl release " .. id .. " gives it to plain Slurm")
    return DENIED
  elseif begins(job) then
    lift(record)
  end
  return slurm.SUCCESS
end

-- An update of another user's job by an account that this script does not know. Slurm carries it out only for its own
-- operators and for coordinators of the job's account, whatever this script returns. They may hold the job, and lift
-- any person's hold; hops' own hold stays.
local function by_another(job, record)
  local again = is_repeated(job, record)
  local asks = job.priority == 0 or job.priority == RELEASE or again and not changed(job.priority)
  if given(job.comment) and not again or not asks or not waits(record) then
    return modify(job, record)
  end
  return follow_operator(job, record)
end

-- Keeps the script's options in an admin comment that an administrator replaces.
local function keep_options(job, record)
  local text, before = job.admin_comment, record.admin_comment
  local word = before and (" " .. before):match(" (" .. ASKS_MARK .. "|%S*)")
  if type(text) ~= "string" or not word or mentions(text, ASKS_MARK) then return end
  job.admin_comment = text == "" and word or text .. " " .. word
end

------------------------------------------------------------------------------------------
-- The functions that Slurm calls.

local function guarded(what, refusal, act, ...)
  local ran, answer = pcall(act, ...)
  if ran and type(answer) == "number" then return answer end
  pcall(slurm.log_error, "%s", "hops: defect in " .. what .. ": " .. tostring(answer))
  tell("refused, since the submit plugin failed: tell your administrator")
  return refusal
end

-- The functions of a site's own script that calls this one.
local site_submit, site_modify = rawget(_G, "slurm_job_submit"), rawget(_G, "slurm_job_modify")

-- The result of the site's function; slurm.SUCCESS if there is no function or no result. If the function fails, Slurm
-- would accept the job; a hops job would then run without being held, so it is refused instead.
local function site_answer(rules, what, refusal, ...)
  if not rules then return slurm.SUCCESS end
  local ran, answer = pcall(rules, ...)
  if ran and answer == nil then return slurm.SUCCESS end
  if ran and type(answer) == "number" then return answer end
  pcall(slurm.log_error, "%s", "hops: the site's " .. what .. " failed: " .. tostring(answer))
  tell("refused, since the site's submit script failed: tell your administrator")
  return refusal
end

-- The site's rules do not apply to hopsd's requests: it acts as root, SlurmUser or an operator.
local function follow_site(job, record, partitions, uid)
  if not site_modify then return slurm.SUCCESS end
  if not ours(record.comment) then return site_modify(job, record, partitions, uid) or slurm.SUCCESS end
  if PRIVILEGED[uid] then return slurm.SUCCESS end
  return site_answer(site_modify, "slurm_job_modify", DENIED, job, record, partitions, uid)
end

function slurm_job_submit(job, partitions, uid)
  if site_submit then
    if not our_part(job.comment) then
      local answer = site_submit(job, partitions, uid)
      if answer ~= nil and answer ~= slurm.SUCCESS then return answer end
    else
      local answer = site_answer(site_submit, "slurm_job_submit", slurm.ERROR, job, partitions, uid)
      if answer ~= slurm.SUCCESS then return answer end
    end
  end
  if not ours(job.comment) then
    local _, text = pcall(remark, job.comment)
    if text then tell(text) end
    return slurm.SUCCESS
  end
  return guarded("slurm_job_submit", slurm.ERROR, submit, job, partitions)
end

function slurm_job_modify(job, record, partitions, uid)
  local verdict = follow_site(job, record, partitions, uid)
  if verdict ~= slurm.SUCCESS then return verdict end
  if not given(job.comment) then answered = nil end
  if not ours(record.comment) then
    local joins = ours(job.comment) and not PRIVILEGED[uid]
    return joins and guarded("slurm_job_modify", DENIED, refuse_joining) or slurm.SUCCESS
  end
  pcall(keep_options, job, record)
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
