--- A layer as its builder sees it: its message of parameters, what it reads, and how it says what
-- comes out.
--
-- A builder f(n, bottoms ..) returns a result for each top: a blob, or n:gives(op, ..), whose
-- outputs get the tops' names.
-- @module neap.caffe.layer
local core = require "neap.core"
local fillers = require "neap.caffe.fillers"
local op = require "neap.op"

local Layer = {}
Layer.__index = Layer

--- "net.prototxt:12: layer "conv1" (Convolution)", for messages.
function Layer:place()
  return ("%s:%d: %s"):format(self.row.message.file, self.row.line, self.row.message.name)
end

--- Raises: what is wrong with this layer, formatted.
function Layer:fail(format, ...)
  local text = format:format(...)
  -- A field that is missing may be there, misspelt.
  local missing = text:match "^([%w_]+) is missing$"
  local field = missing and self.row.message:unread_near(missing)
  if field then
    text = ("%s; line %d has %s, which nothing reads"):format(text, field.line, field.name)
  end
  error(core.error { code = "data", message = ("%s: %s"):format(self:place(), text) }, 0)
end

--- Its message of parameters, "convolution_param".
function Layer:options(name) return self.row.message:message(name) end

function Layer:is_training() return self.state.phase == "TRAIN" end

--- The op that makes what comes out, named after the tops.
function Layer.gives(_, name, ins, attrs, n_out)
  if op.is_blob(ins) then ins = { ins } end
  return { op = name, ins = ins, attrs = attrs or {}, n = n_out or 1 }
end

--- The same for x times a number.
function Layer:times(x, factor)
  if factor == 1 then return x end
  return self:gives("Mul", { x, self.state.net:const(factor, x.dtype) })
end

-- ---- dimensions ---------------------------------------------------------------------------------

--- A dimension as Caffe counts it, from 0 or -1 at the end, as Neap does, from 1, of `rank`.
function Layer:axis(axis, rank)
  local at = axis < 0 and axis + rank + 1 or axis + 1
  if at < 1 or at > rank then
    self:fail("axis %d is out of range, there are %d", axis, rank)
  end
  return at
end

--- Raises where x, bottom i, counted from 1, has fewer dimensions than the layer reads.
function Layer:check_rank(i, x, least)
  if #x.shape < least then
    self:fail("bottom %d has %d dimensions, at least %d are expected", i, #x.shape, least)
  end
end

--- Raises unless the layer reads so many blobs.
function Layer:expect(least, most)
  local n = #self.row.bottoms
  if n < least or most and n > most then
    self:fail("%d bottoms, expected %s", n, most == least and ("%d"):format(least)
      or most and ("%d to %d"):format(least, most) or ("at least %d"):format(least))
  end
end

function Layer:same_shape(a, b)
  if table.concat(a.shape, ",") ~= table.concat(b.shape, ",") then
    self:fail("bottoms of shapes (%s) and (%s), one shape is expected",
      table.concat(a.shape, ","), table.concat(b.shape, ","))
  end
end

--- Values that must be 0 .. n - 1, as i64, in a shape.
function Layer:labels(x, shape)
  local kit = require "neap.caffe.kit"
  if kit.product(x.shape) ~= kit.product(shape) then
    self:fail("labels of shape (%s), one for each of (%s) is expected", table.concat(x.shape, ","),
      table.concat(shape, ","))
  end
  return kit.reshape(kit.cast(x, "i64"), shape)
end

-- ---- parameters ---------------------------------------------------------------------------------

--- The blob of parameter k, from 1.
-- @param suffix string its name behind the layer's, "weight"
-- @param filler Message|table of its filler, or { type =, value = }
function Layer:param(k, suffix, shape, filler)
  local p = self.row.params[k] or {}
  return self.state:declare { row = self.row, k = k, suffix = suffix, shape = shape,
    role = "parameter", name = p.name, permissive = p.permissive, lr_mult = p.lr_mult or 1,
    decay_mult = p.decay_mult or 1, filler = fillers.read(filler, shape) }
end

--- A statistic: state that no gradient reaches. What `param` says of it, Caffe obeys no more.
function Layer:statistic(k, suffix, shape, value)
  local p = self.row.params[k] or {}
  return self.state:declare { row = self.row, k = k, suffix = suffix, shape = shape, role = "state",
    name = p.name, filler = { init = { op = "Constant", value = value } } }
end

--- Writes the next value of a statistic.
function Layer:update(blob, value) self.state.net:op("Copy", { value }, { blob }) end

return Layer
