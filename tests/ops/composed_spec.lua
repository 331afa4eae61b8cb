-- Ops made of other ops (lua/neap/ops), each by the `cases` of its record: the same on tensors and
-- on blobs, in every dtype that it takes, differentiated once and twice.
local neap = require "neap"
local op = require "neap.op"
local cases = require "cases"
local differences = require "differences"

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

  it("has a page as others have", function()
    local page = tostring(neap.help "KlDivLoss")
    for _, word in ipairs { "log_target", "reduction", "Kullback", "torch.nn.KLDivLoss", "f64" } do
      assert.is_truthy(page:find(word, 1, true), word)
    end
    assert.is_truthy(tostring(neap.ops()):find("kl_div_loss", 1, true))
  end)
end)
