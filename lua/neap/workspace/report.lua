--- What a workspace holds, as reports and as a picture.
-- @module neap.workspace.report
local core = require "neap.core"
local report = require "neap.report"

local Workspace = core.Workspace

--- Rows of all names with their shapes as text, sorted for a table or in the order of look-up, and
-- the bytes of the own ones.
local function blob_rows(ws, sorted)
  local rows, total = ws:_blobs(sorted), 0
  for _, row in ipairs(rows) do
    if not row.borrowed then total = total + row.counted_bytes end
    row.shape = row.shape and "(" .. table.concat(row.shape, ",") .. ")"
  end
  return rows, total
end

--- ws:picture([path]) -> Report: every blob by name with its region, bytes and life in the program
-- made or run last; with a path ending in .svg, that program's plan as a picture (plan:svg): true,
-- or nil, message, code.
-- @usage ws:run(net, { x = x }); print(ws:picture()); ws:picture "memory.svg"
function Workspace:picture(path)
  if path then return core.write_text(path, self:_svg()) end
  local rows, bytes = blob_rows(self, true)
  return report.new {
    rows = rows,
    columns = { "name", "region", "shape", "bytes", "steps", "bar" },
    totals = { bytes = bytes },
    order = { "bytes" },
  }
end

--- ws:blobs() -> Report of all names.
function Workspace:blobs()
  local rows, bytes = blob_rows(self, false)
  return report.of("blob", { rows = rows, totals = { bytes = bytes } })
end

--- ws:sizes() -> Report: what the workspace itself holds, the largest first: name, shape, bytes,
-- percent, and the total. Bytes that several names share are counted once, for the first; the arena
-- of the programs is one row.
function Workspace:sizes()
  local all, own = blob_rows(self, false)
  local rows, total = {}, own + self:arena_bytes()

  -- What is borrowed is another workspace's; what is transient lies in the arena, which is one row.
  for _, row in ipairs(all) do
    if not row.borrowed and row.kind ~= "transient" then
      rows[#rows + 1] = {
        name = row.name,
        shape = row.shape or row.kind,
        bytes = row.counted_bytes,
      }
    end
  end
  if self:arena_bytes() > 0 then
    rows[#rows + 1] = { name = "(arena)", shape = "arena", bytes = self:arena_bytes() }
  end
  table.sort(rows, function(a, b)
    if a.bytes ~= b.bytes then return a.bytes > b.bytes end
    return a.name < b.name
  end)
  for _, row in ipairs(rows) do row.percent = total > 0 and 100 * row.bytes / total or 0 end
  rows[#rows + 1] = {
    name = "total",
    shape = "",
    bytes = total,
    percent = total > 0 and 100.0 or 0,
  }
  return report.new {
    rows = rows,
    columns = { "name", "shape", "bytes", "percent" },
    totals = { bytes = total },
  }
end
