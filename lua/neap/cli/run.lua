--- neap run SCRIPT [ARGS]: runs a Lua script with neap loaded; `-` reads standard input; -e runs a piece of code.
-- @module neap.cli.run
return {
  name = "run", summary = "Run a Lua script, or a piece of code with -e.",
  define = function(command)
    command:option "-e":description "Run this code.":argname "<code>"
    command:argument "script":args "?":description "The script, `-` for standard input; what follows it is its own."
  end,
  run = function(args)
    rawset(_G, "neap", require "neap")
    local chunk, message
    if args.e then
      chunk, message = load(args.e, "=(command line)")
    elseif args.script == nil or args.script == "-" then
      chunk, message = load(io.read "a", "=stdin")
    else
      rawset(_G, "arg", { [0] = args.script, table.unpack(args.rest) })
      chunk, message = loadfile(args.script)
    end
    if not chunk then
      io.stderr:write("neap: ", message, "\n")
      return 1
    end
    local code = chunk(table.unpack(args.rest))
    return math.type(code) == "integer" and code or 0
  end,
}
