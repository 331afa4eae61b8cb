--- neap plan NET: will it fit? The memory plan of a net file, without data and without allocating a
-- byte of it.
-- @module neap.cli.plan
local options = require "neap.inner.options"

--- The forecast with what one asks next: where the peak is, how memory goes over a step, what was
-- assumed.
local function overview(plan, args, memory, assumed)
  local neap = require "neap"

  -- Each line stands where it has something to say.
  local lines = { tostring(plan:forecast()) }
  local ops, peak = plan:ops(), plan.peak_step
  if #ops > 0 then
    local op = ops[peak]
    lines[#lines + 1] = ("peak       %s at step %d of %d, %s \"%s\"%s"):format(
      neap.bytes(op.live_bytes), peak, #ops, op.type, op.name,
      (op.line or "") ~= "" and ", " .. op.line or "")
    lines[#lines + 1] = "over steps " .. tostring(plan:curve())
  end
  -- Where the plan has banks, or is other than it would be without a limit.
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
  local mem_param = memory.mem_param
  if mem_param then
    local is_planned = mem_param[args.train and "optimize_train" or "optimize_test"]
    lines[#lines + 1] = ("mem_param  of the file: %s is %splanned%s"):format(
      args.train and "training" or "testing",
      is_planned and not mem_param.debug_info and "" or "not ",
      #mem_param.exclude_blob > 0 and ", bytes of their own have "
        .. table.concat(mem_param.exclude_blob, ", ") or "")
  end
  if plan.n_widened > 0 then
    lines[#lines + 1] = ("kernels    %d ops compute their %s in f32: there is no kernel for it on \z
      this processor"):format(plan.n_widened, memory.dtype or "bf16 or f16")
  end
  if assumed then lines[#lines + 1] = "assumed    " .. assumed end
  lines[#lines + 1] = ("more       neap plan %s%s%s --peak | --explain [BLOB] | --ops | \z
    --doctor"):format(
    args.net, args.train and " --train" or "", args.batch and " --batch " .. args.batch or "")
  return table.concat(lines, "\n")
end

--- Writes a picture of the plan, as `kind` "dot" or "svg" says, to a file, or for "-" to standard
-- output.
local function draw(plan, kind, path, o)
  if path == "-" then
    io.stdout:write(plan[kind](plan, nil, o))
  else
    require("neap.cli").need(plan[kind](plan, path, o))
  end
end

--- The largest batch with which everything takes at most `bytes`.
local function batch_that_fits(file, memory, train, bytes)
  -- A model is built at each batch that is tried, with its loss and optimizer where it trains.
  local o = { total = bytes }
  for key, value in pairs(memory) do o[key] = value end
  if file.model and train then
    o.train, o.loss, o.optimizer = true, file.loss, require("neap.net.file").optimizer(file)
  end
  return (require("neap").fit_batch(file.net or file.model, o))
end

--- Answers to each change. One that can't be had takes nothing from the others, unless nobody
-- would be there to read them.
-- @return reports; and of changes that can't be had { change = words, err = why }
local function what_if(plan, changes)
  local whatif = require "neap.plan.whatif"
  local reports, refused = {}, {}
  for _, words in ipairs(changes) do
    local ok, answer = xpcall(function() return plan:whatif(whatif.of_words(words)) end,
      require("neap.cli").handler)
    local code = type(answer) == "table" and rawget(answer, "code")
    if ok then
      reports[#reports + 1] = answer
    elseif code == "memory" or code == "interrupted" then
      error(answer, 0)
    else
      refused[#refused + 1] = { change = table.concat(words, " "), err = answer }
    end
  end
  return reports, refused
end

--- What can be asked of a plan, by option, in the order of the answers. Each gives a list of
-- reports, and may give one of what was refused.
local answers = {
  { "what_if", what_if },
  { "doctor", function(plan) return { plan:doctor() } end },
  { "curve", function(plan, of) return { plan:curve(of) } end },
  { "why", function(plan, names) return { plan:why(names[1], names[2]) } end },
  { "ops", function(plan) return { plan:ops() } end },
  { "values", function(plan) return { plan:values() } end },
  { "peak", function(plan) return { plan:peak() } end },
  { "explain", function(plan, names) return { plan:explain(names[1]) } end },
}

--- Answers to all that is asked. @return reports, one after the other, and what was refused
local function answer(plan, args)
  local reports, refused = {}, {}
  for _, entry in ipairs(answers) do
    local asked = args[entry[1]]
    -- `--what-if` may be repeated, so that none is an empty list
    if asked and not (entry[1] == "what_if" and #asked == 0) then
      local given, not_given = entry[2](plan, asked)
      options.append(reports, given)
      options.append(refused, not_given or {})
    end
  end
  return reports, refused
end

--- The plan, and what was assumed for it. A refusal is kept as a run that never began: what did not
-- fit, neap sql refused, is asked of forecasts as of trainings.
local function plan_of(file, o, memory)
  local ok, plan, assumed = pcall(require("neap.net.file").plan, file, o, memory)
  if ok then return plan, assumed end
  local is_refused = type(plan) == "table" and plan.code == "budget" and memory.store ~= false
  local run = is_refused and require("neap.core").new_run {
    net = file.net and file.net.name or file.name,
    mode = o.train and "train" or "infer",
    batch = o.batch or file.batch,
  }
  if run then
    run:stop(plan)
    run:close()
  end
  error(plan, 0)
end

--- Raises for options that say two things of one.
local function check(args, file)
  local cli = require "neap.cli"
  local says_batch = args.net:match ":%d+$"
  if args.batch and says_batch then
    cli.usage(("plan: %s says a batch, and --batch another one"):format(args.net))
  end

  if args.fit and (args.batch or says_batch) then
    cli.usage(("plan: --fit looks for the batch, and %s says one"):format(
      says_batch and args.net or "--batch"))
  end
  if args.fit and args.total then
    cli.usage "plan: --fit says what everything may take, and --total another limit"
  end

  if args.svg == "-" and args.dot == "-" then
    cli.usage "plan: --svg and --dot can't both be written to standard output"
  end
  if (args.color or args.time) and not args.svg then
    cli.usage "plan: --color and --time are for --svg FILE"
  end
  if file.net and args.batch then
    cli.usage(("plan: %s is a net, whose batch is declared in it; --batch is for models"):format(
      args.net))
  end
end

return {
  name = "plan", summary = "Plan a net's memory: will it fit? No data, no allocation.",
  define = function(command)
    command:argument "net":args "?"
      :description "A net file, or a name of the zoo: resnet50, lenet, gpt ... NET:N is a batch \z
        of N, m.onnx:steps=12,batch=4 has sizes of dimensions that the file names."
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
        --what-if several: one that can't be had leaves the others their answers."
    command:option "--curve":choices { "batch", "budget", "policy" }
      :description "Plans of several batches, of budgets down to the least that can be met, or of \z
        all policies."
    command:option "--fit":argname "<bytes>"
      :description "The largest batch that takes so many bytes in all."
    command:flag "--doctor":description "What would make the plan smaller, and what it costs."
    require("neap.memory.options").define(command)
    command:flag "--ops":description "Every op in order, with live bytes."
    command:flag "--values":description "Every value with its place."
    command:flag "--peak":description "What is alive at the peak."
    command:option "--svg":argname "<file>"
      :description "Draw bytes by name over op order; - writes to standard output."
    command:option "--color":choices { "category", "layer" }
      :description "--svg: what the colours of boxes mean; the category without."
    command:flag "--time":description "--svg: over measured time, of stored runs with op times \z
      that are most like the plan."
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
    local file = netfile.load(args.net)
    check(args, file)

    -- The file's own memory options, and the command line's over them.
    local memory = netfile.memory(file, memory_options.of_command(args))
    local batch = args.batch
    if args.fit then
      batch = batch_that_fits(file, memory, args.train, args.fit)
      memory.total = args.fit
    end
    local plan, assumed = plan_of(file, { train = args.train, batch = batch }, memory)

    -- Pictures first, then answers; without either the overview.
    if args.svg then
      draw(plan, "svg", args.svg, { color = args.color, time = args.time or nil })
    end
    if args.dot then draw(plan, "dot", args.dot) end

    local reports, refused = answer(plan, args)
    local is_answered = #reports + #refused > 0
    if args.fit and not args.json then
      print(("largest batch %d: one row more takes more than %s"):format(batch, args.fit))
    end
    if not is_answered and (args.fit or args.json) then reports = { plan:forecast() } end
    -- what has no title of its own is named by the plan's
    local is_named = #reports == 0 or args.fit or rawget(reports[1], "_title")
    if not is_named and not args.json then print(plan) end

    for i, report in ipairs(reports) do
      if i > 1 and not args.json then print() end
      cli.show(report, args)
    end
    if #reports == 0 and #refused == 0 and not (args.svg or args.dot) then
      print(overview(plan, args, memory, assumed))
    end

    -- What could not be answered comes last, where it is seen, each with its change.
    for _, no in ipairs(refused) do cli.tell(no.err, args.json, no.change) end
    return #refused > 0 and 1 or nil
  end,
}
