--- What a model's nets are planned as: m:plan, m:forecast, m:dry_run and m:summary.
--
-- Each takes options of the net (neap.nn.build) and options of its memory (neap.memory.options) in
-- one table, and tells them apart. Nothing here runs a net or makes a parameter.
-- @module neap.nn.planned
local again = require "neap.plan.again"
local build = require "neap.nn.build"
local core = require "neap.core"
local elems = require("neap.inner.lists").product
local memory_options = require "neap.memory.options"
local module = require "neap.nn.module"
local names = require "neap.nn.names"
local option_record = require "neap.inner.record"
local range = require "neap.memory.range"
local refusal = require "neap.memory.refusal"
local report = require "neap.report"
local tree = require "neap.nn.tree"
local fail = core.fail

local Module = module.Module

-- What m:plan and the like take beside memory options: fields of m:net, and shapes of its inputs.
local plan_fields = table.move(build.net_fields, 1, #build.net_fields, 1, {})
plan_fields[#plan_fields + 1] = { "x", "any", doc = "shape of x, as in net:plan" }
plan_fields[#plan_fields + 1] = { "y", "any", doc = "shape of y" }
local plan_options = option_record.new("m:plan", plan_fields)

--- Options of the net and options of its memory, apart.
local function apart(o, who)
  if o ~= nil and type(o) ~= "table" then
    fail(("%s expects a table of options, { batch = 16 }, got a %s"):format(who, type(o)))
  end

  -- Words that the contract has and the planner does not yet: else a plan would seem to obey them.
  for _, name in ipairs { "stash", "order" } do
    if o and o[name] ~= nil then
      fail(("%s: \"%s\" is reserved, and not available yet"):format(who, name))
    end
  end
  local net, memory = memory_options.split(who, o, "lua", plan_options)

  -- x and y are shapes of the net's inputs, which net:plan takes with the memory options.
  memory.x, memory.y, net.x, net.y = net.x, net.y, nil, nil

  -- A loss is of use in training alone, and training needs one: each implies the other.
  if net.train == nil and net.loss then net.train = true end
  if net.train and not net.loss then net.loss = require("neap.nn").CrossEntropyLoss {} end
  return net, memory
end

--- The range of batches up to `most` rows of this model.
local function range_to(self, net_options, memory, most)
  -- The range is of the net built for the most rows; `net_options` is the caller's again
  -- afterwards.
  local rows = net_options.batch
  net_options.batch = most
  local batches = require("neap").range(Module.net(self, net_options), memory)
  net_options.batch = rows
  return batches
end

for _, name in ipairs { "plan", "forecast", "dry_run" } do
  --- m:plan, m:forecast, m:dry_run { batch =, train =, loss =, optimizer =, .. memory options as in
  -- net:plan }. Nothing is allocated. With max_batch: of `batch` rows within the memory of a net
  -- built for the largest.
  Module[name] = function(self, o)
    local net_options, given = apart(o, "m:" .. name)
    local memory, most = range.apart(given)

    -- When the plan is refused, the refusal looks for a batch that fits: it builds nets of other
    -- sizes by this.
    local function of_batch(n)
      local o_n = {}
      for key, value in pairs(net_options) do o_n[key] = value end
      o_n.batch = n
      return Module.net(self, o_n), memory
    end
    return refusal.around_model(of_batch, nil, o.batch, function()
      local net = Module.net(self, net_options)
      if name == "dry_run" then return net:dry_run(given) end
      local plan = most and net:_plan(memory, range_to(self, net_options, memory, most))
        or net:plan(given)
      if name == "forecast" then return plan:forecast() end
      return again.note(plan, o, function(all) return self:plan(all) end, function(all)
        local n_options, rest = apart(all, "m:plan")
        return Module.net(self, n_options), rest
      end, true)
    end)
  end
end

--- What neap.count_memory counts: the net, options of its memory, and the range of batches when
-- these name a largest one.
function Module.count_net(self, o)
  local net_options, given = apart(o, "neap.count_memory")
  local memory, most = range.apart(given)
  return Module.net(self, net_options), memory, most and range_to(self, net_options, memory, most)
end

-- ---- summary ------------------------------------------------------------------------------------

--- Shapes of a net's inputs, in order, without the target's: "(1,4), (1,3)".
local function shapes_of(net)
  local parts = {}
  for i, input in ipairs(net:inputs()) do
    parts[i] = "(" .. table.concat(input.shape, ",") .. ")"
  end
  return table.concat(parts, ", ")
end

--- Parameters and statistics by the modules that have run: those of a part that has no forward of
-- its own are its parent's. @return {module = list}
local function params_by_layer(self, trace)
  local own = {}

  -- Every module that has run has a row.
  for _, t in ipairs(trace) do own[t.module] = own[t.module] or {} end

  -- A part without a forward of its own (a table of weights) is read by one above it.
  for _, m in ipairs(tree.modules((tree.home(self)))) do
    local by = m
    while by and not own[by] do by = by._parent end
    for _, r in ipairs(by and m._params or {}) do table.insert(own[by], r) end
  end
  return own
end

--- m:summary { batch = } -> Report: a row per layer: its output shape, parameters and mult-adds of
-- the forward pass; totals parameters, trainable, mult_adds, parameter_bytes.
function Module.summary(self, o)
  local net_options, memory = apart(o, "m:summary")
  -- Rows show the shapes of the net that is built: a plan for others would count for others.
  if memory.x or memory.y then
    fail("m:summary takes no shapes x or y: batch = rows, and input = the shape of one example")
  end
  net_options.train, net_options.traced, net_options.loss = false, true, nil
  local net, blobs, record = Module.net(self, net_options)
  local flops, rows, seen = {}, {}, {}
  memory.fuse = false -- a row is a layer as it was written

  -- Work is known by the plan; its ops are found by their first output, as the trace notes them.
  for _, op in ipairs(net:plan(memory):_ops()) do flops[op.outputs[1]] = op.flops end
  local totals = { parameters = 0, trainable = 0, mult_adds = 0, parameter_bytes = 0 }
  local own = params_by_layer(self, record.trace)
  for _, t in ipairs(record.trace) do
    local m, n, work = t.module, 0, 0
    for _, r in ipairs(own[m]) do
      local storage = names.storage_record(r)
      -- A tied parameter counts where it comes first.
      if storage.role == "parameter" and not seen[storage] then
        seen[storage] = true
        n = n + elems(storage.shape)
        totals.trainable = totals.trainable + (storage.trainable and elems(storage.shape) or 0)
        totals.parameter_bytes = totals.parameter_bytes
          + elems(storage.shape) * (storage.dtype == "f64" and 8 or 4)
      end
    end

    -- A multiplication and an addition are two flops.
    for _, name in ipairs(t.ops) do work = work + (flops[name] or 0) // 2 end
    totals.parameters, totals.mult_adds = totals.parameters + n, totals.mult_adds + work
    if #t.ops > 0 or n > 0 then
      rows[#rows + 1] = {
        layer = (record.tree.path[m] or m._base):gsub("/", "."),
        type = m._class,
        output = t.output.shape and "(" .. table.concat(t.output.shape, ",") .. ")",
        parameters = n,
        mult_adds = math.tointeger(work) or work,
      }
    end
  end
  return report.new {
    rows = rows,
    columns = { "layer", "type", "output", "parameters", "mult_adds" },
    totals = totals,
    title = ("%s: %s to (%s)"):format(
      self._class, shapes_of(record.net), table.concat(blobs.output.shape, ",")),
    order = { "parameters", "trainable", "mult_adds", "parameter_bytes" },
  }
end
