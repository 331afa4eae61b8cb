--- A trainer's model without training: loss and metrics over a data set, outputs for a batch, the
-- record of epochs.
--
-- INVARIANT: parameters, statistics and `position` are only read.
-- @module neap.train.evaluate
local batches = require "neap.data.batch"
local eager = require "neap.nn.eager"
local checks = require "neap.train.checks"
local core = require "neap.core"
local micro = require "neap.train.micro"
local op = require "neap.op"
local programs = require "neap.train.programs"
local report = require "neap.report"
local state = require "neap.train.state"
local step = require "neap.train.step"
local fail = core.fail
local Trainer, copy, attempt, means, find_workspace = state.Trainer, state.copy, state.attempt,
  state.means, state.find_workspace
local add_values, read_metrics, limit_total = state.add_values, state.read_metrics,
  state.limit_total
local check_most, check_set = checks.most, checks.set
local learn_set, learn, program_for, feed = programs.learn_set, programs.learn,
  programs.program_for, step.feed

local function evaluate(self, set)
  learn_set(self, set)

  -- The range is planned for the largest evaluation, so that a last, smaller batch runs in it.
  self.most.eval = math.max(self.most.eval, math.min(set:spec().batch, set:spec().n))
  local sums, n, counted, divided = {}, 0, 0, 0
  for given in set:epoch(1) do
    -- As in a step, but for the update: each batch may have other sizes.
    local batch = batches.read(self.model, given)
    learn(self, batch.fields)
    rawset(self.model, "_seen", batches.inputs(self.model, self.fields))
    local entry = program_for(self, batch.rows, "eval")
    feed(self, batch)
    entry.program:run()

    -- Weights of a mean are what the loss counts, those of the loss what it divides by.
    local count = micro.count_of(self.goal, batch)
    local divisor = micro.divisor_of(self.goal, batch, count)
    if divisor == nil and n > 0 and not state.sums_up(self) then
      micro.fail_weighted "trainer:evaluate"
    end
    divisor = divisor or count
    add_values(self, sums, read_metrics(self, entry.blobs), batch.rows, count, divisor)
    n, counted, divided = n + batch.rows, counted + count, divided + divisor
  end
  if n == 0 then fail("evaluate: the data set has no rows") end
  return report.new {
    totals = copy(means(self, sums, n, counted, divided), { n = n }),
    order = { "loss", table.unpack(state.measured(self)) },
  }
end

--- Loss and metrics over a whole data set, weighted by what a batch counts (rows, but those with
-- the loss's ignore_index, and the loss by class weights); the last, smaller batch included.
-- @return Report {loss, <metric>, n = rows}
function Trainer:evaluate(set)
  check_set("trainer:evaluate", set)
  check_most(self, "trainer:evaluate", math.min(set:spec().batch, set:spec().n))
  return attempt(self, nil, find_workspace(self), evaluate, set)
end

--- Raises where an argument of forward that training had is not given.
-- @param names string[] arguments of forward
-- @param given whatever there is for each, by position
local function check_given(self, names, given)
  for k, name in ipairs(names) do
    if given[k] == nil and self.fields and self.fields[name] then
      fail(("trainer:predict: there is no %s, which training had: forward(%s) takes it"):format(
        name, table.concat(names, ", ")))
    end
  end
end

--- What predict is given, as arguments of forward: tensors in order, or one batch.
local function predict_arguments(self, x, ...)
  -- Tensors in the order of forward's arguments; or one batch by the names of its fields.
  local names, has_more = batches.arguments(self.model)
  local given, most = 1 + select("#", ...), math.max(#names, 1)
  if given > most and not has_more then
    fail(("trainer:predict takes %d argument%s, got %d"):format(
      most, most == 1 and "" or "s", given))
  end
  if op.is_tensor(x) then
    check_given(self, names, { x, ... })
    return x, ...
  end
  if type(x) ~= "table" or next(x) == nil or given > 1 then
    fail("trainer:predict expects a batch x, a tensor, got "
      .. (x == nil and "nothing" or "a " .. type(x)))
  end
  local fields = batches.read(self.model, x).fields
  local at, last, others = batches.places(self.model, fields)
  for _, name in ipairs(others) do -- those of losses are passed by
    local is_known = name == "y" or self.fields and self.fields[name]
    if not is_known then batches.fail_unread(self.model, name, {}) end
  end
  for k = 1, last do at[k] = fields[at[k]] end
  check_given(self, names, at)
  return table.unpack(at, 1, last)
end

--- t:predict(x): outputs of the model for a batch x, in evaluation mode and with the trainer's
-- memory options; copies. A model of several inputs takes t:predict(a, b), or a batch of them as in
-- t:step, whose y nothing reads.
function Trainer:predict(...)
  -- The mode is the model's own, and put back: predict may be called in the middle of a fit.
  local mode = rawget(self.model, "_mode")
  local guard <close> = setmetatable({}, {
    __close = function() rawset(self.model, "_mode", mode) end,
  })
  rawset(self.model, "_mode", false)
  local _ <close> = limit_total(self, find_workspace(self))
  return eager.run_within(self.model, self.memory, predict_arguments(self, ...))
end

--- How the loss went over the epochs, as a line of blocks; nil for a few.
local function loss_line(records)
  local losses, low, high = {}, math.huge, -math.huge
  for i, record in ipairs(records) do
    losses[i] = record.loss
    -- A loss that is infinite would press all others together.
    if math.abs(record.loss) < math.huge then
      low, high = math.min(low, record.loss), math.max(high, record.loss)
    end
  end
  if #losses < 3 or low > high then return nil end
  return ("loss %s from %.4g to %.4g"):format(report.sparkline(losses, low, high), losses[1],
    losses[#losses])
end

--- Report of the epochs so far, and of looks at valid data within them (valid_every): epoch, step,
-- loss, <metric>, valid_loss, valid_<metric>, grad_norm, lr of the last step, seconds.
function Trainer:history()
  local names = state.measured(self)
  local columns = { "epoch", "step", "loss", table.unpack(names) }
  if self.records[1] and self.records[1].valid then
    for _, name in ipairs { "loss", table.unpack(names) } do
      columns[#columns + 1] = "valid_" .. name
    end
  end
  if self.grad_norm then columns[#columns + 1] = "grad_norm" end
  table.move({ "lr", "seconds" }, 1, 2, #columns + 1, columns)
  return report.new { rows = self.records, columns = columns, title = loss_line(self.records) }
end

