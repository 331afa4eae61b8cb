--- neap bench [NET:BATCH ...] [--infer]: time and bytes of a step, all measured in this run.
-- @module neap.cli.bench
local function usage(message) require("neap.cli").usage(message) end

--- The published memory figures, and Neap's.
local function show_memory(args)
  if #args.nets > 0 then
    usage "bench --memory prints the figures of nets of its own; neap plan NET plans yours"
  end
  local memory = require "neap.bench.memory"
  local figures = memory.run()
  if args.json then require("neap.cli").show(figures, args) else print(memory.text(figures)) end
end

--- What `what` measures with `o`, shown row by row as the rows come.
-- @param what module with run, head and line
-- @return Report
local function show_rows(what, o, args)
  local core, options = require "neap.core", require "neap.memory.options"

  -- The head waits for the first row: a net that can't be read leaves nothing but its error. Rows
  -- are shown as they come, since each takes seconds.
  local head = not args.json and what.head()
  o.nets = #args.nets > 0 and args.nets or nil
  o.memory, o.words = options.of_command(args), options.words(args)
  o.program = core.program_path and core.program_path()
  if not args.json then
    function o.on_row(row)
      if head then print(head) end
      head = nil
      print(what.line(row))
      io.stdout:flush()
    end
  end
  local rows = what.run(o)
  if args.json then require("neap.cli").show(rows, args) end
  return rows
end

--- The zoo's nets, trained; 1 where one of them fails.
local function show_zoo(args)
  if args.infer or args.seconds then
    usage "bench --zoo trains a number of steps: it takes --steps, not --infer or --seconds"
  end
  local figures = show_rows(require "neap.bench.zoo", { steps = args.steps }, args)
  if not args.json then
    print(("%d nets: %d trained as they should, %d in the least arena, %d to the bits of the \z
        unplanned run"):format(
      figures.n_net, figures.n_good, figures.n_proved, figures.n_same))
  end
  return figures.n_good < figures.n_net and 1 or 0
end

return {
  name = "bench", summary = "Time and memory of the benchmark nets, measured now.",
  define = function(command)
    local whole = require("neap.cli").whole
    command:argument "nets":args "*":argname "<net:batch>"
      :description "Nets of the zoo or net files; all benchmark nets without."
    command:flag "--memory"
      :description "The published memory figures and Neap's, from plans alone; nothing runs."
    command:flag "--zoo"
      :description "Each net of the zoo, or those named, trains two steps of two rows at its \z
        published size, planned and unplanned; --total limits what it may hold."
    command:flag "--infer":description "Inference instead of training."
    command:option "--steps":argname "<n>":convert(whole(1))
      :description "Steps timed, after two to warm up (default: 10; with --zoo, steps in all, 2)."
    command:option "--seconds":argname "<s>":convert(tonumber)
      :description "Stop after so many seconds and 5 steps (default: 4)."
    require("neap.memory.options").define(command)
  end,
  run = function(args)
    if args.memory and args.zoo then usage "bench takes --memory or --zoo, not both" end
    if args.memory then return show_memory(args) end
    if args.zoo then return show_zoo(args) end
    show_rows(require "neap.bench", {
      train = not args.infer, steps = args.steps, seconds = args.seconds,
    }, args)
  end,
}
