--- What this machine reaches at most: operations a second in f32, f64, bf16 and i8, bytes a second
-- of memory, by threads. Measured with Neap's own kernels, and the largest is kept in the database:
-- the roof under which the ops of a run stand.
-- @module neap.machine
local core = require "neap.core"
local report = require "neap.report"

local machine = {}

local N = 768 -- rows and columns of the product: large enough for the kernels, 1 GFLOP
local ELEMS = 8 * 1024 * 1024 -- of the copy: 32 MiB in, 32 MiB out, more than caches hold
local TIMES = 5 -- runs of each; the fastest counts

local function cpuinfo()
  local file = io.open "/proc/cpuinfo"
  if not file then return "" end
  local text = file:read "a"
  file:close()
  return text
end

--- Whether the processor multiplies bf16 by itself; elsewhere it goes by f32, and says nothing of a
-- peak.
local function has_bf16()
  local text = cpuinfo()
  return text:find("avx512_bf16", 1, true) ~= nil or text:find("amx_bf16", 1, true) ~= nil
    or text:find "%f[%w]bf16%f[%W]" ~= nil
end

--- ns of the fastest run of a net that `build` makes; nil where its kernels can't be had.
local function fastest(build)
  local neap = require "neap"

  -- Whatever refuses it (a dtype without kernels, too little memory): there is no figure then.
  local ok, ns = pcall(function()
    local ws <close> = neap.workspace { store = false, seed = 1 }
    local net = neap.net "peak"
    net:outputs { build(net) }
    ws:init(net)
    local program <close> = ws:compile(net, { store = false })
    program:run(TIMES)
    return program:stats().min_ns
  end)
  return ok and ns or nil
end

local function product(dtype)
  return function(net)
    return net:MatMul {
      net:param("a", { N, N }, { "Xavier" }, { dtype = dtype }),
      net:param("b", { N, N }, { "Xavier" }, { dtype = dtype }),
    }
  end
end

local function product_of_bytes(net)
  local one = net:param("one", {}, { "Constant", value = 1 })
  local a = net:param("a", { N, N }, { "Constant", value = 3 }, { dtype = "i8" })
  return net:QLinearMatMul { a, one, false, a, one, false, one }
end

local kinds = {
  { what = "f32", work = 2 * N ^ 3, build = product "f32" },
  { what = "f64", work = 2 * N ^ 3, build = product "f64" },
  { what = "bf16", work = 2 * N ^ 3, build = product "bf16", may = has_bf16 },
  { what = "i8", work = 2 * N ^ 3, build = product_of_bytes },
  {
    what = "memory", work = 2 * 4 * ELEMS,
    build = function(net)
      return net:Neg { net:param("x", { ELEMS }, { "Constant", value = 1 }) }
    end,
  },
}

--- Thread counts that are measured: one, and all that kernels may have.
local function thread_counts()
  local n = core.threads()
  return n > 1 and { 1, n } or { 1 }
end

--- Rows {what, n_thread, per_second}, measured now.
local function measure()
  local rows, before = {}, core.threads()

  -- Threads are the process's: given back whatever happens.
  local _ <close> = setmetatable({}, { __close = function() core.threads(before) end })
  for _, n in ipairs(thread_counts()) do
    core.threads(n)
    for _, kind in ipairs(kinds) do
      local ns = (not kind.may or kind.may()) and fastest(kind.build)
      if ns and ns > 0 then
        rows[#rows + 1] = { what = kind.what, n_thread = n, per_second = kind.work / ns * 1e9 }
      end
    end
  end
  return rows
end

--- The processor's name, as a row of the database has it.
function machine.cpu() return cpuinfo():match "model name%s*:%s*([^\n]*)" or "unknown" end

--- Rows of what the database has of a machine with this processor and so many threads; nil for
-- none.
local function ask(db, what, order)
  local rows = db:_query(("%s where machine_id = %s %s"):format(what,
    [[(select max(machine_id) from machine_peak join machine using (machine_id)
      where cpu = :cpu and n_thread = :n)]], order or ""),
    { cpu = machine.cpu(), n = core.threads() })
  return rows and #rows > 0 and rows or nil
end

local function stored(db)
  return ask(db, "select what, n_thread, per_second from machine_peak", "order by n_thread, what")
end

--- The best of all threads, by what was measured.
local function best(rows)
  local most = {}
  for _, row in ipairs(rows) do
    most[row.what] = math.max(most[row.what] or 0, row.per_second)
  end
  return most
end

--- Whether an op was faster than what is kept of its dtype. One whose dtype has no peak of its own
-- is compared with that of f32.
local function is_passed(db, seen)
  local roof = {}
  for _, row in ipairs(ask(db, "select dtype, flop_per_s from v_machine_peak") or {}) do
    roof[row.dtype] = row.flop_per_s
  end
  for dtype, flop_per_s in pairs(seen) do
    if flop_per_s > (roof[dtype] or roof.f32 or 0) then return true end
  end
  return false
end

--- neap.machine([{ again = true }]) -> Report of what this machine reaches: what ("f32", "f64",
-- "bf16", "i8": operations a second; "memory": bytes a second), n_thread, per_second; totals
-- flop_per_s, of f32, and byte_per_s, the best of all threads. Measured the first time, a second or
-- less, and kept in the database; `again`: measured anew, of which the larger is kept; `seen`:
-- measured anew if ops reached more in their dtype than is kept, { bf16 = operations a second }.
-- The total `measured` says why.
function machine.peaks(o)
  o = o or {}
  local db, why = core.used_db(), nil
  local rows = db and stored(db)
  if not rows then
    why = "the first time"
  elseif o.again then
    why = "again, as asked"
  elseif not best(rows).i8 then
    why = "again, as integers were not measured yet"
  elseif o.seen and is_passed(db, o.seen) then
    why = "again, as an op was faster than what was kept"
  end
  if why then
    rows = measure()
    for _, row in ipairs(db and rows or {}) do
      db:_note_peak(row.what, row.n_thread, row.per_second)
    end

    -- What is kept is the largest that was ever measured.
    rows = db and stored(db) or rows
  end
  local most = best(rows)
  return report.new {
    rows = rows, columns = { "what", "n_thread", "per_second" },
    totals = { flop_per_s = most.f32, byte_per_s = most.memory, measured = why },
    order = { "flop_per_s", "byte_per_s", "measured" },
  }
end

return machine
