--- Products of bytes: a net that says by real numbers what is quantised is computed with integers,
-- to the same integers by every engine; ties and zero points are the standard's.
local neap = require "neap"

local text = [[
net f
input x f32 (2,3,16,16)
state xs f32 ()
state xz %s ()
state w i8 (32,3,3,3)
state ws f32 (32)
state b f32 (32)
state ys f32 ()
state w2 i8 (10,2048)
state ws2 f32 ()
state zs f32 ()
state zz u8 ()
state w3 i8 (32,32,1,1)
xq = QuantizeLinear(x, xs, xz)
xr = DequantizeLinear(xq, xs, xz)
wr = DequantizeLinear(w, ws) { axis = 0 }
y = Conv(xr, wr, b) { pad = {1} }
r = Relu(y)
rq = QuantizeLinear(r, ys)
p = MaxPool(rq) { kernel = {2} }
pr = DequantizeLinear(p, ys)
w3r = DequantizeLinear(w3, ws) { axis = 0 }
c = Conv(pr, w3r, b)
zq = QuantizeLinear(c, zs, zz)
zr = DequantizeLinear(zq, zs, zz)
c2 = Conv(pr, w3r)
a = Add(c2, zr)
ar = Relu(a)
aq = QuantizeLinear(ar, ys)
aqr = DequantizeLinear(aq, ys)
w2r = DequantizeLinear(w2, ws2)
f = Flatten(aqr)
o = FC(f, w2r)
outputs o, aq
]]

local function bytes(...) return (neap.rand(...) * 254 - 127):to "i8" end

local function run(net, dtype, options)
  neap.seed(5)
  local ws = neap.workspace { store = false }
  local feeds = { x = neap.randn(2, 3, 16, 16), xs = neap.tensor(0.02),
    xz = neap.tensor(dtype == "u8" and 128 or -3, dtype), w = bytes(32, 3, 3, 3),
    ws = neap.rand(32) * 0.005 + 0.002, b = neap.randn(32), ys = neap.tensor(0.03),
    w2 = bytes(10, 2048), ws2 = neap.tensor(0.01), zs = neap.tensor(0.04),
    zz = neap.tensor(127, "u8"), w3 = bytes(32, 32, 1, 1) }
  for name, t in pairs(feeds) do ws:feed(name, t) end
  local program = ws:compile(net, options)
  program:run()
  return ws:fetch "aq", ws:fetch "o", program
end

describe("products of bytes", function()
  for _, dtype in ipairs { "u8", "i8" } do
    it("are what a net of " .. dtype .. " becomes, the same by every engine", function()
      local net = neap.net_from(text:format(dtype))
      local q, o, program = run(net, dtype)
      local ref_q, ref_o = run(net, dtype, { engine = "ref" })
      local real_q, real_o = run(net, dtype, { engine = "ref", fuse = false })
      local count = {}
      for _, row in ipairs(program.plan:ops()) do count[row.type] = (count[row.type] or 0) + 1 end
      assert.are.equal(3, count.FusedQLinearConv)
      assert.are.equal(1, count.FusedQLinearFC)
      assert.is_nil(count.DequantizeLinear)
      assert.are.equal(1, count.QuantizeLinear)
      assert.is_true(q:equal(ref_q) and o:equal(ref_o))
      -- A sum that is rounded to f32 first may fall on the other side of a half.
      local off = (q:to "f32" - real_q:to "f32"):abs()
      assert.is_true(off:max():item() <= 1)
      assert.is_true(off:sum():item() <= 0.001 * #q:view(-1))
      assert.is_true(o:close(real_o, { rtol = 0.01, atol = 0.5 }))
      assert.is_true(q:to "f32":std():item() > 10)
    end)
  end

  --- A net that says with bytes what `words` do, which gives y: fused and not, to within a step of
  -- what is rounded; and how many ops of each type it plans. The number of s600 and of z5 is in the
  -- name, all else is drawn.
  local function becomes(count, words)
    neap.seed(6)
    local feeds = {}
    for name, dtype, shape in words:gmatch "(%w+) ([uif]%d+) (%b())" do
      local sizes = {}
      for n in shape:gmatch "%d+" do sizes[#sizes + 1] = math.tointeger(n) end
      local given = tonumber(name:match "^[sz](%d+)$")
      local x = given and neap.tensor(given * 1.0) or neap.rand(sizes) + 0.5
      if dtype ~= "f32" and not given then x = x * 100 - 70 end -- -20 to 80
      if dtype == "i32" then x = x * 300 end
      feeds[name] = (dtype == "u8" and not given and x:abs() or x):to(dtype)
    end
    local net = neap.net_from("net f\n" .. words .. "\noutputs y")
    local function run(options)
      local ws <close> = neap.workspace { store = false }
      for name, t in pairs(feeds) do ws:feed(name, t) end
      local program <close> = ws:compile(net, options)
      program:run()
      local got = {}
      for _, row in ipairs(program.plan:ops()) do got[row.type] = (got[row.type] or 0) + 1 end
      return ws:fetch "y", got
    end
    local want = run({ fuse = false, engine = "ref" }):to "f32"
    assert.is_true(want:std():item() > 0)
    for _, options in ipairs { {}, { engine = "ref" } } do
      local y, got = run(options)
      for name, n in pairs(count) do assert.are.equal(n, got[name] or 0, name) end
      local off, step = (y:to "f32" - want):abs(), 1
      if y.dtype == "f32" then step = 1e-5 * want:abs():max():item() end
      assert.is_true(off:max():item() <= step, words)
    end
  end

  it("count what lies beside an image of i8 as 0, with a zero point or without", function()
    for _, zero in ipairs { "", ", z5" } do
      becomes({ FusedQLinearConv = 1, Conv = 0 }, ([[
input x i8 (2,3,5,5)
state w i8 (4,3,3,3)
state z5 i8 ()
state s1 f32 ()
state s600 f32 ()
xr = DequantizeLinear(x, s1%s)
wr = DequantizeLinear(w, s1)
c = Conv(xr, wr) { pad = {1} }
y = QuantizeLinear(c, s600, z5)]]):format(zero))
    end
  end)

  it("are left in real numbers where a scale or a zero point is another", function()
    local function product(n, weight, rest)
      becomes({ FusedQLinearFC = n }, ([[
input x i8 (4,8)
state w i8 (8,8)
state ws f32 (8)
state z5 i8 ()
state s1 f32 ()
state s600 f32 ()
xr = DequantizeLinear(x, s1)
wr = DequantizeLinear(%s
h = FC(xr, wr)
%s]]):format(weight, rest))
    end
    local rounded = "y = QuantizeLinear(h, s600, z5)"
    product(1, "w, ws) { axis = 0 }", rounded)
    product(0, "w, ws) { axis = 1 }", rounded) -- of inputs, not of outputs
    product(0, "w, s1, z5)", rounded)
    product(1, "w, s1)", "k = QuantizeLinear(h, s600, z5)\nr = DequantizeLinear(k, s600, z5)\n"
      .. "d = Mul(h, r)\ny = Add(d, r)") -- the real product is read, too
    -- A summand in bytes that are none of y's.
    for dtype, n in pairs { u8 = 1, i8 = 0 } do
      becomes({ QuantizeLinear = n, FusedQLinearConv = 1 }, ([[
input x i8 (2,8,4,4)
state w i8 (8,8,1,1)
state z5 i8 ()
state s1 f32 ()
state s600 f32 ()
xr = DequantizeLinear(x, s1)
wr = DequantizeLinear(w, s1)
h = Conv(xr, wr)
input q %s (2,8,4,4)
state s20 f32 ()
r = DequantizeLinear(q, s20)
a = Add(h, r)
y = QuantizeLinear(a, s600, z5)]]):format(dtype))
    end
  end)

  it("have sums of bytes and what joins bytes between them", function()
    local head = [[
input a u8 (2,6,5,5)
input b i8 (2,6,5,5)
state s1 f32 ()
state s2 f32 ()
state s3 f32 ()
state z5 u8 ()
state z7 i8 ()
ar = DequantizeLinear(a, s1, z5)
br = DequantizeLinear(b, s2, z7)
]]
    local function sum(count, rest)
      count.DequantizeLinear = count.DequantizeLinear or 0
      becomes(count, head .. rest)
    end
    sum({ QLinearAdd = 1, Add = 0 }, "h = Add(ar, br)\ny = QuantizeLinear(h, s3, z5)")
    sum({ QLinearAdd = 1, Relu = 0 }, "h = AddN(ar, br)\nr = Relu(h)\ny = QuantizeLinear(r, s3)")
    sum({ QLinearRescale = 1 }, "y = QuantizeLinear(br, s3, z5)")
    -- Bytes that have y's scale and zero point are joined as they are.
    sum({ QLinearRescale = 2, Concat = 1 },
      "h = Concat(ar, br) { axis = 1 }\ny = QuantizeLinear(h, s3, z5)")
    sum({ QLinearRescale = 1, Concat = 1 },
      "h = Concat(ar, br, ar) { axis = 2 }\ny = QuantizeLinear(h, s1, z5)")
    -- A Relu that would cut off what y has; a sum that is read as it is; one of two shapes.
    sum({ QLinearAdd = 0, Relu = 1, DequantizeLinear = 2 },
      "h = Add(ar, br)\nr = Relu(h)\ny = QuantizeLinear(r, s3, z5)")
    sum({ QLinearAdd = 0, DequantizeLinear = 3 }, "h = Add(ar, br)\nq = QuantizeLinear(h, s3)\n\z
      qr = DequantizeLinear(q, s3)\ny = Mul(h, qr)")
    sum({ QLinearAdd = 0, DequantizeLinear = 3 }, "input c u8 (6,1,1)\n\z
      cr = DequantizeLinear(c, s1)\nd = Add(ar, br)\nh = Add(d, cr)\ny = QuantizeLinear(h, s3)")
  end)

  it("round sums and other scales as ONNX Runtime does", function()
    -- Of onnxruntime 1.32: every tenth byte with every eleventh, scales 0.0231, 0.0117, 0.0293,
    -- zero points 128, 3, 100: the sums over rows, over columns, and what a Concat makes of a part.
    local a, b = neap.zeros { 26, 24, dtype = "u8" }, neap.zeros { 26, 24, dtype = "u8" }
    for i = 1, 26 do
      for j = 1, 24 do
        a:set(10 * (i - 1), i, j)
        b:set(11 * (j - 1), i, j)
      end
    end
    local function s(v) return neap.tensor(v) end
    local function z(v) return neap.tensor(v, "u8") end
    local y = neap.q_linear_add(a, s(0.0231), z(128), b, s(0.0117), z(3), s(0.0293), z(100))
    local rescaled = neap.q_linear_rescale(a, s(0.0231), z(128), s(0.0293), z(100))
    local function over(axis)
      return y:to("i64"):sum({ axes = { axis } }):totable()
    end
    assert.are.same({ 1164, 1351, 1541, 1730, 1918, 2107, 2297, 2486, 2675, 2865, 3054, 3243, 3432,
      3621, 3811, 4000, 4189, 4378, 4568, 4757, 4944, 5120, 5281, 5428, 5560, 5680 }, over(2))
    assert.are.same({ 2509, 2621, 2736, 2850, 2964, 3079, 3193, 3307, 3421, 3535, 3649, 3764, 3878,
      3992, 4105, 4214, 4322, 4427, 4530, 4630, 4728, 4824, 4915, 5007 }, over(1))
    assert.are.same({ 0, 7, 15, 23, 31, 39, 46, 54, 62, 70, 78, 86, 94, 102, 109, 117, 125, 133,
      141, 149, 157, 165, 173, 180, 188, 196 }, rescaled:select(2, 1):totable())
  end)

  it("are left in real numbers where what would be folded is an input", function()
    -- Of x, of weights and of y; FC and Conv, and ONNX's own product with a bias.
    local function product(n, role, rows, n_rounded)
      becomes({ FusedQLinearFC = n, QuantizeLinear = n_rounded or 1 - n }, ([[
input x i8 (4,8)
%s w i8 (8,8)
%s z5 i8 ()
%s s1 f32 ()
%s ys f32 ()
%s xs f32 %s
xr = DequantizeLinear(x, xs, z5)%s
wr = DequantizeLinear(w, s1)
h = FC(xr, wr)
y = QuantizeLinear(h, ys, z5)]]):format(role.w or "state", role.z5 or "state", role.s1 or "state",
        role.ys or "state", role.xs or "state", rows and "(4)" or "()",
        rows and " { axis = 0 }" or ""))
    end
    product(1, {})
    for _, name in ipairs { "w", "z5", "s1", "xs" } do product(0, { [name] = "input" }) end
    product(1, { ys = "input" }, false, 1) -- then the real product is rounded by itself
    product(0, {}, true) -- a scale for each row of x
    -- Numbers of two bytes, and real ones of 64 bits: no product of bytes is either.
    for _, dtypes in ipairs { { "u16", "f32" }, { "i8", "f64" } } do
      becomes({ FusedQLinearFC = 0, FC = 1 }, (([[
input x %s (4,8)
state w i8 (8,8)
state s1 @ ()
state s9000 @ ()
xr = DequantizeLinear(x, s1)
wr = DequantizeLinear(w, s1)
h = FC(xr, wr)
y = QuantizeLinear(h, s9000)]]):gsub("@", dtypes[2])):format(dtypes[1]))
    end
    for role, n in pairs { state = 1, input = 0 } do
      becomes({ FusedQLinearConv = n }, ([[
input x i8 (2,3,5,5)
state w i8 (4,3,3,3)
%s b i32 (4)
state s2 f32 ()
state s3 f32 ()
state s2000 f32 ()
y = QLinearConv(x, s2, _, w, s3, _, s2000, _, b)]]):format(role))
    end
  end)

  it("are joined as bytes of y's dtype, and summed where the sum itself is not read", function()
    -- i8 and u8 by one scale: what is below 0 in one can't be in the other.
    becomes({ QLinearRescale = 1, Concat = 1, DequantizeLinear = 0 }, [[
input a u8 (2,6)
input b i8 (2,6)
state s1 f32 ()
ar = DequantizeLinear(a, s1)
br = DequantizeLinear(b, s1)
h = Concat(ar, br) { axis = 1 }
y = QuantizeLinear(h, s1)]])
    becomes({ QLinearAdd = 0, Relu = 1 }, [[
input a i8 (2,6)
input b i8 (2,6)
state s1 f32 ()
state s2 f32 ()
ar = DequantizeLinear(a, s1)
br = DequantizeLinear(b, s2)
h = Add(ar, br)
r = Relu(h)
q = QuantizeLinear(r, s2)
qr = DequantizeLinear(q, s2)
y = Sub(qr, h)]])
  end)

  it("stay products of bytes before an activation that bytes have none of", function()
    for _, act in ipairs { "Gelu", "Silu", "Tanh", "Sigmoid" } do
      for _, way in ipairs { "h = %s(xr, wr)", "a = %s(xr, wr)\nh = Add(a, z)" } do
        for _, product in ipairs { "FC", "Conv" } do
          local sides = product == "Conv" and ",1,1" or ""
          becomes({ ["FusedQLinear" .. product] = 1, [act] = 1, QuantizeLinear = 1 },
            (([[
input x i8 (4,16@)
state w i8 (16,16@)
input z f32 (4,16@)
state s1 f32 ()
state s100 f32 ()
state s9000 f32 ()
ws = Reciprocal(s9000)
ys = Reciprocal(s100)
xr = DequantizeLinear(x, s1)
wr = DequantizeLinear(w, ws)
]] .. way:format(product) .. [[

g = ]] .. act .. [[(h)
y = QuantizeLinear(g, ys)]]):gsub("@", sides)))
        end
      end
    end
  end)

  it("of ONNX stay where weights have a zero point, or rows a scale each", function()
    for _, case in ipairs { { 0, "s1", "z5" }, { 0, "xs", "" } } do
      becomes({ FusedQLinearFC = case[1], QLinearMatMul = 1 - case[1] }, ([[
input x i8 (4,8)
state w i8 (8,6)
state xs f32 (4)
state z5 i8 ()
state s1 f32 ()
state s600 f32 ()
y = QLinearMatMul(x, %s, _, w, s1, %s, s600, z5)]]):format(case[2],
        case[3] == "" and "_" or case[3]))
    end
  end)

  it("add a bias of integers in its steps, and a summand that others read, too", function()
    becomes({ FusedQLinearConv = 1 }, [[
input x i8 (2,3,5,5)
state w i8 (4,3,3,3)
state b i32 (4)
state z5 i8 ()
state s2 f32 ()
state s3 f32 ()
state s2000 f32 ()
y = QLinearConv(x, s2, z5, w, s3, _, s2000, z5, b) { pad = {1} }]])
    becomes({ FusedQLinearConv = 3, QuantizeLinear = 0, Add = 0 }, [[
input x u8 (2,16,6,6)
state w i8 (16,16,3,3)
state s1 f32 ()
state s9000 f32 ()
xr = DequantizeLinear(x, s1)
wr = DequantizeLinear(w, s1)
h = Conv(xr, wr) { pad = {1} }
hq = QuantizeLinear(h, s9000)
hr = DequantizeLinear(hq, s9000)
hx = DequantizeLinear(hq, s1)
i = Conv(hx, wr) { pad = {1} }
ia = Add(i, hr)
iq = QuantizeLinear(ia, s9000)
ir = DequantizeLinear(iq, s1)
j = Conv(ir, wr) { pad = {1} }
ja = Add(j, hr)
y = QuantizeLinear(ja, s9000)]])
  end)

  it("are the integers again only by the same scale and zero point", function()
    for zero, n in pairs { z5 = 0, z7 = 1 } do
      becomes({ QuantizeLinear = 0, QLinearRescale = n }, ([[
input x i8 (4,8)
state z5 i8 ()
state z7 i8 ()
state s1 f32 ()
r = DequantizeLinear(x, s1, z5)
q = QuantizeLinear(r, s1, %s)
y = Flatten(q)]]):format(zero))
    end
  end)

  it("round to even before the zero point is added", function()
    local one = neap.tensor(1.0)
    local x = neap.tensor({ -3.5, -2.5, -0.5, 0.5, 1.5, 2.5, 500, -500 })
    local y = neap.quantize_linear(x, one, neap.tensor(3, "u8"))
    assert.are.same({ 0, 1, 3, 3, 5, 5, 255, 0 }, y:totable())
    local half, w = neap.tensor(0.5), neap.tensor({ { 1, 2, 3, 4 } }, "u8")
    local product = neap.q_linear_mat_mul(neap.tensor({ { 1 }, { 3 } }, "u8"), half, nil, w, one,
      nil, one, neap.tensor(1, "u8"))
    assert.are.same({ { 1, 2, 3, 3 }, { 3, 4, 5, 7 } }, product:totable())
  end)

  it("subtract a zero point of each column, of more columns than are multiplied at once", function()
    local M <const>, K <const>, N <const> = 2, 3, 300
    local a, b, zero, want = {}, {}, {}, {}
    for l = 1, K do b[l] = {} end
    for j = 1, N do
      zero[j] = j * 7 % 11
      for l = 1, K do b[l][j] = (j * 5 + l * 3) % 13 end
    end
    for i = 1, M do
      a[i], want[i] = {}, {}
      for l = 1, K do a[i][l] = (i + l) % 3 end
      for j = 1, N do
        local sum = 0
        for l = 1, K do sum = sum + a[i][l] * (b[l][j] - zero[j]) end
        want[i][j] = sum
      end
    end
    local one = neap.tensor(1.0)
    local y = neap.q_linear_mat_mul(neap.tensor(a, "i8"), one, nil, neap.tensor(b, "i8"), one,
      neap.tensor(zero, "i8"), one, neap.tensor(0, "i8"))
    assert.are.same(want, y:totable())
  end)

  it("are what QLinearMatMul by fixed weights becomes", function()
    for _, dtype in ipairs { "i8", "u8" } do
      local net = neap.net_from(([[
net q
input x %s (1,11,7)
state s f32 ()
state w i8 (7,5)
]]):format(dtype))
      net:QLinearMatMul({ "x", "s", false, "w", "s", false, "s" }, "y")
      net:outputs { "y" }
      neap.seed(7)
      local ws = neap.workspace { store = false }
      ws:feed("s", neap.tensor(0.1))
      ws:feed("w", (neap.rand(7, 5) * 20 - 10):to "i8")
      local feeds = { x = (neap.rand(1, 11, 7) * 100):to(dtype) }
      local program = ws:compile(net)
      local types = {}
      for _, row in ipairs(program.plan:ops()) do types[row.type] = true end
      assert.is_true(types.FusedQLinearFC)
      local got = ws:run(net, feeds).y
      assert.is_true(got:equal(ws:run(net, feeds, { fuse = false }).y))
      assert.is_true(got:to "f32":std():item() > 5)
    end
  end)

  it("of nothing are nothing, by a scale for each position of a dimension, too", function()
    local path <const> = os.tmpname() .. ".onnx"
    for _, case in ipairs { { { 0, 3 }, 3 }, { { 3, 0 }, 0 } } do
      local shape, many = table.unpack(case)
      local zero = (neap.ones(many) * 5):to "i8"
      local y = neap.quantize_linear(neap.zeros(shape), neap.ones(many), zero, { axis = 2 })
      assert.are.same(shape, y.shape)
      assert.are.same(shape, neap.dequantize_linear(y, neap.ones(many), zero, { axis = 2 }).shape)
      local net = neap.net "n"
      local function const(t) return net:const(t) end
      net:DequantizeLinear({ const(y), const(neap.ones(many)), const(zero) }, "y", { axis = 2 })
      net:outputs { "y" }
      local ws = neap.workspace { store = false }
      ws:init(net)
      assert(neap.export(net, path, { workspace = ws }))
      local f = assert(neap.import(path))
      assert.are.same(shape, f({}).shape)
    end
    os.remove(path)
  end)

  it("have one zero point for all beside several scales", function()
    local x = neap.tensor({ 1, 2, 3, 4, 5, 6, 7, 8 }):reshape(2, 4)
    local scales, zero = neap.tensor { 0.5, 0.25, 1, 2 }, neap.tensor({ 10 }, "u8")
    for _, one in ipairs { zero, zero:reshape {} } do
      local y = neap.quantize_linear(x, scales, one, { axis = 2 })
      assert.are.same({ { 12, 18, 13, 12 }, { 20, 34, 17, 14 } }, y:totable())
      local back = neap.dequantize_linear(y, scales, one, { axis = 2 })
      assert.is_true(back:equal(x))
    end
  end)

  it("of 16 bits round to even and saturate as those of 8 do, from both floats", function()
    local nan = 0 / 0
    local values = { -40000, -32768.5, -0.5, 0.5, 1.5, 2.5, 32766.5, 65534.5, 70000, nan }
    local wants = {
      i16 = { -32768, -32768, 0, 0, 2, 2, 32766, 32767, 32767, -32768 },
      u16 = { 0, 0, 0, 0, 2, 2, 32766, 65534, 65535, 0 },
    }
    for to, want in pairs(wants) do
      for _, dtype in ipairs { "f32", "f64" } do
        local x, scale = neap.tensor(values, dtype), neap.tensor(1, dtype)
        assert.are.same(want, x:quantize_linear(scale, nil, { to = to }):totable(), to .. dtype)

        -- by another scale and zero point, there and back
        local zero = neap.tensor(to == "i16" and -7 or 40000, to)
        local half = neap.tensor(0.5, dtype)
        local q = neap.tensor({ -2, 0, 0.5, 3 }, dtype):quantize_linear(half, zero)
        local z = zero:item()
        assert.are.same({ z - 4, z, z + 1, z + 6 }, q:totable())
        local back = q:dequantize_linear(half, zero)
        assert.are.equal(dtype, back.dtype)
        assert.are.same({ -2, 0, 0.5, 3 }, back:totable())
      end
    end
  end)

  it("of 32 bits have all digits of their difference from the zero point", function()
    local x = neap.tensor({ 2 ^ 24 + 1, -2 ^ 24 - 3, 2 ^ 31 - 1 }, "i32")
    local zero = neap.tensor({ 2 ^ 24, -2 ^ 24, 2 ^ 31 - 6 }, "i32")
    for _, dtype in ipairs { "f32", "f64" } do
      local y = neap.dequantize_linear(x, (neap.ones(3) * 0.5):to(dtype), zero, { axis = 1 })
      assert.are.equal(dtype, y.dtype)
      assert.are.same({ 0.5, -1.5, 2.5 }, y:totable())
    end
  end)

  it("of NaN are the least, whatever the zero point; infinities are the bounds", function()
    local bounds = { u8 = { 0, 255 }, i8 = { -128, 127 }, u16 = { 0, 65535 },
      i16 = { -32768, 32767 } }
    for to, want in pairs(bounds) do
      for _, dtype in ipairs { "f32", "f64" } do
        -- as many as fill a vector, and some more
        local list = {}
        for i = 1, 40 do list[i] = ({ 0 / 0, math.huge, -math.huge })[i % 3 + 1] end
        local y = neap.quantize_linear(neap.tensor(list, dtype), neap.tensor(0.5, dtype),
          neap.tensor(9, to))
        for i, got in ipairs(y:totable()) do
          local name = ({ "NaN", "infinity", "-infinity" })[i % 3 + 1]
          assert.are.equal(want[name == "infinity" and 2 or 1], got, name .. " " .. to)
        end
      end
    end
  end)

  it("of one channel to each group are oneDNN's too, with the bits of ref", function()
    neap.seed(5)
    local x = neap.randn(2, 40, 9, 9)
    local m = neap.nn.Sequential { input = { 40, 9, 9 },
      neap.nn.Conv2d { 40, 40, kernel = 3, pad = 1, stride = 2, groups = 40 }, neap.nn.ReLU(),
      neap.nn.Conv2d { 40, 8, kernel = 1 } }:eval()
    local q = neap.quantize(m, x)
    local net, ws = q:net { batch = 2, train = false }, q:workspace()
    local got, engines = {}, {}
    for _, engine in ipairs { "ref", "free" } do
      local program <close> = ws:compile(net, { engine = engine })
      ws:feed("x", x)
      program:run()
      got[engine] = ws:fetch(net:outputs()[1])
      for _, row in ipairs(program.plan:_ops()) do
        if row.type == "FusedQLinearConv" then engines[#engines + 1] = row.engine end
      end
    end
    assert.is_true(got.ref:equal(got.free))
    assert.are.same({ "ref", "ref" }, { engines[1], engines[2] })
    -- by oneDNN where the product of all channels is
    assert.are.equal(engines[4], engines[3])
  end)

  it("have means that are rounded once, padding counting as 0", function()
    local xs, ys = neap.tensor(0.5), neap.tensor(0.25)
    local x = neap.tensor({ 12, 15, 10, 9, 10, 10 }, "u8"):reshape(1, 1, 2, 3)
    local xz, yz = neap.tensor(10, "u8"), neap.tensor(-3, "i8")
    -- x - 10: 2 5 0 / -1 0 0; by 0.5 / 0.25 each step is 2 of y's
    local y = neap.q_linear_global_average_pool(x, xs, xz, ys, yz)
    assert.are.same({ "i8", -3 + 2 }, { y.dtype, y:reshape(-1):totable()[1] })
    local function pooled(o)
      return neap.q_linear_average_pool(x, xs, xz, ys, yz, o):reshape(-1):totable()
    end
    assert.are.same({ -3 + 3, -3 + 2 }, pooled { kernel = 2, stride = 1 })
    -- 4 / 4 and 5 / 4 * 2 = 2.5 to even, where 0 lies around; without it 4 and 5
    assert.are.same({ -3 + 1, -3 + 2, -3 - 0, -3 }, pooled { kernel = 2, stride = 2, pad = 1 })
    assert.are.same({ -3 + 4, -3 + 5, -3 - 2, -3 },
      pooled { kernel = 2, stride = 2, pad = 1, count_include_pad = false })
    local ok, err = pcall(neap.q_linear_average_pool, x, xs, neap.tensor(1, "i8"), ys, yz,
      { kernel = 2 })
    assert.is_false(ok)
    assert.is_truthy(tostring(err):find("x_zero expects the dtype of x, u8, got i8", 1, true))
  end)

  it("refuse scales that do not fit, by name", function()
    local x = neap.zeros { 2, 3 }
    local ok, err = pcall(neap.quantize_linear, x, neap.ones(4), nil, { axis = 2 })
    assert.is_false(ok)
    assert.is_true(tostring(err):find("scale expects one number or (3), got (4)", 1, true) ~= nil)
  end)

  it("sums groups of several channels as numbers are, each with its own scale", function()
    local core = require "neap.core"
    -- Counts of outputs a group at which oneDNN 2.6 reads the scales of other channels, and shapes
    -- that it agrees to and can't make.
    for _, case in ipairs {
      { 4, 34, 2, 1 }, { 6, 51, 3, 1 }, { 32, 16, 2, 1 }, { 64, 96, 4, 3 },
    } do
      local inputs, outputs, groups, kernel = table.unpack(case)
      for _, to in ipairs { "f32", "u8" } do
        local x = (neap.rand(2, inputs, 6, 7) * 256):floor()
        local w = (neap.rand(outputs, inputs // groups, kernel, kernel) * 7):floor() - 3
        local scale = (neap.rand(outputs) * 8):floor() + 1
        local y = core.eager("FusedQLinearConv", { x:to "u8", w:to "i8", neap.zeros(outputs),
          scale / 64 }, { to = to, groups = groups })
        local want = core.eager("Conv", { x, w }, { groups = groups })
          * (scale / 64):reshape(1, outputs, 1, 1)
        if to == "u8" then want = want:clamp(0, 255) end
        assert.is_true(y:to("f32"):close(want, { rtol = 1e-6, atol = to == "u8" and 0.51 or 1e-3 }))
      end
    end
  end)

  it("sums a window a channel, and a window that is all of an image, as numbers are", function()
    local core = require "neap.core"
    for _, case in ipairs {
      { x = { 2, 300, 7, 6 }, w = { 300, 1, 3, 3 }, groups = 300, stride = { 2, 1 },
        pad = { 1, 0, 1, 1 } },
      { x = { 1, 24, 5, 5 }, w = { 24, 1, 5, 2 }, groups = 24, dilation = { 1, 2 }, pad = 2 },
      { x = { 3, 40, 1, 1 }, w = { 20, 40, 1, 1 } },
      { x = { 3, 5, 4, 6 }, w = { 7, 5, 4, 6 } },
    } do
      for _, dtype in ipairs { "i8", "u8" } do
        local low = dtype == "i8" and -128 or 0
        local x = (neap.rand(table.unpack(case.x)) * 256):floor() + low
        local w = (neap.rand(table.unpack(case.w)) * 256):floor() - 128
        local bytes, pad_as = x:to(dtype), case.pad and 130 or nil
        local n = case.w[1]
        local attrs = { to = "f32", stride = case.stride, pad = case.pad, groups = case.groups,
          dilation = case.dilation }
        local y = core.eager("FusedQLinearConv", { bytes, w:to "i8", neap.zeros(n), neap.ones(n),
          false, false, pad_as and neap.tensor { pad_as } or false }, attrs)
        -- What the padding counts as is 0 here, and the sum of the weights is put back.
        local zero = pad_as or 0
        attrs.to = nil
        local unsigned = x - low - zero
        local sums = core.eager("Conv", { unsigned:to "f64", w:to "f64" }, attrs)
        local more = w:to("f64"):reshape(n, -1):sum(2):reshape(1, n, 1, 1) * zero
        assert.is_true(y:to("f64"):equal(sums + more))
      end
    end
  end)
end)
