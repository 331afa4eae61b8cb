-- The zoo: each net has the parameters of the published one, exactly, and its output's shape; each
-- trains two steps as planned, to the bits of an unplanned run, at the smallest size that its
-- options allow, in an arena that is proved to be the least (but for `near`).
local neap = require "neap"
local netfile = require "neap.net.file"

--- Numbers of parameters in a net.
local function n_parameters(net)
  local total = 0
  for _, blob in ipairs(net:_blobs()) do
    if blob.role == "parameter" then
      local n = 1
      for _, size in ipairs(blob.shape) do n = n * size end
      total = total + n
    end
  end
  return total
end

-- Sizes at which nets of a kind are trained here.
local vgg = { image = 32, width = 8, hidden = 16, classes = 10 }
local resnet = { image = 32, width = 8, classes = 10 }
local wide = { image = 32, width = 8, classes = 10 }
local cifar = { image = 8 }
local dense = { image = 32, growth = 4, classes = 10 }
local mobile = { image = 32, width = 0.25, classes = 10 }
local shuffle = { image = 32, classes = 10 }
local next_ = { image = 32, width = 8, classes = 10 }
local patches = { image = 16, patch = 8, width = 16, heads = 2, classes = 10 }
local bert = { width = 16, heads = 2, length = 6, longest = 8, vocabulary = 20 }
local gpt = { layers = 2, width = 32, heads = 2, length = 8, vocabulary = 65 }
local recurrent = { width = 32, length = 8, vocabulary = 65 }

-- Name, parameters, shape of the output for one example, what makes it small. The counts' sources
-- stand at the heads of the nets' files.
local nets = {
  { "mlp", 545810, "10", {} },
  { "lenet", 431080, "10", {} },
  { "alexnet", 60965224, "1000", { image = 67, hidden = 64 } },
  { "vgg11", 132863336, "1000", vgg }, { "vgg_a", 132863336, "1000", vgg },
  { "vgg13", 133047848, "1000", vgg }, { "vgg16", 138357544, "1000", vgg },
  { "vgg19", 143667240, "1000", vgg },
  { "googlenet", 6998552, "1000", { image = 47, classes = 10 } },
  { "resnet18", 11689512, "1000", resnet }, { "resnet34", 21797672, "1000", resnet },
  { "resnet50", 25557032, "1000", resnet }, { "resnet101", 44549160, "1000", resnet },
  { "resnet152", 60192808, "1000", resnet }, { "resnet18c", 11173962, "10", { width = 8 } },
  { "resnext50_32x4d", 25028904, "1000", { image = 32, classes = 10, width = 16 } },
  { "wide_resnet50_2", 68883240, "1000", wide }, { "wide_resnet101_2", 126886696, "1000", wide },
  { "resnet20", 269722, "10", cifar }, { "resnet32", 464154, "10", cifar },
  { "resnet44", 658586, "10", cifar }, { "resnet56", 853018, "10", cifar },
  { "resnet110", 1727962, "10", cifar },
  { "squeezenet1_0", 1248424, "1000", { image = 32, classes = 10 } },
  { "squeezenet1_1", 1235496, "1000", { image = 32, classes = 10 } },
  { "preresnet110", 1730522, "10", cifar }, { "preresnet164", 1703258, "10", cifar },
  { "wrn_16_8", 10961370, "10", { image = 8, widen = 2 } },
  { "wrn_28_10", 36479194, "10", { image = 8, widen = 2 } },
  { "wrn_40_4", 8949210, "10", { image = 8, widen = 2 } },
  { "densenet121", 7978856, "1000", dense }, { "densenet161", 28681000, "1000", dense },
  { "densenet169", 14149480, "1000", dense }, { "densenet201", 20013928, "1000", dense },
  { "mobilenet_v1", 4231976, "1000", mobile }, { "mobilenet_v2", 3504872, "1000", mobile },
  { "mobilenet_v3_small", 2542856, "1000", mobile },
  { "mobilenet_v3_large", 5483032, "1000", mobile },
  { "efficientnet_b0", 5288548, "1000", mobile }, { "efficientnet_b1", 7794184, "1000", mobile },
  { "efficientnet_b2", 9109994, "1000", mobile },
  { "shufflenet_v1", 1865728, "1000", shuffle },
  { "shufflenet_v2_x0_5", 1366792, "1000", shuffle },
  { "shufflenet_v2_x1_0", 2278604, "1000", shuffle },
  { "shufflenet_v2_x1_5", 3503624, "1000", shuffle },
  { "shufflenet_v2_x2_0", 7393996, "1000", shuffle },
  { "convnext_tiny", 28589128, "1000", next_ }, { "convnext_small", 50223688, "1000", next_ },
  { "convnext_base", 88591464, "1000", next_ },
  { "inception_v3", 23834568, "1000", { image = 75, classes = 10 } },
  { "vit_b_16", 86567656, "1000", patches }, { "vit_b_32", 88224232, "1000", patches },
  { "vit_l_16", 304326632, "1000", patches },
  { "mixer_s16", 18528264, "1000", patches }, { "mixer_b16", 59880472, "1000", patches },
  { "unet", 31030658, "2,388,388", { image = 188, width = 2 } },
  { "segnet", 29449355, "11,224,224", { image = 32, width = 4 } },
  { "fcn8", 134489759, "21,224,224", { image = 32, width = 2 } },
  { "autoencoder", 2837314, "784", {} }, { "vae", 652824, "784", {} },
  { "dcgan", 6342272, "1", { width = 4 } },
  { "dcgan_generator", 3576704, "3,64,64", { width = 4 } },
  { "dcgan_discriminator", 2765568, "1", { width = 4 } },
  { "diffusion_unet", 35746307, "3,32,32", { image = 8, width = 8, groups = 4, sees = 4 } },
  { "bert_base", 109482240, "768", bert }, { "bert_large", 335141888, "1024", bert },
  { "gpt", 10795841, "256,65", gpt }, { "chargpt", 826465, "64,97", gpt },
  { "gpt2", 124439808, "1024,50257", gpt }, { "gpt2_medium", 354823168, "1024,50257", gpt },
  { "gpt2_large", 774030080, "1024,50257", gpt }, { "gpt2_xl", 1557611200, "1024,50257", gpt },
  { "seq2seq", 1060961, "32,97", { width = 16, length = 5, vocabulary = 11 } },
  { "lstm", 1083969, "64,65", recurrent }, { "gru", 822849, "64,65", recurrent },
  { "lstm_ptb", 19775200, "35,10000", recurrent },
}

-- Nets whose arena stays a little above its bound: channels are added to channels again and again.
local near = { densenet161 = true, densenet169 = true, densenet201 = true }

describe("bert", function()
  it("does not see what stands behind a text's end, and gives all states where asked", function()
    local o = { layers = 1, states = true }
    for key, value in pairs(bert) do o[key] = value end
    local m = neap.zoo.bert_base(o):eval()
    local ids, lengths = neap.tensor({ { 1, 2, 3, 4, 0, 0 } }, "i64"), neap.tensor({ 4 }, "i64")
    local pooled, states = m(ids, nil, lengths)
    local padded, other = m(neap.tensor({ { 1, 2, 3, 4, 7, 9 } }, "i64"), nil, lengths)
    assert.same({ 1, 6, 16 }, states.shape)
    assert.is_true(pooled:equal(padded))
    assert.is_true(states:narrow(2, 1, 4):equal(other:narrow(2, 1, 4)))
    assert.is_false(pooled:equal((m(neap.tensor({ { 1, 2, 3, 4, 7, 9 } }, "i64")))))

    -- Segments that are left out are 0.
    assert.is_true(pooled:close((m(ids, ids * 0, lengths))))
    assert.is_false(pooled:close((m(ids, ids * 0 + 1, lengths))))
    o.states = nil
    assert.equal(1, select("#", neap.zoo.bert_base(o):eval()(ids)))
  end)
end)

describe("a net of the zoo has the published parameters and shape, and trains as planned:",
  function()
    local known = {}
    for _, case in ipairs(nets) do
      local name, count, shape, small = table.unpack(case)
      known[name] = true
      it(name, function()
        local model = neap.zoo[name]()
        local net, blobs = model:net { batch = 1 }
        assert.are.equal(count, n_parameters(net))
        assert.are.equal(count, netfile.published(name))
        assert.are.equal("1," .. shape, table.concat(blobs.output.shape, ","))
        local file = netfile.load(name .. ":2", nil, small)
        local r = neap.check.plan(file, { steps = 2, count_steps = 2, poison = true })
        assert.is_true(r.same, ("not the unplanned run's bits: %s"):format(r.different))
        assert.are.equal(r.forecast_bytes, r.held_bytes)
        assert.are.equal(0, r.allocations)
        local figures = ("arena %d, bound %d"):format(r.arena_bytes, r.lower_bound_bytes)
        assert.are.equal(not near[name], r.proved, figures)
        assert.is_true(r.arena_bytes <= (r.proved and 1 or 1.02) * r.lower_bound_bytes, figures)
      end)
    end

    it("whose plan at full size is proved, some 3,000 blocks of it too", function()
      local file = netfile.load "efficientnet_b1:2"
      local plan = netfile.plan(file, { train = true }, { store = false })
      assert.are.equal(plan.lower_bound_bytes, plan.arena_bytes)
      assert.is_true(plan.proved)
    end)

    it("and there is no other", function()
      for _, name in ipairs(neap.zoo.names()) do
        assert.is_true(known[name], name .. " is not checked here")
        known[name] = nil
      end
      assert.is_nil(next(known))
    end)
  end)
