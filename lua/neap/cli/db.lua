--- neap db info|verify|path|prune|vacuum|backup|merge|export: the database file itself.
-- @module neap.cli.db

--- What each action does with the word behind it; false: it takes none.
local targets = {
  info = false, verify = false, path = false, prune = false, vacuum = false,
  backup = "a file to write", merge = "a database to read",
  export = "a file.sql or file.json to write, or a folder for .csv files",
}

--- The options that are an action's own.
local options = {
  prune = { days = true, runs = true, size = true }, export = { run = true, tag = true },
}

local function plural(n, word) return ("%d %s%s"):format(n, word, n == 1 and "" or "s") end

return {
  name = "db",
  summary = "The database file: info, verify, path, prune, vacuum, backup, merge, export.",
  define = function(command)
    local whole = require("neap.cli").whole(0)
    command:argument "action":choices {
      "info", "verify", "path", "prune", "vacuum", "backup", "merge", "export",
    }
    command:argument "target":args "?":description "backup: the file to write; merge: the \z
      database to read; export: a file that ends in .sql or .json, or a folder for .csv files."
    command:option "--db":argname "<file>":description "The database file; the default one without."
    command:option "--days":argname "<n>":convert(whole):description "prune: plans unused for so \z
      many days go; 30 where no other limit is given."
    command:option "--runs":argname "<n>":convert(whole)
      :description "prune: so many of the newest runs stay, and those that are starred."
    command:option "--size":argname "<MB>":convert(whole)
      :description "prune: until the file has at most so many megabytes; runs go last."
    command:option "--run":argname "<n>":convert(whole):description "export: one run and its plan."
    command:option "--tag":argname "<text>":description "export: the runs with this label."
  end,
  run = function(args)
    local neap, cli, report = require "neap", require "neap.cli", require "neap.report"
    --- One fact: a sentence for people, an object for programs.
    local function say(text, fields)
      cli.show(args.json and report.new { totals = fields } or report.new { text = text }, args)
    end
    local wanted = targets[args.action]
    if args.target and not wanted then
      cli.usage(("db %s takes no file, got \"%s\""):format(args.action, args.target))
    end
    if wanted and not args.target then cli.usage(("db %s needs %s"):format(args.action, wanted)) end
    for _, name in ipairs { "days", "runs", "size", "run", "tag" } do
      if args[name] ~= nil and not (options[args.action] or {})[name] then
        cli.usage(("db %s takes no --%s"):format(args.action, name))
      end
    end
    if args.action == "path" then
      local path = args.db or neap.db_path() or "off"
      say(path, { path = path })
      return 0
    end
    -- what is merged may go into a new file
    local db <close> = args.action == "merge" and cli.need(neap.db(args.db)) or cli.database(args)
    if args.action == "info" then
      cli.show(db:info(), args)
    elseif args.action == "verify" then
      local report_of = db:verify()
      cli.show(report_of, args)
      return report_of.ok and 0 or 1
    elseif args.action == "prune" then
      local n_plan, n_run, bytes = db:prune { days = args.days, runs = args.runs,
        bytes = args.size and args.size * 1000000 }
      cli.need(n_plan, n_run)
      say(("%s and %s removed, %.1f MB left"):format(plural(n_plan, "plan"), plural(n_run, "run"),
        bytes / 1e6), { n_plan = n_plan, n_run = n_run, bytes = bytes })
    elseif args.action == "vacuum" then
      cli.need(db:vacuum())
      local bytes = db:info().bytes
      say(("%.1f MB"):format(bytes / 1e6), { bytes = bytes })
    elseif args.action == "merge" then
      local n_plan, n_run = db:merge(args.target)
      cli.need(n_plan, n_run)
      say(("%s and %s added"):format(plural(n_plan, "plan"), plural(n_run, "run")),
        { n_plan = n_plan, n_run = n_run })
    elseif args.action == "export" then
      local n = cli.need(db:export { args.target, run = args.run, tag = args.tag })
      say(("%s written to %s"):format(plural(n, "row"), args.target), { n_row = n })
    else
      cli.need(db:backup(args.target))
      say("written to " .. args.target, { path = args.target })
    end
  end,
}
