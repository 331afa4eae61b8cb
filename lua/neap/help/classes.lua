--- What help says of the classes of Neap's values: what each is, and every method with the first
-- sentence of its own help.
-- @module neap.help.classes
local core = require "neap.core"

local classes = {}

--- The methods of a class that several files fill, all of which `whole` loads.
local function filled(whole, file, class)
  return function()
    require(whole)
    return require(file)[class]
  end
end

--- By the first of its names: { names, prefix of its methods, its methods, what it is }. The
-- metatable's name of values is "neap." and a name.
local rows = {
  { { "tensor" }, "tensor:", function() return core.Tensor end,
    [[a tensor, numbers of one dtype in a shape: x.shape x.dtype #x x[i] x[{ {1,2}, {}, -1 }],
operators, and every op in lower case, x:softmax { axis = -1 } (neap.ops() lists them).
example: x = neap.rand(2, 3); print((x * 2 + 1):sum():item())]] },
  { { "blob" }, "blob:", function() return require("neap.net.blob").methods end,
    [[a blob, a name in a net: b.name b.shape b.dtype, operators, and every op in lower case.
example: net = neap.net "f"; y = net:input("x", { 2, 3 }):relu()]] },
  { { "net" }, "net:", function() return core.Net end,
    [[a net, ops over named blobs; every op is a method: net:FC({ "x", "w", "b" }, "y").
example: net = neap.net "f"; net:Relu(net:input("x", { 2, 3 }), "y"); print(net:plan {})]] },
  { { "workspace", "ws" }, "ws:", function() return core.Workspace end,
    [[a workspace, who owns blobs and runs nets.
example: ws = neap.workspace(); ws:feed("x", neap.ones(2, 3)); print(ws:fetch "x")]] },
  { { "scope" }, "scope:", function() return core.Scope end,
    [[a scope, a stack of child workspaces: #s of them. Runs of a body each have their own.
example: scope = neap.workspace():create_scope "s"; print(#scope)]] },
  { { "plan" }, "plan:", function() return core.Plan end,
    [[a plan, where every byte goes, and why: p.arena_bytes p.lower_bound_bytes p.proved
p.baseline_bytes p.total_bytes p.regions. m:plan, net:plan and t:plan make one.
example: p = neap.zoo.lenet():plan { batch = 8, train = true }; print(p:peak())]] },
  { { "program" }, "program:", function() return core.Program end,
    [[a program, a plan bound to a workspace's bytes: p.plan p.net p.workspace; ws:compile makes it.
example: program = neap.workspace():compile((neap.zoo.lenet():net { batch = 8 }))]] },
  { { "run" }, "run:", function() return require("neap.plan").Run end,
    [[a run, what was measured: run.median_ns run.min_ns run.n_step run.held_bytes run.plan.
program:profile { .. } and t:run() give one.
example: net, ws = neap.zoo.lenet():net { batch = 8 }, neap.workspace()
  ws:feed("x", neap.rand(8, 1, 28, 28))
  program = ws:compile(net, { profile = true })
  print(program:profile { steps = 2 }:table { limit = 5 })]] },
  { { "db" }, "db:", function() return core.Db end,
    [[a database of plans and runs, asked by SQL; neap help questions lists what one asks.
example: db = neap.db(); print(db and db:query("runs", {}))]] },
  { { "module", "model", "m" }, "m:", filled("neap.nn", "neap.nn.module", "Module"),
    [[a module: a layer, or a model made of layers; m(x) runs it, #m counts layers, m[1] is one.
nn.module { "Name", init =, forward = } makes a class of your own.
example: m = neap.nn.Sequential { neap.nn.Linear(3, 8), neap.nn.ReLU() }
  print(m(neap.rand(2, 3)))]] },
  { { "trainer", "t" }, "t:", filled("neap.train", "neap.train.state", "Trainer"),
    [[a trainer, which fits a model to data; neap.trainer { .. } makes one (help(neap.trainer)).
example: t = neap.trainer { model = neap.nn.Sequential { neap.nn.Linear(3, 1) },
  loss = neap.nn.MseLoss(), optimizer = neap.optim.SGD { lr = 0.1 } }]] },
  { { "data_set", "set" }, "data:", filled("neap.data", "neap.data.set", "Data"),
    [[a data set: #set batches of an epoch; neap.data.tensors, .csv, .images and others make one.
example: set = neap.data.tensors { x = neap.rand(10, 3), y = neap.rand(10, 1), batch = 5 }
  for batch in set:epoch(1) do print(batch.x.shape[1]) end]] },
  { { "generator", "g" }, "g:", function() return require("neap.generate").Generator end,
    [[a generator of text, token by token, by a model of causal attention.
example: g = neap.generator { model = neap.zoo.gpt { layers = 1, width = 32, heads = 2 } }
  g:read { 1, 2, 3 } print(g:next { temperature = 0 })]] },
  { { "report" }, "report:", function() return getmetatable(require("neap.report").new {}) end,
    [[a report, what plans, runs and queries answer with: print(r) #r r[i].field r.total.
example: r = neap.zoo.lenet():plan { batch = 8 }:ops(); print(#r, r[1].name, r:csv())]] },
}

local by_name = {}
for _, row in ipairs(rows) do
  for _, name in ipairs(row[1]) do by_name[name] = row end
end

--- The public methods of a class, sorted.
local function methods_of(row)
  local names = {}
  for name, f in next, row[3]() do
    if type(name) == "string" and type(f) == "function" and name:match "^%a" then
      names[#names + 1] = name
    end
  end
  table.sort(names)
  return names
end

--- Each method of each class by the name that help knows it by, "tensor:item", and the function.
function classes.methods()
  local i, list = 0, {}
  for _, row in ipairs(rows) do
    local methods = row[3]()
    for _, name in ipairs(methods_of(row)) do
      list[#list + 1] = { row[2] .. name, methods[name] }
    end
  end
  return function()
    i = i + 1
    if list[i] then return table.unpack(list[i]) end
  end
end

--- The first sentence of a help text, without the calls that begin it.
local function first_sentence(text)
  -- The calls that begin a text, "ws:feed(name, x) -> ..", are taken off piece by piece until a
  -- word is left.
  text = text:gsub("\n", " ")
  repeat
    local before = text
    text = text:gsub("^[%w_]+[:.][%w_]+", ""):gsub("^%s*%b()", ""):gsub("^%s*%b{}", "")
      :gsub("^%s*%b[]", ""):gsub("^[-:>,.;%s]+", "")
  until text == before
  return text:match "^(.-[.;])%s" or text
end

--- The text on a class by its name; nil for what is none. Methods that are ops, which have no text
-- among those of Lua, are left out: neap.ops() lists them.
-- @param name string
-- @param by function f(name of a method) -> its text or nil
function classes.text(name, by)
  local row = by_name[name:lower()]
  if not row then return nil end
  local lines = { ("%s: %s"):format(row[1][1], row[4]), "methods; help \"" .. row[2]
    .. "NAME\" says more:" }
  for _, method in ipairs(methods_of(row)) do
    local said = by(row[2] .. method)
    local short = said and first_sentence(said)
    if short and not short:find "^is not there" then
      -- Cut at a word's end.
      if #short > 70 then short = short:sub(1, 67):gsub("%s%S*$", "") .. " .." end
      lines[#lines + 1] = ("  %-24s %s"):format(row[2] .. method, short)
    end
  end
  return table.concat(lines, "\n")
end

--- The texts on the classes, without their methods, by the first names. For tests.
function classes.heads()
  local heads = {}
  for _, row in ipairs(rows) do heads[row[1][1]] = row[4] end
  return heads
end

--- The name of the class that a value is of, or nil.
function classes.of(x)
  local meta = debug.getmetatable(x)
  local name = type(meta) == "table" and rawget(meta, "__name")
  name = type(name) == "string" and name:match "^neap%.(%l+)$"
  if name == "data" then name = "set" end
  if name and by_name[name] then return name end
  if type(x) == "table" and rawget(x, "_is_module") then return "module" end
end

return classes
