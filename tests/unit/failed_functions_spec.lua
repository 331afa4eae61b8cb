-- Each public function of each class, called with lists of arguments of which most are wrong.
-- Whatever raises must leave the object as it was, and fit for the same use as a fresh one.
local neap = require "neap"
local core, op = require "neap.core", require "neap.op"
local nn, optim = neap.nn, neap.optim
local kit = require "failed_kit"
local blobs_text, X, W = kit.blobs_text, kit.X, kit.W
local each_list, writes = kit.each_list, kit.writes

--- The same, the step and the nets.
local function workspace_text(ws)
  return ("step %d %s\n%s"):format(ws:step(), table.concat(ws:nets(), ","), blobs_text(ws))
end

local function small_net()
  local net = neap.net "f"
  net:input("c", {})
  net:input(X, { 2, 3 })
  net:param(W, { 4, 3 }, 0.5)
  return net
end

local stored = small_net()
stored:FC({ X, W }, "y")
stored:outputs "y"

local function may_be_path(x)
  return type(x) == "string" and x ~= "/none/none" and x ~= "" or type(x) == "number"
end

local function class_functions(t)
  local list = {}
  for name, f in pairs(t) do
    if type(name) == "string" and name:sub(1, 1) ~= "_" and type(f) == "function" then
      list[#list + 1] = name
    end
  end
  table.sort(list)
  return list
end

local feeds = { c = neap.tensor(1.0), [X] = neap.ones(2, 3) }

--- The methods of an object that can only say their names.
local function methods_of(object)
  local t = {}
  for _, name in ipairs(getmetatable(object).__names()) do t[name] = object[name] end
  return t
end

--- Makers of modules, as functions of a module that is among what they are given.
local function makers()
  local t = {}
  for name, class in pairs(nn) do
    if type(class) == "table" and rawget(class, "_class_name") then
      t[name] = function(m, ...) return class { m, ... } end
    end
  end
  return t
end

local function make_module()
  local m = nn.Sequential { seed = 3, nn.Linear { 4 }, nn.Dropout { 0.5 }, nn.Linear { 2 } }
  m:eval()
  m(feeds[X])
  return m
end

local function module_text(m)
  local lines = { tostring(m), tostring(m.training), tostring(#m:children()), tostring(m._parent) }
  for name, p in m:parameters() do lines[#lines + 1] = name .. p.data:hash() .. tostring(p) end
  return table.concat(lines, "\n")
end

local function use_module(m)
  return m(feeds[X]):hash() .. m:backward(feeds[X], neap.ones(2, 2)):hash()
    .. m:param("linear1.weight").grad:hash()
end

local function make_matrix() return neap.tensor { { 1, 2, 3 }, { 4, 5, 6 } } end
local function hash_of(t) return t:hash() end
local function use_tensor(t) return (t * 2):hash() end

--- A database with a plan in it, in a file of its own.
local db_files = {}
local function make_db()
  local path = os.tmpname()
  db_files[#db_files + 1] = path
  local db = assert(neap.db(path))
  core.use_db(db)
  stored:plan {}
  core.use_db(false)
  return db
end

local function db_text(db)
  local lines = {}
  for _, name in ipairs { "net", "plan", "plan_op", "plan_value", "run", "meta" } do
    lines[#lines + 1] = name .. " " .. assert(db:sql("select count(*) as n from " .. name))[1].n
  end
  return table.concat(lines, "\n")
    .. assert(db:sql "select group_concat(key || n_hit) as t from plan")[1].t
end

teardown(function()
  for _, path in ipairs(db_files) do
    for _, ending in ipairs { "", "-wal", "-shm" } do os.remove(path .. ending) end
  end
end)

-- What functions of all of neap change is the process's: later files begin as this one did.
local threads_before = neap.threads()
teardown(function()
  neap.threads(threads_before)
  neap.switch_workspace "default"
end)

--- What is everybody's: seed, threads, workspaces by name; and a net, a module and a tensor that
-- functions are given.
local function make_world()
  local w = { net = small_net(), module = make_module(), tensor = make_matrix() }
  neap.threads(1)
  neap.switch_workspace "default"
  neap.seed(5)
  return w
end

--- Random numbers begin anew behind each look: one that finds other ones has come after a call that
-- drew some.
local function world_text(w)
  local drawn = neap.rand(3):hash()
  neap.seed(5)
  return table.concat({
    drawn, w.net:text { lines = false } .. w.net:_version(), module_text(w.module), w.tensor:hash(),
    tostring(neap.threads()),
    table.concat(neap.workspace_names(), ","), tostring(neap.db_path()),
  }, "\n")
end

local function use_world(w) return use_module(w.module) .. w.net:hash() .. use_tensor(w.tensor) end

--- Functions of a table, ops apart, as functions of a world.
local function functions_of(t, more)
  local out = {}
  for _, name in ipairs(class_functions(t)) do
    if not op.functions[name] or t ~= neap then
      out[name] = function(_, ...) return t[name](...) end
    end
  end
  for _, name in ipairs(more or {}) do out[name] = function(_, ...) return t[name](...) end end
  return out
end

local function world(name, of, more)
  return {
    name = name, of = of, more = more or {}, make = make_world, see = world_text, use = use_world,
  }
end

local classes = {
  {
    name = "net", of = core.Net, make = small_net, more = { "c" },
    see = function(net)
      return net:text { lines = false } .. table.concat(net:outputs(), ",") .. net:_version()
    end,
    use = function(net)
      local y = net:FC { X, W }
      net:If("c", function(b) return b:Relu(y) end, function(b) return b:Copy(y) end)
      net:scope("a", function() return net:Relu(y) end)
      return net:text { lines = false } .. net:hash() .. table.concat(net:outputs(), ",")
    end,
  },
  {
    name = "blob", of = methods_of(small_net():blob(X)),
    make = function() return small_net():blob(X) end, more = {},
    see = function(blob) return blob.net:text { lines = false } .. blob.net:_version() end,
    use = function(blob) return ((blob * 2):relu() + blob[1]).net:text { lines = false } end,
  },
  {
    name = "workspace", of = core.Workspace, more = { stored },
    make = function()
      local ws = neap.workspace { seed = 1 }
      ws:run(stored, feeds)
      return ws
    end,
    see = workspace_text,
    use = function(ws) return ws:run(stored, feeds).y:hash() .. workspace_text(ws) end,
  },
  {
    name = "scope", of = core.Scope, more = { neap.workspace {} },
    make = function()
      local ws = neap.workspace { seed = 1 }
      ws:feed(X, feeds[X])
      local scope = ws:create_scope "s"
      scope:push(ws, { a = X })
      return scope, ws
    end,
    see = function(scope)
      return #scope .. tostring(scope:empty()) .. tostring(scope:check_bindings_match { a = X })
    end,
    use = function(scope, ws) return scope:push(ws, { a = X }):fetch("a"):hash() .. #scope end,
  },
  {
    name = "program", of = core.Program, more = {},
    make = function()
      local ws = neap.workspace { seed = 1 }
      for name, t in pairs(feeds) do ws:feed(name, t) end
      return ws:compile(stored, {}), ws
    end,
    see = function(program, ws) return tostring(program:stats().steps) .. workspace_text(ws) end,
    use = function(program, ws)
      program:run()
      return ws:fetch("y"):hash() .. workspace_text(ws)
    end,
  },
  {
    name = "plan", of = core.Plan, more = {}, make = function() return stored:plan {} end,
    see = function(plan) return tostring(plan:explain()) end,
    use = function(plan) return tostring(plan:forecast()) end,
  },
  {
    name = "tensor",
    of = core.Tensor,
    more = {},
    make = make_matrix,
    see = hash_of,
    use = use_tensor,
  },
  {
    name = "tensor that is given to an op",
    of = op.functions,
    more = {},
    make = make_matrix,
    see = hash_of,
    use = use_tensor,
  },
  {
    name = "module", of = require("neap.nn.module").Module, more = { "linear1", "linear1.weight" },
    make = make_module, see = module_text, use = use_module,
  },
  {
    name = "module that a maker gets",
    of = makers(),
    more = { nn.ReLU() },
    make = make_module,
    see = module_text,
    use = use_module,
  },
  {
    name = "net that memonger gets", of = neap.memonger, more = { stored }, make = small_net,
    see = function(net) return net:text { lines = false } .. net:_version() end,
    use = function(net) return net:hash() end,
  },
  {
    name = "trainer",
    of = getmetatable(neap.trainer { model = nn.Linear { 2 }, optimizer = optim.SGD { lr = 0.1 } }),
    more = { { x = neap.ones(4, 7), y = neap.zeros { 4, dtype = "i64" } } },
    make = function()
      local t = neap.trainer {
        model = nn.Sequential { seed = 3, nn.Linear { 8 }, nn.Linear { 3 } },
        optimizer = optim.SGD { lr = 0.1 },
      }
      return t
    end,
    see = function(t)
      return workspace_text(t.model:workspace()) .. tostring(t) .. tostring(t.input)
        .. tostring(t.batch)
    end,
    use = function(t)
      return ("%a"):format(t:step { x = neap.ones(4, 5), y = neap.zeros { 4, dtype = "i64" } }.loss)
        .. workspace_text(t.model:workspace())
    end,
  },
  {
    name = "data set", of = getmetatable(neap.data.tensors { x = neap.ones(4, 2), batch = 2 }),
    more = {},
    make = function()
      return neap.data.tensors {
        x = neap.tensor { 1, 2, 3, 4 }, batch = 2, shuffle = true, seed = 3,
      }
    end,
    see = function(set) return tostring(#set) .. set:spec().n end,
    use = function(set)
      local out = {}
      for batch in set:epoch(1) do out[#out + 1] = batch.x:hash() end
      return table.concat(out, " ")
    end,
  },
  {
    name = "database", of = core.Db, more = { "select 1 as n", "peak" }, make = make_db,
    see = db_text,
    use = function(db)
      return db_text(db) .. #assert(db:query "plans") .. tostring(db:verify().ok)
    end,
  },
  world("neap",
    functions_of(neap, {
      "trainer", "progress", "fit_batch", "cache", "count_memory", "export", "import",
    }), { stored, nn.Sequential { seed = 1, nn.ReLU() } }),
  world("neap.data", functions_of(neap.data)),
  world("neap.optim", functions_of(optim)),
  world("neap.init", functions_of(neap.init)),
  world("neap.zoo", functions_of(neap.zoo)),
  world("neap.check", functions_of(neap.check), { "mlp:2" }),
}

--- Functions that end their object.
local left_out = {
  ["workspace.close"] = true, ["program.close"] = true, ["plan.close"] = true,
  ["tensor.close"] = true, ["net.close"] = true,
  ["trainer.close"] = true, ["database.close"] = true,
}

for _, class in ipairs(classes) do
  describe("each function of a " .. class.name, function()
    for _, name in ipairs(class_functions(class.of)) do
      if not left_out[class.name .. "." .. name] then
        it(("%s that fails leaves nothing behind"):format(name), function()
          local object, beside = class.make()
          local before, n_failed = class.see(object, beside), 0
          local want = class.use(class.make())
          each_list(class.more, function(args)
            local what = { name }
            for i = 1, args.n do what[i + 1] = tostring(args[i]) end
            for i = 1, writes[name] and args.n or 0 do
              if may_be_path(args[i]) then return end
            end
            if pcall(class.of[name], object, table.unpack(args, 1, args.n)) then
              object, beside = class.make()
              before = class.see(object, beside)
            else
              n_failed = n_failed + 1
              assert.are.equal(before, class.see(object, beside), table.concat(what, " "))
            end
          end)
          assert.is_true(n_failed > 0, name .. ": never failed")
          assert.are.equal(want, class.use(object, beside))
        end)
      end
    end
  end)
end
