--- A TFLite file (src/lua/tflite.c) as a model such as ONNX files give: tensors that are known by
-- their numbers become values by name, operators nodes of the domain "tflite". A node has beside it
-- the tensors that it reads and makes, with the file's sizes and quantisation: `reads`, `makes`.
--
-- Names of tensors are any text, and several may have the same: each gets one of its own.
-- @module neap.tflite.model
local core = require "neap.core"
local kit = require "neap.onnx.kit"

-- Operators that run subgraphs: the options that say which, and what a node calls them.
local subgraphs = {
  IF = { then_subgraph_index = "then_branch", else_subgraph_index = "else_branch" },
  WHILE = { cond_subgraph_index = "cond", body_subgraph_index = "body" },
  CALL = { subgraph = "body" },
}

--- The first of the names that a converter has put together with ";", without what it says of where
-- a weight came from.
local function short(name)
  local first = name:match "^[^;]+" or ""
  return (first:gsub("/ReadVariableOp.*$", ""):gsub("/resource$", ""))
end

--- Names for the tensors of a graph, each once; those of a subgraph are no other graph's.
local function name_all(tensors, number)
  local taken, before = {}, number > 1 and ("graph%d:"):format(number) or ""
  for i, t in ipairs(tensors) do
    local name = short(t.name or "")
    name = before .. (name ~= "" and name or "tensor" .. i)

    local key, n = name, 1
    while taken[key] do
      n = n + 1
      key = name .. "_" .. n
    end
    taken[key], t.key = true, key
  end
end

--- ONNX's number of the element type: what the rest of the way knows types by.
local function elem_of(t)
  if t.type == "uint32" then return kit.U32 end
  return t.dtype and kit.elem_of[t.dtype] or 0
end

--- An input of the graph. Its first dimension is a batch that may be another where it is 1 in the
-- file; other sizes that the file leaves open have names, too.
local function input_of(t)
  local dims = kit.map(t.dims, function(size, d)
    if d == 1 and #t.dims > 1 and size == 1 then return "batch" end
    return t.open[d] and size == 1 and "dim" .. d or size
  end)
  return { name = t.key, kind = "tensor", elem = elem_of(t), dims = dims, sizes = t.dims }
end

local function names_of(tensors, places)
  return kit.map(places, function(place) return place > 0 and tensors[place].key or "" end)
end

--- The tensors themselves: nil for what is left out.
local function tensors_of(tensors, places)
  local out = {}
  for i, place in ipairs(places) do out[i] = tensors[place] end
  return out
end

--- Which tensors something makes: operators, or whoever runs the graph.
local function made_in(g)
  local made = {}
  for _, place in ipairs(g.inputs) do made[place] = true end
  for _, row in ipairs(g.nodes) do
    for _, place in ipairs(row.outputs) do made[place] = true end
  end
  return made
end

--- Zeros of a tensor's sizes.
local function zeros_of(t)
  local n = kit.product(t.dims)
  if not kit.has_room(n) then
    kit.fail("\"%s\" has %d elements, more than there is memory for", t.key, n)
  end
  return core.zeros { dtype = t.dtype, table.unpack(t.dims) }
end

--- Tensors that are known before anything runs: those with numbers in the file, what lasts from run
-- to run, which begins as zeros, and what has no elements.
local function initializers_of(g, notes)
  local list, made = {}, made_in(g)
  for place, t in ipairs(g.tensors) do
    local x = t.tensor

    -- A state that an operator writes begins as zeros; a tensor that none makes and that has no
    -- elements needs no numbers.
    if not x and t.variable and t.dtype and not made[place] then
      x = zeros_of(t)
      notes[#notes + 1] = ("\"%s\" begins as zeros in every run, and is not kept"):format(t.key)
    elseif not x and not made[place] and t.dtype and kit.product(t.dims) == 0 then
      x = zeros_of(t)
    end
    if x then list[#list + 1] = { name = t.key, elem = elem_of(t), tensor = x } end
  end
  return list
end

local graph_of

--- Notes of operators that read floats and make floats with weights in few bits: TensorFlow Lite
-- brings x to 8 bits in each run for these, which is its way to be fast.
local function note_hybrids(nodes, notes)
  for _, row in ipairs(nodes) do
    local x, w, y = row.reads[1], row.reads[2], row.makes[1]

    local is_hybrid = x and w and y and x.dtype == "f32" and y.dtype == "f32" and w.tensor
      and w.scale and w.dtype ~= "f32"
    if is_hybrid then
      notes[#notes + 1] = ("%s: weights of %s are numbers times x as it is; TensorFlow Lite \z
        brings x to 8 bits first"):format(row.place, w.dtype)
    end
  end
end

--- The options, with the subgraphs that they name in their place.
local function attrs_of(file, row, place)
  local attrs = row.attrs
  for option, name in pairs(subgraphs[row.op] or {}) do
    local index = attrs[option] and attrs[option].value or -1
    if not file.graphs[index + 1] then
      kit.fail("%s: subgraph %d, the file has %d", place, index + 1, #file.graphs)
    end

    attrs[name] = { kind = "graph", value = graph_of(file, index + 1) }
  end
  return attrs
end

--- Subgraph `number` as a graph, made once: `file.made` has it, or false while it is being made.
-- One that runs itself, at any depth, is no net.
function graph_of(file, number, notes)
  local g, made = file.graphs[number], file.made
  if made[number] == false then kit.fail("subgraph %d runs itself", number) end
  if made[number] then return made[number] end
  -- The mark comes before the nodes, whose attributes may name subgraphs, and so lead back here.
  made[number] = false
  name_all(g.tensors, number)
  local nodes = kit.map(g.nodes, function(row, i)
    local place = ("subgraph %d, operator %d (%s)"):format(number, i, row.op)
    return { op = row.op, domain = "tflite", name = "", place = place, version = row.version,
      inputs = names_of(g.tensors, row.inputs), outputs = names_of(g.tensors, row.outputs),
      reads = tensors_of(g.tensors, row.inputs), makes = tensors_of(g.tensors, row.outputs),
      attrs = attrs_of(file, row, place) }
  end)
  local function values(places)
    return kit.map(places, function(place) return input_of(g.tensors[place]) end)
  end
  note_hybrids(nodes, notes or {})
  made[number] = { name = g.name or "main", nodes = nodes, inputs = values(g.inputs),
    outputs = values(g.outputs), initializers = initializers_of(g, notes or {}) }
  return made[number]
end

return function(file)
  local notes = {}
  file.made = {}
  local g = graph_of(file, 1, notes)
  return { opsets = {}, functions = {}, graph = g, notes = notes }
end
