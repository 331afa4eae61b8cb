--- Gradient accumulation: one step of a large batch, run as micro-batches.
--
-- net:_split_micro makes two nets of a training net (src/net/split.c says which op goes where): a micro-batch, whose gradients
-- are added to accumulators with the micro-batch's share of the rows as weight, and the update, which reads the accumulators as
-- gradients. For nets without batch statistics the two are the step of the large batch, within rounding.
--
-- INVARIANT: whether a step has happened is told by `counter`, which the update program raises with the parameters.
--
-- What differs from the large batch: batch norm sees micro-batches (its running statistics count every one that was finite,
-- also of a step that is then dropped), and random ops draw by the workspace's step counter, which a micro-batch raises by one:
-- dropout masks are those of as many steps, not those of the large batch.
-- @module neap.micro
local core = require "neap.core"

local micro = {}

local weight_name, keep_name, counter = "micro.weight", "micro.keep", "micro.steps"

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
