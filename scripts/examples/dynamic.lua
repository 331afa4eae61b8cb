-- dynamic: sequences of any length, one at a time, through one program handle; and a loss over the
-- positions that a mask picks. Bytes come from a pool while the net runs, so that memory is that of
-- the longest sequence, not of all lengths together. neap run scripts/examples/dynamic.lua
-- [--quick]
local neap = require "neap"
local quick = ... == "--quick"

-- The task: the mean of each row, at the positions that are asked for. Row t of x is what is seen
-- at step t; the first dimension is a placeholder, since the dynamic executor takes what it is fed.
local width = 8
local net = neap.net "sequence"
local x = net:input("x", { 1, width })
local want = net:input("want", { 1, 1 })
local asked = net:input("asked", { 1 }, "bool")
local lr = net:input("lr", {})
net:param("w1", { 16, width }, neap.init.xavier())
net:param("b1", { 16 })
net:param("w2", { 1, 16 }, neap.init.xavier())
net:param("b2", { 1 })
net:Tanh(net:FC { x, "w1", "b1" }, "h")
net:FC({ "h", "w2", "b2" }, "y")
-- How many positions are asked for is known when the mask is: Compress takes those rows, and its
-- gradient puts them back.
local got = net:Compress({ "y", asked }, "got", { axis = 1 })
local target = net:Compress({ want, asked }, "target", { axis = 1 })
local loss = net:MseLoss({ got, target }, "loss")
for parameter, gradient in pairs(net:gradient(loss)) do
  net:Sgd({ parameter, gradient, lr }, { parameter })
end
net:outputs { loss }

-- A soft limit cuts the pool down again after a long sequence; budget would be the hard one.
local ws <close> = neap.workspace { executor = "dynamic", seed = 7 }
ws:init(net)
local program <close> = ws:compile(net)
neap.seed(7)
local longest, most, first, last = 0, 0, nil, nil
for step = 1, quick and 300 or 2000 do
  local n = 4 + step * 37 % 61
  local sequence = neap.rand(n, width)
  local mask = neap.rand(n):gt(0.5)
  mask[1] = true -- a mean over nothing would be NaN
  ws:feed("x", sequence)
  ws:feed("want", sequence:mean { axes = { 2 }, keepdim = true })
  ws:feed("asked", mask)
  ws:feed("lr", neap.tensor(0.1))
  program:run()
  longest, most = math.max(longest, n), math.max(most, program:pool().reserved_bytes)
  last = ws:fetch("loss"):item()
  first = first or last
end
local stats = program:stats()
print(("lengths up to %d, %d programs made, %d kept, %d runs begun anew"):format(longest,
  stats.n_made, stats.n_program, stats.n_restart))
print(("pool at most %s, the longest sequence alone needs %s"):format(neap.bytes(most),
  neap.bytes(net:plan({
    executor = "dynamic",
    x = { longest, width },
    want = { longest, 1 },
    asked = { longest },
    store = false,
  }).arena_bytes)))
print(("loss %.4f at first, %.6f at last"):format(first, last))
