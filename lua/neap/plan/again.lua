--- Planning again: what a plan was made of, and the plan of the same with something changed.
--
-- A *change* is a table of memory options, in place of those that the plan was made with, and of
--   batch = n          another batch
--   without = names    a model without these modules: what goes into them comes out
-- `false` takes an option away. Names in `keep` come to those that are kept already; an empty list
-- takes them away.
-- @module neap.plan.again
local core = require "neap.core"
local memory_options = require "neap.memory.options"
local options = require "neap.inner.options"
local fail = core.fail

local again = {}

--- By plan: {options, plan = f(options) -> plan, net = f(options) -> net, memory options,
-- is_model}.
local sources = setmetatable({}, { __mode = "k" })

local function copy(t)
  local out = {}
  for key, value in pairs(t or {}) do out[key] = value end
  return out
end

--- Notes what a plan was made of: a net, or, as `is_model`, what builds one for a batch.
-- @param p plan
-- @param given table its options
-- @param plan f(options) -> plan
-- @param net f(options) -> net, memory options
-- @return p
function again.note(p, given, plan, net, is_model)
  sources[p] = { options = copy(given), plan = plan, net = net, is_model = is_model }
  return p
end

--- The same for a net, which is its own.
function again.note_net(p, net, given)
  return again.note(p, given, function(all) return net:plan(all) end,
    function(all) return net, all end, false)
end

--- Whether it is known what the plan was made of.
function again.is_known(p) return sources[p] ~= nil end

--- Whether false is a value of the option, and not its absence.
local function may_be_false(key)
  local record = memory_options.records[key]
  return record ~= nil and (record.type == "switch" or (record.range or ""):find "false" ~= nil)
end

--- The options with a change made to them.
local function changed(source, change)
  local all = copy(source.options)

  -- `false` takes an option away, unless it is a value of it (recompute = false).
  for key, value in pairs(change) do
    if key == "keep" or key == "without" then
      local names = options.names(value or {})
      -- Names add up: a change that keeps one more blob is not to lose those kept before.
      all[key] = #names > 0 and options.append(options.names(all[key] or {}), names) or nil
    elseif key ~= "batch" then
      all[key] = value
      if value == false and not may_be_false(key) then all[key] = nil end
    end
  end
  -- mem_param says a policy by itself, and would contradict the new one.
  if change.policy then all.mem_param = nil end
  if change.without and not source.is_model then
    fail "without: a net's layers can't be left out; plan a model, model:plan { .. }"
  end

  -- A model builds its net for the batch. A net has shapes of inputs: those that have the batch
  -- first get it, whether they were given by `inputs` or by the name alone.
  if change.batch and source.is_model then all.batch = change.batch end
  if change.batch and not source.is_model then
    local inputs = copy(all.inputs)
    for name, shape in pairs(core.batch_inputs(source.net(all), change.batch)) do
      inputs[name], all[name] = shape, nil
    end
    all.inputs = inputs
  end

  -- A plan that only answers a question is not for the database.
  all.store = false
  return all
end

--- The plan with a change. Nothing of it is stored. Raises what planning raises.
-- @param who string for messages
-- @return plan
function again.plan(who, p, change)
  local source = sources[p]
  if source == nil then
    fail(("%s: what this plan was made of is not known: it is a program's; ask that of \z
      net:plan { .. } or model:plan { .. }"):format(who))
  end
  return source.plan(changed(source, change))
end

--- What the plan was made with, by the names of options.
function again.options(p) return copy(sources[p] and sources[p].options) end

--- Whether the layers of what was planned can be left out.
function again.is_model(p) return sources[p] ~= nil and sources[p].is_model or false end

return again
