--- Widths that layers may leave out: they are learnt from the first input of the first net.
-- @module neap.nn.widths
local tree = require "neap.nn.tree"
local widths = {}

--- Declares the layer's parameters, or waits for an input where the width is not known.
-- @param self module with `declare`
-- @param known integer|nil
function widths.declare_or_wait(self, known)
  if known then self:declare() else self._lazy = true end
end

--- Called by forward: the field's width is that of dimension d of x.
function widths.learn(self, field, x, d)
  if not self._lazy then return end
  self[field] = x:size(d)
  self:declare()
  self._lazy = false
  tree.changed(self)
end

--- One number for each of n dimensions, from such a list, a list of one, or a number.
function widths.per_dim(value, n)
  if type(value) == "table" and #value ~= 1 then return value end
  local one, out = type(value) == "table" and value[1] or value, {}
  for i = 1, n do out[i] = one end
  return out
end

return widths
