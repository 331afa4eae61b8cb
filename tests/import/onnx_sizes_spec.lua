-- An ONNX file whose dimensions have names is a function of ranges of sizes: one plan, one memory,
-- and at each size what the net made for it gives.
local neap = require "neap"
local core = require "neap.core"
local kit = require "import.onnx_kit"
local state = require "neap.workspace.state"

local MOST = 12

local function floats(n, f)
  local list = {}
  for i = 1, n do list[i] = f(i) end
  return list
end

local function ints(name, list)
  return kit.tensor { name = name, elem = 7, dims = { #list }, ints = list }
end

--- Attention of x (batch, seq, 3) with positions and a causal mask cut from tables of MOST rows, as
-- exporters write them, and the last position's row on top.
local function attention()
  return kit.model { nodes = {
    kit.node("Shape", { "x" }, { "size" }),
    kit.node("Gather", { "size", "one" }, { "seq" }, { axis = 0 }),
    kit.node("Slice", { "positions", "zero", "seq" }, { "position" }),
    kit.node("Concat", { "seq", "seq" }, { "square" }, { axis = 0 }),
    kit.node("Slice", { "masks", "zeros", "square" }, { "mask" }),
    kit.node("Sub", { "seq", "one" }, { "last" }),
    kit.node("Gather", { "positions", "last" }, { "top" }, { axis = 0 }),
    kit.node("MatMul", { "x", "w" }, { "xw" }),
    kit.node("Add", { "xw", "position" }, { "placed" }),
    kit.node("Add", { "placed", "top" }, { "h" }),
    kit.node("Transpose", { "h" }, { "ht" }, { perm = { 0, 2, 1 } }),
    kit.node("MatMul", { "h", "ht" }, { "scores" }),
    kit.node("Add", { "scores", "mask" }, { "masked" }),
    kit.node("Softmax", { "masked" }, { "weights" }, { axis = -1 }),
    kit.node("MatMul", { "weights", "h" }, { "mixed" }),
    kit.node("Gather", { "size", "zero" }, { "batch" }, { axis = 0 }),
    kit.node("Concat", { "batch", "rest" }, { "rows" }, { axis = 0 }),
    kit.node("Reshape", { "mixed", "rows" }, { "y" }),
  }, tensors = {
    kit.tensor { name = "w", dims = { 3, 72 },
      floats = floats(216, function(i) return (i * 7 % 11 - 5) / 40 end) },
    kit.tensor { name = "positions", dims = { MOST, 72 },
      floats = floats(72 * MOST, function(i) return (i * 37 % 19 - 9) / 30 end) },
    kit.tensor { name = "masks", dims = { MOST, MOST }, floats = floats(MOST * MOST, function(i)
      return (i - 1) % MOST > (i - 1) // MOST and -1e9 or 0
    end) },
    ints("zero", { 0 }), ints("one", { 1 }), ints("zeros", { 0, 0 }), ints("rest", { -1 }),
  }, inputs = { kit.value("x", { "batch", "seq", 3 }) },
    outputs = { kit.value("y", { "batch", "flat" }) } }
end

--- y = relu(x w), which no size is written into.
local function rows()
  return kit.model { nodes = { kit.node("MatMul", { "x", "w" }, { "h" }),
    kit.node("Relu", { "h" }, { "y" }) },
    tensors = { kit.tensor { name = "w", dims = { 4, 5 },
      floats = floats(20, function(i) return i % 7 - 3 end) } },
    inputs = { kit.value("x", { "batch", 4 }) }, outputs = { kit.value("y", { "batch", 5 }) } }
end

--- The addresses in the plan of the program that f ran last for x, by the blobs' first names.
local function addresses(f, x)
  local net, list = f._for { x = x }, {}
  local _, program = next(state.of(f.workspace).programs[net].by_key)
  for _, v in ipairs(program.plan:values()) do
    list[#list + 1] = ("%s %s"):format(v.blob:gsub("@.*", ""), v.offset or v.region)
  end
  return list
end

describe("an ONNX file with ranges of sizes", function()
  it("gives at each size what the net for it gives, by one plan in one memory", function()
    local folder <close> = kit.folder()
    for name, bytes in pairs { attention = attention(), rows = rows() } do
      local path, has_seq = folder:write(name .. ".onnx", bytes), name == "attention"
      local f = assert(neap.import(path, { dims = { batch = { 1, 4 },
        seq = has_seq and { 2, MOST } or nil } }))
      assert.same(has_seq and { 4, MOST, 3 } or { 4, 4 }, f.net:inputs()[1].shape)
      assert.same({}, f.notes)
      local planned, ranges = core.new_range, 0
      core.new_range = function(...)
        ranges = ranges + 1
        return planned(...)
      end
      local _ <close> = setmetatable({}, { __close = function() core.new_range = planned end })
      local most, arena
      local sizes = { { 4, MOST }, { 2, 7 }, { 1, 7 }, { 1, MOST }, { 3, 2 }, { 4, MOST } }
      for _, size in ipairs(sizes) do
        local x = has_seq and neap.randn(size[1], size[2], 3) or neap.randn(size[1], 4)
        local own = assert(neap.import(path, { dims = { batch = size[1],
          seq = has_seq and size[2] or nil } }))
        assert.is_true(f(x):close(own(x), { atol = 1e-6 }))
        most, arena = most or addresses(f, x), arena or f.workspace:arena_bytes()
        assert.same(most, addresses(f, x))
        assert.equal(arena, f.workspace:arena_bytes())
      end
      assert.equal(1, ranges)
    end
  end)

  it("holds what it computes of sizes once, and for no more sizes than it keeps", function()
    local folder <close> = kit.folder()
    local f = assert(neap.import(folder:write("m.onnx", attention()),
      { dims = { batch = { 1, 40 }, seq = { 2, MOST } } }))
    local function names()
      local out = {}
      for _, blob in ipairs(f.workspace:blobs()) do
        if blob.name:find "@" then out[#out + 1] = blob.name end
      end
      return out
    end
    f(neap.randn(40, 5, 3))
    local planned = neap.memory().n_planned
    for batch = 1, 40 do f(neap.randn(batch, 5, 3)) end
    assert.equal(planned, neap.memory().n_planned)
    assert.equal(3, #names()) -- position, mask and top of 5, whatever the batch
    for seq = 6, 9 do
      for batch = 1, 16 do f(neap.randn(batch, seq, 3)) end
    end
    for _, name in ipairs(names()) do assert.matches("x[6789]x3$", name) end
    assert.equal(12, #names())
  end)

  it("keeps the size that was asked for again, and lets go of an older one", function()
    local folder <close> = kit.folder()
    local f = assert(neap.import(folder:write("m.onnx", attention()),
      { dims = { batch = 1, seq = 4 } }))
    for batch = 2, 65 do f(neap.randn(batch, 5, 3)) end
    f(neap.randn(2, 5, 3))
    f(neap.randn(66, 5, 3))
    local planned = neap.memory().n_planned
    f(neap.randn(2, 5, 3))
    assert.equal(planned, neap.memory().n_planned)
  end)

  it("has weights that are trained at one size at all of them", function()
    local folder <close> = kit.folder()
    local f = assert(neap.import(folder:write("m.onnx", rows()), { dims = { batch = { 1, 8 } } }))
    local x = neap.ones(3, 4)
    local before = f(x)
    f.workspace:feed("w", f.workspace:fetch "w" * 2)
    assert.is_true(f(x):close(before * 2))
    assert.is_true(f(neap.ones(2, 4)):close(before[{ { 1, 2 } }] * 2))
  end)

  it("is refused what lies without, and what is no range", function()
    local folder <close> = kit.folder()
    local path = folder:write("m.onnx", rows())
    local f = assert(neap.import(path, { dims = { batch = { 2, 8 } } }))
    for _, n in ipairs { 1, 9 } do
      assert.error_matches(function() f(neap.ones(n, 4)) end,
        ('dimension "batch" is %d, the function was imported for 2 to 8'):format(n))
    end
    for _, bad in ipairs { { 8, 2 }, { 1 }, { 1, 2, 3 }, { 1.5, 2 }, {}, "8", -1 } do
      assert.error_matches(function() neap.import(path, { dims = { batch = bad } }) end,
        "dims.batch expects a size or a range")
    end
    assert.error_matches(function()
      neap.import(path, { model = true, dims = { batch = { 1, 2 } } })
    end, "a range, which a module has no use for")
  end)

  it("runs any size where the workspace runs without plans", function()
    local folder <close> = kit.folder()
    local f = assert(neap.import(folder:write("m.onnx", rows()), { dims = { batch = { 1, 8 } } }))
    state.of(f.workspace).defaults.executor = "dynamic"
    for n = 8, 1, -3 do assert.same({ n, 5 }, f(neap.ones(n, 4)).shape) end
  end)
end)

describe("an ONNX file as a module", function()
  it("reads its tables anew at each size, and trains them whole", function()
    local folder <close> = kit.folder()
    local path = folder:write("attention.onnx", attention())
    local m, f = assert(neap.import(path, { model = true })), assert(neap.import(path))
    assert.same({ MOST, 72 }, m:param "positions".shape)
    for _, size in ipairs { { 1, 1 }, { 2, 5 }, { 3, MOST }, { 2, 4 } } do
      local x = neap.randn(size[1], size[2], 3)
      assert.is_true((m(x):close(f(x))), table.concat(size, "x"))
    end

    -- Rows that a text is too short for get no gradient, others do.
    local before = m:param "positions".data:clone()
    local t = neap.trainer { model = m, optimizer = neap.optim.SGD { lr = 0.1 },
      loss = function(y) return y:square():mean() end }
    t:step { x = neap.randn(2, 4, 3) }
    local moved = (m:param "positions".data - before):abs():sum(2):totable()
    for i, d in ipairs(moved) do assert.equal(i <= 4, d > 0, "row " .. i) end
  end)
end)
