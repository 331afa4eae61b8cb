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

  it("refuse scales that do not fit, by name", function()
    local x = neap.zeros { 2, 3 }
    local ok, err = pcall(neap.quantize_linear, x, neap.ones(4), nil, { axis = 2 })
    assert.is_false(ok)
    assert.is_true(tostring(err):find("scale expects one number or (3), got (4)", 1, true) ~= nil)
  end)
end)
