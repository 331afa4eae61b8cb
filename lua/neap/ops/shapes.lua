--- Ops that lay elements out anew, made of views, concatenations and choices.
-- @module neap.ops.shapes
local core = require "neap.core"
local compose = require "neap.ops.compose"
local kit = require "neap.ops.kit"
local op = require "neap.op"
local fail = core.fail

local function moves(spec)
  spec.exact = true
  compose.define(spec)
end

local function copy(list) return table.move(list, 1, #list, 1, {}) end

moves { "Stack",
  summary = "Joins tensors of one shape along a new dimension.",
  math = "y_k.. = x_k",
  example = 'net:Stack({"a", "b"}, "y", {axis = 1})',
  source = "torch.stack",
  inputs = { { "x", "all of one shape", dtypes = "any", variadic = true } },
  outputs = { { "y", "shape of x with one dimension more" } },
  { "axis", "axis", 1, doc = "where the new dimension stands" },
  cases = "{ {x={{2,3},{2,3},{2,3}}}, {x={{2,3},{2,3}}, axis=-1}, {x={{},{}}} }",
  of = function(o, list)
    local at, parts = kit.axis("Stack", list[1], o.axis, 1), {}
    for i, x in ipairs(list) do
      kit.same_shape("Stack", list[1], x, "input 1", "input " .. i)
      parts[i] = x:unsqueeze { axes = { at } }
    end
    return #parts > 1 and op.apply("Concat", parts, { axis = at }) or parts[1]
  end }

--- Raises where there would be more outputs than an op may have.
local function check_parts(name, n)
  if n >= 4096 then fail(("%s: %d parts; at most 4095"):format(name, n)) end
end

moves { "Chunk",
  summary = "Cuts a tensor into so many parts along one dimension, the last perhaps shorter.",
  math = "y_k = x[k s .. (k + 1) s], s = ceil(n / chunks)",
  example = 'net:Chunk("x", {"a", "b", "c"}, {chunks = 3, axis = -1})',
  source = "torch.chunk",
  inputs = { { "x", "any shape", dtypes = "any" } },
  outputs = { { "y", "the parts", variadic = true } },
  { "chunks", "integer", required = true, min = 1, doc = "how many parts; fewer where too short" },
  { "axis", "axis", 1, doc = "the dimension that is cut" },
  cases = "{ {x={7,2}, chunks=3}, {x={2,6}, chunks=3, axis=-1} }",
  of = function(o, x)
    local at, parts = kit.axis("Chunk", x, o.axis), {}
    local n = x.shape[at]
    local size = math.max((n - 1) // o.chunks + 1, 1)
    check_parts("Chunk", n // size)
    for from = 0, math.max(n - 1, 0), size do
      parts[#parts + 1] = x:slice {
        axes = { at }, starts = { from + 1 }, ends = { math.min(from + size, n) },
      }
    end
    return table.unpack(parts)
  end }

moves { "Unbind",
  summary = "All slices of a tensor along a dimension, without it.",
  math = "y_k = x_k..",
  example = 'net:Unbind("x", {"a", "b"}, {axis = 1})',
  source = "torch.unbind",
  inputs = { { "x", "any shape but a scalar", dtypes = "any" } },
  outputs = { { "y", "shape of x without the dimension", variadic = true } },
  { "axis", "axis", 1, doc = "the dimension that goes" },
  cases = "{ {x={3,4}}, {x={2,3,4}, axis=-1} }",
  of = function(o, x)
    local at, parts = kit.axis("Unbind", x, o.axis), {}
    check_parts("Unbind", x.shape[at])
    for k = 1, x.shape[at] do
      parts[k] = x:slice({ axes = { at }, starts = { k }, ends = { k } }):squeeze { axes = { at } }
    end
    return table.unpack(parts)
  end }

moves { "RepeatInterleave",
  summary = "Every position of a dimension so many times, one behind the other.",
  math = "y_i = x_(i // repeats)",
  example = 'net:RepeatInterleave("x", "y", {repeats = 2, axis = 1})',
  source = "torch.repeat_interleave",
  inputs = { { "x", "any shape", dtypes = "any" } },
  outputs = { { "y", "that dimension times repeats" } },
  { "repeats", "integer", required = true, min = 0, doc = "how often each position comes" },
  { "axis", "axis", 1, doc = "the dimension" },
  cases = "{ {x={3,2}, repeats=2}, {x={2,3}, repeats=3, axis=-1}, {x={4}, repeats=1} }",
  of = function(o, x)
    local at = kit.axis("RepeatInterleave", x, o.axis)

    -- A dimension of `repeats` behind the one that is repeated, by expansion: no copy until the
    -- reshape.
    local wide, sizes = copy(x.shape), copy(x.shape)
    table.insert(wide, at + 1, o.repeats)
    sizes[at] = sizes[at] * o.repeats
    return x:unsqueeze({ axes = { at + 1 } }):expand(wide):reshape(sizes)
  end }

moves { "MaskedFill",
  summary = "A value where the mask is true, the tensor's elements elsewhere.",
  math = "y = mask ? value : x",
  example = 'net:MaskedFill({"scores", "mask"}, "y", {value = -1e30})',
  source = "torch.Tensor.masked_fill",
  inputs = { { "x", "any shape", dtypes = "any" },
    { "mask", "broadcasts with x", dtypes = "bool" } },
  outputs = { { "y", "broadcast shape" } },
  { "value", "any", 0, says = "a number", doc = "what takes the place; may be infinite" },
  cases = "{ {x={3,4}, mask={3,4}, value=2}, {x={2,3,4}, mask={4}} }",
  of = function(o, x, mask)
    if type(o.value) ~= "number" then fail "MaskedFill: value expects a number" end
    return kit.where(mask, o.value, x)
  end }

moves { "MaskedSelect", extent = true,
  summary = "The elements where the mask is true, in one row; how many is known when it has run.",
  math = "y = (x_i where mask_i)",
  example = 'net:MaskedSelect({"x", "mask"}, "y")',
  source = "torch.masked_select",
  inputs = { { "x", "any shape", dtypes = "any" },
    { "mask", "broadcasts with x", dtypes = "bool" } },
  outputs = { { "y", "(k)" } },
  cases = "{ {x={3,4}, mask={3,4}, grad=false}, {x={2,3,1}, mask={4}, grad=false} }",
  of = function(_, x, mask)
    local sizes = kit.broadcast("MaskedSelect", x.shape, mask.shape)
    local function row(t) return t:expand(sizes):reshape(-1) end
    return op.apply("Compress", { row(x), row(mask) }, { axis = 1 })
  end }

moves { "Diag",
  summary = "A square matrix with a vector in its diagonal, of each vector.",
  math = "y_ii = x_i, else 0",
  example = 'net:Diag("x", "y")',
  source = "torch.diag_embed",
  inputs = { { "x", "(.., n)", dtypes = "any" } },
  outputs = { { "y", "(.., m, m), m = n + |offset|" } },
  { "offset", "integer", 0, min = -math.maxinteger,
    doc = "diagonals above the main one; below it where negative" },
  cases = "{ {x={4}}, {x={2,3}, offset=1}, {x={3}, offset=-2} }",
  of = function(o, x)
    if #x.shape == 0 then fail "Diag: x expects a dimension, got a scalar" end
    local n, k = x.shape[#x.shape], math.abs(o.offset)
    -- x is moved to the rows that have an element, and stands in the diagonal's column.
    if k > 0 then
      x = x:pad { pads = o.offset > 0 and { 0, k } or { k, 0 }, axes = { -1 } }
    end
    local rows = kit.range(x, n + k):unsqueeze { axes = { 2 } }
    local on = rows:add(o.offset):eq(kit.range(x, n + k))
    return kit.where(on, x:unsqueeze { axes = { -1 } }, 0)
  end }

moves { "Diagonal",
  summary = "The diagonal of two dimensions, as the last one.",
  math = "y_..i = x_..i,i+offset",
  example = 'net:Diagonal("x", "y", {offset = 1})',
  source = "torch.diagonal",
  inputs = { { "x", "two dimensions or more", dtypes = "any" } },
  outputs = { { "y", "shape of x without the two, the diagonal behind" } },
  { "offset", "integer", 0, doc = "diagonals above the main one; below it where negative" },
  { "axis1", "axis", -2, doc = "the dimension of rows" },
  { "axis2", "axis", -1, doc = "the dimension of columns" },
  cases = "{ {x={4,4}}, {x={3,5}, offset=1}, {x={5,3}, offset=-1}, {x={3,2,3}, axis1=1, axis2=3} }",
  of = function(o, x)
    local a, b = kit.axis("Diagonal", x, o.axis1), kit.axis("Diagonal", x, o.axis2)
    if a == b then fail "Diagonal: axis1 and axis2 are one dimension" end

    -- The two dimensions go to the end, as rows of one plane.
    local order, sizes = {}, {}
    for d = 1, #x.shape do
      if d ~= a and d ~= b then order[#order + 1], sizes[#sizes + 1] = d, x.shape[d] end
    end
    local n, m = x.shape[a], x.shape[b]
    -- Beyond the corners there is nothing, however far.
    local offset = math.max(-n, math.min(o.offset, m))
    local long = math.min(n - math.max(-offset, 0), m - math.max(offset, 0))
    order[#order + 1], order[#order + 2] = a, b
    -- In rows laid end to end the diagonal is every (m + 1)th element.
    local flat = copy(sizes)
    flat[#flat + 1], sizes[#sizes + 1] = n * m, long
    local rows = x:permute(order):reshape(flat)
    local first = offset >= 0 and offset or -offset * m
    if long == 0 then return rows:slice { axes = { -1 }, starts = { 1 }, ends = { 0 } } end
    return rows:slice({ axes = { -1 }, starts = { first + 1 },
      ends = { first + 1 + (long - 1) * (m + 1) }, steps = { m + 1 } }):reshape(sizes)
  end }

compose.define { "OneHot", exact = true, no_grad = true,
  summary = "One value at the position that each index says, another one elsewhere.",
  math = "y_..k = indices == k ? on : off",
  example = 'net:OneHot("labels", "y", {depth = 10})',
  source = "ONNX OneHot-11",
  inputs = { { "indices", "any shape; negative ones count from the end", dtypes = "integer" } },
  outputs = { { "y", "shape of indices with depth at the axis" } },
  { "depth", "integer", required = true, min = 1, doc = "how many positions" },
  { "axis", "axis", -1, doc = "where the new dimension stands" },
  { "on", "number", 1, doc = "the value at the index" },
  { "off", "number", 0, doc = "the value elsewhere; everywhere for an index out of range" },
  { "dtype", "dtype", "f32", doc = "of the result" },
  cases = "{ {indices={{3}, low=0, high=4}, depth=4}, "
    .. "{indices={{2,3}, low=-2, high=2}, depth=2, axis=1, on=5, off=-1, dtype='i64'} }",
  of = function(o, x)
    local at = kit.axis("OneHot", x, o.axis, 1)
    local sizes = {}
    for d = 1, #x.shape + 1 do sizes[d] = d == at and o.depth or 1 end
    x = x:to "i64"
    local positions = kit.range(x, o.depth):reshape(sizes)

    -- Negative indices count from the end; one that is out of range meets no position.
    local wrapped = kit.where(x:lt(0), x + o.depth, x):unsqueeze { axes = { at } }
    local hot = wrapped:eq(positions)
    return kit.where(hot, kit.number(x, o.on, o.dtype), kit.number(x, o.off, o.dtype))
  end }

-- ---- channels -----------------------------------------------------------------------------------

moves { "PixelShuffle",
  summary = "Makes images larger: groups of channels become squares of pixels.",
  math = "y[c, h r + i, w r + j] = x[(c r + i) r + j, h, w]",
  example = 'net:PixelShuffle("x", "y", {factor = 2})',
  source = "torch.nn.PixelShuffle; Shi et al., CVPR 2016",
  inputs = { { "x", "(.., c r^2, h, w)", dtypes = "any" } },
  outputs = { { "y", "(.., c, h r, w r)" } },
  { "factor", "integer", required = true, min = 1, doc = "the side of a square, r" },
  cases = "{ {x={2,8,3,2}, factor=2} }",
  of = function(o, x) return x:depth_to_space { blocksize = o.factor, mode = "crd" } end }

moves { "PixelUnshuffle",
  summary = "Makes images smaller: squares of pixels become channels; PixelShuffle undone.",
  math = "y[(c r + i) r + j, h, w] = x[c, h r + i, w r + j]",
  example = 'net:PixelUnshuffle("x", "y", {factor = 2})',
  source = "torch.nn.PixelUnshuffle",
  inputs = { { "x", "(.., c, h r, w r)", dtypes = "any" } },
  outputs = { { "y", "(.., c r^2, h, w)" } },
  { "factor", "integer", required = true, min = 1, doc = "the side of a square, r" },
  cases = "{ {x={2,2,6,4}, factor=2} }",
  of = function(o, x) return x:space_to_depth { blocksize = o.factor, mode = "crd" } end }

moves { "ChannelShuffle",
  summary = "Deals the channels of groups out in turns.",
  math = "y[k g + i] = x[i (c / g) + k]",
  example = 'net:ChannelShuffle("x", "y", {groups = 2})',
  source = "torch.nn.ChannelShuffle; Zhang et al., CVPR 2018",
  inputs = { { "x", "(n, c, ..)", dtypes = "any" } },
  outputs = { { "y", "shape of x" } },
  { "groups", "integer", required = true, min = 1, doc = "g, a divisor of the channels" },
  cases = "{ {x={2,6,3,2}, groups=3}, {x={2,4}, groups=2} }",
  of = function(o, x)
    local c, g = x.shape[2], o.groups
    if c == nil or c % g ~= 0 then
      fail(("ChannelShuffle: x is (%s), expected channels that %d groups share evenly"):format(
        table.concat(x.shape, ","), g))
    end

    -- (n, g, c / g, ..) with the middle two exchanged.
    local sizes, order = { x.shape[1], g, c // g }, { 1, 3, 2 }
    for d = 3, #x.shape do sizes[d + 1], order[d + 1] = x.shape[d], d + 1 end
    return x:reshape(sizes):permute(order):reshape(x.shape)
  end }
