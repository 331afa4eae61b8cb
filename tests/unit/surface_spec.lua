-- Rules that hold for every op record and class of the Lua surface (LUA_API.md, rules 1 to 4).
local neap = require "neap"
local core = require "neap.core"
local op = require "neap.op"

local keywords = {}
for word in ("and break do else elseif end false for function goto if in local nil not or repeat return then true until while"):gmatch "%a+" do
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
        assert.is_truthy(core.op_help(name):find(r.summary, 1, true))
      end
      for _, list in ipairs(r.internal and {} or { r.attrs, r.inputs, r.outputs }) do
        for _, item in ipairs(list) do assert.is_truthy(item.doc, name .. "." .. item.name .. " has no doc") end
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
      if r.example then assert.is_truthy(load(r.example) or load("return " .. r.example), name .. ": " .. r.example) end
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
  it("hides nothing behind a nil: an unknown op is an error, an unknown method nil", function()
    local net = neap.net "f"
    assert.is_false((pcall(function() return net.Nothing end)))
    assert.is_nil(net.nothing)
    assert.is_nil(neap.ones(1).nothing)
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

describe("what nobody reads", function()
  local nn, optim, data = neap.nn, neap.optim, neap.data
  -- These take a list of any length and look at each of its entries themselves, or hand what they get on to a function.
  local lists = {
    ["Net.made_by"] = true, ["Net.keep"] = true, ["Net.device"] = true, ["Net.scope"] = true, ["Net.variable_scope"] = true,
    ["Net.parameter_sharing"] = true,
    ["data.find"] = true, ["Net.outputs"] = true, ["Workspace.keep"] = true, ["Workspace.drop_gradients"] = true,
    ["neap.zeros"] = true, ["neap.ones"] = true, ["neap.empty"] = true, ["neap.full"] = true, ["neap.rand"] = true, ["neap.randn"] = true,
    ["neap.with"] = true, ["neap.matmul"] = true, ["Tensor.matmul"] = true, ["Tensor.view"] = true, ["Tensor.at"] = true, ["Tensor.set"] = true,
    ["neap.scope"] = true, ["neap.variable_scope"] = true, ["nn.module"] = true,
    ["Tensor.apply"] = true, ["Tensor.map"] = true, ["Tensor.fill"] = true, ["Tensor.zero"] = true, -- these say that there is none
    ["optim.Adagrad"] = true, ["optim.RmsProp"] = true,
  }
  local too_many = {}
  for i = 1, 60 do too_many[i] = print end

  --- Every public function of a table but the ops' is called with sixty functions.
  local function sweep(prefix, functions, self)
    for name, f in pairs(functions) do
      local is_public = type(name) == "string" and name:sub(1, 1) ~= "_" and type(f) == "function"
      if is_public and not op.functions[name] and not op.records[name] then
        local ok, err
        if self ~= nil then ok, err = pcall(f, self, table.unpack(too_many)) else ok, err = pcall(f, table.unpack(too_many)) end
        local what = prefix .. "." .. name
        assert.is_false(ok and not lists[what], what .. " took sixty functions for arguments")
        local said = tostring(err):find "takes .*argument" or tostring(err):find "takes .*%w+ values?"
        assert.is_truthy(lists[what] or said, what .. ": " .. tostring(err))
      end
    end
  end

  it("is refused: arguments, by every function of the surface", function()
    for name, t in pairs { neap = neap, nn = nn, optim = optim, data = data, memonger = neap.memonger, init = neap.init, zoo = neap.zoo } do
      sweep(name, t)
    end
    local net = neap.net "f"
    net:outputs { net:Relu(net:input("x", { 2 }), "y") }
    local ws <close> = neap.workspace { store = false }
    local self = { Tensor = neap.ones(2), Net = net, Workspace = ws, Plan = net:plan { store = false } }
    for _, class in ipairs { "Tensor", "Net", "Workspace", "Program", "Plan", "Db" } do sweep(class, core[class], self[class]) end
  end)

  it("is refused: arguments, by every method of the classes that Lua makes", function()
    local net, model = neap.net "f", nn.Linear { 3, 2 }
    local trainer <close> = neap.trainer { model = model, optimizer = optim.SGD { lr = 0.1 } }
    local batches = data.tensors { x = neap.ones(4, 3), batch = 2 }
    for name, object in pairs { Blob = net:input("x", { 2 }), Module = model, Sequential = nn.Sequential { nn.ReLU() }, Trainer = trainer,
      Optimizer = optim.SGD { lr = 0.1 }, Data = batches, Report = neap.memory(), Memory = model:memory() } do
      local meta = getmetatable(object)
      sweep(name, meta, object)
      if type(meta.__index) == "table" then sweep(name, meta.__index, object) end
    end
  end)

  it("is refused: options, by every layer, loss, optimizer, initialiser and net of the zoo", function()
    local function refuses(what, f, ...)
      local ok, err = pcall(f, ...)
      assert.is_false(ok, what .. " took the option no_such")
      assert.is_truthy(tostring(err):find("no_such", 1, true), what .. ": " .. tostring(err))
    end
    for _, name in ipairs(nn.names()) do refuses("nn." .. name, nn[name], { no_such = 1 }) end
    for name, f in pairs(optim) do
      if type(f) == "function" and not lists["optim." .. name] then refuses("optim." .. name, f, { no_such = 1 }) end
    end
    for name, f in pairs(neap.init) do
      if type(f) == "function" then refuses("neap.init." .. name, f, { no_such = 1 }) end
    end
    for _, name in ipairs(neap.zoo.names()) do refuses("neap.zoo." .. name, neap.zoo[name], { no_such = 1 }) end
    refuses("neap.trainer", neap.trainer, { no_such = 1 })
    refuses("neap.workspace", neap.workspace, { no_such = 1 })
    refuses("neap.fit_batch", neap.fit_batch, nn.Linear { 3, 2 }, { no_such = 1 })
    local net = neap.net "f"
    for i = 1, 16 do net:input("x" .. i, { 2 }) end
    refuses("net:plan", net.plan, net, { no_such = 1 })
    for name, r in pairs(op.records) do
      local ins = {}
      for i, input in ipairs(r.inputs) do ins[i] = not input.optional and ("x" .. i) or nil end
      if not r.internal and not r.control then refuses(name, net.op, net, name, ins, nil, { no_such = 1 }) end
    end
  end)
end)

describe("settings", function()
  it("reads and writes bytes", function()
    assert.are.equal(8 << 20, neap.bytes "8MiB")
    assert.are.equal(8000000, neap.bytes "8MB")
    assert.are.equal(512, neap.bytes "512B")
    assert.are.equal("1.5 KiB", neap.bytes(1536))
    for _, bad in ipairs { "8XB", "MiB", "-1", "" } do assert.is_false((pcall(neap.bytes, bad)), bad) end
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
