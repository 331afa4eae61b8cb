--- Functions that C does not have, against values with more digits than f64 has (computed by mpmath
-- with 50), and at their poles and ends.
local neap = require "neap"

local nan, inf = 0 / 0, math.huge

--- {method, attributes, {{x, value}..}}
local exact = {
  { "exp2", nil, {
    { -3.5, 0.088388347648318441 }, { 0.1, 1.0717734625362932 }, { 10.25, 1217.7480857627864 },
  } },
  { "erfc", nil, {
    { -2.5, 1.9995930479825550 }, { -0.5, 1.5204998778130465 }, { 0.3, 0.67137324054087258 },
    { 1.5, 0.033894853524689273 }, { 6.0, 2.1519736712498913e-17 },
  } },
  { "erfinv", nil, {
    { -0.999755859375, -2.5939005131344877 }, { -0.5, -0.47693627620446987 },
    { 1e-10, 8.8622692545275805e-11 }, { 0.25, 0.22531205501217810 },
    { 0.75, 0.81341984759761854 }, { 0.9921875, 1.8809517454731394 },
  } },
  { "lgamma", nil, {
    { -2.5, -0.056243716497674051 }, { -0.25, 1.5895753125511860 }, { 0.125, 2.0194183575537963 },
    { 1.25, -0.098271836421813161 }, { 3.0, 0.69314718055994531 }, { 100.5, 361.43554046777762 },
  } },
  { "digamma", nil, {
    { -3.75, -1.6923885983113303 }, { -0.25, 2.9141391202135278 }, { 0.001, -1000.5755719318103 },
    { 0.5, -1.9635100260214235 }, { 1.0, -0.57721566490153286 }, { 2.5, 0.70315664064524319 },
    { 9.5, 2.1977378764029495 }, { 1000.0, 6.9072551956488121 },
  } },
  { "polygamma", { n = 0 }, {
    { 1.25, -0.22745353337626541 },
  } },
  { "polygamma", { n = 1 }, {
    { -3.75, 19.504980060599575 }, { -0.25, 18.541879647671606 }, { 0.125, 65.388133444988034 },
    { 1.0, 1.6449340668482264 }, { 9.5, 0.11099728846909903 }, { 1000.0, 0.0010005001666666333 },
  } },
  { "polygamma", { n = 2 }, {
    { -1.25, 123.72136678366236 }, { 0.5, -16.828796644234320 }, { 3.0, -0.15411380631918857 },
  } },
  { "polygamma", { n = 6 }, {
    { 0.5, -92203.457923803023 }, { 20.0, -2.1726073504144898e-6 },
  } },
  { "polygamma", { n = 30 }, {
    { 1.5, -9.2221270661620558e+26 }, { 40.0, -1.0912335543822423e-17 },
  } },
  { "sinc", nil, {
    { -0.5, 0.63661977236758134 }, { 0.001, 0.99999835506674489 }, { 0.75, 0.30010543871903536 },
    { 1.0, 0 }, { 2.5, 0.12732395447351627 }, { 1001.25, -0.00022479808143747967 },
  } },
}

describe("a special function", function()
  for _, entry in ipairs(exact) do
    local name, attrs, pairs_of = table.unpack(entry, 1, 3)
    local what = attrs and ("%s %d"):format(name, attrs.n) or name
    it("is right to the last digits: " .. what, function()
      for _, dtype in ipairs { "f64", "f32" } do
        local ulp = dtype == "f64" and 0x1p-52 or 0x1p-23
        for _, one in ipairs(pairs_of) do
          local x = neap.tensor({ one[1] }, dtype)
          -- f32 can't hold each of these arguments
          if x:to("f64")[1] == one[1] then
            local got = x[name](x, attrs)[1]
            local off = math.abs(got - one[2]) / math.max(math.abs(one[2]), 0x1p-1022)
            assert.is_true(off <= 8 * ulp,
              ("%s(%g) in %s is %.17g, not %.17g"):format(name, one[1], dtype, got, one[2]))
          end
        end
      end
    end)
  end

  local function at(name, attrs, values)
    local x = neap.tensor({ -inf, -2, -1, -0.0, 0, 1, inf, nan }, "f64")
    for _, dtype in ipairs { "f64", "f32", "bf16", "f16" } do
      local given = x:to(dtype)
      local got = given[name](given, attrs):to("f64"):totable()
      for i, want in ipairs(values) do
        local same = want ~= want and got[i] ~= got[i] or got[i] == want
        assert.is_true(same, ("%s %s %d: %s, not %s"):format(name, dtype, i, got[i], want))
      end
    end
  end

  it("has its poles and limits", function()
    at("exp2", nil, { 0, 0.25, 0.5, 1, 1, 2, inf, nan })
    at("erfinv", nil, { nan, nan, -inf, 0, 0, inf, nan, nan })
    at("lgamma", nil, { inf, inf, inf, inf, inf, 0, inf, nan })
    at("polygamma", { n = 1 }, { nan, inf, inf, inf, inf })
    at("polygamma", { n = 2 }, { nan, -inf, -inf, -inf, -inf })
    local erfc = neap.tensor { -inf, 0, inf, nan }:erfc():totable()
    assert.are.same({ 2, 1, 0 }, { erfc[1], erfc[2], erfc[3] })
    assert.is_true(erfc[4] ~= erfc[4])
    local digamma = neap.tensor { 0, -0.0, inf, -1, nan }:digamma():totable()
    assert.are.same({ -inf, inf, inf }, { digamma[1], digamma[2], digamma[3] })
    assert.is_true(digamma[4] ~= digamma[4] and digamma[5] ~= digamma[5])
  end)

  it("keeps the digits of what is near 1, or far out", function()
    local x = neap.tensor({ 1 - 0x1p-53, -(1 - 0x1p-53), 1e-300 }, "f64"):erfinv()
    -- erf is 1 to within half an ulp from there on
    assert.is_true(math.abs(x[1] - 5.8635847487551676) < 1e-14 and x[2] == -x[1])
    assert.is_true(math.abs(x[3] / 8.8622692545275801e-301 - 1) < 1e-15)
    local far = neap.tensor({ 1e6, -1e6, 2 ^ 60 }, "f64"):sinc():totable()
    assert.are.same({ 0, 0, 0 }, far)
  end)

  it("refuses to be differentiated less than not at all", function()
    assert.has_error(function() neap.tensor { 1 }:polygamma { n = -1 } end)
  end)
end)
