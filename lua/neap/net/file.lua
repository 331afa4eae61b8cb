--- Net files: what `neap plan`, `bench` and `profile` take. A Lua chunk that returns a module, a
-- net, or { model =, loss =, optimizer =, batch =, mem_param = }; or { net =, mem_param = }.
--
-- `mem_param` holds wherever the file is planned or run, as in a net of Caffe's, unless memory
-- options say something else.
--
-- A name without .lua is a net of the zoo: scripts/nets, embedded in the program, so that it is
-- found from any working directory; a file NAME.lua in the folder $NEAP_NETS comes first.
-- @module neap.net.file
local again = require "neap.plan.again"
local core = require "neap.core"
local mem_param = require "neap.memory.mem_param"
local options = require "neap.inner.options"
local fail = core.fail
local netfile = {}

local zoo_folder = "scripts/nets/"

local function read_file(path)
  local file, message = io.open(path, "rb")
  if not file then return nil, message end
  local text, why = file:read "a"
  file:close()
  return text, why and path .. ": " .. why
end

--- Names of the zoo's nets, sorted.
function netfile.names()
  local names = {}
  for _, path in ipairs(core.embedded()) do
    local name = path:match "^scripts/nets/([%w_]+)%.lua$"
    if name then names[#names + 1] = name end
  end
  table.sort(names)
  return names
end

--- Text and chunk name of a zoo net; nil when there is none.
local function zoo_text(name)
  local folder = os.getenv "NEAP_NETS"
  if folder and folder ~= "" then
    local path = folder .. "/" .. name .. ".lua"
    local text = read_file(path)
    if text then return text, "@" .. path end
  end
  local text = core.embedded(zoo_folder .. name .. ".lua")
  if text then return text, "@" .. name .. ".lua" end
end

--- Whether the zoo has a net of this name.
function netfile.find(name) return zoo_text(name) ~= nil end

local function no_such_net(stem)
  local names = netfile.names()
  local near = options.nearest(stem, names)
  error(core.error {
    code = "name",
    message = ("there is no net \"%s\""):format(stem),
    hint = (near and ("did you mean \"%s\"? "):format(near) or "")
      .. ("the zoo has %s; a file of your own ends in .lua"):format(table.concat(names, ", ")),
  })
end

-- `n_class`: labels to bench with; `length`: of sequences, for scripts that load the file.
local fields = {
  model = true, net = true, loss = true, optimizer = true, batch = true, name = true,
  mem_param = true, n_class = true, length = true,
}
local of_models = { loss = true, optimizer = true, n_class = true }

--- Raises for a field of a net file that nobody reads.
local function check_fields(who, result)
  for _, key in ipairs(options.keys(result)) do
    if not fields[key] then
      local near = options.nearest(tostring(key), options.keys(fields))
      fail(("%s: nothing reads the net file's field \"%s\"%s"):format(
        who, tostring(key),
        near and (", did you mean \"" .. near .. "\"?")
          or "; it takes " .. table.concat(options.keys(fields), ", ")))
    end
    if result.net and (of_models[key] or key == "model") then
      fail(("%s: the net file gives a net, and a net has its own %s: leave \"%s\" out"):format(
        who, key == "model" and "ops" or key, key))
    end
  end
end

--- An ONNX file as the module that it is; what it leaves open is taken as 1.
local function of_onnx(path, batch)
  local model, message = require("neap.onnx").import(path, { model = true })
  if not model then error(message, 0) end
  return { model = model, name = path:match "([^/]+)%.[^.]*$" or path, batch = batch or 1 }
end

--- Loads a net file by path or zoo name, or an ONNX file.
-- @param name string; "lenet", "my/net.lua", "lenet:32" (another batch)
-- @param ... any given to the chunk
-- @return table {model =, loss =, optimizer =, batch =, name =, mem_param =} or {net =, name =,
--   mem_param =}
function netfile.load(name, ...)
  local stem, batch = name:match "^(.-):(%d+)$"
  stem = stem or name
  if batch and math.tointeger(batch) == 0 then
    fail(("\"%s\": a batch has at least 1 row"):format(name))
  end
  if stem:lower():match "%.onnx$" then return of_onnx(stem, math.tointeger(batch)) end
  local text, chunk_name
  if stem:match "%.lua$" then
    text, chunk_name = read_file(stem)
    if not text then error(chunk_name, 0) end
    chunk_name = "@" .. stem
  else
    text, chunk_name = zoo_text(stem)
    if not text then no_such_net(stem) end
  end
  local chunk, message = load((text:gsub("^#[^\n]*", "")), chunk_name)
  if not chunk then error(message, 0) end
  local result = chunk(...)
  if type(result) == "table" and rawget(result, "_is_module") then result = { model = result } end
  if type(result) == "userdata" then result = { net = result } end
  if type(result) ~= "table" or not (result.model or result.net) then
    fail(("%s: a net file returns a module, a net, or { model = .. }; this one returns a \z
      %s"):format(
        chunk_name:sub(2), type(result)))
  end
  check_fields(chunk_name:sub(2), result)
  if result.mem_param ~= nil then result.mem_param = mem_param.new(result.mem_param) end
  result.name = result.name or stem:match "([^/]+)%.lua$" or stem
  result.batch = math.tointeger(batch) or result.batch or 1
  return result
end

--- Memory options with the file's mem_param, where they say nothing that stands against it.
-- @param file table from load
-- @param given table memory options
-- @return table
function netfile.memory(file, given)
  local memory = {}
  for key, value in pairs(given) do memory[key] = value end
  if memory.policy == nil and memory.mem_param == nil then memory.mem_param = file.mem_param end
  return memory
end

--- What updates a file's parameters: its own, or SGD with momentum.
function netfile.optimizer(file)
  return file.optimizer or require("neap").optim.SGD { lr = 0.01, momentum = 0.9 }
end

--- The plan of a loaded file for one mode, which can be planned again with a change.
-- @param o table {train = bool, batch =}
-- @param memory table of netfile.memory
-- @return plan, string|nil what was assumed
function netfile.plan(file, o, memory)
  if file.net then return file.net:plan(memory) end
  local net, _, assumed = netfile.build(file, o)
  local function parts(all)
    local rest = {}
    for key, value in pairs(all) do
      if key ~= "batch" and key ~= "without" then rest[key] = value end
    end
    return netfile.build(file, { train = o.train, batch = all.batch or o.batch,
      without = all.without }), rest
  end
  return again.note(net:plan(memory), memory, function(all)
    local changed, rest = parts(all)
    return changed:plan(rest)
  end, parts, true), assumed
end

--- The net of a loaded file for one mode; defaults: cross-entropy, SGD with momentum.
-- @param file table from load
-- @param o table {train = bool, batch =, without = names}
-- @return net, blobs, string|nil what was assumed, in words
function netfile.build(file, o)
  if file.net then return file.net, {} end
  local neap = require "neap"
  local train, assumed = o.train or false, {}
  if train and not file.loss then assumed[1] = "cross-entropy" end
  if train and not file.optimizer then assumed[#assumed + 1] = "SGD with momentum" end
  local net, blobs = file.model:net {
    batch = o.batch or file.batch,
    train = train,
    without = o.without,
    name = file.name,
    loss = train and (file.loss or neap.nn.CrossEntropyLoss {}) or nil,
    optimizer = train and netfile.optimizer(file) or nil,
  }
  return net, blobs, #assumed > 0 and table.concat(assumed, ", ") or nil
end

return netfile
