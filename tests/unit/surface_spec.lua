-- Rules that hold for every op record and class of the Lua surface (LUA_API.md, rules 1 to 4).
local neap = require "neap"
local support = require "support"
local core = require "neap.core"
local op = require "neap.op"

local keywords = {}
for word in ("and break do else elseif end false for function goto if in local nil not or repeat \z
  return then true until while"):gmatch "%a+" do
  keywords[word] = true
end

describe("every op record", function()
  it("says what it is", function()
    for name, r in pairs(op.records) do
      assert.is_truthy(r.summary and r.summary:match "%.$", name .. ": a summary is one sentence")
      if not r.internal then
        assert.is_truthy(r.example, name .. " has no example")
        assert.is_truthy(r.source, name .. " has no source")
        assert.is_truthy(r.math, name .. " has no formula")
        assert.is_truthy(op.help(r):find(r.summary, 1, true))
      end
      for _, list in ipairs(r.internal and {} or { r.attrs, r.inputs, r.outputs }) do
        for _, item in ipairs(list) do
          assert.is_truthy(item.doc, name .. "." .. item.name .. " has no doc")
        end
      end
    end
  end)

  it("has a lower-case name that Lua and the classes leave free", function()
    local seen = {}
    for name, r in pairs(op.records) do
      if not r.internal and not r.control then
        local snake = op.snake(name)
        assert.is_nil(keywords[snake], name)
        assert.is_nil(seen[snake], name)
        seen[snake] = true
        assert.are.equal("function", type(neap[snake]), "neap." .. snake)
      end
    end
  end)

  it("is a method of a net, unless only the gradient makes it", function()
    local net = neap.net "f"
    for name, r in pairs(op.records) do
      if r.internal then
        assert.is_false((pcall(function() return net[name] end)), name)
      else
        assert.are.equal("function", type(net[name]), name)
      end
    end
  end)

  it("has an example that compiles", function()
    for name, r in pairs(op.records) do
      if r.example then
        assert.is_truthy(load(r.example) or load("return " .. r.example), name .. ": " .. r.example)
      end
    end
  end)

  it("has cases that are a Lua table", function()
    for name, r in pairs(op.records) do
      if r.cases then
        local f = assert(load("return " .. r.cases, name))
        assert.are.equal("table", type(f()), name)
      end
    end
  end)
end)

describe("every class", function()
  it("hides nothing behind a nil: an unknown op or method is an error", function()
    local net = neap.net "f"
    local ws <close> = neap.workspace { store = false }
    for _, x in ipairs { net, neap.ones(1), net:input("x", { 1 }), ws } do
      assert.is_false((pcall(function() return x.nothing end)))
      assert.is_nil(x._nothing)
    end
    assert.is_false((pcall(function() return net.Nothing end)))
  end)

  it("has help", function()
    local net = neap.net "f"
    net:input("x", { 1 })
    local ws <close> = neap.workspace {}
    for _, x in ipairs { neap.ones(1), net, ws, net:plan {}, net:ops() } do
      assert.is_true(#tostring(neap.help(x)) > 40)
    end
    assert.is_truthy(tostring(neap.help "softmax"):find "Softmax")
    assert.is_truthy(tostring(neap.help(neap.softmax)):find "Softmax")
    assert.is_false((pcall(neap.help, "nothing at all")))
  end)

  it("can be closed by a variable going out of scope", function()
    for _, class in ipairs { "Tensor", "Net", "Workspace", "Program", "Plan", "Db" } do
      assert.are.equal("function", type(core[class].meta.__close), class)
      assert.are.equal("function", type(core[class].meta.__gc), class)
    end
  end)
end)

describe("memory options", function()
  it("take a number of threads that can be", function()
    local net = neap.net "n"
    net:Exp(net:input("x", { 2 }), "y")
    for _, wrong in ipairs { 0, -1, 1.5, 4097, "2", 2 ^ 40 } do
      support.raises("threads expects a number from 1 to 4096", net.plan, net, { threads = wrong })
    end
    net:plan { threads = 2 }
  end)
end)

describe("what nobody reads", function()
  local nn, optim, data = neap.nn, neap.optim, neap.data
  -- These take a list of any length and look at each of its entries themselves, or hand what they
  -- get on to a function.
  local lists = {
    ["Net.made_by"] = true, ["Net.keep"] = true, ["Net.device"] = true, ["Net.bank"] = true,
    ["Net.scope"] = true, ["Net.variable_scope"] = true,
    ["Net.parameter_sharing"] = true,
    ["data.find"] = true, ["Net.outputs"] = true, ["Workspace.keep"] = true,
    ["neap.zeros"] = true, ["neap.ones"] = true, ["neap.empty"] = true, ["neap.full"] = true,
    ["neap.rand"] = true, ["neap.randn"] = true,
    ["neap.with"] = true, ["neap.matmul"] = true, ["Tensor.matmul"] = true, ["Tensor.view"] = true,
    ["Tensor.at"] = true, ["Tensor.set"] = true,
    ["neap.bank"] = true, ["neap.scope"] = true, ["neap.variable_scope"] = true,
    ["nn.module"] = true, ["Trainer.averaged"] = true,
    -- these say that there is none
    ["Tensor.apply"] = true, ["Tensor.map"] = true, ["Tensor.fill"] = true, ["Tensor.zero"] = true,
    ["optim.Adagrad"] = true, ["optim.RmsProp"] = true,
  }
  local too_many = {}
  for i = 1, 60 do too_many[i] = function() end end

  --- Every public function of a table but the ops' is called with sixty functions.
  local function sweep(prefix, functions, self)
    for name, f in pairs(functions) do
      local is_public = type(name) == "string" and name:sub(1, 1) ~= "_" and type(f) == "function"
      if is_public and not op.functions[name] and not op.records[name] then
        local ok, err
        if self ~= nil then
          ok, err = pcall(f, self, table.unpack(too_many))
        else
          ok, err = pcall(f, table.unpack(too_many))
        end
        local what = prefix .. "." .. name
        assert.is_false(ok and not lists[what], what .. " took sixty functions for arguments")
        local said = tostring(err):find "takes .*argument"
          or tostring(err):find "takes .*%w+ values?"
        assert.is_truthy(lists[what] or said, what .. ": " .. tostring(err))
      end
    end
  end

  it("is refused: arguments, by every function of the surface", function()
    for name, t in pairs {
      neap = neap,
      nn = nn,
      optim = optim,
      data = data,
      memonger = neap.memonger,
      init = neap.init,
      zoo = neap.zoo,
    } do
      sweep(name, t)
    end
    local net = neap.net "f"
    net:outputs { net:Relu(net:input("x", { 2 }), "y") }
    local ws <close> = neap.workspace { store = false }
    local self = {
      Tensor = neap.ones(2), Net = net, Workspace = ws, Plan = net:plan { store = false },
    }
    for _, class in ipairs { "Tensor", "Net", "Workspace", "Program", "Plan", "Db" } do
      sweep(class, core[class], self[class])
    end
  end)

  it("is refused: arguments, by every method of the classes that Lua makes", function()
    local net, model = neap.net "f", nn.Linear { 3, 2 }
    local trainer <close> = neap.trainer { model = model, optimizer = optim.SGD { lr = 0.1 } }
    local batches = data.tensors { x = neap.ones(4, 3), batch = 2 }
    for name, object in pairs {
      Blob = net:input("x", { 2 }), Module = model, Sequential = nn.Sequential { nn.ReLU() },
      Trainer = trainer,
      Optimizer = optim.SGD { lr = 0.1 }, Data = batches, Report = neap.memory(),
      Memory = model:memory(),
    } do
      local meta = getmetatable(object)
      sweep(name, meta, object)
      if type(meta.__index) == "table" then sweep(name, meta.__index, object) end
    end
  end)

  it("is refused: options, by every layer, loss, optimizer, initialiser \z
      and net of the zoo", function()
    local function refuses(what, f, ...)
      local ok, err = pcall(f, ...)
      assert.is_false(ok, what .. " took the option no_such")
      assert.is_truthy(tostring(err):find("no_such", 1, true), what .. ": " .. tostring(err))
    end
    for _, name in ipairs(nn.names()) do refuses("nn." .. name, nn[name], { no_such = 1 }) end
    for name, f in pairs(optim) do
      if type(f) == "function" and not lists["optim." .. name] then
        refuses("optim." .. name, f, { no_such = 1 })
      end
    end
    for name, f in pairs(neap.init) do
      if type(f) == "function" then refuses("neap.init." .. name, f, { no_such = 1 }) end
    end
    for _, name in ipairs(neap.zoo.names()) do
      refuses("neap.zoo." .. name, neap.zoo[name], { no_such = 1 })
    end
    refuses("neap.trainer", neap.trainer, { no_such = 1 })
    refuses("neap.workspace", neap.workspace, { no_such = 1 })
    refuses("neap.fit_batch", neap.fit_batch, nn.Linear { 3, 2 }, { no_such = 1 })
    local net = neap.net "f"
    for i = 1, 16 do net:input("x" .. i, { 2 }) end
    refuses("net:plan", net.plan, net, { no_such = 1 })
    for name, r in pairs(op.records) do
      local ins = {}
      for i, input in ipairs(r.inputs) do ins[i] = not input.optional and ("x" .. i) or nil end
      if not r.internal and not r.control then
        refuses(name, net.op, net, name, ins, nil, { no_such = 1 })
      end
    end
  end)
end)

describe("what is not there or not said", function()
  it("is a name of neap that nobody has: it raises with the nearest one", function()
    support.raises({ 'neap has no "tenzor"', 'did you mean "tensor"?' }, function()
      return neap.tenzor
    end)
    support.raises({ 'neap has no "optimm"', 'did you mean "optim"?' }, function()
      return neap.optimm
    end)
    support.raises("neap.help() says what there is", function() return neap.quarkxyz end)
  end)
  it("is the number of parts of a split", function()
    local x = neap.arange(12):reshape(2, 6)
    support.raises("into how many parts?", x.split, x, 2)
    -- What its attributes or its shape say already is not asked for.
    assert.equal(2, select("#", x:chunk(2)))
    assert.equal(3, select("#", x:chunk { chunks = 3, axis = 2 }))
    assert.equal(x.shape[1], select("#", x:unbind()))
    support.raises("into how many parts?", neap.split, x)
    assert.are.equal(3, select("#", x:split { axis = 2, outputs = 3 }))
    assert.are.equal(2, select("#", x:split { axis = 2, sizes = { 2, 4 } }))
  end)
  it("is a store that is neither on nor off", function()
    local net <close> = neap.net "stored"
    net:input("x", { 2 })
    net:Relu("x", "y")
    for _, odd in ipairs { 5, "file.db", {} } do
      support.raises("store expects true or false", net.plan, net, { store = odd })
    end
    assert.is_truthy(net:plan { store = false })
  end)
  it("is the input of a model that is exported, which can be given there", function()
    local path = os.tmpname() .. ".safetensors"
    support.raises("to this call, { input = {..} }", neap.export,
      neap.nn.Sequential { neap.nn.Linear(4, 2) }, path)
    assert(neap.export(neap.nn.Sequential { neap.nn.Linear(4, 2) }, path, { input = { 4 } }))
    assert.are.same({ 3, 2 }, assert(neap.import(path))(neap.ones(3, 4)).shape)
    os.remove(path)
  end)
end)

describe("a wrong argument", function()
  local function nothing() end
  local lists = {
    {}, { 16 }, { "x" }, { {} }, { true }, { nothing }, { neap.ones(2) }, { 1, 2, {} }, { "x", {} },
    { {}, nothing }, { { "r", { 3 } } },
    { "x", "y", 3 }, { { 3, 4 }, 3 }, { { x = "a" } }, { neap.net "other" },
    { nil, nothing, n = 2 },
  }
  -- These make files of the names that they get, read much, or change the process for the tests
  -- after this one.
  local left_out = {
    ["neap.save"] = true, ["neap.db"] = true, ["neap.export"] = true, ["Workspace.picture"] = true,
    ["neap.threads"] = true, ["neap.use_db"] = true, ["neap.switch_workspace"] = true,
    ["neap.reset_workspace"] = true,
    ["data.mnist"] = true, ["data.cifar10"] = true, ["Workspace.save"] = true, ["Net.save"] = true,
    ["Tensor.save"] = true, ["Plan.svg"] = true, ["Plan.html"] = true, ["Plan.dot"] = true,
    ["Net.dot"] = true,
    ["Tensor.image"] = true, ["Tensor.plot"] = true,
  }

  --- Whether an error is Lua's or Lua's library's about a line of Neap's own.
  local function is_inner(err)
    err = tostring(err)
    return err:find("^neap:")
      or err:find("attempt to", 1, true)
      or err:find("bad argument #", 1, true)
      or err:find("index is nil", 1, true)
  end

  local function sweep(prefix, functions, make)
    for name, f in pairs(functions) do
      local what = prefix .. "." .. tostring(name)
      local is_public = type(name) == "string"
        and name:sub(1, 1) ~= "_"
        and name ~= "close"
        and type(f) == "function"
      if is_public and not left_out[what] and not op.functions[name] then
        for i, list in ipairs(lists) do
          local ok, err
          if make then
            local self = make()
            ok, err = pcall(function() f(self, table.unpack(list, 1, list.n)) end)
          else
            ok, err = pcall(function() f(table.unpack(list, 1, list.n)) end)
          end
          assert.is_falsy(not ok and is_inner(err),
            ("%s, list %d: %s"):format(what, i, tostring(err)))
        end
      end
    end
  end

  local function small()
    local net = neap.net "small"
    net:outputs { net:Relu(net:input("x", { 2 }), "y") }
    return net
  end

  it("is never told of as a slip within Neap", function()
    local threads = neap.threads()
    for name, t in pairs { neap = neap, data = neap.data, optim = neap.optim, init = neap.init } do
      local rest = {}
      for key, f in pairs(t) do
        if key ~= "for_each_workspace" then rest[key] = f end
      end
      sweep(name, rest)
    end
    neap.threads(threads)
    sweep("Net", core.Net, small)
    sweep("Workspace", core.Workspace, function() return neap.workspace { store = false } end)
    local plan = small():plan { store = false }
    sweep("Plan", core.Plan, function() return plan end)
  end)

  it("is told of with the function, what it expects, and what it got", function()
    local net = small()
    for text, f in pairs {
      ["neap.seed expects an integer, got nothing"] = function() neap.seed() end,
      ["neap.bytes expects a number, got nothing"] = function() neap.bytes() end,
      ["neap.net_from expects a text, got nothing"] = function() neap.net_from() end,
      ["neap.arange: argument 1 expects a number, got nothing"] = function() neap.arange() end,
      ["neap.linspace: argument 3 expects an integer, got a table"] = function()
        neap.linspace(1, 2, {})
      end,
      ["neap.eye: argument 1 expects an integer, got 1.5"] = function() neap.eye(1.5) end,
      ["neap.range expects (net, memory, batch), got a number"] = function()
        neap.range(1, 2, {})
      end,
      ["neap.with expects ({ seed =, threads = }, function, ..)"] = function()
        neap.with({}, nil)
      end,
      ["Relu: attributes are a table, { axis = -1 }, got a number"] = function()
        net:Relu("x", "z", 3)
      end,
      ["a blob's name is expected, got a table"] = function() net:input { "r", { 3 } } end,
      ["memory options are a table, { budget = \"8MiB\", x = { 64, 784 } }, got 16"] = function()
        net:plan(16)
      end,
    } do
      local ok, err = pcall(f)
      assert.is_false(ok, text)
      assert.is_truthy(tostring(err):find(text, 1, true), text .. ": " .. tostring(err))
      assert.is_truthy(tostring(err):find("surface_spec.lua:", 1, true), tostring(err))
    end
  end)
end)

describe("help", function()
  local general = tostring(neap.help())

  local function says(x, ...)
    local text = tostring(neap.help(x))
    for _, part in ipairs { ... } do
      assert.is_truthy(text:find(part, 1, true), tostring(x) .. ": " .. text)
    end
  end

  it("explains functions by the comments of their definitions", function()
    says(neap.trainer, "neap.trainer", "metrics", "micro")
    says(neap.randn, "neap.randn", "Normal numbers", "std = 0.1")
    says(neap.data.from, "neap.data.from", "slot.x")
    says(neap.optim.SGD, "optim.SGD", "momentum = 0", "weight_decay")
    says(neap.optim.SGD { lr = 1 }, "nesterov")
    says(neap.workspace {}.run, "ws:run(net|name")
    says(neap.net("n").input, "net:input(name")
    says(neap.net "n", "net:expand", "net:While", "net:bank")
    says(neap.relu, "Rectified")
  end)

  it("explains layers with their fields, models, and modules", function()
    says(neap.nn.Linear, "nn.Linear { [n_in,] n_out, bias = true", "x W^T + b",
      "whether a bias is added")
    says(neap.nn.ReLU, "nn.ReLU { name =", "op Relu: y = max(x, 0)")
    says(neap.nn.Linear { 2, 3 }, "nn.Linear {", "here 3", "m(x) runs it", "m:forecast")
    says(neap.nn, "Layers and containers", "Linear", "Dropout")
    says(neap.optim, "SGD", "cosine")
    says(neap.zoo, "neap.zoo")
    for _, name in ipairs(neap.nn.names()) do says(neap.nn[name], "nn." .. name) end
  end)

  it("explains what it is given by name", function()
    for name, part in pairs {
      Linear = "nn.Linear {", Conv2d = "nn.Conv2d", ["neap.nn.LSTM"] = "layers = 1",
      ["ws:run"] = "ws:run(", ["data.from"] = "slot.x",
      trainer = "neap.trainer", nn = "Layers", ["neap.data"] = "Data sets",
      ["m:plan"] = "max_batch", softmax = "Softmax", SGD = "momentum = 0",
    } do
      says(name, part)
    end
    for _, name in ipairs {
      "m:freeze", "m:tie", "m:load", "t:fit", "trainer:fit", "ws:create_scope", "ws:feed",
      "ws:remove", "ws:rename",
      "ws:save", "ws:load",
    } do
      says(name, name)
    end
    local ok, err = pcall(neap.help, "Linaer")
    assert.is_false(ok)
    assert.is_truthy(err.hint:find('"Linear"', 1, true), err.hint)
  end)

  it("has a text of its own on every function of the surface", function()
    for _, t in ipairs { neap, neap.data, neap.optim } do
      for name, f in next, t do
        if type(f) == "function" and name ~= "help" and name ~= "Adagrad" and name ~= "RmsProp" then
          assert.are_not.equal(general, tostring(neap.help(f)), name)
        end
      end
    end
  end)
end)

describe("settings", function()
  it("reads and writes bytes", function()
    assert.are.equal(8 << 20, neap.bytes "8MiB")
    assert.are.equal(8000000, neap.bytes "8MB")
    assert.are.equal(512, neap.bytes "512B")
    assert.are.equal("1.5 KiB", neap.bytes(1536))
    for _, bad in ipairs { "8XB", "MiB", "-1", "" } do
      assert.is_false((pcall(neap.bytes, bad)), bad)
    end
  end)

  it("sets threads, for a while with neap.with", function()
    local before = neap.threads()
    assert.are.equal(1, neap.with({ threads = 1 }, function() return neap.threads() end))
    assert.are.equal(before, neap.threads())
    pcall(neap.with, { threads = 1 }, error)
    assert.are.equal(before, neap.threads())
    assert.is_false((pcall(neap.threads, 0)))
  end)

  it("tells what it is and what it holds", function()
    assert.are.equal(neap.version, neap.config().version)
    assert.is_true(neap.memory().resident > 0)
    assert.is_true(#neap.ops() > 60)
    assert.is_true(#neap.ops(true) > #neap.ops())
  end)
end)

describe("neap.help", function()
  local nothing = tostring(neap.help(setmetatable({}, {})))
  -- What a class of layers may have beside its forward is told with nn.module.
  local of_classes = { declare = true, describe = true }

  local function expect(prefix, name, f)
    local ok, text = pcall(neap.help, prefix .. name)
    assert.is_true(ok and tostring(text) ~= nothing, prefix .. name .. " has no help by its name")
    assert.not_equal(nothing, tostring(neap.help(f)),
      prefix .. name .. " has no help as a function")
  end

  local function sweep(prefix, t)
    for name, f in next, t do
      if type(name) == "string" and name:sub(1, 1) ~= "_" and type(f) == "function" then
        expect(prefix, name, f)
      end
    end
  end

  it("has a text on every public function, by its name and by itself", function()
    for _, name in ipairs { "nn", "data", "memonger", "init", "zoo" } do
      sweep(name .. ".", neap[name])
    end
    sweep("neap.", neap)
    for class, prefix in pairs {
      Tensor = "tensor:",
      Net = "net:",
      Workspace = "ws:",
      Scope = "scope:",
      Program = "program:",
      Plan = "plan:",
      Db = "db:",
    } do
      sweep(prefix, core[class])
    end
    local model = neap.nn.Linear(3, 4)
    local t <close> = neap.trainer {
      model = model, loss = neap.nn.MseLoss(), optimizer = neap.optim.SGD { lr = 0.1 },
    }
    sweep("t:", getmetatable(t))
    for _, name in ipairs(getmetatable(model).__names(model)) do
      if type(model[name]) == "function" and not of_classes[name] then
        expect("m:", name, model[name])
      end
    end
  end)

  it("finds an op by the class that it is called on, and a method by its bare name", function()
    for _, name in ipairs { "net:Softmax", "tensor:softmax", "neap.softmax", "softmax" } do
      assert.equal(tostring(neap.help "Softmax"), tostring(neap.help(name)))
    end
    assert.equal(tostring(neap.help "tensor:narrow"), tostring(neap.help "narrow"))
    assert.matches("Evaluation mode", tostring(neap.help "module:eval"))
  end)
end)

describe("what is given and has no place", function()
  local raises = require("support").raises
  local nn = neap.nn

  it("is refused in a net file", function()
    local path = os.tmpname() .. ".lua"
    local function load(text)
      local file = assert(io.open(path, "w"))
      file:write(text)
      file:close()
      return pcall(require("neap.net.file").load, path)
    end
    local model = "local nn = require 'neap'.nn\n\z
      local m = nn.Sequential { input = { 4 }, nn.Linear { 4, 3 } }\n"
    for text, said in pairs {
      ["return { model = m, los = nn.MseLoss() }"] = 'did you mean "loss"',
      ["return { model = m, batch = 2, anything = 3 }"] = "nothing reads the net file's \z
        field \"anything\"",
      ["return { net = m:net { batch = 1 }, loss = nn.MseLoss() }"] = "a net has its own loss",
    } do
      local ok, err = load(model .. text)
      assert.is_false(ok)
      assert.is_truthy(tostring(err):find(said, 1, true), tostring(err))
    end
    assert.is_true(
      load(model .. "return { model = m, loss = nn.MseLoss(), batch = 2, name = 'n' }"))
    os.remove(path)
  end)

  it("is refused by classes whose init reads fewer values", function()
    local One = nn.module {
      "One",
      init = function(self, o) self.l = nn.Linear { o[1], o[1] } end,
      forward = function(self, x) return self.l(x) end,
    }
    local None = nn.module {
      "None",
      init = function(self) self.l = nn.Linear { 4, 4 } end,
      forward = function(self, x) return self.l(x) end,
    }
    local All = nn.module {
      "All",
      init = function(self, o) for i = 1, #o do self["l" .. i] = o[i] end end,
      forward = function(self, x) return self.l1(x) end,
    }
    raises("position 2", One, { 4, 16 })
    raises("position 1", None, { 64, 2 })
    assert.is_truthy(One { 4 } and None {} and All { nn.Linear(3, 4), nn.Linear(4, 3) })
  end)

  it("is refused where it would mean another number, or nothing", function()
    raises("1.5 is no i64", neap.tensor, { 1.5 }, "i64")
    raises("300 is no i8", neap.tensor, { { 300 } }, "i8")
    raises("-1 is no u8", neap.tensor, -1, "u8")
    assert.are.same({ 1, -128 }, neap.tensor({ 1.0, -128 }, "i8"):totable())
    raises("dampening needs momentum", neap.optim.SGD, { lr = 0.1, dampening = 0.5 })
    raises("nesterov needs momentum", neap.optim.Lars, { lr = 1, momentum = 0, nesterov = true })
    local ws <close> = neap.workspace {}
    local net = neap.net "n"
    net:Neg(net:input("x", { 1 }), "y")
    ws:feed("x", neap.ones(1))
    for _, key in ipairs { "iterations", "instances" } do
      raises(key .. " expects an integer", ws.run_steps, ws, { { net, [key] = 0 } })
    end
    raises("trip can't be negative", net.Loop, net, {
      trip = -1, init = { "x" }, body = function(_, _, a) return true, a end,
    })
  end)
end)
