--- Gathers and scatters: what places in `indices` name, however often, and what they must not.
local neap = require "neap"
local raises = require("support").raises

local function i64(values) return neap.tensor(values, "i64") end

--- The gradient of sum(y * weight) by each of `wrt`, as tensors.
local function gradients(build, inputs, weight)
  local net, blobs, wrt = neap.net "g", {}, {}
  for name, x in pairs(inputs) do
    local is_float = x.dtype:find "^[bf]" and x.dtype ~= "bool"
    blobs[name] = is_float and net:param(name, x.shape, nil) or net:input(name, x.shape, x.dtype)
    if is_float then wrt[#wrt + 1] = blobs[name] end
  end
  local found = net:gradient(net:Sum(net:Mul { build(net, blobs), net:const(weight) }),
    { wrt = wrt })
  local outs = {}
  for _, blob in ipairs(wrt) do outs[#outs + 1] = found[blob] end
  net:outputs(outs)
  local ws <close> = neap.workspace { store = false }
  ws:init(net)
  for name, x in pairs(inputs) do ws:feed(name, x) end
  ws:run(net)
  local all = {}
  for _, blob in ipairs(wrt) do all[blob.name] = ws:fetch(found[blob].name):totable() end
  return all
end

describe("Gather", function()
  it("takes positions along any axis, negative ones from the end", function()
    local x = neap.tensor { { 1, 2, 3 }, { 4, 5, 6 } }
    assert.are.same({ { 3, 1 }, { 6, 4 } }, x:gather(i64 { -1, 0 }, { axis = 2 }):totable())
    assert.are.same({ { { 4, 5, 6 }, { 4, 5, 6 } } }, x:gather(i64 { { 1, -1 } }):totable())
    assert.are.same({ 2, 5 }, x:gather(i64(1), { axis = -1 }):totable())
  end)

  it("refuses a number beyond either end, and gives zeros for it", function()
    local x = neap.tensor { { 1, 2 }, { 3, 4 } }
    for _, bad in ipairs { 2, -3, math.mininteger, math.maxinteger } do
      raises({ "Gather", ("indices has %d at element 2, out of range for 2 rows"):format(bad) },
        neap.gather, x, i64 { 0, bad })
    end
    raises("out of range for 2 rows (they count from 0)", neap.embedding, i64 { -1 }, x)
    raises("out of range for 0 rows", neap.gather, neap.zeros(0, 2), i64 { 0 })
  end)

  it("adds up the gradient of a position that is taken again", function()
    local d = gradients(function(net, b) return net:Gather { b.x, b.i } end,
      { x = neap.zeros(3, 2), i = i64 { 2, 0, -1 } },
      neap.tensor { { 1, 2 }, { 3, 4 }, { 10, 20 } })
    assert.are.same({ { 3, 4 }, { 0, 0 }, { 11, 22 } }, d.x)
  end)
end)

describe("GatherElements", function()
  it("takes each element at its own place in the other dimensions", function()
    local x = neap.tensor { { 1, 2 }, { 3, 4 }, { 5, 6 } }
    assert.are.same({ { 5, 2 } }, x:gather_elements(i64 { { -1, 0 } }):totable())
    assert.are.same({ { 2, 1, 1 }, { 3, 4, 3 } },
      x:gather_elements(i64 { { 1, 0, 0 }, { 0, -1, -2 } }, { axis = 2 }):totable())
  end)
end)

describe("GatherND", function()
  it("takes what is behind the dimensions that are named", function()
    local x = neap.arange(0, 8):reshape(2, 2, 2)
    assert.are.same({ { 2, 3 }, { 4, 5 } }, x:gather_nd(i64 { { 0, 1 }, { 1, 0 } }):totable())
    assert.are.same({ { 2, 3 }, { 4, 5 } },
      x:gather_nd(i64 { { 1 }, { -2 } }, { batch_dims = 1 }):totable())
    assert.are.equal(5, x:gather_nd(i64 { 1, 0, 1 }):item())
  end)

  it("says which of a place's numbers is out of range, and for what", function()
    raises({ "GatherND", "indices has 3 at element 4, out of range for 3 rows" }, neap.gather_nd,
      neap.zeros(4, 3), i64 { { 3, 2 }, { 3, 3 } })
  end)
end)

--- {reduction, what x = 5 and updates 2, 3, 0.5 of one element give}
local reduced = { none = 0.5, add = 10.5, mul = 15, min = 0.5, max = 5 }

describe("a scatter", function()
  it("combines all that name one element with what is there", function()
    for reduction, want in pairs(reduced) do
      local o = { reduction = reduction }
      assert.are.same({ 7, want }, neap.tensor({ 7, 5 }):scatter_elements(i64 { 1, -1, 1 },
        neap.tensor { 2, 3, 0.5 }, o):totable(), reduction)
      assert.are.same({ 7, want }, neap.tensor({ 7, 5 }):scatter_nd(i64 { { 1 }, { -1 }, { 1 } },
        neap.tensor { 2, 3, 0.5 }, o):totable(), reduction)
    end
    assert.are.same({ { 1, 12 }, { 1, 1 } }, neap.ones(2, 2):index_add(i64 { 1, 1 },
      neap.tensor { { 5, 6 }, { 0, 0 } }, { axis = 2 }):totable())
  end)

  it("computes every dtype: integers wrap around, halves are rounded once", function()
    for _, dtype in ipairs { "i8", "u8", "i16", "u16", "i32", "i64", "f16", "bf16", "f64" } do
      for reduction, want in pairs { add = 14, mul = 100, min = 2, max = 10, none = 5 } do
        local y = neap.tensor({ 7, 2 }, dtype):scatter_elements(i64 { 1, 1 },
          neap.tensor({ reduction == "add" and 7 or 10, 5 }, dtype), { reduction = reduction })
        assert.are.same({ 7, want }, y:totable(), dtype .. " " .. reduction)
      end
    end
    local y = neap.tensor({ 100 }, "i8"):index_add(i64 { 0, 0 }, neap.tensor({ 100, 100 }, "i8"))
    assert.are.equal(44, y:item())
    -- 256 + 1 is no bf16; 256 + 1 + 1 is one
    y = neap.tensor({ 256 }, "bf16"):index_add(i64 { 0, 0 }, neap.tensor({ 1, 1 }, "bf16"))
    assert.are.equal(258, y:item())
  end)

  it("leaves what no place names, infinities and -0 among it", function()
    local x = neap.tensor { -0.0, math.huge, 1 }
    for reduction in pairs(reduced) do
      local y = x:scatter_elements(i64 { 2 }, neap.ones(1), { reduction = reduction })
      assert.are.equal(-math.huge, 1 / y[1])
      assert.are.equal(math.huge, y[2])
    end
  end)

  it("lets a NaN win", function()
    for _, reduction in ipairs { "add", "mul", "min", "max" } do
      for _, values in ipairs { { 0 / 0, 1 }, { 1, 0 / 0 } } do
        local y = neap.zeros(1):scatter_elements(i64 { 0, 0 }, neap.tensor(values),
          { reduction = reduction })
        assert.is_true(y[1] ~= y[1], reduction)
      end
    end
  end)

  it("gives the same bits by any number of threads", function()
    neap.seed(3)
    local x, updates = neap.randn(40, 300), neap.randn(5000, 300)
    local indices = (neap.rand(5000) * 40):cast { to = "i64" }
    local all = {}
    for n = 1, 3 do
      neap.with({ threads = n }, function()
        all[n] = x:index_add(indices:minimum(39), updates):totable()
      end)
    end
    assert.are.same(all[1], all[2])
    assert.are.same(all[1], all[3])
  end)

  it("refuses numbers out of range, and writes nowhere else", function()
    raises({ "ScatterElements", "indices has 2 at element 1, out of range for 2 rows" },
      neap.scatter_elements, neap.zeros(2), i64 { 2 }, neap.ones(1))
    raises({ "ScatterND", "indices has -4 at element 2, out of range for 3 rows" },
      neap.scatter_nd, neap.zeros(2, 3), i64 { { 0, -4 } }, neap.ones(1))
    raises({ "IndexAdd", "out of range for 2 rows" }, neap.index_add, neap.zeros(2), i64 { 5 },
      neap.ones(1))
  end)

  it("refuses updates of another shape or dtype, and a sum of bool", function()
    raises({ "updates expects shape (3,2), what these indices name, got (2,3)" }, neap.index_add,
      neap.zeros(5, 2), i64 { 1, 2, 3 }, neap.zeros(2, 3))
    raises({ "updates expects dtype f32, as x has, got f64" }, neap.index_add, neap.zeros(5),
      i64 { 1 }, neap.zeros { 1, dtype = "f64" })
    local bits = neap.tensor({ true, false }, "bool")
    raises({ "x expects numbers with a reduction, got bool" }, neap.scatter_elements, bits,
      i64 { 0, 1 }, bits, { reduction = "add" })
  end)
end)

describe("the gradient of a scatter", function()
  --- Of x (2) and updates (4), two of which go to each element.
  local function of(reduction, x, updates)
    return gradients(function(net, b)
      return net:ScatterElements({ b.x, b.i, b.u }, 1, { reduction = reduction })
    end, { x = neap.tensor(x), u = neap.tensor(updates), i = i64 { 0, 1, -2, -1 } },
      neap.tensor { 10, 100 })
  end

  it("goes to the last of those that overwrite one another", function()
    local d = of("none", { 1, 2 }, { 3, 4, 5, 6 })
    assert.are.same({ 0, 0 }, d.x)
    assert.are.same({ 0, 0, 10, 100 }, d.u)
  end)
  it("goes to all that are added up", function()
    local d = of("add", { 1, 2 }, { 3, 4, 5, 6 })
    assert.are.same({ 10, 100 }, d.x)
    assert.are.same({ 10, 100, 10, 100 }, d.u)
  end)
  it("knows factors of 0", function()
    local d = of("mul", { 2, 3 }, { 0, 0, 5, 0 })
    assert.are.same({ 0, 0 }, d.x)
    assert.are.same({ 100, 0, 0, 0 }, d.u)
    d = of("mul", { 0, 3 }, { 4, 6, 5, 2 })
    assert.are.same({ 200, 1200 }, d.x)
    assert.are.same({ 0, 600, 0, 1800 }, d.u)
  end)
  it("is shared by equals", function()
    local d = of("max", { 3, 9 }, { 3, 4, 1, 5 })
    assert.are.same({ 5, 100 }, d.x)
    assert.are.same({ 5, 0, 0, 0 }, d.u)
    d = of("min", { 3, 9 }, { 3, 4, 5, 4 })
    assert.are.same({ 5, 0 }, d.x)
    assert.are.same({ 5, 50, 0, 50 }, d.u)
  end)
end)

describe("EmbeddingBag", function()
  local weight = neap.tensor { { 1, 10 }, { 2, 20 }, { 3, 5 } }
  local ids = i64 { 0, 2, 1, 1, 2 }
  local wants = {
    sum = { { 4, 15 }, { 0, 0 }, { 7, 45 } }, mean = { { 2, 7.5 }, { 0, 0 }, { 7 / 3, 15 } },
    max = { { 3, 10 }, { 0, 0 }, { 3, 20 } },
  }
  it("makes one row of a bag, by where it begins or how long it is", function()
    for mode, want in pairs(wants) do
      local by_offsets = neap.embedding_bag(ids, weight:to "f64", i64 { 0, 2, 2 }, { mode = mode })
      local by_lengths = neap.embedding_bag(ids, weight:to "f64", i64 { 2, 0, 3 },
        { mode = mode, by = "lengths" })
      assert.are.same(want, by_offsets:totable(), mode)
      assert.are.same(want, by_lengths:totable(), mode)
    end
    assert.are.same({ { 1.5, 15 }, { 3, 5 } },
      neap.embedding_bag(i64 { { 0, 1 }, { 2, 2 } }, weight):totable())
  end)
  it("counts padding for nothing", function()
    local bags = i64 { 0, 2 }
    assert.are.same({ { 1, 10 }, { 2, 20 } },
      neap.embedding_bag(ids, weight, bags, { padding_idx = -1 }):totable())
    assert.are.same({ { 1, 10 }, { 2, 20 } },
      neap.embedding_bag(ids, weight, bags, { padding_idx = 2, mode = "max" }):totable())
  end)
  it("gives each row a gradient as often as it counts", function()
    local function of(mode, padding)
      return gradients(function(net, b)
        return net:EmbeddingBag({ b.i, b.w, b.o }, 1, { mode = mode, padding_idx = padding })
      end, { i = ids, w = weight, o = i64 { 0, 2, 2 } },
        neap.tensor { { 6, 60 }, { 100, 100 }, { 12, 24 } }).w
    end
    assert.are.same({ { 6, 60 }, { 24, 48 }, { 18, 84 } }, of "sum")
    assert.are.same({ { 3, 30 }, { 8, 16 }, { 7, 38 } }, of "mean")
    assert.are.same({ { 0, 60 }, { 0, 24 }, { 18, 0 } }, of "max")
    assert.are.same({ { 6, 60 }, { 12, 24 }, { 0, 0 } }, of("mean", 2))
  end)
  it("refuses bags that do not fit the ids, and ids that the table lacks", function()
    for _, bad in ipairs { { 1, 2 }, { 0, 6 }, { 0, 3, 2 } } do
      raises({ "EmbeddingBag", "does not fit: offsets begin at 0" }, neap.embedding_bag, ids,
        weight, i64(bad))
    end
    raises("offset 2 of bag 3 does not fit", neap.embedding_bag, ids, weight, i64 { 0, 3, 2 })
    raises("offset 6 of bag 2 does not fit", neap.embedding_bag, ids, weight, i64 { 0, 6 })
    raises("offset 1 of bag 1 does not fit", neap.embedding_bag, ids, weight, i64 { 1, 2 })
    for _, bad in ipairs { { 1, 2 }, { 5, 1 }, { -1, 6 }, { math.maxinteger, 1 } } do
      raises({ "EmbeddingBag", "does not fit: lengths are 0 or more and add up to 5" },
        neap.embedding_bag, ids, weight, i64(bad), { by = "lengths" })
    end
    raises("5 ids belong to no bag", neap.embedding_bag, ids, weight, i64 {})
    raises("ids has 3 at element 2, out of range for 3 rows", neap.embedding_bag, i64 { { 0, 3 } },
      weight)
  end)
end)
