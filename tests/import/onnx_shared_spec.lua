-- Every 15th test of the standard's, and nets with their weights, from the data beside the
-- repository; skipped, with a line that says so, where that is not there.
local onnx = require "neap.onnx"
local case = dofile "tests/onnx/case.lua"
local kit = require "import.onnx_kit"

local data = "../shared/data"

local function exists(path)
  local file <close> = io.open(path, "rb")
  return file ~= nil
end

--- Whether Neap is for the test at all: a training op's is not.
local function is_meant(lacking)
  for _, row in ipairs(lacking or {}) do
    if row.op:match "^ai%.onnx%.preview%.training%." then return false end
  end
  return true
end

describe("ONNX's own tests", function()
  local archive = data .. "/onnx-node/onnx-node-dev.tar.zst"
  it("pass within ONNX Runtime's tolerances", function()
    if not exists(archive) then
      pending(archive .. " is not there")
      return
    end
    local folder <close> = kit.folder()
    assert(os.execute(("tar --zstd -xf %s -C %s"):format(archive, folder.path)))
    local models, n = case.models(folder.path), 0
    assert.is_true(#models > 100)
    for i = 1, #models, 15 do
      local model, message, _, lacking = onnx.read(models[i])
      if model or is_meant(lacking) then
        assert.is_table(model, message)
        for _, set in ipairs(case.data_sets(models[i])) do
          assert.is_nil(case.check(model, set), models[i])
        end
        n = n + 1
      end
    end
    assert.is_true(n > 60)
  end)

  it("of nets with weights give the recorded outputs", function()
    local folder = data .. "/onnx-real"
    if not exists(folder .. "/README.md") then
      pending(folder .. " is not there")
      return
    end
    for _, path in ipairs(case.models(folder)) do
      for _, set in ipairs(case.data_sets(path)) do
        assert.is_nil(case.check(assert(onnx.read(path)), set, 1e-4, 1e-2), path)
      end
    end
  end)
end)

describe("a net of an ONNX file", function()
  it("gets a new head, learns another task, and is written again", function()
    local path = data .. "/onnx-real/mnist_8/model.onnx"
    local sample = data .. "/datasets/cifar10/cifar10_test_first1000.bin.gz"
    if not exists(path) or not exists(sample) then
      pending(path .. " or CIFAR-10 is not there")
      return
    end
    local folder <close> = kit.folder()
    local out = folder.path .. "/finetuned.onnx"
    local program = (os.getenv "NEAP_BUILD" or "build") .. "/neap"
    local command = ("%s run scripts/examples/finetune.lua %s %s --quick 2>&1"):format(program,
      path, out)
    local pipe <close> = assert(io.popen(command))
    local text = pipe:read "a"
    local before, after = text:match "loss ([%d.]+) before, ([%d.]+) after"
    assert.is_truthy(before, text)
    assert.is_true(tonumber(after) < tonumber(before), text)
    local off, of = text:match "differs by (%S+) of (%S+)"
    assert.is_true(tonumber(off) <= 1e-5 * tonumber(of), text)
  end)
end)
