--- A net run for some steps, and what was left: what the checks of plans and the bench of the zoo
-- compare. A run is a table of figures and `hashes`, the bits of all blobs that stay from step to
-- step, by name; inputs and draws are the same for everybody, so that two runs of a net differ in
-- their plans alone.
-- @module neap.check.runs
local core = require "neap.core"
local neap = require "neap"

local runs = {}

--- Inputs of step k, the same for everybody: floats from -1 to 1, integers below n_class.
local function inputs_of_step(net, k, n_class)
  local feeds = {}
  for i, input in ipairs(net:inputs()) do
    local float = input.dtype == "f32" or input.dtype == "f64"
    if #input.shape == 0 and float then
      feeds[input.name] = core.tensor(0.01, input.dtype)
    else
      -- A Weyl sequence: no two steps alike, no random state touched.
      local x, at = core.zeros { dtype = input.dtype, table.unpack(input.shape) },
        0.31 * k + 0.17 * i
      x:apply_(function()
        at = (at + 0.61803398875) % 1
        return float and 2 * at - 1 or at * n_class // 1
      end)
      feeds[input.name] = x
    end
  end
  return feeds
end

--- Runs `net` for some steps and tells what happened. Everything is released again.
-- @param net net
-- @param o table { steps =, count_steps = (those in which allocations are counted), n_class =,
--   seed = }
-- @param memory table of memory options
-- @param poison bool
-- @return table { hashes = {blob = bits}, names = sorted list, plan figures, held_bytes,
--   forecast_bytes, allocations, step_ms = of the last step, kernels }
function runs.run(net, o, memory, poison)
  local feeds = {}
  for k = 1, o.steps do feeds[k] = inputs_of_step(net, k, o.n_class) end

  -- Inputs are made before bytes are counted, so that they are not among them.
  collectgarbage()
  collectgarbage()
  local before = core.memory().held
  local ws <close> = neap.workspace { seed = o.seed, store = false }
  ws:poison(poison)
  ws:init(net)
  local program <close> = ws:compile(net, memory)
  local plan = program.plan
  local out = {
    hashes = {}, names = {}, kernels = {}, allocations = 0, forecast_bytes = plan.total_bytes,
    arena_bytes = plan.arena_bytes, lower_bound_bytes = plan.lower_bound_bytes,
    proved = plan.proved, baseline_bytes = plan.baseline_bytes,
    scratch_bytes_max = plan.scratch_bytes_max, n_recomputed = plan.n_recomputed,
    n_changed = plan.n_changed,
  }
  for k = 1, math.max(o.steps, o.count_steps) do
    for name, t in pairs(feeds[math.min(k, o.steps)]) do ws:feed(name, t) end
    local allocations, start = core.memory().n_alloc, core.clock()
    program:run()
    out.step_ms = (core.clock() - start) * 1e3
    -- The first step may still make what later ones use.
    if k > 1 then
      out.allocations = math.max(out.allocations, core.memory().n_alloc - allocations)
    end
    if k == o.steps then -- what follows counts allocations only
      for _, blob in ipairs(ws:_blobs()) do
        if blob.kind == "tensor" and not blob.shares then
          out.hashes[blob.name] = ws:view(blob.name):hash()
          out.names[#out.names + 1] = blob.name
        end
      end
    end
  end
  collectgarbage()
  collectgarbage()
  out.held_bytes = core.memory().held - before
  -- what a budget makes run again has the choice of what it repeats
  for _, op in ipairs(plan:_ops()) do
    if not op.recomputes then
      out.kernels[#out.kernels + 1] = op.name .. " " .. op.type .. " " .. op.choice
    end
  end
  table.sort(out.kernels)
  table.sort(out.names)
  return out
end

--- What says where bytes lie, and when: an unplanned run has none of it.
local planning = {
  "policy", "executor", "budget", "total", "soft", "recompute", "exact", "in_place", "search",
  "banks", "mem_param",
}

--- The memory options of the unplanned run beside one with `memory`.
function runs.unplanned(memory)
  local out = {}
  for name, value in pairs(memory) do out[name] = value end
  for _, name in ipairs(planning) do out[name] = nil end
  out.policy = "none"
  return out
end

--- Whether a planned run has left the bits of the unplanned one, by the same kernels.
-- @param plain table of runs.run
-- @param planned table of runs.run
-- @return table { same =, same_choices =, n_blob =, different = first name }, rows {blob, same}
function runs.compare(plain, planned)
  local rows, different = {}, nil
  for _, name in ipairs(plain.names) do
    local same = plain.hashes[name] == planned.hashes[name]
    if not same and different == nil then different = name end
    rows[#rows + 1] = { blob = name, same = same }
  end

  -- Other kernels would give other bits: the comparison says which it was.
  local choices = table.concat(plain.kernels, "\n") == table.concat(planned.kernels, "\n")
  return {
    same = different == nil and choices and #rows > 0 and #plain.names == #planned.names,
    same_choices = choices,
    n_blob = #rows,
    different = different,
  }, rows
end

return runs
