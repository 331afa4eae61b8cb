--- The way through a net of Caffe's: layer by layer, each by the builder of its type, over blobs
-- known by the names of tops.
--
-- A top that a later layer writes again, in place, is another blob: the last one has the top's
-- name, those before it "conv1.before_relu1". Tops that no layer reads are the net's outputs.
-- @module neap.caffe.graph
local core = require "neap.core"
local kit = require "neap.caffe.kit"
local Layer = require "neap.caffe.layer"
local layers = require "neap.caffe.layers"
local op = require "neap.op"

local graph = {}

local State = {}
State.__index = State

--- A name that a net can have: Caffe's are any text.
local function clean(name)
  name = name:gsub("[^%w._/:-]", "_"):gsub("/+", "/"):gsub("^/", ""):gsub("/$", "")
  return name ~= "" and name or "blob"
end
graph.clean = clean

-- ---- parameters ---------------------------------------------------------------------------------

--- The blob of a parameter or statistic: one for all layers that give it one name.
-- @param spec {row =, k =, suffix =, shape =, role =, name = nil | text, filler =, lr_mult =, ..}
function State:declare(spec)
  -- Parameters of one name are one; those without are the layer's own, by their place in it.
  local key = spec.name and "\0" .. spec.name
    or ("%s\0%d\0%d"):format(spec.row.name, self.which[spec.row], spec.k)
  local known = self.shared[key]
  if known then
    local a, b = table.concat(known.spec.shape, ","), table.concat(spec.shape, ",")
    local same = a == b or spec.permissive
      and kit.product(known.spec.shape) == kit.product(spec.shape)
    if not same then
      spec.row.message:fail("%s: parameter \"%s\" has shape (%s), and (%s) in layer \"%s\" that \z
        shares it", spec.row.message.name, spec.name or spec.suffix, b, a, known.spec.row.name)
    end
    known.users[#known.users + 1] = spec
    return a == b and known.blob or kit.reshape(known.blob, spec.shape)
  end

  spec.key = key
  self.shared[key] = { spec = spec, blob = self.make(self.net, spec), users = { spec } }
  return self.shared[key].blob
end

-- ---- names --------------------------------------------------------------------------------------

--- A name that is free in the net, and none that it will need.
local function free_name(state, name)
  name = clean(name)
  if state.reserved[name] then name = name .. "_top" end
  return state.net:_blob(name) and state.net:fresh_name(name) or name
end

--- The name of what layer i writes as a top: the top's own where no layer writes it afterwards.
local function written_name(state, top, i)
  local next_writer = state.writers[top][i]
  return free_name(state, next_writer and ("%s.before_%s"):format(top, next_writer) or top)
end

--- {top = {[i] = name of the layer that writes it after layer i}}
local function find_writers(rows)
  local writers, last = {}, {}
  for i, row in ipairs(rows) do
    for _, top in ipairs(row.tops) do
      writers[top] = writers[top] or {}
      if last[top] and last[top] ~= i then writers[top][last[top]] = row.name end
      last[top] = i
    end
  end
  return writers
end

-- ---- batch norm with its scale ------------------------------------------------------------------

--- Marks each Scale layer that alone reads what a BatchNorm has made: the norm scales and shifts
-- too, so that both are one op.
local function find_scales(rows)
  -- Who made each top last, and which layers read that: in-place layers make a name anew.
  local maker, readers = {}, {}
  for i, row in ipairs(rows) do
    for _, bottom in ipairs(row.bottoms) do
      local by = maker[bottom]
      if by then table.insert(readers[by], i) end
    end
    for _, top in ipairs(row.tops) do
      maker[top], readers[i] = i, {}
    end
  end

  local scale_of, is_scale = {}, {}
  for i, row in ipairs(rows) do
    local reader = row.type == "BatchNorm" and #(readers[i] or {}) == 1 and rows[readers[i][1]]
    if reader and reader.type == "Scale" and #reader.bottoms == 1 then
      scale_of[row], is_scale[reader] = reader, row
    end
  end
  return scale_of, is_scale
end

-- ---- layers -------------------------------------------------------------------------------------

--- f(..), whose error says that the net is not meant for the phase at hand: what it reads is not
-- there. It has `of_phase`; errors of builders, whatever is wrong with a layer, have not.
function graph.of_phase(f, ...)
  local results = table.pack(pcall(f, ...))
  if results[1] then return table.unpack(results, 2, results.n) end
  local err = results[2]
  if type(err) == "table" then rawset(err, "of_phase", true) end
  error(err, 0)
end

local function bottoms_of(state, n)
  local list = {}
  for k, name in ipairs(n.row.bottoms) do
    list[k] = state.env[name]
      or graph.of_phase(n.fail, n, "bottom \"%s\" is the top of no layer before this one in phase \z
        %s%s", name, state.phase, state.hint or "")
    state.unread[name] = nil
  end
  return list
end

--- Gives the tops their blobs; results that are yet to be made get the tops' names.
local function take_results(state, n, i, results)
  local row = n.row

  -- A layer may write what it reads, at the same place; another top of a name would hide the first.
  for k, top in ipairs(row.tops) do
    if state.env[top] and row.bottoms[k] ~= top and not top:match "_automatic$" then
      n:fail("top \"%s\" is another layer's already, and is not its bottom %d", top, k)
    end
  end

  -- A result that is yet to be made becomes an op whose outputs have the tops' names; of more
  -- outputs than tops the rest get names behind the layer's.
  local first = results[1]
  if type(first) == "table" and not op.is_blob(first) then
    local names = {}
    for k = 1, first.n do
      names[k] = row.tops[k] and written_name(state, row.tops[k], i)
        or state.net:fresh_name(clean(row.name) .. ".out")
    end
    local name = clean(row.name)
    if state.op_names[name] then name = nil else state.op_names[name] = true end
    results = table.pack(state.net:op(first.op, first.ins, names, first.attrs, name))
    if first.after then
      state.net:scope(clean(row.name), first.after, table.unpack(results, 1, results.n))
    end
  end
  for k, top in ipairs(row.tops) do
    local blob = results[k]
    if not op.is_blob(blob) then n:fail("it has %d tops, %d are computed", #row.tops, k - 1) end
    state.env[top] = blob
    if not state.unread[top] then state.order[#state.order + 1] = top end
    state.unread[top] = true
  end
end

--- Losses: what a layer's tops count in the sum that is trained.
local function take_losses(state, row)
  for k, top in ipairs(row.tops) do
    local weight = row.loss_weights[k]
      or (k == 1 and row.type:match "Loss$" and 1 or 0)
    if weight ~= 0 then
      state.losses[#state.losses + 1] = { blob = state.env[top], weight = weight, name = top }
    end
  end
end

local function located(n, err)
  if type(err) == "table" then
    local code = rawget(err, "code")
    if code == "memory" or code == "interrupted" then return err end
  elseif type(err) ~= "string" then
    return err
  end

  local message = type(err) == "table" and err.message or tostring(err)
  local file = n.row.message.file
  if message:sub(1, #file + 1) == file .. ":" then return err end
  message = message:gsub("^%S-:%d+: ", "")
  return core.error { code = "data", message = ("%s: %s"):format(n:place(), message) }
end

local function build(state, n, i)
  local row = n.row
  local f = layers.find(row.type)
  if not f and graph.is_data(row) then f = layers.find "Data" end
  local ins = bottoms_of(state, n)
  local function inner() return table.pack(f(n, table.unpack(ins))) end
  -- what a layer of several ops makes on the way lies in a scope of its name
  local results = state.net:scope(clean(row.name), inner)
  take_results(state, n, i, results)
end

function State:run_layer(row, i)
  local n = setmetatable({ row = row, state = self }, Layer)
  local ok, err = xpcall(function()
    local file = row.message.file:match "[^/]*$"
    self.net:made_by(("%s:%d"):format(file, row.line), build, self, n, i)
  end, function(e) return located(n, e) end)
  if not ok then error(err, 0) end
  take_losses(self, row)
end

-- ---- what is lacking ----------------------------------------------------------------------------

--- Whether a layer without bottoms stands for data that others read from files.
function graph.is_data(row) return #row.bottoms == 0 and layers.is_data(row.type) end

--- The layers whose type Neap lacks, in order.
function graph.lacking(rows)
  local out = {}
  for _, row in ipairs(rows) do
    if not layers.find(row.type) and not graph.is_data(row) then out[#out + 1] = row end
  end
  return out
end

-- ---- outputs ------------------------------------------------------------------------------------

--- The tops that nobody reads, in order, each a blob of its name.
local function name_outputs(state)
  local outputs, seen = {}, {}
  for _, top in ipairs(state.order) do
    if state.unread[top] and not seen[top] then
      seen[top], outputs[#outputs + 1] = true, top

      -- A name that another blob has by now goes to a new one: of an activation by the same
      -- numbers, of what is declared by a copy.
      local blob = state.env[top]
      if blob.name ~= clean(top) and blob.name ~= clean(top) .. "_top" then
        local is_made = state.net:_blob(blob.name).role == "activation"
        state.env[top] = state.net:op(is_made and "Alias" or "Copy", { blob },
          { free_name(state, top) })
      end
    end
  end
  return outputs
end

-- ---- the whole ----------------------------------------------------------------------------------

--- Runs the layers on inputs.
-- @param rows of neap.caffe.net's layers, in one state
-- @param o {net =, phase =, inputs = {top = blob}, make = f(net, spec) -> blob of a parameter,
--   reserved = {name = true} of blobs that the net will have besides}
-- @return {env = {top = blob}, outputs = tops that nobody reads, losses = {{blob, weight, name}},
--   shared = {key = {spec =, users =}}}
function graph.run(rows, o)
  local state = setmetatable({ net = o.net, phase = o.phase, make = o.make, env_given = o.inputs,
    hint = o.hint, reserved = o.reserved or {}, env = {}, shared = {}, unread = {}, order = {},
    losses = {}, writers = find_writers(rows) }, State)
  -- Of layers of one name each is its own.
  local count = {}
  state.which, state.op_names = {}, {}
  for _, row in ipairs(rows) do
    count[row.name] = (count[row.name] or 0) + 1
    state.which[row] = count[row.name]
  end

  state.scale_of, state.is_scale = find_scales(rows)
  state.taken = {}
  for i, row in ipairs(rows) do state:run_layer(row, i) end
  state.outputs = name_outputs(state)
  return state
end

--- Adds one more layer to a net whose layers have run.
function graph.add(state, row)
  state.which[row] = 1
  for _, top in ipairs(row.tops) do
    state.writers[top] = state.writers[top] or {}
  end
  state:run_layer(row, math.huge)
end

--- The sum of all losses, each times its weight; nil where there is none.
function graph.total(state)
  local total
  for _, term in ipairs(state.losses) do
    local value = kit.times(kit.sum(term.blob), term.weight)
    total = total and kit.F.Add { total, value } or value
  end
  return total
end

return graph
