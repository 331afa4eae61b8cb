--- A trainer's state: where its run stands, and calls that leave nothing behind when they fail.
--
-- `position` holds steps, epochs, the sums of the epoch under way and what is held for an update;
-- beside it lie what data has taught the trainer (`learnt`) and its programs and ranges.
--
-- INVARIANT: `position` is replaced as a whole, and `pending` in it is the workspace's step count
-- before a run that has not been counted yet. An error, or Ctrl-C, between the run and the count
-- loses nothing: `settle` finds out by that number whether the step happened. INVARIANT: methods of
-- Trainer that change something run within `attempt`: a call that raises, and whose step has not
-- happened, leaves trainer, model and workspace as they were.
-- @module neap.train.state
local core = require "neap.core"
local micro = require "neap.train.micro"
local scale = require "neap.train.scale"
local tree = require "neap.nn.tree"

--- The class; the other files of this folder add the methods that they are about.
local Trainer = { __name = "neap.trainer" }
Trainer.__index = Trainer

--- A copy of t, with some fields changed.
local function copy(t, changes)
  local out = {}
  for key, value in pairs(t) do out[key] = value end
  for key, value in pairs(changes or {}) do out[key] = value end
  return out
end

-- ---- the position -------------------------------------------------------------------------------

--- Where a run stands: steps done, epochs done, batches done of the epoch under way, and the sums
-- of what was measured in it. `first_epoch` and `first_step` are where the fit under way began;
-- best and since belong to patience, loss_scale and scaled to neap.train.scale. A step is an
-- update; `batches` counts those that were trained on. The sums' weights are `rows`, and what the
-- loss counts of them, `counted`. What is held are batches since the last update: how many, their
-- rows, and what their means count.
local function start_position()
  return {
    step = 0, batches = 0, epoch = 0, in_epoch = 0, rows = 0, counted = 0, sums = {},
    first_epoch = 0, first_step = 0, best = math.huge, since = 0, held_batches = 0, held_rows = 0,
    held_count = 0, loss_scale = 0, scaled = 0,
  }
end

--- Names of what is measured beside the loss: metrics, and the values of several losses.
local function measured(self)
  local names = table.move(self.metric_names, 1, #self.metric_names, 1, {})
  return table.move(self.goal:names(), 1, #self.goal:names(), #names + 1, names)
end

local function read_metrics(self, blobs)
  local values = { loss = self.ws:view(blobs.loss.name):item() }
  for _, name in ipairs(measured(self)) do
    values[name] = self.ws:view(blobs[name].name):item()
  end
  return values
end

--- Whether a value is the loss, or that of one of several.
local function is_loss(self, name)
  for _, term in ipairs(self.goal:names()) do
    if term == name then return true end
  end
  return name == "loss"
end

--- Whether losses are sums over a batch, as the trainer was told, or else as their net does it.
local function sums_up(self) return (self.reduces or self.net_reduces) == "sum" end

--- What a value of a batch weighs. A loss and its metrics are means of what the loss counts, a
-- metric of the user's own is one of rows; sums are added.
-- @param divisor number|nil what the loss divides by, where that is not `counted`
local function weight_of(self, name, rows, counted, divisor)
  if is_loss(self, name) then return sums_up(self) and 1 or divisor or counted end
  return type(self.metrics[name]) == "function" and rows or counted
end

--- Adds what a batch measured to sums. Of a batch that counts nothing there is no mean.
local function add_values(self, sums, values, rows, counted, divisor)
  for name, value in pairs(values) do
    local weight = weight_of(self, name, rows, counted, divisor)
    sums[name] = (sums[name] or 0) + (weight > 0 and value * weight or 0)
  end
end

--- The norm of an update's gradients, where the trainer tells it: one that has been made.
local function read_norm(self, pending, values, sums)
  if not (self.grad_norm and pending.updates and self.ws:has "gradient_norm") then return end
  values.grad_norm = self.ws:view("gradient_norm"):item()
  sums.grad_norm, sums.updates = (sums.grad_norm or 0) + values.grad_norm, (sums.updates or 0) + 1
end

--- The means of such sums; of a loss that sums the sum itself, one number whatever the batches.
-- @return table by name
local function means(self, sums, rows, counted, divisor)
  local out = {}
  for name, sum in pairs(sums) do
    local weight = weight_of(self, name, rows, counted, divisor)
    if name == "grad_norm" then weight = sums.updates end -- one for each update
    out[name] = weight > 0 and sum / weight or 0 / 0
  end
  out.updates = nil
  return out
end

--- Whether the step under way has changed the parameters: the workspace's own counters tell.
local function has_happened(self, pending)
  if pending.passed then return true end
  if pending.count and pending.updates then return micro.count(self.ws) ~= pending.count end
  return self.ws:step() ~= pending.before
end

--- Counts a step that has been started, if it happened. Safe to be interrupted anywhere.
-- @return what it measured, or nil
local function settle(self)
  local p = self.position
  local pending = p.pending
  if not pending then return nil end
  if not has_happened(self, pending) then
    p.pending = nil
    return nil
  end
  local values, sums, n = pending.blobs and read_metrics(self, pending.blobs) or {}, copy(p.sums),
    pending.no_batch and 0 or 1
  add_values(self, sums, values, pending.rows, pending.counted)
  read_norm(self, pending, values, sums)

  -- The new position is complete before it takes the place of the old one: interrupted in between,
  -- `settle` runs again and counts the same step once.
  local next_position = copy(p, {
    step = p.step + (pending.updates and 1 or 0),
    batches = p.batches + n,
    in_epoch = p.in_epoch + n,
    rows = p.rows + pending.rows,
    counted = p.counted + pending.counted,
    sums = sums,
    held_batches = pending.updates and 0 or p.held_batches + 1,
    held_rows = pending.updates and 0 or p.held_rows + pending.rows,
    held_count = pending.updates and 0 or p.held_count + pending.counted,
  })
  if pending.updates then next_position = copy(next_position, scale.grown(self)) end
  next_position.pending = nil
  self.position = next_position
  return values
end

--- A step that was dropped because its loss, or a gradient, is not finite passes its batch by.
-- @param changes table|nil what else the position becomes
local function skip(self, changes)
  local next_position = copy(self.position, changes)
  next_position.in_epoch = next_position.in_epoch + 1
  next_position.pending = nil
  self.position = next_position
end

-- ---- calls that fail ----------------------------------------------------------------------------

--- The model's workspace: another one when the model has become a part of another.
local function find_workspace(self)
  self.ws = self.model:workspace()
  return self.ws
end

--- Raises for a trainer that has been closed.
local function check_open(self)
  if self.is_closed then
    error(core.error {
      code = "released",
      message = "the trainer has been closed",
      hint = "make another one; the model keeps its parameters",
    })
  end
end

--- What changes parameters would be lost with the averages that they are for the moment.
-- @param what string the method that was called
local function check_not_averaged(self, what)
  if self.in_average then
    core.fail(("trainer:%s: the parameters are averages within t:averaged, and are put back \z
      behind it: what they learnt would be lost"):format(what))
  end
end

--- What data has taught the trainer.
local learnt = {
  "fields", "largest", "batch", "micro_fit", "model_version", "position", "net_reduces",
}

--- What the trainer's total allows is all that its workspace holds, whichever of its programs or
-- other trainers asked for it: until `__close`, nothing that comes may exceed it.
local function limit_total(self, ws)
  local total = self.memory.total
  if ws == nil or total == nil then return nil end

  -- The workspace has one limit: the lower of its own and the trainer's, and its own again at the
  -- end.
  local own = ws:_limit_total(total)
  local limit = ws:_limit_total(own)
  ws:_limit_total(own and math.min(own, limit) or limit)
  return setmetatable({}, { __close = function() ws:_limit_total(own) end })
end

--- f(self, ...) -> its results. When it raises and no step has happened, the trainer, its model and
-- its workspace are as they were: what a bad batch looks like is forgotten, and programs made for
-- it are closed.
-- @tparam string|nil known names what f has done before without an error, after which it learns
--   nothing more
-- @tparam Workspace|nil ws where f changes blobs; nil: it changes none
local function attempt(self, known, ws, f, ...)
  check_open(self)
  settle(self)
  local _ <close> = limit_total(self, ws)

  -- What was done before can't teach the trainer anything, so there is nothing to undo: a step in
  -- the steady state takes no notes.
  if known and self.known[known] then return f(self, ...) end
  local was, programs, ranges, most, done = {}, copy(self.programs), copy(self.ranges),
    copy(self.most), false
  for _, key in ipairs(learnt) do was[key] = self[key] end

  -- Programs and ranges made since are closed; those of before that were closed on the way are not
  -- taken back.
  local function undo()
    for key, entry in pairs(self.programs) do
      if programs[key] ~= entry then entry.program:close() end
      programs[key] = programs[key] == entry and entry or nil
    end
    for key, range in pairs(self.ranges) do
      if ranges[key] ~= range then range.plans:close() end
      ranges[key] = ranges[key] == range and range or nil
    end
    -- others were closed on the way
    for key in pairs(programs) do programs[key] = self.programs[key] end
    for key in pairs(ranges) do ranges[key] = self.ranges[key] end
    self.programs, self.ranges, self.most = programs, ranges, most
    for _, key in ipairs(learnt) do self[key] = was[key] end
  end

  -- Blobs that a batch feeds are put back as well: inputs by name, and the rate.
  local fed = { "lr", "loss_scale" }
  for name in pairs(self.fields or { x = true, y = true }) do fed[#fed + 1] = name end
  local mark, finish = ws and ws:_mark(true, fed), tree.mark(tree.root_of(self.model))
  local _ <close> = setmetatable({}, { __close = function()
    -- what can't be settled has happened all the same: only its metrics can't be read
    local settled = done or pcall(settle, self)
    local keep = done
      or not settled
      or self.position.step ~= was.position.step
      or self.position.batches ~= was.position.batches
    if mark then ws:_end_mark(mark, keep, fed) end
    finish(keep)
    if not keep then undo() end
  end })

  -- Results go through a function, since a call's results can't be kept otherwise without a table.
  return (function(...)
    done = true
    if known then self.known[known] = true end
    return ...
  end)(f(self, ...))
end

return {
  Trainer = Trainer, copy = copy, start_position = start_position, read_metrics = read_metrics,
  measured = measured, add_values = add_values, means = means,
  sums_up = sums_up, settle = settle, skip = skip,
  limit_total = limit_total, find_workspace = find_workspace,
  check_open = check_open, check_not_averaged = check_not_averaged,
  learnt = learnt, attempt = attempt,
}
