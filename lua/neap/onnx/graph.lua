--- The way through an ONNX graph: node by node, each by the builder of its op, over values that are
-- tensors where the file says them and blobs where a run will. What depends on tensors alone is
-- computed at once, so that shapes that the exporting program computed by nodes are numbers here.
--
-- A value is {x = tensor or blob, elem = ONNX's element type, name =} or {list = values} for a
-- sequence. `parameter`: its numbers are weights; where a node reads it beside a blob it becomes a
-- parameter of the net; "fixed": one that is not trained. `seen`: they are what a net has seen, its
-- state. `sized`: they come of the sizes of what is not known, and may be others where those are.
-- `settle`: a function that gives the value as it leaves a graph, where it lies otherwise within
-- (neap.tflite.kit).
-- `made_by`, `at`: the node that it comes of, and as which of its outputs.
-- @module neap.onnx.graph
local core = require "neap.core"
local dtypes = require "neap.inner.dtypes"
local kit = require "neap.onnx.kit"
local Node = require "neap.onnx.node"
local op = require "neap.op"
local ops = require "neap.onnx.ops"
local signature = require "neap.onnx.signature"

local graph = {}

--- Tensors of more elements are no part of the net's text: a workspace is given them.
local MOST_WRITTEN = 64
--- Tensors of more elements are no masks, and are not looked through for infinities.
local MOST_MASKED = 1 << 24

--- Functions and subgraphs within each other: of more Lua's own stack would end.
local MOST_DEEP <const> = 64
--- So many nodes are met at most, turns of loops and calls of functions included: a few functions
-- that call each other twice over would have nodes without end.
graph.most_nodes = 1 << 20

local State = {}
State.__index = State

local build

-- ---- names --------------------------------------------------------------------------------------

--- A name that a net can have: ONNX's are any text.
local function clean(name)
  name = name:gsub("[^%w._/:-]", "_"):gsub("/+", "/"):gsub("^/", ""):gsub("/$", "")
  return name ~= "" and name or "value"
end
graph.clean = clean

-- ---- values -------------------------------------------------------------------------------------

--- A tensor as a value; weights are floats with a dimension.
local function known(t, elem, name, parameter)
  return { x = t, elem = elem or kit.elem_of[t.dtype], name = name,
    parameter = dtypes.is_float[t.dtype] and #t.shape > 0 and parameter }
end
graph.known = known

--- Whether a tensor hides something by infinities: a mask, which training must leave as it is.
local function is_mask(t)
  if t:n_element() > MOST_MASKED then return false end
  local found = t:stats()
  return found.inf > 0 or found.nan > 0
end

--- What becomes of a weight in a net: true, it is trained; "fixed", it is not.
local function training_of(v)
  return v.parameter == true and is_mask(v.x) and "fixed" or v.parameter
end

--- Whether a value of several inputs is a weight: a fixed one where all of its weights are.
local function inherited(inputs)
  local parameter
  for _, input in pairs(inputs) do
    if parameter ~= true then parameter = input.parameter or parameter end
  end
  return parameter
end

--- What of weights was computed at once and is of other sizes at the next, as the rows of a table
-- that a text has positions for: the same by ops of the net, so that weights are the file's, whole,
-- whatever sizes a net is built for. nil where its node makes no blob of them.
function State:unfolded(v)
  local made_by = v.made_by
  local f = made_by and ops.find(made_by.row.domain, made_by.row.op)
  if not f then return nil end

  local state = setmetatable({ net = self.net, readers = {}, absorbed = {} },
    { __index = made_by.state })
  local node = setmetatable({ state = state, folds = false }, { __index = made_by })
  local row = node.row
  local results = row.name == "" and build(node, f)
    or self.net:scope(clean(row.name), build, node, f)
  local x = results[v.at]
  if not op.is_blob(x) then return nil end
  -- A blob of a branch is not there beside it.
  if self.net == self.root then v.blob = x end
  return x
end

--- The operand that stands for a value beside blobs: weights and large tensors are blobs of the
-- net's own, whose numbers `self.weights` has by name. Of weights alone (`anew`, where a graph is
-- gone through for each size) what comes of sizes is none: it is a constant of each net, or ops.
function State:operand(v)
  if v.blob then return v.blob end
  local is_own = v.parameter == true or v.seen

  local small = kit.is_known(v.x) and not is_own and v.x:n_element() <= MOST_WRITTEN
  if small or not kit.is_known(v.x) then return v.x end
  if self.anew and v.sized then return v.parameter and self:unfolded(v) or v.x end
  v.blob = self.declare(self.root, clean(v.name), v.x, training_of(v), v.sized)
  return v.blob
end

--- Raises: input i of the node must be known before the net is built, and depends on inputs of the
-- graph. An importer that has their values may bind them and begin anew.
function State:need(node, i, v, why)
  -- Back from the value to the inputs of the graph that it comes of.
  local names, seen = {}, {}
  local function walk(value)
    if seen[value] then return end
    seen[value] = true
    if value.input then names[#names + 1] = value.input end
    for _, from in pairs(value.from or {}) do walk(from) end
    for _, item in ipairs(value.list or {}) do walk(item) end
  end
  walk(v)
  table.sort(names)
  error(setmetatable({ needs = names, message = ("%s: its input %d must be known when the net is \z
    built, and depends on %s: bind that to a value, \z
    { constants = { [\"%s\"] = tensor } }%s"):format(node:place(), i,
      table.concat(names, ", "), names[1] or "", why and "; else: " .. why or "") }, graph.Need))
end
graph.Need = { __tostring = function(e) return e.message end, __name = "neap.onnx.need" }

-- ---- nodes --------------------------------------------------------------------------------------

--- The same numbers as a value of its own.
local function apart_from(v, name)
  return { x = v.x:clone(), elem = v.elem, name = name or v.name, parameter = v.parameter }
end

--- The weight that a node reads where the file has another one, which was equal to it.
local function own_weight(node, v, name)
  local owner_of = node.state.said.owner_of
  local owner = owner_of and owner_of(node.row, name)
  if not owner then return v end
  v.others = v.others or {}
  local other = v.others[owner] or apart_from(v, not owner:find " " and owner or nil)
  v.others[owner] = other
  return other
end

--- The inputs of a node: values, nil where one is left out.
local function inputs_of(node, env)
  local inputs = {}
  for i, name in ipairs(node.row.inputs) do
    if name ~= "" then
      local v = env[name]
      if v == nil then
        node:fail("input %d, \"%s\", is made by no node before this one", i, name)
      end
      inputs[i] = v.is_initializer and own_weight(node, v, name) or v
    end
  end
  return inputs
end

local function all_known(inputs)
  for _, v in pairs(inputs) do
    if v.list and not all_known(v.list) or v.x and not kit.is_known(v.x) then return false end
  end
  return true
end

--- Ops that move each element to one place: what they make of a weight that nobody else reads is
-- the weight itself, otherwise laid out.
local moves = kit.words "Identity Transpose Reshape Flatten Squeeze Unsqueeze Split Slice Concat \z
  Cast CastLike"

--- Whether a node whose inputs are known stays one of the net: what it makes of weights that are
-- trained would be weights of its own else, and drift apart from them, as the tiles of a scale or
-- the product of a weight and its norm.
function State:stays(node)
  if not self.whole then return false end
  for i, v in pairs(node.inputs) do
    local is_weight = v.parameter == true
    local readers = is_weight and self.readers[node.row.inputs[i]]
    local is_shared = type(readers) == "table" and #readers > 1
    if is_weight and (is_shared or node.row.domain ~= "" or not moves[node.row.op]) then
      return true
    end
  end
  return false
end

--- The element type of a result: unsigned types that lie in i64 keep their name.
local function elem_of(x, inputs)
  local first = inputs[1]
  if x.dtype == "i64" and first and (first.elem == kit.U32 or first.elem == kit.U64) then
    return first.elem
  end
  return kit.elem_of[x.dtype]
end

--- A builder's result as a value: an operand, or a value that it made itself.
local function value_of(result, node, name)
  if result == nil then return nil end
  local v = result
  if op.is_tensor(result) or op.is_blob(result) then
    v = { x = result, elem = elem_of(result, node.inputs) }
    v.parameter = dtypes.is_float[result.dtype] and #result.shape > 0 and inherited(node.inputs)
    v.from = not kit.is_known(result) and node.inputs or nil
  end
  v.name = v.name or name
  -- What is known of operands that are not is what their sizes say.
  v.sized = v.sized or v.x and kit.is_known(v.x) and not all_known(node.inputs)
  for _, input in pairs(node.inputs) do v.sized = v.sized or input.sized end
  return v
end

--- How many operands a builder names; those behind them it asks for itself.
local function n_named(f)
  local info = debug.getinfo(f, "u")
  return info.isvararg and math.huge or info.nparams - 1
end

function build(node, f)
  local domain, name = node.row.domain, node.row.op
  for i = 1, ops.n_needed(domain, name) do
    if not node.inputs[i] and ops.is_needed(domain, name, i) then
      node:fail("input %d is missing", i)
    end
  end
  -- Running statistics are state, whatever the file has them as.
  for _, i in ipairs(node.row.domain == "" and ops.statistics[node.row.op] or {}) do
    local v, readers = node.inputs[i], node.state.readers[node.row.inputs[i]]
    -- What others read, too, is equal to them now: it moves with this node's batches alone.
    if v and v.x and kit.is_known(v.x) and type(readers) == "table" and #readers > 1 then
      v = apart_from(v)
      node.inputs[i] = v
    end
    if v then v.parameter, v.seen = false, true end
  end

  -- First states of zeros are what an exporter writes for a net that learns none.
  for _, i in ipairs(node.row.domain == "" and ops.first_states[node.row.op] or {}) do
    local v = node.inputs[i]
    local is_own = v and v.parameter == true and not v.made_by and v.x and kit.is_known(v.x)
    if is_own and v.x:stats().zero == v.x:n_element() then v.parameter = "fixed" end
  end

  local args, n = {}, math.min(n_named(f), #node.row.inputs)
  for i = 1, n do args[i] = node:x(i) end
  return table.pack(f(node, table.unpack(args, 1, n)))
end

--- What went wrong in a builder, with the node in front.
local function located(node, err)
  local is_table = type(err) == "table"
  if getmetatable(err) == graph.Need or is_table and rawget(err, "located") then return err end
  -- The place of a line in Neap, or in a program that calls it, tells nothing of the file.
  local message = is_table and err.message or tostring(err):gsub("^%S-:%d+: ", "")
  return kit.located(is_table and err.code or "data", ("%s: %s"):format(node:place(), message))
end

local function define(env, name, v, node)
  if rawget(env, name) ~= nil then node:fail("\"%s\" is made twice", name) end
  rawset(env, name, v)
end

--- What a node gives, by its builder or by the model's own function; the ops that it adds stand in
-- a scope of its name.
function State:results_of(node, row)
  local f = ops.find(row.domain, row.op)
  if not f then return self:run_function(self.functions[row.domain .. ":" .. row.op], node) end
  -- What folds adds no ops, and so needs no scope.
  if row.name == "" or node.folds then return build(node, f) end
  return self.net:scope(clean(row.name), build, node, f)
end

--- The module that reads a value, by the name of the first node that does: calls of one that is
-- called again have numbers behind them.
local function reading_module(state, name)
  for _, row in ipairs(state.readers[name] or {}) do
    local path = row.op ~= "Identity" and row.name:match "^(.*)/[^/]*$"
    if path then return (path .. "/"):gsub("_%d+/", "/") end
  end
end

--- Whether a node gives a weight under another weight's name: so PyTorch's tracing exporter writes
-- weights of several layers that were equal when it wrote them.
local function is_merged_copy(state, node)
  local row, v = node.row, node.inputs[1]
  local copies = row.op == "Identity" and row.domain == "" and state.is_traced
  if not (copies and v and v.is_initializer and state.net == state.root) then return false end

  -- What it has computed has no name of its own: of one layer that is called twice it is the same.
  if not row.inputs[1]:match "^onnx::" then return true end
  return reading_module(state, row.inputs[1]) ~= reading_module(state, row.outputs[1])
end

function State:run_node(row, env)
  local node = setmetatable({ row = row, state = self, env = env,
    version = self.opsets[row.domain] or 1 }, Node)
  local ok, err = xpcall(function()
    self.count.n = self.count.n + 1
    if self.count.n > graph.most_nodes then
      node:fail("more than %d nodes in all turns and calls", graph.most_nodes)
    end
    node.inputs = inputs_of(node, env)
    if is_merged_copy(self, node) then
      local v = node.inputs[1]
      return define(env, row.outputs[1], apart_from(v, row.outputs[1]), node)
    end
    -- Weights stay the bytes that they are.
    node.folds = all_known(node.inputs) and row.op ~= "DequantizeLinear" and not self:stays(node)
    local results = self:results_of(node, row)
    for i, name in ipairs(row.outputs) do
      if name ~= "" then
        if results[i] == nil then node:fail("output %d is not computed", i) end
        local v = value_of(results[i], node, name)
        if not v.made_by then v.made_by, v.at = node, i end
        if self.net == self.root and op.is_blob(v.x) then table.insert(self.made, v) end
        define(env, name, v, node)
      end
    end
  end, function(e) return located(node, e) end)
  if not ok then error(err, 0) end
end

--- A function of the model: its nodes in an environment of their own.
function State:run_function(f, node)
  if self.depth >= MOST_DEEP then node:fail "functions call each other without end" end

  local inner = setmetatable({ opsets = next(f.opsets) and f.opsets or self.opsets,
    depth = self.depth + 1, attrs = {}, readers = {}, absorbed = {} }, { __index = self })
  for name, attr in pairs(f.defaults) do inner.attrs[name] = attr end
  for name, attr in pairs(node.row.attrs) do
    if attr.kind == "ref" then attr = self.attrs and self.attrs[attr.value] end
    inner.attrs[name] = attr
  end
  -- A function sees its inputs alone.
  local env = {}
  for i, name in ipairs(f.inputs) do env[name] = node.inputs[i] end
  for _, row in ipairs(f.nodes) do State.run_node(inner, row, env) end
  local results = { n = #f.outputs }
  for i, name in ipairs(f.outputs) do results[i] = env[name] end
  return results
end

local each_read

--- The names that a subgraph reads, its own and those around it, each once. Several nodes may have
-- one subgraph, which is gone through once.
local function reads_of(g)
  if g.reads then return g.reads end
  local list, seen = {}, {}
  local function note(name)
    if not seen[name] then list[#list + 1], seen[name] = name, true end
  end
  for _, row in ipairs(g.nodes) do each_read(row, note) end
  for _, output in ipairs(g.outputs) do note(output.name) end
  g.reads = list
  return list
end

--- Calls f for each name that a node reads, subgraphs and what they read from around them too.
function each_read(row, f)
  for _, name in ipairs(row.inputs) do
    if name ~= "" then f(name) end
  end
  for _, attr in pairs(row.attrs) do
    if attr.kind == "graph" then
      for _, name in ipairs(reads_of(attr.value)) do f(name) end
    end
  end
end

--- The nodes so that each stands behind those whose outputs it reads: as they are where that holds,
-- as the standard asks. What stands on a cycle comes last, and is refused when it is met.
local function in_order(nodes)
  -- How many of a node's inputs wait for others, and who waits for it.
  local maker, waits, readers = {}, {}, {}
  for i, row in ipairs(nodes) do
    for _, name in ipairs(row.outputs) do maker[name] = maker[name] or i end
  end
  local sorted = true
  for i, row in ipairs(nodes) do
    waits[i], readers[i] = 0, readers[i] or {}
    each_read(row, function(name)
      local by = maker[name]
      if by and by ~= i then
        readers[by] = readers[by] or {}
        table.insert(readers[by], i)
        waits[i] = waits[i] + 1
        sorted = sorted and by < i
      end
    end)
  end
  -- As the standard asks, and nearly all files are.
  if sorted then return nodes end

  -- Nodes go as soon as all that they read is there, the first of the file first.
  local ready, out, taken = {}, {}, {}
  for i in ipairs(nodes) do
    if waits[i] == 0 then ready[#ready + 1] = i end
  end
  local next_ready = 1
  while ready[next_ready] do
    local i = ready[next_ready]
    next_ready, out[#out + 1], taken[i] = next_ready + 1, nodes[i], true
    for _, reader in ipairs(readers[i]) do
      waits[reader] = waits[reader] - 1
      if waits[reader] == 0 then ready[#ready + 1] = reader end
    end
  end
  for i, row in ipairs(nodes) do
    if not taken[i] then out[#out + 1] = row end
  end
  return out
end

--- By name, the nodes of a graph that read it, in a list; false for one that leaves the graph.
local function readers_of(g)
  local readers = {}
  for _, row in ipairs(g.nodes) do
    each_read(row, function(name)
      local list = readers[name] or {}
      list[#list + 1], readers[name] = row, list
    end)
  end
  for _, output in ipairs(g.outputs) do readers[output.name] = false end
  return readers
end

--- Initializers that are others turned, of PyTorch's exporters: {name = name of the other}. What
-- layers multiply with they write turned, and what is looked up in as it is: an embedding that is
-- the head, too, is there twice.
local function turned_copies(g, said)
  local by_name, tables, out = {}, {}, {}
  for _, t in ipairs(g.initializers) do
    if t.tensor and #t.tensor.shape == 2 then by_name[t.name] = t.tensor end
  end
  for _, row in ipairs(g.nodes) do
    local name = row.op == "Gather" and row.domain == "" and row.inputs[1]
    if name and by_name[name] then tables[#tables + 1] = name end
  end

  local function is_turned(t, of)
    local x = by_name[of]
    return x and x.dtype == t.dtype and x.shape[1] == t.shape[2] and x.shape[2] == t.shape[1]
      and x:transpose(1, 2):contiguous():equal(t)
  end
  for name, t in pairs(by_name) do
    local of = said.turned_of(name)
    if of and of ~= name and is_turned(t, of) then out[name] = of end
    for _, table_name in ipairs(name:match "^onnx::MatMul_%d+$" and tables or {}) do
      if is_turned(t, table_name) then out[name] = table_name end
    end
  end
  return out
end

--- Initializers that are a parameter's one row for each example of a batch, as the first token of
-- images is: {name = node that makes them of the row}, which gets the parameter's name in `env`.
local function spread_rows(g, said, env)
  local out = {}
  for _, t in ipairs(g.initializers) do
    local x, of = t.tensor, said.spread_of(t.name)
    if of and x and dtypes.is_float[x.dtype] and #x.shape > 1 and x.shape[1] > 1 then
      local row = x:narrow(1, 1, 1):contiguous()
      local found = x:stats()
      if found.min ~= found.max and row:expand(x.shape):equal(x) then
        local sizes = of .. " sizes"
        rawset(env, of, known(row, t.elem, of, true))
        rawset(env, sizes, known(core.tensor(x.shape, "i64"), nil, sizes))
        out[t.name] = { op = "Expand", domain = "", name = "", inputs = { of, sizes },
          outputs = { t.name }, attrs = {}, place = t.name }
      end
    end
  end
  return out
end

--- The nodes of a graph in order; a subgraph sees the values around it.
-- @return environment with all its values
function State:run_graph(g, env)
  -- A loop that can't be one of the net is tried another way: what is around it stays as it was.
  local readers, absorbed = rawget(self, "readers"), rawget(self, "absorbed")
  local _ <close> = setmetatable({}, { __close = function()
    self.readers, self.absorbed = readers, absorbed
  end })
  self.readers, self.absorbed = readers_of(g), {}

  -- A module's weight that is there turned, too, or once for each example, is one.
  local is_module = self.whole and self.net == self.root
  local made = is_module and spread_rows(g, self.said, env) or {}
  for name, of in pairs(is_module and turned_copies(g, self.said) or {}) do
    local row = { op = "Transpose", domain = "", name = "", inputs = { of }, outputs = { name },
      attrs = { perm = { kind = "ints", value = { 1, 0 } } }, place = name }
    made[name] = row
    if self.readers[of] then table.insert(self.readers[of], row) end
  end
  for _, t in ipairs(g.initializers) do
    if rawget(env, t.name) == nil and not made[t.name] then
      local is_weight = not self.statistics[t.name] and self.weight_kind(t.name)
      local v = t.tensor and known(t.tensor, t.elem, t.name, is_weight)
      if v then v.is_initializer = v.parameter == true end
      rawset(env, t.name, v or { texts = t.texts, name = t.name })
    end
  end
  for _, t in ipairs(g.initializers) do
    if made[t.name] then self:run_node(made[t.name], env) end
  end
  for _, row in ipairs(in_order(g.nodes)) do self:run_node(row, env) end
  return env
end

--- The values of a subgraph's outputs, with its inputs bound.
function State:run_subgraph(g, around, inputs)
  local depth = self.depth
  if depth >= MOST_DEEP then kit.fail("more than %d graphs within each other", MOST_DEEP) end
  local _ <close> = setmetatable({}, { __close = function() self.depth = depth end })
  self.depth = depth + 1

  -- What the subgraph does not define it sees in the graph around it, and defines nothing there.
  local env = setmetatable({}, { __index = around })
  for i, input in ipairs(g.inputs) do rawset(env, input.name, inputs[i]) end
  self:run_graph(g, env)
  return kit.map(g.outputs, function(output)
    local v = env[output.name]
    if v == nil then
      kit.fail("the subgraph's output \"%s\" is made by no node", output.name)
    end
    return v.settle and v:settle() or v
  end)
end

--- The model's graph with other outputs, values of its nodes by name: what these need, and no more.
function graph.cut(model, names)
  local g, wanted, made, nodes = model.graph, {}, {}, {}
  for _, row in ipairs(g.nodes) do
    for _, name in ipairs(row.outputs) do made[name] = true end
  end
  g.outputs = kit.map(names, function(name)
    if not made[name] then kit.fail("outputs: no node makes \"%s\"", tostring(name)) end
    wanted[name] = true
    return { name = name, kind = "tensor" }
  end)

  -- From the end: a node stays if something wanted is made by it, and wants then what it reads.
  local ordered = in_order(g.nodes)
  for i = #ordered, 1, -1 do
    local on = false
    for _, name in ipairs(ordered[i].outputs) do on = on or wanted[name] end
    if on then
      table.insert(nodes, 1, ordered[i])
      each_read(ordered[i], function(name) wanted[name] = true end)
    end
  end
  g.nodes = nodes
end

-- ---- what is lacking ----------------------------------------------------------------------------

--- The ops that a model has and Neap lacks: {{op =, node =}, ..}, in order, subgraphs and functions
-- included.
function graph.lacking(model)
  local out, functions, seen = {}, {}, {} -- seen: functions by key, and graphs
  for _, f in ipairs(model.functions) do functions[f.domain .. ":" .. f.name] = f end

  local walk
  local function look(row)
    local key = row.domain .. ":" .. row.op
    if functions[key] and not ops.find(row.domain, row.op) then
      if not seen[key] then
        seen[key] = true
        walk(functions[key])
      end
    elseif not ops.find(row.domain, row.op) then
      out[#out + 1] = { op = row.domain == "" and row.op or row.domain .. "." .. row.op,
        node = row.name ~= "" and row.name or row.outputs[1] or "", place = row.place }
    end
    for _, attr in pairs(row.attrs) do
      if attr.kind == "graph" then walk(attr.value) end
    end
  end
  function walk(g)
    if seen[g] then return end
    seen[g] = true
    for _, row in ipairs(g.nodes) do look(row) end
  end
  walk(model.graph)
  return out
end

-- ---- the whole ----------------------------------------------------------------------------------

--- Whether a model's file has weights where files have them, among the initializers: then what its
-- Constant nodes hold are numbers of the program, the scale of an attention or a mask, that no
-- training moves. A file that has none keeps its weights in such nodes.
local function has_initializers(g)
  for _, t in ipairs(g.initializers) do
    if t.tensor and dtypes.is_float[t.tensor.dtype] and #t.tensor.shape > 0 then return true end
  end
  return false
end

--- The names of what becomes running statistics, as it is or by nodes that read nothing else: no
-- weights. Of statistics that the net computes of its inputs there is none.
local function statistics_of(g)
  -- From the front: what depends on the inputs.
  local maker, varies, names, waiting = {}, {}, {}, {}
  for _, input in ipairs(g.inputs) do varies[input.name] = true end
  for _, t in ipairs(g.initializers) do varies[t.name] = nil end
  for _, row in ipairs(in_order(g.nodes)) do
    local on = false
    each_read(row, function(name) on = on or varies[name] end)
    for _, name in ipairs(row.outputs) do maker[name], varies[name] = row, on or nil end
    for _, i in ipairs(row.domain == "" and ops.statistics[row.op] or {}) do
      waiting[#waiting + 1] = row.inputs[i]
    end
  end

  -- From the statistics back to what they are made of, ..
  while #waiting > 0 do
    local name = table.remove(waiting)
    if not names[name] and not varies[name] then
      names[name] = true
      local from = maker[name] and maker[name].inputs or {}
      table.move(from, 1, #from, #waiting + 1, waiting)
    end
  end

  -- .. but what is read as something else, too: a weight that only equals the statistics.
  for _, row in ipairs(g.nodes) do
    local makes = false
    for _, name in ipairs(row.outputs) do makes = makes or names[name] end
    local is_statistic = {}
    for _, i in ipairs(row.domain == "" and ops.statistics[row.op] or {}) do
      is_statistic[i] = true
    end
    for i, name in ipairs(not makes and row.inputs or {}) do
      if not is_statistic[i] then names[name] = nil end
    end
  end
  return names
end

--- Runs a model's graph on values by name of its inputs. `declare(net, name, tensor, parameter)`
-- gives the blob of a weight, which is the outermost net's, wherever it is read; `parameter` is
-- true, "fixed" of one that is not trained, or false of state.
-- @param anew whether the graph is gone through for each size, with the same weights
-- @param trained {module =, whole =}, nil of a function: whether the module trains decides what
-- nodes do that the file has in their training form; with `whole` weights are the file's, and what
-- is made of them is made in each run
-- @return list of the outputs' values, and one of what the nodes have made in the net
function graph.run(model, net, inputs, declare, anew, trained)
  trained = trained or {}
  local said = signature(model.graph)
  local state = setmetatable({ net = net, root = net, opsets = model.opsets, functions = {},
    depth = 0, count = { n = 0 }, declare = declare, made = {}, anew = anew,
    module = trained.module, whole = trained.whole, statistics = statistics_of(model.graph),
    said = said, weight_kind = said.kind_of,
    is_traced = model.producer == "pytorch" and not said.says,
    constants_are = has_initializers(model.graph) and "fixed" or true }, State)
  for _, f in ipairs(model.functions) do state.functions[f.domain .. ":" .. f.name] = f end

  local env = {}
  for name, v in pairs(inputs) do env[name] = v end
  state:run_graph(model.graph, env)
  return kit.map(model.graph.outputs, function(output)
    local v = env[output.name]
    if v == nil then
      kit.fail("output \"%s\" is made by no node", output.name)
    end
    return v.settle and v:settle() or v
  end), state.made
end

return graph
