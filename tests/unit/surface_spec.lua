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
