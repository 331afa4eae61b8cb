--- A model's bytes by class, before and after planning, and the switch to inference that gives
-- gradients back.
--
-- Classes are those of Torch's optnet: parameters, gradients of parameters, outputs of layers,
-- gradients of those ("gradient inputs"), buffers (optimizer and batch norm state, masks and other
-- stashes, scratch). INVARIANT: a storage is counted once, however many names or views it has; what
-- planning lets classes share is counted once in the total.
-- @module neap.memory.count
local core = require "neap.core"
local module = require "neap.nn.module"
local record = require "neap.inner.record"
local report = require "neap.report"
local tree = require "neap.nn.tree"
local fail = core.fail

local Module = module.Module
local count_memory = {}

--- The words of Torch's optnet for the columns of the engine's counts, in the order of these.
local words = {
  parameter_bytes = "parameters", gradient_bytes = "gradients", output_bytes = "outputs",
  gradient_input_bytes = "gradient inputs", buffer_bytes = "buffers", total_bytes = "total",
}

--- neap.count_memory(model, {batch =, train =, loss =, optimizer =, ..}) -> Report of bytes by
-- class: `before`, every value in bytes of its own; `after`, as planned. Classes share bytes after
-- planning: their column adds up to more than its total. Nothing is allocated.
-- @return Report; fields before_bytes, after_bytes (totals), saved (1 - after / before)
-- @usage print(neap.count_memory(model, { batch = 32, train = true }))
function count_memory.count(model, given)
  if not module.is_module(model) then
    fail("neap.count_memory takes a model, got a " .. type(model))
  end
  local net, memory, most = Module.count_net(model, given or {})
  local before, after = net:_count(memory, most)
  local rows = {}
  for i, column in ipairs(report.kinds.counts) do
    local name = column.name
    rows[i] = { class = words[name], before = before[name], after = after[name] }
  end
  return report.new { rows = rows, columns = { "class", "before", "after" }, order = { "saved" },
    title = ("bytes of %s, batch %d"):format(model._class, given and given.batch or 1),
    totals = { before_bytes = before.total_bytes, after_bytes = after.total_bytes,
      saved = before.total_bytes > 0 and 1 - after.total_bytes / before.total_bytes or 0 } }
end

--- m:count{..}: the same as a method.
function Module.count(self, given) return count_memory.count(self, given) end

-- ---- optimise and undo --------------------------------------------------------------------------

local optimize_options = record.declare("m:optimize", { positions = { "mode" },
  doc = [[Gives memory back that a use of the model does not need; m:undo() goes back. Gives the
    model and a message. A second call changes nothing and says so.]],
  { "mode", "choice", "inference", choices = { "inference", "training" },
    doc = [[for inference the gradients of parameters that the model's workspace holds, and those
      m:backward left, are given back, and backward is refused until m:undo()]] },
  example = 'model:optimize { mode = "inference" }' })

--- m:optimize{ .. } -> m, message: see the record.
-- @usage model:optimize { mode = "inference" }; local y = model(x); model:undo()
function Module.optimize(self, given)
  local root = tree.home(self)
  local mode = optimize_options:read(given).mode

  -- A second call would note the mode that the first one set, and undo could not go back.
  local now = rawget(root, "_optimized")
  if now then
    return self,
      ("the model is optimised for %s already: nothing has changed; m:undo() goes back"):format(
        now.mode)
  end
  local ws, bytes = Module.workspace(root), 0
  if mode == "inference" then
    -- the layout is remembered by the records: backward makes them again
    bytes = ws:drop_gradients()
    for _, t in pairs(rawget(root, "_gradients") or {}) do bytes = bytes + t:n_bytes() end
    rawset(root, "_gradients", nil)
    rawset(root, "_nets", {}) -- nets of backward calls, and with them their programs
  end

  -- The mode of before is kept for m:undo.
  rawset(root, "_optimized", { mode = mode, train = rawget(root, "_mode") })
  if mode == "inference" then rawset(root, "_mode", false) end
  return self, ("optimised for %s: %s of gradients given back"):format(mode, core.bytes_text(bytes))
end

--- m:undo() -> m, message: as before m:optimize; the next backward makes the gradients again.
function Module.undo(self)
  local root = tree.home(self)
  local now = rawget(root, "_optimized")
  if not now then return self, "the model is not optimised: nothing has changed" end
  rawset(root, "_optimized", nil)
  rawset(root, "_mode", now.train)
  return self, ("no longer optimised for %s"):format(now.mode)
end

--- Raises where a model that is optimised for inference is asked for gradients.
function count_memory.check_gradients(root, what)
  local now = rawget(root, "_optimized")
  if now and now.mode == "inference" then
    error(core.error {
      code = "released",
      message = what .. ": the model is optimised for inference, and has given its gradients back",
      hint = "m:undo() makes it trainable again",
    })
  end
end

return require("neap.inner.guard").functions(count_memory, "neap.count_memory.")
