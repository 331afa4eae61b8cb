-- Tables whose metamethods add keys, lie about their length or close what is at work: C reads
-- arguments raw, from a copy where it counts them first, so that no metamethod is asked and nothing
-- grows under its feet.
local neap = require "neap"
local core = require "neap.core"
local nets = dofile "tests/hostile/nets.lua"

local asked = 0
local events = {
  "__index", "__newindex", "__len", "__pairs", "__eq", "__lt", "__concat", "__call", "__add",
  "__unm", "__close",
}

--- A table of `content` whose metamethods call `evil`; each counts as asked.
local function hostile(content, evil)
  local meta = {}
  for _, event in ipairs(events) do
    meta[event] = function(...)
      asked = asked + 1
      return evil(...)
    end
  end
  return setmetatable(content, meta)
end

--- Metamethods that make `t` many times as large, and answer with a name.
local function grows(t)
  return function()
    for i = 1, 2000 do t["grown" .. i] = "v" .. i end
    return "x"
  end
end

--- f(t, item): t a table to be handed to C, item a hostile value that grows it.
local function with_growing(f)
  local t = {}
  return pcall(f, t, hostile({}, grows(t)))
end

local parent = neap.workspace { seed = 1, store = false }
parent:feed("x", neap.ones(2, 3))
local net = nets.small "small"
parent:init(net)
local program = parent:compile(net, { store = false })

local readers = {
  function(t, item) t.a = item; core.new_workspace { parent = parent, forward = t } end,
  function(t, item) t.a = item; core.Scope._push(parent:create_scope "frames", parent, t) end,
  function(t, item)
    t.a = item
    core.Scope.check_bindings_match(parent:create_scope "frames", t)
  end,
  function(t, item) t.x = item; net:rename(t) end,
  function(t, item) t[item] = "z"; net:rename(t) end,
  function(t, item)
    t[item] = neap.ones(2, 3)
    core.run_micro(parent, t, { { program = program, n = 1, weight = 1 } }, program)
  end,
  function(t, item) core.run_micro(parent, {}, hostile({ item }, grows(t)), program) end,
  function(t, item) t.x = item; core.Net._plan(net, hostile({ inputs = t }, grows(t))) end,
  function(t, item) t.budget = item; core.Net._plan(net, t) end,
  function(t, item) core.Net._plan(net, { banks = hostile(t, item) }) end,
  function(t, item)
    core.Net._plan(net, { mem_param = hostile(t, item), keep = hostile(t, item) })
  end,
  function(t, item) t.axes = item; core.eager("Sum", { neap.ones(2, 3) }, t) end,
  function(t, item) core.eager("Add", hostile(t, item), {}) end,
  function(t, item) core.new_chain(parent, hostile(t, item), 1, {}) end,
  function(t, item) core.memonger.assign(hostile(t, item), {}) end,
  function(t, item) core.memonger.estimate(hostile(t, item), {}) end,
  function(t, item) core.memonger.best_slot(hostile(t, item), 4) end,
  function(t, item) core.memonger.reorder(net, hostile(t, item)) end,
  function(t, item) core.batch_reader(hostile(t, item), { 0 }, {}) end,
  function(t, item) core.batch_reader({ { source = neap.ones(3), window = item } }, { 0 }, {}) end,
  function(t, item) core.batch_reader({ { source = neap.ones(3) } }, hostile(t, item), {}) end,
  function(t, item)
    core.batch_reader({ { source = neap.ones(3) } }, { 0 }, { transforms = hostile(t, item) })
  end,
  function(t, item)
    core.batch_reader({ { files = hostile(t, item), shape = { 1, 2, 2 } } }, { 0 }, {})
  end,
  function(t, item) core.transform_shape({ { "flip", item, item } }, hostile(t, item)) end,
  function(t, item) core.run_steps(parent, { nets = { item }, given = {}, steps = {} }) end,
  function(t, item) core.run_steps(parent, { nets = {}, given = {}, steps = hostile(t, item) }) end,
  function(t, item) core.save("/nonexistent/file", hostile(t, item)) end,
  function(t, item)
    t.a = neap.ones(2)
    core.save("/nonexistent/file", t, { meta = hostile({}, grows(t)) })
  end,
  function(t, item) parent:save("/nonexistent/file", hostile(t, item)) end,
  function(t, item) core.Net._outputs(net, { item }) end,
  function(t, item)
    core.Net._declare(nets.small "small", "q", "parameter", hostile(t, item), "f32",
      hostile({}, grows(t)))
  end,
  function(t, item) core.Net._add(nets.small "small", "Relu", { item }) end,
  function(t, item) neap.zeros(hostile(t, item)) end,
  function(t, item) neap.ones(6):view(hostile(t, item)) end,
  function(t, item) neap.ones(2, 3):permute(hostile(t, item)) end,
  function(t, item) return neap.ones(2, 3)[hostile(t, item)] end,
  function(t, item) neap.ones(2):close(neap.ones(2), hostile(t, item)) end,
  function(t, item) neap.cache "c":pop(hostile(t, item)) end,
  function(t, item) core.error(hostile(t, item)) end,
  function(t, item) core.nearest("word", hostile(t, item)) end,
  function(t, item) core.encode_bytes("abc", hostile(t, item)) end,
  function(t, item) core.define_op(hostile(t, item)) end,
  function(t, item)
    t.nodes, t.inputs, t.initializers, t.opsets, t.graph = item, item, item, item, item
    core.write_onnx("/nonexistent/file", hostile(t, item))
    core.write_onnx("/nonexistent/file", { opsets = item, graph = t })
  end,
  function(t, item) core.write_onnx("/nonexistent/file", { graph = hostile(t, item) }) end,
}

for i, reader in ipairs(readers) do
  asked = 0
  with_growing(reader)
  assert(asked == 0, "reader " .. i .. " asked a metamethod")
end

-- Tables that hold themselves, or others far deeper than the stack of C: what goes down into them
-- says so.
local function deep(n, wrap)
  local t = wrap(nil)
  for _ = 1, n do t = wrap(t) end
  return t
end
local function step(inner)
  return { name = "s", nets = {}, given = {}, steps = { inner }, iterations = 1, instances = 1 }
end
local function graph(inner)
  return { name = "g", nodes = { { name = "n", op = "If", domain = "", inputs = {}, outputs = {},
    attrs = { body = { kind = "graph", value = inner or { name = "g" } } } } } }
end
local function within_itself(wrap, hold)
  local t = wrap({})
  hold(t)
  return t
end

local function refuse(f, ...)
  local ok, err = pcall(f, ...)
  assert(not ok and tostring(err):find("nested too deeply", 1, true), err)
end
for _, t in ipairs {
  deep(200000, step), within_itself(step, function(t) t.steps[1] = t end),
} do
  refuse(core.run_steps, parent, t, nil, {})
end
refuse(parent.run_steps, parent, deep(60000, function(inner) return { name = "s", inner } end))
for _, t in ipairs {
  deep(200000, graph),
  within_itself(graph, function(t) t.nodes[1].attrs.body.value = t end),
} do
  refuse(core.write_onnx, "/nonexistent/file", { ir = 8, producer = "", opsets = {}, graph = t })
end

-- Finalisers run whenever Lua allocates, so also between counting and filling.
local function grow_by_finaliser(f)
  local t, stop = {}, false
  for i = 1, 20 do t["k" .. i] = "x" end
  local n = 0
  local function again()
    setmetatable({}, { __gc = function()
      if stop or n > 5000 then return end
      for _ = 1, 50 do
        n = n + 1
        t["grown" .. n] = "x"
      end
      again()
    end })
  end
  for _ = 1, 20 do again() end
  for _ = 1, 20 do pcall(f, t) end
  stop = true
end

collectgarbage("incremental", 1, 10000)
grow_by_finaliser(function(t) core.new_workspace { parent = parent, forward = t } end)
grow_by_finaliser(function(t) core.Scope._push(parent:create_scope "frames", parent, t) end)
grow_by_finaliser(function(t) net:rename(t) end)
grow_by_finaliser(function(t) parent:save("/nonexistent/file", t) end)
grow_by_finaliser(function(t) core.Net._plan(net, { inputs = t }) end)
grow_by_finaliser(function(t) core.eager("Sum", { neap.ones(2, 3) }, t) end)
grow_by_finaliser(function(t) core.run_micro(parent, t, {}, program) end)
collectgarbage("incremental", 200, 100)

program:run()
assert(parent:fetch "loss":item() == parent:fetch "loss":item())
print "held"
