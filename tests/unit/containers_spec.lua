--- Containers, and layers that pad, cut, compare and squeeze.
local neap = require "neap"
local nn = neap.nn
local raises = require("support").raises

local function filled(shape, k)
  return neap.zeros(shape):apply_(function()
    k = (k * 37 + 11) % 101
    return k / 50 - 1
  end)
end

local function close(a, b) return a:close(b, { atol = 1e-5 }) end

describe("a container", function()
  local x = filled({ 3, 4 }, 1)

  it("Parallel gives each layer its input, or all the same", function()
    local p = nn.Parallel { nn.Linear { 4, 2 }, nn.Linear { 4, 3 } }
    local a, b = p(x)
    assert.is_true(close(p[1](x), a) and close(p[2](x), b))
    local c, d = p(x, x * 2)
    assert.is_true(close(a, c) and close(p[2](x * 2), d))
    raises("2 layers take 1 input or 2, got 3", p, x, x, x)
  end)

  it("ModuleList is a list of layers whose parameters are the model's", function()
    local Deep = nn.module {
      "Deep",
      init = function(self)
        self.list = nn.ModuleList { nn.Linear { 4, 4 }, nn.Linear { 4, 4 } }
        self.list:append(nn.Linear { 4, 2 })
      end,
      forward = function(self, h)
        for _, layer in ipairs(self.list) do h = layer(h):tanh() end
        return h
      end,
    }
    local m, names = Deep {}, {}
    for name in m:parameters() do names[#names + 1] = name end
    assert.are.same({ "list.1.weight", "list.1.bias", "list.2.weight", "list.2.bias",
      "list.3.weight", "list.3.bias" }, names)
    assert.are.equal(3, #m.list)
    assert.are.equal(m.list[3], m.list[-1])
    assert.is_nil(m.list[4])
    local want = x
    for i = 1, 3 do want = m.list[i](want):tanh() end
    assert.is_true(close(want, m(x)))
    raises("item 1 is a number", nn.ModuleList, { 3 })
    assert.are.equal(2, #nn.Sequential { nn.ReLU(), nn.Tanh() })
  end)

  it("Bidirectional is a recurrent layer in both directions, lengths or none", function()
    local both = nn.GRU { 3, 2, bidirectional = true }
    local one, other = nn.GRU { 3, 2 }, nn.GRU { 3, 2 }
    local s, state, back = both:state_dict(), {}, {}
    for name, t in pairs(s) do
      local stem = name:match "^(.*)_reverse$"
      if stem then back[stem] = t else state[name] = t end
    end
    one:load_state_dict(state)
    other:load_state_dict(back)
    local w = filled({ 2, 5, 3 }, 4)
    local lengths = neap.tensor({ 5, 3 }, "i64")
    local m = nn.Bidirectional { one, other }
    assert.is_true(close(both(w), m(w)))
    assert.is_true(close(both(w, lengths), m(w, lengths)))
    local a, b = both(w):narrow(3, 1, 2), both(w):narrow(3, 3, 2)
    for merge, want in pairs { sum = a + b, mean = (a + b) / 2, mul = a * b } do
      assert.is_true(close(want, nn.Bidirectional({ one, other, merge = merge })(w)), merge)
    end
  end)
end)

describe("a frame", function()
  local x = neap.tensor({ 1, 2, 3 }):reshape(1, 1, 3)
  it("is of zeros, a number, a mirror, the edge or the other end", function()
    local rows = {
      { nn.ZeroPad1d { { 2, 1 } }, { 0, 0, 1, 2, 3, 0 } },
      { nn.ConstantPad1d { 1, 7 }, { 7, 1, 2, 3, 7 } },
      { nn.ReflectionPad1d(2), { 3, 2, 1, 2, 3, 2, 1 } },
      { nn.ReplicationPad1d(1), { 1, 1, 2, 3, 3 } },
      { nn.CircularPad1d { { 1, 2 } }, { 3, 1, 2, 3, 1, 2 } },
    }
    for _, row in ipairs(rows) do
      assert.are.same(row[2], row[1](x):reshape(-1):totable(), tostring(row[1]))
    end
    assert.are.same({ 1, 2, 5, 7 }, nn.ZeroPad2d({ { 1, 2 } })(neap.ones(1, 2, 3, 3)).shape)
    assert.are.same({ 1, 2, 4, 6 }, nn.ZeroPad2d({ { 1, 2, 0, 1 } })(neap.ones(1, 2, 3, 3)).shape)
    assert.are.same({ 1, 2, 5, 5, 5 }, nn.ReplicationPad3d(1)(neap.ones(1, 2, 3, 3, 3)).shape)
  end)
end)

describe("a layer", function()
  it("Unflatten undoes Flatten, of any neighbours", function()
    local x = filled({ 2, 3, 4, 5 }, 1)
    assert.is_true(nn.Unflatten({ 2, { 3, 4, 5 } })(nn.Flatten()(x)):equal(x))
    assert.are.same({ 2, 12, 5 }, nn.Flatten(2, 3)(x).shape)
    assert.is_true(nn.Unflatten({ 2, { -1, 4 } })(nn.Flatten(2, 3)(x)):equal(x))
    assert.is_true(nn.Unflatten({ -1, { 5, 1 } })(x):equal(x:reshape(2, 3, 4, 5, 1)))
  end)

  it("Fold adds up what Unfold cuts", function()
    local x = filled({ 2, 3, 6, 6 }, 1)
    local patches = nn.Unfold { 2, stride = 2 }(x)
    assert.are.same({ 2, 12, 9 }, patches.shape)
    assert.is_true(close(x, nn.Fold { 6, 2, stride = 2 }(patches)))
    local twice = nn.Fold { { 6, 6 }, { 3, 3 }, pad = 1 }(nn.Unfold { 3, pad = 1 }(x))
    assert.is_true(close(x:narrow(3, 2, 4):narrow(4, 2, 4) * 9,
      twice:narrow(3, 2, 4):narrow(4, 2, 4)))
  end)

  it("compares two inputs", function()
    local a, b = filled({ 3, 4 }, 1), filled({ 3, 5 }, 2)
    local m = nn.Bilinear { 4, 5, 2 }
    local W, bias = m:param("weight").data, m:param("bias").data
    local y = m(a, b)
    for i = 1, 3 do
      for o = 1, 2 do
        local want = bias:at(o)
        for j = 1, 4 do
          for k = 1, 5 do want = want + a:at(i, j) * W:at(o, j, k) * b:at(i, k) end
        end
        assert.is_true(math.abs(want - y:at(i, o)) < 1e-5)
      end
    end
    local c = filled({ 3, 4 }, 9)
    local dot = (a * c):sum(2) / ((a * a):sum(2) * (c * c):sum(2)):sqrt()
    assert.is_true(close(dot, nn.CosineSimilarity()(a, c)))
    assert.is_true(close(((a - c + 1e-6) ^ 2):sum(2):sqrt(), nn.PairwiseDistance()(a, c)))
    assert.are.same({ 3, 1 }, nn.PairwiseDistance({ 1, keepdim = true })(a, c).shape)
  end)

  it("EmbeddingBag is a mean of rows", function()
    local m = nn.EmbeddingBag { 6, 3 }
    local ids = neap.tensor({ 0, 2, 5, 5 }, "i64")
    local rows = nn.Embedding { 6, 3 }
    rows:load_state_dict(m:state_dict())
    assert.is_true(close(rows(ids:reshape(2, 2)):mean { axes = { 2 } }, m(ids:reshape(2, 2))))
    local bags = m(ids, neap.tensor({ 0, 3 }, "i64"))
    assert.is_true(close(rows(ids:narrow(1, 4, 1)), bags:narrow(1, 2, 1)))
  end)

  it("SqueezeExcite and InvertedResidual are their parts", function()
    local x = filled({ 2, 4, 5, 5 }, 1)
    local se = nn.SqueezeExcite { 4, 3, activation = "silu", gate = "hard_sigmoid" }
    local y = se(x)
    local share = se.fc2(se.fc1(x:mean { axes = { 3, 4 }, keepdim = true }):silu())
    assert.is_true(close(x * ((share + 3):relu6() / 6), y))
    local m = nn.InvertedResidual { 4, 4, expand = 2, squeezed = 2 }
    m:eval()
    local h = m.expand_norm(m.expand(x)):relu6()
    h = m.squeeze(m.depthwise_norm(m.depthwise(h)):relu6())
    assert.is_true(close(x + m.project_norm(m.project(h)), m(x)))
    local wide = nn.InvertedResidual { 4, 6, stride = 2, expand = 1, kernel = 5 }
    assert.are.same({ 2, 6, 3, 3 }, wide(x).shape)
    assert.is_nil(wide.expand)
    -- of MobileNet V2: 24 to 32 channels, 144 in the middle
    local n = 0
    for _, p in nn.InvertedResidual({ 24, 32, stride = 2 }):parameters() do
      local size = 1
      for _, d in ipairs(p.shape) do size = size * d end
      n = n + size
    end
    assert.are.equal(24 * 144 + 2 * 144 + 144 * 9 + 2 * 144 + 144 * 32 + 2 * 32, n)
  end)
end)
