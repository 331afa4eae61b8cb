-- Integer nets of MLPerf Tiny, from the data beside the repository, against what TensorFlow Lite's
-- own kernels give (its reference ones, ai-edge-litert 2.3): the same integers. Skipped, with a
-- line that says so, where the data is not there.
local neap = require "neap"

local folder = "../shared/data/mlperf-tiny"

--- Numbers from -128 to 127 that look like no pattern.
local function input_of(shape, step)
  local n, list = 1, {}
  for _, size in ipairs(shape) do n = n * size end
  for i = 0, n - 1 do list[i + 1] = (i * step + i // 7 * 11) % 256 - 128 end
  return neap.tensor(list, "i8"):reshape(table.unpack(shape))
end

-- By file and step: the first numbers, their sum, and the sum of each times its place.
local recorded = {
  ad01_int8 = {
    [37] = { { -76, -34, -11, 15, 15, 17, 22, 29, 14, 26, 28, 30 }, -387, -342996 },
    [101] = { { -46, 0, 27, 47, 44, 45, 44, 60, 47, 47, 48, 43 }, 2065, 450070 } },
  kws_ref_model = {
    [37] = { { -128, -128, -128, -128, -128, -18, -128, -128, -128, -109, -128, -1 }, -1280,
      -7610 },
    [101] = { { -128, -128, -128, -128, -128, -128, -128, -128, -128, -128, -128, 127 }, -1281,
      -6924 } },
  pretrainedResnet_quant = {
    [37] = { { -128, 121, -128, -128, -128, -128, -128, -128, -121, -128 }, -1024, -6479 },
    [101] = { { -128, -128, -128, -128, -128, -128, 127, -128, -127, -128 }, -1024, -5246 } },
  str_ww_ref_model = {
    [37] = { { -128, -128, 127 }, -129, -3 }, [101] = { { 72, -128, -72 }, -128, -400 } },
  vww_96_int8 = { [37] = { { 122, -122 }, 0, -122 }, [101] = { { 122, -122 }, 0, -122 } },
}

local function each(f)
  local is_there = io.open(folder .. "/README.md", "rb")
  if not is_there then
    pending(folder .. " is not there")
    return
  end
  is_there:close()
  for name, steps in pairs(recorded) do f(folder .. "/" .. name .. ".tflite", steps) end
end

describe("integer nets of MLPerf Tiny", function()
  it("give the integers that TensorFlow Lite gives", function()
    each(function(path, steps)
      local f = assert(neap.import(path))
      for step, want in pairs(steps) do
        local y = f(input_of(f.net:inputs()[1].shape, step))
        local list, sum, placed = y:reshape(-1):totable(), 0, 0
        for i, value in ipairs(list) do sum, placed = sum + value, placed + value * i end
        assert.equal("i8", y.dtype)
        assert.same(want, { table.move(list, 1, #want[1], 1, {}), sum, placed }, path)
      end
    end)
  end)

  it("have layouts that change at their ends alone", function()
    each(function(path)
      local n = 0
      for _, o in ipairs(assert(neap.import(path)).net:ops()) do
        n = n + (o.type == "Permute" and 1 or 0)
      end
      assert.is_true(n <= 1, path .. " has " .. n)
    end)
  end)

  it("say that they are not to be trained", function()
    each(function(path)
      local file = require("neap.net.file")
      assert.error_matches(function() file.build(file.load(path), { train = true }) end,
        "gives i8, which no loss judges")
      assert.equal("i8", file.build(file.load(path .. ":2"), {}):inputs()[1].dtype)
    end)
  end)

  it("take a batch, row by row the same", function()
    each(function(path)
      local one = assert(neap.import(path))
      local two = assert(neap.import(path, { dims = { batch = 2 } }))
      local shape = one.net:inputs()[1].shape
      local a, b = input_of(shape, 37), input_of(shape, 101)
      local both = two(neap.concat({ a, b }, 1))
      assert.same(one(a):totable()[1], both:totable()[1])
      assert.same(one(b):totable()[1], both:totable()[2])
    end)
  end)
end)
