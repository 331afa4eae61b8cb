--- The command line: `neap VERB ...`. Each verb is one module neap.cli.NAME, found by its name:
--
--   { name =, summary =, define = function(command) ... end,   -- adds argparse options
--     run = function(args) ... return exit_code end }          -- nil is 0
--
-- Exit codes: 0 done; 1 it failed, with a message on standard error; 2 wrong use; 130 interrupted.
-- @module neap.cli
local argparse = require "argparse"

local cli = {}

--- The verbs, by name.
function cli.verbs()
  local verbs = {}
  for name in pairs(package.preload) do
    local verb = name:match "^neap%.cli%.([%w_]+)$"
    if verb then verbs[verb] = require(name) end
  end
  return verbs
end

local function sorted_names(verbs)
  local names = {}
  for name in pairs(verbs) do names[#names + 1] = name end
  table.sort(names)
  return names
end

local function build(verbs)
  local parser = argparse("neap", "Neap: nets in Lua whose memory is planned before they run. Without arguments: the REPL.")
    :add_help_command():command_target "verb"
  parser:flag "--version":description "Print the version.":action(function()
    print("neap " .. require("neap").version)
    os.exit(0)
  end)
  for _, name in ipairs(sorted_names(verbs)) do
    local command = parser:command(name, verbs[name].summary)
    verbs[name].define(command)
    command:flag "--json":description "Print JSON instead of tables."
  end
  return parser
end

--- Prints a report as the user asked for it.
function cli.show(report, args)
  if args.json then
    io.stdout:write(report:json(), "\n")
  else
    print(report)
  end
end

local function fail(err)
  local code = type(err) == "table" and err.code
  io.stderr:write("neap: ", tostring(err), "\n")
  return code == "interrupted" and 130 or 1
end

--- Keeps an error object as it is, so that its fields reach the caller; adds a traceback to strings when debugging.
local function handler(err)
  if type(err) == "string" and os.getenv "NEAP_DEBUG" then return debug.traceback(err, 2) end
  return err
end

--- Runs one command line.
-- @param args string[]
-- @return integer exit code
function cli.main(args)
  local verbs = cli.verbs()
  local first = args[1]
  if first == nil then
    args = { "repl" }
  elseif first == "-e" then
    args = { "run", "-e", table.unpack(args, 2) }
  elseif first:match "%.lua$" and verbs[first] == nil then
    args = { "run", table.unpack(args) }
  end
  -- What follows a script belongs to the script, options too: argparse must not see it.
  local rest = {}
  if args[1] == "run" then
    local i = 2
    while args[i] and args[i]:sub(1, 1) == "-" and args[i] ~= "-" do i = i + (args[i] == "-e" and 2 or 1) end
    for k = i + 1, #args do
      rest[#rest + 1] = args[k]
      args[k] = nil
    end
  end
  local parser = build(verbs)
  local ok, parsed = parser:pparse(args)
  if not ok then
    io.stderr:write("neap: ", tostring(parsed), "\nTry: neap help\n")
    return 2
  end
  parsed.rest = rest
  local good, result = xpcall(verbs[parsed.verb].run, handler, parsed)
  if not good then return fail(result) end
  return result or 0
end

return cli
