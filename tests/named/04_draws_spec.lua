-- Control ops whose bodies and branches draw random numbers: the backward, which runs parts of the
-- forward again, draws what that drew.
local neap = require "neap"
local nn = neap.nn
local kit = require "draws_kit"
local memories = require "control_kit".memories
local run = require "support".run

--- Output and gradient of the sum of what f(net) gives, for x of ones. Where each element of the
-- output is x times what was drawn, the two are equal.
local function drawn(f, memory)
  local net = neap.net "f"
  net:input("x", { 50 })
  net:input("c", {})
  net:Copy(f(net), "y")
  net:gradient(net:Sum("y", "loss"), { wrt = { "x" } })
  net:outputs { "y", "x_grad" }
  local out = run(net, { x = neap.ones { 50 }, c = neap.zeros {} }, memory)
  return out.y, out.x_grad
end

local function drop(b, x) return b:Dropout(x, nil, { rate = 0.25 }) end

local function twice(b, x)
  return drop(b, b:Relu(drop(b, x)))
end

--- A branch that applies f to x.
local function on(f, x) return function(b) return f(b, x) end end

local function times(n, f)
  return function(b, x)
    return (b:Loop { trip = n, init = { x }, body = function(s, _, h) return true, f(s, h) end })
  end
end

local nets = {
  ["the other branch of an If"] = function(net)
    return (net:If("c", on(twice, "x"), on(drop, "x")))
  end,
  ["an If behind one with a gradient in a body"] = function(net)
    return times(2, function(b, x)
      return (b:If("c", on(twice, x), on(drop, x))) + (b:If("c", on(twice, x), on(drop, x)))
    end)(net, "x")
  end,
  ["a loop in a branch"] = function(net)
    return (net:If("c", on(twice, "x"), on(times(2, twice), "x")))
  end,
  ["a loop in a loop"] = function(net) return times(2, times(2, twice))(net, "x") end,
  ["a loop that recomputes what lies before its If"] = function(net)
    local row, zero = net:Reshape("x", nil, { shape = { 1, 50 } }), net:const(neap.zeros(1, 50))
    local seq = net:Concat({ row, zero }, nil, { axis = 1 })
    local function step(b, h, x)
      b:Relu(drop(b, h + x), "a")
      return (b:If("c", on(twice, "a"), on(drop, "a")))
    end
    return (net:Recurrent { seq = { seq }, init = { "x" }, recompute = { "a" }, step = step })
  end,
}

describe("the backward of a control op draws what its forward drew", function()
  for name, f in pairs(nets) do
    it("in " .. name, function()
      for _, memory in ipairs(memories) do
        local y, gradient = drawn(f, memory)
        assert.is_true(y:equal(gradient))
        assert.is_true(y:max():item() > 0)
        assert.are.equal(0, y:min():item())
      end
    end)
  end

  local function check(first, last, memory, ready)
    for seed = first, last do
      local net, feeds = kit.make(seed, { grows = memory.budget == nil })
      if ready then net = ready(net, memory) end
      local d = kit.error_of(feeds, run(net, feeds, memory))
      assert.is_true(d < 1e-9, ("net %d is off by %g"):format(seed, d))
    end
  end

  it("in random nets", function()
    check(1, 600, {})
    for i, memory in ipairs(memories) do check(600 + 40 * i, 639 + 40 * i, memory) end
  end)

  it("in random nets under a budget that recomputes", function()
    local n = 0
    check(1, 120, { budget = 0 }, function(net, memory)
      local ok, refused = pcall(net.plan, net, { budget = 1, store = false })
      memory.budget = ok and 1 or refused.least_bytes
      n = n + net:plan({ budget = memory.budget, store = false }).n_recomputed
      return net
    end)
    assert.is_true(n > 50)
  end)

  it("in random nets that are written out", function()
    check(1, 120, {}, function(net) return net:expand {} end)
  end)

  it("in layers that are stepped through by hand", function()
    for seed = 1, 40 do
      local model = nn.Sequential { input = { 12 }, seed = 3,
        kit.layer(2 * seed), nn.Dropout { 0.3 }, kit.layer(2 * seed + 1) }
      local memory, x = model:memory(), neap.rand(3, 12) - 0.4
      for _ = 1, 2 do
        local y = memory:forward(x)
        local d = (x * memory:backward(neap.ones(3, 12)) - y):abs():max():item()
        d = d / math.max(1, y:abs():max():item())
        assert.is_true(d < 1e-4, ("layers %d are off by %g"):format(seed, d))
      end
    end
  end)
end)

describe("what an op draws", function()
  it("does not hang on the gradients before it", function()
    local function draw(gradient_first)
      local net = neap.net "f"
      net:input("x", { 8 })
      net:input("c", {})
      local function yes(b) return drop(b, "x") end
      net:Sum(net:If("c", yes, yes), "loss")
      local function differentiate() net:gradient("loss", { wrt = { "x" } }) end
      local function pass() net:Relu("x", "y") end
      if gradient_first then differentiate() end
      pass()
      if not gradient_first then differentiate() end
      net:outputs { net:Uniform({}, "u", { shape = { 8 } }), "x_grad" }
      return run(net, { x = neap.ones { 8 }, c = neap.ones {} }).u
    end
    assert.is_true(draw(true):equal(draw(false)))
  end)
end)
