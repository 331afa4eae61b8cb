--- neap db info|verify|path|prune|backup: the database file itself.
-- @module neap.cli.db
return {
  name = "db", summary = "The database file: info, verify, path, prune, backup.",
  define = function(command)
    command:argument "action":choices { "info", "verify", "path", "prune", "backup" }
    command:argument "target":args "?":description "backup: the file to write."
    command:option "--db":argname "<file>":description "The database file; the default one without."
    command:option "--days":argname "<n>":convert(require("neap.cli").whole(0)):default "30"
      :description "prune: plans unused for so many days."
  end,
  run = function(args)
    local neap, cli, report = require "neap", require "neap.cli", require "neap.report"
    --- One fact: a sentence for people, an object for programs.
    local function say(text, fields)
      cli.show(args.json and report.new { totals = fields } or report.new { text = text }, args)
    end
    if args.target and args.action ~= "backup" then
      cli.usage(("%s takes no file, got \"%s\""):format(args.action, args.target))
    end
    if args.action == "backup" and not args.target then cli.usage "backup needs a file to write" end
    if args.action == "path" then
      local path = args.db or neap.db_path() or "off"
      say(path, { path = path })
      return 0
    end
    local db <close> = cli.need(neap.db(args.db))
    if args.action == "info" then
      cli.show(db:info(), args)
    elseif args.action == "verify" then
      local report_of = db:verify()
      cli.show(report_of, args)
      return report_of.ok and 0 or 1
    elseif args.action == "prune" then
      local n = cli.need(db:prune { days = args.days })
      say(("%d plan%s removed"):format(n, n == 1 and "" or "s"), { n_plan = n })
    else
      cli.need(db:backup(args.target))
      say("written to " .. args.target, { path = args.target })
    end
  end,
}
