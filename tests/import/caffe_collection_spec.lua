-- Every file of the collection of Caffe's nets beside the repository: it is read, its shapes are
-- inferred, its parameters are as many as were published, and it is planned. Skipped, with a line
-- that says so, where the collection is not there.
local caffe = require "neap.caffe"
local netfile = require "neap.net.file"
local neap = require "neap"

local folder = "../shared/data/caffe-prototxt/"

--- Names of files, and what the index says of each.
local function files()
  local index, list = io.open(folder .. "INDEX.tsv", "r"), {}
  if not index then
    pending(folder .. " is not there")
    return list
  end
  for line in index:lines() do
    local name, kind = line:match "^(%S+%.prototxt)\t%d+\t%d+\t(%S+)"
    if name then list[#list + 1] = { name = name, is_solver = name:match "solver" ~= nil,
      kind = kind } end
  end
  index:close()
  return list
end

-- What Neap lacks, all of it named.
local lacking = {
  ["pycaffe__linreg"] = 'Python %(layer "loss", line 44%)',
}

local function find(table_of, name)
  for pattern, value in pairs(table_of) do
    if name:match(pattern) then return value end
  end
end

-- Published counts, or those of the papers' nets: with their biases where the files have them.
local counts = {
  ["bvlc/bvlc_alexnet__deploy"] = 60965224, ["bvlc/bvlc_reference_caffenet__deploy"] = 60965224,
  ["bvlc/bvlc_googlenet__deploy"] = 6998552, ["bvlc/bvlc_googlenet__train_val"] = 13378280,
  ["bvlc/mnist__lenet"] = 431080, ["bvlc/mnist__lenet_train_test"] = 431080,
  ["bvlc/cifar10__cifar10_quick"] = 145578, ["bvlc/cifar10__cifar10_full"] = 89578,
  ["mobilenet/mobilenet_deploy"] = 4231976,
  ["resnet-msra/ResNet-50-deploy"] = 25557032 + 64, ["resnet-msra/ResNet-101-deploy"] = 44549160,
  ["resnet-msra/ResNet-152-deploy"] = 60192808, ["soeaver/deploy_densenet121"] = 7978856,
  ["soeaver/deploy_densenet201"] = 20013928, ["soeaver/deploy_resnet18-priv"] = 11689512,
  ["soeaver/deploy_resnext50-32x4d"] = 25028904, ["soeaver/deploy_wrn50-2"] = 68883240,
  ["soeaver/deploy_vgg13-pytorch"] = 133047848, ["soeaver/deploy_vgg16-pytorch"] = 138357544,
  ["soeaver/deploy_vgg19-pytorch"] = 143667240, ["soeaver/deploy_vgg16bn-pytorch"] = 138365992,
  ["soeaver/deploy_inception-v3"] = 23834568, ["soeaver/deploy_xception"] = 22855952,
  ["squeezenet/SqueezeNet_v1.0__deploy"] = 1248424,
  ["squeezenet/SqueezeNet_v1.1__deploy"] = 1235496,
  ["vgg-crowsonkb/vgg16"] = 14714688, ["vgg-crowsonkb/vgg19"] = 20024384,
}

-- Nets that are planned here, in training too: small, or of a kind of their own.
local planned = { "mnist__lenet_train_test", "cifar10_full_train_test", "siamese_train_test",
  "MobileNetSSD", "voc%-fcn32s__val", "fcn_vgg_16_train",
  "mnist_autoencoder", "bvlc_alexnet__train_val", "SqueezeNet_v1.1__train_val",
  "bvlc_googlenet__deploy", "mobilenet_deploy", "voc%-fcn%-alexnet__train", "vgg_16_rgb_train_val",
  "hdf5_classification__train_val", "ResNet%-50", "net_surgery" }

local function n_parameters(model)
  local n = 0
  for _, p in model:parameters() do
    local k = 1
    for _, size in ipairs(p.shape) do k = k * size end
    n = n + k
  end
  return n
end

--- Plans of a file in both modes; its arena is as large as its bound says, or larger.
local function plan(file)
  for _, train in ipairs { false, true } do
    if not train or file.loss then
      local p = netfile.plan(file, { train = train }, { store = false })
      assert.is_true(p.arena_bytes >= p.lower_bound_bytes and p.arena_bytes > 0)
    end
  end
end

describe("the collection of Caffe's nets", function()
  it("is read, inferred, counted and planned", function()
    for _, row in ipairs(files()) do
      local path, name = folder .. row.name, row.name:match "^(.*)%.prototxt$"
      if not row.is_solver then
        local file, message = caffe.net_file(path)
        local lacks = find(lacking, name)
        if lacks then
          assert.is_nil(file)
          assert.matches(lacks, message)
        else
          assert.is_truthy(file, message)
          if counts[name] then assert.equal(counts[name], n_parameters(file.model), name) end
          if find((function()
            local set = {}
            for _, pattern in ipairs(planned) do set[pattern] = true end
            return set
          end)(), name) then plan(file) end
        end
      end
    end
  end)

  it("has solvers that are read", function()
    local n = 0
    for _, row in ipairs(files()) do
      -- Nets are found by the names that the collection gives them.
      if row.is_solver then
        local t, fit = neap.import(folder .. row.name)
        assert.is_truthy(t, row.name .. ": " .. tostring(fit))
        assert.is_true(fit.steps > 0)
        t:close()
        n = n + 1
      end
    end
    assert.is_true(n == 0 or n > 30)
  end)
end)
