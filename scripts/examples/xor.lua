-- xor: the op level, without layers: a net of named blobs, its gradient, an update op per parameter.
-- neap run scripts/examples/xor.lua [--quick]
local neap = require "neap"
local quick = ... == "--quick"

local net = neap.net "xor"
local x = net:input("x", { 4, 2 })
local t = net:input("t", { 4, 1 })
local lr = net:input("lr", {})
net:param("w1", { 8, 2 }, neap.init.xavier())
net:param("b1", { 8 })
net:param("w2", { 1, 8 }, neap.init.xavier())
net:param("b2", { 1 })

net:FC({ x, "w1", "b1" }, "h")
net:Tanh("h", "a")
net:FC({ "a", "w2", "b2" }, "y")
local loss = net:MseLoss({ "y", t }, "loss")
for parameter, gradient in pairs(net:gradient(loss)) do
  net:Sgd({ parameter, gradient, lr }, { parameter })
end
net:outputs { "loss", "y" }

local ws <close> = neap.workspace { seed = 3 }
local feeds = { x = neap.tensor { { 0, 0 }, { 0, 1 }, { 1, 0 }, { 1, 1 } }, t = neap.tensor { { 0 }, { 1 }, { 1 }, { 0 } }, lr = neap.tensor(0.1) }
local out
for step = 1, quick and 300 or 2000 do
  out = ws:run(net, feeds)
  if step % 500 == 0 then print(("step %4d  loss %.5f"):format(step, out.loss:item())) end
end
print(out.y)
print(("final loss %.5f"):format(out.loss:item()))
