--- The way from a net to an ONNX model: op by op, each by the writer that stands beside the builder
-- of its ONNX op (neap.onnx.ops, `out`). The result is tables as core.read_onnx gives them.
--
-- A value is {dims =, dtype =} of what a node makes, an input is fed, or a blob holds; `tensor` are
-- its numbers where the file has them. Values get their names last, so that outputs have theirs.
-- A dimension is a size, or a table where it is known when the model runs: {text = "batch*4",
-- times = 4, of = {batch = 1}, sizes =} is so many times sizes that have names; {unknown = why,
-- sizes =} is one that follows from them otherwise. `sizes` are those of the net that is written
-- and of each of the others, which have one named size doubled.
-- @module neap.onnx.out
local core = require "neap.core"
local kit = require "neap.onnx.kit"
local named_sizes = require "neap.onnx.named_sizes"
local ops = require "neap.onnx.ops"

local out = {}

-- ---- the op that is being written ---------------------------------------------------------------

--- What a writer is given: the op's attributes, types of its operands, and ways to add nodes.
local Op = {}
Op.__index = Op

--- Raises: what about this op has no place in ONNX.
function Op:lacks(format, ...)
  error({ lacks = format and format:format(...) or true }, 0)
end

--- Whether ops of this version may be written: all may where no opset is asked for, and the model
-- gets the opset of the newest of them.
function Op:has(version)
  local model = self.state.model
  if model.opset then return model.opset >= version end
  model.needs = math.max(model.needs, version)
  return true
end

function Op:needs(version)
  if not self:has(version) then
    self:lacks("it has that from opset %d on, %d is asked for", version, self.state.model.opset)
  end
end

--- Whether an op's form changes with this version of the model.
function Op:from(version) return (self.state.model.opset or math.huge) >= version end

function Op:dims(i)
  return self.ins[i].dims or self:lacks("the shape of its input %d is not known", i)
end
function Op:dtype(i) return self.ins[i or 1].dtype end

--- The type that output k must have.
function Op:result(k) return self.results[k or 1] end

--- All sizes as numbers; `what` is said of those that are not.
function Op:static(dims, what)
  for _, size in ipairs(dims) do
    if type(size) == "table" then
      self:lacks("%s depends on %s", what, size.unknown and "sizes with names" or size.text)
    end
  end
  return dims
end

-- ---- values and nodes ---------------------------------------------------------------------------

local attr_kinds = { string = "text", boolean = "int" }

--- A Lua value as an attribute: by its type, lists by that of their first item.
local function attribute(value)
  local kind = attr_kinds[type(value)] or math.type(value) == "integer" and "int" or "float"
  if type(value) == "boolean" then value = value and 1 or 0 end
  if type(value) == "table" then
    if value.kind then return value end
    local first = value[1]
    kind = type(first) == "string" and "texts" or math.type(first) == "float" and "floats" or "ints"
  end
  return { kind = kind, value = value }
end

--- Adds a node; attributes that are nil are left out, inputs that are false or nil too.
-- @return its results, values
function Op:node(name, ins, attrs, n_out)
  local node = { op = name, inputs = {}, outputs = {}, attrs = {}, of = self.row }
  local last = 0
  for i, v in pairs(ins) do last = v and math.max(last, i) or last end
  for i = 1, last do node.inputs[i] = ins[i] or false end
  for key, value in pairs(attrs or {}) do node.attrs[key] = attribute(value) end
  for k = 1, n_out or 1 do node.outputs[k] = { node = node } end
  local nodes = self.state.nodes
  nodes[#nodes + 1] = node
  return table.unpack(node.outputs)
end

--- A value of numbers that the file has: a tensor, or a list of integers.
function Op:const(t)
  if type(t) == "table" and math.type(t[1] or 0) then
    t = #t > 0 and core.tensor(t, "i64") or core.zeros { 0, dtype = "i64" }
  end
  local constants = self.state.model.constants

  -- The same numbers are one constant, whoever asks.
  local key = ("%s %s %s"):format(t.dtype, table.concat(t.shape, ","), t:hash())
  local v = constants[key]
  if not v then
    v = { tensor = t, dims = t.shape, dtype = t.dtype }
    constants[key] = v
  end
  return v
end

--- A number of a dtype, that of the first input where none is said.
function Op:number(value, dtype) return self:const(core.tensor(value, dtype or self:dtype(1))) end

function Op:cast(v, dtype) return self:node("Cast", { v }, { to = kit.elem_of[dtype] }) end

--- v in the dtype that output k must have, where the node gives another one.
function Op:as_result(v, dtype, k)
  local want = self:result(k).dtype
  return dtype == want and v or self:cast(v, want)
end

--- A size that is known when the model runs, as a value of one element.
function Op:size(dim)
  if dim.unknown then self:lacks("%s", dim.unknown) end
  local value
  for _, symbol in ipairs(self.state.model.symbols) do
    for _ = 1, dim.of[symbol.name] or 0 do
      local factor = self.state.model.value_of_symbol(self, symbol.name)
      value = value and self:node("Mul", { value, factor }) or factor
    end
  end
  return dim.times == 1 and value or self:node("Mul", { value, self:const { dim.times } })
end

--- A shape as a value: numbers, or computed from sizes that are known when the model runs.
function Op:shape(dims)
  -- Numbers that follow each other are one constant between the parts that are computed.
  local parts, run = {}, {}
  local function close()
    if #run > 0 then parts[#parts + 1], run = self:const(run), {} end
  end
  for _, size in ipairs(dims) do
    if type(size) == "table" then
      close()
      parts[#parts + 1] = self:size(size)
    else
      run[#run + 1] = size
    end
  end
  close()
  if #parts == 0 then return self:const {} end
  return #parts == 1 and parts[1] or self:node("Concat", parts, { axis = 0 })
end

--- v with other dimensions. One that is not known before is what is left; one that stands where it
-- stood is kept, which 0 says.
function Op:reshape(v, dims)
  if not dims then self:lacks "the shape of its result is not known" end
  local list, open, has_zero = {}, 0, false
  for _, size in ipairs(dims) do has_zero = has_zero or size == 0 end
  for d, size in ipairs(dims) do
    list[d] = size
    if type(size) == "table" then
      local before = v.dims and v.dims[d]
      local stays = size.text and type(before) == "table" and before.text == size.text
      list[d] = stays and not has_zero and 0 or -1
      open = open + (list[d] == -1 and 1 or 0)
    end
  end
  if open > 1 or has_zero and open > 0 then return self:node("Reshape", { v, self:shape(dims) }) end
  if has_zero then self:needs(14) end
  return self:node("Reshape", { v, self:const(list) }, { allowzero = has_zero and 1 or nil })
end

function Op:transpose(v, perm) return self:node("Transpose", { v }, { perm = perm }) end

--- x reduced over axes, from 0, by Sum or another; the axes are an input from `version` on.
function Op:reduce(name, v, axes, keepdims, version)
  local attrs = { keepdims = keepdims and 1 or 0 }
  if self:from(version or 18) then return self:node(name, { v, self:const(axes) }, attrs) end
  attrs.axes = axes
  return self:node(name, { v }, attrs)
end

-- ---- axes ---------------------------------------------------------------------------------------

--- A dimension of `rank` as ONNX counts it.
function Op:axis(axis, rank)
  return axis > 0 and axis - 1 or axis + (rank or #self.ins[1].dims)
end

--- The same of a list; of an empty one all.
function Op:axes(list, rank)
  rank = rank or #self.ins[1].dims
  if #list == 0 then
    return kit.map(kit.count(rank), function(d) return d - 1 end)
  end
  return kit.map(list, function(axis) return self:axis(axis, rank) end)
end

-- ---- nets ---------------------------------------------------------------------------------------

local State = {}
State.__index = State

--- The net whose ops a view shows; `view.net` says its types.
local function ops_of(view) return view.sub or view.net end

--- The net whose ops are written.
function State:net() return ops_of(self.view) end

--- Whether two ops read as many inputs and leave the same ones out.
local function same_slots(x, y)
  for k = 1, math.max(#x.inputs, #y.inputs) do
    local one, other = x.inputs[k] or false, y.inputs[k] or false
    if (one == false) ~= (other == false) then return false end
  end
  return #x.outputs == #y.outputs
end

--- The first op that two nets, of which one has another size, don't have alike: as what is lacking
-- is listed; nil where there is none.
-- @param name of the size
function out.differs(a, b, name)
  local one, other = a:_ops(), b:_ops()
  for i = 1, math.max(#one, #other) do
    local x, y = one[i], other[i]
    local row, why = x or y, nil
    if not x or not y then
      why = "whether it is there depends on %s"
    elseif x.type ~= y.type then
      why = "which op it is depends on %s"
    elseif not same_slots(x, y) then
      why = "what it reads depends on %s"
    end
    if why then return { op = row.type, node = row.name, why = why:format(name) } end
  end
end

--- Attributes of an op, of which one that another size changes must not be read.
-- @param others views of nets that have another size each
local function attrs_of(net, i, others)
  local attrs, changed = net:_attrs(i), {}

  -- An attribute that is another one where a size is twice as large can't be a number of a file
  -- that leaves the size open: whoever reads it fails, and the op is lacking.
  for k, other in ipairs(others) do
    local same = ops_of(other):_attrs(i)
    for key, value in pairs(attrs) do
      local text, with = tostring(value), tostring(same[key])
      if type(value) == "table" and type(same[key]) == "table" then
        text, with = table.concat(value, ","), table.concat(same[key], ",")
      end
      if text ~= with then changed[key] = changed[key] or others.names[k] end
    end
  end
  if not next(changed) then return attrs end
  for key in pairs(changed) do attrs[key] = nil end
  return setmetatable(attrs, { __index = function(_, key)
    if changed[key] then
      error({ lacks = ("its %s depends on %s"):format(key, changed[key]) }, 0)
    end
  end })
end

--- The type of a blob; nothing where it is not known.
function State:type_of(name)
  local dtype, shape = self.view.net:_type(name)
  if not dtype then return {} end

  local shapes = { shape }
  for k, other in ipairs(self.others) do
    local _, own = other.net:_type(name)
    shapes[k + 1] = own or shape
  end
  return { dims = named_sizes.dimensions(self.model.symbols, shapes, name), dtype = dtype }
end

--- The value of a blob that an op reads: what a node made, or what is declared.
function State:value_of(name)
  local v = self.env[name]
  if v then return v end

  -- What no op makes is declared: it belongs to the outermost net, wherever it is read.
  local model = self.model
  local row = model.view.net:_blob(name)
  local tensors = row.role ~= "input" and model.numbers_at(name, {})
  if tensors then
    v = model.sized_value(name, tensors)
  else
    v = model.root:type_of(name)
    v.name = name
    if row.role ~= "input" then
      v.tensor = model.fetch(name)
      v.dims, v.dtype = v.tensor.shape, v.tensor.dtype
    end
  end
  self.model.env[name] = v
  return v
end

--- Whether a name in the net that is written and one in a net of another size are one operand of a
-- subnet, which may be called otherwise.
local function is_same_operand(view, name, other, twin)
  local at = view.takes and view.takes[name]
  return name == twin or at ~= nil and at == other.takes[twin]
end

--- Whether a blob holds numbers, which no op makes and nobody feeds.
local function has_numbers(net, name)
  local row = name and net:_blob(name)
  return row and row.role ~= "input" and row.role ~= "activation" and row.role ~= "output"
end

--- The value that is read under a name which is another one at other sizes: numbers of a net's own
-- are called after what they are. Whatever else is so is no value that a file can say.
-- @param twins {name in the net of each other size, ..}, @param what it is said to be
function State:resolve(op, name, twins, what)
  local model, by = self.model, nil
  for k, other in ipairs(self.others) do
    local is_same = is_same_operand(self.view, name, other, twins[k])
    if not is_same then by = by or self.others.names[k] end
  end
  if not by then return self:value_of(name) end

  local is_number = has_numbers(model.view.net, name)
  for k, other in ipairs(model.root.others) do
    is_number = is_number and has_numbers(other.net, twins[k])
  end
  if not is_number then op:lacks("%s depends on %s", what, by) end

  -- The same numbers may be read elsewhere by one name at all sizes: they are another value.
  local key = name .. "\0" .. table.concat(twins, "\0")
  if not model.sized[key] then
    local tensors = model.numbers_at(name, twins)
    model.sized[key] = tensors and model.sized_value(name, tensors) or self:value_of(name)
  end
  return model.sized[key]
end

--- The writer of an op, or nil.
local function writer_of(type_name)
  local f = ops.out[type_name]
  if type(f) ~= "string" then return f end
  return function(op) return op:node(f, op.ins) end
end

--- Writes one op: binds its outputs.
function State:write(i, row)
  local op = setmetatable({ row = row, state = self, ins = {}, results = {}, index = i }, Op)

  for k, name in ipairs(row.inputs) do
    local twins = kit.map(self.others, function(other) return other.rows[i].inputs[k] end)
    op.ins[k] = name and self:resolve(op, name, twins, ("its input %d"):format(k)) or nil
  end
  for k, name in ipairs(row.outputs) do
    op.results[k] = name and self:type_of(name) or { unwanted = true }
  end
  op.attrs = attrs_of(self:net(), i, self.others)
  local writer = writer_of(row.type) or op:lacks()

  local values = table.pack(writer(op, table.unpack(op.ins, 1, #row.inputs)))
  for k, name in ipairs(row.outputs) do
    local v = values[k]
    if name and (v or row.read[name]) then
      v = v or op:lacks("its output %d is not written", k)
      -- A value gets the name of the first blob that it is.
      if v.node and not v.name then
        v.name, v.dims, v.dtype = name, op.results[k].dims, op.results[k].dtype
      end
      self.env[name] = v
    end
  end
end

--- The ops that `outputs` need, in order: {index, row}; row.read are outputs that anybody reads.
local function needed(rows, outputs)
  local wanted, list = {}, {}
  for _, name in ipairs(outputs) do wanted[name] = true end

  -- From the end: an op stays if something wanted is made by it. Its read outputs are noted, since
  -- a writer may leave the others out.
  for i = #rows, 1, -1 do
    local row, on = rows[i], false
    row.read = {}
    for _, name in ipairs(row.outputs) do
      if name and wanted[name] then on, row.read[name], wanted[name] = true, true, nil end
    end
    if on then
      for _, name in ipairs(row.inputs) do
        if name then wanted[name] = true end
      end
      table.insert(list, 1, { i, row })
    end
  end
  return list
end

--- Writes a net's ops; what ONNX has no op for is listed, and goes on as if it had one.
function State:run(outputs)
  local list = self.model.lacking
  for k, other in ipairs(self.others) do
    local row = out.differs(self:net(), ops_of(other), self.others.names[k])
    if row then
      -- Nothing is said of ops that are others: what they give stands for something.
      list[#list + 1] = row
      for _, name in ipairs(outputs) do
        self.env[name] = { name = name, dims = {}, dtype = "f32" }
      end
      return
    end
    other.rows = ops_of(other):_ops()
  end
  for _, item in ipairs(needed(self:net():_ops(), outputs)) do
    local i, row = table.unpack(item)
    local ok, err = pcall(self.write, self, i, row)
    if not ok then
      -- What follows something lacking may not be what it is: it is not blamed for that.
      local lacks = type(err) == "table" and rawget(err, "lacks")
      if not lacks and #list == 0 then error(err, 0) end
      if lacks then list[#list + 1] = { op = row.type, node = row.name, why = lacks } end
      -- Its results stand for something, so that what reads them is looked at, too.
      for _, name in ipairs(row.outputs) do
        if name then self.env[name] = { name = name, dims = {}, dtype = "f32" } end
      end
    end
  end
end

local typed_net

--- Declares what op i of a subnet gives, an op with subnets of its own, in the typed net: an If
-- what its branch gives, a loop its states and, behind them, what a turn gives as rows.
local function declare_results(net, sub, i, row)
  local subs, attrs = sub.net:_subnets(i), sub.net:_attrs(i)
  local body = subs.body_net or subs.step_net or subs.then_net
  local n_state = attrs.n_state or math.huge
  local length, bound = attrs.max, {}

  for k, name in ipairs(row.inputs) do
    local dtype, shape = net:_type(name)
    if subs.step_net and shape and k > n_state and k <= n_state + attrs.n_seq then
      length, shape = shape[1], table.move(shape, 2, #shape, 1, {})
    end
    bound[k] = { dtype = dtype, dims = shape }
  end
  if subs.then_net then table.remove(bound, 1) end
  local inner = typed_net(body, bound, function(size) return size end)
  for k, made in ipairs(body.net:_output_names()) do
    local name, dtype, shape = row.outputs[k], inner:_type(made)
    if shape and k > n_state then shape = { length, table.unpack(shape) } end
    if name and dtype and not net:_blob(name) then net:declare(name, "input", shape, dtype) end
  end
end

--- A subnet whose operands have types, as a net of its own, whose types are known. What can't be
-- built so has none.
function typed_net(sub, bound, size_of)
  local net = require("neap.net").new "typed"

  for k, name in ipairs(sub.takes) do
    local v = bound[k]
    if not net:_blob(name) and v.dtype then
      net:declare(name, "input", kit.map(v.dims, size_of), v.dtype)
    end
  end
  -- What was known of nets within is asked of the typed nets when these are entered.
  for i, row in ipairs(sub.net:_ops()) do
    if next(sub.net:_subnets(i)) then
      declare_results(net, sub, i, row)
    else
      pcall(net.op, net, row.type, row.inputs, row.outputs, sub.net:_attrs(i))
    end
  end
  return net
end

--- The subnet of an op's attribute as a state sees it, with the values of the names it takes.
function State:enter(op, attr, bound, nodes)
  local model, from = self.model, op.state
  local sub = from:net():_subnets(op.index)[attr]

  -- At the sizes of the outer nets, so that sizes within are known to depend on the same.
  local function view(k, own)
    if #own.takes ~= #sub.takes then
      op:lacks("what its %s reads depends on %s", attr, from.others.names[k - 1])
    end
    local typed, takes = typed_net(own, bound, function(size)
      return type(size) == "table" and size.sizes[k] or size
    end), {}
    for i, name in ipairs(own.takes) do takes[name] = i end
    return { net = typed, sub = own.net, takes = takes }
  end
  local others = { names = self.others.names }
  for k, other in ipairs(from.others) do
    others[k] = view(k + 1, ops_of(other):_subnets(op.index)[attr])
  end
  local inner = setmetatable({ model = model, view = view(1, sub), others = others,
    nodes = nodes, env = setmetatable({}, { __index = self.env }) }, State)

  for k, name in ipairs(sub.takes) do inner.env[name] = bound[k] end
  local names = sub.net:_output_names()
  inner:run(names)
  return inner, kit.map(names, function(name, i)
    local twins = kit.map(others, function(other) return other.sub:_output_names()[i] end)
    return inner:resolve(op, name, twins, ("result %d of its %s"):format(i, attr))
  end)
end

--- The subnet of an op's attribute as a graph: `inputs` are values by the names it takes, `finish`
-- gives the graph's outputs from the values of what it gives.
function Op:graph(attr, bound, inputs, finish)
  local inner, results = self.state:enter(self, attr, bound, {})
  local op = setmetatable({ row = self.row, state = inner, ins = {}, attrs = {} }, Op)
  results = finish and finish(op, inner, results) or results
  return { kind = "graph", value = { nodes = inner.nodes, inputs = inputs,
    outputs = kit.map(results, function(v)
      -- An output is made within, and is no other output: else it gets a node of its own.
      if v.node and not v.is_output and v.node.state == nil then
        for _, node in ipairs(inner.nodes) do
          if node == v.node then
            v.is_output = true
            return v
          end
        end
      end
      local copy = op:node("Identity", { v })
      copy.dims, copy.dtype, copy.is_output = v.dims, v.dtype, true
      return copy
    end) } }
end

--- Writes the ops of another subnet within this state: its results.
function State:inline(op, attr, bound)
  local _, results = self:enter(op, attr, bound, self.nodes)
  return results
end

-- ---- names --------------------------------------------------------------------------------------

--- Gives each value and node a name of its own, graphs within graphs included.
local function name_all(model, graph)
  local taken = model.taken

  -- Names are taken by all graphs of a model: a subgraph sees those around it, and one of its own
  -- would hide them.
  local function free(name)
    local base, k = name, 1
    while taken[name] do
      k = k + 1
      name = ("%s_%d"):format(base, k)
    end
    taken[name] = true
    return name
  end
  local named = model.named
  local function name_of(v, base)
    if not named[v] then named[v] = free(v.name or base) end
    return named[v]
  end
  local function walk(g)
    for _, v in ipairs(g.inputs) do name_of(v, "input") end
    for _, node in ipairs(g.nodes) do
      local first = node.of.outputs[1] or node.of.name
      -- The node that makes what the op gives has its name; those before it say what they are.
      local own = node.outputs[1].name ~= nil
      for _, v in ipairs(node.outputs) do name_of(v, first .. "/" .. node.op) end
      for _, attr in pairs(node.attrs) do
        if attr.kind == "graph" then walk(attr.value) end
      end
      node.name = own and not model.nodes_taken[first] and first or named[node.outputs[1]]
      model.nodes_taken[node.name] = true
    end
  end
  walk(graph)
  return name_of
end

--- A graph's tables with names in the place of values.
local function written(model, g, name_of)
  local function typed(v)
    local dims = v.dims and kit.map(v.dims, function(size)
      if type(size) ~= "table" then return size end
      return size.text or false
    end)
    return { name = name_of(v), elem = kit.elem_of[v.dtype], dims = dims }
  end

  -- Constants that a node reads are noted: they become the initializers, and others are left out.
  return { name = g.name or "graph", inputs = kit.map(g.inputs, typed),
    outputs = kit.map(g.outputs, typed),
    nodes = kit.map(g.nodes, function(node)
      local attrs = {}
      for key, attr in pairs(node.attrs) do
        attrs[key] = attr.kind == "graph"
          and { kind = "graph", value = written(model, attr.value, name_of) } or attr
      end
      return { name = node.name, op = node.op, attrs = attrs,
        inputs = kit.map(node.inputs, function(v)
          if v and v.tensor then model.used[v] = true end
          return v and name_of(v, "const") or ""
        end), outputs = kit.map(node.outputs, name_of) }
    end) }
end

-- ---- the whole ----------------------------------------------------------------------------------

--- The outputs of the graph: a value that is an output already, or is none of a node, is copied.
local function name_outputs(state, names)
  local op = setmetatable({ row = { name = "outputs", outputs = {} }, state = state, ins = {} }, Op)
  local seen = {}
  return kit.map(names, function(name, i)
    local v = state.model.outputs[i]
    if not v.node or seen[v] then
      local copy = op:node("Identity", { v })
      copy.dims, copy.dtype, v = v.dims, v.dtype, copy
    end
    v.name, seen[v] = name, true
    return v
  end)
end

--- f(op, name) -> a size that has a name as a value: the dimension of an input, computed once.
local function symbol_values(model)
  local values = {}

  local function find(op, name)
    for _, row in ipairs(model.view.net:inputs()) do
      local v = model.root:value_of(row.name)
      for d, size in ipairs(v.dims) do
        if type(size) == "table" and size.text == name then return v, d end
      end
    end
    op:lacks("no input has a dimension of %s", name)
  end
  return function(op, name)
    if values[name] then return values[name] end
    local v, d = find(op, name)

    -- In front of all nodes, since subgraphs may read it, too.
    local front = setmetatable({ row = op.row, state = model.root, ins = {} }, Op)
    local nodes = model.root.nodes
    local at = #nodes
    local shape = front:node("Shape", { v })
    values[name] = front:node("Gather", { shape, front:const { d - 1 } }, { axis = 0 })
    for k = 1, 2 do table.insert(nodes, k, table.remove(nodes, at + k)) end
    return values[name]
  end
end

--- The IR versions that opsets came with.
local function ir_of(opset)
  return opset >= 25 and 12 or opset >= 23 and 11 or opset >= 21 and 10 or opset >= 19 and 9
    or opset >= 15 and 8 or 7
end

out.OLDEST, out.NEWEST = 13, 24

--- The values of the outputs, of which one that is another one at another size is lacking.
local function read_outputs(state, o)
  local model = state.model
  for i, name in ipairs(o.outputs) do
    local row = { type = "output", name = name, outputs = { name } }
    local twins = kit.map(model.symbols, function(symbol) return symbol.outputs[i] end)
    local op = setmetatable({ row = row, state = state, ins = {} }, Op)
    local ok, v = pcall(state.resolve, state, op, name, twins, "what it is")
    local lacks = not ok and type(v) == "table" and rawget(v, "lacks")
    if not ok and not lacks then error(v, 0) end
    if lacks then
      table.insert(model.lacking, { op = row.type, node = name, why = lacks })
    else
      model.outputs[i] = v
    end
  end
end

local function translate(o, opset)
  local model = { view = { net = o.net }, opset = opset, needs = out.OLDEST, constants = {},
    lacking = {}, fetch = o.fetch, numbers_at = o.numbers_at or function() end, env = {},
    taken = {}, named = {}, nodes_taken = {}, used = {}, symbols = o.symbols or {},
    sized = {}, outputs = {} }
  local others = { names = kit.map(model.symbols, function(symbol) return symbol.name end) }
  for k, symbol in ipairs(model.symbols) do others[k] = { net = symbol.net } end
  local state = setmetatable({ model = model, view = model.view, env = model.env, nodes = {},
    others = others }, State)
  model.root, model.value_of_symbol = state, symbol_values(model)
  function model.sized_value(name, tensors)
    local op = setmetatable({ row = { name = name, outputs = { name } }, state = state, ins = {} },
      Op)
    return named_sizes.value(op, model.symbols, name, tensors)
  end
  state:run(o.outputs)
  if #model.lacking == 0 then read_outputs(state, o) end
  return model, state
end

--- The model of a net: tables as core.write_onnx takes them, and the list of what ONNX lacks, which
-- is empty then.
-- @param o {net = whose names are written once, outputs = names, fetch = f(name) -> tensor,
--   opset =, symbols = {{name = of a size that is known when the model runs, size = what it is in
--   `net`, net = the same with twice that size, outputs = what they are called there}, ..},
--   numbers_at = f(name, {name in the net of each symbol, where it is another}) -> of numbers that
--   sizes change {tensor in `net`, in the net of each symbol.., symbol = name of a size that does},
--   nil of others}
-- Where no opset is asked for a first writing tells which the newest of its ops needs; a second one
-- is written for that, and may have newer forms of others.
function out.model(o)
  local opset = o.opset
  if not opset then
    local first = translate(o)
    if #first.lacking > 0 then return nil, first.lacking end
    opset = first.needs
  end
  local model, state = translate(o, opset)
  if #model.lacking > 0 then return nil, model.lacking end

  local graph = { name = o.net:name(), nodes = state.nodes, inputs = {} }
  graph.outputs = name_outputs(state, o.outputs)
  -- Names that others know go first: those of outputs, inputs and weights.
  for _, v in ipairs(graph.outputs) do model.named[v], model.taken[v.name] = v.name, true end
  for _, row in ipairs(o.net:_blobs()) do
    local v = model.env[row.name]
    -- What an op hands on as it is (a Copy, say) keeps the name that it was declared by.
    if v and not v.node and not model.named[v] and not model.taken[row.name] then
      model.named[v], model.taken[row.name] = row.name, true
      if row.role == "input" then graph.inputs[#graph.inputs + 1] = v end
    end
  end
  local name_of = name_all(model, graph)
  local tables = written(model, graph, name_of)

  -- Sorted, since a walk over a table has no order and the same net gives the same file.
  tables.initializers = {}
  for v in pairs(model.used) do
    table.insert(tables.initializers, { name = name_of(v), tensor = v.tensor:contiguous() })
  end
  table.sort(tables.initializers, function(a, b) return a.name < b.name end)
  return { ir = ir_of(opset), producer = "neap", opsets = { [""] = opset }, graph = tables }, {}
end

return out
