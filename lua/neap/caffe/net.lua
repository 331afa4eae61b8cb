--- A net of Caffe's as a list of layers, of whatever version of the format: rows { name, type,
-- bottoms, tops, params, line, message }, and inputs that are said beside the layers.
-- @module neap.caffe.net
local Message = require "neap.caffe.message"
local options = require "neap.inner.options"

local net = {}

-- ---- old versions -------------------------------------------------------------------------------

-- V1's enum of types, by number, and what they are called since.
local v1_types = { "ACCURACY", "BNLL", "CONCAT", "CONVOLUTION", "DATA", "DROPOUT", "EUCLIDEAN_LOSS",
  "FLATTEN", "HDF5_DATA", "HDF5_OUTPUT", "IM2COL", "IMAGE_DATA", "INFOGAIN_LOSS", "INNER_PRODUCT",
  "LRN", "MULTINOMIAL_LOGISTIC_LOSS", "POOLING", "RELU", "SIGMOID", "SOFTMAX", "SOFTMAX_LOSS",
  "SPLIT", "TANH", "WINDOW_DATA", "ELTWISE", "POWER", "SIGMOID_CROSS_ENTROPY_LOSS", "HINGE_LOSS",
  "MEMORY_DATA", "ARGMAX", "THRESHOLD", "DUMMY_DATA", "SLICE", "MVN", "ABSVAL", "SILENCE",
  "CONTRASTIVE_LOSS", "EXP", "DECONVOLUTION" }
local spelt = { BNLL = "BNLL", HDF5_DATA = "HDF5Data", HDF5_OUTPUT = "HDF5Output",
  IM2COL = "Im2col", LRN = "LRN", RELU = "ReLU", SOFTMAX_LOSS = "SoftmaxWithLoss", TANH = "TanH",
  ARGMAX = "ArgMax", MVN = "MVN", ABSVAL = "AbsVal" }

--- "SIGMOID_CROSS_ENTROPY_LOSS" as "SigmoidCrossEntropyLoss".
local function new_type(old)
  return spelt[old] or (old:gsub("(%u)([%u]*)_?", function(a, b) return a .. b:lower() end))
end

--- The type of a layer of V1: a word of its enum, or that word's number.
local function type_of_v1(m)
  -- The text has a word or its number.
  local known = { [0] = "NONE" }
  for i, word in ipairs(v1_types) do known[i] = word end
  local field = (m.by_name.type or {})[1]
  m.asked.type = true
  local word = field and (known[field.value] or field.value)
  for _, one in ipairs(v1_types) do
    if one == word then return new_type(one) end
  end
  -- a type that was added by others is taken as it is written, and named where it is lacking
  return field and tostring(field.value) or m:fail "a layer has no type"
end

--- blobs_lr and weight_decay of V1 as what `param` messages say since.
local function params_of_v1(m)
  -- Lists beside each other, of which each may be shorter: what one lacks is as usual.
  local names, rates, decays = m:texts "param", m:numbers "blobs_lr", m:numbers "weight_decay"
  local modes, out = m:words("blob_share_mode", { "STRICT", "PERMISSIVE" }), {}
  for i = 1, math.max(#names, #rates, #decays) do
    out[i] = { name = names[i], lr_mult = rates[i] or 1, decay_mult = decays[i] or 1,
      permissive = modes[i] == "PERMISSIVE" }
  end
  return out
end

local function params_of(m)
  local out = {}
  for i, p in ipairs(m:messages "param") do
    out[i] = { name = p:text "name", lr_mult = p:number("lr_mult", 1),
      decay_mult = p:number("decay_mult", 1),
      permissive = p:word("share_mode", { "STRICT", "PERMISSIVE" }) == "PERMISSIVE" }
    if out[i].name == "" then out[i].name = nil end
  end
  return out
end

-- ---- layers -------------------------------------------------------------------------------------

local function layer_of(m, is_v1)
  if m:has "layer" then m:fail "a layer of Caffe's first format, V0, which is not read: \z
    Caffe's tool upgrade_net_proto_text rewrites it" end
  local row = { message = m, line = m.line, is_v1 = is_v1, bottoms = m:texts "bottom",
    tops = m:texts "top" }

  row.type = is_v1 and type_of_v1(m) or m:text "type" or m:fail "a layer has no type"
  row.name = m:text("name", row.tops[1] or row.type)
  -- A loss that says no top has one all the same.
  if #row.tops == 0 and row.type:match "Loss$" then row.tops = { row.name .. "_automatic" } end

  m.name = ("layer \"%s\" (%s)"):format(row.name, row.type)
  row.params = is_v1 and params_of_v1(m) or params_of(m)
  row.loss_weights = m:numbers "loss_weight"
  if #row.loss_weights > 0 and #row.loss_weights ~= #row.tops then
    m:fail_at(m:line_of "loss_weight", "%s has %d tops and %d loss_weights", m.name, #row.tops,
      #row.loss_weights)
  end

  row.phase = m:word("phase", { "TRAIN", "TEST" })
  m:flags "propagate_down"
  m:leave "debug_info"
  return row
end

-- ---- phases and stages --------------------------------------------------------------------------

local function meets(rule, state)
  local phase = rule:word("phase", { "TRAIN", "TEST" })
  local least, most = rule:int "min_level", rule:int "max_level"
  local stages, not_stages = rule:texts "stage", rule:texts "not_stage"

  if phase and phase ~= state.phase then return false end
  if least and state.level < least or most and state.level > most then return false end
  for _, stage in ipairs(stages) do
    if not state.stages[stage] then return false end
  end
  for _, stage in ipairs(not_stages) do
    if state.stages[stage] then return false end
  end
  return true
end

--- Whether a layer is in a net of that state: one include rule that is met, or no exclude rule.
local function is_in(row, state)
  local include, exclude = row.message:messages "include", row.message:messages "exclude"
  if #include > 0 and #exclude > 0 then
    row.message:fail("%s has both include and exclude rules", row.message.name)
  end

  if row.phase and #include == 0 and row.phase ~= state.phase then return false end
  -- All rules are read, met or not, so that each of their fields counts as read.
  local found = #include == 0
  for _, rule in ipairs(include) do found = meets(rule, state) or found end
  for _, rule in ipairs(exclude) do found = not meets(rule, state) and found end
  return found
end

--- The layers of a net in one state.
-- @param state {phase = "TRAIN" | "TEST", level = integer, stages = set}
function net.layers(model, state)
  local list = {}
  for _, row in ipairs(model.layers) do
    if is_in(row, state) and not model.without[row.name] then list[#list + 1] = row end
  end
  return list
end

--- The stages that a net's rules speak of, in words for an error; "" where there are none.
function net.stages_hint(model)
  local names = {}
  for _, row in ipairs(model.layers) do
    for _, kind in ipairs { "include", "exclude" } do
      for _, rule in ipairs(row.message:messages(kind)) do
        for _, stage in ipairs(rule:texts "stage") do names[stage] = true end
      end
    end
  end
  local list = options.keys(names)
  return #list > 0 and ("; layers are of stages %s: give stages = { .. }"):format(
    table.concat(list, ", ")) or ""
end

-- ---- inputs -------------------------------------------------------------------------------------

--- Inputs that stand beside the layers: `input` with `input_shape` each, or with four `input_dim`
-- each, as Input layers.
local function inputs_of(m)
  local names, shapes, dims = m:texts "input", m:messages "input_shape", m:ints "input_dim"
  if #shapes > 0 and #dims > 0 then m:fail "both input_shape and input_dim are given" end
  if #dims > 0 and #dims ~= 4 * #names or #shapes > 0 and #shapes ~= #names
      or #names > 0 and #shapes + #dims == 0 then
    m:fail_at(m:line_of "input", "%d inputs, and %d input_shape, %d input_dim: one input_shape, \z
      or four input_dim, are expected for each", #names, #shapes, #dims)
  end

  -- Each becomes a layer of type Input, with an empty message of its own: who reads layers needs no
  -- second case.
  local rows = {}
  for i, name in ipairs(names) do
    local shape = shapes[i] and shapes[i]:ints "dim" or table.move(dims, 4 * i - 3, 4 * i, 1, {})
    rows[i] = { name = name, type = "Input", bottoms = {}, tops = { name }, params = {},
      loss_weights = {}, line = m:line_of "input", shape = shape,
      message = Message.new({}, m.file, ("input \"%s\""):format(name), m:line_of "input") }
  end
  return rows
end

-- ---- the whole ----------------------------------------------------------------------------------

--- {optimize_train =, optimize_test =, exclude_blob = {..}} of yjxiong's files, nil where there is
-- none.
local function mem_param_of(m)
  if not m:has "mem_param" then return nil end
  local p = m:message "mem_param"
  return { optimize_train = p:flag("optimize_train", true),
    optimize_test = p:flag("optimize_test", false), exclude_blob = p:texts "exclude_blob" }
end

--- Reads a net's message.
-- @param m Message, of a file or of net_param in a solver
-- @param without list of names of layers that are left out
-- @return {name =, path =, layers = rows, mem_param =, message =, without = set}
function net.read(m, without)
  local model = { message = m, path = m.file, name = m:text("name", "net"), without = {},
    layers = inputs_of(m) }
  -- Both in the order of the text; a type in quotes is what makes a layer one of the newer format.
  local all = table.move(m:messages "layers", 1, #m:messages "layers", 1, {})
  table.move(m:messages "layer", 1, #m:messages "layer", #all + 1, all)
  table.sort(all, function(a, b) return a.at < b.at end)
  for _, one in ipairs(all) do
    local kind = one.name == "layers" and (one.by_name.type or {})[1]
    model.layers[#model.layers + 1] = layer_of(one, kind and kind.kind ~= "string" or false)
  end

  if #model.layers == 0 then m:fail "the file has no layer" end
  model.mem_param = mem_param_of(m)
  local state = m:message "state"
  model.state = { phase = state:word("phase", { "TRAIN", "TEST" }), level = state:int("level", 0),
    stages = state:texts "stage" }
  m:flag "force_backward"
  m:leave "debug_info"

  local names = {}
  for _, row in ipairs(model.layers) do names[row.name] = true end
  for _, name in ipairs(type(without) == "string" and { without } or without or {}) do
    if not names[name] then
      local near = options.nearest(name, options.keys(names))
      m:fail("without: the net has no layer \"%s\"%s", name,
        near and (", did you mean \"%s\"?"):format(near) or "")
    end
    model.without[name] = true
  end
  return model
end

--- Raises for fields that no layer of any state has read. Layers that were in none are not looked
-- at: what they mean is not known.
function net.check_read(model, seen)
  for _, row in ipairs(model.layers) do
    if seen[row] then row.message:check_read() end
  end
  -- The layers were looked at one by one.
  local m = model.message
  m.inner.layer, m.inner.layers = nil, nil
  m:check_read()
end

return net
