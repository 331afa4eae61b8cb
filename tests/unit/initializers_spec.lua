--- How parameters start: neap.init, and what its ops promise.
local neap = require "neap"
local core = require "neap.core"
local init, nn = neap.init, neap.nn
local raises = require("support").raises

--- The weight that an initialiser gives a net, drawn by a seed.
local function filled(how, shape, seed)
  local net = neap.net "f"
  net:outputs { net:Copy { net:param("w", shape, how) } }
  local ws <close> = neap.workspace { store = false, seed = seed or 1 }
  ws:init(net)
  return ws:fetch "w"
end

local function near(expected, x, tolerance)
  local off = (x - expected):abs():max():item()
  assert.is_true(off <= (tolerance or 1e-5), tostring(off))
end

describe("neap.init", function()
  it("makes rows or columns orthonormal, whichever are fewer, others for each seed", function()
    for _, shape in ipairs { { 6, 6 }, { 7, 3 }, { 3, 7 }, { 4, 2, 3 } } do
      local w = filled(init.orthogonal {}, shape)
      local flat = w:reshape(shape[1], -1)
      local t = flat:transpose()
      local product = flat.shape[1] < flat.shape[2] and flat:matmul(t) or t:matmul(flat)
      near(neap.eye(product.shape[1]), product)
      assert.is_true(w:equal(filled(init.orthogonal {}, shape)))
      assert.is_false(w:equal(filled(init.orthogonal {}, shape, 2)))
    end
    near(filled(init.orthogonal {}, { 3, 3 }) * 2, filled(init.orthogonal { 2 }, { 3, 3 }))
    -- both determinants come about: no half of the matrices is left out
    local signs = {}
    for seed = 1, 20 do
      signs[filled(init.orthogonal {}, { 3, 3 }, seed):det():item() > 0] = true
    end
    assert.are.same({ [true] = true, [false] = true }, signs)
    raises("at least 2 dimensions", filled, init.orthogonal {}, { 3 })
  end)

  it("hands on what comes: eye a vector, dirac an image, group by group", function()
    local x = neap.rand(2, 4)
    near(x, nn.Linear { 4, 4, bias = false, init = init.eye {} }(x))
    assert.are.same({ { 0, 1, 0 }, { 0, 0, 1 } },
      filled(init.eye { diagonal = 1 }, { 2, 3 }):totable())
    local image = neap.rand(2, 4, 5, 5)
    for _, groups in ipairs { 1, 2 } do
      near(image, nn.Conv2d { 4, 4, kernel = 3, pad = 1, groups = groups, bias = false,
        init = init.dirac { groups } }(image))
    end
    raises("groups = 3 expects a multiple", filled, init.dirac { 3 }, { 4, 4, 3 })
  end)

  it("leaves a share of every column 0", function()
    local w = filled(init.sparse { 0.75, std = 1 }, { 8, 50 })
    assert.are.same(neap.full({ 50, value = 6 }):totable(),
      w:eq(0):to("f32"):sum({ axes = { 1 } }):totable())
    local rest = w:square():sum():item() / 100
    assert.is_true(rest > 0.6 and rest < 1.5, tostring(rest))
    assert.is_false(w:select(2, 1):eq(0):equal(w:select(2, 2):eq(0)))
  end)

  it("knows the fan of the outputs, and normal numbers", function()
    local function deviation(how) return filled(how, { 400, 100 }):std():item() end
    local cases = {
      { init.kaiming { distribution = "normal" }, math.sqrt(2 / 100) },
      { init.kaiming { mode = "out" }, math.sqrt(2 / 400) },
      { init.xavier { distribution = "normal" }, math.sqrt(2 / 500) },
    }
    for _, case in ipairs(cases) do
      local got = deviation(case[1])
      assert.is_true(math.abs(got - case[2]) < 0.03 * case[2], got .. ", expected " .. case[2])
    end
    local w = filled(init.kaiming { distribution = "normal" }, { 400, 100 })
    local kurtosis = ((w / w:std()) ^ 4):mean():item()
    assert.is_true(kurtosis > 2.8 and kurtosis < 3.2, tostring(kurtosis)) -- uniform: 1.8
  end)

  it("has Eye as an op of nets", function()
    local y = core.eager("Eye", {}, { shape = { 2, 2, 3 }, diagonal = -1, dtype = "i64" })
    assert.are.same({ { { 0, 0, 0 }, { 1, 0, 0 } }, { { 0, 0, 0 }, { 1, 0, 0 } } }, y:totable())
  end)
end)
