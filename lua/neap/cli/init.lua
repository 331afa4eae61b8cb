--- The command line: `neap VERB ...`. Each verb is one module neap.cli.NAME, found by its name:
--
--   { name =, summary =, define = function(command) ... end,   -- adds argparse options
--     run = function(args) ... return exit_code end,           -- nil is 0
--     plain = true }                                           -- it has no --json
--
-- Exit codes: 0 done; 1 it failed, with a message on standard error; 2 wrong use; 130 interrupted
-- by Ctrl-C, 143 by SIGTERM.
-- @module neap.cli
local argparse = require "argparse"
local core = require "neap.core"
local options = require "neap.inner.options"

local cli = {}

--- Raised to end a command early with a code: after --help, and for wrong use that only the verb
-- can see.
local Stop = {}
Stop.__index = Stop

--- The verbs, by name.
function cli.verbs()
  -- Modules that were embedded as neap.cli.NAME are the verbs: a new one needs no list.
  local verbs = {}
  for name in pairs(package.preload) do
    local verb = name:match "^neap%.cli%.([%w_]+)$"
    if verb then verbs[verb] = require(name) end
  end
  return verbs
end

--- Ends the command: wrong use, exit code 2.
function cli.usage(message) error(setmetatable({ message = message, code = 2 }, Stop), 0) end

--- Code of a command that an option (--help, --version) has ended; argparse turns every error into
-- text, so it is kept here.
local ended

local function finish()
  ended = 0
  error("ended", 0)
end

--- assert without a position in Neap's own files: what a file or a query failed with is said as it
-- is.
function cli.need(value, message)
  if not value then error(message, 0) end
  return value
end

--- argparse ends the process after --help; the REPL must live on, so that its help is ours.
local function add_help(parser)
  parser:add_help(false)
  parser:flag "-h --help":description "Show this and stop.":action(function()
    print(parser:get_help())
    finish()
  end)
end

--- Turns "64" into 64; anything else is wrong use. For argparse's convert.
-- @param least integer smallest value
function cli.whole(least)
  return function(text)
    local n = math.tointeger(tonumber(text))
    if n == nil or n < least then
      return nil, ("\"%s\" is not a whole number of at least %d"):format(text, least)
    end
    return n
  end
end

--- The database that --db names, else the default one. A file that is asked or tidied must be
-- there: a mistyped name would be a new, empty database.
function cli.database(args)
  local path = args.db
  if path then
    local file = io.open(path, "rb")
    if not file then error(("there is no database %s"):format(path), 0) end
    file:close()
  end
  return cli.need(require("neap").db(path))
end

--- Lets errors of a command's conversions begin with the option: 'option --batch: "0" is ..'.
local function name_options(command)
  for _, option in ipairs(command._options) do
    local convert = option._convert
    if type(convert) == "function" then
      option._convert = function(text)
        local value, message = convert(text)
        if value ~= nil then return value end
        return nil, ("option %s: %s"):format(option._aliases[#option._aliases], message
          or ("\"%s\" is not a number"):format(text))
      end
    end
  end
end

--- The parser of the whole command line, and of each verb by name.
function cli.parser()
  local verbs = cli.verbs()
  local parser = argparse("neap",
    "Neap: nets in Lua whose memory is planned before they run. Without arguments: the REPL.",
    "neap FILE.lua and neap -e CODE are short for neap run; neap help env lists the environment \z
      variables."):command_target "verb"
  parser:usage_max_width(100):help_max_width(100)
  add_help(parser)
  parser:flag "--version":description "Print the version and stop.":action(function()
    print("neap " .. core.version)
    finish()
  end)

  local commands = {}
  for _, name in ipairs(options.keys(verbs)) do
    local command = parser:command(name, verbs[name].summary)
    add_help(command)
    verbs[name].define(command)
    name_options(command)
    if not verbs[name].plain then
      command:flag "--json":description "Print JSON instead of tables."
    end
    commands[name] = command
  end
  return parser, commands
end

--- Prints a report as the user asked for it. A terminal gets what fits it, a pipe everything.
function cli.show(report, args)
  if args.json then
    io.stdout:write(report:json(), "\n")
  else
    local room = core.is_terminal() and require("neap.report").terminal_width()
      or math.tointeger(tonumber(os.getenv "COLUMNS" or ""))
      or math.huge
    print(require("neap.report").text(report, room))
  end
end

--- A traceback of user code only: frames of C and of Neap's own files say nothing to the reader.
-- Empty when what is left is the one line that the message names anyway.
-- @param message string
-- @param level integer of the first frame, as debug.traceback takes it
function cli.short_traceback(message, level)
  local frames = {}

  -- Kept are frames of files that users wrote.
  for line in debug.traceback("", level + 1):gmatch "\n\t([^\n]+)" do
    if not (line:match "^%[C%]"
          or line:match "^neap:"
          or line:match "^%(%.%.%.tail calls"
          or line:match "^%.%.%.\t") then
      frames[#frames + 1] = (line:gsub("in local 'chunk'$", "in main chunk"))
    end
  end
  if #frames < 2 then return message end
  return message .. "\n  " .. table.concat(frames, "\n  ", 1, math.min(#frames, 10))
    .. (#frames > 10 and "\n  ..." or "")
end

--- For xpcall: error objects stay what they are; texts get the short traceback, with NEAP_DEBUG the
-- whole one.
function cli.handler(err)
  if type(err) ~= "string" then return err end
  if os.getenv "NEAP_DEBUG" then return debug.traceback(err, 2) end
  return cli.short_traceback(err, 2)
end

--- An error as JSON on standard output, for who asked for JSON: its fields, of a refused limit the
-- batch that would fit, too; of one that is a text code "error", of wrong use "usage", and message;
-- and the change that it is of, where there were several.
local function show_error(err, text, change)
  local fields = { code = "error", message = text, change = change }
  if getmetatable(err) == Stop then
    fields.code = "usage"
  elseif type(err) == "table" then
    fields.batch = err.batch
    for key, value in pairs(err) do fields[key] = value end
  end
  cli.show(require("neap.report").new { totals = { error = fields } }, { json = true })
end

--- The exit code of a command that was interrupted, by whichever signal.
function cli.interrupt_code() return core.interrupt_code and core.interrupt_code() or 130 end

--- Says an error on standard error, and with `json` as JSON, too.
-- @param change string|nil which of several changes it is of
function cli.tell(err, json, change)
  -- What has been printed comes before the message.
  io.stdout:flush()

  -- What would fit is looked for now, where it is told.
  pcall(require("neap.memory.refusal").say_fits, err)
  local is_silent = type(err) == "table" and not (getmetatable(err) or {}).__tostring
  local text = is_silent and "(the error is a table)" or tostring(err)
  io.stderr:write("neap: ", change and change .. ": " or "", text, "\n")
  if json then show_error(err, text, change) end
end

--- Says what went wrong. @return exit code
local function fail(err, json)
  if getmetatable(err) == Stop then
    if err.message then
      io.stderr:write("neap: ", err.message, "\n")
      if json then show_error(err, err.message) end
    end
    return err.code
  end

  cli.tell(err, json)
  core.end_runs(err) -- those that are going on: nobody goes on with them
  return type(err) == "table" and rawget(err, "code") == "interrupted" and cli.interrupt_code() or 1
end

--- What stands for `neap run`: -e, a Lua file, or `-` as the first word.
local function expand(args)
  local first = args[1]
  if first == nil then return { "repl" } end

  if first == "-e" or first == "-" or first:match "%.lua$" then
    return { "run", table.unpack(args) }
  end
  return table.move(args, 1, #args, 1, {})
end

--- Takes what follows the script, or -e CODE, off a `run` command line: it belongs to the script,
-- options too.
-- @return string[]
local function take_rest(args)
  local rest = {}
  if args[1] ~= "run" then return rest end

  -- Help of `run` itself stays; then comes the script, or -e and its code, and what follows is the
  -- script's.
  local i = 2
  while args[i] == "-h" or args[i] == "--help" do i = i + 1 end
  if args[i] == "-e" then i = i + 1 end
  for k = i + 1, #args do
    rest[#rest + 1] = args[k]
    args[k] = nil
  end
  return rest
end

local exit = os.exit

--- os.exit leaves without closing anything: what is measured is written before.
local function exit_in_order(...)
  core.end_runs()
  exit(...)
end

local function argparse_parse(args) return cli.parser():pparse(args) end

--- Runs one command line.
-- @param args string[]
-- @return integer exit code
function cli.main(args)
  args = expand(args)
  rawset(os, "exit", exit_in_order)
  local rest = take_rest(args)
  -- also of words that can't be parsed
  local json = false
  for _, word in ipairs(args) do json = json or word == "--json" end

  local good, result = xpcall(function()
    -- --help has printed and ended; argparse itself raises nothing but texts.
    ended = nil
    local called, ok, parsed = pcall(argparse_parse, args)
    if ended then return ended end
    if not called then error(ok, 0) end
    if not ok then
      local verb = cli.verbs()[args[1] or ""] and args[1] .. " " or ""
      cli.usage(("%s\nTry: neap %s--help"):format(tostring(parsed), verb))
    end
    parsed.rest = rest
    return cli.verbs()[parsed.verb].run(parsed)
  end, cli.handler)

  if not good then return fail(result, json) end
  return result or 0
end

return cli
