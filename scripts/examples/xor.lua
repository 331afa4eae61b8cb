-- xor: the op level, without layers: a net of named blobs, its gradient, an update op per
-- parameter. A second or less. neap run scripts/examples/xor.lua [--quick]
local neap = require "neap"
local quick = ... == "--quick"

-- Inputs are fed before each run; parameters live in the workspace from run to run. The learning
-- rate is an input like any other: changing it needs no new plan.
local net = neap.net "xor"
local x = net:input("x", { 4, 2 })
local t = net:input("t", { 4, 1 })
local lr = net:input("lr", {})
net:param("w1", { 8, 2 }, neap.init.xavier())
net:param("b1", { 8 })
net:param("w2", { 1, 8 }, neap.init.xavier())
net:param("b2", { 1 })

-- Inputs first, then outputs; a blob is named by its text or by the handle that made it.
net:FC({ x, "w1", "b1" }, "h")
net:Tanh("h", "a")
net:FC({ "a", "w2", "b2" }, "y")
local loss = net:MseLoss({ "y", t }, "loss")
-- The backward pass is ops of the same net, and so is the update: written in place, onto the
-- parameter's own name.
for parameter, gradient in pairs(net:gradient(loss)) do
  net:Sgd({ parameter, gradient, lr }, { parameter })
end
net:outputs { "loss", "y" }

local ws <close> = neap.workspace { seed = 3 }
local feeds = {
  x = neap.tensor { { 0, 0 }, { 0, 1 }, { 1, 0 }, { 1, 1 } },
  t = neap.tensor { { 0 }, { 1 }, { 1 }, { 0 } },
  lr = neap.tensor(0.1),
}
local out
for step = 1, quick and 300 or 2000 do
  out = ws:run(net, feeds)
  if step % 500 == 0 then print(("step %4d  loss %.2g"):format(step, out.loss:item())) end
end
print "input -> output"
for i = 1, 4 do
  print(("%g xor %g = %.3f"):format(feeds.x[{ i, 1 }], feeds.x[{ i, 2 }], out.y[{ i, 1 }]))
end
print(("final loss %.5f"):format(out.loss:item()))
