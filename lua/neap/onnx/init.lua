--- ONNX files as nets: what neap.import does with a path that ends in .onnx.
-- @module neap.onnx
local core = require "neap.core"
local graph = require "neap.onnx.graph"
local kit = require "neap.onnx.kit"
local net_module = require "neap.net"
local op = require "neap.op"
local options = require "neap.inner.options"

local onnx = {}

--- The model as tables (src/lua/onnx.c), or nil, message, code: a file that can't be read, and one
-- with ops that Neap lacks, all of which are named.
function onnx.read(path)
  local model, message, code = core.read_onnx(path)
  if not model then return nil, message, code end
  model.path = path
  return onnx.complete(model)
end

--- The model, or nil, message, code, list where it has ops that Neap lacks: all of them, as
-- `shown(row)` says them.
function onnx.complete(model, shown)
  local lacking = graph.lacking(model)
  if #lacking == 0 then return model end
  local texts = kit.map(lacking, shown or function(row)
    return ("%s (node \"%s\")"):format(row.op, row.node)
  end)
  return nil, ("%s: Neap has no %s"):format(model.path, table.concat(texts, ", ")), "data", lacking
end

--- A tensor of a file such as the standard's tests have, or nil, message, code.
function onnx.read_tensor(path) return core.read_onnx_tensor(path) end

-- ---- inputs -------------------------------------------------------------------------------------

--- Inputs that the file has no initializer for, in order.
function onnx.open_inputs(model)
  local has = {}
  for _, t in ipairs(model.graph.initializers) do has[t.name] = true end
  local list = {}
  for _, input in ipairs(model.graph.inputs) do
    if not has[input.name] then list[#list + 1] = input end
  end
  return list
end

--- Those of them that are fed, not bound to a constant.
function onnx.fed(inputs, o)
  local list = {}
  for _, input in ipairs(inputs) do
    if not (o.constants and o.constants[input.name]) then list[#list + 1] = input end
  end
  return list
end

--- The values of the inputs that are bound.
function onnx.constants(model, o)
  local values = {}
  for _, input in ipairs(onnx.open_inputs(model)) do
    local constant = o.constants and o.constants[input.name]
    if constant then values[input.name] = graph.known(constant, input.elem, input.name) end
  end
  return values
end

--- The sizes of an input: those given for it, or the file's, with named dimensions bound; a
-- dimension that nobody says is 1, and `notes` says so; in some files it has a size beside its
-- name, input.sizes.
function onnx.shape_of(input, o, notes)
  local type_row = kit.types[input.elem]
  if not type_row or not type_row.dtype or input.kind ~= "tensor" then
    kit.fail("input \"%s\" is no tensor of a type that Neap reads", input.name)
  end
  -- What is given for an input says all its sizes.
  if o.shapes and o.shapes[input.name] then return o.shapes[input.name] end
  local shape = {}
  for d, size in ipairs(input.dims or {}) do
    if math.type(size) == "integer" then
      shape[d] = size
    else
      local bound = size and o.dims and o.dims[size] or input.sizes and input.sizes[d]
      if type(bound) == "table" then bound = bound[2] end -- a range is planned at its end
      if not bound then
        notes[#notes + 1] = ("input \"%s\": dimension %d%s is taken as 1"):format(input.name, d,
          size and (" (" .. size .. ")") or "")
      end
      shape[d] = bound or 1
    end
  end
  return shape
end

--- Raises for names in the options that the file does not have: what is bound to them is lost.
local function check_names(model, o)
  local inputs, dims = {}, {}
  for _, input in ipairs(onnx.open_inputs(model)) do
    inputs[input.name] = true
    for _, size in ipairs(input.dims or {}) do
      if type(size) == "string" then dims[size] = true end
    end
  end
  for option, known in pairs { dims = dims, shapes = inputs, constants = inputs } do
    local given, names = o[option], options.keys(known)
    if given ~= nil and type(given) ~= "table" then
      core.fail(("neap.import: %s expects a table by name, got a %s"):format(option, type(given)))
    end
    for _, name in ipairs(options.keys(given or {})) do
      if not known[name] then
        local near = options.nearest(tostring(name), names)
        core.fail(("neap.import: %s has \"%s\", the file has %s%s"):format(option, tostring(name),
          #names > 0 and table.concat(names, ", ") or "no such name",
          near and (", did you mean \"" .. near .. "\"?") or ""))
      end
    end
  end
end

--- Raises for a dimension bound to what is neither a size nor a range of sizes.
local function check_dims(o)
  local function is_size(x) return math.type(x) == "integer" and x >= 0 end

  for _, name in ipairs(options.keys(o.dims or {})) do
    local bound = o.dims[name]
    local is_range = type(bound) == "table" and #bound == 2 and is_size(bound[1])
      and is_size(bound[2]) and bound[1] <= bound[2]
    if not is_size(bound) and not is_range then
      core.fail(("neap.import: dims.%s expects a size or a range, { 1, 32 }, got %s"):format(name,
        options.shown(bound)))
    end
    if is_range and o.model then
      core.fail(("neap.import: dims.%s is a range, which a module has no use for: its nets are \z
        made and planned as it is called"):format(name))
    end
  end
end

--- The batch in the file's own shapes: the first size, where all inputs that are fed have the same;
-- nil where they don't, and no one number stands for it.
local function own_batch(model, o)
  local batch
  for _, input in ipairs(onnx.open_inputs(model)) do
    local size = onnx.shape_of(input, o, {})[1]
    if not size or size < 1 or batch and batch ~= size then return nil end
    batch = size
  end
  return batch
end

-- ---- nets ---------------------------------------------------------------------------------------

--- Blobs for weights: parameters, or state where they are none, with the numbers in `weights`;
-- `sized` are those that other sizes may have otherwise.
local function declare_in(weights, sized)
  return function(net, name, t, parameter, is_sized)
    -- Two weights may have one name, in functions that are called twice.
    name = net:_blob(name) and net:fresh_name(name) or name
    weights[name], sized[name] = t, is_sized
    return net:declare(name, parameter and "parameter" or "state", t.shape, t.dtype,
      { op = "Constant", value = 0 }, parameter == true)
  end
end

--- The names that blobs of the net get: what the file calls them, outputs first. `made` are the
-- values of its nodes.
local function names_of(net, values, made)
  local names, taken = {}, {}
  local function name(v, wanted)
    -- An activation alone is renamed: inputs and weights have the file's names from the start.
    local blob = v.blob or v.x
    local row = op.is_blob(blob) and net:_blob(blob.name)

    if not row or row.role ~= "activation" or names[blob.name] or taken[wanted] then return end
    local old = net:_blob(wanted)
    if old and old.role ~= "activation" then return end
    names[blob.name], taken[wanted] = wanted, true
  end
  for _, v in ipairs(values) do name(v, graph.clean(v.name)) end
  for _, v in ipairs(made) do name(v, graph.clean(v.name)) end
  -- A name that another blob has goes with that one's.
  for _, row in ipairs(net:_blobs()) do
    if taken[row.name] and not names[row.name] then
      local free = net:fresh_name(row.name)
      while taken[free] do free = free .. "_" end
      names[row.name], taken[free] = free, true
    end
  end
  -- What has its name already is no rename.
  for old, new in pairs(names) do
    if old == new then names[old] = nil end
  end
  return names
end

--- The net with the file's names, and those of its outputs. An output that is none of an op, or is
-- another one already, is copied.
local function name_all(net, model, values, made)
  local outputs, seen = {}, {}

  for i, output in ipairs(model.graph.outputs) do
    local v = values[i]
    if not v.x then kit.fail("output \"%s\" is no tensor", output.name) end
    local blob = v.blob or op.is_blob(v.x) and v.x or net:const(v.x)
    local role = net:_blob(blob.name).role
    if role ~= "activation" or seen[blob.name] then
      local name = graph.clean(output.name)
      if net:_blob(name) then name = net:fresh_name(name) end
      blob = net:op(role == "activation" and "Alias" or "Copy", { blob }, { name })
    end
    seen[blob.name] = true
    outputs[i] = { x = blob, name = output.name }
  end

  -- All names at once: one that is free only when another goes could not be given alone.
  local renames, names = names_of(net, outputs, made), {}
  for i, v in ipairs(outputs) do names[i] = renames[v.x.name] or v.x.name end
  if next(renames) then net = net:rename(renames) end
  net:outputs(names)
  return net, names
end

--- What is wrong, and which sizes were assumed, one of which it may come from.
local function with_notes(err, notes)
  if #notes > 0 and type(err) == "table" and err.message then
    rawset(err, "message", ("%s; %s, unless dims = { name = size } or shapes = { input = sizes } \z
      say another size, or FILE:name=size on the command line"):format(err.message,
        table.concat(notes, ", ")))
  end
  return err
end

--- The model's net: {net =, weights = {name = tensor}, sized = {name = true}, notes =, elems = of
-- the outputs}. Raises what is wrong, located.
-- @param o {dims = {name = size}, shapes = {input = sizes}, constants = {input = tensor}}
-- @tparam ?function declare of graph.run, where the graph is gone through for each size; left out,
-- weights are declared in the net
function onnx.build(model, o, declare, trained)
  local net = net_module.new(graph.clean(model.graph.name))
  local weights, sized, notes, given, input_names = {}, {}, {}, {}, {}

  -- Inputs that are bound to constants are values already; the others become inputs of the net, of
  -- the sizes that are said or assumed.
  local values = onnx.constants(model, o)
  for _, t in ipairs(model.graph.initializers) do given[t.name] = true end
  for _, input in ipairs(onnx.fed(onnx.open_inputs(model), o)) do
    local blob = net:input(graph.clean(input.name), onnx.shape_of(input, o, notes),
      kit.types[input.elem].dtype)
    input_names[input.name] = blob.name
    values[input.name] = { x = blob, elem = input.elem, name = input.name, input = input.name }
  end
  local ok, results, made = pcall(graph.run, model, net, values,
    declare or declare_in(weights, sized), declare ~= nil, trained)
  if not ok then error(with_notes(results, notes), 0) end
  local names

  net, names = name_all(net, model, results, made)
  table.move(model.notes or {}, 1, #(model.notes or {}), #notes + 1, notes)
  return { net = net, weights = weights, sized = sized, notes = notes, outputs = names,
    given = given, input_names = input_names,
    elems = kit.map(results, function(v) return v.elem end) }
end

-- ---- neap.import --------------------------------------------------------------------------------

--- Whatever is wrong with a model is its file's fault: nil, message, "data". Memory that is refused
-- is not, and raises, as does what is no error of Neap's.
local function failed(path, err)
  local code = type(err) == "table" and err.message and (err.code or "data")
  if not code or code == "memory" or code == "interrupted" then error(err, 0) end
  return nil, ("%s: %s"):format(path, err.message), "data"
end

--- f(model, o) for the model of a path, or nil, message, code where the file is at fault.
local function with_model(read, path, o, f)
  local model, message, code = read(path)
  if not model then return nil, message, code end

  check_names(model, o)
  check_dims(o)
  local ok, result = pcall(function()
    if o.outputs then graph.cut(model, o.outputs) end
    return f(model, o)
  end)
  if not ok then return failed(path, result) end
  return result
end

--- Gives a workspace the weights, which nobody else holds: as they are, so that there is no moment
-- with two of each. A tensor that two names have is copied for the second.
local function feed_weights(ws, weights)
  local taken = {}
  for _, name in ipairs(options.keys(weights)) do
    local t = weights[name]
    -- a tensor that stands twice is shared once.
    ws:feed(name, t, { share = not taken[t] })
    taken[t], weights[name] = true, nil
  end
end

--- What the file leaves open, for those that write it again: {names = of sizes, asked = dims of the
-- options, build = f({name = size}) -> what onnx.build gives}.
local function open_sizes(build_at, o, inputs)
  local names, seen = {}, {}
  for _, input in ipairs(inputs) do
    local is_said = o.shapes and o.shapes[input.name]
    for _, size in ipairs(not is_said and input.dims or {}) do
      if type(size) == "string" and not seen[size] then
        seen[size], names[#names + 1] = true, size
      end
    end
  end
  return { names = names, asked = o.dims, build = function(sizes)
    local dims = {}
    for _, name in ipairs(names) do dims[name] = sizes[name] end
    local built, message, code = build_at(setmetatable({ dims = dims }, { __index = o }))
    if not built then error(core.error { code = code, message = message }, 0) end
    return built
  end }
end

local function as_module(model, o) return require "neap.onnx.module"(model, o) end

--- neap.import and net files of a format whose files `read` gives as models of this form.
-- @tparam function read path -> model, or nil, message, code
function onnx.reader(read)
  local reader = {}

  --- A net in a workspace with the file's weights: {net =, workspace =, notes =}; or with o.model a
  -- module. nil, message, code where the file is at fault.
  function reader.import(path, o)
    if o.model then return with_model(read, path, o, as_module) end
    local inputs
    local built, message, code = with_model(read, path, o, function(model, given)
      inputs = onnx.fed(onnx.open_inputs(model), given)
      return onnx.build(model, given)
    end)
    if not built then return nil, message, code end

    -- The workspace takes the tensors over; the file's tables go before anything runs.
    local input_names = kit.map(inputs, function(input) return built.input_names[input.name] end)
    local ws = require("neap.workspace").new {}
    feed_weights(ws, built.weights)
    ws:init(built.net)
    collectgarbage() -- the file as tables, many times what the net is
    local f = { net = built.net, workspace = ws, notes = built.notes }
    local function build_at(given) return with_model(read, path, given, onnx.build) end
    f._for = require "neap.onnx.sizes"(f, build_at, o, inputs, input_names)
    f._open = open_sizes(build_at, o, inputs)
    return f
  end

  --- What a net file would give: {model =, batch =, gives = dtype of the first output}, the batch
  -- as given or else the file's own; {net =} where its shapes have no one batch. nil, message, code
  -- where the file is at fault.
  -- @param dims {name = size} of the file's dimensions, or nil
  function reader.net_file(path, batch, dims)
    return with_model(read, path, { model = true, dims = dims }, function(model, o)
      batch = batch or own_batch(model, o)
      if batch then
        local m = as_module(model, o)
        local dtype = (kit.types[m._onnx.elems[1]] or {}).dtype
        return { model = m, batch = batch, gives = dtype }
      end
      return { net = onnx.build(model, o).net }
    end)
  end

  return reader
end

local own = onnx.reader(onnx.read)
onnx.import, onnx.net_file = own.import, own.net_file

return onnx
