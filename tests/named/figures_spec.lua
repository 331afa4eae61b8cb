-- The memory figures that other systems have published, on the same nets, from plans alone:
-- named-systems figures of optnet, OpenCV and Caffe2. Each test's name is the sentence that it
-- proves.
local neap = require "neap"
local memory = require "neap.bench.memory"
local netfile = require "neap.net.file"

local report

--- The row of "net:batch engine"; all figures are planned once, when the first is asked for.
local rows = setmetatable({}, { __index = function(_, key)
  report = report or memory.run()
  for _, row in ipairs(report) do
    local name = ("%s:%d %s%s"):format(row.net, row.batch, row.engine,
      row.fused == "pool" and " fused with pooling" or row.fused and " fused" or "")
    if row.what:find("output memory", 1, true) and name == key then return row end
  end
  error("no figure for " .. key)
end })

--- The bytes of a float tensor.
local function floats(...)
  local n = 4
  for _, d in ipairs { ... } do n = n * d end
  return n
end

describe("output memory at inference, batch 128, values only,", function()
  for _, name in ipairs { "alexnet two towers", "alexnet", "vgg_a", "googlenet", "resnet110" } do
    it("equals the lower bound, proved, for " .. name, function()
      for _, engine in ipairs { "ref", "default" } do
        local row = rows[("%s:128 %s"):format(name, engine)]
        assert.is_true(row.proved, engine)
        assert.are.equal(row.lower_bound_bytes, row.arena_bytes)
      end
      assert.are.equal(0, rows[name .. ":128 ref"].scratch_bytes)
    end)
  end

  it("is that of VGG-A's first convolution and pooling, 1960 MiB, which \z
      nothing can be below", function()
    local row = rows["vgg_a:128 ref"]
    assert.are.equal(floats(128, 64, 224, 224) + floats(128, 64, 112, 112), row.arena_bytes)
    assert.are.equal(1960 * 2 ^ 20, row.arena_bytes)
    assert.are.equal(floats(128, 1000), row.output_bytes)
  end)

  it("is at most the published 97 MiB for AlexNet, 1993 for GoogLeNet and 32 for ResNet-110, \z
      the output included", function()
    for name, published in pairs{ ["alexnet two towers"] = 97, googlenet = 1993, resnet110 = 32 } do
      local row = rows[name .. ":128 ref"]
      assert.are.equal(row.arena_bytes + row.output_bytes, row.figure_bytes)
      assert.is_true(row.figure_bytes <= published * 2 ^ 20,
        ("%s: %d"):format(name, row.figure_bytes))
    end
  end)

  it("needs three maps of 16 channels for ResNet-110: what comes in, what the block made of it, \z
      what it makes of that", function()
    assert.are.equal(3 * floats(128, 16, 32, 32), rows["resnet110:128 ref"].arena_bytes)
  end)
end)

describe("output memory at inference, batch 1,", function()
  for name, published in pairs {
    alexnet = 2.32, googlenet = 5.21, resnet50 = 9.63, squeezenet1_1 = 4.87,
  } do
    it(("is at most the published %.2f MB for %s, proved least"):format(published, name), function()
      local row = rows[name .. ":1 ref"]
      assert.is_true(row.figure_bytes <= published * 1e6, tostring(row.figure_bytes))
      assert.is_true(row.proved)
      assert.are.equal(row.lower_bound_bytes, row.arena_bytes)
      assert.is_true(rows[name .. ":1 default"].proved)
    end)
  end

  it("is no more when products take in what follows them, and proved least as well: for \z
      ResNet-110 two maps instead of three", function()
    for _, name in ipairs {
      "alexnet two towers:128", "alexnet:128", "vgg_a:128", "googlenet:128", "resnet110:128",
      "resnet50:1", "squeezenet1_1:1",
    } do
      for _, engine in ipairs { " ref", " default" } do
        local plain, fused = rows[name .. engine], rows[name .. engine .. " fused"]
        assert.is_true(fused.arena_bytes <= plain.arena_bytes, name)
        assert.is_true(fused.proved)
      end
    end
    assert.are.equal(2 * floats(128, 16, 32, 32), rows["resnet110:128 ref fused"].arena_bytes)
  end)

  it("with pooling fused in is never more, scratch included, and proved least", function()
    for _, name in ipairs {
      "alexnet two towers:128", "alexnet:128", "vgg_a:128", "googlenet:128", "resnet110:128",
      "alexnet:1", "googlenet:1",
      "resnet50:1", "squeezenet1_1:1",
    } do
      for _, engine in ipairs { " ref", " default" } do
        local fused = rows[name .. engine .. " fused"]
        local pooled = rows[name .. engine .. " fused with pooling"]
        assert.is_true(pooled.arena_bytes <= fused.arena_bytes, name .. engine)
        assert.is_true(pooled.proved, name .. engine)
      end
    end
  end)

  it("of VGG-A, batch 128, is with pooling fused in what two pools give and one image \z
      between: a third", function()
    local row = rows["vgg_a:128 ref fused with pooling"]
    assert.are.equal(
      floats(128, 64, 112, 112) + floats(128, 128, 56, 56) + floats(1, 128, 112, 112),
      row.arena_bytes)
    assert.are.equal(floats(1, 128, 112, 112), row.scratch_bytes)
    assert.is_true(row.arena_bytes <= 1960 * 2 ^ 20 / 3)
  end)

  it("of AlexNet's two towers, batch 128, is with pooling fused in at most two fifths, of \z
      GoogLeNet four fifths", function()
    for name, part in pairs { ["alexnet two towers"] = 0.4, googlenet = 0.8 } do
      local plain, pooled = rows[name .. ":128 ref"], rows[name .. ":128 ref fused with pooling"]
      assert.is_true(pooled.arena_bytes <= part * plain.arena_bytes,
        ("%s: %d of %d"):format(name, pooled.arena_bytes, plain.arena_bytes))
    end
  end)

  it("of every figure printed is met where one is published", function()
    local all = memory.run()
    assert.is_true(all.n_published >= 12)
    for _, row in ipairs(all) do
      assert.is_true(row.met ~= false, ("%s of %s"):format(row.what, row.net))
    end
    assert.are.equal(all.n_published, all.n_met)
  end)
end)

describe("ResNet-50 by name", function()
  local function row_of(what, engine)
    for _, row in ipairs(report or memory.run()) do
      if row.what:find(what, 1, true) and row.engine == engine then return row end
    end
  end

  it("runs forward on at most five shared blobs in a dag and three in a row", function()
    assert.is_true(row_of("shared blobs", "dag").count <= 5)
    assert.is_true(row_of("shared blobs", "linear").count <= 3)
  end)

  it("trains with batch 32 in at least 42 % less than without reuse, and in less than the best \z
      published, 4330 MiB", function()
    local row = row_of("gradients and activations shared", "ref")
    assert.is_true(row.figure_bytes <= 0.58 * row.no_reuse_bytes,
      ("%.1f %%"):format(100 * row.figure_bytes / row.no_reuse_bytes))
    assert.is_true(row.figure_bytes <= 4330 * 2 ^ 20)
    assert.is_true(row.figure_bytes < row_of("all regions, gradients shared", "ref").figure_bytes)
  end)
end)

describe("the nets of the figures", function()
  --- Parameters, in numbers, of the papers' tables and the authors' models.
  local count = {
    alexnet = 60965224,
    vgg_a = 132863336,
    googlenet = 6998552,
    squeezenet1_1 = 1235496,
    resnet110 = 1727962,
  }
  for name, want in pairs(count) do
    it(("have the parameters of the published model: %s, %d"):format(name, want), function()
      assert.are.equal(want, netfile.build(netfile.load(name),
        { batch = 1 }):plan({ store = false }):summary().parameters)
    end)
  end

  it("run as planned: training and inference give the unplanned run's bits, and \z
      nothing is allocated", function()
    local small = {
      { netfile.load("resnet110:2", nil, { depth = 8 }), true },
      { netfile.load "squeezenet1_1:1", false },
      { netfile.load "lstm:2", true },
      { netfile.load "googlenet:1", false },
    }
    for _, case in ipairs(small) do
      local r = neap.check.plan(case[1], {
        train = case[2], steps = 2, count_steps = 2, poison = true,
      })
      assert.is_true(r.same, case[1].name .. ": " .. tostring(r.different))
      assert.are.equal(0, r.allocations)
      assert.are.equal(r.forecast_bytes, r.held_bytes)
    end
  end)
end)
