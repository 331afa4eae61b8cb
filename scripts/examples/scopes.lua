-- scopes: gradient accumulation with a scope stack. The forward pass of each micro-batch runs in a
-- frame of its own, pushed on top of the one before; the backward pass pops them, last in, first
-- out, and finds in each what its forward left there. The sum of the gradients is that of the large
-- batch. A second or less. neap run scripts/examples/scopes.lua [--quick]
local neap = require "neap"
local quick = ... == "--quick"
local n_micro, n_batch, width = 4, quick and 32 or 512, quick and 16 or 128
local n_row = n_batch // n_micro

-- Two layers and the squared error, as three nets. This is the large batch: all in one, the
-- gradient by Neap.
local function layers(net, rows)
  local x, t = net:input("x", { rows, 8 }), net:input("t", { rows, 1 })
  net:Tanh(
    net:FC({ x, net:param("w1", { width, 8 }, neap.init.xavier()), net:param("b1", { width }) },
      "h"), "a")
  local y = net:FC(
    { "a", net:param("w2", { 1, width }, neap.init.xavier()), net:param("b2", { 1 }) }, "y")
  return net:Sub({ y, t }, "d")
end

local large = neap.net "large"
local d = layers(large, n_batch)
large:gradient(large:Mean(d * d, "loss"))
large:outputs { "loss", "w1_grad", "b1_grad", "w2_grad", "b2_grad" }

-- The forward pass of one micro-batch keeps what the backward will read: the activation and the
-- difference.
local forward = neap.net "forward"
layers(forward, n_row)
forward:outputs { "a", "d" }

-- The backward pass, by hand: it reads the frame's `x`, `a` and `d`, and writes what is bound to
-- `dw1` .. `db2`.
local backward = neap.net "backward"
local x = backward:input("x", { n_row, 8 })
local a = backward:input("a", { n_row, width })
local diff = backward:input("d", { n_row, 1 })
local w2 = backward:input("w2", { 1, width })
local dy = backward:Mul({ diff, backward:const(2 / n_batch) }, "dy")
backward:MatMul({ dy:transpose(), a }, "dw2")
backward:Sum(dy, "db2", { axes = { 1 } })
local dh = backward:Mul({ dy:matmul(w2), backward:const(1) - a * a }, "dh")
backward:MatMul({ dh:transpose(), x }, "dw1")
backward:Sum(dh, "db1", { axes = { 1 } })

-- The workspace holds the parameters and the micro-batches; the frames see them under the names
-- that the nets use.
local ws <close> = neap.workspace { seed = 1 }
neap.seed(1)
local xs, ts = neap.randn(n_batch, 8), neap.randn(n_batch, 1)
local want = ws:run(large, { x = xs, t = ts })

local parameters, gradients, sum = {}, {}, {}
for _, name in ipairs { "w1", "b1", "w2", "b2" } do
  parameters[name] = name
  gradients["d" .. name] = "micro_" .. name
  ws:create("micro_" .. name) -- where a frame's backward writes
end

local scope = ws:create_scope "micro"
-- All pushes bind alike, so the batch has one name outside; each frame keeps its own copy of it
-- under `x` and `t`.
for i = 1, n_micro do
  local frame = scope:push(ws, parameters)
  frame:feed("x", xs:narrow(1, (i - 1) * n_row + 1, n_row))
  frame:feed("t", ts:narrow(1, (i - 1) * n_row + 1, n_row))
  frame:run_once(forward)
end
print(
  ("%d frames hold %s between forward and backward"):format(#scope, neap.bytes(scope:held_bytes())))

while not scope:empty() do
  local frame = scope:pop_gradient(ws, gradients)
  frame:run_once(backward)
  for name in pairs(parameters) do
    local part = ws:fetch("micro_" .. name)
    sum[name] = sum[name] and sum[name] + part or part
  end
end
scope:trim()
print(("after trim: %s"):format(neap.bytes(scope:held_bytes())))

-- Sums in another order differ by rounding, no more.
local worst = 0
for name in pairs(parameters) do
  local gradient = want[name .. "_grad"]
  worst = math.max(worst, (sum[name] - gradient):abs():max():item() / gradient:abs():max():item())
end
print(("%d micro-batches of %d against one batch of %d: gradients differ by at most %.1g \z
  of their largest"):format(n_micro, n_row, n_batch, worst))
assert(worst < 1e-4)
