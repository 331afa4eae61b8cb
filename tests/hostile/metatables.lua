-- Metatables, user values and upvalues that `debug` has changed, finalisers called by hand, and
-- what was collected before its user: C knows a handle by its head, and each call ends in a result
-- or an error.
local neap = require "neap"
local core = require "neap.core"
local nets = dofile "tests/hostile/nets.lua"

local db = neap.db(os.tmpname())

--- One handle of every kind, and one of Lua's own.
local function objects()
  local net, ws = nets.small "small", neap.workspace { seed = 1, store = false }
  ws:feed("x", neap.ones(2, 3))
  ws:init(net)
  local program = ws:compile(net, { store = false })
  program:run()
  local chain = core.new_chain(neap.workspace { seed = 1, store = false },
    { nets.layer "a", nets.layer "b" }, 2, {})
  return {
    net = net, workspace = neap.workspace { store = false }, program = program,
    plan = net:plan { store = false }, plan_of_program = program.plan,
    tensor = neap.ones(2, 3), scope = ws:create_scope "s", cache = core.new_cache "c",
    range = core.new_range(net, {}),
    recycle = core.memonger.recycle(net, {}, {}),
    reader = core.batch_reader({ { source = neap.ones(3) } }, { 0 }, {}),
    mark = ws:_mark(true, {}), chain = chain, cache_of_chain = chain:cache(1),
    db = neap.db(os.tmpname()), sub = core.Net._sub(net, "inner"),
    file = io.tmpfile(),
  }
end

local classes = {
  net = core.Net, workspace = core.Workspace, program = core.Program, plan = core.Plan,
  plan_of_program = core.Plan, tensor = core.Tensor,
  scope = core.Scope, db = core.Db, cache = core.Cache, cache_of_chain = core.Cache,
  range = core.Range, recycle = core.Recycle,
  reader = core.BatchReader, chain = core.Chain, sub = core.Net,
}
-- What would write files or go on for ever.
local left_out = {
  run = true, backup = true, profile = true, save = true, export = true, dot = true, svg = true,
  html = true,
  picture = true, image = true, plot = true,
}

--- All that the class offers, and all operators, on `o`.
local function use(o, class)
  pcall(tostring, o)
  pcall(function() return #o end)
  pcall(function() return o[1], o.name, o.plan, o.x end)
  pcall(function() o[1] = 2 end)
  pcall(function() o.name = "q" end)
  for name, f in pairs(class or {}) do
    if type(f) == "function" and not left_out[name] then
      pcall(f, o)
      pcall(f, o, 1)
      pcall(f, o, "x", "x")
      pcall(f, o, { 1 }, 1, 1)
    end
  end
end

local names, metas = {}, {}
for name, o in pairs(objects()) do
  names[#names + 1] = name
  metas[name] = debug.getmetatable(o)
end
table.sort(names)

-- Another kind's metatable, with all of its methods; then none at all.
for _, name in ipairs(names) do
  local set = objects()
  for _, other in ipairs(names) do
    local o = set[name]
    if other ~= name and not (name == "file" and other == "file") then
      debug.setmetatable(o, metas[other])
      use(o, classes[other])
      debug.setmetatable(o, metas[name])
    end
  end
  debug.setmetatable(set[name], metas[names[name == names[1] and 2 or 1]])
end
collectgarbage()

-- Metamethods called by hand, on what they are not for.
for _, name in ipairs(names) do
  for event, f in pairs(name ~= "file" and metas[name] or {}) do
    if type(f) == "function" then
      for _, o in ipairs { 1, "x", {}, print, io.stdout, neap.ones(1), coroutine.create(print) } do
        pcall(f, o)
        pcall(f, o, 1)
        pcall(f, o, "name")
        pcall(f, o, 1, 2)
      end
      assert(event ~= "__gc" or pcall(f))
    end
  end
end
for class, meta in pairs(debug.getregistry()) do
  if type(class) == "string" and class:find "^neap%." and type(meta) == "table" and type(meta.__gc)
      == "function" then
    for _, o in ipairs { 1, "x", {}, io.stdout, neap.ones(1) } do meta.__gc(o) end
    meta.__gc()
  end
end

-- Closed by hand, twice, and used.
for _, name in ipairs(names) do
  if name ~= "file" then
    local o = objects()[name]
    for _ = 1, 2 do
      metas[name].__gc(o)
      use(o, classes[name])
    end
  end
end

-- What a handle keeps alive, taken from it.
for _, name in ipairs(names) do
  if name ~= "file" then
    local o = objects()[name]
    debug.setuservalue(o, nil, 1)
    collectgarbage()
    collectgarbage()
    use(o, classes[name])
    debug.setuservalue(o, 5, 1)
    use(o, classes[name])
  end
end

-- A subnet whose outer net is collected; a cache whose chain is.
do
  local sub = core.Net._sub(nets.small "small", "inner")
  collectgarbage()
  collectgarbage()
  sub:_add("Relu", { "y" })
  assert(select(2, sub:_type "y")[1] == 2, "the outer net's types are still known")
end

-- Functions whose upvalues are others.
do
  local clone, dim = core.Tensor.clone, core.Tensor.dim
  local _, own = debug.getupvalue(clone, 1)
  local _, others = debug.getupvalue(dim, 1)
  for _, wrong in ipairs { io.stdout, 1, "x", print, {}, neap.ones(1), others } do
    debug.setupvalue(clone, 1, wrong)
    pcall(clone, neap.ones(1))
  end
  debug.setupvalue(clone, 1, nil)
  assert(not pcall(clone, neap.ones(1)))
  debug.setupvalue(clone, 1, own)
  assert(clone(neap.ones(2)):equal(neap.ones(2)))
end

-- What a backward draws by lies where the workspace looks, whoever drops it.
do
  local ws, net = neap.workspace { seed = 1, store = false }, nets.small "small"
  ws:feed("x", neap.ones(2, 3))
  ws:init(net)
  local program = ws:compile(net, { store = false })
  ws:_give_draw(3, 4)
  collectgarbage()
  collectgarbage()
  program:run()
  debug.getmetatable(ws).__gc(ws)
  program:run()
end

-- Finalisers run in the reverse order of making: this one finds its handles ended.
do
  local function look(o)
    pcall(tostring, o)
    pcall(function() return #o end)
    pcall(function() return o.plan, o.name, o.shape end)
  end
  local function watch(f)
    local set = {}
    setmetatable({ set }, { __gc = function(t)
      for _, name in ipairs(names) do f(t[1][name], classes[name]) end
    end })
    for name, o in pairs(objects()) do set[name] = o end
    return set
  end
  watch(use)
  collectgarbage()
  collectgarbage()
  kept = watch(look) -- luacheck: ignore 111 (to the end of the state, which makes nothing any more)
end

assert(#db:_query("select 1 as one", {}) == 1)
print "held"
os.exit(true, true)
