--- What is said of a name that a table or a value of the surface does not have: the name that was
-- meant, as far as one can tell.
-- @module neap.inner.missing
local core = require "neap.core"
local options = require "neap.inner.options"
local op = require "neap.op"

local missing = {}

-- What PyTorch and NumPy call things whose names in Neap no slip of letters would lead to; in snake
-- case, as op.snake has it.
local elsewhere = {
  cat = "concat", concatenate = "concat", mm = "mat_mul", bmm = "mat_mul", clip = "clamp",
  chunk = "split", negative = "neg", subtract = "sub", multiply = "mul", divide = "div",
  true_divide = "div", floor_divide = "floor_div", remainder = "mod", fmod = "mod", power = "pow",
  masked_fill = "where", avg_pool = "average_pool", cross_entropy = "softmax_cross_entropy",
  scaled_dot_product_attention = "attention", linear = "fc", swish = "silu", normal = "gaussian",
  detach = "stop_gradient", broadcast_to = "expand", expand_as = "expand", swapaxes = "transpose",
  t = "transpose", numpy = "totable", tolist = "totable", numel = "n_element", nbytes = "n_bytes",
  ndim = "dim", astype = "to", type = "to", from_numpy = "tensor", as_tensor = "tensor",
  array = "tensor", manual_seed = "seed",
}

--- The name of the list that was meant by `key`, or nil.
local function meant(key, names)
  -- Another library's word first: its letters may be nearer to something else.
  local called = elsewhere[op.snake(key)]
  for _, name in ipairs(called and names or {}) do
    if op.snake(name) == called then return name end
  end
  return options.nearest(key, names)
end

--- Raises at the user's line.
-- @param what string that begins the message: "neap", "a tensor"
-- @param key what was asked for
-- @param names list of what there is
-- @param otherwise string|nil said where none of them was meant
function missing.fail(what, key, names, otherwise)
  key = tostring(key)
  local name = meant(key, names)
  core.fail(('%s has no "%s"%s'):format(
    what, key, name and (', did you mean "%s"?'):format(name) or otherwise or ""))
end

--- The public names of tables, sorted: not Neap's own, which begin with `_`.
function missing.names(...)
  local names = {}
  for _, t in ipairs { ... } do
    for name in next, t do
      if type(name) == "string" and name:sub(1, 1) ~= "_" then names[#names + 1] = name end
    end
  end
  table.sort(names)
  return names
end

--- Closes a complete class of C's: a name that its values do not have is refused. Those that begin
-- with `_` are nobody's slip.
-- @param class table of methods, such as core.Tensor
function missing.close(class, what)
  setmetatable(class, { __index = function(_, key)
    if type(key) ~= "string" or key:sub(1, 1) == "_" then return nil end
    missing.fail(what, key, missing.names(class))
  end })
end

return missing
