--- A plan, or a run of one, as one HTML file: pictures, tables and search, without a network.
--
-- What is shown are the rows of a *side* (neap.plan.diff), one or two of them, embedded as JSON:
-- columns of numbers, in which a text is its number in a list of words, so that 30,000 values are
-- two megabytes. What draws them are the scripts of `page`, one idea a file.
--
-- INVARIANT: no byte of the data ends the element that it stands in: "<" is escaped, whatever a
-- blob is called.
-- @module neap.report.html
local core = require "neap.core"
local diff = require "neap.plan.diff"
local pointed = require "neap.inner.pointed"

local html = {}

--- The scripts, in the order in which they are read: what is used first comes first.
local scripts = {
  "base", "model", "map", "live", "table", "treemap", "charts", "graph", "page",
}

-- ---- JSON ---------------------------------------------------------------------------------------

local escapes = { ['"'] = '\\"', ["\\"] = "\\\\", ["<"] = "\\u003c", ["&"] = "\\u0026" }

--- A JSON string that may stand in HTML.
local function text_of(text)
  -- Bytes that are no UTF-8 become question marks: JSON has no others.
  if not utf8.len(text) then text = text:gsub("[\128-\255]", "?") end
  text = text:gsub('[%c"\\<&\127]', function(c)
    return escapes[c] or ("\\u%04x"):format(c:byte())
  end)
  return '"' .. text .. '"'
end

--- JSON of numbers, texts, booleans, lists and tables with names; a table with field n is a list of
-- n, in which nil is null.
local function json_of(value)
  if type(value) == "string" then return text_of(value) end
  if math.type(value) == "integer" then return ("%d"):format(value) end
  if type(value) == "number" then
    return (value ~= value or math.abs(value) == math.huge) and "null" or pointed("%.9g", value)
  end
  if type(value) ~= "table" then return tostring(value == true) end
  local parts = {}
  if value.n or value[1] ~= nil then
    for i = 1, value.n or #value do
      parts[i] = value[i] == nil and "null" or json_of(value[i])
    end
    return "[" .. table.concat(parts, ",") .. "]"
  end

  -- Names in order, so that the same plan gives the same page.
  local names = {}
  for name in pairs(value) do names[#names + 1] = name end
  table.sort(names)
  for i, name in ipairs(names) do parts[i] = text_of(name) .. ":" .. json_of(value[name]) end
  return "{" .. table.concat(parts, ",") .. "}"
end

-- ---- columns ------------------------------------------------------------------------------------

local texts_of = {
  op = { "name", "type", "phase", "layer", "module", "kernel", "algorithm", "dtype", "line",
    "reason" },
  value = { "blob", "category", "region", "shape", "dtype", "layout", "layer", "module", "line",
    "detail" },
}
local numbers_of = {
  op = { "live_bytes", "scratch_bytes", "scratch_offset", "flops", "read_bytes", "write_bytes",
    "recomputes" },
  value = { "bytes", "offset_bytes", "first_step", "last_step", "storage_no" },
}

--- Rows of a kind as columns: texts by their number in `words`, from 0; -1: none.
local function columns_of(kind, rows, words)
  local columns = {}
  for _, name in ipairs(texts_of[kind]) do
    local column = { n = #rows }
    for i, row in ipairs(rows) do
      local text = row[name]
      column[i] = text and words(text) or -1
    end
    columns[name] = column
  end

  -- A column of numbers that no row has is left out.
  for _, name in ipairs(numbers_of[kind]) do
    local column, any = { n = #rows }, #rows == 0
    for i, row in ipairs(rows) do
      column[i] = row[name]
      any = any or row[name] ~= nil
    end
    if any then columns[name] = column end
  end
  return columns
end

--- What each op reads and writes: numbers of values from 1, as one list, and where each op's begin.
local function operands_of(side)
  -- As one list with the beginning of each op's part: two arrays of numbers are smaller than a list
  -- of lists.
  local at, list, by_step = { n = #side.ops + 1 }, { n = 0 }, {}
  for _, read in ipairs(side.reads or {}) do
    by_step[read.step] = by_step[read.step] or {}
    table.insert(by_step[read.step], read.value_no)
  end
  for s, op in ipairs(side.ops) do
    at[s] = list.n
    for _, v in ipairs(op.ins or by_step[s] or {}) do
      list.n = list.n + 1
      list[list.n] = v
    end
  end
  at[#side.ops + 1] = list.n
  return { at = at, value = list }
end

--- Times by step in ns, and when each op began where a run says it.
local function times_of(side)
  if not side.times then return nil end
  local ns, least, start, thread = {}, {}, {}, {}
  local n = #side.ops
  ns.n, least.n, start.n, thread.n = n, n, n, n
  for i = 1, n do
    local t = side.times[i]
    if t then
      ns[i], least[i], start[i], thread[i] = t.median_ns, t.min_ns, t.start_ns, t.thread
    end
  end
  return { median = ns, min = least, start = start, thread = thread, label = side.times_label }
end

--- Figures of runs over steps: metrics, and how time and memory go.
local function series_of(side)
  local list, by_name = {}, {}
  local function add(name, unit, at, value)
    local s = by_name[name]
    if not s then
      s = { name = name, unit = unit, at = {}, value = {} }
      by_name[name], list[#list + 1] = s, s
    end
    s.at[#s.at + 1], s.value[#s.value + 1] = at, value
  end
  for _, m in ipairs(side.metrics or {}) do add(m.name, "", m.at_step, m.value) end
  for _, t in ipairs(side.course or {}) do
    if t.median_ns then add("time a step", "ns", t.at_step, t.median_ns) end
    if t.resident_bytes then add("memory of the process", "bytes", t.at_step, t.resident_bytes) end
  end
  return list
end

local figures = {
  "net", "mode", "batch", "policy", "executor", "arena_bytes", "lower_bound_bytes", "proved",
  "baseline_bytes", "total_bytes", "parameter_bytes", "gradient_bytes", "state_bytes", "io_bytes",
  "constant_bytes", "frame_bytes", "budget_bytes",
}

--- A side as columns.
local function packed(side, words)
  local given, shown = side.figures, {}
  for _, name in ipairs(figures) do shown[name] = given[name] end
  shown.proved = given.proved == true or given.proved == 1
  return {
    label = side.label, peak_step = side.peak_step, step_ns = side.step_ns, figures = shown,
    ops = columns_of("op", side.ops, words), values = columns_of("value", side.values, words),
    n_op = #side.ops, n_value = #side.values, reads = operands_of(side),
    times = times_of(side) or false, roof = side.times and side.roof or false,
    series = { n = #series_of(side), table.unpack(series_of(side)) },
  }
end

--- f(text) -> its number from 0, and the list of all that were asked for.
local function word_list()
  local list, number = { n = 0 }, {}
  return function(text)
    local known = number[text]
    if not known then
      known = list.n
      list.n = known + 1
      list[known + 1], number[text] = text, known
    end
    return known
  end, list
end

--- What the page shows, as JSON that may stand in HTML.
-- @param before side
-- @param after side|nil what it is compared with
-- @return string
function html.data(before, after)
  local words, list = word_list()
  local data = { sides = { packed(before, words) }, words = list }
  if after then
    data.sides[2] = packed(after, words)
    local report = diff.sides(before, after)
    local rows = { n = #report }
    for i, row in ipairs(report) do
      rows[i] = { n = 6, row.layer, row.what, row.before_bytes, row.after_bytes, row.change_ns,
        row.noise_ns }
    end
    data.changes = { rows = rows, timed = report.time_percent ~= nil and before.times ~= nil
      and after.times ~= nil, same = report.n_same }
  end
  return json_of(data)
end

-- ---- the page -----------------------------------------------------------------------------------

local function asset(name)
  return assert(core.embedded("lua/neap/report/page/" .. name), name .. " is part of the program")
end

local function escaped(text)
  return (text:gsub('[<>&"]', { ["<"] = "&lt;", [">"] = "&gt;", ["&"] = "&amp;",
    ['"'] = "&quot;" }))
end

--- The whole document.
-- @param before side
-- @param after side|nil
-- @return string
function html.page(before, after)
  local parts = {
    "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n",
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>",
    escaped(before.label .. (after and " against " .. after.label or "")), "</title>\n<style>\n",
    asset "page.css", "</style>\n</head>\n<body>\n<main id=\"page\"></main>\n",
    "<noscript>This report draws its pictures with scripts that are part of it.</noscript>\n",
    "<script type=\"application/json\" id=\"data\">", html.data(before, after), "</script>\n",
    "<script>\n'use strict';\n",
  }
  for _, name in ipairs(scripts) do parts[#parts + 1] = asset(name .. ".js") end
  parts[#parts + 1] = "</script>\n</body>\n</html>\n"
  return table.concat(parts)
end

return html
