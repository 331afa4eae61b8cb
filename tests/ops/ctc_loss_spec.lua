-- CtcLoss beside all paths, counted one by one, and what it does with lengths, labels and targets
-- that have no path.
local neap = require "neap"

local function ints(list) return neap.tensor(list, "i64") end

--- log_probs (T,N,C) in f64.
local function log_probs(...)
  local n = 1
  for _, d in ipairs { ... } do n = n * d end
  return (neap.arange(n):to "f64" * 1.7):sin():reshape { ... }:log_softmax { axis = -1 }
end

--- What a path reads as: repeats are one, blanks none.
local function read(path, blank)
  local labels, last = {}, nil
  for _, c in ipairs(path) do
    if c ~= last and c ~= blank then labels[#labels + 1] = c end
    last = c
  end
  return table.concat(labels, " ")
end

--- The loss of sample n by its definition: a sum over all paths of n_step steps.
local function by_paths(x, n, n_step, labels, blank)
  local n_class, total, path = x.shape[3], 0, {}
  local rows = x:totable()
  local function walk(t, p)
    if t > n_step then
      if read(path, blank) == table.concat(labels, " ") then total = total + math.exp(p) end
      return
    end
    for c = 0, n_class - 1 do
      path[t] = c
      walk(t + 1, p + rows[t][n][c + 1])
    end
    path[t] = nil
  end
  walk(1, 0)
  return -math.log(total)
end

local function near(want, got)
  assert.is_true(want == got or math.abs(want - got) < 1e-12, ("%s, got %s"):format(want, got))
end

describe("CtcLoss", function()
  local x, targets = log_probs(4, 2, 3), ints { { 1, 2 }, { 2, 2 } }

  it("is a sum over paths", function()
    for _, n_step in ipairs { 2, 3, 4 } do
      local y = x:ctc_loss(targets, ints { n_step, 4 }, ints { 2, 2 }, { reduction = "none" })
      near(by_paths(x, 1, n_step, { 1, 2 }, 0), y[1])
      near(by_paths(x, 2, 4, { 2, 2 }, 0), y[2])
    end
    local y = x:ctc_loss(ints { { 0, 1 }, { 1, 1 } }, ints { 4, 3 }, ints { 2, 0 },
      { reduction = "none", blank = 2 })
    near(by_paths(x, 1, 4, { 0, 1 }, 2), y[1])
    near(by_paths(x, 2, 3, {}, 2), y[2])
  end)

  it("divides by the labels and the samples for the mean", function()
    local lengths = { ints { 4, 3 }, ints { 2, 0 } }
    local y = x:ctc_loss(targets, lengths[1], lengths[2], { reduction = "none" })
    near((y[1] / 2 + y[2]) / 2, x:ctc_loss(targets, lengths[1], lengths[2]):item())
    near(y[1] + y[2], x:ctc_loss(targets, lengths[1], lengths[2], { reduction = "sum" }):item())
  end)

  it("takes targets as one list, and one sample alone", function()
    local lengths = { ints { 4, 3 }, ints { 2, 1 } }
    local padded = x:ctc_loss(targets, lengths[1], lengths[2], { reduction = "none" })
    local listed = x:ctc_loss(ints { 1, 2, 2 }, lengths[1], lengths[2], { reduction = "none" })
    assert.are.same(padded:totable(), listed:totable())
    local one = x:select(2, 1):ctc_loss(ints { 1, 2 }, ints(4), ints(2), { reduction = "none" })
    assert.are.same({}, one.shape)
    near(padded[1], one:item())
  end)

  it("has no path for a target that does not fit", function()
    -- two equal labels need a blank between them
    local function both(zero_infinity)
      local function loss(p)
        return p:ctc_loss(targets, ints { 4, 2 }, ints { 2, 2 },
          { reduction = "sum", zero_infinity = zero_infinity })
      end
      return loss(x):item(), neap.grad(loss)(x):totable()
    end
    local loss, gradient = both(false)
    assert.are.equal(math.huge, loss)
    for _, g in ipairs { gradient[1][2][1], gradient[2][2][2] } do assert.is_true(g ~= g) end
    assert.is_true(gradient[1][1][2] < 0)
    assert.are.same({ 0, 0, 0 }, gradient[3][2])
    loss, gradient = both(true)
    near(by_paths(x, 1, 4, { 1, 2 }, 0), loss)
    assert.are.same({ 0, 0, 0 }, gradient[1][2])
    assert.is_true(gradient[1][1][2] < 0)
  end)

  it("has a gradient where a class can't be", function()
    local p = x:clone()
    p[1][1][1] = -math.huge
    local function loss(q) return q:ctc_loss(targets, ints { 4, 4 }, ints { 2, 2 }) end
    for _, g in ipairs(neap.grad(loss)(p):reshape(-1):totable()) do assert.is_true(g <= 0) end
  end)

  it("tells of lengths and labels that can't be", function()
    for said, args in pairs {
      ["input_lengths: 5 at element 2 is not between 0 and 4"] =
        { targets, ints { 4, 5 }, ints { 2, 2 } },
      ["target_lengths: -1 at element 1 is not between 0 and 2"] =
        { targets, ints { 4, 4 }, ints { -1, 2 } },
      ["target_lengths: 2 at element 2 is not between 0 and 1"] =
        { ints { 1, 2, 1 }, ints { 4, 4 }, ints { 2, 2 } },
      ["target 3 at element 3 is out of range for 3 classes"] =
        { ints { { 1, 2 }, { 3, 1 } }, ints { 4, 4 }, ints { 2, 2 } },
      ["target 0 at element 2 is the blank among 3 classes"] =
        { ints { { 1, 0 }, { 1, 1 } }, ints { 4, 4 }, ints { 2, 2 } },
      ["targets expect a row for each of the 2 samples"] =
        { ints { { 1, 2 } }, ints { 4, 4 }, ints { 2, 2 } },
      ["target_lengths expects shape (2)"] = { targets, ints { 4, 4 }, ints { 2 } },
      ["blank = 3 is none of the 3 classes"] =
        { targets, ints { 4, 4 }, ints { 2, 2 }, { blank = 3 } },
    } do
      local ok, err = pcall(x.ctc_loss, x, table.unpack(args))
      assert.is_false(ok, said)
      assert.is_truthy(tostring(err):find(said, 1, true), tostring(err))
    end
  end)

  it("gives the same bits on any number of threads", function()
    local net = neap.net "ctc"
    local p = net:input("p", { 20, 7, 5 })
    local loss = net:CtcLoss({ p, net:const(neap.ones { 7, 6 }:to "i64"),
      net:const(ints { 20, 3, 19, 20, 5, 12, 1 }), net:const(ints { 6, 1, 2, 0, 3, 4, 1 }) })
    net:outputs { loss, net:gradient(loss, { wrt = { p } })[p] }
    local first
    for _, threads in ipairs { 1, 2, 4 } do
      local ws <close> = neap.workspace { store = false, threads = threads }
      ws:init(net)
      ws:feed("p", log_probs(20, 7, 5):to "f32")
      ws:run(net)
      local bits = {}
      for i, name in ipairs(net:outputs()) do bits[i] = ws:fetch(name):hash() end
      first = first or bits
      assert.are.same(first, bits)
    end
  end)
end)
