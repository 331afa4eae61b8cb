--- `neap bench --memory`: the figures that other systems have published for the memory of a net,
-- and Neap's for the same nets. Plans only: nothing is allocated, nothing runs.
--
-- What counts as output memory: the arena (every value an op gives, and the scratch of the kernels)
-- and the net's output, which Neap keeps apart so that it stays after the run. The input, which is
-- the caller's, does not count, nor do parameters. `scratch_bytes` is how much of the arena's peak
-- is scratch and no value: 0 where the engine is `ref` and figures compare. `fused` is the option
-- `fuse`: false, true, or "pool", where a pool takes in the convolution before it, and what that
-- gives is scratch of a few images.
-- @module neap.bench.memory
local netfile = require "neap.net.file"
local report = require "neap.report"

local memory = {}

local mega, mebi = 10 ^ 6, 2 ^ 20

--- Fields of a row, in the order of `--json`'s documentation. `figure_bytes` is what is compared
-- with `published_bytes`; `lower_bound_bytes` the least that the arena could be in this order,
-- `proved` that it is no more. A figure that counts blobs has `count` in place of bytes.
memory.fields = {
  "what", "net", "mode", "batch", "engine", "fused", "count", "figure_bytes", "arena_bytes",
  "lower_bound_bytes", "proved", "scratch_bytes", "output_bytes", "no_reuse_bytes",
  "published_bytes", "published", "met",
}

--- Bytes of the blobs that stay after the run as its results.
local function output_bytes(plan, net)
  local total, is_output = 0, {}
  for _, name in ipairs(net:outputs()) do is_output[name] = true end
  for _, v in ipairs(plan:_values()) do
    if is_output[v.blob] and v.region == "io" then total = total + v.bytes end
  end
  return total
end

--- What of the most bytes alive at once is scratch.
local function scratch_at_peak(plan)
  local live, scratch = 0, 0
  for _, op in ipairs(plan:_ops()) do
    if op.live_bytes > live then live, scratch = op.live_bytes, op.scratch_bytes end
  end
  return scratch
end

--- Whether `bytes` is at most the published number, which was printed with so many digits: 1960
-- stands for all below 1960.5.
local function is_met(bytes, published, unit)
  if not published then return nil end

  -- The digits behind the point say how exact the published number is.
  local digits = #(tostring(published):match "%.(%d+)" or "")
  return bytes / unit < published + 0.5 * 10 ^ -digits
end

--- A row from a plan: the columns that all figures share.
-- @param o { what =, net = name shown, engine = "ref"|"default", fused = false|true|"pool",
--   published = number|nil, unit = 10^6 | 2^20 }
function memory.row(plan, net, o)
  local out = output_bytes(plan, net)
  local row = {
    what = o.what,
    net = o.net,
    mode = plan.train and "train" or "infer",
    batch = plan.batch,
    engine = o.engine,
    fused = o.fused,
    arena_bytes = plan.arena_bytes,
    lower_bound_bytes = plan.lower_bound_bytes,
    proved = plan.proved,
    scratch_bytes = scratch_at_peak(plan),
    output_bytes = out,
    figure_bytes = plan.arena_bytes + out,
    no_reuse_bytes = plan.baseline_bytes,
  }
  if o.published then
    row.published_bytes = math.floor(o.published * o.unit + 0.5)
    row.published = ("%s %s"):format(o.published, o.unit == mega and "MB" or "MiB")
    row.met = is_met(row.figure_bytes, o.published, o.unit)
  end
  return row
end

--- The forward of a net planned for both engines, as it stands, fused, and fused with pooling.
-- Published figures are compared with `ref`, whose kernels need next to no scratch, and unfused:
-- they speak of the values of the net as it is written.
local function inference_rows(rows, what, case, batch, unit)
  local file = netfile.load(case.file, nil, case.options)
  local net = netfile.build(file, { train = false, batch = batch })
  for _, engine in ipairs { "ref", "default" } do
    for _, fused in ipairs { false, true, "pool" } do
      local plan = net:plan {
        engine = engine == "ref" and "ref" or nil,
        fuse = fused,
        store = false,
      }
      rows[#rows + 1] = memory.row(plan, net, {
        what = what,
        net = case.name or case.file,
        engine = engine,
        fused = fused,
        published = engine == "ref" and not fused and case.published or nil,
        unit = unit,
      })
    end
  end
end

-- Published: optnet's README, "outputs only", which counts the outputs of all modules once per
-- storage; in MiB.
local output_cases = {
  {
    file = "alexnet",
    options = { variant = "two_towers" },
    name = "alexnet two towers",
    published = 97,
  },
  { file = "alexnet" },
  { file = "vgg_a", published = 1960 },
  { file = "googlenet", published = 1993 },
  { file = "resnet110", published = 32 },
}

-- Published: OpenCV pull request 9389, host plan; in MB.
local batch_one_cases = {
  { file = "alexnet", published = 2.32 },
  { file = "googlenet", published = 5.21 },
  { file = "resnet50", published = 9.63 },
  { file = "squeezenet1_1", published = 4.87 },
}

-- Published: Caffe2's memonger, commits d0a38c190 (dag) and 83e6aab37 (linear).
local shared_published = { dag = 5, linear = 3 }

--- ResNet-50's forward recycled by name: how many names are shared.
local function shared_rows(rows)
  local memonger = require "neap.memonger"
  local net = netfile.build(netfile.load "resnet50", { train = false, batch = 1 })
  for _, kind in ipairs { "dag", "linear" } do
    -- dag: branches may run side by side; linear: one op after the other.
    local _, figures = memonger[
      kind == "dag" and "optimize_inference_for_dag" or "optimize_inference_net"](net)
    rows[#rows + 1] = {
      what = "shared blobs of the forward recycled by name",
      net = "resnet50",
      mode = "infer",
      batch = 1,
      engine = kind,
      fused = false,
      count = figures.n_shared,
      published = ("%d blobs"):format(shared_published[kind]),
      met = figures.n_shared <= shared_published[kind],
    }
  end
end

-- Published: Caffe2, commits 059fba842 and 5762c84d7: of 7497 MiB without reuse, ReLU in place
-- already.
local training_published = { ["gradients"] = 5010, ["gradients and activations"] = 4330 }

--- A training step of ResNet-50, batch 32, whose names are shared: every region, parameters and
-- optimizer state in it. Without reuse, every value has bytes of its own.
local function training_rows(rows)
  local memonger = require "neap.memonger"
  local net = netfile.build(netfile.load "resnet50", { train = true, batch = 32 })

  -- Gradients are shared by name, and the net is then planned by names.
  local none = net:plan { policy = "none", engine = "ref", store = false }
  for _, shared in ipairs { "gradients", "gradients and activations" } do
    local named = memonger.share_grad_blobs(net, { "loss" }, nil, "", {
      share_activations = shared ~= "gradients",
      dag = false,
    })
    local plan = named:plan { policy = "name", engine = "ref", store = false }
    local row = {
      what = ("training, all regions, %s shared by name"):format(shared),
      net = "resnet50",
      mode = "train",
      batch = 32,
      engine = "ref",
      fused = false,
      figure_bytes = plan.total_bytes,
      no_reuse_bytes = none.total_bytes,
      scratch_bytes = scratch_at_peak(plan),
      published_bytes = training_published[shared] * mebi,
      published = ("%d MiB"):format(training_published[shared]),
    }

    row.met = row.figure_bytes <= row.published_bytes
    rows[#rows + 1] = row
  end
end

--- The sections of the table, in order: each appends its rows to the list it is given.
memory.sections = {
  function(rows)
    for _, case in ipairs(output_cases) do
      inference_rows(rows, "output memory at inference, batch 128", case, 128, mebi)
    end
  end,
  function(rows)
    for _, case in ipairs(batch_one_cases) do
      inference_rows(rows, "output memory at inference, batch 1", case, 1, mega)
    end
  end,
  shared_rows,
  training_rows,
}

local function mib(bytes) return bytes and ("%.2f"):format(bytes / mebi) or "-" end

-- The columns for people: {title, text of a row}. `count` stands for bytes where a figure is a
-- number of blobs.
local columns = {
  { "net", function(r) return ("%s:%d"):format(r.net, r.batch) end },
  {
    "engine",
    function(r)
      return r.engine
        .. (r.fused == "pool" and ", fused with pooling" or r.fused and ", fused" or "")
    end,
  },
  { "MB", function(r) return r.figure_bytes and ("%.2f"):format(r.figure_bytes / mega) or "-" end },
  { "MiB", function(r) return r.count and r.count .. " blobs" or mib(r.figure_bytes) end },
  {
    "arena",
    function(r)
      if not r.lower_bound_bytes then return "-" end
      if r.arena_bytes == r.lower_bound_bytes then
        return r.proved and "least, proved" or "least"
      end
      return ("%.1f %% over"):format(100 * (r.arena_bytes / r.lower_bound_bytes - 1))
    end,
  },
  { "scratch", function(r) return mib(r.scratch_bytes) end },
  { "no reuse", function(r) return mib(r.no_reuse_bytes) end },
  { "published", function(r) return r.published or "-" end },
  { "met", function(r) return r.met == nil and "-" or r.met and "yes" or "NO" end },
}

--- All figures.
-- @return Report, one row a figure with memory.fields; totals n_published, n_met
-- @usage print(require("neap.bench.memory").run())
function memory.run()
  local rows, n_published, n_met = {}, 0, 0
  for _, section in ipairs(memory.sections) do section(rows) end
  for _, r in ipairs(rows) do
    if r.met ~= nil then n_published = n_published + 1 end
    if r.met then n_met = n_met + 1 end
  end
  return report.new {
    rows = rows,
    columns = memory.fields,
    totals = { n_published = n_published, n_met = n_met },
    order = { "n_published", "n_met" },
  }
end

--- Cells of all rows as lines, the first two columns to the left.
local function lines_of(table_rows)
  -- Each column is as wide as its widest cell.
  local width, lines = {}, {}
  for _, cells in ipairs(table_rows) do
    for i, cell in ipairs(cells) do width[i] = math.max(width[i] or 0, #cell) end
  end
  for k, cells in ipairs(table_rows) do
    local parts = {}
    for i, cell in ipairs(cells) do
      parts[i] = ((i <= 2 and "%-" or "%") .. width[i] .. "s"):format(cell)
    end
    lines[k] = table.concat(parts, "  ")
  end
  return lines
end

--- The report as a table for people, figures of one kind under one heading.
-- @param figures Report of memory.run
-- @return string
function memory.text(figures)
  -- All lines are laid out together, so that columns stand below each other under every heading.
  local cells, out, what = {}, {}, nil
  local function add(text_of)
    local row = {}
    for i, column in ipairs(columns) do row[i] = text_of(column) end
    cells[#cells + 1] = row
  end
  add(function(column) return column[1] end)

  for _, r in ipairs(figures) do add(function(column) return column[2](r) end) end
  local lines = lines_of(cells)
  out[1] = "MB is 10^6 bytes, MiB 2^20. A figure is the arena and what the net gives out; \z
    scratch: what of it is no value, in MiB."
  out[2] = lines[1]
  for i, r in ipairs(figures) do
    if r.what ~= what then out[#out + 1] = r.what end
    what = r.what
    out[#out + 1] = lines[i + 1]
  end
  out[#out + 1] = ("%d of %d published figures reached"):format(figures.n_met, figures.n_published)
  return table.concat(out, "\n")
end

return memory
