--- Sums that grow from iteration to iteration, and from batch to batch, of bf16 and f16. In their
-- few digits such a sum stops growing: 256 + 1 is 256 in bf16, and 2048 + 1 is 2048 in f16. It is
-- made in f32, and rounded once.
local neap = require "neap"
local nn, optim = neap.nn, neap.optim

local halves = { "bf16", "f16" }
local n = 5000 -- terms of 1; both types have a number that near

local function near(dtype, got, what)
  local want = neap.tensor({ n }, dtype):to("f64")[1]
  local list = got:to("f64"):reshape(-1):totable()
  for _, x in ipairs(list) do assert.are.equal(want, x, what .. " in " .. dtype) end
  assert.is_true(#list > 0)
end

describe("the gradient of what a loop takes", function()
  local loops = {
    Recurrent = function(net, w, x, h0)
      local _, rows = net:Recurrent { seq = { x }, init = { h0 }, step = function(_, h, row)
        return h * 0, w * row
      end }
      return rows
    end,
    While = function(net, w, _, h0)
      local _, h = net:While { init = { net:const(0), h0 }, max = n,
        cond = function(_, i) return i:lt(n) end,
        body = function(_, i, h) return i + 1, h * 1 + w end }
      return h
    end,
    ["a While in a Recurrent"] = function(net, w, x, h0)
      local _, rows = net:Recurrent { seq = { x }, init = { h0 }, step = function(b, h, row)
        local _, twice = b:While { init = { b:const(0), h * 0 }, max = 2,
          cond = function(_, i) return i:lt(2) end,
          body = function(_, i, sum) return i + 1, sum + w * row * 0.5 end }
        return h * 0, twice
      end }
      return rows
    end,
  }

  local function net_of(loop, dtype)
    local net = neap.net "sums"
    local w = net:declare("w", "parameter", { 3 }, dtype)
    local y = loop(net, w, net:input("x", { n, 3 }, dtype), net:input("h0", { 3 }, dtype))
    local loss = net:Sum(y, "loss")
    local gradient = net:gradient(loss, { wrt = { w } })[w]
    net:outputs { loss, gradient }
    return net, gradient.name
  end

  local function run(net, gradient, dtype)
    local ws <close> = neap.workspace { store = false }
    ws:init(net)
    ws:feed("w", neap.ones(3):to(dtype))
    ws:feed("x", neap.ones(n, 3):to(dtype))
    ws:feed("h0", neap.zeros(3):to(dtype))
    ws:run(net)
    return ws:fetch(gradient)
  end

  for name, loop in pairs(loops) do
    it("does not stop growing: " .. name, function()
      for _, dtype in ipairs(halves) do
        local net, gradient = net_of(loop, dtype)
        local got = run(net, gradient, dtype)
        assert.are.equal(dtype, got.dtype)
        near(dtype, got, name)
        near(dtype, run(net:expand(), gradient, dtype), name .. ", written out")
      end
    end)
  end
end)

describe("the gradient of many batches", function()
  --- One weight w, as many times as there are examples.
  local Weight = nn.module { "Weight",
    init = function(self, o)
      self.dtype = o.dtype
      self:param("w", { 1 }, 0, { dtype = o.dtype })
    end,
    forward = function(self, x) return (x:to(self.dtype) * self.w):to "f32" end,
  }

  --- The gradient after one update of 5000 examples, in steps of so many.
  local function gradient(dtype, o)
    local model = Weight { dtype = dtype }
    o.model, o.loss, o.reduces = model, function(y, target) return (y - target):sum() end, "sum"
    o.optimizer = optim.SGD { lr = 1 }
    local t <close> = neap.trainer(o)
    local rows = n // (o.accumulate or 1)
    for _ = 1, o.accumulate or 1 do
      t:step { x = neap.ones(rows, 1), y = neap.zeros(rows, 1) }
    end
    return -model.w.data
  end

  it("does not stop growing from one to the next", function()
    for _, dtype in ipairs(halves) do
      near(dtype, gradient(dtype, { accumulate = n }), "batches")
      near(dtype, gradient(dtype, { micro = 1 }), "micro-batches")
      near(dtype, gradient(dtype, { accumulate = 10, micro = 1 }), "batches of micro-batches")
    end
  end)
end)
