--- neap run SCRIPT [ARGS]: runs a Lua script with neap loaded; `-` reads standard input; -e runs a
-- piece of code.
-- @module neap.cli.run
--- An ONNX file run once: inputs are files, NAME=x.npy, or else drawn; prints what comes out.
local function run_onnx(path, words)
  local neap, cli = require "neap", require "neap.cli"
  local f, given = cli.need(neap.import(path)), {}
  for _, word in ipairs(words) do
    local name, file = word:match "^(.-)=(.+)$"
    if not name then cli.usage(("run: %s is no NAME=FILE.npy for an input"):format(word)) end
    given[name] = cli.need(neap.load(file))
  end
  for _, note in ipairs(f.notes) do print(note) end
  for _, input in ipairs(f.net:inputs()) do
    if not given[input.name] then
      local is_float = input.dtype:match "f%d+$"
      local x = neap.zeros { dtype = input.dtype, table.unpack(input.shape) }
      given[input.name] = is_float and neap.rand(table.unpack(input.shape)):to(input.dtype) or x
      print(("input %s (%s): %s"):format(input.name, table.concat(input.shape, ","),
        is_float and "random numbers from 0 to 1" or "zeros"))
    end
  end
  local out = f.workspace:run(f.net, given)
  for _, name in ipairs(f.net:outputs()) do print(out[name]) end
end

return {
  name = "run", summary = "Run a Lua script, or a piece of code with -e.", plain = true,
  define = function(command)
    command:option "-e":description "Run this code; what follows it is its own.":argname "<code>"
    command:argument "script":args "?"
      :description("The script, `-` for standard input; what follows it is its own. A file that "
        .. "ends in .onnx is run once, on inputs NAME=FILE.npy or random ones. An integer "
        .. "from 0 to 255 that it returns, or gives to os.exit, is the exit code; else it is 0, "
        .. "and 1 where an error ended the script. In it, help(x) prints what neap.help(x) gives.")
  end,
  run = function(args)
    local cli = require "neap.cli"
    if not args.e and not args.script then
      cli.usage "run needs a script, `-`, or -e CODE\nTry: neap run --help"
    end
    if not args.e and args.script:lower():match "%.onnx$" then
      return run_onnx(args.script, args.rest)
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
