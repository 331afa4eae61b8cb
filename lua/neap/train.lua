--- The trainer: a model, a loss and an optimizer as one program a step.
--
-- A step is one run of one program: forward, loss, backward, update. Lua runs between steps only: it feeds a batch, sets
-- the learning rate, and looks at the loss. INVARIANT: what fit does depends on the checkpoint, the data set's seed and the
-- trainer's seed alone, so that a resumed run goes on with the same bits.
-- @module neap.train
local core = require "neap.core"
local nn = require "neap.nn"
local options = require "neap.options"
local progress = require "neap.progress"
local none = options.none

local Trainer = {}
Trainer.__index = Trainer
Trainer.__name = "neap.trainer"

--- Program for a batch of n rows, from the trainer's small table. Programs of one workspace share one arena.
local function program_for(self, n, train)
  local key = (train and "train " or "eval ") .. n
  local entry = self.programs[key]
  if entry == nil then
    local net, blobs = self.model:net { batch = n, train = train, loss = self.loss, optimizer = train and self.optimizer or nil,
      input = self.input, input_dtype = self.input_dtype, metrics = self.metrics, keep = train and self.keep or nil, name = self.name }
    self.ws:init(net)
    entry = { net = net, blobs = blobs, program = self.ws:compile(net, self.memory) }
    self.programs[key] = entry
  end
  return entry
end

--- Makes a trainer.
-- @param given table { model =, loss = nn.CrossEntropyLoss(), optimizer =, metrics = {"accuracy"}, schedule = f(step, lr),
--   memory = {budget =, ... as m:plan}, seed =, nan = "stop"|"skip"|"off", name = }
local function new(given)
  local o = options.read("neap.trainer", { model = none, loss = none, optimizer = none, metrics = none, schedule = none, memory = none,
    seed = none, nan = "stop", name = none, profile = none }, given, 2)
  if not nn.is_module(o.model) then error("neap.trainer takes { model = a module, optimizer = ... }", 2) end
  if not o.optimizer then error("neap.trainer needs an optimizer, e.g. optimizer = neap.optim.SGD { lr = 0.01 }", 2) end
  local self = setmetatable({ model = o.model, loss = o.loss or nn.CrossEntropyLoss {}, optimizer = o.optimizer, schedule = o.schedule,
    metrics = o.metrics or {}, nan = o.nan, name = o.name, programs = {}, records = {}, n_step = 0, n_epoch = 0, n_in_epoch = 0 }, Trainer)
  self.ws = o.model:workspace()
  if o.seed then self.ws:seed(o.seed) end
  self.memory, self.keep = {}, nil
  for key, value in pairs(o.memory or {}) do
    if key == "keep" then self.keep = value else self.memory[key] = value end
  end
  if o.profile then self.memory.profile = true end
  self.base_lr = o.optimizer.lr
  return self
end

--- What the data looks like decides the input's shape and type, once.
local function learn_spec(self, spec)
  if self.input then return end
  self.input, self.input_dtype = {}, spec.x.dtype
  for d = 2, #spec.x.shape do self.input[d - 1] = spec.x.shape[d] end
  self.batch = spec.batch
end

local function run(self, entry, batch)
  self.ws:feed("x", batch.x)
  self.ws:feed("y", batch.y)
  entry.program:run()
end

local function read_metrics(self, entry, into)
  into.loss = self.ws:view(entry.blobs.loss.name):item()
  for _, metric in ipairs(self.metrics) do into[metric] = self.ws:view(entry.blobs[metric].name):item() end
  return into
end

--- One step on one batch {x =, y =}.
-- @return table {step, loss, <metric>, ms, lr, held_bytes}
function Trainer:step(batch)
  learn_spec(self, { batch = batch.x:size(1), x = { shape = batch.x.shape, dtype = batch.x.dtype } })
  local entry = program_for(self, batch.x:size(1), true)
  local lr = self.optimizer.lr
  if self.schedule then lr = self.schedule(self.n_step + 1, self.base_lr) end
  self.ws:feed("lr", core.tensor(lr))
  local start = core.clock()
  run(self, entry, batch)
  self.n_step = self.n_step + 1
  local result = read_metrics(self, entry, { step = self.n_step, ms = (core.clock() - start) * 1e3, lr = lr })
  if self.nan ~= "off" and (result.loss ~= result.loss or math.abs(result.loss) == math.huge) then
    if self.nan == "stop" then
      error(core.error { code = "numeric", message = ("the loss is %s at step %d"):format(result.loss, self.n_step),
        hint = "try a smaller learning rate, or nan = \"off\"" }, 0)
    end
  end
  return result
end

--- Loss and metrics over a whole data set, weighted by rows.
-- @return table {loss =, <metric> =, n = rows}
function Trainer:evaluate(set)
  learn_spec(self, set:spec())
  local sums, n = {}, 0
  for batch in set:epoch(1) do
    local entry = program_for(self, batch.n, false)
    run(self, entry, batch)
    for name, value in pairs(read_metrics(self, entry, {})) do sums[name] = (sums[name] or 0) + value * batch.n end
    n = n + batch.n
  end
  local out = { n = n }
  for name, value in pairs(sums) do out[name] = value / n end
  return out
end

--- Output of the model for a batch x; a copy.
function Trainer:predict(x)
  self.model:eval()
  return self.model(x)
end

local function checkpoint_name(o) return o.checkpoint end

--- Where a run stands, as text fields beside the tensors of the checkpoint.
function Trainer:save(path)
  return self.ws:save(path, { n_step = tostring(self.n_step), n_epoch = tostring(self.n_epoch), n_in_epoch = tostring(self.n_in_epoch),
    lr = ("%a"):format(self.optimizer.lr) })
end

--- Goes back to a saved state. Parameters and optimizer state are made first, if need be.
function Trainer:load(path, spec)
  if spec then
    learn_spec(self, spec)
    program_for(self, self.batch, true)
  end
  local meta, message, code = self.ws:load(path)
  if meta == nil then return nil, message, code end
  self.n_step, self.n_epoch, self.n_in_epoch = math.tointeger(tonumber(meta.n_step or 0)), math.tointeger(tonumber(meta.n_epoch or 0)),
    math.tointeger(tonumber(meta.n_in_epoch or 0))
  if meta.lr then self.optimizer.lr = tonumber(meta.lr) end
  return self
end

--- Trains. `resume` goes on from the checkpoint file if there is one, in the middle of an epoch too.
-- @param set data set
-- @param given table { epochs = 1, steps =, valid = data set, checkpoint = path, resume = bool, patience = n, verbose = 0|1|2,
--   on_step = f(result), on_epoch = f(record) }
-- @return history: list of {epoch, loss, <metric>, valid = {loss =, ...}, seconds}
function Trainer:fit(set, given)
  local o = options.read("fit", { epochs = none, steps = none, valid = none, checkpoint = none, resume = false, patience = none, verbose = 1,
    on_step = none, on_epoch = none, every = none }, given, 2)
  local spec = set:spec()
  learn_spec(self, spec)
  self.batch = spec.batch
  if o.resume and o.checkpoint and io.open(o.checkpoint, "rb") then assert(self:load(o.checkpoint, spec)) end
  local last_epoch = self.n_epoch + (o.epochs or (o.steps and math.huge) or 1)
  if o.resume and o.epochs then last_epoch = o.epochs end
  local last_step = o.steps and (o.resume and o.steps or self.n_step + o.steps) or math.huge
  local best, since = math.huge, 0
  while self.n_epoch < last_epoch and self.n_step < last_step do
    local epoch, start = self.n_epoch + 1, core.clock()
    local bar = progress.new { title = "epoch " .. epoch, total = math.min(#set, o.steps and last_step - self.n_step + self.n_in_epoch or #set),
      verbose = o.verbose }
    local sums, n = {}, 0
    for batch in set:epoch(epoch, self.n_in_epoch + 1) do
      local result = self:step(batch)
      self.n_in_epoch = self.n_in_epoch + 1
      for _, name in ipairs { "loss", table.unpack(self.metrics) } do sums[name] = (sums[name] or 0) + result[name] * batch.n end
      n = n + batch.n
      bar:update(self.n_in_epoch, { loss = sums.loss / n })
      if o.on_step then o.on_step(result, self) end
      if self.n_step >= last_step then break end
    end
    if self.n_in_epoch >= #set then self.n_epoch, self.n_in_epoch = epoch, 0 end
    local record = { epoch = epoch, step = self.n_step, seconds = core.clock() - start }
    for name, value in pairs(sums) do record[name] = value / n end
    if o.valid then record.valid = self:evaluate(o.valid) end
    self.records[#self.records + 1] = record
    local shown = { loss = record.loss, accuracy = record.accuracy }
    if record.valid then shown["valid loss"], shown["valid accuracy"] = record.valid.loss, record.valid.accuracy end
    bar:finish(shown)
    if o.checkpoint then assert(self:save(checkpoint_name(o))) end
    if o.on_epoch then o.on_epoch(record, self) end
    local judged = record.valid and record.valid.loss or record.loss or math.huge
    if judged < best then best, since = judged, 0 else since = since + 1 end
    if o.patience and since >= o.patience then break end
  end
  return self.records
end

function Trainer:history() return self.records end

--- The program of a training step (of the batch size trained with, or `batch`).
function Trainer:program(batch)
  if not (batch or self.batch) then error("the batch size is not known yet: fit or step first, or give it: t:program(64)", 2) end
  self.batch = batch or self.batch
  if not self.input then self.input, self.input_dtype = self.model.input_shape, self.model.input_dtype or "f32" end
  return program_for(self, self.batch, true).program
end

--- Its plan.
function Trainer:plan(batch) return self:program(batch).plan end

Trainer.__close = function(self)
  for _, entry in pairs(self.programs) do entry.program:close() end
  self.programs = {}
end

return new
