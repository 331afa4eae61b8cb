-- memonger.lua: the figures of recycling by name on ResNet-50, beside the published ones. Plans
-- only: nothing is allocated or run. MiB = 2^20; engine ref, so no scratch worth naming; resident
-- regions in both totals. neap run scripts/bench/memonger.lua
local neap = require "neap"
local netfile = require "neap.net.file"
local memonger = neap.memonger

local function mib(bytes) return bytes / 2 ^ 20 end
local function plan(net, policy, executor)
  return net:plan {
    policy = policy, executor = executor or "simple", engine = "ref", store = false,
  }
end

local forward = netfile.build(netfile.load "resnet50:1", { train = false })
local _, row = memonger.optimize_inference_net(forward)
local _, dag = memonger.optimize_inference_for_dag(forward)
print(("ResNet-50 forward, batch 1: in a row %d shared blobs, %.2f MiB (bound %.2f); in a dag %d \z
  shared blobs, %.2f MiB; published 3 and 5"):format(row.n_shared, mib(row.planned_bytes),
  mib(row.lower_bound_bytes), dag.n_shared, mib(dag.planned_bytes)))

local train = netfile.build(netfile.load "resnet50:32", { train = true })
for _, executor in ipairs { "simple", "dag" } do
  local none = plan(train, "none", executor).total_bytes
  print(("ResNet-50 training, batch 32, %s: without reuse %.0f MiB (published 7497)"):format(
    executor, mib(none)))
  for _, activations in ipairs { false, true } do
    local net, slots = memonger.share_grad_blobs(train, { "loss" }, nil, "", {
      share_activations = activations, dag = executor == "dag",
    })
    local total = plan(net, "name", executor).total_bytes
    print(("  gradients%s shared: %.0f MiB, saved %.1f %%, %d shared blobs (published %s)"):format(
      activations and " and activations" or "", mib(total), 100 * (1 - total / none),
      slots.n_shared, activations and "4330 MiB, 42 %" or "5010 MiB, 33 %"))
  end
end
