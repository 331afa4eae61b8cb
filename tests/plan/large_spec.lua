--- Nets of very many ops that only infer: what a rewrite, an in-place chain or a check costs must
-- not grow with the square of them, or these would take minutes.
local neap = require "neap"

describe("a net of many ops", function()
  it("is a chain in one value's bytes, verified", function()
    local net = neap.net "chain"
    local x = net:input("x", { 4, 8 })
    for _ = 1, 40000 do x = x:relu() end
    net:outputs { x }
    local plan = net:plan { store = false, engine = "ref" }
    assert.is_true(plan:verify())
    assert.equal(40000, #plan:ops())
    assert.equal(neap.bytes "128B", plan.arena_bytes)
  end)

  it("computes once what it says many times, and passes on what changes nothing", function()
    local net = neap.net "twice"
    local x = net:input("x", { 4, 8 })
    local sum = x:relu()
    for i = 1, 6000 do sum = sum + (i % 2 == 0 and x:relu() or x:tanh()):reshape { 4, 8 } end
    net:outputs { sum }
    local plan = net:plan { store = false }
    local of = {}
    for _, row in ipairs(plan:rewrites()) do of[row.rule] = (of[row.rule] or 0) + 1 end
    assert.equal(6000, of.identity)
    assert.equal(5999, of.duplicate) -- the first Relu and the first Tanh stay
    assert.equal(6002, #plan:ops())
    local ws = neap.workspace { seed = 1, store = false }
    local t = neap.randn(4, 8)
    ws:init(net)
    local got = ws:run(net, { x = t })[sum.name]
    assert.is_true(got:close(t:relu() * 3001 + t:tanh() * 3000, { rtol = 1e-3, atol = 1e-2 }))
    ws:close()
  end)

  it("folds what follows from parameters, however deep", function()
    local net = neap.net "deep"
    local x = net:input("x", { 2, 16, 4, 4 })
    local w = net:param("w", { 16, 16, 1, 1 }, { "Xavier" })
    for _ = 1, 20000 do w = w:tanh() end
    local y = net:Conv { x, w }
    local norm = {}
    for i, name in ipairs { "gamma", "beta", "mean", "var" } do
      norm[i] = net:param(name, { 16 }, { "Constant", value = 1 })
    end
    net:outputs { (net:BatchNorm({ y, table.unpack(norm) }, nil, { training = false })) }
    local rewrites = net:plan({ store = false }):rewrites()
    assert.equal(1, #rewrites)
    assert.equal("norm", rewrites[1].rule)
  end)
end)
