--- neap.check.nan: where numbers stop being finite.
--
-- The net is run once more, its backward pass written out, with bytes of its own for every value,
-- on copies of what the workspace holds; ops are looked at in the order in which they ran.
-- @module neap.check.nan
local core = require "neap.core"
local dtypes = require "neap.inner.dtypes"
local options = require "neap.inner.options"
local op = require "neap.op"
local report = require "neap.report"
local workspace = require "neap.workspace"
local workspace_state = require "neap.workspace.state"
local fail = core.fail

local M = {}

--- How many elements are no numbers or infinite, and the extremes and mean of the others.
local function stats(t)
  local s = t:stats()
  return { min = s.min, max = s.max, mean = s.mean, nan = s.nan, inf = s.inf }
end

local function is_float(t) return dtypes.is_float[t.dtype] end

--- A blob as the run left it; nil for one that has no value there.
local function value_of(ws, name)
  local ok, t = pcall(ws.fetch, ws, name)
  return ok and op.is_tensor(t) and t or nil
end

--- The net with everything that it differentiates written out, run on what `ws` holds.
-- @return workspace, net
local function run_again(ws, net, fed)
  -- Inputs, parameters and state as the workspace has them, or as the step was fed; a scalar that
  -- nobody holds any more is a rate.
  local shapes, feeds = {}, {}
  for _, row in ipairs(net:_blobs()) do
    local held = fed[row.name] or ws:has(row.name) and value_of(ws, row.name)
    if held and (row.role == "input" or row.role == "parameter" or row.role == "state") then
      feeds[row.name] = held:clone()
      if row.role == "input" then shapes[row.name] = held.shape end
    elseif row.role == "input" and row.shape then -- a rate: what follows from it is the update
      feeds[row.name] = core.eager("Constant", {}, { shape = row.shape, dtype = row.dtype })
    end
  end

  -- Written out, the backward pass has ops and names of its own; with policy "none" every value is
  -- there after the run.
  local whole = net:expand { inputs = shapes }
  local own = workspace.new { store = false, seed = 1 }
  own:init(whole)
  for name, t in pairs(feeds) do
    if whole:_blob(name) then own:feed(name, t) end
  end
  local memory = { policy = "none", inputs = shapes }
  own:compile(whole, memory):run()
  return own, whole
end

--- The first op that gives what is not finite, nil where there is none: { op, type, line, output,
-- inputs }.
local function first_in(ws, net, fed)
  local own <close>, whole = run_again(ws, net, fed)

  -- In the order in which they ran: those before the first bad one have given only finite numbers.
  for _, row in ipairs(whole:_ops()) do
    for _, name in ipairs(row.outputs) do
      local y = name and value_of(own, name)
      local s = y and is_float(y) and y:n_element() > 0 and stats(y)
      if s and s.nan + s.inf > 0 then
        local inputs = {}
        for _, x in ipairs(row.inputs) do
          local t = x and value_of(own, x)
          if t and is_float(t) and t:n_element() > 0 then
            local r = stats(t)
            r.blob, r.shape = x, "(" .. table.concat(t.shape, ",") .. ")"
            inputs[#inputs + 1] = r
          end
        end
        return { op = row.name, type = row.type, line = row.line, output = name, nan = s.nan,
          inf = s.inf, inputs = inputs }
      end
    end
  end
end

--- The nets that ran in a workspace, the workspace, and what else is fed; of a trainer its last
-- step's, or that of the batch whose loss was not finite.
local function nets_of(what)
  local class = (debug.getmetatable(what) or {}).__name
  if class == "neap.workspace" then
    local nets = {}
    for net in pairs(workspace_state.of(what).programs) do nets[#nets + 1] = net end
    table.sort(nets, function(a, b) return a:name() < b:name() end)
    return nets, what, {}
  elseif class == "neap.trainer" then
    local trainer = require("neap.train.handle").behind(what)
    local net, ws, fed = require("neap.train.programs").last_net(trainer)
    if not net then fail "neap.check.nan: the trainer has made no step" end
    return { net }, ws, fed
  end
  fail(("neap.check.nan expects a workspace or a trainer, got a %s"):format(options.shown(what)))
end

--- neap.check.nan(ws | trainer) -> Report: the first op, in the order of running, that makes a NaN
-- or an infinity of what the workspace holds now (for a trainer, of its last batch): fields op,
-- type, line, output, nan, inf; its rows are the op's inputs, with their extremes. `found` is false
-- where all numbers are finite.
-- @usage ws:run(net, { x = x }); print(neap.check.nan(ws))
function M.check(what)
  local nets, ws, fed = nets_of(what)
  if #nets == 0 then fail "neap.check.nan: no net has run in this workspace" end
  local found
  for _, net in ipairs(nets) do
    found = found or first_in(ws, net, fed)
  end
  local totals = found or {}
  totals.found = found ~= nil
  return report.new { rows = found and found.inputs or {},
    columns = { "blob", "shape", "min", "max", "mean", "nan", "inf" }, totals = totals,
    order = { "found", "op", "type", "line", "output", "nan", "inf" } }
end

return M
