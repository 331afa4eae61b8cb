--- The scale of the loss in mixed precision of f16: what the loss is multiplied by before it is
-- differentiated, so that gradients do not vanish among the smallest numbers of f16, and gradients
-- are divided by before anybody reads them. It is an input of the step's net: another one needs no
-- new program.
--
-- `trainer.scale` is { dynamic = bool, from =, every = } or nil; the scale that comes next and the
-- updates since it has changed last are numbers of the position, loss_scale and scaled, so that
-- checkpoints have them.
--
-- INVARIANT: a scale is a power of two as long as the one it began with is: no digit of a gradient
-- changes with it.
-- @module neap.train.scale
local core = require "neap.core"
local record = require "neap.inner.record"
local fail = core.fail

local scale = {}

-- The engine multiplies the loss by this in mixed precision of f16 itself (src/build/
-- gradient_op.c): what the net is fed is the rest.
local OF_ENGINE <const> = 1024

-- PyTorch's GradScaler has the same numbers.
local GROWTH <const>, BACKOFF <const> = 2, 0.5

-- Below this nothing is won: what overflows there does so by itself.
local LEAST <const> = 1

local dynamic_options = record.new("neap.trainer: loss_scale", {
  { "from", "number", 65536, above = 0, doc = "the scale of the first step" },
  { "every", "integer", 2000, min = 1,
    doc = "updates one after another, all finite, behind which the scale is doubled" },
  example = "loss_scale = { from = 1024, every = 500 }" })

--- loss_scale = number, "dynamic" or { from =, every = }, read for a trainer.
-- @param dtype string|nil of its mixed precision
-- @param accumulate table|nil
-- @return {dynamic =, from =, every =}; nil: none is given
function scale.read(given, dtype, accumulate)
  if given == nil then return nil end
  if dtype ~= "f16" then
    fail(("neap.trainer: loss_scale is for dtype = \"f16\", got dtype = \"%s\": gradients of %s \z
      need no scale"):format(dtype or "f32", dtype or "f32"))
  end

  -- A batch that is held would bring its infinities to those that come after it.
  if accumulate then
    fail "neap.trainer: loss_scale does not go with accumulate: a batch held can't be passed by \z
      when the update fails; micro does"
  end
  if type(given) == "number" then return { dynamic = false, from = given } end
  local o = dynamic_options:read(given == "dynamic" and {} or given)
  return { dynamic = true, from = o.from, every = o.every }
end

--- The scale of the step that comes.
function scale.now(self)
  local s = self.position.loss_scale
  return s > 0 and s or self.scale.from
end

--- Feeds it; the workspace's tensor is used again and again.
function scale.feed(self)
  if not self.scale then return end
  self.scale.tensor = self.scale.tensor or core.tensor(0.0)
  self.scale.tensor:set(scale.now(self) / OF_ENGINE)
  self.ws:feed("loss_scale", self.scale.tensor)
end

--- What the position becomes by an update: a scale that has held for long is doubled.
-- @return changes of the position
function scale.grown(self)
  if not (self.scale and self.scale.dynamic) then return {} end
  local p = self.position
  if p.scaled + 1 < self.scale.every then return { scaled = p.scaled + 1 } end
  local more = scale.now(self) * GROWTH
  -- A scale that is no number any more would be no scale.
  return { scaled = 0, loss_scale = more < 2 ^ 100 and more or scale.now(self) }
end

--- Whether an error of a run says that gradients, and not the loss, are not finite.
function scale.is_overflow(err)
  return type(err) == "table" and rawget(err, "blob") == "unchecked_norm"
end

--- What the position becomes where gradients were not finite; nil where the scale can't help.
function scale.shrunk(self)
  if not (self.scale and self.scale.dynamic) then return nil end
  local less = scale.now(self) * BACKOFF
  if less < LEAST then return nil end
  return { scaled = 0, loss_scale = less }
end

--- The option of a trainer.
scale.field = {
  "loss_scale", "number|choice|table", above = 0, choices = { "dynamic" }, unset = "1024",
  says = "a number, \"dynamic\", or { from = 65536, every = 2000 }",
  doc = [[of dtype = "f16" alone: what the loss is multiplied by before it is differentiated, and
      gradients are divided by again. A step whose gradients are not finite changes nothing: with a
      number `nan` decides what follows (with "off" the batch is passed by); "dynamic" passes the
      batch by and halves the scale, which begins at 65536 and is doubled behind 2000 updates, as
      PyTorch's GradScaler does; { from =, every = } are other such numbers. Steps tell it as
      loss_scale, and checkpoints keep it]],
}

return scale
