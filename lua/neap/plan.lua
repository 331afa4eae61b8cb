--- Plans: reports over the C class neap.plan.
-- @module neap.plan
local core = require "neap.core"
local report = require "neap.report"
local Plan = core.Plan

local function mib(bytes) return ("%.1f"):format(bytes / 2 ^ 20) end

--- One text as a report whose rows are its lines.
local function text_report(text, fields)
  local rows = {}
  for line in (text:gsub("\n$", "") .. "\n"):gmatch "(.-)\n" do rows[#rows + 1] = { text = line } end
  fields = fields or {}
  fields.rows, fields.columns, fields.text = rows, { "text" }, text:gsub("\n$", "")
  return report.new(fields)
end

--- Where the bytes go: one row a region, totals as fields. Exact, and made without allocating any of them.
-- @return Report {rows = {region, bytes}, total_bytes, arena_bytes, lower_bound_bytes, baseline_bytes, proved}
function Plan:forecast()
  local regions, rows = self.regions, {}
  for _, name in ipairs { "parameters", "gradients", "state", "io", "constants", "arena", "frames" } do
    rows[#rows + 1] = { region = name, bytes = regions[name], MiB = mib(regions[name]) }
  end
  local fields = { rows = rows, columns = { "region", "bytes", "MiB" }, total_bytes = self.total_bytes, arena_bytes = self.arena_bytes,
    lower_bound_bytes = self.lower_bound_bytes, baseline_bytes = self.baseline_bytes, proved = self.proved }
  fields.title = ("%s, %s: total %s MiB"):format(self.net, self.train and "training" or "inference", mib(self.total_bytes))
  fields.footer = ("no reuse %s MiB   planned %s MiB   least possible %s MiB%s"):format(mib(self.baseline_bytes), mib(self.arena_bytes),
    mib(self.lower_bound_bytes), self.proved and " (proved)" or "")
  return report.new(fields)
end

--- Why a blob lies where it does; without a name, the plan as a whole.
function Plan:explain(blob) return text_report(self:explain_text(blob)) end

--- What is alive at the peak.
function Plan:peak() return text_report(self:peak_text(), { peak_step = self.peak_step }) end

--- Every op in order, with the bytes live while it runs.
function Plan:ops()
  return report.new { rows = self:op_rows(), columns = { "step", "op", "name", "phase", "engine", "flop", "scratch_bytes", "live_bytes", "line" } }
end

--- Every value with its place and the reason for it.
function Plan:values()
  return report.new { rows = self:value_rows(), columns = { "blob", "role", "region", "dtype", "layout", "shape", "bytes", "offset", "first",
    "last", "reason", "refusal", "partner" } }
end

--- Why two blobs share bytes, or do not. With one: why it lies where it does.
function Plan:why(a, b)
  if b == nil then return self:explain(a) end
  local found = {}
  for _, row in ipairs(self:value_rows()) do
    if row.blob == a then found[1] = row elseif row.blob == b then found[2] = row end
  end
  for i, name in ipairs { a, b } do
    if not found[i] then error(core.error { code = "name", message = ("the plan has no blob \"%s\""):format(name) }, 0) end
  end
  local x, y = found[1], found[2]
  local text
  if x.region ~= "arena" or y.region ~= "arena" then
    text = ("%s lies in %s, %s in %s"):format(a, x.region, b, y.region)
  elseif x.storage == y.storage then
    text = ("one storage: %s is %s of %s"):format(y.blob, y.reason, tostring(y.partner or x.blob))
  else
    local shared = math.min(x.offset + x.bytes, y.offset + y.bytes) - math.max(x.offset, y.offset)
    local before, after = x, y
    if y.last < x.first then before, after = y, x end
    if shared <= 0 then
      text = ("no byte is shared: offsets %d and %d"):format(x.offset, y.offset)
    else
      text = ("%d bytes are shared: %s is last read at step %d, %s first written at step %d"):format(shared, before.blob, before.last,
        after.blob, after.first)
    end
  end
  return text_report(text)
end

local levels = { "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█" }

--- The bytes live over the steps, as one line of text `width` characters wide.
function Plan:sparkline(width)
  local rows = self:op_rows()
  width = math.min(width or 60, #rows)
  local out, most = {}, 1
  for _, row in ipairs(rows) do most = math.max(most, row.live_bytes) end
  for i = 1, width do
    local peak = 0
    for s = (i - 1) * #rows // width + 1, i * #rows // width do peak = math.max(peak, rows[s].live_bytes) end
    out[i] = levels[math.max(1, math.ceil(8 * peak / most))]
  end
  return table.concat(out)
end

Plan.meta.__tostring = function(plan)
  return ("plan of %s: arena %s MiB, least possible %s MiB%s, total %s MiB, %d ops"):format(plan.net, mib(plan.arena_bytes),
    mib(plan.lower_bound_bytes), plan.proved and " (proved)" or "", mib(plan.total_bytes), plan.n_op)
end

-- ---- programs ------------------------------------------------------------------------------------------------------------

local Program = core.Program

--- Measured times of a program compiled with profile = true; with `steps` it runs that many first and stores the run.
-- @return Report by time
function Program:profile(o)
  for _ = 1, o and o.steps or 0 do self:run() end
  local rows, total = self:time_rows(), 0
  for _, row in ipairs(rows) do total = total + row.mean_ns end
  for _, row in ipairs(rows) do
    row.us, row.percent = row.mean_ns // 1000, math.floor(1000 * row.mean_ns / math.max(1, total)) / 10
    row.gflops = row.flop > 0 and math.floor(10 * row.flop / math.max(1, row.min_ns)) / 10 or nil
  end
  table.sort(rows, function(a, b) return a.mean_ns > b.mean_ns end)
  if o and o.steps then self:record() end
  return report.new { rows = rows, columns = { "step", "op", "name", "phase", "engine", "us", "percent", "gflops" }, total_ns = total }
end

Program.meta.__tostring = function(program) return "program: " .. tostring(program.plan) end

return Plan
