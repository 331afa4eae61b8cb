--- neap sql QUERY: SQL over stored plans and profiles; a name of db/queries runs that query.
-- @module neap.cli.sql

local function list(args)
  local cli, core, report = require "neap.cli", require "neap.core", require "neap.report"
  local rows = {}
  local db = require "neap.db"
  for _, name in ipairs(db.queries()) do
    local text = core.embedded("db/queries/" .. name .. ".sql")
    local params = {}
    for i, param in ipairs(db.parameters(name)) do params[i] = param .. "=" end
    rows[#rows + 1] = { query = name, answers = text:match "^%-%- *[%w_]+: *([^\n]*)",
      takes = table.concat(params, " ") }
  end
  cli.show(report.new { rows = rows, columns = { "query", "answers", "takes" } }, args)
end

return {
  name = "sql", summary = "Ask the database of plans and runs.",
  define = function(command)
    command:argument "query":args "?"
      :description "SQL, or the name of a canned query; without, the list of these."
    command:argument "params":args "*":argname "<name=value>"
      :description "Values for :name in the query."
    command:option "--db":argname "<file>":description "The database file; the default one without."
    command:flag "--csv":description "Print CSV."
  end,
  run = function(args)
    local cli = require "neap.cli"
    if not args.query then return list(args) end
    local params = {}
    for _, pair in ipairs(args.params) do
      local name, value = pair:match "^([%w_]+)=(.*)$"
      if not name then
        cli.usage(("parameter \"%s\" is not of the form name=value"):format(pair))
      end
      -- SQLite tells numbers from texts: a value that looks like a number is one.
      params[name] = math.tointeger(tonumber(value)) or tonumber(value) or value
    end
    local db <close> = cli.database(args)
    -- One word is a canned query's name; SQL has more than one.
    local ask = args.query:match "^[%w_]+$" and db.query or db.sql
    local report = cli.need(ask(db, args.query, params))
    if args.csv then
      io.stdout:write(report:csv())
    else
      cli.show(report, args)
    end
  end,
}
