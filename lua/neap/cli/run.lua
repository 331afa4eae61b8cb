--- neap run SCRIPT [ARGS]: runs a Lua script with neap loaded; `-` reads standard input; -e runs a
-- piece of code.
-- @module neap.cli.run
return {
  name = "run", summary = "Run a Lua script, or a piece of code with -e.", plain = true,
  define = function(command)
    command:option "-e":description "Run this code; what follows it is its own.":argname "<code>"
    command:argument "script":args "?"
      :description("The script, `-` for standard input; what follows it is its own. An integer "
        .. "from 0 to 255 that it returns, or gives to os.exit, is the exit code; else it is 0, "
        .. "and 1 where an error ended the script. In it, help(x) prints what neap.help(x) gives.")
  end,
  run = function(args)
    local cli = require "neap.cli"
    if not args.e and not args.script then
      cli.usage "run needs a script, `-`, or -e CODE\nTry: neap run --help"
    end
    rawset(_G, "neap", require "neap")
    rawset(_G, "help", function(...) print(require "neap".help(...)) end)
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
    if math.type(code) ~= "integer" then return 0 end
    return code >= 0 and code <= 255 and code or 255 -- the system keeps 8 bits: 256 would be 0
  end,
}
