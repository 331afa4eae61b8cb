-- Operators of TFLite, one a file, against what TensorFlow Lite gives: integers to the step, floats
-- within 1e-5 of the largest.
local neap = require "neap"
local cases = require "import.tflite_cases"
local kit = require "import.tflite_kit"
local wants = require "import.tflite_wants"

--- The numbers of each output of a case, run with options of memory.
local function outputs_of(c, memory)
  local g, inputs = cases.model(c)
  local f = assert(kit.import(g))
  local feeds, out = {}, {}
  local names = f.net:inputs()
  for k, x in ipairs(inputs) do
    local t = neap.tensor(x.numbers, x.type == "bool" and "i32" or x.type)
    if x.type == "bool" then t = t:to "bool" end
    feeds[names[k].name] = t:reshape(table.unpack(x.shape))
  end
  local results = f.workspace:run(f.net, feeds, memory)
  for k, name in ipairs(f.net:outputs()) do out[k] = results[name] end
  return out
end

local function off(y, want)
  local list = y:to("f64"):reshape(-1):totable()
  local worst, largest = 0, 0
  assert.equal(#want, #list)
  for i, value in ipairs(want) do
    worst = math.max(worst, math.abs(value - list[i]))
    largest = math.max(largest, math.abs(value))
  end
  return worst, largest
end

describe("an operator of a TFLite file", function()
  for _, c in ipairs(cases.cases) do
    it(c[1], function()
      for k, y in ipairs(outputs_of(c)) do
        local worst, largest = off(y, wants[c[1]][k])
        local made = c[5][k]
        assert.same(made.shape, y.shape)
        assert.equal(made.type, y.dtype)
        local may = made.type == "f32" and 1e-5 * largest or 0
        assert.is_true(worst <= may, worst)
      end
    end)
  end

  it("gives the same integers where numbers are computed in bf16", function()
    for _, c in ipairs(cases.cases) do
      local is_integer, own = c[5][1].scale ~= nil, {}
      for k = 1, #c[4] do own[k] = c[4][k] and c[4][k].scale and c[4][k].type end
      -- Those that the standard defines in integers; others are numbers that are quantised again.
      local op = c[2]
      local sums = op:find "CONV" or op == "FULLY_CONNECTED" or op == "ADD" or op == "SUB"
        or op == "MUL" or op == "BATCH_MATMUL" or op == "HARD_SWISH" or op == "ABS"
        or op:find "RELU"
        or c[1]:find " i16"
      if is_integer and sums and own[1] then
        local y = outputs_of(c, { dtype = "bf16" })[1]
        assert.equal(0, (off(y, wants[c[1]][1])), c[1])
      end
    end
  end)

  it("says what it does not keep from run to run", function()
    for _, c in ipairs(cases.cases) do
      if c[1] == "SVDF" then
        assert.matches('"in5" begins as zeros in every run', kit.import((cases.model(c))).notes[1])
      end
    end
  end)

  it("is one of those that were recorded", function()
    local n = 0
    for _ in pairs(wants) do n = n + 1 end
    assert.equal(n, #cases.cases)
  end)
end)

-- Where TensorFlow Lite's kernels go ways of their own, results are at most a step away: a resized
-- image of unsigned bytes, a mean over other dimensions than an image's, which rounds twice.
describe("integers of an operator without an integer form", function()
  local q = { type = "i8", shape = { 12 }, scale = { 0.05 }, zero = { 3 } }
  it("are those nearest to what they stand for", function()
    local y = outputs_of({ "", "ELU", nil, { q }, { q } })[1]:totable()
    for i, x in ipairs(cases.numbers(q, 1)) do
      local real = (x - 3) * 0.05
      local want = real > 0 and real or math.exp(real) - 1
      assert.is_true(math.abs(0.05 * (y[i] - 3) - want) <= 0.0251 or y[i] == 127)
    end
  end)
end)

describe("weights of i8 beside numbers", function()
  it("have the scale of each channel, wherever the file's axis goes", function()
    -- The same weights as numbers: (1,H,W,C), with scales along the last dimension.
    local scale = { 0.002, 0.05, 0.7, 3 }
    local w = { type = "i8", shape = { 1, 2, 3, 4 }, scale = scale, zero = { 0, 0, 0, 0 }, axis = 3,
      known = true }
    local real = { type = "f32", shape = w.shape, data = {} }
    for i, q in ipairs(cases.numbers(w, 2)) do real.data[i] = q * scale[(i - 1) % 4 + 1] end
    local function made(weights)
      return outputs_of({ "", "DEPTHWISE_CONV_2D",
        { 2, { "i8", 1 }, { "i32", 1 }, { "i32", 1 }, { "i32", 2 }, { "i8", 0 }, { "i32", 1 },
          { "i32", 1 } },
        { { type = "f32", shape = { 1, 4, 5, 2 } }, weights },
        { { type = "f32", shape = { 1, 3, 3, 4 } } } })[1]
    end
    assert.is_true(made(w):close(made(real), { rtol = 1e-5, atol = 1e-5 }))
  end)
end)
