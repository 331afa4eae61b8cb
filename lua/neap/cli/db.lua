--- neap db info|verify|path|prune|backup: the database file itself.
-- @module neap.cli.db
return {
  name = "db", summary = "The database file: info, verify, path, prune, backup.",
  define = function(command)
    command:argument "action":choices { "info", "verify", "path", "prune", "backup" }
    command:argument "target":args "?":description "backup: the file to write."
    command:option "--db":description "The database file."
    command:option "--days":convert(tonumber):default "30":description "prune: plans unused for so many days."
  end,
  run = function(args)
    local neap, cli = require "neap", require "neap.cli"
    if args.action == "path" then
      print(args.db or neap.db_path() or "off")
      return 0
    end
    local db <close> = assert(neap.db(args.db))
    if args.action == "info" then
      cli.show(db:info(), args)
    elseif args.action == "verify" then
      local report = db:verify()
      cli.show(report, args)
      return report.ok and 0 or 1
    elseif args.action == "prune" then
      print(("%d plans removed"):format(db:prune { days = args.days }))
    else
      if not args.target then error("backup needs a file to write", 0) end
      assert(db:backup(args.target))
    end
  end,
}
