--- Softmax and its family where one class has nearly all the probability: what is left of 1 is then
-- smaller than the rounding of 1, and still each result is right to its own last digits. The
-- expected numbers come from the classes that are left.
local neap = require "neap"

--- Rows of logits from mild to as far apart as exp allows in f32; the largest stands first, last
-- and between.
local rows = {
  { 0.3, -1.2, 0.9, 0.1 },
  { 17.0, 0.5, -0.25, 1.5 },
  { -40.0, -41.5, -42.0, -3.0 },
  { 1e4, 1e4 + 30, 1e4 + 1, 1e4 - 7 },
  { 5.0, 5.0, -60.0, -61.0 },
}
--- What arrives at y: at all classes, or at one alone, where the gradient is a difference from 1
-- and nothing else.
local gradients = {
  { 1.5, -0.75, 2.25, 0.5 }, { 2.25, 0, 0, 0 }, { 0, 1.5, 0, 0 }, { 0, 0, -0.75, 0 },
}
local n_class = #gradients[1]

--- p, and 1 - p summed from the other classes.
local function probabilities(x)
  local most, sum, p, rest = math.max(table.unpack(x)), 0, {}, {}
  for c, v in ipairs(x) do p[c] = math.exp(v - most) end
  for _, e in ipairs(p) do sum = sum + e end
  for c = 1, #x do
    rest[c] = 0
    for k, e in ipairs(p) do rest[c] = rest[c] + (k ~= c and e / sum or 0) end
  end
  for c, e in ipairs(p) do p[c] = e / sum end
  return p, rest
end

--- log(1 + t) to the last digits: its series while t is small.
local function log1p(t) return t < 1e-4 and t - t * t / 2 + t * t * t / 3 or math.log(1 + t) end

--- -log p of one class: exactly the distance to the largest, and log1p of what the others add to
-- its 1.
local function loss_of(x, c)
  local most, top, rest = math.max(table.unpack(x)), nil, 0
  for k, v in ipairs(x) do top = top or (v == most and k) end
  for k, v in ipairs(x) do rest = rest + (k ~= top and math.exp(v - most) or 0) end
  return most - x[c] + log1p(rest)
end

--- What the family should give for one row: {name = {result, gradient}}.
local expected = {}
function expected.Softmax(x, gradient)
  local p = probabilities(x)
  local dx = {}
  for c = 1, #x do
    dx[c] = 0
    for k = 1, #x do dx[c] = dx[c] + p[c] * p[k] * (gradient[c] - gradient[k]) end
  end
  return p, dx
end
function expected.LogSoftmax(x, gradient)
  local p, rest = probabilities(x)
  local y, dx = {}, {}
  for c = 1, #x do
    y[c], dx[c] = -loss_of(x, c), gradient[c] * rest[c]
    for k = 1, #x do dx[c] = dx[c] - (k ~= c and p[c] * gradient[k] or 0) end
  end
  return y, dx
end
--- Cross-entropy with each class in turn as the label, one label a row.
local function expected_loss(x, label)
  local p, rest = probabilities(x)
  local dx = {}
  for c = 1, #x do dx[c] = c == label and -rest[c] or p[c] end
  return loss_of(x, label), dx
end

local dtypes = { f32 = 2e-6, f64 = 1e-13 } -- relative to the largest result of a row

local function near(what, want, got, limit)
  local largest = 0
  for _, v in ipairs(want) do largest = math.max(largest, math.abs(v)) end
  for c, v in ipairs(want) do
    local off = math.abs(got[c] - v)
    assert.is_true(off <= limit * largest,
      ("%s, class %d: %.17g, expected %.17g"):format(what, c, got[c], v))
  end
end

--- Runs an op on the rows: outputs and the gradient that arrives at x, both laid as (rows,
-- classes). `inner`: the classes run along the first dimension, so that the kernels for columns are
-- taken. `gradient`: of each row of y, 1 without.
local function run(op, x, extra, attrs, inner, gradient)
  local net = neap.net(op)
  local axis = inner and 1 or 2
  local p = net:declare("x", "parameter", inner and { n_class, #rows } or { #rows, n_class },
    x.dtype)
  local ins = { p }
  for i, t in ipairs(extra) do ins[i + 1] = net:declare("in" .. i, "input", t.shape, t.dtype) end
  attrs.axis = axis
  local y = net:op(op, ins, 1, attrs)
  local dy = net:declare("dy", "input", y.shape, x.dtype)
  local grads = net:gradient((y * dy):sum(), { wrt = { "x" } })
  net:outputs { y }
  local ws <close> = neap.workspace { store = false }
  local feeds = {
    x = inner and x:transpose(1, 2):contiguous() or x,
    dy = neap.ones { dtype = x.dtype, table.unpack(y.shape) },
  }
  if gradient then
    local wide = neap.tensor({ gradient, gradient, gradient, gradient, gradient }, x.dtype)
    feeds.dy = inner and wide:transpose(1, 2):contiguous() or wide
  end
  for i, t in ipairs(extra) do feeds["in" .. i] = t end
  local result = ws:run(net, feeds)[y.name]
  local _, dx_blob = next(grads)
  local dx = ws:fetch(dx_blob.name)
  if not inner then return result:totable(), dx:totable() end
  return (#result.shape == 2 and result:transpose(1, 2) or result):totable(),
    dx:transpose(1, 2):totable()
end

describe("softmax of far apart logits", function()
  for dtype, limit in pairs(dtypes) do
    for _, inner in ipairs { false, true } do
      local how = (" in %s along %s"):format(dtype, inner and "columns" or "rows")
      -- The kernel sees the logits rounded to its dtype, so the expected numbers do too.
      local x = neap.tensor(rows, dtype)
      local seen = x:to("f64"):totable()
      for _, op in ipairs { "Softmax", "LogSoftmax" } do
        for k, gradient in ipairs(gradients) do
          it(("keeps the digits of %s and its gradient%s, given %s"):format(op, how,
            k == 1 and "any" or "one at class " .. k - 2), function()
            local y, dx = run(op, x, {}, {}, inner, gradient)
            for i, row in ipairs(seen) do
              local want_y, want_dx = expected[op](row, gradient)
              for c = 1, n_class do
                near(("class %d of row %d of y"):format(c, i), { want_y[c] }, { y[i][c] },
                  4 * limit)
              end
              near(("row %d of dx"):format(i), want_dx, dx[i], limit)
            end
          end)
        end
      end
      for label = 1, n_class do
        it(("keeps the digits of a loss and its gradient%s for label %d"):format(how, label - 1),
          function()
            local labels = neap.full { #rows, dtype = "i64", value = label - 1 }
            local loss, dx = run("SoftmaxCrossEntropy", x, { labels }, { reduction = "none" },
              inner)
            for i, row in ipairs(seen) do
              local want, want_dx = expected_loss(row, label)
              near(("loss of row %d"):format(i), { want }, { loss[i] }, limit)
              near(("row %d of dx"):format(i), want_dx, dx[i], limit)
            end
          end)
      end
    end
  end
end)
