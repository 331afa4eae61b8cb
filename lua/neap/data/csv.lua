--- Sets of rows of numbers, from tables in text files.
-- @module neap.data.csv
local core = require "neap.core"
local options = require "neap.inner.options"
local set = require "neap.data.set"
local fail = core.fail
local csv = {}

-- ---- tables of numbers --------------------------------------------------------------------------

--- Rows of a CSV file as lists of cells, and the header's names or nil, the line of each row.
-- Without `header` given, a first row is one when none of its cells is a number.
local function read_table(path, separator, header)
  if #separator ~= 1 then
    fail(('neap.data.csv: separator expects one character, got "%s"'):format(separator))
  end
  local rows, line, code = core.read_csv(path, separator)
  set.must(rows, line, code)

  -- A header is told by its cells: names, none of which is a number.
  local first = rows[1]
  if first and header == nil then
    header = true
    for _, cell in ipairs(first) do header = header and cell ~= "" and not tonumber(cell) end
  end
  local names = header and table.remove(rows, 1) or nil
  if names then table.remove(line, 1) end
  local width = #(names or first or {})
  for i, cells in ipairs(rows) do
    if #cells ~= width then
      error(core.error {
        code = "data",
        message = ("%s: line %d has %d cells, expected %d"):format(path, line[i], #cells, width),
      })
    end
  end
  if #rows == 0 then error(core.error { code = "data", message = path .. ": no rows" }) end
  return rows, names, width
end

--- A column by name, or by number from 1, negative from the end; as a number from 1.
local function column_number(column, names, width)
  if math.type(column) == "integer" then
    local k = column < 0 and width + 1 + column or column
    if k >= 1 and k <= width then return k end
    fail(("neap.data.csv: there is no column %d, there are %d"):format(column, width))
  end
  for k, name in ipairs(names or {}) do
    if name == column then return k end
  end
  local near = names and options.nearest(tostring(column), names)
  fail(("neap.data.csv: there is no column \"%s\"%s"):format(
    tostring(column),
    near and (", did you mean \"" .. near .. "\"?")
      or names and "; there are " .. table.concat(names, ", ")
      or "; the file has no header, columns go by number"))
end

--- Labels: whole numbers and fractions as they are, words as numbers from 0 in the order of the
-- alphabet.
-- @return {numbers}, dtype, {words} or nil
local function read_labels(lines, k)
  local values, whole, words, seen = {}, true, nil, {}

  -- Words, or numbers that are whole, are labels; one cell that is no number makes all of them
  -- words.
  for i, cells in ipairs(lines) do
    values[i] = tonumber(cells[k])
    if not values[i] then words = words or {} end
    whole = whole and values[i] ~= nil and values[i] == math.floor(values[i])
    seen[cells[k]] = true
  end
  if not words then return values, whole and "i64" or "f32" end
  for word in pairs(seen) do words[#words + 1] = word end
  table.sort(words)
  for i, word in ipairs(words) do seen[word] = i - 1 end
  for i, cells in ipairs(lines) do values[i] = seen[cells[k]] end
  return values, "i64", words
end

local options_of_csv = set.declare("csv", {
  is_rows = true,
  doc = [[Rows of a CSV file (RFC 4180, cells may stand in quotes; gzip too): x (N, columns) f32,
    y (N). Labels that are words become numbers from 0, listed in the set's `classes`; `columns` are
    the names of x's, `n_class` how many labels there are. Split "train" and "valid" are drawn by
    the seed.]],
  { "path", "string", required = true, doc = "the file" },
  { "x", "columns", unset = "all but the label's", doc = "the columns of x" },
  { "y", "column|boolean", -1, says = "a column's name or number, or false",
    doc = "the label's column; negative numbers count from the last, false is for none" },
  { "header", "boolean", unset = "where no cell of line 1 is a number",
    doc = "whether line 1 has the columns' names" },
  { "separator", "name", ",", says = "a character", doc = "what stands between cells" },
  set.split("all", { "all", "train", "valid" }),
  { "holdout", "number", 0.2, min = 0, max = 1,
    doc = 'share of the rows that split = "valid" has' },
  { "dtype", "dtype", unset = "i64 for words and whole numbers, else f32", doc = "dtype of y" },
  example = 'neap.data.csv { path = "iris.csv", y = "species", batch = 16, shuffle = true }' })

--- Raises where the label takes the only column: a file of another separator is a column of lines.
local function fail_without_columns(path, first, separator)
  local found
  for _, other in ipairs { ",", ";", "\t", "|" } do
    if other ~= separator and first:find(other, 1, true) then found = found or other end
  end
  local shown = found == "\t" and "\\t" or found
  error(core.error { code = "data",
    message = ("%s: the label's column is the only one, separated by \"%s\""):format(path,
      separator),
    hint = found and ("its first row has \"%s\": separator = \"%s\""):format(shown, shown)
      or "y = false gives rows without a label" })
end

--- Rows of a table: see the record.
-- @return data set with `columns` (names of x's), `classes`, `n_class`
function csv.csv(given)
  local o = options_of_csv:read(given)
  local path = set.exists(o.path) and o.path or set.must_find(o.path, "where you have it", o.path)
  local lines, names, width = read_table(path, o.separator, o.header)
  local label = o.y and column_number(o.y, names, width) or nil
  local columns, titles = {}, {}
  if o.x then
    for i, column in ipairs(type(o.x) == "table" and o.x or { o.x }) do
      columns[i] = column_number(column, names, width)
    end
  else
    for k = 1, width do
      if k ~= label then columns[#columns + 1] = k end
    end
  end
  if #columns == 0 and not o.x then
    fail_without_columns(path, names and names[1] or lines[1][1] or "", o.separator)
  end
  for i, k in ipairs(columns) do titles[i] = names and names[k] or tostring(k) end
  local flat = {}

  -- Numbers row by row, for one tensor (rows, columns).
  for i, cells in ipairs(lines) do
    for _, k in ipairs(columns) do
      local value = tonumber(cells[k])
      if not value then
        error(core.error {
          code = "data",
          message = ("%s: row %d, column %s: \"%s\" is not a number"):format(
            path, i, names and names[k] or k, cells[k]),
        })
      end
      flat[#flat + 1] = value
    end
  end
  local fields, extra = {
      x = { source = core.tensor(flat, "f32"):view(#lines, #columns), dtype = "f32" },
    },
    { columns = titles }
  if label then
    local values, dtype, words = read_labels(lines, label)
    dtype = o.dtype or dtype
    fields.y = { source = core.tensor(values, dtype), dtype = dtype }
    extra.classes = words
    if dtype == "i64" then
      local most = math.mininteger
      for _, v in ipairs(values) do most = math.max(most, math.tointeger(v)) end
      extra.n_class = most + 1
    end
  end
  return set.new(o, fields, set.held_out(o, #lines), extra)
end

return csv
