--- Parameters as values: m:param, parameters, tie, state_dict and files.
--
-- The storage of a parameter lives in one workspace, that of its home: the root above its module. A
-- module that is put into another has another home then, and its numbers follow; so they do when
-- its name changes, because it moved in a list. A root that shares a module with its home sees the
-- same bytes under its own name.
--
-- INVARIANT: record.home and record.home_name say where the numbers are, once they have been made;
-- record.value has them while they are on their way.
-- @module neap.nn.state
local context = require "neap.nn.context"
local core = require "neap.core"
local dtypes = require "neap.inner.dtypes"
local forward = require "neap.nn.forward"
local micro = require "neap.train.micro"
local module = require "neap.nn.module"
local names = require "neap.nn.names"
local net_module = require "neap.net"
local op = require "neap.op"
local option_record = require "neap.inner.record"
local options = require "neap.inner.options"
local tree = require "neap.nn.tree"
local fail = core.fail

local Module = module.Module
local blob_name, dotted, storage_record = names.blob_name, names.dotted, names.storage_record

-- ---- where parameters live ----------------------------------------------------------------------

--- The workspace of a root, made on first use; nothing is made in it.
local function workspace_of(root)
  if rawget(root, "_ws") == nil then
    rawset(root, "_ws", require("neap").workspace { seed = rawget(root, "_seed") })
  end
  return rawget(root, "_ws")
end

--- Which record has its numbers under which name in a root's workspace.
local function stored_of(root)
  if rawget(root, "_stored") == nil then rawset(root, "_stored", {}) end
  return rawget(root, "_stored")
end

--- What is kept beside the numbers of NAME: the state of an optimizer, NAME.SUFFIX, the gradient
-- that batches held have left (net/hold.c), and the best numbers so far (neap.train).
-- @return what stands before and after `stem` in the name of such a blob; nil for another's
local function apart(name, stem)
  -- The three places where something of NAME may lie; a name that only begins alike ("fc1.weight"
  -- and "fc1.weight2") is another's.
  if name:sub(1, #stem + 1) == stem .. "." then return "", name:sub(#stem + 1) end
  if name == "@held/" .. stem .. "_grad" then return "@held/", "_grad" end
  if name == "@best/" .. stem then return "@best/", "" end
end

--- Takes the numbers of a record out of the workspace that has them, with the state that is kept
-- beside them. Its gradient goes.
local function take_out(record)
  local home, stem = record.home, record.home_name
  local ws = rawget(home, "_ws")

  -- Copies, since the workspace gives its bytes back. What is only borrowed, or lives for a run,
  -- does not move.
  record.value, record.beside = ws:has(stem) and ws:fetch(stem) or nil, {}
  for _, row in ipairs(ws:_blobs()) do
    local is_own = not row.borrowed and row.kind ~= "transient"
    local before, after = apart(row.name, stem)
    if is_own and before and row.role == "state" and row.kind == "tensor" then
      table.insert(record.beside, {
        before = before,
        after = after,
        value = ws:fetch(row.name),
        ws = ws,
        updates = micro.count(ws),
      })
    end
    if is_own and (before or row.name == stem or row.name == stem .. "_grad") then
      ws:remove(row.name)
    end
  end
  tree.changed(home)
  stored_of(home)[stem] = nil
  record.home, record.home_name = nil, nil
end

--- What a record brings along to a workspace. Gradients held have been used up by an update that
-- came in between.
local function brought(record, ws)
  local list = {}
  for _, b in ipairs(record.beside or {}) do
    if b.before ~= "@held/" or b.ws ~= ws or b.updates == micro.count(ws) then
      list[#list + 1] = b
    end
  end
  return list
end

--- Makes the numbers of records at home, in the order of the list.
local function make(ws, records)
  local net = net_module.new "parameters"
  for _, record in ipairs(records) do
    local name = record.home_name
    -- what is brought along is not drawn first
    net:declare(name, record.role, record.shape, record.dtype,
      record.value and { op = "Constant", value = 0 } or record.init, record.trainable)
    for _, b in ipairs(brought(record, ws)) do
      net:declare(b.before .. name .. b.after, "state", b.value.shape, b.value.dtype,
        { op = "Constant", value = 0 }, false)
    end
  end

  -- The workspace fills what it does not have yet; then what was brought along takes the place of
  -- zeros.
  ws:init(net)
  for _, record in ipairs(records) do
    local name = record.home_name
    if record.value then ws:feed(name, record.value) end
    for _, b in ipairs(brought(record, ws)) do ws:feed(b.before .. name .. b.after, b.value) end
    record.value, record.beside = nil, nil
  end
end

--- Makes sure that storage records have their numbers at home: made by their initialisers, or
-- brought along.
-- @param list records, none of them tied
local function settle_at_home(list)
  -- in order; by home: records to be made; by home: its tree; by record: {home, name}
  local homes, fresh, trees, wanted = {}, {}, {}, {}
  for _, record in ipairs(list) do
    local home = tree.root_of(record.owner)

    -- Walking a tree costs time: a root whose tree has this module is its home without another
    -- look.
    if not (trees[home] and trees[home].path[record.owner]) then home = tree.home(record.owner) end
    trees[home] = trees[home] or tree.of(home)
    local name = blob_name(record, trees[home])

    -- Two passes: all that moves is taken out first, since two records may change names with each
    -- other.
    wanted[record] = { home, name }
    if record.home and (record.home ~= home or record.home_name ~= name) then take_out(record) end
  end
  for _, record in ipairs(list) do
    local home, name = table.unpack(wanted[record])
    local there = stored_of(home)[name]
    -- it has left the tree, and waits for its new home to ask
    if there and there ~= record then take_out(there) end
    if not record.home or not workspace_of(home):has(name) then
      if fresh[home] == nil then
        homes[#homes + 1], fresh[home] = home, {}
      end
      table.insert(fresh[home], record)
    end
    stored_of(home)[name], record.home, record.home_name = record, home, name
  end
  for _, home in ipairs(homes) do make(workspace_of(home), fresh[home]) end
end

--- The same, and that `root` sees the numbers of the modules that it shares with other roots.
-- @return the workspace of root
local function ensure(root, list)
  -- Tied records have one storage between them.
  local storages, seen = {}, {}
  for _, record in ipairs(list) do
    local storage = storage_record(record)
    if not seen[storage] then
      seen[storage] = true
      storages[#storages + 1] = storage
    end
  end
  settle_at_home(storages)
  local ws, t = workspace_of(root), tree.of(root)

  -- What lives in another root's workspace is shared, not copied. A view that is no longer of the
  -- same bytes (the home has moved them) is made anew.
  for _, storage in ipairs(storages) do
    local name = blob_name(storage, t)
    if storage.home ~= root and name then
      local there = rawget(storage.home, "_ws"):view(storage.home_name)
      if not ws:has(name) or not ws:view(name):same(there) then
        if ws:has(name) then ws:remove(name) end
        ws:feed(name, there, { share = true })
      end
    end
  end
  return ws
end

--- Layers that were not told their input's width, and those that only a forward meets, are known
-- when a net has been built. That is done here, once, if it can be.
local function settle(self)
  local root, t = tree.home(self)
  if context.building() then return root, t end

  -- An open width, or a forward of the user's, which may call modules that nobody knows of yet.
  local lazy, meets = false, false
  for _, m in ipairs(t.list) do
    lazy = lazy or m._lazy
    meets = meets or forward.runs_own_code(m)
  end
  if lazy then
    Module.net(root, { batch = 1 })
  elseif meets and not root._met and root._fields.input_shape then
    -- a forward that needs more than one input is not for us to run
    pcall(Module.net, root, { batch = 1 })
  end
  return root, tree.of(root)
end

--- Records of the tree below this module. @return list, root, its tree
local function records(self)
  local root, t = settle(self)
  return names.records(self), root, t
end

--- The workspace that holds the parameters, with all of them in it that are known.
function Module.workspace(self)
  local root, t = tree.home(self)
  local ws = workspace_of(root)
  if rawget(root, "_ensured") == t.version then return ws end
  ensure(root, names.records(root))
  rawset(root, "_ensured", t.version)
  return ws
end

-- ---- one parameter ------------------------------------------------------------------------------

local Parameter = { __name = "neap.parameter" }

--- What m:backward left, or what the last run of a training net without optimizer did; nil when
-- there is neither.
local function gradient_of(record, root)
  local name = blob_name(record, tree.of(root))
  local gradients = rawget(root, "_gradients")

  -- m:backward keeps gradients by name; a net without optimizer leaves them as blobs of their own.
  if gradients and gradients[name] then return gradients[name] end
  local ws = workspace_of(root)
  if not ws:has(name .. "_grad") then return nil end
  local ok, got = pcall(ws.view, ws, name .. "_grad")
  if ok then return got end
  if got.code ~= "released" then error(got, 0) end -- made, and not computed yet: there is none
end

--- The record and root behind a parameter, and the name it has there.
local function inside(p) return rawget(p, "_record"), rawget(p, "_root") end
local function name_of(p)
  local record, root = inside(p)
  return dotted(record, tree.of(root))
end

Parameter.__index = function(p, key)
  local record, root = inside(p)
  if key == "data" then return ensure(root, { record }):view(blob_name(record, tree.of(root))) end
  if key == "grad" or key == "diff" then return gradient_of(record, root) end
  if key == "name" then return name_of(p) end
  if key == "trainable" then return storage_record(record).trainable end
  if key == "shape" or key == "dtype" then return record[key] end
  fail(("a parameter has data, grad, trainable, shape, dtype and name, not \"%s\""):format(
      tostring(key)))
end

Parameter.__newindex = function(p, key, value)
  local own, root = inside(p)
  local record = storage_record(own)
  if key == "trainable" then
    if type(value) ~= "boolean" then
      fail("trainable expects true or false, got a " .. type(value))
    end
    if record.role ~= "parameter" then
      fail(name_of(p) .. " is a statistic: no gradient reaches it")
    end
    -- Nets that were built before have the old gradients: the owner's and the root's are made
    -- again.
    record.trainable = value
    tree.changed(record.owner)
    tree.changed(root)
  elseif key == "data" then
    if not op.is_tensor(value) then value = core.tensor(value, record.dtype) end
    if table.concat(value.shape, ",") ~= table.concat(record.shape, ",") then
      fail(("%s expects (%s), got (%s)"):format(
        name_of(p), table.concat(record.shape, ","), table.concat(value.shape, ",")))
    end
    ensure(root, { record })
    local ws = rawget(record.home, "_ws")
    ws:feed(record.home_name, value.dtype == record.dtype and value or value:to(record.dtype))
  else
    fail(("a parameter's data and trainable can be assigned, not \"%s\""):format(tostring(key)))
  end
end

Parameter.__tostring = function(p)
  local record, root = inside(p)
  return ("parameter %s (%s)%s%s"):format(name_of(p), table.concat(record.shape, ","),
    record.tied and " tied to " .. blob_name(record, tree.of(root)):gsub("/", ".") or "",
    record.role == "state" and " statistic" or storage_record(record).trainable and "" or " frozen")
end

--- m:as_parameter(record): the handle of a parameter that m:param has declared.
function Module.as_parameter(record, root)
  return setmetatable({ _record = record, _root = root }, Parameter)
end

local function find_record(self, name)
  -- Names are relative to the module that is asked, which may lie anywhere in the tree.
  local list, root, t = records(self)
  local prefix, names = t.path[self]:gsub("/", "."), {}
  local full = prefix == "" and name or prefix .. "." .. tostring(name)
  for _, record in ipairs(list) do
    local own = dotted(record, t)
    if own == full then return record, root end
    names[#names + 1] = prefix == "" and own or own:sub(#prefix + 2)
  end
  local near = options.nearest(tostring(name), names)
  fail(("no parameter \"%s\"%s"):format(
    tostring(name),
    near and (", did you mean \"" .. near .. "\"?")
      or "; there are " .. table.concat(names, ", ", 1, math.min(#names, 8))
        .. (#names > 8 and ", .." or "")))
end

--- Names of the blobs in the workspace that hold parameters and statistics, tied ones once.
function Module.blob_names(self)
  local list, root = records(self)
  ensure(root, list)
  return Module._blob_names(self)
end

--- The same, whether they are in the workspace yet or not.
function Module._blob_names(self)
  local list, _, t = records(self)
  local names = {}
  for _, record in ipairs(list) do
    if not record.tied then names[#names + 1] = blob_name(record, t) end
  end
  return names
end

--- m:seed(n): what its parameters are drawn by, before they are made, and its random ops.
function Module.seed(self, n)
  local root = tree.home(self)
  workspace_of(root):seed(n)
  rawset(root, "_draws", nil)
  return self
end

--- One parameter by its dotted name, relative to this module.
-- @return {data, grad (= diff), trainable, shape}
function Module.find_param(self, name) return Module.as_parameter(find_record(self, name)) end

--- m:memory() -> the four lists and the calls that fill them, forward(x) and backward(dy); see
-- neap.nn.chain.
-- @param o table|nil { max_batch = the largest batch, executor =, policy =, budget = .. as in
--   net:plan }; it holds until another is given
-- @usage local memory = model:memory { max_batch = 64 }; local y = memory:forward(x);
--   memory:backward(dy); print(#model.caches[1])
function Module.memory(self, o)
  if o ~= nil and type(o) ~= "table" then
    fail("m:memory expects a table of options, got a " .. type(o))
  end
  return require("neap.nn.chain").of((tree.home(self)), o)
end

--- m:attach_param(name, tensor) -> {name, data}: a parameter of the user's own in model.params; a
-- name that is taken is an error.
function Module.attach_param(self, name, tensor)
  return Module.memory(self):attach_param(name, tensor)
end

--- Parameters by name, in order of definition; tied ones once, statistics not.
-- @return iterator of (name, {data, grad, trainable, shape})
function Module.parameters(self)
  local all, root, t = records(self)
  local list, i = {}, 0
  for _, record in ipairs(all) do
    if not record.tied and record.role == "parameter" then list[#list + 1] = record end
  end
  return function()
    i = i + 1
    if list[i] then return Module.name_in(self, list[i], t), Module.as_parameter(list[i], root) end
  end
end

--- Parameter `b` becomes parameter `a`: stored once, gradients summed. Both are dotted names.
-- @usage model:tie("embedding1.weight", "linear1.weight")
function Module.tie(self, a, b)
  local first, second = storage_record((find_record(self, a))),
    storage_record((find_record(self, b)))
  if first == second then return self end
  local x, y = table.concat(first.shape, ","), table.concat(second.shape, ",")
  if x ~= y then fail(("tie: %s is (%s), %s is (%s)"):format(a, x, b, y)) end
  if first.dtype ~= second.dtype then
    fail(("tie: %s is %s, %s is %s"):format(a, first.dtype, b, second.dtype))
  end
  if second.mask then
    fail(("tie: %s is pruned, and its mask would say nothing of %s: tie first, prune then"):format(
      b, a))
  end

  -- The second one's own numbers, and the state of an optimizer beside them, are given up.
  if second.home then take_out(second) end
  second.value, second.beside, second.tied = nil, nil, first
  tree.changed(second.owner)
  tree.changed(self)
  return self
end

-- ---- another dtype ------------------------------------------------------------------------------

--- The records below a module that another dtype changes, those that are tied to one with it:
-- {record = its dtype then}. Statistics are sums over many rows, for which halves have no digits:
-- they are f32 at the least, as ops take them. A mask is multiplied with its parameter. What holds
-- integers stays.
local function changed_dtypes(list, dtype)
  local masks, changes = {}, {}
  for _, record in ipairs(list) do
    local mask = storage_record(record).mask
    if mask then masks[mask] = true end
  end
  local widest = (dtype == "f32" or dtype == "f64") and dtype or "f32"
  for _, record in ipairs(list) do
    local to = record.role == "state" and not masks[record] and widest or dtype
    local storage = storage_record(record)
    if dtypes.is_float[storage.dtype] then changes[record], changes[storage] = to, to end
  end
  for _, record in ipairs(list) do
    if record.tied and changes[storage_record(record)] then
      changes[record] = changes[storage_record(record)]
    end
  end
  return changes
end

--- What a model knows of its input, with floats in another dtype.
local function look_in(look, dtype)
  if type(look) ~= "table" then return look end
  local out = {}
  for key, value in pairs(look) do
    out[key] = key == "dtype" and dtypes.is_float[value] and dtype or look_in(value, dtype)
  end
  return out
end

--- Raises where the model's net can't be of the dtypes that its records have now: an op, or a
-- constant of a forward's own, has another.
local function check_dtypes(root, dtype)
  if not (root._fields.input_shape or rawget(root, "_seen")) then return end
  local ok, err = pcall(Module.net, root, { batch = 2, train = false })
  if ok or type(err) ~= "table" or rawget(err, "code") ~= "dtype" then return end
  err.message = ("m:to \"%s\": the model can't be of this dtype: %s"):format(dtype, err.message)
  err.hint = ("mixed precision, dtype = \"%s\" of a trainer or plan, leaves in f32 what must \z
    be"):format(dtype)
  error(err, 0)
end

--- m:to(dtype) -> self: the parameters below the module become f32, f64, bf16 or f16, in place, as
-- in PyTorch: rounded once, handles and names as before. Statistics are f32 at the least, integers
-- stay. What an optimizer kept beside parameters begins anew, their gradients go.
--
-- A model, as against a part of one, then takes inputs of that dtype where it took floats (`m:plan`
-- and `m:net` make such), and computes in it; tensors that it is called on, and the data of a
-- trainer, are to be of it: x:to(dtype). This is not mixed precision: a `dtype` of a plan or
-- trainer rounds what is f32, and keeps f32 parameters behind it; a model of halves has no others,
-- and an update below half a digit of a weight is lost.
-- @usage model:to("bf16"):eval()
function Module.to(self, dtype)
  if type(dtype) ~= "string" or not dtypes.is_float[dtype] then
    fail(("m:to expects f32, f64, bf16 or f16, got %s: parameters are floats (neap.quantize makes \z
      bytes of them)"):format(options.shown(dtype)))
  end
  local list, root = records(self)
  local changes, was = changed_dtypes(list, dtype), {}
  local fields, seen, is_model = root._fields, rawget(root, "_seen"), self == root
  local input_shape, input_dtype = fields.input_shape, fields.input_dtype
  local function declare(of, back)
    for record, to in pairs(of) do record.dtype = to end
    if is_model then
      fields.input_shape = back and input_shape or look_in(input_shape, dtype)
      rawset(root, "_seen", back and seen or look_in(seen, dtype))
      local is_other = input_dtype ~= nil and not dtypes.is_float[input_dtype]
      fields.input_dtype = (back or is_other) and input_dtype or dtype
      if back then fields.input_dtype = input_dtype end
    end
    tree.changed(root)
  end
  for record in pairs(changes) do was[record] = record.dtype end

  -- A net of the new dtypes is built first, and the numbers are made before any is given up: what
  -- fails leaves the model as it was.
  local values = {}
  declare(changes)
  local ok, err = pcall(function()
    if is_model then check_dtypes(root, dtype) end
    for record, to in pairs(changes) do
      if not record.tied and was[record] ~= to then
        local ws = record.home and rawget(record.home, "_ws")
        local value = ws and ws:has(record.home_name) and ws:fetch(record.home_name)
          or record.value
        values[record] = value and value:to(to) or false
      end
    end
  end)
  if not ok then
    declare(was, true)
    error(err, 0)
  end
  for record, value in pairs(values) do
    if record.home then take_out(record) end
    record.value, record.beside = value or nil, nil
    tree.changed(record.owner)
  end
  rawset(root, "_gradients", nil)
  return self
end

-- ---- all of them --------------------------------------------------------------------------------

--- Parameters and statistics as {dotted name = tensor (a copy)}, names as from this module; tied
-- ones once.
function Module.state_dict(self)
  local list, root, t = records(self)
  local ws, out = ensure(root, list), {}
  for _, record in ipairs(list) do
    if not record.tied then
      out[Module.name_in(self, record, t)] = ws:fetch(blob_name(record, t))
    end
  end
  return out
end

--- The parameters and statistics by their dotted names, tied ones once: {name = {shape =, dtype =,
-- ..}}. No numbers are made.
function Module.expected_state(self)
  local list, _, t = records(self)
  local out = {}
  for _, record in ipairs(list) do
    if not record.tied then out[Module.name_in(self, record, t)] = record end
  end
  return out
end

--- How tensors by name differ from the parameters. @return { missing =, unexpected =, mismatched =
-- }: sorted lists of names
local function differences(by_name, t)
  local d = { missing = {}, unexpected = {}, mismatched = {} }

  -- By sorted names, so that the same file always gives the same message.
  for _, name in ipairs(options.keys(t)) do
    local record = by_name[name]
    if record == nil then
      d.unexpected[#d.unexpected + 1] = name
    elseif op.is_tensor(t[name])
        and table.concat(t[name].shape, ",") ~= table.concat(record.shape, ",") then
      d.mismatched[#d.mismatched + 1] = name
    end
  end
  for _, name in ipairs(options.keys(by_name)) do
    if not by_name[name].tied and t[name] == nil then d.missing[#d.missing + 1] = name end
  end
  return d
end

local hints = {
  strict = "{ strict = false } takes what fits by name",
  skip_mismatch = "{ skip_mismatch = true } takes what fits, and returns what it skipped",
}

--- What speaks against loading t, or nil. @return message, hint
local function objection(by_name, t, d, o)
  for _, name in ipairs(options.keys(t)) do
    if by_name[name] and not op.is_tensor(t[name]) then
      return ("\"%s\" expects a tensor, got a %s"):format(name, type(t[name]))
    end
  end

  -- One objection at a time, and a name that the model does not have first: it often explains the
  -- others.
  local other, odd, gone = d.mismatched[1], d.unexpected[1], d.missing[1]
  local weight = odd and tostring(odd):match "^(.*)_mask$"
  if weight and by_name[weight] and o.strict then
    return ("the model has no \"%s\": it is not pruned"):format(odd),
      "neap.prune(model, { amount = 0 }) gives it masks that a file can fill"
  end
  if odd and o.strict then
    local near = options.nearest(tostring(odd), options.keys(by_name))
    return ("the model has no \"%s\"%s"):format(
        tostring(odd),
        near and (", did you mean \"" .. near .. "\"?")
          or tostring(odd):find("@", 1, true)
            and "; layers that only a forward meets are known when the model has run"
          or ""),
      hints.strict
  end
  if other and not o.skip_mismatch then
    return ("\"%s\" expects (%s), got (%s)"):format(
        other, table.concat(by_name[other].shape, ","), table.concat(t[other].shape, ",")),
      hints.skip_mismatch
  end
  if gone and o.strict then return ("\"%s\" is missing"):format(gone), hints.strict end
end

-- What both of m:load_state_dict and m:load take.
local load_fields = {
  { "strict", "boolean", unset = "true, unless skip_mismatch",
    doc = "whether missing and unknown names are errors; else they are skipped" },
  { "skip_mismatch", "boolean", false,
    doc = "whether a tensor of another shape is skipped; else it is an error" } }

--- A record of them.
local function loading(name, spec)
  return option_record.declare(name, table.move(load_fields, 1, 2, 1, spec))
end

--- The options read; skip_mismatch is nothing that a strict load could do.
local function read_loading(own, who, given)
  local o = own:read(given, who)
  if o.strict and o.skip_mismatch then
    fail(who .. ": strict = true refuses what skip_mismatch = true would skip")
  end
  if o.strict == nil then o.strict = not o.skip_mismatch end
  return o
end

--- Copies tensors into the parameters, after a look at all names and shapes. @return what was
-- skipped; or nil, what speaks against it, hint
local function copy_in(self, t, o)
  -- All is looked at before anything is written: a file that does not fit changes nothing.
  local list, root, names = records(self)
  local by_name = {}
  for _, record in ipairs(list) do by_name[Module.name_in(self, record, names)] = record end
  local d = differences(by_name, t)
  local message, hint = objection(by_name, t, d, o)
  if message then return nil, message, hint end
  local is_skipped = {}
  for _, name in ipairs(d.mismatched) do is_skipped[name] = true end
  for name, tensor in pairs(t) do
    local record = by_name[name]
    -- numbers that are nowhere yet come from here, instead of being drawn first
    local is_unmade = record and not record.tied and not is_skipped[name] and not record.home
    if is_unmade then
      record.value = tensor.dtype == record.dtype and tensor or tensor:to(record.dtype)
    end
  end
  ensure(root, list)
  for name, tensor in pairs(t) do
    local record = by_name[name]
    if record and not record.tied and not is_skipped[name] then
      local ws = rawget(record.home, "_ws")
      ws:feed(record.home_name,
        tensor.dtype == record.dtype and tensor or tensor:to(record.dtype))
    end
  end
  return d
end

local state_options = loading("m:load_state_dict", { call = "(state, {})",
  doc = [[Copies tensors, { dotted name = tensor }, into the parameters, after a look at all names
    and shapes. Gives the model and { missing =, unexpected =, mismatched = }: lists of the names
    that were skipped.]],
  example = "model:load_state_dict(model:state_dict(), { skip_mismatch = true })" })

--- m:load_state_dict(state [, { .. }]) -> self, skipped: see the record.
function Module.load_state_dict(self, t, o)
  o = read_loading(state_options, "load_state_dict", o)
  if type(t) ~= "table" then
    fail("load_state_dict expects { name = tensor }, got a " .. type(t))
  end
  local skipped, message, hint = copy_in(self, t, o)
  if not skipped then
    error(core.error { code = "shape", message = "load_state_dict: " .. message, hint = hint })
  end
  return self, skipped
end

--- Writes the parameters as safetensors. @return true, or nil, message, code
function Module.save(self, path) return core.save(path, self:state_dict()) end

local file_options = loading("m:load", { call = "(path, {})",
  doc = [[Reads parameters back from a file of m:save. Gives the model and { missing =, unexpected
    =, mismatched = }, the names that were skipped; or nil, message, code when the file can't be
    read.
    Names and shapes that are not the model's raise, since they are a mistake of the program.]],
  example = 'model:load("run.safetensors", { skip_mismatch = true })' })

--- m:load(path [, { .. }]) -> self, skipped; or nil, message, code: see the record.
function Module.load(self, path, o)
  o = read_loading(file_options, "m:load", o)
  local t, message, code = core.load(path)
  if t == nil then return nil, message, code end
  if type(t) ~= "table" then fail(("m:load: %s holds one tensor without a name"):format(path)) end
  local skipped, why, hint = copy_in(self, t, o)
  if not skipped then
    error(core.error {
      code = "shape",
      message = ("m:load: %s: %s"):format(path, why),
      hint = hint,
    })
  end
  return self, skipped
end
