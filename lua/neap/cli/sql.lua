--- neap sql QUERY: SQL over stored plans and profiles; a name of db/queries runs that query.
-- @module neap.cli.sql
return {
  name = "sql", summary = "Ask the database of plans and runs.",
  define = function(command)
    command:argument "query":description "SQL, or the name of a canned query with name=value parameters."
    command:argument "params":args "*":description "name=value, for :name in the query."
    command:option "--db":description "The database file."
  end,
  run = function(args)
    local neap, cli = require "neap", require "neap.cli"
    local params = {}
    for _, pair in ipairs(args.params) do
      local name, value = pair:match "^([%w_]+)=(.*)$"
      if not name then error(("parameter \"%s\" is not of the form name=value"):format(pair), 0) end
      params[name] = math.tointeger(value) or tonumber(value) or value
    end
    local db <close> = assert(neap.db(args.db))
    local report = args.query:match "^[%w_]+$" and db:query(args.query, params) or db:sql(args.query, params)
    cli.show(report, args)
  end,
}
