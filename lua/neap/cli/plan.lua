--- neap plan NET: will it fit? The memory plan of a net file, without data and without allocating a
-- byte of it.
-- @module neap.cli.plan

--- The forecast with what one asks next: where the peak is, how memory goes over a step, what was
-- assumed.
local function overview(plan, args, assumed)
  local neap = require "neap"
  local lines = { tostring(plan:forecast()) }
  local ops, peak = plan:ops(), plan.peak_step
  if #ops > 0 then
    local op = ops[peak]
    lines[#lines + 1] = ("peak       %s at step %d of %d, %s \"%s\"%s"):format(
      neap.bytes(op.live_bytes), peak, #ops, op.type, op.name,
      (op.line or "") ~= "" and ", " .. op.line or "")
    lines[#lines + 1] = "over steps " .. tostring(plan:curve())
  end
  for _, row in ipairs(plan:banks()) do
    lines[#lines + 1] = ("bank       %s: %s%s, least %s; %d ops, %d values"):format(
      row.bank, neap.bytes(row.arena_bytes),
      row.capacity_bytes and " of " .. neap.bytes(row.capacity_bytes) or "",
      neap.bytes(row.lower_bound_bytes), row.n_op, row.n_value)
  end
  if plan.n_recomputed > 0 then
    lines[#lines + 1] = ("recomputed %d of %d ops run again in the backward pass, about %.0f %% \z
      more work"):format(
      plan.n_recomputed, plan.n_op - plan.n_recomputed, 100 * plan.recomputed_work)
  end
  if plan.n_changed > 0 then
    lines[#lines + 1] = ("kernels    %d ops have others than %s, so other bits"):format(
      plan.n_changed, plan.executor == "dag" and "executor simple" or "without the budget")
  end
  if assumed then lines[#lines + 1] = "assumed    " .. assumed end
  lines[#lines + 1] = ("more       neap plan %s%s%s --peak | --explain [BLOB] | --ops | \z
    --doctor"):format(
    args.net, args.train and " --train" or "", args.batch and " --batch " .. args.batch or "")
  return table.concat(lines, "\n")
end

--- Writes a picture of the plan, as `kind` "dot" or "svg" says, to a file, or for "-" to standard
-- output.
local function draw(plan, kind, path)
  if path == "-" then
    io.stdout:write(plan[kind](plan))
  else
    require("neap.cli").need(plan[kind](plan, path))
  end
end

--- Shows the largest batch that fits, and its forecast.
local function fit(file, memory, args)
  local neap, cli = require "neap", require "neap.cli"
  memory.total = args.fit
  local subject, o = file.net or file.model, memory
  if file.model then
    o.train, o.loss, o.optimizer = args.train or nil, args.train and file.loss or nil, nil
    if args.train then o.optimizer = require("neap.net.file").optimizer(file) end
  end
  local n, plan = neap.fit_batch(subject, o)
  if args.json then
    local forecast = plan:forecast()
    return cli.show(forecast, args)
  end
  print(("largest batch %d: one row more takes more than %s"):format(n, args.fit))
  print(plan:forecast())
end

return {
  name = "plan", summary = "Plan a net's memory: will it fit? No data, no allocation.",
  define = function(command)
    command:argument "net":args "?"
      :description "A net file, or a name of the zoo: resnet50, lenet, gpt ... NET:N is a batch \z
        of N."
    command:flag "--train":description "The training step: forward, loss, backward, update."
    command:option "--batch":convert(require("neap.cli").whole(1)):argname "<n>"
      :description "Batch size."
    command:option "--explain":args "?":argname "<blob>"
      :description "Where a blob lies and why; without a name, the whole plan."
    command:option "--why":args(2):argname { "<a>", "<b>" }
      :description "What makes two blobs share bytes, or keeps them apart."
    command:option "--what-if":args "+":count "*":argname "<name=value>"
      :description "The plan made again with a change: batch=128, without=block2, dtype=bf16, or \z
        a memory option, budget=2MiB. After NET; several words are one change, several \z
        --what-if several."
    command:option "--curve":choices { "batch", "budget" }
      :description "Plans of several batches, or of budgets down to the least that can be met."
    command:option "--fit":argname "<bytes>"
      :description "The largest batch that takes so many bytes in all."
    command:flag "--doctor":description "What would make the plan smaller, and what it costs."
    require("neap.memory.options").define(command)
    command:flag "--ops":description "Every op in order, with live bytes."
    command:flag "--values":description "Every value with its place."
    command:flag "--peak":description "What is alive at the peak."
    command:option "--svg":argname "<file>"
      :description "Draw bytes by name over op order; - writes to standard output."
    command:option "--dot":argname "<file>"
      :description "Draw the net as it runs, for Graphviz, a colour for each place in the arena."
  end,
  run = function(args)
    local cli, netfile = require "neap.cli", require "neap.net.file"
    local memory_options = require "neap.memory.options"
    -- `--explain lenet` with nothing after it: the name was the net's.
    if not args.net and args.explain and args.explain[1] then
      args.net, args.explain = table.remove(args.explain), {}
    end
    if not args.net then
      cli.usage "plan needs a net: a file, or a name of the zoo\nTry: neap plan --help"
    end
    if args.batch and args.net:match ":%d+$" then
      cli.usage(("plan: %s says a batch, and --batch another one"):format(args.net))
    end
    local file = netfile.load(args.net)
    if file.net and args.batch then
      cli.usage(("plan: %s is a net, whose batch is declared in it; --batch is for models"):format(
        args.net))
    end
    local memory = netfile.memory(file, memory_options.of_command(args))
    if args.fit then return fit(file, memory, args) end
    local plan, assumed = netfile.plan(file, { train = args.train, batch = args.batch }, memory)
    if #args.what_if > 0 then
      for _, words in ipairs(args.what_if) do
        cli.show(plan:whatif(require("neap.plan.whatif").of_words(words)), args)
      end
    elseif args.doctor then
      cli.show(plan:doctor(), args)
    elseif args.curve then
      cli.show(plan:curve(args.curve), args)
    elseif args.why then
      cli.show(plan:why(args.why[1], args.why[2]), args)
    elseif args.svg or args.dot then
      if args.svg then draw(plan, "svg", args.svg) end
      if args.dot then draw(plan, "dot", args.dot) end
    elseif args.ops then
      cli.show(plan:ops(), args)
    elseif args.values then
      cli.show(plan:values(), args)
    elseif args.peak then
      cli.show(plan:peak(), args)
    elseif args.explain then
      cli.show(plan:explain(args.explain[1]), args)
    elseif args.json then
      cli.show(plan:forecast(), args)
    else
      print(overview(plan, args, assumed))
    end
  end,
}
