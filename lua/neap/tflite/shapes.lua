--- TFLite's operators that move elements.
-- @module neap.tflite.shapes
local T = require "neap.tflite.kit"
local kit = require "neap.onnx.kit"
local F = kit.F

--- The shape that is asked for, of as many elements as x has. A file that was written for a batch
-- of one says 1 for its first size: of another batch that is the batch.
local function shape_for(n, x, list)
  local shape, known, open = kit.copy(list), 1, nil
  for i, size in ipairs(shape) do
    if size == -1 then
      if open then n:fail "two sizes of -1" end
      open = i
    elseif size < 0 then
      n:fail("a size of %d", size)
    else
      known = known * size
    end
  end
  local all, was = kit.product(x.shape), n.row.reads[1].dims
  local batch = was[1] == 1 and x.shape[1] or 1
  if batch > 1 and shape[1] == 1 and known > 0 and (open or known * batch == all) then
    shape[1], known = batch, known * batch
  end
  if open then
    if known == 0 or all % known ~= 0 then
      n:fail("(%s) does not fit x, (%s)", table.concat(list, ","), table.concat(x.shape, ","))
    end
    shape[open] = all // known
  end
  return shape
end

local function reshape(n)
  local x = T.plain(n, 1)
  local list = n.inputs[2] and n:list(2) or n:ints "new_shape"
  if not list then n:fail "there is no shape" end
  return kit.reshape(x, shape_for(n, x, list))
end

-- ---- softmax ------------------------------------------------------------------------------------

--- Along the last dimension.
local softmax = T.real(function(n, x)
  local beta = n:float("beta", 0)
  if beta ~= 1 then x = F.Mul { x, kit.number(beta, x.dtype) } end
  return F.Softmax(x, { axis = -1 })
end, { plain = true, round = function(x) return F.Round(x) end })

return function(op)
  op.RESHAPE = reshape
  op.SOFTMAX = softmax
end
