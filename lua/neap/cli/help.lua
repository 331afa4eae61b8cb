--- neap help [TOPIC]: a verb, the environment, or memory options.
-- @module neap.cli.help

local environment = {
  {
    "NEAP_DB",
    "file of plans and runs; off: none. Default: $XDG_DATA_HOME/neap/neap.db, \z
      ~/.local/share/neap/neap.db",
  },
  { "NEAP_DATA", "folder of data sets, looked at before ./data and ../shared/data/datasets" },
  { "NEAP_NETS", "folder of net files NAME.lua, looked at before the zoo" },
  { "NEAP_NUM_THREADS", "threads of kernels; default: the cores" },
  { "NEAP_ENGINE", "an engine below: only its kernels, and ref where it has none" },
  { "NEAP_PLAN", "off: every value has bytes of its own, nothing is shared" },
  { "NEAP_POISON", "1: freed bytes are filled with NaN before others use them" },
  { "NEAP_DEBUG", "set: errors carry the whole traceback" },
  { "NEAP_PROFILE", "1: every program measures its ops and stores the times" },
  { "NEAP_SEED", "seed of workspaces that were given none" },
  { "NEAP_LUA", "folder whose files replace Neap's own Lua files, for work on them" },
  { "NO_COLOR", "set: plain text only" },
}

return {
  name = "help",
  summary = "Help on a command; `help questions`: what can be asked of plans and runs; `help env`: \z
    the environment variables; `help options`: memory options.",
  plain = true,
  define = function(command)
    command:argument "topic":args "?":description "A command, questions, env, or options."
  end,
  run = function(args)
    local cli = require "neap.cli"
    if args.topic == "env" then
      for _, row in ipairs(environment) do
        local value = os.getenv(row[1])
        print(("%-17s %s%s"):format(row[1], row[2], value and "  [now " .. value .. "]" or ""))
      end
      print "\nEngines:"
      for _, row in ipairs(require("neap").engines()) do
        print(("%-17s %s%s"):format(
          row.name, row.doc,
          row.missing and "  [missing: " .. row.missing .. "]"
            or row.version and "  [" .. row.version .. "]"
            or ""))
      end
      return 0
    end
    if args.topic == "questions" then
      print(require("neap.help.questions").text())
      return 0
    end
    if args.topic == "options" then
      print(require("neap.memory.options").text())
      return 0
    end
    local parser, commands = cli.parser()
    if args.topic and not commands[args.topic] then
      local names = {}
      for name in pairs(commands) do names[#names + 1] = name end
      local near = require("neap.inner.options").nearest(args.topic, names)
      cli.usage(("there is no command \"%s\"%s"):format(
        args.topic,
        near and (", did you mean \"" .. near .. "\"?")
          or "; neap help lists them, neap ops NAME shows an op"))
    end
    print((commands[args.topic] or parser):get_help())
  end,
}
