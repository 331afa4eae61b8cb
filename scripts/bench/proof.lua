-- proof.lua [NET:BATCH ...]: what plans promise, measured on the benchmark nets at full batch, in
-- training and inference.
--   build/neap run scripts/bench/proof.lua lenet:64 resnet50:16
-- A row each: whether the planned run gave the unplanned run's bits over 3 steps, arena over lower
-- bound and over baseline, bytes held minus bytes foretold, most allocations of a step from the 2nd
-- to the 10th. Exits with 1 when a promise is broken.
local neap = require "neap"
local report = require "neap.report"

local names = #arg > 0 and arg or {
  "mlp:128", "lenet:64", "resnet18c:32", "resnet50:16", "vgg16:8", "googlenet:16", "lstm:32",
  "gpt:8",
}
local rows, broken = {}, false
for _, name in ipairs(names) do
  for _, mode in ipairs { "train", "infer" } do
    local r = neap.check.plan(name, { train = mode == "train", count_steps = 10 })
    rows[#rows + 1] = {
      net = name, mode = mode,
      bits = r.same and ("%d blobs equal"):format(r.n_blob)
        or "DIFFERENT: " .. tostring(r.different),
      arena_bytes = r.arena_bytes,
      over_bound = ("%.4f"):format(r.arena_bytes / math.max(r.lower_bound_bytes, 1)),
      proved = r.proved,
      of_baseline = ("%.1f %%"):format(100 * r.arena_bytes / r.baseline_bytes),
      scratch_bytes_max = r.scratch_bytes_max,
      unplanned_bytes = r.held_bytes - r.forecast_bytes, allocations = r.allocations,
    }
    broken = broken or not r.same or r.arena_bytes > 1.02 * r.lower_bound_bytes
      or r.held_bytes ~= r.forecast_bytes or r.allocations > 0
    if name == "resnet50:16" and mode == "train" then
      broken = broken or r.arena_bytes > 0.42 * r.baseline_bytes
    end
    io.stderr:write(("%s, %s: %s\n"):format(name, mode, rows[#rows].bits))
  end
end
print(report.new {
  rows = rows,
  columns = {
    "net", "mode", "bits", "arena_bytes", "over_bound", "proved", "of_baseline",
    "scratch_bytes_max",
    "unplanned_bytes", "allocations",
  },
})
os.exit(broken and 1 or 0)
