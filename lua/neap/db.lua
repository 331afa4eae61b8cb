--- The database of plans and runs: reports over the C class neap.db.
-- @module neap.db
local core = require "neap.core"
local report = require "neap.report"
local Db = core.Db

--- Rows of a question. @param q string SQL that only reads @param params table|nil :name or ? values
function Db:sql(q, params)
  local rows, columns = self:query_rows(q, params)
  return report.new { rows = rows, columns = columns }
end

--- The same as an iterator over rows.
function Db:rows(q, params)
  local rows, i = self:query_rows(q, params), 0
  return function()
    i = i + 1
    return rows[i]
  end
end

--- Names of the canned queries of db/queries.
function Db:queries()
  local names = {}
  for _, path in ipairs(core.embedded_paths()) do names[#names + 1] = path:match "^db/queries/(.*)%.sql$" end
  return names
end

--- Runs a canned query by name.
function Db:query(name, params)
  local sql = core.embedded("db/queries/" .. name .. ".sql")
  if not sql then
    error(core.error { code = "name", message = ("no canned query \"%s\""):format(name), hint = "there are: " .. table.concat(self:queries(), ", ") }, 0)
  end
  return self:sql(sql, params)
end

--- What the file holds: rows by table, and its path.
function Db:info()
  local rows = {}
  for _, t in ipairs(self:query_rows "select name from sqlite_schema where type = 'table' and name not like 'sqlite%' order by name") do
    rows[#rows + 1] = { table = t.name, rows = self:query_rows(("select count(*) as n from %s"):format(t.name))[1].n }
  end
  local path, readonly = self:path()
  local version = self:query_rows "pragma user_version"[1]
  return report.new { rows = rows, columns = { "table", "rows" }, path = path, readonly = readonly, schema = version and version.user_version,
    title = path .. (readonly and " (read-only)" or "") }
end

--- Integrity and foreign keys. @return Report, with `ok`
function Db:verify()
  local ok, text = self:check()
  local rows = {}
  for line in text:gmatch "[^\n]+" do rows[#rows + 1] = { finding = line } end
  return report.new { rows = rows, columns = { "finding" }, ok = ok }
end

--- Removes plans unused for `days`. @return integer plans removed
function Db:prune(o) return self:prune_days(o and o.days or 30) end

--- neap.runs { net =, last = }: stored runs, the newest first.
function core.runs(o)
  o = o or {}
  local db <close> = assert(core.db())
  return db:sql([[select run_id, net, mode, batch, n_step, step_median_ns, held_bytes, arena_bytes, status, datetime(started_at,'unixepoch') as started
    from v_run where (:net is null or net = :net) order by run_id desc limit :last]], { net = o.net, last = o.last or 20 })
end

return Db
