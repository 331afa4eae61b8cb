--- The database of plans, runs and profiles: one SQLite file, asked with SQL.
-- @module neap.db
local core = require "neap.core"
local options = require "neap.inner.options"
local record = require "neap.inner.record"
local report = require "neap.report"
local unanswered = require "neap.inner.unanswered"

local Db = core.Db
local db = {}

--- neap.db([path]) -> db, or nil, message, code. Without a path: $NEAP_DB, or the default of DESIGN
-- section 6.
function db.open(path) return core.open_db(path) end

--- Report of a query; `lenient`: parameters that are not given are NULL.
local function ask(self, query, params, lenient)
  local rows, columns, code = self:_query(query, params, lenient)
  if rows == nil then return nil, columns, code end
  return report.new { rows = rows, columns = columns }
end

--- Raises for a query that is no text.
local function check_text(who, query)
  if type(query) ~= "string" then
    core.fail(("%s expects a query in SQL, got a %s"):format(who, type(query)))
  end
end

--- db:sql(query [, params]) -> Report. params: a list for ?, fields for :name, a value for each.
-- nil, message, code when the query fails.
-- @usage db:sql("select blob, bytes from v_peak where net = :net and newest", { net = "lenet" })
function Db:sql(query, params)
  check_text("db:sql", query)
  return ask(self, query, params)
end

--- db:rows(query [, params]): iterator of rows as tables.
function Db:rows(query, params)
  check_text("db:rows", query)
  local rows = assert(self:_query(query, params))
  local i = 0
  return function()
    i = i + 1
    return rows[i]
  end
end

--- Names of the canned queries.
function db.queries()
  local names = {}
  for _, path in ipairs(core.embedded()) do
    names[#names + 1] = path:match "^db/queries/([%w_]+)%.sql$"
  end
  return names
end

--- Parameters with a budget as bytes, of which "2MiB" speaks.
local function in_bytes(params)
  local out = {}
  for name, value in pairs(params or {}) do
    out[name] = name == "budget" and type(value) == "string" and core.parse_bytes(value) or value
  end
  return out
end

local function uses(text, param) return text:find(":" .. param .. "%f[^%w_]") ~= nil end

--- What a canned query is asked of by its number, or by what it is found by: its second line says
-- ":run .. (db/asked/run.sql)". @return "run" and the text of that file; nil for other queries
local function finder_of(text)
  local kind, path = text:match "\n%-%-[^\n]*:(%l+) [^\n]*%((db/asked/%l+%.sql)%)"
  return kind, path and core.embedded(path)
end

--- Names of the parameters of a canned query, those that find what it is asked of included.
function db.parameters(name)
  local text = core.embedded("db/queries/" .. name .. ".sql")
  local _, finder = finder_of(text)
  local names = {}
  local heads = text:match "\n%-%- ([^\n]*)" .. (finder and finder:match "\n%-%- (:[^\n]*)" or "")
  for param in heads:gmatch ":(%l+)" do names[#names + 1] = param end
  return names
end

--- What speaks against the parameters of a canned query: one that it does not take, or that has no
-- sense beside another. @return message or nil
local function at_fault(name, text, params)
  local takes, known = db.parameters(name), {}
  for _, param in ipairs(takes) do known[param] = true end
  local kind = finder_of(text)
  for param in pairs(params) do
    if type(param) == "string" and not known[param] then
      local near = options.nearest(param, takes)
      return ('query: %s has no parameter "%s"; %s'):format(name, param,
        near and ('did you mean "%s"?'):format(near)
          or "it takes " .. (takes[1] and table.concat(takes, ", ") or "none"))
    end
    -- By its number it is one: what else it is found by could only speak against it.
    if kind and params[kind] ~= nil and param ~= kind and not uses(text, param) then
      return ("query: %s=%s says which %s it is; leave out %s, or %s"):format(kind,
        tostring(params[kind]), kind, param, kind)
    end
  end
end

--- Report of a canned query of one plan, or run, asked of all that the parameters speak of; and the
-- numbers of these.
local function ask_each(self, kind, finder, text, params)
  -- A canned query of one plan or run is asked in two steps: the finder says which ones the
  -- parameters speak of, then the query is asked of each.
  local to_find, others = {}, {}
  for name, value in pairs(params) do
    if uses(finder, name) then to_find[name] = value end
    if uses(text, name) or not uses(finder, name) then others[name] = value end
  end
  local found, message, code = self:_query(finder, to_find, true)
  if found == nil then return nil, message, code end
  local all, numbers = nil, {}
  for i, row in ipairs(found) do
    others[kind], numbers[i] = row[kind], row[kind]
    local answer
    answer, message, code = ask(self, text, others, true)
    if answer == nil then return nil, message, code end
    -- one without rows knows no columns
    if all == nil or #all == 0 then all = answer else options.append(all, answer) end
  end
  -- of nothing: its columns
  if all == nil then all, message, code = ask(self, text, others, true) end
  if all == nil then return nil, message, code end
  return all, numbers
end

--- db:query(name [, params]) -> Report of a canned query (db/queries/NAME.sql), whose parameters
-- may be left out. What it is asked of must be there: an unknown net, plan, run or blob raises.
-- @usage db:query("peak", { net = "lenet", mode = "train", budget = "2MiB" })
function Db:query(name, params)
  if type(name) ~= "string" then
    core.fail("db:query expects a canned query's name, got a " .. type(name))
  end
  local text = core.embedded("db/queries/" .. name .. ".sql")
  if text == nil then
    local near = options.nearest(name, db.queries())
    error(core.error {
      code = "name",
      message = ("there is no query \"%s\""):format(name),
      hint = near and ("did you mean \"%s\"?"):format(near)
        or "there are " .. table.concat(db.queries(), ", "),
    })
  end
  params = in_bytes(params)
  local message = at_fault(name, text, params)
  if message then return nil, message, "db" end
  if uses(text, "blob") and params.blob == nil then
    core.fail(("%s needs a blob: neap sql %s blob=NAME, plan:values() lists them"):format(name,
      name))
  end
  local kind, finder = finder_of(text)
  local answer, found, code

  -- By its number: one answer. By other parameters: one for each that is found, one after the
  -- other.
  if kind and params[kind] == nil then
    answer, found, code = ask_each(self, kind, finder, text, params)
  else
    answer, found, code = ask(self, text, params, true)
    if answer then found = kind and { params[kind] } end
  end
  if answer == nil then return nil, found, code end

  -- No rows may be an answer, or a net that nobody knows.
  if #answer == 0 then unanswered.check(self, kind, found, params, text) end
  return answer
end

--- db:info() -> Report: path, version, bytes, rows of each table.
function Db:info()
  local path, readonly = self:_path()
  local rows = {}
  for row in self:rows "select name from sqlite_schema where type = 'table' and name not like \z
    'sqlite_%' order by name" do
    local count = assert(self:_query('select count(*) as n from "' .. row.name .. '"'))
    rows[#rows + 1] = { table = row.name, rows = count[1].n }
  end
  local function pragma(name)
    local result = self:_query("select * from pragma_" .. name)
    return result and result[1] and result[1][name]
  end
  local pages, size = pragma "page_count", pragma "page_size"
  return report.new {
    rows = rows,
    columns = { "table", "rows" },
    totals = {
      path = path,
      schema = pragma "user_version",
      readonly = readonly or nil,
      bytes = pages and size and pages * size,
    },
    order = { "path", "schema", "bytes" },
  }
end

--- db:verify() -> Report with `ok`: integrity of the file and of its references.
function Db:verify()
  local ok, text = self:_check()
  return report.new {
    text = text ~= "" and text or (ok and "ok" or "damaged"),
    totals = { ok = ok == true },
  }
end

local prune_options = record.declare("db:prune", { positions = { "days" },
  doc = [[Removes what is oldest, and gives the numbers of plans and runs that are gone, and the
    bytes that are left. Starred runs keep all they have.]],
  { "days", "integer", unset = "30, where no other limit is given", min = 0,
    doc = "plans go that no run has used for so long; runs stay" },
  { "runs", "integer", unset = "all", min = 0, doc = "how many of the newest runs stay" },
  { "bytes", "integer", unset = "any", min = 0, doc = [[how large the file may be: first go times by
      op, then what saves planning, then plans, and runs at last]] },
  example = "db:prune { 90 }" })

--- db:prune{ .. } -> plans and runs removed, bytes left: see the record.
function Db:prune(given)
  local o = prune_options:read(given)

  -- Only without another limit do thirty days hold.
  local days = o.days or (o.runs or o.bytes) and -1 or 30
  return self:_prune(days, o.runs or -1, o.bytes or -1)
end

local export = require "neap.inner.export"

local export_options = record.declare("db:export", { positions = { "path" },
  doc = [[Writes rows for other programs: all of the file, or a run with its plan and figures. .sql
    makes a database by `sqlite3 NEW < FILE`; .json is an object with a list of rows for each table;
    anything else is a folder with a .csv for each table.]],
  { "path", "string", required = true, doc = "where to" },
  { "run", "integer", unset = "all", doc = "the number of one run" },
  { "tag", "name", unset = "all", doc = "the label of the runs" },
  example = 'db:export { "best.json", run = 7 }' })

--- db:export{ .. } -> rows written; nil, message: see the record.
function Db:export(given)
  local o = export_options:read(given)
  return export.write(self, o.path, o)
end

local run_options = record.declare("neap.runs", {
  doc = [[A Report of the newest runs, newest first; nil, message, code without a database.]],
  { "net", "name", unset = "all", doc = "runs of the nets of that name alone" },
  { "last", "integer", 20, min = 0, doc = "how many runs" },
  { "db", "database", unset = "that of neap.db()", doc = "where they are recorded" },
  example = 'neap.runs { net = "lenet", last = 5 }' })

--- neap.runs{ .. } -> Report: see the record.
function db.runs(given)
  local o = run_options:read(given)
  if not o.db then
    local opened, message, code = db.open()
    if not opened then return nil, message, code end
    o.db = opened
  end
  return ask(o.db, [[select run_id, net, mode, batch, n_step, step_min_ns, step_median_ns,
    planned_bytes, held_bytes, status, datetime(started_at, 'unixepoch') as started from v_run
    where :net is null or net = :net order by uuid desc limit :last]], {
    net = o.net,
    last = o.last,
  }, true)
end

return db
