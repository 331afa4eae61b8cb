-- memonger: blob names recycled, net to net. A training step before and after, in bytes and in
-- bits. A few seconds. neap run scripts/examples/memonger.lua [--quick]
local neap = require "neap"
local quick = ... == "--quick"
local memonger = neap.memonger

-- A deep chain of layers with its gradient: the backward pass needs every activation, and one
-- gradient after the other.
local n_layer, width, batch = quick and 6 or 24, 64, 32
local net = neap.net "deep"
net:input("x", { batch, width })
net:input("label", { batch }, "i64")
local at = "x"
for i = 1, n_layer do
  net:param("w" .. i, { width, width }, neap.init.xavier())
  net:param("b" .. i, { width })
  net:FC({ at, "w" .. i, "b" .. i }, "fc" .. i)
  at = net:Tanh("fc" .. i, "h" .. i)
end
net:SoftmaxCrossEntropy({ at, "label" }, "loss")
net:outputs { "loss" }
net:gradient "loss"

-- Planning needs no run and allocates nothing. Net in, net out: `shared` is a net like any other,
-- with fewer names.
local shared, slots = memonger.share_grad_blobs(net, { "loss" }, nil, "shared",
  { share_activations = true, dag = false })
print(slots)

-- Without reuse every value has bytes of its own; by name, all versions of one name share one slot.
local function arena(n, policy) return n:plan({ policy = policy, store = false }).arena_bytes end
local before, after = arena(net, "none"), arena(shared, "name")
print(("without reuse %s, by shared names %s, packed by offsets %s"):format(neap.bytes(before),
  neap.bytes(after), neap.bytes(arena(net, "offset"))))

-- The same numbers, bit for bit.
local function loss_of(n, policy)
  local ws <close> = neap.workspace { seed = 1, store = false }
  ws:init(n)
  local program <close> = ws:compile(n, { policy = policy, store = false })
  neap.seed(7)
  ws:feed("x", neap.randn(batch, width))
  ws:feed("label", neap.zeros { batch, dtype = "i64" })
  program:run()
  return ws:fetch "loss", ws:fetch "w1_grad"
end
local loss, grad = loss_of(net, "none")
local loss2, grad2 = loss_of(shared, "name")
print("same loss, same gradient:", loss:hash() == loss2:hash() and grad:hash() == grad2:hash())

-- Other tools: an order of fewer bytes, the exact assignment, a Free behind each last reader, an
-- estimate.
local released, freed = memonger.release_blobs_when_used(net)
print(("%d blobs are freed after their last reader: %s at once instead of %s"):format(#freed,
  neap.bytes(memonger.estimate_memory_usage(released).high_water_bytes),
  neap.bytes(memonger.estimate_memory_usage(net).high_water_bytes)))
print(("saved %.1f %%"):format(100 * (1 - after / before)))
