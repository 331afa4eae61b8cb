-- Tensors as scripts use them: making, indexing from 1, views, assignment, operators, files,
-- errors.
local neap = require "neap"
local support = require "support"
local raises, settle = support.raises, support.settle

local function list(x) return x:totable() end

describe("making tensors", function()
  it("takes nested tables, f32 unless said, bool for booleans", function()
    local x = neap.tensor { { 1, 2, 3 }, { 4, 5, 6 } }
    assert.are.same({ 2, 3 }, x.shape)
    assert.are.equal("f32", x.dtype)
    assert.are.same({ { 1, 2, 3 }, { 4, 5, 6 } }, list(x))
    assert.are.equal("i64", neap.tensor({ 1, 2 }, "i64").dtype)
    assert.are.equal("bool", neap.tensor({ true, false }).dtype)
    assert.are.same({}, neap.tensor(7).shape)
    assert.are.equal(7, neap.tensor(7):item())
  end)

  it("refuses ragged tables and what is no number", function()
    raises("ragged", neap.tensor, { { 1, 2 }, { 3 } })
    raises("ragged", neap.tensor, { { 1, 2 }, 3 })
    raises("number", neap.tensor, { 1, "x" })
    raises("table", neap.tensor, "x")
    raises("unknown dtype f99", neap.tensor, { 1 }, "f99")
    raises("expects the name of a dtype, got a table; it stands by itself", neap.tensor, { 1 },
      { dtype = "f64" })
  end)

  it("fills", function()
    assert.are.same({ { 0, 0 }, { 0, 0 } }, list(neap.zeros(2, 2)))
    assert.are.same({ 1, 1 }, list(neap.ones { 2, dtype = "u8" }))
    assert.are.same({ 7, 7 }, list(neap.full { 2, value = 7 }))
    assert.are.same({ 0, 1, 2 }, list(neap.arange(3)))
    assert.are.same({ 1, 3 }, list(neap.arange(1, 5, 2)))
    assert.are.same({ 3, 2 }, list(neap.arange(3, 1, -1)))
    assert.are.same({ 0, 0.5, 1 }, list(neap.linspace(0, 1, 3)))
    assert.are.same({ 2 }, list(neap.linspace(2, 5, 1)))
    assert.are.same({ { 1, 0 }, { 0, 1 } }, list(neap.eye(2)))
    assert.are.same({ 0, 3 }, neap.empty(0, 3).shape)
    raises("did you mean \"dtype\"", neap.zeros, { 2, dtpe = "i64" })
    raises("value = number", neap.full, { 2 })
    raises("negative", neap.zeros, -1)
  end)

  it("draws the same numbers from the same seed", function()
    neap.seed(5)
    local a, b = neap.rand(100), neap.rand(100)
    neap.seed(5)
    assert.is_true(a:equal(neap.rand(100)))
    assert.is_false(a:equal(b))
    local s = neap.rand { 1000, low = -2, high = 3 }:stats()
    assert.is_true(s.min >= -2 and s.max < 3 and s.max - s.min > 4)
    local g = neap.randn(10000):stats()
    assert.is_true(math.abs(g.mean) < 0.05 and math.abs(g.std - 1) < 0.05)
  end)
end)

describe("indexing", function()
  local x
  before_each(function() x = neap.tensor { { 1, 2, 3 }, { 4, 5, 6 } } end)

  it("counts from 1, and from -1 at the end", function()
    assert.are.same({ 1, 2, 3 }, list(x[1]))
    assert.are.same({ 4, 5, 6 }, list(x[-1]))
    assert.are.equal(6, x[2][3])
    assert.are.equal(6, x[{ 2, 3 }])
    assert.are.equal(6, x[{ -1, -1 }])
    assert.are.equal(5, x:at(2, 2))
  end)

  it("raises for 0 and what is out of range, but reads nil one past the end", function()
    raises("position 0", function() return x[0] end)
    raises("out of range", function() return x[4] end)
    raises("out of range", function() return x[-3] end)
    raises("out of range", function() return x[{ 1, 4 }] end)
    assert.is_nil(x[3])
    local n = 0
    for _ in ipairs(x) do n = n + 1 end
    assert.are.equal(2, n)
  end)

  it("takes ranges with both ends, steps, and all", function()
    assert.are.same({ { 2, 3 }, { 5, 6 } }, list(x[{ {}, { 2, 3 } }]))
    assert.are.same({ { 1, 3 }, { 4, 6 } }, list(x[{ {}, { 1, -1, 2 } }]))
    assert.are.same({ { 3, 2, 1 } }, list(x[{ { 1, 1 }, { -1, 1, -1 } }]))
    assert.are.same({ 2, 5 }, list(x[{ {}, 2 }]))
    assert.are.same({ 4, 5, 6 }, list(x[{ 2 }]))
    raises("step 0", function() return x[{ { 1, 2, 0 } }] end)
    raises("positions for a tensor", function() return x[{ 1, 1, 1 }] end)
  end)

  it("picks by mask", function()
    assert.are.same({ 4, 5, 6 }, list(x[x:gt(3)]))
    x[x:gt(3)] = 0
    assert.are.same({ { 1, 2, 3 }, { 0, 0, 0 } }, list(x))
    x[x:eq(0)] = neap.tensor { 7, 8, 9 }
    assert.are.same({ 7, 8, 9 }, list(x[2]))
    raises("bool tensor", function() return x[x] end)
    raises("the mask picks 3 elements", function() x[x:gt(3)] = neap.tensor { 1, 2 } end)
    assert.are.same({ 7, 8, 9 }, list(x[2]))
  end)

  it("assigns numbers, tables and tensors, broadcast", function()
    x[1] = 0
    x[{ 2, 3 }] = 9
    assert.are.same({ { 0, 0, 0 }, { 4, 5, 9 } }, list(x))
    x[{ {}, 1 }] = { 7, 8 }
    assert.are.same({ { 7, 0, 0 }, { 8, 5, 9 } }, list(x))
    x[{}] = neap.tensor { 1, 2, 3 }
    assert.are.same({ { 1, 2, 3 }, { 1, 2, 3 } }, list(x))
    raises("broadcast", function() x[1] = { 1, 2 } end)
  end)

  it("views the same bytes", function()
    local row = x[2]
    row:fill_(0)
    assert.are.same({ { 1, 2, 3 }, { 0, 0, 0 } }, list(x))
    local copy = x:clone()
    copy:zero_()
    assert.are.equal(1, x[1][1])
    assert.is_true(x:view(6):same(x:reshape(-1)))
  end)
end)

describe("views", function()
  local x
  before_each(function() x = neap.arange(24):view(2, 3, 4) end)

  it("gives torch7's ways to look at a tensor", function()
    assert.are.same({ 2, 4, 3 }, x:transpose(2, 3).shape)
    assert.are.equal(x:at(2, 3, 1), x:transpose(2, 3):at(2, 1, 3))
    assert.are.same({ 4, 2, 3 }, x:permute { 3, 1, 2 }.shape)
    assert.are.same({ 2, 2, 4 }, x:narrow(2, 2, 2).shape)
    assert.are.equal(x:at(1, 2, 1), x:narrow(2, 2, 2):at(1, 1, 1))
    assert.are.same({ 2, 4 }, x:select(2, 3).shape)
    assert.are.same({ 2, 1, 3, 4 }, x:unsqueeze(2).shape)
    assert.are.same({ 2, 3, 4 }, x:unsqueeze(-1):squeeze().shape)
    assert.are.same({ 5, 2, 3, 4 }, x:expand(5, 2, 3, 4).shape)
    assert.are.same({ 6, 4 }, x:reshape(-1, 4).shape)
    assert.are.equal(3, x:dim())
    assert.are.equal(24, x:n_element())
    assert.are.equal(96, x:n_bytes())
    assert.are.equal(4, x:size(-1))
    assert.are.equal(2, #x)
  end)

  it("copies in reshape only where strides demand it", function()
    local t = x:transpose(1, 3)
    raises("strides", t.view, t, 24)
    assert.are.same({ 24 }, t:reshape(24).shape)
    assert.are.equal(t:at(1, 2, 1), t:reshape(4, 6):at(1, 3))
  end)

  it("names the dimension that is wrong, from 1", function()
    raises("dimension 4 is out of range", x.select, x, 4, 1)
    raises("dimension 0", x.size, x, 0)
    raises("twice", x.permute, x, { 1, 1, 2 })
  end)
end)

describe("elements", function()
  it("keeps integers exact and bools boolean", function()
    local big = neap.tensor({ 9007199254740993 }, "i64")
    assert.are.equal(9007199254740993, big[1])
    assert.are.equal("integer", math.type(big[1]))
    assert.is_true(neap.tensor({ 0, 2 }):to("bool")[2])
  end)

  it("casts with saturation", function()
    assert.are.same({ 255, 0, 2, 0 }, list(neap.tensor({ 300, -5, 1.5, 0 / 0 }):to "u8"))
  end)

  it("sets, applies and maps in place", function()
    local x = neap.zeros(2, 2)
    assert.are.equal(5, x:set(5, 1, 2):at(1, 2))
    x:apply_(function(v) return v + 1 end)
    assert.are.same({ { 1, 6 }, { 1, 1 } }, list(x))
    x:map_(neap.ones(2, 2), function(a, b) return a - b end)
    assert.are.same({ { 0, 5 }, { 0, 0 } }, list(x))
    x:copy_(neap.tensor { 1, 2 })
    assert.are.same({ { 1, 2 }, { 1, 2 } }, list(x))
  end)

  it("has no in-place method without _", function()
    local x = neap.zeros(2)
    raises("x:fill_", function() x:fill(1) end)
    raises("x:copy_", function() x:copy(x) end)
    raises("x:zero_", function() x:zero() end)
  end)

  it("compares", function()
    local x = neap.tensor { 1, 2 }
    assert.is_true(x:equal(neap.tensor { 1, 2 }))
    assert.is_false(x:equal(neap.tensor { 1, 3 }))
    assert.is_false(x:equal(neap.tensor { { 1, 2 } }))
    assert.is_true(x:close(neap.tensor { 1, 2.00001 }))
    assert.is_false(x:close(neap.tensor { 1, 2.1 }))
    assert.is_true((x:close(neap.tensor { 1, 2.1 }, { atol = 0.2 })))
    assert.is_false(x == neap.tensor { 1, 2 })
    raises("x:lt(y)", function() return x < x end)
    raises("x:lt(y)", function() return x <= 1 end)
  end)

  it("that are integers wrap around in sums and products, along rows and columns", function()
    local least, most = math.mininteger, math.maxinteger
    local x = neap.tensor({
      { most, most, 1, 1, 1, 1, 1, 1, most, most }, { least, -1, least, 0, 0, 0, 0, 0, least, 2 },
    }, "i64")
    local rows, columns, all = { 0, 0 }, {}, 0
    for i, row in ipairs(x:totable()) do
      for j, v in ipairs(row) do
        rows[i], columns[j], all = rows[i] + v, (columns[j] or 0) + v, all + v
      end
    end
    assert.are.same(rows, x:sum({ axes = { 2 } }):totable())
    assert.are.same(columns, x:sum({ axes = { 1 } }):totable())
    assert.are.equal(all, x:sum():item())
    assert.are.equal(most * most * most * most, x[1]:prod():item())
  end)

  it("of an expanded view are one: what writes all of it is refused in its own name, \z
      and counts from 1", function()
    local function view() return neap.ones(2, 1):expand(2, 4) end
    local ways = {
      fill_ = function(v) v:fill_(3) end,
      zero_ = function(v) v:zero_() end,
      copy_ = function(v) v:copy_(neap.arange(0, 4)) end,
      apply_ = function(v) v:apply_(function(e) return e + 1 end) end,
      map_ = function(v) v:map_(neap.ones(2, 4), function(a, b) return a + b end) end,
      ["an assignment"] = function(v) v[{ {}, { 1, 4 } }] = 3 end,
    }
    for who, write in pairs(ways) do
      local v = view()
      raises(who .. " can't write to an expanded view: dimension 2 repeats one element 4 times",
        write, v)
      assert.are.same({ { 1, 1, 1, 1 }, { 1, 1, 1, 1 } }, v:totable())
    end
    local one = neap.ones(1):expand(1)
    assert.are.same({ 3 }, one:fill_(3):totable()) -- nothing is repeated
  end)

  it("tells what is in it", function()
    local s = neap.tensor({ 1, 3, 0, 0 / 0, 1 / 0 }):stats()
    assert.are.equal(0, s.min)
    assert.are.equal(3, s.max)
    assert.are.equal(1, s.nan)
    assert.are.equal(1, s.inf)
    assert.are.equal(1, s.zero)
    assert.is_true(math.abs(s.mean - 4 / 3) < 1e-12)
  end)

  it("prints with a footer", function()
    local text = tostring(neap.tensor { { 1, 2 }, { 3, 4 } })
    assert.is_truthy(text:find("f32 (2,2) 16 B", 1, true))
    local x = neap.ones(2)
    x.name = "weights"
    assert.is_truthy(tostring(x):find "weights")
    raises("x.name is the only one", function() x.nme = 1 end)
  end)
end)

describe("operators and ops", function()
  it("computes with broadcasting and numbers on either side", function()
    local x = neap.tensor { 1, 2, 3 }
    assert.are.same({ 3, 5, 7 }, list(x * 2 + 1))
    assert.are.same({ 9, 8, 7 }, list(10 - x))
    assert.are.same({ -1, -2, -3 }, list(-x))
    assert.are.same({ 1, 4, 9 }, list(x ^ 2))
    assert.are.same({ 0, 1, 1 }, list(x // 2))
    assert.are.same({ { 2, 3, 4 }, { 3, 4, 5 } }, list(x + neap.tensor { { 1 }, { 2 } }))
    assert.are.same({ { 7, 10 }, { 15, 22 } },
      list(neap.tensor({ { 1, 2 }, { 3, 4 } }):matmul(neap.tensor { { 1, 2 }, { 3, 4 } })))
  end)

  it("has logic on bool tensors", function()
    local a, b = neap.tensor { true, true, false }, neap.tensor { true, false, false }
    assert.are.same({ true, false, false }, list(a & b))
    assert.are.same({ true, true, false }, list(a | b))
    assert.are.same({ false, false, true }, list(~a))
  end)

  it("has every op in lower case, as function and method", function()
    local x = neap.tensor { { 1, 2 }, { 3, 4 } }
    assert.is_true(x:softmax({ axis = 1 }):equal(neap.softmax(x, { axis = 1 })))
    assert.is_true(neap.softmax(x, { axis = 1 }):sum({ axes = { 1 } }):close(neap.ones(2)))
    assert.are.same({ { 1, 2 }, { 3, 4 }, { 1, 2 }, { 3, 4 } },
      list(neap.concat({ x, x }, { axis = 1 })))
    for _, row in ipairs(neap.ops()) do
      if row.method then
        assert.are.equal("function", type(neap[row.method]), row.method)
        assert.is_truthy(x[row.method], row.method)
      end
    end
  end)

  it("joins and cuts long lists of tensors", function()
    local rows = {}
    for i = 1, 5000 do rows[i] = neap.tensor { i, -i } end
    local all = neap.stack(rows)
    assert.are.same({ 5000, 2 }, all.shape)
    assert.are.same({ 4097, -4097 }, list(all[4097]))
    assert.are.same({ 2, 130 }, neap.concat(table.move(rows, 1, 130, 1, {}), { axis = 1 })
      :reshape(130, 2):transpose().shape)
    local parts = table.pack(all:split { axis = 1, outputs = 50 })
    assert.are.same({ 4901, -4901 }, list(parts[50][1]))
  end)

  it("counts axes from 1 and refuses 0", function()
    local x = neap.ones(2, 3)
    local err = raises("from 1", neap.softmax, x, { axis = 0 })
    assert.are.equal("attribute", err.code)
    raises("axis", neap.softmax, x, { axis = 3 })
    raises("did you mean \"axis\"", neap.softmax, x, { axs = 1 })
    raises("axis expects a dimension", neap.softmax, x, { axis = "1" })
  end)

  it("names shapes that do not fit", function()
    local err = raises("(2,3)", function() return neap.ones(2, 3):matmul(neap.ones(2, 3)) end)
    assert.are.equal("shape", err.code)
  end)

  it("works on strided views", function()
    local x = neap.arange(6):view(2, 3)
    assert.are.same({ { 0, 6 }, { 2, 8 }, { 4, 10 } }, list(x:transpose(1, 2) * 2))
  end)
end)

describe("an op that writes over its inputs in a net", function()
  it("leaves them alone when it is called on tensors", function()
    local p = neap.tensor({ 1, 2 }, "f64")
    local g = neap.tensor({ 10, 20 }, "f64")
    local m = neap.tensor({ 0.5, 0.25 }, "f64")
    local p2, m2 = require("neap.core").eager("Sgd", { p, g, neap.tensor(0.5, "f64"), m },
      { momentum = 0.5 }, 2)
    assert.are.same({ 10.25, 20.125 }, list(m2))
    assert.are.same({ 1 - 0.5 * 10.25, 2 - 0.5 * 20.125 }, list(p2))
    assert.are.same({ { 1, 2 }, { 10, 20 }, { 0.5, 0.25 } }, { list(p), list(g), list(m) })
    -- its kernel adds to what its output holds, which must begin as the input each time
    for _ = 1, 3 do
      assert.are.same({ 11, 22 }, list(require("neap.core").eager("Accumulate", { p, g }, {})))
    end
    assert.are.same({ 1, 2 }, list(p))
  end)
end)

describe("errors", function()
  it("are strings at the caller's line for wrong types", function()
    local err = raises("tensor_spec.lua", function() neap.zeros "x" end)
    assert.are.equal("string", type(err))
  end)

  it("survive a closed tensor", function()
    local kept
    do
      local x <close> = neap.ones(2)
      kept = x
    end
    raises("closed", function() return kept[1] end)
  end)
end)

describe("files", function()
  local folder
  before_each(function()
    folder = os.tmpname()
    os.remove(folder)
    assert(require("neap.core").make_folder(folder .. "/deep"))
  end)
  after_each(function() os.execute("rm -rf '" .. folder .. "'") end)

  it("round-trips tensors by ending", function()
    local x, y = neap.randn(2, 3), neap.arange(4):to "i64"
    assert(neap.save(folder .. "/x.npy", x))
    assert.is_true(x:equal(assert(neap.load(folder .. "/x.npy"))))
    for _, ending in ipairs { "npz", "safetensors" } do
      assert(neap.save(folder .. "/xy." .. ending, { x = x, y = y }))
      local back = assert(neap.load(folder .. "/xy." .. ending))
      assert.is_true(x:equal(back.x) and y:equal(back.y))
      assert.are.equal("i64", back.y.dtype)
    end
    assert(neap.save(folder .. "/m.safetensors", { x = x }, { meta = { author = "somebody" } }))
    local _, meta = neap.load(folder .. "/m.safetensors")
    assert.are.equal("somebody", meta.author)
  end)

  it("maps a file for reading without letting it be written", function()
    assert(neap.save(folder .. "/x.npy", neap.ones(4)))
    local x = assert(neap.load(folder .. "/x.npy", { map = "r" }))
    assert.are.equal(1, x[4])
    raises("mapped for reading", function() x:fill_(2) end)
    raises("mapped for reading", function() x[1] = 2 end)
  end)

  it("gives nil, message, code for files that are missing or broken", function()
    local x, message, code = neap.load(folder .. "/none.npy")
    assert.is_nil(x)
    assert.is_truthy(message:find("none.npy", 1, true))
    assert.are.equal("io", code)
    local file = assert(io.open(folder .. "/bad.npy", "wb"))
    file:write "this is no array"
    file:close()
    x, message, code = neap.load(folder .. "/bad.npy")
    assert.is_nil(x)
    assert.is_truthy(message)
    assert.are.equal("data", code)
    assert.is_nil((neap.save(folder .. "/no/such/folder.npy", neap.ones(1))))
  end)
end)

describe("memory", function()
  it("is returned when tensors are collected, and Lua's collector is told of it", function()
    collectgarbage()
    local before = neap.memory().held
    do
      local x = neap.zeros(1000, 1000)
      assert.is_true(neap.memory().held >= before + 4000000)
      assert.are.equal(1000, #x)
    end
    settle()
    assert.are.equal(before, neap.memory().held)
    -- 400 MB of garbage may not pile up: its handles are tiny to Lua.
    for _ = 1, 100 do neap.empty(1000, 1000) end
    assert.is_true(neap.memory().held < before + 200e6)
    collectgarbage()
  end)

  it("raises memory and changes nothing when it is refused", function()
    local core = require "neap.core"
    local x = neap.ones(10)
    collectgarbage()
    for n = 1, 40 do
      core.fail_nth(n, true)
      local ok, err = pcall(function() return x * 2 + 1 end)
      core.fail_nth(0)
      if ok then break end
      assert.are.equal("memory", err.code)
      assert.are.same({ 1, 1, 1, 1, 1, 1, 1, 1, 1, 1 }, x:totable())
      assert.is_true(n < 40)
    end
  end)

  it("tries once more after a collection", function()
    local core = require "neap.core"
    core.fail_nth(1)
    assert.are.equal(3, #neap.zeros(3))
    core.fail_nth(0)
  end)
end)

describe("i16 and u16 tensors", function()
  local values = { -32768, -1, 0, 7, 32767 }
  local x, u = neap.tensor(values, "i16"), neap.tensor({ 0, 1, 300, 65535, 32768 }, "u16")

  it("saturate when they are made of other numbers, and keep every one of their own", function()
    assert.same(values, x:totable())
    assert.same({ 0, 0, 0, 7, 32767 }, x:to("u16"):totable())
    assert.same({ 0, 1, 300, 32767, 32767 }, u:to("i16"):totable())
    for _, dtype in ipairs { "i32", "i64", "f32", "f64" } do
      assert.same(values, x:to(dtype):to("i16"):totable())
      assert.same(u:totable(), u:to(dtype):to("u16"):totable())
    end
    assert.same({ 32767, -32768, 0, 3 },
      neap.tensor({ 1e9, -1e9, 0 / 0, 2.6 }, "f32"):to("i16"):totable())
    assert.are.equal(10, x:n_bytes())
  end)

  it("compute as the other integers do: wrapping around, sums in i64, quotients in f32", function()
    assert.same({ 32767, -2, -1, 6, 32766 }, (x - 1):totable())
    assert.same({ 1, 2, 301, 0, 32769 }, (u + 1):totable())
    assert.same({ "i64", 5 }, { x:sum().dtype, x:sum():item() })
    assert.are.equal(0 + 1 + 300 + 65535 + 32768, u:sum():item())
    assert.same({ -32768, 32767, 65535 }, { x:min():item(), x:max():item(), u:max():item() })
    assert.same({ "f32", 3.5 }, { (x / 2).dtype, (x / 2)[4] })
    assert.same({ false, false, false, true, true }, x:gt(0):totable())
    assert.same({ -1, -1, 0, 7, 32767 },
      neap.maximum(x, neap.tensor({ -1, -1, -1, -1, -1 }, "i16")):totable())
    assert.same({ 0, 1, 300, 2, 2 },
      neap.minimum(u, neap.tensor({ 9, 9, 999, 2, 2 }, "u16")):totable())
    assert.same({ -2, -1, 0, 1, 1 }, neap.tensor({ -7, -3, 0, 4, 7 },
      "i16"):floor_div(neap.tensor({ 4, 4, 4, 4, 4 }, "i16")):totable())
    assert.same(x:totable(), neap.where(x:gt(0), x, x):totable())
    assert.are.equal(9, neap.tensor({ 3 }, "u16"):square():item())
  end)

  it("are saved and loaded as they are, and fed to nets", function()
    for _, ending in ipairs { ".npy", ".safetensors" } do
      local path = os.tmpname() .. ending
      assert(neap.save(path, ending == ".npy" and u or { u = u, x = x }))
      local back = neap.load(path)
      assert.is_true((ending == ".npy" and back or back.u):equal(u))
      os.remove(path)
    end
    local net = neap.net "f"
    net:outputs { net:Add({ net:input("x", { 5 }, "i16"), net:input("y", { 5 }, "i16") }, "z") }
    local ws <close> = neap.workspace { store = false }
    assert.same({ 0, -2, 0, 14, -2 }, ws:run(net, { x = x, y = x }).z:totable())
  end)

  it("gives back what an op whose length is found made too large", function()
    local x, mask = neap.ones(100000), neap.ones(100000):gt(2)
    collectgarbage()
    local before = neap.memory().held
    for _ = 1, 300 do assert.are.equal(0, neap.compress(x, mask):n_element()) end
    collectgarbage()
    collectgarbage()
    assert.is_true(neap.memory().held < before + 32000000) -- of 120 MB
  end)
end)
