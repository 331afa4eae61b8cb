--- The largest batch whose plan fits: planned, never allocated. The search is the engine's
-- (src/driver/fit_batch.c); here are the nets it asks for: a model's is built anew for each batch,
-- so that attributes may depend on it.
-- @module neap.memory.fit_batch
local core = require "neap.core"
local mem_param = require "neap.memory.mem_param"
local memory_options = require "neap.memory.options"
local module = require "neap.nn.module"
local op = require "neap.op"
local record = require "neap.inner.record"
local fail = core.fail

local fit_batch = {}

--- f(n) -> the net of batch n, and the memory options to plan it with.
local function source(subject, o, memory)
  -- A net keeps its ops, and only its inputs change; a model may build another net for another
  -- batch.
  if type(subject) == "userdata" then -- a net: its inputs' first dimension is the batch
    return function(n)
      memory.inputs = core.batch_inputs(subject, n)
      return subject, memory
    end
  end
  local loss = o.loss or o.train and require("neap.nn").CrossEntropyLoss {} or nil
  return function(n)
    return (subject:net {
        batch = n,
        train = o.train,
        loss = loss,
        optimizer = o.optimizer,
        input = o.input,
        input_dtype = o.input_dtype,
      }),
      memory
  end
end

--- The total for who names no figure: what this process can still take of the machine, but for an
-- eighth left to others.
function fit_batch.machine()
  local available = core.memory().available
  if available == 0 then
    fail("this system does not say how much memory it has left: give { total = bytes } or { \z
      budget = bytes }")
  end
  return available - available // 8, available
end

--- Says on standard error what was taken, since nobody asked for it in figures.
function fit_batch.tell(who, total, available)
  io.stderr:write(("neap: %s takes %s, seven eighths of the %s that are free here\n"):format(
    who, core.bytes_text(total), core.bytes_text(available)))
end

local fit_options = record.declare("neap.fit_batch", {
  doc = [[neap.fit_batch(model | net, { .. }) -> n, plan, total: the largest batch that fits; batch
    n + 1 does not. It takes the memory options, too; without total and budget it takes what the
    machine has free (control groups and ulimit looked at), and says so. Raises `budget` when not
    even one example fits.]],
  { "train", "boolean", false, doc = "whether a model is to be trained" },
  { "max", "integer", 65536, min = 1, doc = "the largest batch that is tried" },
  { "loss", "module", unset = "nn.CrossEntropyLoss() to train", doc = "a model's loss" },
  { "optimizer", "optimizer", unset = "none", doc = "what updates a model's parameters" },
  { "input", "shapes", unset = "the model's own", doc = "shape of one example" },
  { "input_dtype", "dtype", unset = "f32", doc = "dtype of a model's input" },
  example = 'neap.fit_batch(model, { total = "1GiB", train = true })' })

--- neap.fit_batch(model | net, {total = | budget =, train =, max =, loss =, optimizer =, input =,
-- input_dtype =, .. memory options}) -> n, plan, total. The largest batch that fits: batch n + 1
-- does not. Without total and budget it takes what the machine has free (control groups and ulimit
-- looked at), and says so. Raises `budget` when not even one example fits.
-- @usage local n, plan = neap.fit_batch(model, { total = "1GiB", train = true })
function fit_batch.fit(subject, given)
  if not op.is_net(subject) and not module.is_module(subject) then
    fail("neap.fit_batch takes a model or a net, got a " .. type(subject))
  end
  local fields, memory = memory_options.split("neap.fit_batch", given, "fit", fit_options)
  local o = fit_options:read(fields)
  local available

  -- Nobody named a limit: it is the machine's, and it is said what was taken.
  if not (memory.total or memory.budget) then
    memory.total, available = fit_batch.machine()
    fit_batch.tell("neap.fit_batch", memory.total, available)
  end
  local n, plan = core.fit_batch(source(subject, o, memory), o.max)
  return n, plan, memory.total
end

--- Gives a trainer of micro = "fit" that names no limit a total: what the machine has.
function fit_batch.limit(trainer)
  if trainer.memory.budget or trainer.memory.total then return end
  local available
  trainer.memory.total, available = fit_batch.machine()
  fit_batch.tell("neap.trainer's micro = \"fit\"", trainer.memory.total, available)
end

--- Rows of the largest micro-batch with which a trainer's step of `rows` fits its memory: the
-- programs of a micro-batch and of the update share one arena; their parameters and accumulators
-- are the same.
-- @param trainer trainer: see fit_batch.limit
-- @param net_of f(trainer, "micro", n) -> net, blobs, the update's net
function fit_batch.micro(trainer, rows, net_of)
  fit_batch.limit(trainer)

  -- The workspace of a trainer holds bytes that the plan of a micro-batch does not count; a budget
  -- is of the arena alone, and needs none of this.
  local memory = {}
  for key, value in pairs(mem_param.checked(trainer.memory)) do memory[key] = value end
  memory._beside = trainer.memory.total and trainer.reserve or nil

  -- The update's program and the accumulators are there whatever the rows: planned once, beside
  -- each try.
  local _, _, update = net_of(trainer, "micro", 1)
  local hold = trainer.accumulate and update:_split_hold() or nil
  return (core.fit_batch(function(n)
    return (net_of(trainer, "micro", n)), memory
  end, rows, update, hold))
end

require("neap.inner.guard").functions(fit_batch, "neap.fit_batch.")
return setmetatable(fit_batch, { __call = function(_, ...) return fit_batch.fit(...) end })
