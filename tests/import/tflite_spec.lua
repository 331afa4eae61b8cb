-- neap.import of TFLite files that this file writes: what comes out, what is said of what is wrong.
local neap = require "neap"
local kit = require "import.tflite_kit"

--- y = relu(conv(x, w) + b) of images with two channels, then rows of them.
local function little(more)
  local g = {
    tensors = { { name = "x", shape = { 1, 2, 2, 2 }, signature = { -1, 2, 2, 2 } },
      { name = "conv/w", shape = { 3, 1, 1, 2 }, data = { 1, 2, -1, 0, 0, 1 } },
      { name = "conv/b", shape = { 3 }, data = { 0, 1, -2 } },
      { name = "h", shape = { 1, 2, 2, 3 } },
      { name = "to", type = "i32", shape = { 2 }, data = { 1, 12 } },
      { name = "y", shape = { 1, 12 } } },
    ops = { { "CONV_2D", { 0, 1, 2 }, { 3 }, { 1, { "i8", 1 }, { "i32", 1 }, { "i32", 1 },
        { "i8", 1 } } }, { "RESHAPE", { 3, 4 }, { 5 } } },
    inputs = { 0 }, outputs = { 5 },
  }
  for key, value in pairs(more or {}) do g[key] = value end
  return g
end

local image = neap.tensor { { { { 1, 2 }, { 3, 4 } }, { { 5, 6 }, { -7, 8 } } } }
local rows = { { 5, 0, 0, 11, 0, 2, 17, 0, 4, 9, 8, 6 } }

describe("a TFLite file", function()
  it("is a function with a net, whose weights are parameters", function()
    local f = assert(kit.import(little()))
    assert.same(rows, f(image):totable())
    assert.same({ 3, 2, 1, 1 }, f.net:blob "conv/w".shape)
    assert.equal("parameter", f.net:blob "conv/w".role)
    assert.same({ 1, 2, 2, 2 }, f.net:inputs()[1].shape)
    assert.same({ "y" }, f.net:outputs())
    assert.same({}, f.notes)
  end)

  it("takes a batch that it was not written for", function()
    local f = assert(kit.import(little(), { dims = { batch = 2 } }))
    assert.same({ rows[1], rows[1] }, f(neap.concat({ image, image }, 1)):totable())
    local g = assert(kit.import(little(), { shapes = { x = { 3, 1, 4, 2 } } }))
    assert.same({ 3, 12 }, g(neap.zeros(3, 1, 4, 2)).shape)
    -- And one that comes when it is run.
    local folder <close> = kit.folder()
    local h = assert(neap.import(folder:write("m.tflite", kit.model(little()))))
    assert.same({ rows[1], rows[1] }, h(neap.concat({ image, image }, 1)):totable())
  end)

  it("is a module that can be trained", function()
    local m = assert(kit.import(little(), { model = true }))
    assert.same(rows, m(image):totable())
    local t = neap.trainer { model = m, loss = neap.nn.MseLoss(),
      optimizer = neap.optim.SGD { lr = 0.001 } }
    local set = neap.data.tensors { x = neap.concat({ image, image }, 1), y = neap.zeros(2, 12),
      batch = 2 }
    local before = t:evaluate(set).loss
    t:fit(set, { epochs = 3, verbose = 0 })
    assert.is_true(t:evaluate(set).loss < before)
  end)

  it("gives other values of its nodes when they are asked for", function()
    local f = assert(kit.import(little(), { outputs = { "h" } }))
    assert.same({ 1, 2, 2, 3 }, f(image).shape)
    assert.same({ 11, 0, 2 }, f(image):totable()[1][1][2])
  end)

  it("keeps its channels first from one end to the other", function()
    -- conv, pad, depthwise by two, + itself, times a number a channel, beside another, pooled.
    local one = { 1, { "i8", 0 }, { "i32", 1 }, { "i32", 1 }, { "i8", 0 }, { "i32", 1 },
      { "i32", 1 } }
    local function image_of(name, size, channels)
      return { name = name, shape = { 1, size, size, channels } }
    end
    local three = { 1, 2, 3 }
    local f = assert(kit.import { tensors = { image_of("x", 4, 2),
        { name = "w", shape = { 3, 1, 1, 2 }, data = { 1, 2, -1, 0, 0, 1 } }, image_of("a", 4, 3),
        { name = "pads", type = "i32", shape = { 4, 2 }, data = { 0, 0, 1, 1, 1, 1, 0, 0 } },
        image_of("b", 6, 3), { name = "d", shape = { 1, 1, 1, 3 }, data = three },
        image_of("c", 6, 3), image_of("e", 6, 3), { name = "m", shape = { 3 }, data = three },
        image_of("g", 6, 3), image_of("h", 6, 6),
        { name = "axes", type = "i32", shape = { 2 }, data = { 1, 2 } },
        { name = "y", shape = { 1, 6 } } },
      ops = { { "CONV_2D", { 0, 1 }, { 2 }, one }, { "PAD", { 2, 3 }, { 4 } },
        { "DEPTHWISE_CONV_2D", { 4, 5 }, { 6 }, { 2, { "i8", 0 }, { "i32", 1 }, { "i32", 1 },
          { "i32", 1 }, { "i8", 0 } } }, { "ADD", { 6, 4 }, { 7 } }, { "MUL", { 7, 8 }, { 9 } },
        { "CONCATENATION", { 9, 7 }, { 10 }, { 10, { "i32", 3 } } },
        { "MEAN", { 10, 11 }, { 12 } } }, inputs = { 0 }, outputs = { 12 } })
    local n_permute = 0
    for _, o in ipairs(f.net:ops()) do n_permute = n_permute + (o.type == "Permute" and 1 or 0) end
    assert.equal(1, n_permute)
    -- Channels of a: 1 + 2 2, -1, 2; padded 16 of 36 are there; d + 1 times, m times.
    local ones = neap.ones(1, 4, 4, 1)
    local x = neap.concat({ ones, ones * 2 }, 4)
    local want = { 5 * 2, -1 * 3 * 2, 2 * 4 * 3, 5 * 2, -1 * 3, 2 * 4 }
    for i, value in ipairs(f(x):totable()[1]) do
      assert.near(want[i] * 16 / 36, value, 1e-5)
    end
  end)

  it("is planned as a net file is", function()
    local folder <close> = kit.folder()
    local load = require("neap.net.file").load
    local file = load(folder:write("m.tflite", kit.model(little())) .. ":5")
    assert.same({ 5, 2, 2, 2 }, require("neap.net.file").build(file, {}):inputs()[1].shape)
  end)

  it("has each name once, and no more of one than says what it is", function()
    local g = little()
    g.tensors[2].name, g.tensors[3].name = "a/b;c", "a/b;d"
    local f = assert(kit.import(g))
    assert.is_truthy(f.net:blob "a/b")
    assert.is_truthy(f.net:blob "a/b_2" or f.net:blob "a/b_1")
    assert.same(rows, f(image):totable())
  end)

  it("is refused with all operators that Neap lacks, and where they are", function()
    local g = little()
    g.ops[2][1], g.ops[3] = "HASHTABLE_LOOKUP", { "Own", { 3 }, { 5 } }
    local f, message, code = kit.import(g)
    assert.is_nil(f)
    assert.equal("data", code)
    assert.matches("m.tflite: Neap has no subgraph 1, operator 2 %(HASHTABLE_LOOKUP%), \z
      subgraph 1, operator 3 %(Own%)$", message)
  end)
end)

describe("subgraphs of a TFLite file", function()
  local function number(name, value)
    return { name = name, type = "i32", shape = {}, data = value and { value } or nil }
  end
  --- y = x + x + .. by a loop that counts to `last`, then the branch that `flag` says.
  local function looped(last, flag)
    local x, y = { name = "x", shape = { 2 } }, { name = "y", shape = { 2 } }
    local main = { tensors = { x, number("i", 0), number "n", { name = "s", shape = { 2 } },
        { name = "flag", type = "bool", shape = {}, data = flag and { flag } or nil }, y },
      ops = { { "WHILE", { 1, 0 }, { 2, 3 }, { 93, { "i32", 1 }, { "i32", 2 } } },
        { "IF", { 4, 3 }, { 5 }, { 92, { "i32", 3 }, { "i32", 4 } } } },
      inputs = flag and { 0 } or { 0, 4 }, outputs = { 5 } }
    local cond = { tensors = { number "i", x, number("last", last),
        { name = "on", type = "bool", shape = {} } },
      ops = { { "LESS", { 0, 2 }, { 3 } } }, inputs = { 0, 1 }, outputs = { 3 } }
    local body = { tensors = { number "i", x, number("one", 1), number "next", y },
      ops = { { "ADD", { 0, 2 }, { 3 } }, { "ADD", { 1, 1 }, { 4 } } }, inputs = { 0, 1 },
      outputs = { 3, 4 } }
    local function branch(op)
      return { tensors = { x, y }, ops = { { op, { 0 }, { 1 } } }, inputs = { 0 }, outputs = { 1 } }
    end
    return { main, cond, body, branch "NEG", branch "ABS" }
  end

  it("are written out, as often and as far as is known", function()
    local x = neap.tensor { 1, -2 }
    assert.same({ -8, 16 }, assert(kit.import(looped(3, 1)))(x):totable())
    assert.same({ 8, 16 }, assert(kit.import(looped(3, 0)))(x):totable())
    assert.same({ -1, 2 }, assert(kit.import(looped(0, 1)))(x):totable())
  end)

  it("are refused where only a run can tell, or without end", function()
    local _, message = kit.import(looped(3))
    assert.matches("subgraph 1, operator 2 %(IF%): a condition that only a run can tell", message)
    _, message = kit.import(looped(1 << 30, 1))
    assert.matches("%(WHILE%): more than 1024 turns", message)
  end)
end)

describe("quantised numbers of a TFLite file", function()
  -- A convolution of one channel: sums 2 (q - 3) + 1, at 0.25 and 0.5 a step.
  local function quantised(x, w, y, activation)
    return { tensors = { { name = "x", type = x.type or "i8", shape = { 1, 1, 4, 1 },
          scale = { x.scale }, zero = { x.zero } },
        { type = w.type or "i8", shape = { 2, 1, 1, 1 }, data = w.data, scale = w.scale,
          zero = w.zero },
        { type = "i32", shape = { 2 }, data = { 1, 0 }, scale = w.scale },
        { name = "y", type = y.type or "i8", shape = { 1, 1, 4, 2 }, scale = { y.scale },
          zero = { y.zero } } },
      ops = { { "CONV_2D", { 0, 1, 2 }, { 3 }, { 1, { "i8", 1 }, { "i32", 1 }, { "i32", 1 },
        { "i8", activation or 0 } } } }, inputs = { 0 }, outputs = { 3 } }
  end
  local w = { data = { 2, -3 }, scale = { 0.5, 0.25 }, zero = { 0, 0 } }

  it("are convolved as integers, with a scale for each channel", function()
    local f = assert(kit.import(quantised({ scale = 1, zero = 3 }, w, { scale = 1, zero = -1 })))
    local y = f(neap.tensor({ -128, 0, 4, 127 }, "i8"):reshape(1, 1, 4, 1))
    assert.equal("i8", y.dtype)
    -- Sums -261, -5, 3, 249 by a half: halves go up. And 393, 9, -3, -372 by a quarter: by a half
    -- so, and by another one halves go away from 0: 98.5, 2.5, -0.5, -93.
    assert.same({ { -128, 98 }, { -3, 2 }, { 1, -2 }, { 124, -94 } }, y:totable()[1][1])
  end)

  it("are cut by a fused activation, at what stands for its bounds", function()
    local x = neap.tensor({ -128, 0, 4, 127 }, "i8"):reshape(1, 1, 4, 1)
    local f = assert(kit.import(quantised({ scale = 1, zero = 3 }, w, { scale = 1, zero = -1 }, 3)))
    assert.same({ { -1, 5 }, { -1, 2 }, { 1, -1 }, { 5, -1 } }, f(x):totable()[1][1])
  end)

  it("may have zero points of weights, and no sign", function()
    local u8 = { type = "u8", scale = { 0.5 }, zero = { 128 }, data = { 130, 125 } }
    local f = assert(kit.import(quantised({ type = "u8", scale = 1, zero = 131 }, u8,
      { type = "u8", scale = 0.5, zero = 127 })))
    local y = f(neap.tensor({ 0, 128, 132, 255 }, "u8"):reshape(1, 1, 4, 1))
    assert.same({ { 0, 255 }, { 122, 136 }, { 130, 124 }, { 255, 0 } }, y:totable()[1][1])
  end)

  it("have no slope below 0, which is no scale of integers", function()
    local f, message = kit.import { tensors = { { name = "x", type = "i8", shape = { 1, 3 },
          scale = { 0.5 }, zero = { 2 } },
        { name = "y", type = "i8", shape = { 1, 3 }, scale = { 0.25 }, zero = { 1 } } },
      ops = { { "LEAKY_RELU", { 0 }, { 1 }, { 75, { "f32", -0.5 } } } }, inputs = { 0 },
      outputs = { 1 } }
    assert.is_nil(f)
    assert.matches("slope = %-0.5 is out of range", message)
  end)

  it("are summed without loss, however many", function()
    -- One x is left of them. No block of them has a sum that is a multiple of a power of 2.
    local rows, turns = 8, 9000
    local up, down = string.pack("bbbbbbb", 127, 126, 127, 125, 127, 123, 121),
      string.pack("bbbbbbb", -121, -127, -123, -127, -125, -126, -127)
    local w = up:rep(turns) .. down:rep(turns - 1) .. down:sub(1, 6) .. string.pack("b", -126)
    local n = #w
    for _, case in ipairs { { 0, 127, 1, 127 }, { 127, -128, 3, -85 } } do
      local zero, x, scale, want = table.unpack(case)
      local f = assert(kit.import { tensors = { { name = "x", type = "i8", shape = { rows, n },
            scale = { 1 }, zero = { zero } },
          { name = "w", type = "i8", shape = { rows, n }, data = w:rep(rows), scale = { 1 },
            zero = { 0 } },
          { name = "y", type = "i8", shape = { rows, rows }, scale = { scale }, zero = { 0 } } },
        ops = { { "FULLY_CONNECTED", { 0, 1, -1 }, { 2 }, { 8, { "i8", 0 } } } }, inputs = { 0 },
        outputs = { 2 } })
      local y = f(neap.full { rows, n, value = x, dtype = "i8" })
      assert.is_true(y:equal(neap.full { rows, rows, value = want, dtype = "i8" }))
    end
  end)
end)

describe("weights of 8 bits beside floats", function()
  it("are numbers, and a note says what TensorFlow Lite does with x", function()
    local f = assert(kit.import { tensors = { { name = "x", shape = { 1, 2 } },
        { name = "w", type = "i8", shape = { 1, 2 }, data = { 3, -2 }, scale = { 0.5 } },
        { name = "y", shape = { 1, 1 } } },
      ops = { { "FULLY_CONNECTED", { 0, 1, -1 }, { 2 }, { 8, { "i8", 0 } } } },
      inputs = { 0 }, outputs = { 2 } })
    assert.same({ { 0.25 } }, f(neap.tensor { { 0.5, 0.5 } }):totable())
    assert.equal(1, #f.notes)
    assert.matches("FULLY_CONNECTED.*weights of i8.*x to 8 bits first", f.notes[1])
  end)

  it("lie in 4 or 2 bits, the lowest first, and may not fill the last byte", function()
    for _, case in ipairs { { 17, "\x87\x3f\x0e", { 7, -8, -1, 3, -2 } },
      { 19, "\x39\x02", { 1, -2, -1, 0, -2 } }, { 20, "\x8f\x10\x09", { 15, 8, 0, 1, 9 } } } do
      local f = assert(kit.import { tensors = { { name = "x", shape = { 5, 5 } },
          { name = "w", type = case[1], shape = { 1, 5 }, data = case[2], scale = { 0.5 } },
          { name = "y", shape = { 5, 1 } } },
        ops = { { "FULLY_CONNECTED", { 0, 1, -1 }, { 2 }, { 8, { "i8", 0 } } } },
        inputs = { 0 }, outputs = { 2 } })
      assert.same(case[3], (f(neap.eye(5)) * 2):reshape(5):totable())
    end
  end)
end)
