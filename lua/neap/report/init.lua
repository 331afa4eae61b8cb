--- Reports: what summary, forecast, plan, explain, sql ... return. A report is a value: print it,
-- index it, or take it as JSON or CSV; nothing prints by itself.
--
-- `#r` rows, `r[i].field`, totals as `r.field`, `tostring(r)` a table that fits the terminal,
-- `r:json()`, `r:csv()`.
-- @module neap.report
local core = require "neap.core"
local pointed = require "neap.inner.pointed"
local fail = core.fail

local report = {}
local Report = {}

--- Columns of a line where output is no terminal.
local default_width = 100

--- Makes a report.
-- @param o table { rows = {one table per row}, columns = {names in order}, title =, totals = {name
--   = value}, order = {names of totals to print}, text = string printed in place of the rows }
-- @return Report
function report.new(o)
  local self = {
    _columns = o.columns or {},
    _title = o.title,
    _totals = o.totals or {},
    _order = o.order,
    _text = o.text,
  }
  for i, row in ipairs(o.rows or {}) do self[i] = row end
  return setmetatable(self, Report)
end

--- What the engine says of each kind of row: a list of columns {name =, type =, unit =, doc =, ..}
-- by kind, "op", "value", ..
report.kinds = core.rows()

--- Names of the columns of a kind that people are shown: some of them only where a row has one.
-- @param kind string
-- @param rows table of such rows
-- @return string[]
function report.columns_of(kind, rows)
  local names = {}
  for _, column in ipairs(report.kinds[kind]) do
    local shown = column.print
    for i = 1, column.some and not shown and #rows or 0 do
      shown = shown or rows[i][column.name] or false
    end
    if shown then names[#names + 1] = column.name end
  end
  return names
end

--- A report of rows of one kind, all as the engine describes them.
-- @param o table as of report.new, without columns
function report.of(kind, o)
  o.columns = report.columns_of(kind, o.rows)
  return report.new(o)
end

--- Adds a total to what a report tells, behind those that it has; nil adds nothing.
function report.add_total(r, name, value)
  local order = rawget(r, "_order")
  rawget(r, "_totals")[name] = value
  if order and value ~= nil then order[#order + 1] = name end
end

function report.is_report(x) return getmetatable(x) == Report end

Report.__name = "neap.report"
Report.__index = function(self, key)
  if Report[key] ~= nil then return Report[key] end
  local totals = rawget(self, "_totals")
  return totals and totals[key]
end

-- ---- text ---------------------------------------------------------------------------------------

--- Columns on a screen: 1 per character, 2 for East Asian wide ones and emoji, 0 for combining
-- marks.
local function width(text)
  local n = 0
  for _, c in utf8.codes(text, true) do
    if (c >= 0x300 and c <= 0x36F)
        or (c >= 0x200B and c <= 0x200F)
        or (c >= 0xFE00 and c <= 0xFE0F) then
      n = n + 0
    elseif (c >= 0x1100 and c <= 0x115F) or (c >= 0x2E80 and c <= 0xA4CF)
        or (c >= 0xAC00 and c <= 0xD7A3) or (c >= 0xF900 and c <= 0xFAFF)
        or (c >= 0xFE30 and c <= 0xFE6F) or (c >= 0xFF00 and c <= 0xFF60)
        or (c >= 0x1F300 and c <= 0x1FAFF) then
      n = n + 2
    else
      n = n + 1
    end
  end
  return n
end
report.width = width

--- Cuts a text to `most` columns, with an ellipsis in the middle: beginnings and ends of paths tell
-- them apart.
local function cut(text, most)
  if width(text) <= most then return text end
  if most < 2 then return ("…"):rep(most) end
  local chars = {}
  for _, c in utf8.codes(text, true) do chars[#chars + 1] = utf8.char(c) end

  -- Characters from both ends in turn, until the room is used up; the ellipsis has one column.
  local head, tail, used = {}, {}, 1
  local i, j = 1, #chars
  while i <= j do
    local take_head = #head <= #tail
    local c = take_head and chars[i] or chars[j]
    if used + width(c) > most then break end
    used = used + width(c)
    if take_head then
      head[#head + 1], i = c, i + 1
    else
      table.insert(tail, 1, c)
      j = j - 1
    end
  end
  return table.concat(head) .. "…" .. table.concat(tail)
end

--- Valid UTF-8 without control characters: what may reach a terminal.
local function clean(text)
  if not utf8.len(text) then text = text:gsub("[\128-\255]", "?") end
  return (text:gsub("%c", " "))
end

local function cell_text(value)
  if value == nil then return "" end
  if math.type(value) == "float" then
    if value == math.floor(value) and math.abs(value) < 1e15 then return ("%.0f"):format(value) end
    return (math.abs(value) >= 1000 and "%.0f" or "%.4g"):format(value)
  end
  if type(value) == "boolean" then return value and "yes" or "no" end
  if type(value) == "table" then
    local parts = {}
    for _, item in ipairs(value) do parts[#parts + 1] = tostring(item) end
    return clean(table.concat(parts, ", "))
  end
  return clean(tostring(value))
end

--- Columns of the terminal: $COLUMNS, else what the terminal says, else 100.
function report.terminal_width()
  return math.tointeger(tonumber(os.getenv "COLUMNS" or ""))
    or core.terminal_width()
    or default_width
end

local function pad(text, n, right)
  local fill = (" "):rep(n - width(text))
  return right and fill .. text or text .. fill
end

--- Shrinks the widest columns of text until the line fits, none below 12. A line that can't fit so
-- is broken into blocks, and keeps its columns as wide as they are, up to the room.
local function fit(widths, numeric, room)
  local wide, total = table.move(widths, 1, #widths, 1, {}), 2 * (#widths - 1)
  for _, w in ipairs(widths) do total = total + w end

  -- One column at a time from the widest of texts: numbers are never cut.
  while total > room do
    local widest
    for i, w in ipairs(widths) do
      if not numeric[i] and w > 12 and (widest == nil or w > widths[widest]) then widest = i end
    end
    if widest == nil then
      for i, w in ipairs(wide) do widths[i] = math.min(w, math.max(room, 12)) end
      return
    end
    widths[widest] = widths[widest] - 1
    total = total - 1
  end
end

--- Splits columns into blocks that fit, each led by the first column, so that a line of a later
-- block can be told.
local function blocks_of(widths, room)
  -- A block has the first column and as many more as fit, but at least one.
  local blocks, used = { { 1 } }, widths[1]
  for k = 2, #widths do
    local block = blocks[#blocks]
    if used + 2 + widths[k] > room and #block > 1 then
      block = { 1 }
      blocks[#blocks + 1] = block
      used = widths[1]
    end
    block[#block + 1] = k
    used = used + 2 + widths[k]
  end
  return blocks
end

--- Texts, widths and alignment of all cells; a column is numeric when every value in it is a
-- number.
local function lay_out(self)
  local cells, widths, numeric = { [0] = {} }, {}, {}
  -- Line 0 is the header.
  for k, name in ipairs(self._columns) do
    cells[0][k] = clean(name)
    widths[k], numeric[k] = width(cells[0][k]), #self > 0
  end
  for i = 1, #self do
    cells[i] = {}
    for k, name in ipairs(self._columns) do
      local value = self[i][name]
      cells[i][k] = cell_text(value)
      widths[k] = math.max(widths[k], width(cells[i][k]))
      if value ~= nil and type(value) ~= "number" then numeric[k] = false end
    end
  end
  return cells, widths, numeric
end

local function table_text(self, room)
  local cells, widths, numeric = lay_out(self)
  fit(widths, numeric, room)
  local lines = {}

  -- What does not fit side by side goes below: blocks of columns, each with its header and all
  -- rows.
  for b, block in ipairs(blocks_of(widths, room)) do
    if b > 1 then lines[#lines + 1] = "" end
    for i = 0, #self do
      local parts, rule = {}, {}
      for at, k in ipairs(block) do
        parts[at] = pad(cut(cells[i][k], widths[k]), widths[k], numeric[k])
        rule[at] = ("─"):rep(widths[k])
      end
      lines[#lines + 1] = (table.concat(parts, "  "):gsub("%s+$", ""))
      if i == 0 then lines[#lines + 1] = table.concat(rule, "  ") end
    end
  end
  return table.concat(lines, "\n")
end

local function total_names(self)
  if self._order then return self._order end
  local names = {}
  for name, value in pairs(self._totals) do
    if type(value) ~= "table" then names[#names + 1] = name end
  end
  table.sort(names)
  return names
end

--- The text of a report for lines of `room` columns (math.huge: nothing is cut).
function report.text(self, room)
  -- A text stands for everything behind the title.
  local parts = {}
  if self._title then parts[#parts + 1] = self._title end
  if self._text then
    parts[#parts + 1] = (self._text:gsub("\n+$", ""))
    return table.concat(parts, "\n")
  end
  if #self._columns > 0 and #self > 0 then parts[#parts + 1] = table_text(self, room) end
  local totals = {}
  for _, name in ipairs(total_names(self)) do
    if self._totals[name] ~= nil then
      totals[#totals + 1] = name .. " " .. cell_text(self._totals[name])
    end
  end
  if #totals > 0 then parts[#parts + 1] = table.concat(totals, "   ") end
  if #parts == 0 then parts[1] = "(nothing)" end
  return table.concat(parts, "\n")
end

function Report.__tostring(self) return report.text(self, report.terminal_width()) end

local blocks = { "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█" }

--- A list of numbers as a line of blocks, of 60 columns at most: each shows the largest of its
-- part. `low` stands at the bottom and `high` at the top; what is no number leaves a gap.
function report.sparkline(list, low, high)
  local n, parts = math.min(60, #list), {}
  for c = 1, n do
    local top = -math.huge
    for i = (c - 1) * #list // n + 1, c * #list // n do
      if list[i] == list[i] then top = math.max(top, list[i]) end
    end
    local eighths = high > low and math.ceil(8 * (top - low) / (high - low)) or 1
    parts[c] = top == -math.huge and " " or blocks[math.max(1, math.min(8, eighths))]
  end
  return table.concat(parts)
end

-- ---- JSON and CSV -------------------------------------------------------------------------------

local as_table

--- A copy that lua-cjson takes: no NaN or infinity (null, as JSON has none), no metatables. Reports
-- within are objects of their own; what no text can hold, such as the plan of a dry run, is left
-- out.
local function plain(value, cjson)
  if type(value) == "number" and (value ~= value or value == math.huge or value == -math.huge) then
    return cjson.null
  end
  if type(value) == "userdata" and value ~= cjson.null or type(value) == "function" then
    return nil
  end
  if type(value) ~= "table" then return value end
  if report.is_report(value) then return as_table(value, cjson) end
  local out = {}
  for k, v in pairs(value) do out[k] = plain(v, cjson) end
  return out
end

--- What r:json() says, as a table.
function as_table(self, cjson)
  local rows = {}
  for i = 1, #self do rows[i] = plain(self[i], cjson) end
  if cjson.empty_array_mt then setmetatable(rows, cjson.empty_array_mt) end
  if next(self._totals) == nil and not self._text then return rows end
  local out = {}
  for name, value in pairs(self._totals) do out[name] = plain(value, cjson) end
  if #rows > 0 then out.rows = rows end
  if self._text then out.text = self._text end
  return out
end

--- A report as a JSON object {"rows": [...], totals...}; an array of rows when there are no totals.
-- @return string
function Report:json()
  local ok, cjson = pcall(require, "cjson")
  if not ok then fail("r:json() needs lua-cjson (Debian package lua-cjson)") end
  -- One of its own: it looks at the locale's decimal point when it is made.
  cjson = cjson.new()
  local value = as_table(self, cjson)
  return next(value) == nil and "[]" or cjson.encode(value)
end

local function quoted(value)
  if value == nil then return "" end
  -- Lua's own text of a float, 14 digits, but for the point.
  if math.type(value) == "float" and value == value and math.abs(value) ~= math.huge then
    local text = pointed("%.14g", value)
    value = text:find "[.e]" and text or text .. ".0"
  end
  local text = type(value) == "table" and cell_text(value) or tostring(value)
  return text:find '[",\r\n]' and '"' .. text:gsub('"', '""') .. '"' or text
end

--- The rows as CSV (RFC 4180), with a header line.
-- @return string
function Report:csv()
  local lines, head = {}, {}
  for k, name in ipairs(self._columns) do head[k] = quoted(name) end
  lines[1] = table.concat(head, ",")
  for i = 1, #self do
    local cells = {}
    for k, name in ipairs(self._columns) do cells[k] = quoted(self[i][name]) end
    lines[i + 1] = table.concat(cells, ",")
  end
  return table.concat(lines, "\r\n") .. "\r\n"
end

--- Names of the columns, in order.
function Report:columns() return self._columns end

--- "41.2 MiB": bytes for people.
report.bytes = core.bytes_text

--- For completion: methods and totals.
Report.__names = function(self)
  local names = {}
  for name in pairs(Report) do names[#names + 1] = name:sub(1, 2) ~= "__" and name or nil end
  for name in pairs(rawget(self, "_totals") or {}) do names[#names + 1] = name end
  return names
end

require("neap.inner.guard").functions(Report, "report:")
return report
