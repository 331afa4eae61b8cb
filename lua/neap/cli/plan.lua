--- neap plan NET: will it fit? The memory plan of a net file, without data and without allocating a byte of it.
-- @module neap.cli.plan
local netfile = require "neap.netfile"

return {
  name = "plan", summary = "Plan a net's memory: will it fit? No data, no allocation.",
  define = function(command)
    command:argument "net":description "A net file, or a name of the zoo (resnet50, lenet, gpt ...)."
    command:flag "--train":description "The training step: forward, loss, backward, update."
    command:option "--batch":convert(math.tointeger):description "Batch size."
    command:option "--explain":args "?":argname "<blob>":description "Where a blob lies and why; without a name, the whole plan."
    command:option "--keep":count "*":argname "<blob>":description "Keep a blob fetchable."
    command:option "--policy":choices { "none", "name", "offset" }:description "Where addresses come from."
    command:option "--executor":choices { "simple", "dag" }:description "Schedule."
    command:option "--budget":description "Most bytes of the arena: 64MiB, 60%."
    command:flag "--ops":description "Every op in order, with live bytes."
    command:flag "--values":description "Every value with its place."
    command:flag "--peak":description "What is alive at the peak."
  end,
  run = function(args)
    local cli = require "neap.cli"
    local file = netfile.load(args.net)
    local net = netfile.build(file, { train = args.train, batch = args.batch })
    local plan = net:plan { keep = args.keep, policy = args.policy, executor = args.executor, budget = args.budget }
    local explain = args.explain and (args.explain[1] or args.explain)
    if args.ops then
      cli.show(plan:ops(), args)
    elseif args.values then
      cli.show(plan:values(), args)
    elseif args.peak then
      cli.show(plan:peak(), args)
    elseif args.explain then
      cli.show(plan:explain(type(explain) == "string" and explain or nil), args)
    else
      cli.show(plan:forecast(), args)
    end
  end,
}
