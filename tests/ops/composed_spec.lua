-- Ops made of other ops (lua/neap/ops), each by the `cases` of its record: the same on tensors and
-- on blobs, in every dtype that it takes, differentiated once and twice.
local neap = require "neap"
local op = require "neap.op"
local cases = require "neap.check.cases"
local differences = require "neap.check.differences"

local elements = cases.elements

--- Raises unless two lists of tensors are alike, within `relative` of the largest element.
local function assert_near(want, got, relative, what)
  assert.are.equal(#want, #got, what)
  for k, t in ipairs(want) do
    assert.are.same(t.shape, got[k].shape, what)
    local a, b, largest = elements(t), elements(got[k]), 0
    for i = 1, #a do largest = math.max(largest, math.abs(a[i])) end
    for i = 1, #a do
      if not (a[i] == b[i] or a[i] ~= a[i] and b[i] ~= b[i]
          or math.abs(a[i] - b[i]) <= relative * largest) then
        error(("%s: output %d differs at element %d: expected %s, got %s"):format(what, k, i, a[i],
          b[i]), 2)
      end
    end
  end
end

--- What an op gives on tensors.
local function eager(case, feeds)
  local inputs = {}
  for i, spec in ipairs(case.inputs) do inputs[i] = spec and feeds["in" .. i] end
  return { op.apply(case.record.name, inputs, case.attrs) }
end

--- The same, planned.
local function planned(case, feeds)
  local net, outputs = cases.net_of(case)
  local ws <close> = cases.run(net, feeds)
  local list = {}
  for k, blob in ipairs(outputs) do list[k] = ws:fetch(blob.name) end
  return list
end

local function composed()
  local names = {}
  for name, record in pairs(op.records) do
    if record.made_of then names[#names + 1] = name end
  end
  table.sort(names)
  return names
end

-- How far the results of halves may be from those of f64 on the same numbers.
local rounding = { bf16 = 2^-7, f16 = 2^-9, f32 = 1e-5 }

for _, name in ipairs(composed()) do
  local record = op.records[name]
  describe(name, function()
    for _, case in ipairs(cases.cases_of(record)) do
      it("is one on tensors and in nets: " .. case.name, function()
        local feeds = cases.values_of(case)
        assert_near(eager(case, feeds), planned(case, feeds), 1e-6, name)
      end)

      it("computes every float dtype: " .. case.name, function()
        for dtype, relative in pairs(rounding) do
          local feeds, exact = cases.values_of(cases.with_dtype(case, dtype)), {}
          for input, t in pairs(feeds) do
            exact[input] = cases.is_float[t.dtype] and t:to "f64" or t
          end
          local want = eager(case, exact)
          local got = eager(case, feeds)
          for k, y in ipairs(want) do
            if cases.is_float[y.dtype] and got[k].dtype ~= "f32" then
              assert.are.equal(dtype, got[k].dtype)
            end
          end
          assert_near(want, got, relative, name .. " in " .. dtype)
        end
      end)

      local f64 = cases.with_dtype(case, "f64")
      if differences.loss_net(f64) then
        it("has the gradient that differences show: " .. case.name, function()
          differences.check(f64, "ref", differences.loss_net)
          if not record.once then differences.check(f64, "ref", differences.twice_net) end
        end)
      end
    end

    it("refuses what it does not know, and adds nothing", function()
      local net = neap.net "f"
      local ins = {}
      for i, spec in ipairs(cases.cases_of(record)[1].inputs) do
        ins[i] = spec and net:declare("in" .. i, "input", spec.shape, spec.dtype)
      end
      local before = net:text()
      local ok, err = pcall(net[name], net, ins, nil, { no_such = 1 })
      assert.is_false(ok)
      assert.is_truthy(tostring(err):find(name .. ": ", 1, true), tostring(err))
      assert.is_truthy(tostring(err):find("no_such", 1, true), tostring(err))
      assert.is_false((pcall(net[name], net, {}, nil, {})))
      assert.are.equal(before, net:text())
    end)
  end)
end

describe("an op made of others", function()
  it("gives its outputs the names that are asked for", function()
    local net = neap.net "f"
    local x = net:input("x", { 4, 6 })
    local a, b = net:Chunk(x, { "a", "b" }, { chunks = 2, axis = -1 })
    assert.are.equal("a b", a.name .. " " .. b.name)
    assert.are.equal("y", net:L2Norm("x", "y", { axes = 1 }).name)
    assert.has_error(function() net:Chunk(x, { "c", "d", "e" }, { chunks = 2 }) end)
  end)

  it("keeps the names of two uses apart", function()
    local net = neap.net "f"
    local x, t = net:input("x", { 4 }), net:input("t", { 4 })
    net:outputs { net:HuberLoss({ x, t }, "l1"), x:huber_loss(t), x:huber_loss(t) }
    for _, scope in ipairs { "l1/", "huber_loss/", "huber_loss_2/" } do
      assert.is_truthy(net:text():find(scope, 1, true), scope)
    end
  end)

  it("belongs to the branch that it is written in", function()
    local net = neap.net "f"
    local x = net:input("x", { 3 })
    local y = net:If(x:sum():gt(0), function() return x:l2_norm() end,
      function() return x:l1_norm() end)
    net:outputs { y }
    local ws <close> = neap.workspace { store = false }
    ws:run(net, { x = neap.tensor { 2, 3, 6 } })
    assert.are.equal(7, ws:fetch(y.name):item())
    ws:run(net, { x = neap.tensor { -2, -3, -6 } })
    assert.are.equal(11, ws:fetch(y.name):item())
  end)

  it("reads what stands behind an input that is left out", function()
    local z, t, w = neap.tensor { 1, -1 }, neap.tensor { 1, 0 }, neap.tensor { 3, 3 }
    local left_out = z:bce_with_logits_loss(t, nil, w):item()
    assert.are.equal(z:bce_with_logits_loss(t, false, w):item(), left_out)
    assert.is_true(left_out > z:bce_with_logits_loss(t):item())
    -- an op of C, too
    local x, beta = neap.tensor { { 1, 2 } }, neap.tensor { 5, 5 }
    assert.are.equal(10, x:layer_norm(nil, beta):sum():item())
  end)

  it("refuses shapes that would only broadcast", function()
    local T, i64 = neap.tensor, function(t) return neap.tensor(t, "i64") end
    local column, row = T { { 1 }, { 2 }, { 3 } }, T { 1, 2, 3 }
    for _, f in ipairs {
      function() return column:huber_loss(row) end,
      function() return column:kl_div_loss(row) end,
      function() return column:hinge_loss(row) end,
      function() return neap.ones(4, 3):triplet_margin_loss(neap.ones(4, 1), neap.ones(4, 3)) end,
      function() return neap.ones(4, 3):cosine_embedding_loss(neap.ones(4, 3), neap.ones(4, 1)) end,
      function() return neap.ones(4, 2):nll_loss(i64 { 0, 1 }) end,
      function() return neap.ones(1, 3):nll_loss(i64 { 1 }, neap.ones(5)) end,
      function() return neap.ones(1, 3):nll_loss(i64 { -1 }) end,
      function() return neap.ones(1, 3):multi_margin_loss(i64 { -1 }) end,
      function() return neap.ones(2, 3):cdist(neap.ones(2, 1)) end,
      function() return neap.einsum({ neap.ones(2, 3) }, { equation = "ii" }) end,
      function() return neap.einsum({ neap.ones(3) }, { equation = "i->ii" }) end,
      function() return T(1.0):diag() end,
      function()
        return neap.ones(2, 1, 1):gru(neap.ones(3, 1), neap.ones(3, 1), nil, nil, nil, i64 { 7 })
      end,
    } do
      assert.is_false((pcall(f)))
    end
  end)

  it("has gradients where a branch that is not taken overflows", function()
    local function slope(f, x)
      return neap.grad(f)(neap.tensor(x)):totable()
    end
    local zero = neap.tensor { 0, 0 }
    assert.are.same({ 1, 1 }, slope(function(x)
      return x:huber_loss(zero, { reduction = "sum" })
    end, { math.huge, 3 }))
    local g = slope(function(x)
      return x:bce_loss(neap.tensor { 1, 0, 1 }, { reduction = "sum" })
    end, { 1, 1, 0 })
    assert.are.equal(-1, g[1])
    assert.is_true(g[2] > 1e11 and g[2] < 1e13, g[2])
    assert.is_true(g[3] < -1e11 and g[3] > -1e13, g[3])
    local one = neap.tensor { { 1, 1, 1 } }
    assert.is_true(math.abs(one:cosine_similarity(neap.tensor { { 1 } }):item() - 1) < 1e-6)
  end)

  it("keeps what it is told, and sizes of 0", function()
    local y = neap.tensor({ 1 }, "i64"):one_hot { depth = 3, on = 1, off = -1e9 }
    assert.are.same({ { -1e9, 1, -1e9 } }, y:totable())
    assert.are.same({ { 255, 0 } }, neap.tensor({ 1 }, "u8"):one_hot({
      depth = 2, on = 0, off = 255, dtype = "u8" }):totable())
    local net = neap.net "f"
    local x = net:input("x", { 2, 3 })
    assert.are.same({ 2, 0 }, x:repeat_interleave({ repeats = 0, axis = 2 }).shape)
    assert.are.same({ 0, 3 }, x:reshape(-1):narrow(1, 1, 1):expand(0, 3).shape)
  end)

  it("has a page as others have", function()
    local page = tostring(neap.help "KlDivLoss")
    for _, word in ipairs { "log_target", "reduction", "Kullback", "torch.nn.KLDivLoss", "f64" } do
      assert.is_truthy(page:find(word, 1, true), word)
    end
    assert.is_truthy(tostring(neap.ops()):find("kl_div_loss", 1, true))
  end)
end)

describe("LogSumExp", function()
  it("of nothing is minus infinity, as the logarithm of an empty sum is", function()
    local none = -math.huge
    assert.are.same({ none, none, none }, neap.zeros(3, 0):log_sum_exp { axes = { 2 } }:totable())
    assert.are.same({ { none, none } },
      neap.zeros(0, 2):log_sum_exp { axes = { 1 }, keepdim = true }:totable())
    assert.are.equal(none, neap.zeros(0, 2):log_sum_exp():item())
    assert.are.same({ 0 }, neap.zeros(0, 2):log_sum_exp { axes = { 2 } }.shape)
  end)
end)
