--- Runs an archive of golden cases: neap run tests/golden/run.lua ARCHIVE.tar.gz MANIFEST.jsonl
-- [FILTER]
--
-- Each case is a net: its inputs are parameters, its outputs are compared, and the gradient of
-- sum(out * gout) with respect to every input that has a golden gradient is compared too. Which
-- Neap ops a golden name stands for is written in map.lua. Prints each failure, each case that Neap
-- has no op for, and last the counts. FILTER is a Lua pattern for names of cases. NEAP_ENGINE
-- forces an engine.
--
-- INVARIANT: a case passes only when every out.k and every grad.NAME of its file was compared,
-- shape and dtype included, and when its entry in map.lua read every attribute and every input:
-- what no one reads was not what the golden computed.
local neap = require "neap"
local json = require "cjson"
local map = dofile((arg[0]:match "^(.*/)" or "") .. "map.lua")

local archive, manifest, filter = ...
if not archive or not manifest then
  io.stderr:write "usage: neap run tests/golden/run.lua ARCHIVE.tar.gz MANIFEST.jsonl [FILTER]\n"
  os.exit(2)
end

--- Files
-- -------------------------------------------------------------------------------------------------

local function quote(path) return "'" .. path:gsub("'", "'\\''") .. "'" end

--- The cases of an archive in a new folder: its path, and {case name = path}.
local function unpack_archive(path)
  local folder = os.tmpname()
  os.remove(folder)
  assert(
    os.execute(
      ("mkdir -p %s && tar xzf %s -C %s"):format(quote(folder), quote(path), quote(folder))),
    "the archive can't be unpacked")
  local files = {}
  local list <close> = assert(io.popen("find " .. quote(folder) .. " -name '*.safetensors'"))
  for file in list:lines() do files[file:match "([^/]+)%.safetensors$"] = file end
  return folder, files
end

--- Comparing
-- -------------------------------------------------------------------------------------------------

--- Largest difference allowed, over the largest absolute value expected. Goldens were rounded once,
-- from f64: an engine may sum in its own order, which costs some tens of roundings (2^-24 = 6e-8
-- each) in the longest sums of the archive.
local tolerance = { f32 = 2e-5, f64 = 1e-9 }

--- Below the smallest normal f32 a processor may give 0: goldens that are no larger carry no
-- relative precision.
local least_normal = 2.0 ^ -126

local function shape_text(t) return ("%s (%s)"):format(t.dtype, table.concat(t.shape, ",")) end

--- Elements as Lua numbers; bool ones as 0 and 1.
local function elements(t) return (t.dtype == "bool" and t:to "u8" or t):reshape(-1):totable() end

--- A sentence about the worst element, or nil when all are near enough. `want` and `got` are lists.
local function compare_elements(what, got, want, relative)
  local largest, worst, at = 0, 0, 0
  for i, v in ipairs(want) do
    local u = got[i]
    if v == v and math.abs(v) < math.huge then largest = math.max(largest, math.abs(v)) end
    local difference = 0
    if u ~= v and (u == u or v == v) then difference = math.abs(u - v) end
    if difference ~= difference then difference = math.huge end -- a NaN on one side
    if difference > worst then worst, at = difference, i end
  end
  local limit = relative > 0 and math.max(relative * largest, least_normal) or 0
  if worst > limit then
    return ("%s differs by %.3g at element %d (%s, expected %s), allowed %.3g"):format(what, worst,
      at, got[at], want[at], limit)
  end
end

--- `read`: turns an expected tensor into a list of what the op gives, see map.lua.
local function compare(what, got, want, read)
  if read then return compare_elements(what, elements(got), read(want), 0) end
  if shape_text(got) ~= shape_text(want) then
    return ("%s is %s, expected %s"):format(what, shape_text(got), shape_text(want))
  end
  return compare_elements(what, elements(got), elements(want), tolerance[want.dtype] or 0)
end

--- One case
-- -------------------------------------------------------------------------------------------------

--- A table that gives what `values` holds and notes in `read` what was asked for. It can't be
-- walked, which would read all.
local function noting(values, read)
  return setmetatable({}, {
    __index = function(_, name)
      read[name] = true
      return values[name]
    end,
    __newindex = function(_, name) error("an entry of map.lua sets " .. name, 2) end,
    __pairs = function() error("an entry of map.lua walks over what it should name", 2) end,
  })
end

--- Attributes that are words for people: what the outputs are, the order of gates that every net of
-- this kind has.
local is_prose = { note = true, outputs = true, out = true, gate_order = true }

--- Adds to `failures` a sentence about each name in `values` that was not read.
local function refuse_unread(failures, what, values, read)
  local unread = {}
  for name in pairs(values) do
    if not read[name] then unread[#unread + 1] = name end
  end
  table.sort(unread)
  for _, name in ipairs(unread) do
    failures[#failures + 1] = ("%s %s of the case is read by no one"):format(what, name)
  end
end

--- Declares the case's inputs in a net: blobs by name, tensors to feed, names that have a golden
-- gradient.
local function declare_inputs(net, tensors)
  local blobs, feeds, wrt = {}, {}, {}
  for name, tensor in pairs(tensors) do
    local input = name:match "^in%.(.*)$"
    if input then
      local has_gradient = tensors["grad." .. input] ~= nil
      feeds[input] = tensor
      blobs[input] = net:declare(input, (has_gradient or input == "p") and "parameter" or "input",
        tensor.shape, tensor.dtype)
      if has_gradient then wrt[#wrt + 1] = input end
    end
  end
  table.sort(wrt)
  return blobs, feeds, wrt
end

--- Adds sum(out * gout) over all outputs that have a cotangent, and its gradients: {input name =
-- gradient blob}. They are zeros where none reaches an input, as those of Floor and its like.
local function add_gradients(net, tensors, outs, feeds, wrt)
  local total
  for k, out in ipairs(outs) do
    local gout = tensors["gout." .. (k - 1)]
    if gout then
      feeds["gout" .. k] = gout
      local term = net:op("Sum", {
        net:op("Mul", { out, net:declare("gout" .. k, "input", gout.shape, gout.dtype) }, 1, {}),
      }, 1, {})
      total = total and net:op("Add", { total, term }, 1, {}) or term
    end
  end
  local grads = {}
  for parameter, gradient in pairs(net:gradient(total, { wrt = wrt, allow_unused = true })) do
    grads[parameter.name] = gradient
  end
  return grads
end

--- "pass", or "fail" or "skip" and why.
local function run_case(case, path)
  local tensors = assert(neap.load(path))
  local net = neap.net(case.op)
  local blobs, feeds, wrt = declare_inputs(net, tensors)
  local seen, attrs_seen = {}, {}
  for name in pairs(is_prose) do attrs_seen[name] = true end
  local outs, why, read = map[case.op](net, noting(blobs, seen), noting(case.attrs, attrs_seen),
    case)
  if outs == nil then return "skip", why end
  local failures, n_out = {}, 0
  refuse_unread(failures, "attribute", case.attrs, attrs_seen)
  refuse_unread(failures, "input", blobs, seen)
  while tensors["out." .. n_out] do n_out = n_out + 1 end
  if #outs ~= n_out then failures[1] = ("%d outputs, expected %d"):format(#outs, n_out) end
  net:outputs(outs)
  local grads = #wrt > 0 and add_gradients(net, tensors, outs, feeds, wrt) or {}
  local ws <close> = neap.workspace { store = false }
  local results = ws:run(net, feeds)
  for k = 1, math.min(n_out, #outs) do
    failures[#failures + 1] = compare("out." .. (k - 1), results[outs[k].name],
      tensors["out." .. (k - 1)], read)
  end
  for _, name in ipairs(wrt) do
    failures[#failures + 1] = compare("grad." .. name, ws:fetch(grads[name].name),
      tensors["grad." .. name])
  end
  if #failures > 0 then return "fail", table.concat(failures, "; ") end
  return "pass"
end

--- All cases
-- -------------------------------------------------------------------------------------------------

local folder, files = unpack_archive(archive)
local count = { pass = 0, fail = 0, skip = 0 }
local lacking = {}
for line in io.lines(manifest) do
  local case = json.decode(line)
  if not filter or case.name:find(filter) then
    local verdict, why
    if not files[case.name] then
      verdict, why = "fail", "the archive has no such case"
    elseif not map[case.op] then
      verdict, lacking[case.op] = "skip", true
    else
      local ok
      ok, verdict, why = xpcall(run_case, tostring, case, files[case.name])
      if not ok then verdict, why = "fail", verdict end
    end
    count[verdict] = count[verdict] + 1
    if why then
      print(("%s %s: %s"):format(verdict == "fail" and "FAIL" or verdict, case.name, why))
    end
  end
end
os.execute("rm -rf " .. quote(folder))

local names = {}
for name in pairs(lacking) do names[#names + 1] = name end
table.sort(names)
if #names > 0 then print("Neap lacks: " .. table.concat(names, " ")) end
print(("%d passed, %d failed, %d skipped"):format(count.pass, count.fail, count.skip))
os.exit(count.fail == 0 and count.pass > 0)
