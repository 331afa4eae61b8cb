--- neap bench [NET:BATCH ...] [--infer]: time and bytes of a step, all measured in this run.
-- @module neap.cli.bench
return {
  name = "bench", summary = "Time and memory of the benchmark nets, measured now.",
  define = function(command)
    local whole = require("neap.cli").whole
    command:argument "nets":args "*":argname "<net:batch>"
      :description "Nets of the zoo or net files; all benchmark nets without."
    command:flag "--memory"
      :description "The published memory figures and Neap's, from plans alone; nothing runs."
    command:flag "--infer":description "Inference instead of training."
    command:option "--steps":argname "<n>":convert(whole(1)):default "10"
      :description "Steps timed, after two to warm up."
    command:option "--seconds":argname "<s>":convert(tonumber):default "4"
      :description "Stop after so many seconds and 5 steps."
    require("neap.memory.options").define(command)
  end,
  run = function(args)
    if args.memory then
      if #args.nets > 0 then
        require("neap.cli").usage("bench --memory prints the figures of nets of its own; neap \z
          plan NET plans yours")
      end
      local memory = require "neap.bench.memory"
      local figures = memory.run()
      if args.json then require("neap.cli").show(figures, args) else print(memory.text(figures)) end
      return
    end
    local cli, bench, core = require "neap.cli", require "neap.bench", require "neap.core"
    local options = require "neap.memory.options"

    -- The head waits for the first row: a net that can't be read leaves nothing but its error. Rows
    -- are shown as they come, since each takes seconds.
    local head = not args.json and bench.head()
    local rows = bench.run {
      nets = #args.nets > 0 and args.nets or nil,
      train = not args.infer,
      steps = args.steps,
      seconds = args.seconds,
      memory = options.of_command(args),
      words = options.words(args),
      program = core.program_path and core.program_path(),
      on_row = not args.json
          and function(row)
            if head then print(head) end
            head = nil
            print(bench.line(row))
            io.stdout:flush()
          end
        or nil,
    }
    if args.json then cli.show(rows, args) end
  end,
}
