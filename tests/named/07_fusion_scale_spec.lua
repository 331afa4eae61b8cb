-- Inference fusion of factors and summands of channels, as exporters write Caffe's Scale and Bias.
local neap = require "neap"
local fusion_kit = require "fusion_kit"
local agree, rules, conv_norm = fusion_kit.agree, fusion_kit.rules, fusion_kit.conv_norm

describe("fusion", function()
  it("folds factors and summands of channels into the op before them", function()
    local function by_channel(net, name, shape)
      return net:param(name, shape, neap.init.uniform { low = 0.5, high = 2 })
    end
    -- Behind a norm behind a convolution, as Caffe's Scale comes out of exporters.
    local net = neap.net "scale"
    local h = conv_norm(net, net:input("x", { 2, 3, 8, 8 }), 3, 8, 3, { name = "a", bias = true })
    h = net:Mul { h, by_channel(net, "c", { 8, 1, 1 }) }
    h = net:Relu(net:Add { by_channel(net, "d", { 1, 8, 1, 1 }), h })
    -- Behind a norm that follows no product: its relu comes along.
    h = net:MaxPool(h, "pooled", { kernel = 2 })
    h = net:BatchNorm({ h, by_channel(net, "g", { 8 }), by_channel(net, "be", { 8 }),
      by_channel(net, "m", { 8 }), by_channel(net, "v", { 8 }) }, "normed", { training = false })
    h = net:Relu(net:Add { net:Mul { h, by_channel(net, "e", { 8, 1, 1 }) },
      by_channel(net, "f", { 8, 1, 1 }) }, "y")
    net:outputs { h }
    assert.are.same({ scale = 4, norm = 1, norm_relu = 1, activation = 1 }, rules(net))
    agree(net, "y", { x = neap.randn(2, 3, 8, 8) })

    -- Behind the convolution itself, and a layer of rows.
    for _, bias in ipairs { true, false } do
      net = neap.net "scale"
      h = net:Conv { net:input("x", { 2, 3, 4, 4 }), by_channel(net, "w", { 6, 3, 3, 3 }),
        bias and by_channel(net, "b", { 6 }) or nil }
      h = net:Flatten(net:Add { net:Mul { h, by_channel(net, "c", { 6, 1, 1 }) },
        by_channel(net, "d", { 6, 1, 1 }) })
      h = net:FC { h, by_channel(net, "u", { 5, 24 }),
        bias and by_channel(net, "ub", { 5 }) or nil }
      net:outputs { net:Mul({ net:Add { h, by_channel(net, "s", { 5 }) },
        by_channel(net, "t", { 1, 5 }) }, "y") }
      assert.are.same({ scale = 4 }, rules(net))
      agree(net, "y", { x = neap.randn(2, 3, 4, 4) })
    end
  end)

  it("leaves factors alone that are of no channel, are fed, or of what is read twice", function()
    local function count(f)
      local net = neap.net "no"
      local x = net:input("x", { 2, 4, 4, 4 })
      local h = net:Conv({ x, net:param("w", { 4, 4, 1, 1 }, neap.init.xavier {}) }, "h")
      net:outputs { f(net, h, x) }
      return rules(net).scale
    end
    assert.is_nil(count(function(net, h)
      return net:Mul { h, net:param("c", { 4, 1 }, neap.init.normal {}) }
    end))
    assert.is_nil(count(function(net, h) return net:Mul { h, net:input("c", { 4, 1, 1 }) } end))
    assert.is_nil(count(function(net, h)
      local y = net:Mul { h, net:param("c", { 4, 1, 1 }, neap.init.normal {}) }
      return net:Add { y, net:Relu(h) }
    end))
    assert.equal(1, count(function(net, h)
      return net:Mul { h, net:param("c", { 4, 1, 1 }, neap.init.normal {}) }
    end))
  end)

  it("leaves factors alone of what has other features, a relu, or reads what is overwritten",
    function()
      local function leaves(y_of)
        local net = neap.net "no"
        local function param(name, shape) return net:param(name, shape, neap.init.normal {}) end
        local feeds = y_of(net, param)
        net:outputs { "y" }
        assert.is_nil(rules(net).scale)
        agree(net, "y", feeds)
      end
      -- As many rows as features: the factors are those of the rows.
      leaves(function(net, param)
        local h = net:FC { net:input("x", { 2, 5, 6 }), param("w", { 5, 6 }), param("b", { 5 }) }
        net:Mul({ h, param("c", { 5, 1 }) }, "y")
        return { x = neap.randn(2, 5, 6) }
      end)
      -- What a relu gives is not what it gives of a product by a number below 0.
      leaves(function(net, param)
        local h = net:BatchNorm({ net:input("x", { 4, 6 }), param("g", { 6 }), param("be", { 6 }),
          param("m", { 6 }), net:param("v", { 6 }, 2) }, "h", { training = false, relu = true })
        net:Mul({ h, param("c", { 6 }) }, "y")
        return { x = neap.randn(4, 6) }
      end)
      -- At the factor's place the product would read what is there by then.
      leaves(function(net, param)
        local s = net:declare("s", "state", { 2, 4 }, "f32", { op = "Constant", value = 1 })
        local h = net:FC { s, param("w", { 4, 4 }) }
        net:op("RunningAverage", { s, net:input("x", { 2, 4 }) }, { s }, { momentum = 0.5 })
        net:Mul({ h, param("c", { 4 }) }, "y")
        return { x = neap.full { 2, 4, value = 3 } }
      end)
      -- A bias that is fed would be scaled anew in each run.
      leaves(function(net, param)
        local h = net:FC { net:input("x", { 3, 4 }), param("w", { 5, 4 }), net:input("b", { 5 }) }
        net:Mul({ h, param("c", { 5 }) }, "y")
        return { x = neap.randn(3, 4), b = neap.randn(5) }
      end)
    end)
end)
