--- neap run SCRIPT [ARGS]: runs a Lua script with neap loaded; `-` reads standard input; -e runs a
-- piece of code. A net of another program is run once, a solver of Caffe's trains.
-- @module neap.cli.run
--- A net run once: inputs are files, NAME=x.npy, or else drawn; prints what comes out.
local function run_net(path, words)
  local neap, cli = require "neap", require "neap.cli"
  local f, given = cli.need(neap.import(path)), {}
  for _, word in ipairs(words) do
    local name, file = word:match "^(.-)=(.+)$"
    if not name then cli.usage(("run: %s is no NAME=FILE.npy for an input"):format(word)) end
    given[name] = cli.need(neap.load(file))
  end
  for _, note in ipairs(f.notes) do print(note) end
  -- What is not given is drawn where numbers are floats. Integers are most often positions, of
  -- which 0 is one that is there.
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

--- A solver of Caffe's: net=PATH, weights=PATH, steps=N behind it.
local function run_solver(path, words)
  local cli, given, steps = require "neap.cli", {}, nil
  for _, word in ipairs(words) do
    local name, value = word:match "^(.-)=(.+)$"
    if name == "steps" and math.tointeger(value) then
      steps = math.tointeger(value)
    elseif name == "net" or name == "weights" then
      given[name] = value
    else
      cli.usage(("run: \"%s\" is none of net=PATH, weights=PATH, steps=N"):format(word))
    end
  end
  local t = cli.need(require("neap.caffe.solver").solve(path, given, steps))
  for _, note in ipairs(t.model.notes) do print(note) end
end

--- What a file of another program is run by; nil for scripts.
local function runner_of(path)
  local ending = path:lower():match "%.(%w+)$"
  if ending == "onnx" or ending == "tflite" then return run_net end
  if ending ~= "prototxt" then return nil end
  local caffe = require "neap.caffe"
  local m = caffe.read_text(path)
  return m and caffe.is_solver(m) and run_solver or run_net
end

return {
  name = "run", summary = "Run a Lua script, or a piece of code with -e.", plain = true,
  define = function(command)
    command:option "-e":description "Run this code; what follows it is its own.":argname "<code>"
    command:argument "script":args "?"
      :description("The script, `-` for standard input; what follows it is its own. A file that "
        .. "ends in .onnx or .tflite, or a net of Caffe's (.prototxt), is run once, on inputs "
        .. "NAME=FILE.npy, or else random numbers, and zeros for integers; a solver of Caffe's "
        .. "trains (net=PATH weights=PATH steps=N). An integer from 0 to 255 that it returns, or "
        .. "gives to os.exit, is the exit code; else it is 0, and 1 where an error ended the "
        .. "script. In it, help(x) prints what neap.help(x) gives.")
  end,
  run = function(args)
    local cli = require "neap.cli"
    if not args.e and not args.script then
      cli.usage "run needs a script, `-`, or -e CODE\nTry: neap run --help"
    end
    local run_file = not args.e and runner_of(args.script)
    if run_file then return run_file(args.script, args.rest) end
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
