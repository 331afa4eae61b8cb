--- neap diff A B: what has changed from one plan, run or commit to another, culprits first.
-- @module neap.cli.diff

--- "1%" or "1" as 1.
local function percent(text)
  local n = tonumber((text:gsub("%s*%%$", "")))
  if not n or n < 0 then return nil, ("\"%s\" is not a share such as 5%%"):format(text) end
  return n
end

return {
  name = "diff", summary = "What has changed between two plans, runs or commits: culprits first.",
  define = function(command)
    local what = "A net file or zoo name, planned now; run:7, plan:7 or commit:1a2b, as stored; \z
      of commits, the newest runs of one net and batch, or of those of commit:1a2b:NET:BATCH."
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
    local cli, side = require "neap.cli", require "neap.plan.side"
    side.check("diff", { args.before, args.after }, args)
    local opened <close> = side.source(args)
    local report = require("neap.plan.diff").sides(opened:sides("diff", args.before, args.after))
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
