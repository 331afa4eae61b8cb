--- What a trainer and its methods are given, checked before anything is done: options, batch sizes
-- and data sets.
--
-- INVARIANT: nothing here changes a trainer; what passes is what the other files of this folder
-- rely on.
-- @module neap.train.checks
local core = require "neap.core"
local micro = require "neap.train.micro"
local options = require "neap.inner.options"
local record = require "neap.inner.record"
local fail = core.fail
local copy = require("neap.train.state").copy

-- ---- of the maker -------------------------------------------------------------------------------

-- What a metric can't be called: fields of what a step, an evaluation and an epoch give, a report's
-- methods, and blobs of the model's net.
local taken = {
  "accumulated", "columns", "csv", "epoch", "grad_norm", "gradient_norm", "held_bytes", "json",
  "loss", "loss_scale", "lr", "ms", "n", "output", "seconds", "skipped", "step", "unchecked_norm",
  "updated", "updates", "valid", "within", "x", "y",
}
local is_taken = {}
for _, name in ipairs(taken) do is_taken[name] = true end

--- Names of metrics stand beside other fields in what the trainer gives.
local function check_metrics(metrics)
  -- Names alone, or functions under names: both end up as fields beside others.
  if metrics == nil or type(metrics) == "string" then metrics = { metrics } end
  for key, value in pairs(metrics) do
    local name = type(key) == "string" and key or value
    if is_taken[name] or type(name) == "string" and name:find "^valid_" then
      error(core.error {
        code = "argument",
        expected = "another name",
        got = name,
        message = ("neap.trainer: a metric can't be called \"%s\": what the trainer gives has a \z
          field of that name"):format(name),
        hint = ("taken are %s, and what begins with valid_"):format(table.concat(taken, ", ")),
      })
    end
    if type(key) == "string" and type(value) ~= "function" then
      fail(("neap.trainer: metrics: %s expects a function of the output and the target, got a \z
        %s"):format(
          key, type(value)))
    end
  end
end

--- Values of several losses stand beside the metrics.
local function check_terms(goal, metric_names)
  local known = {}
  for _, name in ipairs(metric_names) do known[name] = true end
  for _, name in ipairs(goal:names()) do
    if is_taken[name] or known[name] or name:find "^valid_" then
      fail(("neap.trainer: losses: a loss can't be called \"%s\": what the trainer gives has a \z
        field of that name"):format(name))
    end
  end
end

local accumulate_options = record.new("neap.trainer: accumulate", { positions = { "batches" },
  { "batches", "integer", min = 1, unset = "any number", doc = "batches to an update" },
  { "examples", "integer", min = 1, unset = "any number", doc = "examples to an update" },
  example = "accumulate = { examples = 256 }" })

--- accumulate = batches or { batches =, examples = }: when batches are held before an update.
-- @return {batches =, examples =}, or nil where every batch is an update
local function read_accumulate(given)
  if given == nil then return nil end
  local a = accumulate_options:read(given)
  if not (a.batches or a.examples) then
    fail("neap.trainer: accumulate expects a number of batches, or { batches =, examples = }")
  end

  -- One batch, or one example, to an update is no accumulation.
  return (a.batches ~= 1 and a.examples ~= 1) and { batches = a.batches, examples = a.examples }
    or nil
end

--- What a loss says of how it reduces its rows, or the trainer of it; nil where nothing does. Where
-- gradients of several runs are added, something must. Metrics are means, which a loss that sums
-- has no weights for in micro-batches.
local function check_reduction(o, goal, accumulate)
  -- The trainer's word and the loss's must not contradict each other.
  local own = goal:reduces()
  if o.reduces ~= nil then micro.reduction(own, o.reduces) end
  local is_told = own == "mean" or own == "sum"
  if o.reduces ~= nil and is_told and own ~= o.reduces then
    fail(("neap.trainer: reduces = \"%s\", but %s is the %s of its rows, as its field reduces \z
      says"):format(
        o.reduces, goal:class(), own))
  end

  -- Without adding up, nobody needs to know: what the net shows will do.
  if o.micro == nil and accumulate == nil then return o.reduces or is_told and own or nil end
  local reduces = micro.reduction(own, o.reduces, o.micro == nil and "accumulate" or "micro")
  local metrics = o.metrics or {}
  if o.micro ~= nil
      and reduces == "sum"
      and (type(metrics) == "string" or next(metrics) ~= nil) then
    fail("neap.trainer: metrics under micro need a loss that is a mean; this one is a sum")
  end
  return reduces
end

--- Raises where gradients of several runs are added for an optimizer that looks at the loss and the
-- gradients of the whole batch at once.
local function check_optimizer(o, accumulate)
  local option = o.micro ~= nil and "micro" or accumulate and "accumulate"
  if not option or not o.optimizer.whole then return end
  fail(("neap.trainer: optim.%s looks at the loss and the gradients of a whole batch at once; \z
    %s adds them up in parts: leave it out, or take another optimizer"):format(o.optimizer.name,
      option))
end

-- ---- of data ------------------------------------------------------------------------------------

--- Raises for a batch larger than the trainer was made for.
local function check_most(self, who, rows)
  if self.max_batch == nil or math.type(rows) ~= "integer" or rows <= self.max_batch then return end
  error(core.error {
    code = "shape",
    message = ("%s expects batches of at most %d rows, as max_batch says, got %d"):format(
      who, self.max_batch, rows),
    expected = tostring(self.max_batch),
    got = tostring(rows),
    hint = "give the trainer a larger max_batch, or a data set a smaller batch",
  })
end

--- Raises for what is no data set.
local function check_set(who, set)
  if type(set) == "table" and type(set.epoch) == "function" and type(set.spec) == "function" then
    return
  end
  local got = options.shown(set)
  if type(set) == "table" then got = set.x ~= nil and "a batch" or "a table of options" end
  fail(("%s expects a data set%s, e.g. neap.data.tensors { x =, y =, batch = }, got %s"):format(
    who, who == "fit" and " first, then options, t:fit(set, { epochs = 5 })" or "", got))
end

--- Raises unless a batch has the fields that the nets made so far have, of the same dtypes and
-- numbers of dimensions: other sizes are other plans of one net, other fields would be another net.
-- @param look {name = {sizes of an example, dtype =}}
local function check_fields(look, known)
  -- What is missing first, then what is new, then sizes: the order in which a user would mend them.
  for _, name in ipairs(options.keys(known)) do
    if look[name] == nil then
      fail(("a batch has no %s, the trainer's so far had one"):format(name))
    end
  end
  for _, name in ipairs(options.keys(look)) do
    local got, expected = look[name], known[name]
    if expected == nil then
      fail(("a batch has %s, the trainer's so far had none"):format(
        name == "y" and "a y" or name .. ": nothing reads it"))
    end
    if got.dtype ~= expected.dtype or #got ~= #expected then
      local function text(f) return ("%s (%s)"):format(f.dtype, table.concat(f, ",")) end
      error(core.error {
        code = "shape",
        message = ("a batch's %s has examples of %s, the trainer's so far %s"):format(
          name, text(got), text(expected)),
        expected = text(expected),
        got = text(got),
        hint = "sizes may change from batch to batch; dtype and number of dimensions may not",
      })
    end
  end
end

-- ---- of fit -------------------------------------------------------------------------------------

local checkpoint_options = record.new("fit: checkpoint", { positions = { "path" },
  { "path", "name", required = true, says = "a path, or { path, every = steps }",
    doc = "the file, whose name ends with .safetensors" },
  { "every", "integer", min = 1, unset = "epochs alone", doc = "steps from one to the next" },
  example = 'checkpoint = { "run.safetensors", every = 100 }' })

--- checkpoint = path or { path, every = steps }.
local function take_checkpoint(o)
  if o.checkpoint == nil then return end
  local c = checkpoint_options:read(o.checkpoint)
  if not c.path:match "%.safetensors$" then
    fail(("fit: checkpoint \"%s\" is written as safetensors: give it the ending \z
      .safetensors"):format(
        c.path))
  end
  -- where the folder is missing, or not ours, that is to be known before an epoch has gone
  local beside = c.path .. ".probe"
  local file, why = io.open(beside, "wb")
  if not file then
    error(core.error {
      code = "data",
      message = "fit: the checkpoint can't be written: " .. why:gsub("%.probe", "", 1),
    })
  end
  file:close()
  os.remove(beside)
  o.path, o.every = c.path, c.every
end

--- Both data sets have batches that the trainer takes, and fields of the same names, dtypes and
-- numbers of dimensions.
-- @return nil, or f(why): raises for the first field of other sizes
local function check_valid(self, set, valid)
  local spec = set:spec()
  check_most(self, "fit", math.min(spec.batch, spec.n))
  if valid == nil then return end
  check_set("fit: valid", valid)
  local other, differs = valid:spec(), nil
  check_most(self, "fit: valid", math.min(other.batch, other.n))
  if other.n == 0 then fail("fit: valid has no rows") end
  local function look(field)
    return field and ("%s (%s)"):format(field.dtype, table.concat(field.shape, ",", 2)) or "none"
  end
  local function refuse(name, why)
    fail(("fit: valid's %s is %s an example, that of the data trained on is %s%s"):format(
      name, look(other[name]), look(spec[name]), why and ": " .. why or ""))
  end

  -- All names of both. What can't be mended by another plan is refused here; other sizes are the
  -- model's to judge.
  for _, name in ipairs(options.keys(copy(spec, other))) do
    local a, b = spec[name], other[name]
    if name ~= "n" and name ~= "batch" and look(a) ~= look(b) then
      if not a or not b or a.dtype ~= b.dtype or #a.shape ~= #b.shape then refuse(name) end
      differs = differs or name
    end
  end
  return differs and function(why) refuse(differs, why) end
end

--- Mixed precision keeps f32 behind its halves; parameters that are such halves themselves have
-- none.
local function check_masters(model, dtype)
  if dtype ~= "bf16" and dtype ~= "f16" then return end
  for name, p in model:parameters() do
    if p.trainable and p.dtype == dtype then
      fail(("neap.trainer: dtype = \"%s\" rounds what is f32, and \"%s\" is %s already: leave it \z
        out, or keep f32 behind it by model:to \"f32\""):format(dtype, name, dtype))
    end
  end
end

return {
  metrics = check_metrics, terms = check_terms, accumulate = read_accumulate,
  masters = check_masters,
  reduction = check_reduction, optimizer = check_optimizer,
  most = check_most, set = check_set, fields = check_fields,
  checkpoint = take_checkpoint, valid = check_valid,
}
