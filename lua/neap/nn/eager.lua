--- Eager calls: m(x) and m:backward on tensors, which run at once.
--
-- A call is a net, built for the module, mode and shapes at hand and kept by the root of the module
-- until something changes what it builds; so the second call of the same kind only runs.
--
-- INVARIANT: a call that raises leaves the model as it was: its modules, their widths and
-- parameters.
-- @module neap.nn.eager
local build = require "neap.nn.build"
local context = require "neap.nn.context"
local core = require "neap.core"
local count_memory = require "neap.memory.count"
local is_blob = require("neap.op").is_blob
local module = require "neap.nn.module"
local net_module = require "neap.net"
local script = require "neap.inner.script"
local tree = require "neap.nn.tree"
local workspace = require "neap.workspace"
local fail = core.fail

local Module = module.Module
local eager = {}

--- What an eager call of `m` on the first n tensors of xs is known by: module, mode, shapes.
local function call_id(self, m, xs, n)
  -- The path names the module within its root, whose table of nets this is.
  local key = { tree.of(self).path[m], tostring(Module.is_training(m)) }
  for i = 1, n do
    local x = xs[i]
    local may_lack = x == nil and i > 1 and i < n -- an argument left out
    if type(x) ~= "userdata" and not may_lack then
      fail(("nn.%s expects tensors, got a %s as argument %d"):format(m._class, type(x), i))
    end
    key[#key + 1] = may_lack and "none" or x.dtype .. "(" .. table.concat(x.shape, ",") .. ")"
  end
  return table.concat(key, " ")
end

--- Nets for eager calls are kept by what they were built for.
local function cached(self, m, xs, kind, make)
  -- One net for each kind of call; what changes the model empties the table.
  local id = kind .. " " .. call_id(self, m, xs, xs.n)
  if self._nets[id] == nil then
    local entry = make()
    Module.workspace(self):init(entry.net)
    self._nets[id] = entry -- a layer that learnt its width has emptied the table
  end
  return self._nets[id]
end

local function declare_inputs(net, xs)
  local ins, names = {}, {}
  for i = 1, xs.n do
    names[i] = "input" .. i
    ins[i] = xs[i] and net:input(names[i], xs[i].shape, xs[i].dtype)
  end
  return ins, names
end

local function run(self, entry, xs, memory)
  local feeds = {}
  for i = 1, xs.n do feeds[entry.inputs[i]] = xs[i] end
  return Module.workspace(self):run(entry.net, feeds, memory)
end

--- What eager forwards drew by, by call_id. m:seed forgets it.
local function draws_of(root)
  if rawget(root, "_draws") == nil then rawset(root, "_draws", {}) end
  return rawget(root, "_draws")
end

--- The same for a backward: it draws by `draw`, and leaves counters and statistics as they were.
local function run_backward(root, entry, xs, draw)
  local ws, before = Module.workspace(root), {}

  -- The forward inside writes statistics again; a copy of them before, put back after.
  for i, record in ipairs(entry.states) do
    before[i] = rawget(record.home, "_ws"):fetch(record.home_name)
  end

  -- The numbers that the forward drew, so that a dropout's mask is the same.
  local hold = ws:_give_draw(draw[1], draw[2])
  local _ <close> = setmetatable({}, { __close = function()
    hold = hold and ws:_give_draw()
    for i, record in ipairs(entry.states) do
      rawget(record.home, "_ws"):feed(record.home_name, before[i])
    end
  end })
  return run(root, entry, xs)
end

--- f(...) -> f's results: the first call on tensors learns widths and makes parameters; when it
-- raises, it has not.
local function attempt(root, f, ...)
  -- Nothing is left to learn: the notes that undo a failed call would be taken in vain.
  if rawget(root, "_met") then return f(...) end
  return tree.attempt(root, workspace.attempt, Module.workspace(root), true, {}, f, ...)
end

--- One example of the tensors of a call, as the option `input` says it.
local function example_of(xs)
  local input = {}
  for i = 1, xs.n do
    local x = xs[i]
    if not x then return nil end
    input[i] = table.move(x.shape, 2, #x.shape, 1, { dtype = x.dtype })
  end
  return #input == 1 and input[1] or input
end

--- What the net of a call is named: as those of m:plan and trainers where the model has a name, so
-- that the database knows all of them by it, else as its class.
local function called(m) return script.given_name(m) or m._class end

local function run_eager(self, m, memory, ...)
  local xs = table.pack(...)

  -- Arguments left out at the end are none; those in the middle are part of the kind of call.
  while xs.n > 0 and xs[xs.n] == nil do xs.n = xs.n - 1 end
  local entry = cached(self, m, xs, "forward", function()
    local e = { seen = example_of(xs) }
    e.net = context.build(called(m), self, { train = Module.is_training(m) }, function(record)
      local ins
      ins, e.inputs = declare_inputs(record.net, xs)
      e.outs = table.pack(m(table.unpack(ins, 1, xs.n)))
      record.net:outputs(build.results_of(m, e.outs))
    end).net
    return e
  end)

  -- By what the random ops of this run draw is noted before it: a backward of the same kind of call
  -- draws so again.
  draws_of(self)[call_id(self, m, xs, xs.n)] = { Module.workspace(self):_look_draw(false) }
  local results, list = run(self, entry, xs, memory), {}
  rawset(m, "_seen", entry.seen or rawget(m, "_seen"))
  for k = 1, entry.outs.n do list[k] = results[entry.outs[k].name] end
  return table.unpack(list, 1, entry.outs.n)
end

--- Runs `m` on tensors in the root's workspace. Kept in `self`, the root of m.
function Module.run_eager(self, m, ...) return attempt(self, run_eager, self, m, nil, ...) end

--- Adds `m` to the net of a transform (neap.transform), where it is a guest: its parameters stay
-- its own, and are read anew in each run. What it learns of widths it keeps; statistics it does
-- not.
function Module._run_as_guest(root, m, ...)
  local net, capture, args = nil, nil, table.pack(...)

  -- Any blob among the arguments tells the net; it must be one that takes tensors in as inputs.
  for i = 1, args.n do
    if is_blob(args[i]) then net, capture = net_module.capturing(args[i].net) end
  end
  if not net then
    fail(("nn.%s got a blob of a net that is no model's: it takes part in another model's \z
      forward, in a loss, and in neap.grad and its like on tensors; m:net is a net of it"):format(
        m._class))
  end

  -- One record for each model in the net, however often it is called: its parameters come in once.
  local guests = net_module.guests(net)
  local record = guests[root] or context.new(net, root, {
    train = rawget(root, "_mode") ~= false,
    guest = function(storage)
      local p = Module.as_parameter(storage, (tree.home(storage.owner)))
      return capture(p, function() return p.data end)
    end,
  })
  guests[root] = record
  return attempt(root, function(...)
    local _ <close> = setmetatable({}, { __close = context.enter(record) })
    local out = table.pack(m(...))
    rawset(root, "_met", true)
    return table.unpack(out, 1, out.n)
  end, ...)
end

--- The same for a model and its inputs, with memory options as in net:plan.
function eager.run_within(m, memory, ...)
  local root = tree.home(m)
  return attempt(root, run_eager, root, m, memory, ...)
end

local function backward(self, root, ...)
  local xs = table.pack(...)
  count_memory.check_gradients(root, "m:backward")
  if xs.n < 2 then
    fail("m:backward takes (x, .., dy): the inputs, then the gradient of the output")
  end

  -- A scalar whose gradient is the one asked for: the sum of y times dy.
  local entry = cached(root, self, xs, "backward", function()
    local e = { wrt = {}, grads = {}, states = {} }
    local net_name = called(self) .. "_backward"
    e.net = context.build(net_name, root, { train = Module.is_training(self) }, function(record)
      local net = record.net
      local ins, names = declare_inputs(net, xs)
      e.inputs = names
      local y = self(table.unpack(ins, 1, xs.n - 1))
      local loss = (y * ins[xs.n]):sum()

      -- Of the inputs those of floats, and every parameter that is trained. Statistics are noted,
      -- to be put back.
      local wrt = {}
      for i = 1, xs.n - 1 do
        if ins[i] and ins[i].dtype:match "^b?f" then
          wrt[#wrt + 1] = ins[i].name
          e.wrt[i] = true
        end
      end
      for r, blob in pairs(record.blobs) do
        if r.role == "state" then e.states[#e.states + 1] = r end
        if r.trainable then wrt[#wrt + 1] = blob.name end
      end

      -- pairs has no order, and the same call is to build the same net.
      table.sort(wrt)
      local by_blob, outputs = net:gradient(loss, { wrt = wrt, allow_unused = true }), {}
      for _, name in ipairs(wrt) do
        e.grads[name] = by_blob[net:blob(name)].name
        outputs[#outputs + 1] = e.grads[name]
      end
      net:outputs(outputs)
    end).net
    return e
  end)

  -- Without a forward before, it draws what the next one would. An argument left out before dy was
  -- left out at the end there.
  local n = xs.n - 1
  while n > 0 and xs[n] == nil do n = n - 1 end
  local draw = draws_of(root)[call_id(root, self, xs, n)]
    or { Module.workspace(root):_look_draw(false) }
  local results, list = run_backward(root, entry, xs, draw), {}
  local gradients = {}
  for name, grad in pairs(entry.grads) do gradients[name] = results[grad] end
  rawset(root, "_gradients", gradients)
  for i = 1, xs.n - 1 do list[i] = gradients["input" .. i] end
  return table.unpack(list, 1, xs.n - 1)
end

--- m:backward(x, .., dy) -> dx, ..: gradients of the inputs (nil for integer ones) for the gradient
-- dy of the output. The parameters' gradients are in m:param(name).grad until the next backward;
-- they are set, not added to.
--
-- It belongs to the last call m(x, ..) in this mode with inputs of these shapes, and draws what
-- that one drew: the masks are the same. (Where there was none since m:seed, it draws what such a
-- call would.) It runs the forward again, and is a function of x, dy and the parameters alone:
-- statistics and the counters that random numbers follow from, a trainer's too, stay as they are.
function Module.backward(self, ...)
  local root = (tree.home(self))
  return attempt(root, backward, self, root, ...)
end

return eager
