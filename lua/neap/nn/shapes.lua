--- Layers that pad, cut and reshape, and those that compare two inputs.
-- @module neap.nn.shapes
local init = require "neap.nn.initializers"
local module = require "neap.nn.module"
local widths = require "neap.nn.widths"

local Module, class = module.Module, module.class
local per_dim = widths.per_dim
local shapes = {}

-- ---- frames around images -----------------------------------------------------------------------

--- A layer that pads `rank` spatial dimensions in a mode; one that pads by a number may name it.
local function padding(name, mode, rank, doc, has_value)
  local options = { doc = doc, positions = { "pad" }, example = ("nn.%s(1)"):format(name),
    { "pad", "sizes", required = true, min = 0, n = rank, most_n = 2 * rank,
      doc = "one for all sides, one for each dimension, or all at the beginning and then all at \z
        the end" } }
  if has_value then
    options.positions[2] = "value"
    options[2] = { "value", "number", 0, doc = "what is added" }
  end
  return class { name, name = "pad", options = options,
    init = function(self, o)
      -- The op pads all dimensions, (N,C,..): all that stand before, then all that stand behind.
      -- Images are left alone in the first two.
      local pad, pads = per_dim(o.pad, rank), { 0, 0 }
      for d = 1, rank do pads[2 + d] = pad[d] end
      table.move({ 0, 0 }, 1, 2, rank + 3, pads)
      for d = 1, rank do pads[rank + 4 + d] = pad[rank + d] or pad[d] end
      self.o = { pads = pads, mode = mode, value = o.value }
    end,
    forward = function(self, x) return Module.op(self, "Pad", { x }, self.o) end }
end

for rank = 1, 3 do
  local d = rank .. "d"
  shapes["ZeroPad" .. d] = padding("ZeroPad" .. d, "constant", rank, "A frame of zeros.")
  shapes["ConstantPad" .. d] = padding("ConstantPad" .. d, "constant", rank,
    "A frame of one number.", true)
  shapes["ReflectionPad" .. d] = padding("ReflectionPad" .. d, "reflect", rank,
    "A frame in which x is mirrored, its edge not repeated.")
  shapes["ReplicationPad" .. d] = padding("ReplicationPad" .. d, "edge", rank,
    "A frame that repeats the edge of x.")
  shapes["CircularPad" .. d] = padding("CircularPad" .. d, "wrap", rank,
    "A frame as if x began again behind its end.")
end

-- ---- other looks --------------------------------------------------------------------------------

shapes.Flatten = class { "Flatten",
  options = { doc = "Makes one dimension of several neighbours; by default of all but the first.",
    positions = { "axis", "last" }, { of = "Flatten.axis" }, { of = "Flatten.last" },
    example = "nn.Flatten()" },
  init = function(self, o) self.o = { axis = o.axis, last = o.last } end,
  forward = function(self, x) return Module.op(self, "Flatten", { x }, self.o) end }

shapes.Unflatten = class { "Unflatten",
  options = { doc = "Makes several dimensions of one.", positions = { "axis", "sizes" },
    { "axis", "axis", 2, doc = "the dimension" },
    { "sizes", "table", required = true, doc = "what it becomes; one may be -1",
      says = "sizes such as { 3, -1 }" },
    example = "nn.Unflatten { 2, { 16, 7, 7 } }" },
  init = function(self, o) self.axis, self.sizes = o.axis, o.sizes end,
  forward = function(self, x)
    -- sizes: those before the axis, those that it becomes, those behind.
    local shape, sizes = x.shape, {}
    local at = self.axis < 0 and #shape + 1 + self.axis or self.axis
    table.move(shape, 1, at - 1, 1, sizes)
    table.move(self.sizes, 1, #self.sizes, #sizes + 1, sizes)
    table.move(shape, at + 1, #shape, #sizes + 1, sizes)
    return x:reshape(sizes)
  end }

--- Unfold or Fold, whose windows are alike.
local function patches(name, o)
  local function size(field, default, doc)
    return { field, "sizes", default, min = default == 0 and 0 or 1, n = 2, doc = doc }
  end
  local kernel = size("kernel", nil, "sizes of a patch")
  kernel.required = true
  for _, option in ipairs { kernel, size("stride", 1, "from patch to patch"),
    size("pad", 0, "zeros on both sides"),
    size("dilation", 1, "from element to element of a patch") } do
    o[#o + 1] = option
  end
  return class { name, options = o,
    init = function(self, given)
      self.o = {}
      for _, option in ipairs(o) do
        if given[option[1]] then self.o[option[1]] = per_dim(given[option[1]], 2) end
      end
    end,
    forward = function(self, x) return Module.op(self, name, { x }, self.o) end }
end

shapes.Unfold = patches("Unfold", { doc = "Patches of images as columns: (N, C k1 k2, patches).",
  positions = { "kernel" }, example = "nn.Unfold { 3, pad = 1 }" })
shapes.Fold = patches("Fold", { doc = "Columns of patches added up to images (N,C,H,W).",
  positions = { "sizes", "kernel" },
  { "sizes", "sizes", required = true, min = 1, n = 2, doc = "height and width of the images" },
  example = "nn.Fold { { 8, 8 }, 2, stride = 2 }" })

-- ---- two inputs ---------------------------------------------------------------------------------

shapes.Bilinear = class { "Bilinear",
  options = { doc = "y_o = a^T weight_o b + bias_o of two inputs (.., n_a) and (.., n_b).",
    positions = { "n_a", "n_b", "n_out" },
    { "n_a", "integer", min = 1, required = true, doc = "width of the first input" },
    { "n_b", "integer", min = 1, required = true, doc = "width of the second" },
    { "n_out", "integer", min = 1, required = true, doc = "width of the output" },
    { "bias", "boolean", true, doc = "whether a bias is added" },
    { "init", "initial", unset = "uniform in +-sqrt(1 / n_a)", doc = "how the weight starts" },
    example = "nn.Bilinear { 8, 4, 2 }" },
  init = function(self, o)
    local bound = 1 / math.sqrt(o.n_a)
    local uniform = init.uniform { -bound, bound }
    self.has_bias = o.bias
    self:param("weight", { o.n_out, o.n_a, o.n_b }, o.init or uniform)
    if o.bias then self:param("bias", { o.n_out }, uniform) end
  end,
  forward = function(self, a, b)
    return Module.op(self, "Bilinear", { a, b, self.weight, self.has_bias and self.bias or nil })
  end }

shapes.CosineSimilarity = class { "CosineSimilarity", name = "similarity",
  options = { doc = "Cosine of the angle between two vectors, along a dimension.",
    positions = { "axis" }, { of = "CosineSimilarity.axis" }, { of = "CosineSimilarity.eps" },
    example = "nn.CosineSimilarity()" },
  init = function(self, o) self.o = { axis = o.axis, eps = o.eps } end,
  forward = function(self, a, b) return Module.op(self, "CosineSimilarity", { a, b }, self.o) end }

shapes.PairwiseDistance = class { "PairwiseDistance", name = "distance",
  options = { doc = "p-norm of the difference of two inputs (.., n), eps added to each element.",
    positions = { "p" }, { of = "Norm.p" },
    { "eps", "number", 1e-6, min = 0, doc = "added to each element of the difference" },
    { "keepdim", "boolean", false, doc = "leave the last dimension in the shape, as 1" },
    example = "nn.PairwiseDistance()" },
  init = function(self, o) self.eps, self.o = o.eps, { p = o.p, keepdim = o.keepdim, axes = { -1 } }
  end,
  forward = function(self, a, b)
    return Module.op(self, "Norm", { a - b + self.eps }, self.o)
  end }

-- ---- bags ---------------------------------------------------------------------------------------

shapes.EmbeddingBag = class { "EmbeddingBag",
  options = { doc = [[Means, sums or greatest of rows of a table: ids (N,L), a bag a row, or (N) and
      a second argument that says where each bag begins.]],
    positions = { "n_row", "width" },
    { "n_row", "integer", min = 1, required = true, doc = "rows of the table" },
    { "width", "integer", min = 1, required = true, doc = "length of a row" },
    { of = "EmbeddingBag.mode" },
    { "padding_idx", "integer", unset = "none",
      doc = "a row that counts for nothing and gets no gradient" },
    { "init", "initial", unset = "normal, mean 0, deviation 1", doc = "how the table starts" },
    example = "nn.EmbeddingBag { 1000, 64 }" },
  init = function(self, o)
    self.o = { mode = o.mode, padding_idx = o.padding_idx }
    self:param("weight", { o.n_row, o.width }, o.init or init.normal { 0, 1 })
  end,
  forward = function(self, ids, offsets)
    return Module.op(self, "EmbeddingBag", { ids, self.weight, offsets }, self.o)
  end }

return shapes
