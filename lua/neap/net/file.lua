--- Net files: what `neap plan`, `bench` and `profile` take. A Lua chunk that returns a module, a
-- net, or { model =, loss =, optimizer =, batch =, mem_param = }; or { net =, mem_param = }; or a
-- family of nets, { options =, build = f(o), nets = { NAME = { option = value } } }: `options` is a
-- record (neap.inner.record), `build` gets it read and returns one of the above, and `nets` names
-- members by the defaults in which they differ. A family without `nets` is one net, of the file's
-- name. `weights = f(o)` says what other libraries call its parameters (neap.zoo.weights); each
-- family takes an option `weights`. `published` is the number of parameters that the source gives,
-- of a family with several `nets` a table by name.
--
-- `mem_param` holds wherever the file is planned or run, as in a net of Caffe's, unless memory
-- options say something else.
--
-- A name without .lua is a net of the zoo: a member of a family in scripts/nets, embedded in the
-- program, so that it is found from any working directory; a file NAME.lua in the folder $NEAP_NETS
-- comes first.
-- @module neap.net.file
local again = require "neap.plan.again"
local core = require "neap.core"
local files = require "neap.inner.files"
local mem_param = require "neap.memory.mem_param"
local options = require "neap.inner.options"
local record = require "neap.inner.record"
local fail = core.fail
local netfile = {}

--- The chunk of a net file; raises for one that does not compile.
local function compile(text, chunk_name)
  -- A first line "#!" makes a net file a script.
  local chunk, message = load((text:gsub("^#[^\n]*", "")), chunk_name)
  if not chunk then error(message, 0) end
  return chunk
end

local function is_family(result) return type(result) == "table" and result.build ~= nil end

-- The zoo: { family =, defaults =, chunk_name = } by the name of a net. Families are read at the
-- first question; no model is built.
local members

local function zoo()
  if members then return members end
  local found = {}
  for _, path in ipairs(core.embedded()) do
    local stem = path:match "^scripts/nets/([%w_]+)%.lua$"
    if stem then
      local chunk_name = "@" .. stem .. ".lua"
      local family = compile(core.embedded(path), chunk_name)()
      -- Families are read here, none is built.
      for name, defaults in pairs(family.nets or { [stem] = {} }) do
        if found[name] then fail("two families of the zoo have a net " .. name) end
        found[name] = { family = family, defaults = defaults, chunk_name = chunk_name }
      end
    end
  end
  members = found
  return members
end

--- Names of the zoo's nets, sorted.
function netfile.names() return options.keys(zoo()) end

--- The record of a family's options, or of a member's, whose defaults are its own.
local function record_of(name, family, defaults)
  local spec = { doc = family.options.doc, example = family.options.example }
  for i, field in ipairs(family.options) do
    -- A copy: members differ in defaults, and the family's own stay.
    local own = {}
    for key, value in pairs(field) do own[key] = value end
    if defaults[field[1]] ~= nil then own[3] = defaults[field[1]] end
    spec[i] = own
  end
  spec[#spec + 1] = { "weights", "string|table", unset = "none: they are drawn",
    says = "a path, or tensors by name",
    doc = ("a file of weights, .safetensors or .npz, called as %sm:save calls them"):format(
      family.weights and "in " .. family.weights_of .. " or as " or "") }
  return record.new(name, spec)
end

--- What a family builds of options, with the weights that they name.
-- @param r Record of the options
local function build_family(name, family, r, given)
  local o = r:read(given)
  local built = family.build(o)
  if o.weights then
    local rules = family.weights and family.weights(o)
    if rules then rules.source = family.weights_of end
    require("neap.zoo.weights").load("neap.zoo." .. name, built.model, o.weights, rules)
  end
  return built
end

--- The record of a zoo net's options. @return Record
function netfile.options(name)
  local member = zoo()[name]
  return member and record_of("neap.zoo." .. name, member.family, member.defaults)
end

--- How many parameters a net of the zoo has by its source; nil for a net that names none.
function netfile.published(name)
  local member = zoo()[name]
  local counts = member and member.family.published
  if type(counts) == "table" then return counts[name] end
  return counts
end

--- A file of the name in the folder $NEAP_NETS. @return text, chunk name; nil where there is none
local function users_text(name)
  local folder = os.getenv "NEAP_NETS"
  if folder and folder ~= "" then
    local path = folder .. "/" .. name .. ".lua"
    local text = files.read(path)
    if text then return text, "@" .. path end
  end
end

--- Whether the zoo has a net of this name.
function netfile.find(name) return users_text(name) ~= nil or zoo()[name] ~= nil end

local function no_such_net(stem)
  local names = netfile.names()
  local near = options.nearest(stem, names)
  error(core.error {
    code = "name",
    message = ("there is no net \"%s\""):format(stem),
    hint = near and ("did you mean \"%s\"? neap.zoo.names() lists the zoo"):format(near)
      or ("the zoo has %s; a file of your own ends in .lua, .onnx, .tflite or .prototxt"):format(
        table.concat(names, ", ")),
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
    -- A net has no loss to be given: it is in it, or not wanted.
    if result.net and (of_models[key] or key == "model") then
      fail(("%s: the net file gives a net, and a net has its own %s: leave \"%s\" out"):format(
        who, key == "model" and "ops" or key, key))
    end
  end
end

-- Who reads the files of other programs, by their endings.
local readers = { onnx = "neap.onnx", tflite = "neap.tflite", prototxt = "neap.caffe" }

--- A file of another program as the module that it is, or the net; the batch is the file's own
-- unless given.
local function of_others(reader, path, batch, dims)
  local file, message = require(reader).net_file(path, batch, dims)
  if not file then error(message, 0) end
  file.name = path:match "([^/]+)%.[^.]*$" or path
  file.batch = file.batch or 1
  if file.mem_param ~= nil then file.mem_param = mem_param.new(file.mem_param) end
  return file
end

--- "a.onnx:batch=2,steps=12" as "a.onnx", { batch = 2, steps = 12 }: sizes of dimensions that a
-- file of another program names. nil where the name has none.
local function with_sizes(name)
  local stem, text = name:match "^(.+):([^:/]-=[^:/]*)$"
  if not stem then return nil end
  local ending, dims = stem:lower():match "%.(%w+)$", {}
  if not readers[ending] or ending == "prototxt" then
    fail(("\"%s\": sizes by name are those of an .onnx or a .tflite file"):format(name))
  end
  for part in (text .. ","):gmatch "(.-)," do
    local key, size = part:match "^(.+)=(%d+)$"
    if not key or not math.tointeger(size) then
      fail(("\"%s\": expected name=size, several with commas between them, got \"%s\""):format(name,
        part))
    end
    dims[key] = math.tointeger(size)
  end
  return stem, dims
end

--- What a net file returns, of a family what it builds.
-- @return any, chunk name
local function read_net(stem, ...)
  local text, chunk_name
  if stem:match "%.lua$" then
    text, chunk_name = files.read(stem)
    if not text then error(chunk_name, 0) end
    chunk_name = "@" .. stem
  else
    -- A user's file of that name goes before the zoo's.
    text, chunk_name = users_text(stem)
  end
  local given = select(2, ...)
  if text then
    local result = compile(text, chunk_name)(...)
    if not is_family(result) then return result, chunk_name end
    return build_family(stem, result, record_of(stem, result, {}), given), chunk_name
  end
  local member = zoo()[stem]
  if not member then no_such_net(stem) end
  return build_family(stem, member.family, netfile.options(stem), given), member.chunk_name
end

--- Loads a net file by path or zoo name, or a file of another program.
-- @param name string; "lenet", "my/net.lua", "lenet:32" (another batch), "m.onnx:steps=12"
-- @param ... any given to the chunk
-- @return table {model =, loss =, optimizer =, batch =, train_batch =, name =, mem_param =} or
--   {net =, name =, mem_param =}
function netfile.load(name, ...)
  -- "lenet:32" is lenet with a batch of 32; what follows a colon otherwise is a slip, unless it is
  -- part of a path.
  local sized, dims = with_sizes(name)
  local stem, batch = (sized or name):match "^(.-):(%d+)$"
  stem = stem or sized or name
  local before, wrong = stem:match "^(.+):([^:/]*)$"
  if before and netfile.find(before) then
    fail(("\"%s\": behind the colon stands a batch, a number such as %s:32, got \"%s\""):format(
      name, before, wrong))
  end
  if batch and math.tointeger(batch) == 0 then
    fail(("\"%s\": a batch has at least 1 row"):format(name))
  end
  local reader = readers[stem:lower():match "%.(%w+)$"]
  if reader then return of_others(reader, stem, math.tointeger(batch), dims) end
  local result, chunk_name = read_net(stem, ...)

  -- A module or a net alone is a file that says nothing else.
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
  -- what its net is called where nobody says more
  if result.model then rawset(result.model, "_file_name", result.name) end
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

  -- Planned again, the net is built again, for another batch or without some modules.
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

  -- What a classifier of another program's file gives tells whether cross-entropy fits it.
  if train and file.gives and not file.loss and not file.gives:match "f%d+$" then
    fail(("%s gives %s, which no loss judges: it infers, and can't be trained (--infer)"):format(
      file.name, file.gives))
  end
  for i, note in ipairs(file.notes or {}) do assumed[i] = note end

  -- What nobody said is said to the user.
  if train and not file.loss then assumed[#assumed + 1] = "cross-entropy" end
  if train and not file.optimizer then assumed[#assumed + 1] = "SGD with momentum" end
  local net, blobs = file.model:net {
    batch = o.batch or train and file.train_batch or file.batch,
    train = train,
    without = o.without,
    name = file.name,
    loss = train and (file.loss or neap.nn.CrossEntropyLoss {}) or nil,
    optimizer = train and netfile.optimizer(file) or nil,
  }
  return net, blobs, #assumed > 0 and table.concat(assumed, ", ") or nil
end

return netfile
