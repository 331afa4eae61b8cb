--- neap.check: what users can try of their own functions, models, ops and runs.
local neap = require "neap"
local nn = neap.nn

describe("neap.check.gradient", function()
  it("agrees with right gradients, of functions and models, drawn ones too", function()
    assert.is_true(neap.check.gradient(function(x, y) return (x * y):tanh(), x:sum() end,
      { neap.rand(2, 3), neap.rand(2, 3) }).same)
    assert.is_true(neap.check.gradient(function(x) return x:dropout { rate = 0.5 } * x end,
      neap.rand(20)).same)
    local m = nn.Sequential { input = { 3 }, nn.Linear { 3, 4 }, nn.Dropout { 0.3 }, nn.Tanh(),
      nn.Linear { 4, 2 } }
    m:train()
    local r = neap.check.gradient(m, { neap.rand(5, 3) })
    assert.is_true(r.same, tostring(r))
    assert.are.equal(5, #r)
  end)

  it("leaves what is drawn next as it was, of tensors and of the model, and so does check.op",
    function()
      local m = nn.Sequential { seed = 1, input = { 3 }, nn.Linear { 3, 4 }, nn.Dropout { 0.5 } }
      local x = neap.ones(5, 3)
      m(x)
      local function drawn_after(f)
        neap.seed(5)
        m:seed(7)
        f()
        return neap.rand(3):totable(), m(x):totable()
      end
      local draw, mask = drawn_after(function() end)
      for _, f in ipairs {
        function() neap.check.gradient(function(y) return y:dropout { rate = 0.5 } * y end, x) end,
        function() assert.is_true(neap.check.gradient(m, { x }).same) end,
        function() neap.check.op "Relu" end,
        function() neap.with({ seed = 9 }, function() return neap.rand(2) end) end,
      } do
        local got, got_mask = drawn_after(f)
        assert.are.same(draw, got)
        assert.are.same(mask, got_mask)
      end
    end)

  it("finds a wrong one, and says which", function()
    neap.op { "CheckWrong", inputs = { "x" }, outputs = { "y" },
      run = function(_, x) return x * x end,
      grad = "d.x = d.y * x" }
    local r = neap.check.gradient(function(x, y) return x * y:check_wrong() end,
      { neap.rand(3), neap.rand(3) })
    assert.is_false(r.same)
    assert.are.equal("input 2", r.different)
    assert.is_true(r[1].same)
  end)

  it("says what it makes of inputs where a function reads tensors besides them", function()
    local held = neap.rand(3)
    require("support").raises("tries a function in f64", neap.check.gradient,
      function(x) return held * x end, { neap.rand(3) })
  end)
end)

describe("neap.check.op", function()
  it("runs an op's cases, and finds what is wrong", function()
    for _, name in ipairs { "Softmax", "HuberLoss", "Gather" } do
      local r = neap.check.op(name)
      assert.is_true(r.same, tostring(r))
    end
    neap.op { "CheckBad", inputs = { "x" }, outputs = { "y" },
      run = function(_, x) return x * x end,
      grad = "d.x = d.y * x", cases = "{ {x={3}} }" }
    local r = neap.check.op "CheckBad"
    assert.is_false(r.same)
    assert.is_truthy(r.different:find("case 1, gradient", 1, true))
  end)

  it("refuses what is no op, or has no cases", function()
    local _, err = pcall(neap.check.op, "Softmaks")
    assert.is_truthy(tostring(err):find('did you mean "Softmax"', 1, true))
    _, err = pcall(neap.check.op, "While")
    assert.is_truthy(tostring(err):find("no cases", 1, true))
  end)
end)

describe("neap.check.nan", function()
  it("names the first op that makes a number not finite, its line and inputs", function()
    local net = neap.net "n"
    local y = net:Log({ net:input("x", { 3 }) }, "y")
    net:outputs { net:Sum({ net:Mul({ y, y }, "z") }, "s") }
    local ws <close> = neap.workspace { store = false }
    ws:run(net, { x = neap.tensor { 1, 2, 3 } })
    assert.is_false(neap.check.nan(ws).found)
    ws:run(net, { x = neap.tensor { 1, 0, -1 } })
    local r = neap.check.nan(ws)
    assert.are.same({ true, "Log", "y", 1, 1 }, { r.found, r.type, r.output, r.nan, r.inf })
    assert.is_truthy(r.line:find("check_spec.lua:", 1, true))
    assert.are.same({ "x", -1, 1 }, { r[1].blob, r[1].min, r[1].max })
  end)

  it("looks at the batch whose loss was not finite, and at the backward pass", function()
    local m = nn.Sequential { input = { 3 }, nn.Linear { 3, 4 },
      nn.Lambda(function(x) return x:log() end), nn.Linear { 4, 2 } }
    local t = neap.trainer { model = m, loss = nn.MseLoss(),
      optimizer = neap.optim.SGD { lr = 0.1 } }
    assert.is_false((pcall(t.step, t, { x = neap.randn(4, 3), y = neap.rand(4, 2) })))
    local r = neap.check.nan(t)
    assert.are.equal("Log", r.type)
    local root = neap.net "root"
    local w = root:param("w", { 2 }, neap.init.constant(0))
    local loss = root:Sum({ root:Sqrt { w } }, "loss")
    root:gradient(loss)
    local ws <close> = neap.workspace { store = false }
    ws:run(root, {})
    local found = neap.check.nan(ws)
    assert.is_true(found.found and found.op:find "sqrt" ~= nil, tostring(found))
  end)
end)
