--- Gradient accumulation: one step of a large batch, run as micro-batches.
--
-- A micro-batch is one run of one program: forward, loss, backward, and each parameter's gradient added to its accumulator
-- with the micro-batch's share of the rows as weight. After the last one the update program reads the accumulators as gradients.
-- For nets without batch statistics that is the step of the large batch, within rounding.
--
-- INVARIANT: accumulators are resident (role gradient): no program's plan can give their bytes away between micro-batches. They
-- are not read by the first micro-batch of a step, so nothing of a step that was broken off remains.
-- INVARIANT: whether a step has happened is told by `counter`, which the update program raises with the parameters.
--
-- What differs from the large batch: batch norm sees micro-batches (its running statistics count every one that was finite,
-- also of a step that is then dropped), and random ops draw by the workspace's step counter, which a micro-batch raises by one:
-- dropout masks are those of as many steps, not those of the large batch.
-- @module neap.micro
local core = require "neap.core"
local net_module = require "neap.net"

local micro = {}

local weight_name, keep_name, counter = "micro.weight", "micro.keep", "micro.steps"

local function accumulator(parameter) return parameter.name .. ".accumulated" end

--- Stands where m:net expects an optimizer: adds gradients up instead of updating.
micro.accumulate = { name = "accumulate" }
function micro.accumulate:apply(net, grads)
  local list = {}
  for parameter, gradient in pairs(grads) do list[#list + 1] = { parameter, gradient } end
  table.sort(list, function(a, b) return a[1].name < b[1].name end)
  local weight, keep = net:input(weight_name, {}, "f32"), net:input(keep_name, {}, "f32")
  self.parameters = {}
  for i, pair in ipairs(list) do
    local p = pair[1]
    local total = net:declare(accumulator(p), "gradient", p.shape, p.dtype, nil, false)
    net:op("WeightedAccumulate", { total, pair[2], weight, keep }, { total }, {})
    self.parameters[i] = { name = p.name, shape = p.shape, dtype = p.dtype }
  end
end

--- A fresh one for each net: it remembers the parameters it met.
function micro.new() return setmetatable({}, { __index = micro.accumulate }) end

--- The update program's net: accumulators in, parameters and optimizer state forward.
-- @param parameters list {name, shape, dtype} as an accumulate met them
function micro.update_net(name, parameters, optimizer)
  local net, grads = net_module.new(name .. "_update"), {}
  for _, p in ipairs(parameters) do
    local blob = net:declare(p.name, "parameter", p.shape, p.dtype, nil, true)
    grads[blob] = net:declare(p.name .. ".accumulated", "gradient", p.shape, p.dtype, nil, false)
  end
  optimizer:apply(net, grads)
  local done, one = net:declare(counter, "state", {}, "f64", { op = "Constant", value = 0 }, false), net:const(1, "f64")
  net:op("WeightedAccumulate", { done, one, one, one }, { done }, {})
  return net
end

--- Accumulators that the workspace does not have yet.
function micro.missing(ws, parameters)
  local list = {}
  for _, p in ipairs(parameters) do
    if not ws:has(p.name .. ".accumulated") then list[#list + 1] = p end
  end
  return list
end

--- Fills accumulators that have been made; a run would refuse to read blobs that nobody has written.
function micro.fill(ws, parameters)
  for _, p in ipairs(parameters) do
    local shape = {}
    for d = 1, #p.shape do shape[d] = 1 end
    local zero = core.zeros { dtype = p.dtype, table.unpack(shape) }
    ws:feed(p.name .. ".accumulated", #shape > 0 and zero:expand(table.unpack(p.shape)) or zero) -- one element, seen p.shape times
  end
end

--- Steps that the update program has finished in this workspace.
function micro.count(ws) return ws:has(counter) and ws:view(counter):item() or 0 end

--- How many rows of labels a mean loss counts: all, but those with the loss's ignore_index.
local function counted(loss, y)
  local ignored = loss.o and loss.o.ignore_index
  if ignored == nil then return nil end
  return y:ne(core.tensor(ignored, y.dtype)):to("f64"):sum():item()
end

--- The parts of a batch: {from, n, weight}; weights add up to 1. The last part may have fewer rows.
-- @param size integer rows of a micro-batch
function micro.parts(loss, batch, size)
  local rows, parts = batch.x:size(1), {}
  local all = counted(loss, batch.y)
  for from = 1, rows, size do
    local n = math.min(size, rows - from + 1)
    local weight = n / rows
    if all then weight = all > 0 and counted(loss, batch.y:narrow(1, from, n)) / all or 0 end
    parts[#parts + 1] = { from = from, n = n, weight = weight }
  end
  return parts
end

--- Runs the micro-batches of one step and then the update. `program_for(n)` gives the entry of a micro-batch of n rows.
-- @param measure f(entry, values, weight): adds what a micro-batch measured
function micro.run(self, batch, parts, program_for, measure)
  local ws = self.ws -- self: a trainer; `scalar` is its one tensor for what is fed here
  for i, part in ipairs(parts) do
    local entry = program_for(part.n)
    ws:feed("x", batch.x:narrow(1, part.from, part.n))
    ws:feed("y", batch.y:narrow(1, part.from, part.n))
    self.scalar:set(part.weight)
    ws:feed(weight_name, self.scalar)
    self.scalar:set(i > 1 and 1 or 0)
    ws:feed(keep_name, self.scalar)
    entry.program:run()
    measure(entry, part)
  end
end

return micro
