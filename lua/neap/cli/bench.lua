--- neap bench [NET:BATCH ...] [--infer]: steps per second and bytes, all measured in this run.
-- @module neap.cli.bench
return {
  name = "bench", summary = "Time and memory of the benchmark nets, measured now.",
  define = function(command)
    command:argument "nets":args "*":description "NET:BATCH; all six benchmark nets without."
    command:flag "--infer":description "Inference instead of training."
    command:option "--steps":convert(math.tointeger):default "10":description "Steps timed, after two to warm up."
    command:option "--seconds":convert(tonumber):default "4":description "Stop after so many seconds and at least 5 steps."
    command:option "--engine":choices { "ref", "blas", "dnnl" }
  end,
  run = function(args)
    local cli, bench = require "neap.cli", require "neap.bench"
    local report = bench.run { nets = #args.nets > 0 and args.nets or nil, infer = args.infer, steps = args.steps, seconds = args.seconds,
      engine = args.engine }
    cli.show(report, args)
  end,
}
