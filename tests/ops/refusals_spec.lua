-- What single ops refuse, beyond what every record's test asks for (records_spec): the message says
-- what was expected and what came, and the net has no op of it.
local neap = require "neap"
local support = require "support"
local raises = support.raises

local nine = { 1, 1, 1, 1, 1, 1, 1, 1, 1 }

--- A net with inputs by name, {dtype, shape ..} each.
local function net_of(inputs)
  local net = neap.net "f"
  for name, dims in pairs(inputs) do
    local dtype = type(dims[1]) == "string" and table.remove(dims, 1) or nil
    net:input(name, dims, dtype)
  end
  return net
end

--- {op, {input = {sizes}}, names read, attributes, outputs, words that the message must contain}
local refused = {
  {
    "Expand", { x = { 1 } }, { "x" }, { shape = nine }, "y",
    { "shape has 9 dimensions", "at most 8" },
  },
  {
    "Reshape", { x = { 1 } }, { "x" }, { shape = nine }, "y",
    { "shape has 9 dimensions", "at most 8" },
  },
  {
    "Unsqueeze", { x = { 1, 1, 1, 1, 1, 1, 1 } }, { "x" }, { axes = { 1, 2 } }, "y",
    { "9 dimensions", "at most 8" },
  },
  { "Constant", {}, {}, { shape = nine }, "y", { "shape has 9 dimensions", "8" } },
  { "Constant", {}, {}, { shape = { -2 } }, "y", { "shape = -2 is out of range", "at least 0" } },
  {
    "Uniform", {}, {}, { shape = { 2 }, dtype = "i64" }, "y",
    { "dtype = i64 is not one that Uniform makes" },
  },
  {
    "Uniform", {}, {}, { shape = { 2 }, high = math.huge }, "y",
    { "low = 0 and high = inf expect to be numbers of f32" },
  },
  {
    "Uniform", {}, {}, { shape = { 2 }, high = 1e308 }, "y",
    { "low = 0 and high = 1e+308 expect to be numbers of f32" },
  },
  {
    "Uniform", {}, {}, { shape = { 2 }, low = -1e308, high = 1e308, dtype = "f64" }, "y",
    { "and their distance one of f64" },
  },
  {
    "Uniform", {}, {}, { shape = { 2 }, low = -1e6, dtype = "f16" }, "y",
    { "low = -1e+06 and high = 1 expect to be numbers of f16" },
  },
  {
    "Range", {}, {}, { stop = 4, dtype = "bool" }, "y",
    { "dtype = bool is not one that Range makes" },
  },
  {
    "Embedding", { i = { "i64", 1, 1, 1, 1, 1 }, w = { 2, 1, 1, 1, 1 } }, { "i", "w" }, {}, "y",
    { "9 dimensions", "at most 8" },
  },
  {
    "BatchNorm", { x = { 4, 2 }, g = { 2 }, b = { 2 } }, { "x", "g", "b" }, {}, "y",
    { "running_mean is needed unless training = true" },
  },
  {
    "Attention", { q = { 1, 2, 3, 4 }, m = { "f64", 3, 3 } }, { "q", "q", "q", "m" }, {}, "y",
    { "mask expects bool or f32, got f64" },
  },
  {
    "QuantizeLinear", { x = { 3 }, s = { "f64" } }, { "x", "s" }, {}, "y",
    { "scale expects the dtype of x, f32, got f64" },
  },
  {
    "QuantizeLinear", { x = { 3 }, s = {}, z = { "i8" } }, { "x", "s", "z" }, { to = "u8" }, "y",
    { "zero expects the dtype to = u8, got i8" },
  },
  {
    "QuantizeLinear", { x = { 3 }, s = {} }, { "x", "s" }, { to = "i32" }, "y",
    { "to expects u8, i8, u16 or i16, got i32" },
  },
  {
    "DequantizeLinear", { x = { "i8", 3 }, s = {}, z = { "u8" } }, { "x", "s", "z" }, {}, "y",
    { "zero expects the dtype of x, i8, got u8" },
  },
  {
    "Where", { c = { "bool", 3 }, a = { 3 }, b = { "f64", 3 } }, { "c", "a", "b" }, {}, "y",
    { "b expects dtype f32, as a has, got f64" },
  },
  {
    "PRelu", { x = { 2, 3 }, s = { 4, 2, 3 } }, { "x", "s" }, {}, "y",
    { "slope expects a shape that broadcasts to x's" },
  },
  {
    "Attention", { q = { 1, 2, 3, 4 }, m = { 5, 3 } }, { "q", "q", "q", "m" }, {}, "y",
    { "mask (5,3)", "scores (1,2,3,3)" },
  },
  {
    "MaxPool", { x = { 1, 1, 5, 5 } }, { "x" }, { kernel = { 1 << 21, 1 } }, "y",
    { "kernel", "1 to 1048576" },
  },
  {
    "CachedAttention",
    {
      q = { 1, 1, 4 }, k = { "f64", 1, 1, 4 }, v = { 1, 1, 4 }, a = { 1, 3, 4 }, b = { 1, 3, 4 },
      p = { "i64", 1 },
    }, { "q", "k", "v", "a", "b", "p" }, {}, { "y", "a", "b" },
    { "q, k and v must have one dtype", "f32", "f64" },
  },
  {
    "CachedAttention",
    {
      q = { 1, 1, 4 }, k = { 1, 1, 4 }, v = { 1, 1, 4 }, a = { 2, 3, 4 }, b = { 1, 3, 4 },
      p = { "i64", 1 },
    }, { "q", "k", "v", "a", "b", "p" }, {}, { "y", "a", "b" },
    { "a cache (B,N,W) of rows (B,T,W)", "(2,3,4)", "(1,1,4)" },
  },
  {
    "CachedAttention",
    {
      q = { 1, 1, 4 }, k = { 1, 1, 4 }, v = { 1, 1, 4 }, a = { 1, 3, 4 }, b = { "f64", 1, 3, 4 },
      p = { "i64", 1 },
    }, { "q", "k", "v", "a", "b", "p" }, {}, { "y", "a", "b" },
    { "the cache expects f32, as its rows, got f64" },
  },
  {
    "Solve", { a = { 2, 3 }, b = { 2 } }, { "a", "b" }, {}, "x",
    { "expects square matrices (..,N,N), got (2,3)" },
  },
  { "Svd", { x = { 8193, 8193 } }, { "x" }, {}, { "u", "s", "v" },
    { "a matrix has at most 8192 rows or columns" } },
  {
    "Qr", { x = { 16385, 1 } }, { "x" }, { full = true }, { "q", "r" },
    { "a full factor has at most 16384 rows" },
  },
  {
    "Svd", { x = { 1 << 20, 1 << 20 } }, { "x" }, {}, { "u", "s", "v" },
    { "a matrix has at most 268435456 elements" },
  },
  {
    "Gather", { x = { 1, 1, 1, 1, 1 }, i = { "i64", 1, 1, 1, 1, 1 } }, { "x", "i" }, {}, "y",
    { "would have 9 dimensions", "at most 8" },
  },
  {
    "GatherND", { x = { 1, 1, 1, 1, 1 }, i = { "i64", 1, 1, 1, 1, 1, 1, 1 } }, { "x", "i" }, {},
    "y", { "would have 10 dimensions", "at most 8" },
  },
  {
    "MaxUnpool", { x = { 1, 2, 2, 2 }, i = { "i64", 1, 2, 2, 3 } }, { "x", "i" }, { kernel = 2 },
    "y", { "indices", "(1,2,2,2)", "(1,2,2,3)" },
  },
  {
    "RmsProp", { w = { 3 }, g = { 3 }, lr = {}, v = { 2 } }, { "w", "g", "lr", "v" }, {},
    { "w", "v" }, { "v expects f32 (3), as w has, got f32 (2)" },
  },
}

describe("an op", function()
  for _, case in ipairs(refused) do
    local op, inputs, reads, attrs, writes, words = table.unpack(case)
    it("refuses: " .. op .. ": " .. words[1], function()
      local net = net_of(inputs)
      local before = net:text()
      local err = raises(words, function() net:op(op, reads, writes, attrs) end)
      assert.matches(op, tostring(err), 1, true)
      assert.are.equal(before, net:text())
    end)
  end

  it("refuses an update whose momentum has no place, and Nesterov's without one", function()
    local net = net_of { g = { 2 }, lr = {} }
    net:param("w", { 2 })
    net:declare("m", "state", { 2 })
    local before = net:text()
    raises("m and t are outputs when they are inputs, and only then",
      function() net:Sgd({ "w", "g", "lr", "m" }, { "w" }, { momentum = 0.9 }) end)
    raises("nesterov expects a momentum and no dampening",
      function() net:Sgd({ "w", "g", "lr", "m" }, { "w", "m" }, { nesterov = true }) end)
    raises("nesterov expects a momentum and no dampening", function()
      net:Sgd({ "w", "g", "lr", "m" }, { "w", "m" },
        { nesterov = true, momentum = 0.9, dampening = 0.1 })
    end)
    raises("rate_inside expects an input m",
      function() net:Sgd({ "w", "g", "lr" }, { "w" }, { rate_inside = true }) end)
    assert.are.equal(before, net:text())
    net:Sgd({ "w", "g", "lr", "m" }, { "w", "m" }, { nesterov = true, momentum = 0.9 })
  end)

  it("refuses to stack rows beyond the most dimensions", function()
    local net = net_of { x = { 1, 1, 1, 1, 1, 1, 1, 1 } }
    raises({ "While", "a stacked output has more than 8 dimensions" }, function()
      net:While {
        init = { "x" },
        max = 3,
        cond = function(_, x) return x:sum():lt(3) end,
        body = function(_, x) return x + 1, x end,
      }
    end)
  end)

  it("refuses a gradient through what only its backward reads", function()
    local net = neap.net "f"
    local _, mean = net:LayerNorm({ net:param("x", { 4, 3 }) }, { "y", "mean", "rstd" })
    raises("no gradient is defined through the saved mean", net.gradient, net, mean:sum())

    net = net_of { x = { 5, 2, 3 } }
    net:param("w", { 16, 3 })
    net:param("r", { 16, 4 })
    net:param("b", { 16 })
    local outs = table.pack(net:LSTM({ "x", "w", "r", "b" }, { "y", "h", "c", "gates", "cells" }))
    raises("no gradient is defined through gates and cells", net.gradient, net, outs[4]:sum())
  end)

  it("by itself has so many operands, and says how many", function()
    local many, names = {}, {}
    for i = 1, 65 do many[i], names[i] = neap.ones(1), "y" .. i end
    raises({ "AddN", "at most 64 inputs and 64 outputs" }, neap.add_n, many)
    local ws <close> = neap.workspace { store = false }
    ws:feed("x", neap.ones(65))
    raises({ "Split", "at most 64 inputs and 64 outputs" }, ws.run_op, ws, "Split", "x", names,
      { axis = 1 })
    raises({ "Relu", "has 1 outputs, 2 are asked for" }, ws.run_op, ws, "Relu", "x", { "a", "b" })
    raises({ "If", "works in a net only" }, ws.run_op, ws, "If", "x", { "a" })
    assert.is_false(ws:has "a" or ws:has "y1")
    many[65] = nil
    assert.are.equal(64, neap.add_n(many):item())
  end)
end)
