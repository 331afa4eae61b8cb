--- neap run SCRIPT [ARGS]: runs a Lua script with neap loaded; `-` reads standard input; -e runs a
-- piece of code.
-- @module neap.cli.run
return {
  name = "run", summary = "Run a Lua script, or a piece of code with -e.", plain = true,
  define = function(command)
    command:option "-e":description "Run this code; what follows it is its own.":argname "<code>"
    command:argument "script":args "?"
      :description "The script, `-` for standard input; what follows it is its own."
  end,
  run = function(args)
    local cli = require "neap.cli"
    if not args.e and not args.script then
      cli.usage "run needs a script, `-`, or -e CODE\nTry: neap run --help"
    end
    rawset(_G, "neap", require "neap")
    rawset(_G, "arg", { [0] = args.script or "-e", table.unpack(args.rest) })
    local chunk, message
    if args.e then
      chunk, message = load(args.e, "=(command line)")
    elseif args.script == "-" then
      chunk, message = loadfile()
    else
      chunk, message = loadfile(args.script)
    end
    if not chunk then error(message, 0) end
    local code = chunk(table.unpack(args.rest))
    return math.type(code) == "integer" and code or 0
  end,
}
