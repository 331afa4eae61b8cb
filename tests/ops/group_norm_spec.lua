--- GroupNorm and InstanceNorm: by hand, by each other, and what does not fit.
local core = require "neap.core"
local neap = require "neap"

local function op(name, inputs, attrs) return core.eager(name, inputs, attrs or {}, 1) end

local function far(a, b) return (a - b):abs():max():item() end

describe("a norm of groups", function()
  local x = neap.arange(2 * 6 * 4):reshape(2, 6, 4):sin()
  local gamma, beta = neap.arange(6):cos(), neap.arange(6):sin()

  it("is a norm of rows, then a scale and a shift of each channel", function()
    local rows = op("LayerNorm", { x:reshape(2, 3, 8) }):reshape(2, 6, 4)
    local want = rows * gamma:reshape(6, 1) + beta:reshape(6, 1)
    assert.is_true(far(op("GroupNorm", { x, gamma, beta }, { groups = 3 }), want) < 1e-6)
  end)

  it("of as many groups as channels is that of instances", function()
    assert.are.equal(0, far(op("GroupNorm", { x, gamma, beta }, { groups = 6 }),
      op("InstanceNorm", { x, gamma, beta })))
  end)

  it("says what does not fit", function()
    local function raises(text, ...)
      local ok, err = pcall(op, ...)
      assert.is_false(ok)
      assert.is_truthy(tostring(err):find(text, 1, true), tostring(err))
    end
    raises("groups = 4 expects a multiple of as many channels, got x (2,6,4)", "GroupNorm", { x },
      { groups = 4 })
    raises("gamma expects an element for each of 6 channels, got (4)", "InstanceNorm",
      { x, neap.ones(4) })
  end)
end)
