--- neap diff A B: what has changed from one plan, run or commit to another, culprits first.
-- @module neap.cli.diff
local options = require "neap.inner.options"

local stored = { run = true, plan = true, commit = true }

--- "run", "7" of "run:7"; nil for a net.
local function stored_item(word)
  local kind, rest = word:match "^(%l+):(.+)$"
  if stored[kind] then return kind, rest end
end

--- Raises for options that nothing would read: they are of nets that are planned now.
local function check(args)
  local cli = require "neap.cli"
  local given = options.keys(require("neap.memory.options").of_command(args))
  options.append(given, { args.train and "train" or args.batch and "batch" or nil })
  for _, word in ipairs { args.before, args.after } do
    if args.batch and not stored_item(word) and word:match ":%d+$" then
      cli.usage(("diff: %s says a batch, and --batch another one"):format(word))
    end
  end
  if not (stored_item(args.before) and stored_item(args.after)) then return end
  if given[1] then
    cli.usage(("diff: \"%s\" is for nets; %s and %s are stored as they were"):format(
      given[1], args.before, args.after))
  end
end

--- A side from a word of the command line.
local function side(word, args, open)
  local cli, diff = require "neap.cli", require "neap.plan.diff"
  local kind, rest = stored_item(word)
  local id = rest and math.tointeger(tonumber(rest))
  if kind == "run" and id then return diff.of_run_id(open(), id) end
  if kind == "plan" and id then return diff.of_plan_id(open(), id) end
  if kind == "commit" and rest:match "^%x+$" then return diff.of_commit(open(), rest) end
  if kind then
    cli.usage(("diff: %s: takes a number, and commit: the beginning of a commit's name; got \z
      \"%s\""):format(kind, word))
  end
  local netfile = require "neap.net.file"
  local memory = require("neap.memory.options").of_command(args)
  local file = netfile.load(word)
  local plan = netfile.plan(file, { train = args.train, batch = args.batch },
    netfile.memory(file, memory))
  return diff.of_plan(plan)
end

--- "1%" or "1" as 1.
local function percent(text)
  local n = tonumber((text:gsub("%s*%%$", "")))
  if not n or n < 0 then return nil, ("\"%s\" is not a share such as 5%%"):format(text) end
  return n
end

return {
  name = "diff", summary = "What has changed between two plans, runs or commits: culprits first.",
  define = function(command)
    local what = "A net file or zoo name, planned now; run:7, plan:7 or commit:1a2b, as stored."
    command:argument "before":description(what)
    command:argument "after":description "The same."
    command:option "--max-memory":argname "<percent>":convert(percent)
      :description "Exit with 1 where bytes have grown by more."
    command:option "--max-time":argname "<percent>":convert(percent)
      :description "Exit with 1 where time has grown by more."
    command:option "--db":argname "<file>":description "The database file, if not the default one."
    command:flag "--train":description "Nets: the training step."
    command:option "--batch":convert(require("neap.cli").whole(1)):argname "<n>"
      :description "Nets: batch size."
    require("neap.memory.options").define(command)
  end,
  run = function(args)
    local cli = require "neap.cli"
    check(args)
    local db
    local function open()
      db = db or cli.database(args)
      return db
    end
    local _ <close> = setmetatable({}, { __close = function()
      if db then db:close() end
    end })
    local report = require("neap.plan.diff").sides(side(args.before, args, open),
      side(args.after, args, open))
    if args.max_time and not report.time_percent then
      cli.usage "diff: --max-time needs two runs: run:ID or commit:NAME"
    end
    cli.show(report, args)
    local function is_over(what, found, most)
      if not most or found <= most then return false end
      io.stderr:write(("neap: %s has grown by %.2f %%, at most %g %% is allowed\n"):format(
        what, found, most))
      return true
    end
    local memory = is_over("memory", report.memory_percent, args.max_memory)
    local time = is_over("time", report.time_percent, args.max_time)
    return (memory or time) and 1 or 0
  end,
}
