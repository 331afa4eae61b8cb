--- Rows of the database for other programs: as SQL, as JSON, or as CSV.
--
-- What is written of a run is closed: each row that another one of them refers to is there too.
-- @module neap.inner.export
local core = require "neap.core"
local options = require "neap.inner.options"
local report = require "neap.report"

local export = {}

local plans = "plan_id in (select plan_id from program where run_id in (select run_id from run \z
  where %s))"

-- Of a table, which rows belong to the runs that are asked for, by the tables before it.
local of_runs = {
  meta = "true",
  plan_cache = "false",
  machine = "machine_id in (select machine_id from run where %s)",
  machine_peak = "machine_id in (select machine_id from run where %s)",
  net = "net_id in (select net_id from plan where " .. plans .. ")",
  net_text = "text_id in (select text_id from net where net_id in (select net_id from plan where \z
    " .. plans .. "))",
  plan_word = "true",
}

--- The names of a query's one column.
local function names(db, sql, params)
  local list = {}
  for row in db:rows(sql, params) do list[#list + 1] = row.name end
  return list
end

--- "run_id = 7"; nil: all rows of the file.
local function condition(given)
  local parts = {}
  if given.run then parts[#parts + 1] = "run_id = " .. given.run end
  if given.tag then parts[#parts + 1] = "tag = '" .. given.tag:gsub("'", "''") .. "'" end
  return #parts > 0 and table.concat(parts, " and ") or nil
end

local function quoted(name) return '"' .. name:gsub('"', '""') .. '"' end

--- Neap's tables with the columns that can be written, and which of their rows are asked for. With
-- a condition those of users are left out: nobody knows which run they are of.
local function tables(db, runs)
  local list = {}

  -- In the order of their making: a table comes behind those that its rows refer to.
  for _, name in ipairs(names(db, [[select name from sqlite_schema where type = 'table'
    and name not like 'sqlite_%' order by rowid]])) do
    local columns = names(db, "select name from pragma_table_info(?)", { name })
    local has = {}
    for _, c in ipairs(columns) do has[c] = true end
    local where = "true"

    -- By the list above, else by the number of a run or plan that the table has.
    if runs then
      where = of_runs[name] or has.run_id and "run_id in (select run_id from run where %s)"
        or has.plan_id and plans or "false"
      where = where:gsub("%%s", (runs:gsub("%%", "%%%%")))
    end
    list[#list + 1] = { name = name, columns = columns, where = where }
  end
  return list
end

--- The rows of a table; with `as_sql` each value as SQL writes it.
local function rows_of(db, t, as_sql)
  local words = {}
  for i, c in ipairs(t.columns) do
    words[i] = as_sql and ("quote(%s) as %s"):format(quoted(c), quoted(c)) or quoted(c)
  end
  return db:sql(("select %s from %s where %s"):format(table.concat(words, ", "), quoted(t.name),
    t.where))
end

local function write_sql(db, out, list)
  local n = 0

  -- References are off while rows come in: what they refer to may come later.
  out:write "PRAGMA foreign_keys = OFF;\nBEGIN;\n"

  -- The two numbers by which a file is known as Neap's, and its version.
  for row in db:rows "select * from pragma_application_id, pragma_user_version" do
    out:write(("PRAGMA application_id = %d;\nPRAGMA user_version = %d;\n"):format(
      row.application_id, row.user_version))
  end
  for _, t in ipairs(list) do
    local make = assert(db:sql("select sql from sqlite_schema where type = 'table' and name = ?",
      { t.name }))
    out:write(make[1].sql, ";\n")
    local columns = {}
    for i, c in ipairs(t.columns) do columns[i] = quoted(c) end
    local head = ("INSERT INTO %s (%s) VALUES ("):format(quoted(t.name), table.concat(columns, ","))
    for _, row in ipairs(assert(rows_of(db, t, true))) do
      local values = {}
      for i, c in ipairs(t.columns) do values[i] = row[c] end
      out:write(head, table.concat(values, ","), ");\n")
      n = n + 1
    end
  end

  -- Indexes, views and triggers behind the rows, which none of them is to see come in.
  for row in db:rows [[select sql from sqlite_schema where sql is not null and type <> 'table'
    order by rowid]] do
    out:write(row.sql, ";\n")
  end
  out:write "COMMIT;\n"
  return n
end

--- The report of a table's rows; bytes that are no text as hexadecimal digits.
local function report_of(db, t)
  local rows = assert(rows_of(db, t))
  for _, row in ipairs(rows) do
    for name, value in pairs(row) do
      if type(value) == "string" and not utf8.len(value) then
        row[name] = value:gsub(".", function(c) return ("%02x"):format(c:byte()) end)
      end
    end
  end
  return report.new { rows = rows, columns = t.columns }
end

local function write_json(db, out, list)
  local n = 0
  out:write "{"
  for i, t in ipairs(list) do
    local r = report_of(db, t)
    local parts = {}
    for k, row in ipairs(r) do parts[k] = report.new({ totals = row }):json() end
    out:write(i > 1 and ",\n" or "\n", ('"%s": ['):format(t.name), table.concat(parts, ",\n"), "]")
    n = n + #r
  end
  out:write "\n}\n"
  return n
end

--- Writes a file as a whole or not at all. @return what fill(out) gives; nil, message
-- The whole text is held before it is written: what fails on the way leaves the old file.
local function write_file(path, fill)
  local parts = {}
  local result = fill { write = function(_, ...) options.append(parts, { ... }) end }
  local good, message = core.write_text(path, table.concat(parts))
  if not good then return nil, message end
  return result
end

local function write_csv(db, folder, list)
  local made, message = core.make_folder(folder)
  if not made then return nil, message end
  local n = 0
  for _, t in ipairs(list) do
    local r = report_of(db, t)
    if #r > 0 then
      made, message = core.write_text(folder .. "/" .. t.name .. ".csv", r:csv())
      if not made then return nil, message end
    end
    n = n + #r
  end
  return n
end

--- Writes what `given` asks for (run, tag; nothing: all) to `path`, whose end says the form.
-- @return rows written; nil, message
function export.write(db, path, given)
  -- A run that is not there would give an empty file without a word.
  local runs = condition(given)
  if runs and #assert(db:sql("select 1 from run where " .. runs .. " limit 1")) == 0 then
    return nil, "there is no run with " .. runs
  end
  local list = tables(db, runs)
  local form = path:match "[^/]%.(%a+)$"
  if form == nil then return write_csv(db, path, list) end
  local write = form == "sql" and write_sql or form == "json" and write_json
  if not write then
    return nil, ("%s: nobody knows how to write .%s; a file ends in .sql or .json, a folder for \z
      .csv files in neither"):format(path, form)
  end
  return write_file(path, function(out) return write(db, out, list) end)
end

return export
