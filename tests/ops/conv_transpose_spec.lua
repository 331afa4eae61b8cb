--- ConvTranspose: the gradient of a convolution, and where its sizes and pads come from.
local neap = require "neap"
local core = require "neap.core"

describe("ConvTranspose", function()
  it("is the gradient of the convolution with the same window", function()
    local net = neap.net "both"
    local x = net:input("x", { 2, 3, 9, 8 })
    local w, dy = net:input("w", { 4, 3, 3, 2 }), net:input("dy", { 2, 4, 5, 3 })
    local attrs = { stride = { 2, 3 }, pad = { 1, 0, 1, 0 } }
    local y = net:Conv({ x, w }, 1, attrs)
    local dx = net:gradient(net:Sum(net:Mul({ y, dy })), { wrt = { x } })[x]
    local z = net:ConvTranspose({ dy, w }, 1, attrs)
    assert.are.same({ 2, 3, 9, 8 }, z.shape)
    net:outputs { dx, z }
    local ws <close> = neap.workspace { store = false }
    ws:init(net)
    ws:feed("x", neap.arange(2 * 3 * 9 * 8):reshape(2, 3, 9, 8):sin())
    ws:feed("w", neap.arange(4 * 3 * 3 * 2):reshape(4, 3, 3, 2):cos())
    ws:feed("dy", neap.arange(2 * 4 * 5 * 3):reshape(2, 4, 5, 3):sin())
    ws:run(net)
    local far = (ws:fetch(dx) - ws:fetch(z)):abs():max():item()
    assert.is_true(far < 1e-5, tostring(far))
  end)

  it("finds its pads from the shape of y, the odd one in front", function()
    local x, w = neap.arange(3):reshape(1, 1, 3), neap.ones(1, 1, 3)
    -- of 0 0 1 1 3 2 2 with stride 2 one element less, and two
    assert.are.same({ 0, 1, 1, 3, 2, 2 },
      x:conv_transpose(w, { stride = 2, output_shape = { 6 } }):reshape(-1):totable())
    assert.are.same({ 0, 1, 1, 3, 2 },
      x:conv_transpose(w, { stride = 2, output_shape = { 5 } }):reshape(-1):totable())
    -- more than the windows reach: zeros behind
    assert.are.same({ 0, 0, 1, 1, 3, 2, 2, 0 },
      x:conv_transpose(w, { stride = 2, output_shape = { 8 } }):reshape(-1):totable())
    assert.are.same({ 0, 0, 1, 1, 3, 2, 2, 0 },
      x:conv_transpose(w, { stride = 2, output_padding = 1 }):reshape(-1):totable())
  end)

  it("says what does not fit", function()
    local x = neap.ones(1, 4, 3)
    local function raises(text, w, attrs)
      local ok, err = pcall(x.conv_transpose, x, w, attrs)
      assert.is_false(ok)
      assert.is_truthy(tostring(err):find(text, 1, true), tostring(err))
    end
    raises("weight (3,2,3) expects 3 input channels, got x (1,4,3)", neap.ones(3, 2, 3))
    raises("groups = 3 expects a multiple of as many input channels, got weight (4,2,3)",
      neap.ones(4, 2, 3), { groups = 3 })
    raises("output_padding expects less than stride or dilation, 2, got 2", neap.ones(4, 2, 3),
      { stride = 2, output_padding = 2 })
    raises("pad leaves no element of y in spatial dimension 1", neap.ones(4, 2, 3), { pad = 3 })
    raises("output_shape expects 1 values", neap.ones(4, 2, 3), { output_shape = { 5, 5 } })
    -- (3 - 1) 2 + 3 are reached, and at most one more can be added behind; without a stride none
    raises("output_shape expects at most 8 in spatial dimension 1", neap.ones(4, 2, 3),
      { stride = 2, output_shape = { 9 } })
    raises("output_shape expects at most 3 in spatial dimension 1", neap.ones(4, 2, 1),
      { stride = 1, pad = 1, output_shape = { 5 } })
    raises("kernel = 2 expects a weight of that size, got (4,2,3)", neap.ones(4, 2, 3),
      { kernel = 2 })
    local ok, err = pcall(core.eager, "ConvTranspose", { x, neap.ones(4, 2, 3), neap.ones(4) }, {})
    assert.is_false(ok)
    assert.is_truthy(tostring(err):find("bias expects shape (2), got (4)", 1, true), tostring(err))
  end)
end)
