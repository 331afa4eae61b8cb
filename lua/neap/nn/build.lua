--- Modules as nets: m:net, with loss, metrics, backward pass and update, and nets of one layer.
--
-- INVARIANT: what a module's forward raises leaves the module as it was (neap.nn.context).
-- @module neap.nn.build
local batches = require "neap.data.batch"
local context = require "neap.nn.context"
local core = require "neap.core"
local count_memory = require "neap.memory.count"
local forward = require "neap.nn.forward"
local module = require "neap.nn.module"
local objective = require "neap.nn.objective"
local is_blob, records = require("neap.op").is_blob, require("neap.op").records
local is_tensor = require("neap.op").is_tensor
local names = require "neap.nn.names"
local option_record = require "neap.inner.record"
local options = require "neap.inner.options"
local reduction = require "neap.nn.reduction"
local script = require "neap.inner.script"
local tree = require "neap.nn.tree"
local fail = core.fail

local Module = module.Module
local build = {}

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

  -- Names have an order, and pairs has none: those given as functions come behind, sorted.
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

  -- The net knows blobs by name; `only` says which storage is trained.
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

  -- Backwards, as the gradient goes: an op is reached when an output of it is wanted, and then its
  -- inputs are.
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

  -- With `fields` the batch says what there is; without, there are the inputs that the net has, and
  -- the target. A field is declared when somebody asks for it.
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

    -- No batch is at hand: the label looks as the caller says, or as the loss knows it, or like the
    -- output.
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
      -- A first dimension as long as the batch is taken for its rows.
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

  -- A loss that takes no other number of rows tells nothing. What is no fault of the loss's goes
  -- on.
  local ok, record = pcall(context.build, "loss", root, { train = o.train }, forward)
  if ok then return record.net, loss end
  if type(record) == "table" and (rawget(record, "code") == "memory"
      or rawget(record, "code") == "interrupted") then
    error(record, 0)
  end
end

--- The loss times the input "loss_scale", where the net is to have one, and f(gradient) that takes
-- the factor out again.
local function scale_loss(net, loss, o)
  if not o.loss_scale then return loss, function(gradient) return gradient end end
  local factor = net:input("loss_scale", {}, "f32")
  local inverse = 1 / factor
  local function beside(x, f) return x * (x.dtype == "f32" and f or f:to(x.dtype)) end
  return beside(loss, factor), function(gradient) return beside(gradient, inverse) end
end

--- Gradients of the parameters, and of the outputs that m:on(.., "backward") watches; then the
-- update, or, without an optimizer, the gradients as blobs of their own, param "w".grad.
-- @param o options of m:net
-- @return the blob of all gradients' norm, where it is asked for or looked at: an output, since
--   what nobody reads is not computed
local function add_backward(record, loss, o)
  local net, wrt = record.net, trained(record)
  if #wrt == 0 then fail("the model has no trainable parameter") end
  local n_param = #wrt
  for _, watch in ipairs(record.watched) do wrt[#wrt + 1] = watch.blob.name end
  -- what the net has against the gradient its plan says, which follows: asked here, the net would
  -- be built twice
  local scaled, unscale = scale_loss(net, loss, o)
  local names, grads, kept = net:_gradient(scaled.name, wrt, true, true), {}, {}
  for i, name in ipairs(wrt) do
    -- Parameters come first in `wrt`, behind them the outputs that are watched.
    local gradient = unscale(net:blob(names[i]))
    if i <= n_param then
      grads[net:blob(name)] = gradient
      kept[#kept + 1] = gradient
    else
      local watch = record.watched[i - n_param]
      watch.f(watch.module, gradient)
    end
  end
  local norm
  if o.loss_scale then
    -- An infinity or a NaN of any gradient is one of their norm: the step stops before an update.
    norm = net:op("GradNorm", kept, { "unchecked_norm" }, {})
    norm = net:op("CheckFinite", { norm }, { "gradient_norm" }, {})
  elseif o.grad_norm then
    norm = net:op("GradNorm", kept, { "gradient_norm" }, {})
  end

  -- Without an optimizer nobody in the net reads the gradients: kept, they have bytes of their own
  -- and are there behind the run.
  if o.optimizer then o.optimizer:apply(net, grads, loss) else net:keep(kept) end
  return norm
end

--- The paths of the modules that a net is built without, as a set; nil for none. Raises for a name
-- that no module below `self` has.
local function left_out(self, names)
  if names == nil then return nil end
  local set, known = {}, {}
  -- The model itself can't be left out: there would be nothing to call.
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

  -- Parameters that forward has read are declared already; blob_of gives those as they are.
  for _, record in ipairs(names.records(self)) do
    if not (set and is_of(record, set, t)) then forward.blob_of(record) end
  end
end

build.net_fields = {
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
  { "loss_scale", "boolean", false, doc = [[whether the loss is multiplied by the input loss_scale
      before it is differentiated, and gradients divided by it; the step stops, before anything
      changes, when one of these is not finite]] },
  { "guard", "boolean", false,
    doc = "whether the step stops, before anything changes, when the loss is not finite" },
  { "traced", "boolean", false, doc = "whether the modules are noted that each op is of" },
  example = "m:net { batch = 16, train = true, loss = nn.CrossEntropyLoss() }" }
build.net_fields.doc = "m:net { .. } gives a net of the model, its blobs by name, and a record of \z
  the build. The net's outputs are the loss and what is measured, or without a loss all that \z
  forward gives."
local net_options = option_record.declare("m:net", build.net_fields)

--- The blobs that forward is given, in the net being built.
-- @return list with holes, the last position
local function declare_arguments(self, net, o, blobs)
  local arguments = {}

  -- With fields, forward takes those that its arguments are named after; else x, or the inputs in
  -- their order.
  local input = o.fields and batches.inputs(self, o.fields) or example_shape(self, o)
  if o.fields and next(input) == nil then return arguments, 0 end
  local places, last = batches.shapes(self, input, o.input_dtype, self._fields.input_dtype)
  for k = 1, last do
    local place = places[k]
    if place then
      arguments[k] = net:input(place.name, with_batch(place.shape, o.batch), place.dtype)
      blobs[place.name] = arguments[k]
    end
  end
  return arguments, last
end

--- Raises where a forward gives nothing at all.
local function must_give(self, outs)
  if outs.n == 0 then
    fail(("nn.%s: forward gives nothing: is its return missing?"):format(self._class))
  end
end

--- What the forward of `self` gives, each blob once. Raises where that is no blob.
function build.results_of(self, outs)
  local list, seen = {}, {}
  must_give(self, outs)
  for i = 1, outs.n do
    local y = outs[i]
    if y ~= nil and not is_blob(y) and type(y) ~= "string" then
      fail(("nn.%s: forward gives a %s as result %d, expected what it computes of its inputs%s")
        :format(self._class, is_tensor(y) and "tensor of numbers" or type(y), i,
          type(y) == "table" and "; several results stand side by side, return a, b" or ""))
    end
    local key = is_blob(y) and y.name or y
    if y ~= nil and not seen[key] then list[#list + 1], seen[key] = y, true end
  end
  return list
end

--- m:net{batch =, train =, ..} -> net, {x = blob (each field under its name), y = blob|nil,
-- output = blob, loss = blob|nil, <metric> = blob}, record: see the record of its options.
function Module.net(self, given)
  local o, root = net_options:read(given), (tree.home(self))

  -- What can be refused without a net is refused before one is built.
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
  local record = context.build(net_name, root, {
    train = o.train,
    traced = o.traced,
    without = left_out(self, o.without),
  }, function(record)
    local net = record.net
    local arguments, last = declare_arguments(self, net, o, fields)

    -- The model, once: blobs in, blobs out.
    outs = table.pack(self(table.unpack(arguments, 1, last)))
    must_give(self, outs)
    record.results = outs
    blobs.output = outs[1]
    if not goal then
      declare_unread(self)
      return
    end

    -- The loss, and how it counts rows. Its ops begin behind n_op: what it says of rows is read
    -- from these alone.
    record.only = o.params and names.matching_storage(self, o.params, "what is trained")
    local field, target, unread = fields_of(net, o, fields)
    local n_op = #net:_ops()
    local terms
    blobs.loss, terms = goal:apply(outs, field, target)
    record.reduces, record.reduces_by = reduction.of(net, blobs.loss, n_op, o.batch, function()
      return loss_again(root, o, goal, outs, fields)
    end)
    goal:count(net, blobs.loss, fields)
    -- A loss cut off from the parameters (by StopGradient, say) would train without a sign that it
    -- does nothing.
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

    -- A field that neither forward nor a loss has read is data that would be dropped unseen.
    local left = unread()
    if left then goal:refuse_target(outs, left) end
    if left then batches.fail_unread(self, left, goal:fields(o.metrics)) end

    -- Behind all that reads parameters, since the update writes them.
    if o.train then blobs.grad_norm = add_backward(record, blobs.loss, o) end
    declare_unread(self)
  end)

  -- The results by name win over a field of the same name.
  for name, blob in pairs(fields) do blobs[name] = blobs[name] or blob end
  -- Without a loss it is all that forward gives: a file of the net gives it, too.
  local outputs = goal and { blobs.loss } or build.results_of(self, outs)
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

--- The net of one layer alone, for chains of layers (neap.nn.chain).
-- @param m module
-- @param name string of the net
-- @param shape table of its input, called "input"
-- @param dtype string
-- @return net with one input and one output, the output's blob
function build.layer_net(m, name, shape, dtype)
  local y
  local o = { train = Module.is_training(m) }
  local record = context.build(name, (tree.home(m)), o, function(record)
    local x = record.net:input("input", shape, dtype)
    y = m(x)
    if y.name == x.name then y = record.net:Copy(x) end -- a layer that hands its input on
    record.net:outputs { y }
  end)
  return record.net, y
end

--- A net of the model without a gradient, made by f(net, run): run(x, ..) is what the model gives.
-- @param m module
-- @param name string of the net
-- @return net
function build.plain_net(m, name, f)
  return context.build(name, (tree.home(m)), { train = false }, function(record)
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

return build
