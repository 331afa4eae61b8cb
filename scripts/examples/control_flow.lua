-- control_flow: loops and branches inside a net, and gradients through them. The square root of x
-- by Newton's method is a loop whose number of iterations depends on the data; its derivative, 1 /
-- (2 sqrt(x)), comes out of the loop's gradient. Then a loop that trains inside a net. neap run
-- scripts/examples/control_flow.lua [--quick]
local neap = require "neap"

local quick = ... == "--quick"

-- A loop until it is good enough. Without `max` its frames, what each iteration keeps for the
-- gradient, grow as it runs.
local net = neap.net "newton"
local x = net:input("x", {}, "f64")
local start = net:const(1, "f64")
local root, count = net:While { init = { start, net:const(0, "f64") },
  cond = function(_, y) local error = y * y - x return (error * error):gt(1e-24) end,
  body = function(_, y, n) return (y + x / y) * 0.5, n + 1 end }
net:Copy(root, "root")
net:Copy(count, "count")
net:gradient("root", { wrt = { x } })
net:outputs { "root", "count", "x_grad" }

local ws = neap.workspace { store = false }
for _, value in ipairs { 2, 9, 1000 } do
  local r = ws:run(net, { x = neap.tensor(value, "f64") })
  print(("sqrt(%g) = %.10f after %d iterations; derivative %.10f, by hand %.10f"):format(value,
    r.root:item(), r.count:item() // 1, r.x_grad:item(), 0.5 / math.sqrt(value)))
end
print(("an iteration keeps %s for the gradient"):format(neap.bytes(net:plan({}).regions.frames)))

-- The same with a maximum: the frames are part of the plan, so a budget can be promised.
local function bounded(max)
  local n = neap.net "bounded"
  n:input("x", { 1024 })
  local y = n:While {
    init = { "x" },
    max = max,
    cond = function(b, y) return b:Max(y):gt(1) end,
    body = function(b, y) return b:Sin(y) * 1.1 end,
  }
  n:Sum(y, "loss")
  n:gradient("loss", { wrt = { "x" } })
  n:outputs { "loss", "x_grad" }
  return n:plan {}
end
print(("at most 10 iterations: arena %s; at most 100: %s"):format(
  neap.bytes(bounded(10).arena_bytes), neap.bytes(bounded(100).arena_bytes)))

-- A branch in a loop that trains: gradient descent inside the net, with a step that is halved when
-- the loss has grown.
local fit = neap.net "fit"
fit:input("a", { 32, 4 })
fit:input("t", { 32, 1 })
fit:param("w", { 1, 4 }, 0)
fit:Copy(fit:const(1e9), "loss")
local step = fit:Loop {
  trip = quick and 100 or 1000,
  init = { fit:const(0.5) },
  body = function(b, _, rate)
    local d = b:FC { "a", "w" } - b:blob "t"
    local now = b:Mean(d * d)
    b:gradient(now, { wrt = { "w" } })
    local next_rate = b:If(now:gt(b:blob "loss"), function() return rate * 0.5 end,
      function(e) return e:Copy(rate) end)
    b:Copy(now, "loss")
    b:Sgd({ "w", "w_grad", next_rate }, "w")
    return b:blob("loss"):gt(1e-6), next_rate
  end,
}
fit:outputs { step, "loss" }
local features = neap.randn { 32, 4 }
ws:init(fit)
local r = ws:run(fit, {
  a = features, t = features:matmul(neap.tensor { { 1 }, { 2 }, { 3 }, { 4 } }),
})
print(("trained inside the net: loss %.2g, rate %.3g, w = %s"):format(r.loss:item(),
  r[step.name]:item(), tostring(ws:fetch "w")))
