--- Modules as nets: m:net and the reports made of it, eager calls, and m:backward.
--
-- INVARIANT: a coroutine builds one net at a time, `context.building()`; what a module's forward
-- raises leaves it as it was.
-- @module neap.nn.build
local again = require "neap.plan.again"
local batches = require "neap.data.batch"
local core = require "neap.core"
local count_memory = require "neap.memory.count"
local memory_options = require "neap.memory.options"
local module = require "neap.nn.module"
local objective = require "neap.nn.objective"
local is_blob, records = require("neap.op").is_blob, require("neap.op").records
local naming = require "neap.net.naming"
local net_module = require "neap.net"
local option_record = require "neap.inner.record"
local options = require "neap.inner.options"
local range = require "neap.memory.range"
local refusal = require "neap.memory.refusal"
local reduction = require "neap.nn.reduction"
local report = require "neap.report"
local script = require "neap.inner.script"
local tree = require "neap.nn.tree"
local workspace = require "neap.workspace"
local fail = core.fail

local Module, context = module.Module, module.context
local build = {}

--- Calls f with a fresh net as the one being built, of modules of the tree of `root`.
-- @param o table {train =, traced =, without = set of paths with dots}
-- @return the build's record: {net, blobs, train, watched, trace, only = set of the storage records
--   that are trained, nil for all}
local function building(name, root, o, f)
  local net = net_module.new(name)
  local record = {
    net = net,
    root = root,
    tree = tree.of(root),
    running = {},
    blobs = {},
    train = o.train,
    without = o.without,
    watched = {},
    claimed = {},
    masked = {},
    trace = o.traced and {} or nil,
  }
  local leave = context.enter(record)
  local _ <close> = setmetatable({}, { __close = leave })
  tree.attempt(root, naming.inside, net, f, record)
  rawset(root, "_met", true)
  return record
end

local function with_batch(shape, batch)
  local out = { batch }
  for i, d in ipairs(shape) do out[i + 1] = d end
  return out
end

--- The shapes of one example that a module was given, or else those of the last batch it has met;
-- nil where neither is known.
function build.known_input(m) return m._fields.input_shape or rawget(m, "_seen") end

--- The shape of one example: given here, or known.
local function example_shape(self, o)
  local shape = o.input or build.known_input(self)
  if shape == nil then
    fail(("%s: the shape of one example is unknown; give input = {..} to the model (nn.Sequential \z
          { input = {..}, .. }) "
        .. "or to this call, { input = {..} }"):format(self._class))
  end
  return shape
end

--- Names of metrics in order: those of the list, then those given as functions by name.
function build.metric_names(metrics)
  local names, named = {}, {}
  for key, value in pairs(metrics or {}) do
    if type(key) == "string" then
      named[#named + 1] = key
    elseif type(value) ~= "string" then
      fail("metrics are names, or functions by name")
    end
  end
  table.sort(named)
  for _, name in ipairs(metrics or {}) do names[#names + 1] = name end
  table.move(named, 1, #named, #names + 1, names)
  return names
end

--- Whether a gradient may reach the blob of that name: integers and flags have none. A dtype that
-- is not known yet may be a float.
local function has_gradient(net, name)
  local dtype = net:_type(name)
  return dtype == nil or dtype:match "^b?f" ~= nil
end

--- Names of the blobs of the parameters that a build trains: all that are trainable, or those of
-- them that its globs name.
local function trained(record)
  local names, net = {}, record.net
  local is_own = record.only and {}
  for storage, blob in pairs(record.only and record.blobs or {}) do
    is_own[blob.name] = record.only[storage]
  end
  for _, row in ipairs(net:_blobs()) do
    if row.role == "parameter" and row.trainable and (not is_own or is_own[row.name]) then
      names[#names + 1] = row.name
    end
  end
  return names
end

--- Whether the gradient of a blob reaches some parameter that is trained: it ends at ops that pass
-- none on, such as StopGradient, and at integers.
local function reads_parameters(record, blob)
  local net = record.net
  local wanted, all = { [blob.name] = true }, net:_ops()
  for i = #all, 1, -1 do
    local reached = false
    for _, name in ipairs(all[i].outputs) do reached = reached or name and wanted[name] end
    reached = reached and not records[all[i].type].no_grad
    for _, name in ipairs(reached and all[i].inputs or {}) do
      wanted[name] = wanted[name] or name and has_gradient(net, name)
    end
  end
  for _, name in ipairs(trained(record)) do
    if wanted[name] then return true end
  end
  return false
end

--- What a batch's fields are in the net being built: forward's arguments, and what losses and
-- metrics ask for.
-- @param o options of m:net
-- @return field f(name) -> blob or nil; target f(term, output) -> blob or nil; unread f() -> the
--   name of a field that nobody has asked for, or nil
local function fields_of(net, o, blobs)
  local shapes = o.fields
  local function field(name)
    local known = shapes and shapes[name]
    if not blobs[name] and known then
      blobs[name] = net:input(name, with_batch(known, o.batch), known.dtype)
    end
    return (shapes and known or not shapes) and blobs[name] or nil
  end
  local function target(term, output)
    local name, loss = term.target, term.module
    if o.target == false then return nil end
    if shapes then
      if not shapes[name] and not term.is_function then
        fail(("a batch has no %s: the loss needs a target"):format(name))
      end
      return field(name)
    end
    if not blobs[name] then
      local shape, dtype = output.shape, output.dtype
      if o.target then shape, dtype = with_batch(o.target.shape, o.batch), o.target.dtype
      elseif loss.target then shape, dtype = loss:target(output) end
      blobs[name] = net:input(name, shape, dtype)
    end
    return blobs[name]
  end
  local function unread()
    for _, name in ipairs(options.keys(shapes or {})) do
      if not blobs[name] then return name end
    end
  end
  return field, target, unread
end

--- The loss alone, of outputs and fields like these with one row more than the batch: what it makes
-- of the number of rows. Nothing where it takes no other number.
-- @return net, blob
local function loss_again(root, o, goal, outs, blobs)
  local loss
  local function forward(record)
    local known = {}
    local function again(blob, name)
      local shape = is_blob(blob) and blob.shape
      if not shape then return nil end
      if shape[1] == o.batch then shape = { o.batch + 1, table.unpack(shape, 2) } end
      known[blob] = known[blob] or record.net:input(name, shape, blob.dtype)
      return known[blob]
    end
    local ins = { n = outs.n }
    for i = 1, outs.n do ins[i] = again(outs[i], "input" .. i) end
    local function field(name) return again(blobs[name], "field_" .. name) end
    loss = goal:apply(ins, field, function(term) return field(term.target) end)
  end
  local ok, record = pcall(building, "loss", root, { train = o.train }, forward)
  if ok then return record.net, loss end
  if type(record) == "table" and (rawget(record, "code") == "memory"
      or rawget(record, "code") == "interrupted") then
    error(record, 0)
  end
end

--- Gradients of the parameters, and of the outputs that m:on(.., "backward") watches; then the
-- update, or, without an optimizer, the gradients as blobs of their own, param "w".grad.
-- @param o options of m:net
-- @return the blob of all gradients' norm, where it is asked for
local function add_backward(record, loss, o)
  local net, wrt = record.net, trained(record)
  if #wrt == 0 then fail("the model has no trainable parameter") end
  local n_param = #wrt
  for _, watch in ipairs(record.watched) do wrt[#wrt + 1] = watch.blob.name end
  -- what the net has against the gradient its plan says, which follows: asked here, the net would
  -- be built twice
  local names, grads, kept = net:_gradient(loss.name, wrt, true, true), {}, {}
  for i, name in ipairs(wrt) do
    local gradient = net:blob(names[i])
    if i <= n_param then
      grads[net:blob(name)] = gradient
      kept[#kept + 1] = gradient
    else
      local watch = record.watched[i - n_param]
      watch.f(watch.module, gradient)
    end
  end
  local norm
  if o.grad_norm then norm = net:op("GradNorm", kept, { "gradient_norm" }, {}) end
  if o.optimizer then o.optimizer:apply(net, grads, loss) else net:keep(kept) end
  return norm
end

--- The paths of the modules that a net is built without, as a set; nil for none. Raises for a name
-- that no module below `self` has.
local function left_out(self, names)
  if names == nil then return nil end
  local set, known = {}, {}
  for path in Module.modules(self) do
    if path ~= "" then
      known[#known + 1] = path
      known[path] = true
    end
  end
  for _, name in ipairs(type(names) == "string" and { names } or names) do
    local path = name:gsub("/", ".")
    if not known[path] then
      local near = options.nearest(path, known)
      error(core.error {
        code = "name",
        message = ("without: the model has no module \"%s\""):format(name),
        hint = near and ("did you mean \"%s\"?"):format(near) or "print(model) shows them",
      })
    end
    set[path] = true
  end
  return next(set) and set or nil
end

--- Whether a parameter or statistic lies in a module that is left out.
local function is_of(record, set, t)
  local path = t.path[record.owner]:gsub("/", ".")
  while path ~= "" do
    if set[path] then return true end
    path = path:match "^(.*)%.[^.]*$" or ""
  end
  return false
end

--- Declares what the workspace of the model holds and its forward has not read, behind all that is
-- done with what it has: the net's plan is to count it.
local function declare_unread(self)
  local set, t = context.building().without, context.building().tree
  for _, record in ipairs(module.records(self)) do
    if not (set and is_of(record, set, t)) then module.blob_of(record) end
  end
end

local net_fields = {
  { "batch", "integer", 1, min = 1, doc = "examples of a batch" },
  { "train", "boolean", false, doc = "whether the net trains: the backward pass is part of it" },
  { "loss", "module|function", unset = "none", says = "a module or a function",
    doc = "loss of the output and the target y" },
  { "losses", "table", unset = "none", says = "a list of { loss, weight = }",
    doc = "several losses, as in neap.trainer" },
  { "optimizer", "optimizer", unset = "none", doc = "what updates the parameters at the end" },
  { "input", "shapes", unset = "the model's own, or what it has met", says = [[the shape of one
      example, e.g. { 1, 28, 28 }, or one for each input]],
    doc = "of several inputs a list, or { argument of forward = { shape, dtype = } }" },
  { "input_dtype", "dtype", unset = "f32", doc = "dtype of inputs that do not say one" },
  { "name", "name", unset = "the model's, or the script's", doc = "name of the net" },
  { "metrics", "string|table", unset = "none", doc = "what else is measured, as in neap.trainer",
    says = [[a name, or a table { "accuracy", name = f(y, t) }]] },
  { "keep", "names", unset = "none", doc = "blobs that keep bytes of their own" },
  { "without", "names", unset = "none", doc = [[modules that are left out, by their paths: what
      goes into them comes out]] },
  { "params", "names", unset = "all that are trainable",
    doc = "globs of the parameters that are trained" },
  { "fields", "table", unset = "those of input and target",
    says = "{ name = { shape, dtype = } } of one example",
    doc = "the fields of a batch, for forward and losses that name them" },
  { "target", "table|boolean", unset = "as the loss says", says = [[{ shape =, dtype = } of one
      example's label, or false]], doc = "what y looks like; false: the loss takes none" },
  { "grad_norm", "boolean", false, doc = "whether the norm of all gradients is an output" },
  { "guard", "boolean", false,
    doc = "whether the step stops, before anything changes, when the loss is not finite" },
  { "traced", "boolean", false, doc = "whether the modules are noted that each op is of" },
  example = "m:net { batch = 16, train = true, loss = nn.CrossEntropyLoss() }" }
net_fields.doc = "m:net { .. } gives a net of the model, its blobs by name, and a record of the \z
  build. The net's outputs are the loss and what is measured, or without a loss all that forward \z
  gives."
local net_options = option_record.declare("m:net", net_fields)

-- What m:plan and the like take beside memory options: fields of m:net, and shapes of its inputs.
local plan_fields = table.move(net_fields, 1, #net_fields, 1, {})
plan_fields[#plan_fields + 1] = { "x", "any", doc = "shape of x, as in net:plan" }
plan_fields[#plan_fields + 1] = { "y", "any", doc = "shape of y" }
local plan_options = option_record.new("m:plan", plan_fields)

--- The blobs that forward is given, in the net being built.
-- @return list with holes, the last position
local function declare_arguments(self, net, o, blobs)
  local arguments = {}
  local input = o.fields and batches.inputs(self, o.fields) or example_shape(self, o)
  if o.fields and next(input) == nil then return arguments, 0 end
  local places, last = batches.shapes(self, input, o.input_dtype or self._fields.input_dtype)
  for k = 1, last do
    local place = places[k]
    if place then
      arguments[k] = net:input(place.name, with_batch(place.shape, o.batch), place.dtype)
      blobs[place.name] = arguments[k]
    end
  end
  return arguments, last
end

--- What forward gives, each blob once.
local function results_of(outs)
  local list, seen = {}, {}
  for i = 1, outs.n do
    local y = outs[i]
    local key = is_blob(y) and y.name or y
    if y ~= nil and not seen[key] then list[#list + 1], seen[key] = y, true end
  end
  return list
end

--- m:net{batch =, train =, ..} -> net, {x = blob (each field under its name), y = blob|nil,
-- output = blob, loss = blob|nil, <metric> = blob}, record: see the record of its options.
function Module.net(self, given)
  local o, root = net_options:read(given), (tree.home(self))
  local goal = objective.of("m:net", o.loss, o.losses)
  if o.optimizer and not o.train then
    fail "m:net: an optimizer updates nothing unless train = true"
  end
  if o.train and goal then count_memory.check_gradients(root, "m:net { train = true }") end
  if not o.fields then example_shape(self, o) end
  local blobs, fields, outs = {}, {}, nil
  if type(o.metrics) == "string" then o.metrics = { o.metrics } end
  local metrics = build.metric_names(o.metrics)
  local net_name = o.name or script.net_name(self)
  local record = building(net_name, root, {
    train = o.train,
    traced = o.traced,
    without = left_out(self, o.without),
  }, function(record)
    local net = record.net
    local arguments, last = declare_arguments(self, net, o, fields)
    outs = table.pack(self(table.unpack(arguments, 1, last)))
    record.results = outs
    blobs.output = outs[1]
    if not goal then
      declare_unread(self)
      return
    end
    record.only = o.params and module.matching_storage(self, o.params, "params")
    local field, target, unread = fields_of(net, o, fields)
    local n_op = #net:_ops()
    local terms
    blobs.loss, terms = goal:apply(outs, field, target)
    record.reduces, record.reduces_by = reduction.of(net, blobs.loss, n_op, o.batch, function()
      return loss_again(root, o, goal, outs, fields)
    end)
    goal:count(net, blobs.loss, fields)
    if o.train and not reads_parameters(record, blobs.loss) then
      fail "the loss depends on no trainable parameter of the model: nothing would be learnt"
    end
    if o.train and o.guard then
      blobs.loss = net:op("CheckFinite", { blobs.loss }, { "checked_loss" }, {})
    end
    for _, name in ipairs(metrics) do
      blobs[name] = goal:metric(name, o.metrics[name], outs, field, target)
    end
    for _, name in ipairs(goal:names()) do blobs[name] = terms[name] end
    local left = unread()
    if left then goal:refuse_target(outs, left) end
    if left then batches.fail_unread(self, left, goal:fields(o.metrics)) end
    if o.train then blobs.grad_norm = add_backward(record, blobs.loss, o) end
    declare_unread(self)
  end)
  for name, blob in pairs(fields) do blobs[name] = blobs[name] or blob end
  -- Without a loss it is all that forward gives: a file of the net gives it, too.
  local outputs = goal and { blobs.loss } or results_of(outs)
  -- the output is the loss where a model has its losses in itself
  if blobs.loss and not o.train and blobs.loss.name ~= blobs.output.name then
    outputs[#outputs + 1] = blobs.output
  end
  for _, name in ipairs(metrics) do outputs[#outputs + 1] = blobs[name] end
  if blobs.grad_norm then outputs[#outputs + 1] = blobs.grad_norm end
  for _, name in ipairs(goal and goal:names() or {}) do outputs[#outputs + 1] = blobs[name] end
  record.net:outputs(outputs)
  local keep = type(o.keep) == "string" and { o.keep } or options.append({}, o.keep or {})
  if #keep > 0 then record.net:keep(table.unpack(keep)) end
  return record.net, blobs, record
end

-- ---- reports ------------------------------------------------------------------------------------

--- Options of the net and options of its memory, apart.
local function apart(o, who)
  if o ~= nil and type(o) ~= "table" then
    fail(("%s expects a table of options, { batch = 16 }, got a %s"):format(who, type(o)))
  end
  for _, name in ipairs { "stash", "order" } do
    if o and o[name] ~= nil then
      fail(("%s: \"%s\" is reserved, and not available yet"):format(who, name))
    end
  end
  local net, memory = memory_options.split(who, o, "lua", plan_options)
  memory.x, memory.y, net.x, net.y = net.x, net.y, nil, nil
  if net.train == nil and net.loss then net.train = true end
  if net.train and not net.loss then net.loss = require("neap.nn").CrossEntropyLoss {} end
  return net, memory
end

--- The range of batches up to `most` rows of this model.
local function range_to(self, net_options, memory, most)
  local rows = net_options.batch
  net_options.batch = most
  local batches = require("neap").range(Module.net(self, net_options), memory)
  net_options.batch = rows
  return batches
end

for _, name in ipairs { "plan", "forecast", "dry_run" } do
  --- m:plan, m:forecast, m:dry_run { batch =, train =, loss =, optimizer =, .. memory options as in
  -- net:plan }. Nothing is allocated. With max_batch: of `batch` rows within the memory of a net
  -- built for the largest.
  Module[name] = function(self, o)
    local net_options, given = apart(o, "m:" .. name)
    local memory, most = range.apart(given)
    local function of_batch(n)
      local o_n = {}
      for key, value in pairs(net_options) do o_n[key] = value end
      o_n.batch = n
      return Module.net(self, o_n), memory
    end
    return refusal.around_model(of_batch, nil, o.batch, function()
      local net = Module.net(self, net_options)
      if name == "dry_run" then return net:dry_run(given) end
      local plan = most and net:_plan(memory, range_to(self, net_options, memory, most))
        or net:plan(given)
      if name == "forecast" then return plan:forecast() end
      return again.note(plan, o, function(all) return self:plan(all) end, function(all)
        local n_options, rest = apart(all, "m:plan")
        return Module.net(self, n_options), rest
      end, true)
    end)
  end
end

--- What neap.count_memory counts: the net, options of its memory, and the range of batches when
-- these name a largest one.
function Module.count_net(self, o)
  local net_options, given = apart(o, "neap.count_memory")
  local memory, most = range.apart(given)
  return Module.net(self, net_options), memory, most and range_to(self, net_options, memory, most)
end

local function elems(shape)
  local n = 1
  for _, d in ipairs(shape) do n = n * d end
  return n
end

--- Shapes of a net's inputs, in order, without the target's: "(1,4), (1,3)".
local function shapes_of(net)
  local parts = {}
  for i, input in ipairs(net:inputs()) do
    parts[i] = "(" .. table.concat(input.shape, ",") .. ")"
  end
  return table.concat(parts, ", ")
end

--- Parameters and statistics by the modules that have run: those of a part that has no forward of
-- its own are its parent's. @return {module = list}
local function params_by_layer(self, trace)
  local own = {}
  for _, t in ipairs(trace) do own[t.module] = own[t.module] or {} end
  for _, m in ipairs(tree.modules((tree.home(self)))) do
    local by = m
    while by and not own[by] do by = by._parent end
    for _, r in ipairs(by and m._params or {}) do table.insert(own[by], r) end
  end
  return own
end

--- m:summary { batch = } -> Report: a row per layer: its output shape, parameters and mult-adds of
-- the forward pass; totals parameters, trainable, mult_adds, parameter_bytes.
function Module.summary(self, o)
  local net_options, memory = apart(o, "m:summary")
  net_options.train, net_options.traced, net_options.loss = false, true, nil
  local net, blobs, record = Module.net(self, net_options)
  local flops, rows, seen = {}, {}, {}
  memory.fuse = false -- a row is a layer as it was written
  for _, op in ipairs(net:plan(memory):_ops()) do flops[op.outputs[1]] = op.flops end
  local totals = { parameters = 0, trainable = 0, mult_adds = 0, parameter_bytes = 0 }
  local own = params_by_layer(self, record.trace)
  for _, t in ipairs(record.trace) do
    local m, n, work = t.module, 0, 0
    for _, r in ipairs(own[m]) do
      local storage = module.storage_record(r)
      if storage.role == "parameter" and not seen[storage] then
        seen[storage] = true
        n = n + elems(storage.shape)
        totals.trainable = totals.trainable + (storage.trainable and elems(storage.shape) or 0)
        totals.parameter_bytes = totals.parameter_bytes
          + elems(storage.shape) * (storage.dtype == "f64" and 8 or 4)
      end
    end
    for _, name in ipairs(t.ops) do work = work + (flops[name] or 0) // 2 end
    totals.parameters, totals.mult_adds = totals.parameters + n, totals.mult_adds + work
    if #t.ops > 0 or n > 0 then
      rows[#rows + 1] = {
        layer = (record.tree.path[m] or m._base):gsub("/", "."),
        type = m._class,
        output = t.output.shape and "(" .. table.concat(t.output.shape, ",") .. ")",
        parameters = n,
        mult_adds = math.tointeger(work) or work,
      }
    end
  end
  return report.new {
    rows = rows,
    columns = { "layer", "type", "output", "parameters", "mult_adds" },
    totals = totals,
    title = ("%s: %s to (%s)"):format(
      self._class, shapes_of(record.net), table.concat(blobs.output.shape, ",")),
    order = { "parameters", "trainable", "mult_adds", "parameter_bytes" },
  }
end

--- The net of one layer alone, for chains of layers (neap.nn.chain).
-- @param m module
-- @param name string of the net
-- @param shape table of its input, called "input"
-- @param dtype string
-- @return net with one input and one output, the output's blob
function build.layer_net(m, name, shape, dtype)
  local y
  local net = building(name, (tree.home(m)), { train = Module.is_training(m) }, function(record)
    local x = record.net:input("input", shape, dtype)
    y = m(x)
    if y.name == x.name then y = record.net:Copy(x) end -- a layer that hands its input on
    record.net:outputs { y }
  end).net
  return net, y
end

--- A net of the model without a gradient, made by f(net, run): run(x, ..) is what the model gives.
-- @param m module
-- @param name string of the net
-- @return net
function build.plain_net(m, name, f)
  return building(name, (tree.home(m)), { train = false }, function(record)
    f(record.net, m)
  end).net
end

--- The same of a model that reads a text piece by piece (neap.nn.reading): run(position, ids) is
-- what it gives for ids (B,T), read behind `position` (B) rows. f(net, run, caches): names of the
-- caches are in that list when run has been called.
-- @param length integer rows that caches hold
function build.reading_net(m, name, length, f)
  return build.plain_net(m, name, function(net)
    local caches = {}
    f(net, function(position, ids)
      context.building().reading = { position = position, length = length, n_named = {},
        caches = caches }
      return (m(ids))
    end, caches)
  end)
end

-- ---- eager --------------------------------------------------------------------------------------

--- What an eager call of `m` on the first n tensors of xs is known by: module, mode, shapes.
local function call_id(self, m, xs, n)
  local key = { tree.of(self).path[m], tostring(Module.is_training(m)) }
  for i = 1, n do
    local x = xs[i]
    local may_lack = x == nil and i > 1 and i < n -- an argument left out
    if type(x) ~= "userdata" and not may_lack then
      fail(("nn.%s expects tensors, got a %s as argument %d"):format(m._class, type(x), i))
    end
    key[#key + 1] = may_lack and "none" or x.dtype .. "(" .. table.concat(x.shape, ",") .. ")"
  end
  return table.concat(key, " ")
end

--- Nets for eager calls are kept by what they were built for.
local function cached(self, m, xs, kind, make)
  local id = kind .. " " .. call_id(self, m, xs, xs.n)
  if self._nets[id] == nil then
    local entry = make()
    Module.workspace(self):init(entry.net)
    self._nets[id] = entry -- a layer that learnt its width has emptied the table
  end
  return self._nets[id]
end

local function declare_inputs(net, xs)
  local ins, names = {}, {}
  for i = 1, xs.n do
    names[i] = "input" .. i
    ins[i] = xs[i] and net:input(names[i], xs[i].shape, xs[i].dtype)
  end
  return ins, names
end

local function run(self, entry, xs, memory)
  local feeds = {}
  for i = 1, xs.n do feeds[entry.inputs[i]] = xs[i] end
  return Module.workspace(self):run(entry.net, feeds, memory)
end

--- What eager forwards drew by, by call_id. m:seed forgets it.
local function draws_of(root)
  if rawget(root, "_draws") == nil then rawset(root, "_draws", {}) end
  return rawget(root, "_draws")
end

--- The same for a backward: it draws by `draw`, and leaves counters and statistics as they were.
local function run_backward(root, entry, xs, draw)
  local ws, before = Module.workspace(root), {}
  for i, record in ipairs(entry.states) do
    before[i] = rawget(record.home, "_ws"):fetch(record.home_name)
  end
  local hold = ws:_give_draw(draw[1], draw[2])
  local _ <close> = setmetatable({}, { __close = function()
    hold = hold and ws:_give_draw()
    for i, record in ipairs(entry.states) do
      rawget(record.home, "_ws"):feed(record.home_name, before[i])
    end
  end })
  return run(root, entry, xs)
end

--- f(...) -> f's results: the first call on tensors learns widths and makes parameters; when it
-- raises, it has not.
local function attempt(root, f, ...)
  if rawget(root, "_met") then return f(...) end
  return tree.attempt(root, workspace.attempt, Module.workspace(root), true, {}, f, ...)
end

--- One example of the tensors of a call, as the option `input` says it.
local function example_of(xs)
  local input = {}
  for i = 1, xs.n do
    local x = xs[i]
    if not x then return nil end
    input[i] = table.move(x.shape, 2, #x.shape, 1, { dtype = x.dtype })
  end
  return #input == 1 and input[1] or input
end

local function run_eager(self, m, memory, ...)
  local xs = table.pack(...)
  while xs.n > 0 and xs[xs.n] == nil do xs.n = xs.n - 1 end
  local entry = cached(self, m, xs, "forward", function()
    local e = { seen = example_of(xs) }
    e.net = building(m._class, self, { train = Module.is_training(m) }, function(record)
      local ins
      ins, e.inputs = declare_inputs(record.net, xs)
      e.outs = table.pack(m(table.unpack(ins, 1, xs.n)))
      record.net:outputs(results_of(e.outs))
    end).net
    return e
  end)
  draws_of(self)[call_id(self, m, xs, xs.n)] = { Module.workspace(self):_look_draw(false) }
  local results, list = run(self, entry, xs, memory), {}
  rawset(m, "_seen", entry.seen or rawget(m, "_seen"))
  for k = 1, entry.outs.n do list[k] = results[entry.outs[k].name] end
  return table.unpack(list, 1, entry.outs.n)
end

--- Runs `m` on tensors in the root's workspace. Kept in `self`, the root of m.
function Module.run_eager(self, m, ...) return attempt(self, run_eager, self, m, nil, ...) end

--- Adds `m` to the net of a transform (neap.transform), where it is a guest: its parameters stay
-- its own, and are read anew in each run. What it learns of widths it keeps; statistics it does
-- not.
function Module._run_as_guest(root, m, ...)
  local net, capture, args = nil, nil, table.pack(...)
  for i = 1, args.n do
    if is_blob(args[i]) then net, capture = net_module.capturing(args[i].net) end
  end
  if not net then
    fail(("nn.%s got a blob of a net that is no model's: it takes part in another model's \z
      forward, in a loss, and in neap.grad and its like on tensors; m:net is a net of it"):format(
        m._class))
  end
  local guests = net_module.guests(net)
  local record = guests[root] or {
    net = net, root = root, tree = tree.of(root), running = {}, blobs = {}, watched = {},
    claimed = {}, masked = {}, train = rawget(root, "_mode") ~= false,
    guest = function(storage)
      local p = Module.as_parameter(storage, (tree.home(storage.owner)))
      return capture(p, function() return p.data end)
    end,
  }
  guests[root] = record
  return attempt(root, function(...)
    local _ <close> = setmetatable({}, { __close = context.enter(record) })
    local out = table.pack(m(...))
    rawset(root, "_met", true)
    return table.unpack(out, 1, out.n)
  end, ...)
end

--- The same for a model and its inputs, with memory options as in net:plan.
function build.run_within(m, memory, ...)
  local root = tree.home(m)
  return attempt(root, run_eager, root, m, memory, ...)
end

local function backward(self, root, ...)
  local xs = table.pack(...)
  count_memory.check_gradients(root, "m:backward")
  if xs.n < 2 then
    fail("m:backward takes (x, .., dy): the inputs, then the gradient of the output")
  end
  local entry = cached(root, self, xs, "backward", function()
    local e = { wrt = {}, grads = {}, states = {} }
    local net_name = self._class .. "_backward"
    e.net = building(net_name, root, { train = Module.is_training(self) }, function(record)
      local net = record.net
      local ins, names = declare_inputs(net, xs)
      e.inputs = names
      local y = self(table.unpack(ins, 1, xs.n - 1))
      local loss = (y * ins[xs.n]):sum()
      local wrt = {}
      for i = 1, xs.n - 1 do
        if ins[i] and ins[i].dtype:match "^b?f" then
          wrt[#wrt + 1] = ins[i].name
          e.wrt[i] = true
        end
      end
      for r, blob in pairs(record.blobs) do
        if r.role == "state" then e.states[#e.states + 1] = r end
        if r.trainable then wrt[#wrt + 1] = blob.name end
      end
      table.sort(wrt)
      local by_blob, outputs = net:gradient(loss, { wrt = wrt, allow_unused = true }), {}
      for _, name in ipairs(wrt) do
        e.grads[name] = by_blob[net:blob(name)].name
        outputs[#outputs + 1] = e.grads[name]
      end
      net:outputs(outputs)
    end).net
    return e
  end)
  local draw = draws_of(root)[call_id(root, self, xs, xs.n - 1)]
    or { Module.workspace(root):_look_draw(false) }
  local results, list = run_backward(root, entry, xs, draw), {}
  local gradients = {}
  for name, grad in pairs(entry.grads) do gradients[name] = results[grad] end
  rawset(root, "_gradients", gradients)
  for i = 1, xs.n - 1 do list[i] = gradients["input" .. i] end
  return table.unpack(list, 1, xs.n - 1)
end

--- m:backward(x, .., dy) -> dx, ..: gradients of the inputs (nil for integer ones) for the gradient
-- dy of the output. The parameters' gradients are in m:param(name).grad until the next backward;
-- they are set, not added to.
--
-- It belongs to the last call m(x, ..) in this mode with inputs of these shapes, and draws what
-- that one drew: the masks are the same. (Where there was none since m:seed, it draws what such a
-- call would.) It runs the forward again, and is a function of x, dy and the parameters alone:
-- statistics and the counters that random numbers follow from, a trainer's too, stay as they are.
function Module.backward(self, ...)
  local root = (tree.home(self))
  return attempt(root, backward, self, root, ...)
end

return build
