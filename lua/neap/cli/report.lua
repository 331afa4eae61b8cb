--- neap report NET|run:ID|plan:ID: one HTML file, to be opened in a browser, that shows a plan or a
-- run; with --against another one beside it.
-- @module neap.cli.report

return {
  name = "report", summary = "A plan or a run as one HTML file that needs no network.",
  plain = true,
  define = function(command)
    command:argument "what"
      :description "A net file or zoo name, planned now; run:7, plan:7 or commit:1a2b, as stored."
    command:option "-o --output":argname "<file>"
      :description "Where it is written, NET.html without; - writes to standard output."
    command:option "--against":argname "<what>"
      :description "Shows another one beside it, and what has changed."
    command:option "--db":argname "<file>":description "The database file, if not the default one."
    command:flag "--train":description "Nets: the training step."
    command:option "--batch":convert(require("neap.cli").whole(1)):argname "<n>"
      :description "Nets: batch size."
    require("neap.memory.options").define(command)
  end,
  run = function(args)
    local cli, sides = require "neap.cli", require "neap.plan.side"
    local words = { args.what, args.against }
    sides.check("report", words, args)
    local opened <close> = sides.source(args)
    local before, after
    if args.against then
      before, after = opened:sides("report", args.what, args.against, true)
    else
      before = opened:side("report", args.what, true)
    end
    local text = require("neap.report.html").page(before, after)
    if args.output == "-" then
      io.stdout:write(text)
      return
    end
    local path = args.output or (before.figures.net or "net"):gsub("[^%w_.-]", "_") .. ".html"
    cli.need(require("neap.core").write_text(path, text))
    print(("%s: %s, %d ops, %d values"):format(path, require("neap").bytes(#text), #before.ops,
      #before.values))
  end,
}
