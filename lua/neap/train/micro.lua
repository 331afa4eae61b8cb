--- Gradient accumulation: one step of a large batch, run as micro-batches.
--
-- net:split_micro makes two nets of a training net (src/net/split.c says which op goes where): a
-- micro-batch, whose gradients are added to accumulators with the micro-batch's share of the rows
-- as weight, and the update, which reads the accumulators as gradients. For nets without batch
-- statistics the two are the step of the large batch, within rounding.
--
-- INVARIANT: whether a step has happened is told by `counter`, which the update program raises with
-- the parameters.
--
-- What differs from the large batch: batch norm sees micro-batches (its running statistics count
-- each of them, and are put back with a step that fails or is dropped), and random ops draw by the
-- workspace's step counter, which a micro-batch raises by one: dropout masks are those of as many
-- steps, not those of the large batch. Metrics of integers are those of the last micro-batch.
-- @module neap.train.micro
local core = require "neap.core"

local micro = {}

local counter = "micro.steps"

--- Steps that the update program has finished in this workspace.
function micro.count(ws) return ws:has(counter) and ws:view(counter):item() or 0 end

--- How many labels a mean loss counts: all, but those that its cross entropy ignores, as its net
-- says. Probabilities are all counted.
-- @param goal objective, whose net has been made
-- @return nil where each row counts as one
local function counted(goal, fields)
  -- Only a loss that is the cross entropy alone counts labels; class numbers are integers.
  local counts = goal.counts
  local labels = counts and counts.alone and fields[counts.field]
  if not labels or not counts.ignored or not labels.dtype:find "^[iu]" then return nil end
  return labels:_count_not(counts.ignored)
end

--- Raises for a loss that divides by weights which its net does not show.
function micro.fail_weighted(who)
  core.fail(who .. ": the loss divides by the class weights of its labels, so that means \z
      over parts of a batch do not add up to "
    .. "its mean (hint: let it sum, reduction = \"sum\", and give the trainer reduces = \"sum\")")
end

--- Raises for a mean whose share in the mean over a larger batch is not told by its rows or labels.
local function check_shares(goal, fields)
  local counts = goal.counts
  if not counts then return end
  local labels = fields[counts.field]
  if counts.weighted then micro.fail_weighted "neap.trainer" end

  -- Other terms count rows: a mean over fewer labels than rows does not go with them.
  local is_counted = counts.alone or not counts.ignored or not labels.dtype:find "^[iu]"
  if is_counted or labels:_count_not(counts.ignored) == labels:n_element() then return end
  core.fail(("neap.trainer: the loss adds a mean over labels other than %d to other terms, and \z
        this batch has such labels: means over "
      .. "parts of a batch do not add up to its mean (hint: let it sum, and give the trainer \z
        reduces = \"sum\")"):format(counts.ignored))
end

--- How a loss makes one number of its rows: "mean" or "sum". What does not say it is refused:
-- gradients of micro-batches can't be added without knowing.
-- @param own what the loss's own field `reduces` says
-- @param stated what the trainer was told; nil: the loss's own
-- @param who string|nil the option that must know it: "micro" (the default) or "accumulate"
function micro.reduction(own, stated, who)
  local reduces = stated or own
  if reduces == "mean" or reduces == "sum" then return reduces end
  if reduces ~= nil then
    core.fail(("neap.trainer: reduces expects \"mean\" or \"sum\", got %s"):format(
        tostring(reduces)))
  end
  core.fail("neap.trainer: " .. (who or "micro")
    .. " needs to know whether the loss is a mean or a sum over its rows (hint: give the trainer "
    .. "reduces = \"mean\" or \"sum\", or the loss a field of that name)")
end

--- The parts of a batch: {program, n, weight}; weights add up to 1, but for a loss that sums, whose
-- parts count whole. The last part may have fewer rows.
-- @param goal objective
-- @param reduces "mean" or "sum": how the loss makes one number of its rows
-- @param batch as of neap.data.batch.read
-- @param size integer rows of a micro-batch
-- @param program_for f(n) -> the program of a micro-batch of n rows
function micro.parts(goal, reduces, batch, size, program_for)
  local rows, parts = batch.rows, {}
  if reduces == "mean" then check_shares(goal, batch.fields) end
  local all = reduces == "mean" and counted(goal, batch.fields)

  -- A part's weight is its share of what the mean counts: rows, or labels that are not ignored. A
  -- part without such labels weighs nothing.
  for from = 1, rows, size do
    local n = math.min(size, rows - from + 1)
    local weight = reduces == "sum" and 1 or n / rows
    if all then
      local labels = batch.fields[goal.counts.field]:narrow(1, from, n)
      weight = all > 0 and labels:_count_not(goal.counts.ignored) / all or 0
    end
    parts[#parts + 1] = { program = program_for(n), n = n, weight = weight }
  end
  return parts
end

--- What the mean over a batch counts: rows, but those with labels that its cross entropy ignores.
-- Its net has been made.
function micro.count_of(goal, batch) return counted(goal, batch.fields) or batch.rows end

--- The class weights of a loss that is one cross entropy; nil: they are not told.
local function class_weights(goal)
  local module = #goal.terms == 1 and goal.counts.alone and goal.terms[1].module
  return module and module.weights and module.weights[3]
end

--- What the loss itself divides by: the class weights of the labels that count, where it has such;
-- else `count`. Its net has been made.
-- @return nil where the loss divides by weights that nobody tells
function micro.divisor_of(goal, batch, count)
  local counts = goal.counts
  local labels = counts and counts.weighted and batch.fields[counts.field]
  if not labels or not labels.dtype:find "^[iu]" then return count end
  local weights, sum, n = class_weights(goal), 0, labels:n_element()
  if not weights then return nil end
  for class, weight in ipairs(weights:totable()) do
    local label = class - 1
    if label ~= counts.ignored then sum = sum + weight * (n - labels:_count_not(label)) end
  end
  return sum
end

--- What holding a batch and joining it to those held takes, of a net that split_micro gave for the
-- update (src/net/hold.c).
-- @return net, net
function micro.hold_nets(update) return update:_split_hold() end

--- Shares of what is held and of a batch in their common mean, or sum.
-- @param held number what the means of the batches held count; nil: none is held
-- @return kept, added
function micro.shares(reduces, held, count)
  if reduces == "sum" then return held and 1 or 0, 1 end
  local all = (held or 0) + count
  if all <= 0 then return 0, 1 end
  return (held or 0) / all, count / all
end

--- One step: the parts, then the update (src/driver/micro.c). Losses and metrics become their
-- weighted means.
-- @param after table {last = program of the update or of hold, join = program that comes before,
--   kept =, added = shares}
function micro.run(ws, batch, parts, after)
  core.run_micro(ws, batch.fields, parts, after.last, after.join, after.kept, after.added)
end

return micro
