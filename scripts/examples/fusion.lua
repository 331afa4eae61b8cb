-- fusion: what a net that does not train is rewritten into, and what that saves. A residual block
-- with normalisation is planned and run as it is written and fused; then a parameter is changed,
-- and the weights folded from it follow. A second or less. neap run scripts/examples/fusion.lua
-- [--quick]
local neap = require "neap"
local quick = ... == "--quick"
local batch, width, size = quick and 2 or 16, quick and 16 or 64, quick and 8 or 32

local net = neap.net "block"

-- A convolution, and the normalisation of its channels by statistics that training has left.
local function conv_norm(x, name)
  local function channels(what, init) return net:param(name .. "." .. what, { width }, init) end
  local y = net:Conv({
    x, net:param(name .. ".weight", { width, width, 3, 3 }, neap.init.kaiming {}),
  }, name, { pad = 1 })
  return net:BatchNorm({
    y, channels("gamma", 1), channels("beta", 0.1), channels("mean", 0.2), channels("var", 0.5),
  }, name .. ".norm", { training = false })
end

local x = net:input("x", { batch, width, size, size })
local h = net:Relu(conv_norm(x, "conv1"), "h")
net:outputs { net:Relu(net:Add({ conv_norm(h, "conv2"), x }, "sum"), "y") }

print(net:plan {}:rewrites())

-- Both ways in workspaces of the same seed: the same parameters.
local input, results = neap.randn(batch, width, size, size), {}
for _, fuse in ipairs { false, true } do
  local ws <close> = neap.workspace { seed = 1 }
  local program <close> = ws:compile(net, { fuse = fuse })
  ws:feed("x", input)
  program:run()
  results[#results + 1] = ws:fetch "y"
  local plan = program.plan
  print(("%-7s %2d ops, arena %9d bytes, constants %8d bytes"):format(fuse and "fused" or "written",
    #plan:ops(), plan.arena_bytes, plan.regions.constants))
  if fuse then -- what was folded is computed again when a parameter has changed, and only then
    ws:view("conv1.gamma"):fill_(2)
    program:run()
    print("a parameter changed, the result too:", not ws:fetch("y"):equal(results[2]))
  end
end
print(("largest difference: %.1e of %.2f"):format((results[1] - results[2]):abs():max():item(),
  results[1]:abs():max():item()))

-- Where memory is short, fuse = "pool": a convolution and the pool behind it take a few images at a
-- time, which costs some speed.
local stem = neap.net "stem"
local image = stem:input("image", { 16, 3, 64, 64 })
local map = stem:Relu(stem:Conv(
  { image, stem:param("weight", { 32, 3, 3, 3 }, neap.init.kaiming {}) }, "map", { pad = 1 }))
stem:outputs { stem:MaxPool(map, "pooled", { kernel = 2 }) }
for _, fuse in ipairs { true, "pool" } do
  print(
    ("fuse = %-5s arena %9d bytes"):format(tostring(fuse), stem:plan({ fuse = fuse }).arena_bytes))
end
