--- Caffe's files: what neap.import does with nets (.prototxt) and their weights (.caffemodel).
-- @module neap.caffe
local core = require "neap.core"
local graph = require "neap.caffe.graph"
local kit = require "neap.caffe.kit"
local known = require "neap.caffe.inputs_known"
local Message = require "neap.caffe.message"
local net_module = require "neap.net"
local nets = require "neap.caffe.net"
local options = require "neap.inner.options"
local weights = require "neap.caffe.weights"

local caffe = {}

-- ---- reading ------------------------------------------------------------------------------------

--- The message of a text file, or nil, message, code.
function caffe.read_text(path)
  local fields, message, code = core.read_prototxt(path)
  if not fields then return nil, message, code end
  return Message.new(fields, path, "the file", 1)
end

--- Whether a text is a solver's.
function caffe.is_solver(m)
  for _, name in ipairs { "net", "train_net", "net_param", "train_net_param", "base_lr",
    "max_iter" } do
    if m:has(name) then return true end
  end
  return false
end

--- Raises for layers that Neap lacks, all of them at once.
local function check_lacking(model, lists)
  local seen, texts = {}, {}
  for _, rows in ipairs(lists) do
    for _, row in ipairs(graph.lacking(rows)) do
      if not seen[row] then
        seen[row] = true
        texts[#texts + 1] = ("%s (layer \"%s\", line %d)"):format(row.type, row.name, row.line)
      end
    end
  end
  if #texts == 0 then return end
  kit.fail { message = ("%s: Neap has no %s"):format(model.path,
    table.concat(texts, ", ")), hint = "without = { names of layers } leaves layers out" }
end

-- ---- inputs -------------------------------------------------------------------------------------

--- The inputs of layers in order: {name =, shape =, dtype =}, and what was assumed of them.
local function inputs_of(rows, o, notes)
  local list, given, names = {}, o.shapes or {}, {}
  local function add(name, shape)
    for _, size in ipairs(shape) do
      if math.type(size) ~= "integer" or size < 1 then
        kit.fail(("input \"%s\": a size of %s"):format(name, tostring(size)))
      end
    end
    local sizes = table.move(shape, 1, #shape, 1, {})
    list[#list + 1] = { name = name, shape = sizes, dtype = shape.dtype or "f32" }
    names[name] = true
  end
  for _, row in ipairs(rows) do
    if row.type == "Input" then
      -- One shape serves all tops; a shape of the caller's comes before what the file says.
      local shapes = row.shape and { row.shape }
        or #row.tops > 0 and row.message:message("input_param"):messages "shape"
      for k, top in ipairs(row.tops) do
        local m = shapes[#shapes == 1 and 1 or k]
        local said = m and (m.ints and m:ints "dim" or m)
        local own = given[top] or said
        if not own or #own == 0 then
          row.message:fail("%s: its top \"%s\" has no shape: give shapes = { [\"%s\"] = { .. } }",
            row.message.name, top, top)
        end
        add(top, own)
      end
    elseif graph.is_data(row) then
      local shapes, own = known.shapes(row, given)
      for _, top in ipairs(row.tops) do add(top, shapes[top]) end
      table.move(own, 1, #own, #notes + 1, notes)
    end
  end
  return list, names
end

--- The batch that all inputs share, nil where they don't.
local function batch_of(inputs)
  local batch
  for _, input in ipairs(inputs) do
    local size = input.shape[1]
    if not size or batch and batch ~= size then return nil end
    batch = size
  end
  return batch
end

-- ---- phases -------------------------------------------------------------------------------------

--- What a net is in a phase: {rows =, inputs =, batch =, found = parameters, notes =}, by a walk on
-- a net that is thrown away.
local function walk(model, phase, rows, o)
  local part = { phase = phase, rows = rows, notes = {}, found = {} }

  -- The phase's own inputs: a layer of data may be there in one of both.
  part.inputs, part.names = graph.of_phase(inputs_of, part.rows, o, part.notes)
  part.batch = batch_of(part.inputs)
  part.net = net_module.new(graph.clean(model.name))
  local inputs = {}
  for _, input in ipairs(part.inputs) do
    inputs[input.name] = part.net:input(graph.clean(input.name), input.shape, input.dtype)
  end

  -- Parameters are noted as the layers ask for them; one without a rate of its own is declared, and
  -- gets no gradient.
  part.run = graph.run(part.rows, { net = part.net, phase = phase, inputs = inputs,
    hint = nets.stages_hint(model),
    make = function(net, spec)
      part.found[#part.found + 1] = spec
      local name = graph.clean(("%s.%s"):format(spec.row.name, spec.suffix))
      return net:declare(net:_blob(name) and net:fresh_name(name) or name, spec.role, spec.shape,
        "f32", spec.filler.init, spec.role == "parameter" and spec.lr_mult ~= 0)
    end })

  local outputs = {}
  for i, top in ipairs(part.run.outputs) do outputs[i] = part.run.env[top] end
  if #outputs > 0 then part.net:outputs(outputs) end
  return part
end

--- The state that a phase's rules are asked in.
local function state_of(model, phase, o)
  local state = { phase = phase, level = o.level or model.state.level, stages = {} }
  local stages = o.stages or model.state.stages
  for _, stage in ipairs(type(stages) == "string" and { stages } or stages) do
    state.stages[stage] = true
  end
  return state
end

--- The phases that are asked for: one, or both. Names that `shapes` has must be inputs in one.
-- @param models {phase = model}
local function walk_all(models, o)
  -- One phase is asked for, or is said by the net's own state; else both are walked, and of a net
  -- that makes sense in one alone that is taken.
  local only = o.phase or models.TRAIN == models.TEST and models.TEST.state.phase
  local lists, all, seen, names, parts = {}, {}, {}, {}, {}
  for _, phase in ipairs(only and { only } or { "TRAIN", "TEST" }) do
    local rows = nets.layers(models[phase], state_of(models[phase], phase, o))
    if #rows > 0 then lists[phase], all[#all + 1] = rows, rows end
  end
  if #all == 0 then
    kit.fail(("%s: no layer is in phase %s"):format(models.TEST.path, only or "TRAIN or TEST"))
  end
  check_lacking(models.TEST, all)

  local first
  for _, phase in ipairs { "TRAIN", "TEST" } do
    local ok, part = true, nil
    if lists[phase] then ok, part = pcall(walk, models[phase], phase, lists[phase], o) end
    -- What is not there in one phase may be in the other; what is wrong is so in both.
    local may_be_left = type(part) == "table" and rawget(part, "of_phase")
      and rawget(part, "code") == "data" and #all > 1
    if not ok and not may_be_left then error(part, 0) end
    first = first or not ok and part or nil
    parts[phase] = ok and part or nil
    for name in pairs(parts[phase] and part.names or {}) do names[name] = true end
    for _, row in ipairs(lists[phase] or {}) do seen[row] = true end
  end
  -- Of a net that only one phase makes sense of, that one is taken: of the other says the note why.
  local one = parts.TRAIN or parts.TEST
  if not one then error(first, 0) end
  if first then
    one.notes[#one.notes + 1] = ("phase %s is left out: %s"):format(
      parts.TRAIN and "TEST" or "TRAIN", first.message)
  end

  known.check_names(names, o.shapes or {})
  nets.check_read(models.TRAIN, seen)
  if models.TEST ~= models.TRAIN then nets.check_read(models.TEST, seen) end
  return parts
end

-- ---- models -------------------------------------------------------------------------------------

--- Shapes of one example by the inputs of all phases, in order.
local function arguments_of(model, parts)
  local names, by_name = {}, {}
  for _, phase in ipairs { "TRAIN", "TEST" } do
    for _, input in ipairs(parts[phase] and parts[phase].inputs or {}) do
      local example = table.move(input.shape, 2, #input.shape, 1, { dtype = input.dtype })
      local known_shape = by_name[input.name]
      if known_shape and table.concat(known_shape, ",") ~= table.concat(example, ",") then
        kit.fail(("%s: input \"%s\" has examples of (%s) in one phase and of (%s) in another: \z
          import it with a phase"):format(model.path, input.name, table.concat(known_shape, ","),
          table.concat(example, ",")))
      end
      if not known_shape then names[#names + 1] = input.name end
      by_name[input.name] = example
    end
  end
  return names, by_name
end

--- Whether a file's net can be a module: its inputs share a batch in each phase.
local function is_batched(parts)
  for _, part in pairs(parts) do
    if not part.batch then return false end
  end
  return true
end

--- The module of a net in its phases.
-- @param bare whether no parameter gets its numbers: of a net that is only planned
local function module_of(model, parts, o, bare)
  local names, input = arguments_of(model, parts)
  local found, notes, noted = {}, {}, {}

  for _, phase in ipairs { "TRAIN", "TEST" } do
    local part = parts[phase] or { found = {}, notes = {} }
    table.move(part.found, 1, #part.found, #found + 1, found)
    for _, note in ipairs(part.notes) do
      if not noted[note] then noted[note], notes[#notes + 1] = true, note end
    end
  end

  local only = not (parts.TRAIN and parts.TEST) and next(parts) or nil
  local self = require("neap.caffe.module").Model { phases = parts, phase = only, found = found,
    arguments = names, examples = input }
  self.notes = notes
  rawset(self, "mem_param", model.mem_param)
  -- A net with a loss reads its target with its inputs.
  local trained = parts.TRAIN or parts.TEST
  if #trained.run.losses > 0 and #names > 1 then self._takes_target = true end
  if not bare then weights.fill(self, self._caffe.specs) end
  if o.weights then weights.load(self, o.weights) end
  return self:eval()
end

--- The module of a net's message.
-- @param test Message|nil of another file that has the TEST phase
function caffe.module(m, o, test, bare)
  local model = nets.read(m, o.without)
  local models = { TRAIN = model, TEST = test and nets.read(test, o.without) or model }
  local parts = walk_all(models, o)
  if not is_batched(parts) then
    m:fail "its inputs have no batch in common: import it as a net, without model = true"
  end
  return module_of(model, parts, o, bare)
end

-- ---- neap.import --------------------------------------------------------------------------------

--- What is wrong with a file is its fault: nil, message, "data".
local function failed(path, err)
  local code = type(err) == "table" and err.message and (err.code or "data")
  if not code or code == "memory" or code == "interrupted" then error(err, 0) end
  local message = tostring(err.message) .. (err.hint and "; " .. err.hint or "")
  if not message:find(path, 1, true) then message = path .. ": " .. message end
  return nil, message, code == "io" and "io" or "data"
end

local function guarded(path, f, ...)
  local results = table.pack(pcall(f, ...))
  if not results[1] then return failed(path, results[2]) end
  return table.unpack(results, 2, results.n)
end

local function check_options(o)
  for _, name in ipairs { "dims", "constants" } do
    if o[name] then core.fail(("neap.import: %s is for .onnx files"):format(name)) end
  end
  for name, shape in pairs(o.shapes or {}) do
    if type(shape) ~= "table" then
      core.fail(("neap.import: shapes: \"%s\" expects a list of sizes, batch first, got %s"):format(
        tostring(name), options.shown(shape)))
    end
  end
end

--- A net in a workspace: {net =, workspace =, notes =}.
local function as_function(m, o)
  local model = nets.read(m, o.without)
  -- One phase makes one net: that of inference, if neither caller nor file says another.
  local phase = o.phase or model.state.phase or "TEST"

  local one = {}
  for key, value in pairs(o) do one[key] = value end
  one.phase = phase
  local part = walk_all({ TRAIN = model, TEST = model }, one)[phase]

  local ws = require("neap.workspace").new {}
  ws:init(part.net)
  weights.fill_net(ws, part, o.weights)
  return { net = part.net, workspace = ws, notes = part.notes, mem_param = model.mem_param }
end

--- What a net file would give: {model =, loss =, batch =, train_batch =, mem_param =, notes =};
-- {net =} where its inputs have no one batch. nil, message, code where the file is at fault.
-- @param o table|nil of neap.import's options
function caffe.net_file(path, batch, o)
  o = o or {}
  local m, message, code = caffe.read_text(path)
  if not m then return nil, message, code end
  return guarded(path, function()
    if caffe.is_solver(m) then return require("neap.caffe.solver").net_file(m, batch, o) end
    local model = nets.read(m)
    local parts = walk_all({ TRAIN = model, TEST = model }, o)
    if not is_batched(parts) then
      local part = parts.TEST or parts.TRAIN
      return { net = part.net, mem_param = model.mem_param }
    end
    return caffe.as_file(module_of(model, parts, {}, true), batch)
  end)
end

--- A module as a net file's table.
function caffe.as_file(self, batch)
  local phases = self._caffe.phases
  local train, test = phases.TRAIN or phases.TEST, phases.TEST or phases.TRAIN
  return { model = self, mem_param = rawget(self, "mem_param"), notes = self.notes,
    batch = batch or test.batch, train_batch = batch or train.batch,
    loss = #train.run.losses > 0 and require("neap.caffe.module").Loss {} or nil }
end

--- The net of a path in a workspace, or with o.model a module, or of a solver's file a trainer and
-- what t:fit takes. nil, message, code where the file is at fault.
function caffe.import(path, o)
  check_options(o)
  local m, message, code = caffe.read_text(path)
  if not m then return nil, message, code end

  if caffe.is_solver(m) then
    return guarded(path, require("neap.caffe.solver").trainer, m, o)
  end
  if o.model then return guarded(path, caffe.module, m, o) end
  return guarded(path, as_function, m, o)
end

return caffe
