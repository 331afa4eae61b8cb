--- A net of Caffe's as a module: its parameters can be trained, frozen and saved. Its forward goes
-- through the file's layers each time a net is built of it: those of TRAIN where the net trains,
-- those of TEST else, unless one phase was asked for.
--
-- Forward's arguments are called as the tops of data: a batch has fields data and label, say, or x
-- and y, the first one and the last. Where the layers have losses, the first result is the sum of
-- them all, each times its weight.
-- @module neap.caffe.module
local context = require "neap.nn.context"
local forward = require "neap.nn.forward"
local core = require "neap.core"
local graph = require "neap.caffe.graph"
local imported = require "neap.nn.imported"
local kit = require "neap.caffe.kit"
local module = require "neap.nn.module"
require "neap.nn" -- whatever a module can
local op = require "neap.op"

--- What is known of a parameter in all phases: its record, and the layers that read it.
local function declare_all(self, found)
  local own = self._caffe
  for _, spec in ipairs(found) do
    -- A layer may be another in each phase, but what it has learnt is one; Caffe refuses it, too.
    local known = own.records[spec.key]
    local shape, other = table.concat(spec.shape, ","), known and table.concat(known.shape, ",")
    if known and shape ~= other and not spec.permissive then
      spec.row.message:fail("%s: parameter \"%s\" has shape (%s) in one phase, and (%s) in the \z
        other; phase = \"TEST\" takes one alone", spec.row.message.name, spec.name or spec.suffix,
        other, shape)
    end
    if not known then
      own.records[spec.key] = imported.declare(self, {
        name = ("%s/%s"):format(spec.row.name, spec.suffix), shape = spec.shape, dtype = "f32",
        init = spec.filler.init, parameter = spec.role == "parameter",
        trainable = spec.lr_mult ~= 0 })
      own.specs[#own.specs + 1] = spec
    end
  end
end

--- The phase of the net being built.
local function phase_of(self)
  local building = context.building()
  return self._caffe.phase or building and building.train and "TRAIN" or "TEST"
end

-- What a net of a module declares behind its layers: the target and the rate.
local reserved = { x = true, y = true, lr = true }

--- The first results of forward: what trains, alone; else all outputs, the sum of losses first.
local function results_of(self, state)
  local total, results = graph.total(state), {}
  if total and context.building().train then return { total } end
  for _, top in ipairs(state.outputs) do
    -- a loss that stands alone is the sum itself
    local is_sum = #state.losses == 1 and state.losses[1].name == top
    if not is_sum then results[#results + 1] = state.env[top] end
  end
  if total then table.insert(results, 1, total) end

  if #results == 0 then kit.fail(("phase %s has no output"):format(phase_of(self))) end
  return results
end

local Model = module.class { "CaffeModel", name = "model",
  init = function(self, o)
    self._caffe = { phases = o.phases, phase = o.phase, records = {}, specs = {} }
    self._arguments = o.arguments
    declare_all(self, o.found)
    self._fields.input_shape = o.examples
    self._fields.input_dtype = "f32"
  end,
  forward = function(self, ...)
    local own, inputs, xs = self._caffe, {}, { ... }

    local phase = phase_of(self)
    for i, name in ipairs(self._arguments) do inputs[name] = xs[i] end
    for _, input in ipairs(own.phases[phase] and own.phases[phase].inputs or {}) do
      if inputs[input.name] == nil then
        core.fail(("nn.CaffeModel: phase %s reads %s, and got no \"%s\""):format(phase,
          table.concat(self._arguments, ", "), input.name))
      end
    end
    if not own.phases[phase] then
      core.fail(("nn.CaffeModel has no phase %s; its notes say why"):format(phase))
    end
    -- Kept for metrics, which ask for tops while the net is built.
    own.last = graph.run(own.phases[phase].rows, { net = op.net_of(xs[1]), phase = phase,
      inputs = inputs, reserved = reserved,
      make = function(_, spec) return forward.blob_of(own.records[spec.key]) end })
    return table.unpack(results_of(self, own.last))
  end,

  --- In a metric: a top of the net that is being built. What only TEST measures, as most files have
  -- it, is measured in training too where the tops are there that it reads.
  top = function(self, name)
    local state = self._caffe.last
    for _, row in ipairs(state.env[name] and {} or self._caffe.phases.TEST.rows) do
      if row.tops[1] == name then graph.add(state, row) end
    end
    return kit.reshape(state.env[name], {})
  end,

  --- m:data("TRAIN" | "TEST" [, rows]) -> the data set of that phase's data layer, where it is one
  -- that Neap knows by its source's name (MNIST, CIFAR-10).
  data = function(self, phase, rows)
    return require("neap.caffe.data").set(self._caffe.phases[phase], phase, rows)
  end,

  --- m:transform(phase) -> f(pixels) -> what the data layer of that phase makes of a batch of
  -- pictures of 0 to 255: their mean taken off, a part cut out, mirrored, scaled.
  transform = function(self, phase)
    return require("neap.caffe.data").transform(self._caffe.phases[phase], phase)
  end }

--- The loss of a model that has its losses in itself: its first output, whatever follows.
local Loss = module.class { "CaffeLoss", name = "loss", operands = 1,
  forward = function(_, loss, ...) -- luacheck: ignore 212
    -- Of a phase without a loss the first output comes here, which may be no number.
    if kit.product(loss.shape) ~= 1 then
      core.fail(("nn.CaffeLoss: the net has no loss in this phase, and gives \"%s\" of (%s), \z
        which is no number to judge by: call the model for it"):format(loss.name,
        table.concat(loss.shape, ",")))
    end
    return loss
  end }

return { Model = Model, Loss = Loss }
