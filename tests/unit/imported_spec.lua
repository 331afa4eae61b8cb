-- What neap.import gives: a function of all its inputs and of nothing else, whose outputs are all
-- that the model's forward gives.
local neap = require "neap"
local support = require "support"
local nn = neap.nn

local Two = nn.module { "TwoOutputs",
  init = function(self) self.c = nn.Linear { 6, 6 } end,
  forward = function(self, x)
    local h = self.c(x)
    return self.c(h:relu()), h, h
  end }

local function imported(model, ending)
  local folder <close> = require("import.onnx_kit").folder()
  local path = folder.path .. "/m." .. ending
  assert(neap.export(model, path))
  return assert(neap.import(path))
end

for _, ending in ipairs { "onnx", "safetensors" } do
  describe("a function of a ." .. ending .. " file", function()
    it("gives all that forward gives, each once", function()
      local m, x = Two {}, neap.randn(1, 6)
      local y, h = m(x)
      local f = imported(m, ending)
      local names, out = f.net:outputs(), f(x)
      assert.equal(2, #names)
      assert.is_true((out[names[1]] - y):abs():max():item() < 1e-5)
      assert.is_true((out[names[2]] - h):abs():max():item() < 1e-5)
    end)

    it("takes its inputs anew in each call", function()
      local f, x = imported(nn.Linear { 6, 2, input = { 6 } }, ending), neap.randn(1, 6)
      local name = f.net:inputs()[1].name
      f(x)
      support.raises("expects f(x), or f{ " .. name .. " = tensor }, got nothing", f)
      support.raises("got nothing", f, nil)
      support.raises("got a number", f, 17)
      support.raises("input \"" .. name .. "\" is missing", f, {})
    end)

    it("prints as what it is called with, and its net", function()
      local f = imported(nn.Linear { 6, 2, input = { 6 } }, ending)
      local name = f.net:inputs()[1].name
      assert.equal(("imported function of (%s): %s"):format(name, tostring(f.net)), tostring(f))
    end)

    it("takes one argument", function()
      local f, x = imported(nn.Linear { 6, 2, input = { 6 } }, ending), neap.randn(1, 6)
      support.raises("takes one argument, f(x)", f, x, { budget = "1B" })
      support.raises("got 2", f, x, 17)
      assert.same({ 1, 2 }, f({ [f.net:blob(f.net:inputs()[1].name)] = x }).shape)
    end)

    it("has each of several inputs in each call", function()
      local f = imported(nn.module { "TwoInputs", forward = function(_, a, b) return a + b end } {
        input = { { 3 }, { 3 } } }, ending)
      local names, feeds = f.net:inputs(), {}
      for _, input in ipairs(names) do feeds[input.name] = neap.ones(1, 3) end
      assert.same({ { 2, 2, 2 } }, f(feeds):totable())
      feeds[names[2].name] = nil
      support.raises("input \"" .. names[2].name .. "\" is missing", f, feeds)
      support.raises("the net has 2 inputs", f, neap.ones(1, 3))
    end)
  end)
end

describe("m:net without a loss", function()
  it("has all outputs of forward, with one it has the loss", function()
    local m = Two {}
    assert.equal(2, #m:net { batch = 2, input = { 6 } }:outputs())
    local net, blobs = m:net { batch = 2, input = { 6 }, train = true,
      loss = function(y, _, _, t) return (y - t):abs():mean() end }
    assert.same({ blobs.loss.name }, net:outputs())
  end)
end)
