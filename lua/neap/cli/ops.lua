--- neap ops [NAME]: the ops there are, or all about one.
-- @module neap.cli.ops
return {
  name = "ops", summary = "List the ops, or show one.",
  define = function(command)
    command:argument "op":args "?":description "An op's name."
    command:flag "--all":description "Also those made by the gradient."
  end,
  run = function(args)
    local neap, cli = require "neap", require "neap.cli"
    cli.show(args.op and neap.help(args.op) or neap.ops(args.all), args)
  end,
}
