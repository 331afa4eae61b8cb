--- NaN, infinities and what else is no ordinary number, by every engine and in both float types.
local neap = require "neap"

local nan, inf = 0 / 0, math.huge

local function is_nan(x) return x ~= x end

--- Runs one op by one engine. `inputs` {{name, tensor}..}; `dy`, where given, arrives at the first output. Returns the outputs and
-- {input name = its gradient}, as flat lists.
local function run(op, inputs, attrs, engine, dy)
  local net, ins, wrt, names = neap.net(op), {}, {}, {}
  for i, input in ipairs(inputs) do
    ins[i] = net:declare(input[1], dy and input[2].dtype ~= "bool" and "parameter" or "input", input[2].shape, input[2].dtype)
    if dy and input[2].dtype ~= "bool" then wrt[#wrt + 1] = ins[i] end
  end
  local outputs, grads = { net:op(op, ins, 1, attrs) }, {}
  names[1] = outputs[1]
  if dy then
    local loss = net:Sum(net:Mul({ outputs[1], net:input("dy", dy.shape, dy.dtype) }, "product"), "loss")
    grads = net:gradient(loss, { wrt = wrt })
    for _, g in pairs(grads) do names[#names + 1] = g end
  end
  net:outputs(names)
  local ws <close> = neap.workspace { store = false, seed = 7 }
  ws:init(net)
  for _, input in ipairs(inputs) do ws:feed(input[1], input[2]) end
  if dy then ws:feed("dy", dy) end
  local program <close> = ws:compile(net, { engine = engine })
  program:run()
  local function flat(name) return ws:fetch(name):reshape(-1):totable() end
  local out, gradients = {}, {}
  for i, o in ipairs(outputs) do out[i] = flat(o.name) end
  for x, g in pairs(grads) do gradients[x.name] = flat(g.name) end
  return out, gradients
end

describe("attention", function()
  -- Several tiles of queries and of keys.
  local n_query, n_key, depth = 70, 300, 4
  local function draw(rows, dtype)
    return neap.randn { 1, 1, rows, depth, dtype = dtype }
  end

  --- Row i, 1-based, of a flat list of rows: how many are NaN.
  local function count_nan(list, i)
    local n = 0
    for e = (i - 1) * depth + 1, i * depth do n = n + (is_nan(list[e]) and 1 or 0) end
    return n
  end

  --- All engines and both types, with what `spoil(q, k)` makes of drawn q and k; `want(i)`: row i of y and of dq is NaN.
  local function each(spoil, want, attrs)
    for _, dtype in ipairs { "f32", "f64" } do
      for _, engine in ipairs { "ref", "blas", "dnnl" } do
        neap.seed(3)
        local q, k, v = draw(n_query, dtype), draw(n_key, dtype), draw(n_key, dtype)
        local dy, mask = draw(n_query, dtype), spoil(q, k, dtype)
        local inputs = { { "q", q }, { "k", k }, { "v", v } }
        if mask then inputs[4] = { "mask", mask } end
        local out, grads = run("Attention", inputs, attrs or {}, engine, dy)
        for i = 1, n_query do
          local what = ("%s %s row %d"):format(dtype, engine, i)
          if want(i) ~= nil then
            assert.are.equal(want(i) and depth or 0, count_nan(out[1], i), "y " .. what)
            if want(i) then assert.are.equal(depth, count_nan(grads.q, i), "dq " .. what) end
          end
        end
      end
    end
  end

  it("a NaN in q makes its query NaN and no other", function()
    each(function(q) q[{ 1, 1, 5, 2 }] = nan end, function(i) return i == 5 end)
  end)

  it("a NaN in k makes all queries NaN", function()
    each(function(_, k) k[{ 1, 1, 280, 1 }] = nan end, function() return true end)
  end)

  it("keys that are all NaN in one tile and not in the next do, too", function()
    each(function(_, k)
      for j = 1, 260 do k[{ 1, 1, j, 1 }] = nan end
    end, function() return true end)
  end)

  it("a NaN in the first key of causal attention makes its own query NaN", function()
    each(function(_, k) k[{ 1, 1, 1, 1 }] = nan end, function() return true end, { causal = true })
  end)

  it("a NaN in a later key of causal attention leaves the queries before it", function()
    each(function(_, k) k[{ 1, 1, 40, 1 }] = nan end, function(i) return i >= 40 end, { causal = true })
  end)

  it("a score of +infinity makes its query NaN, as the softmax does", function()
    each(function(q, k)
      for j = 1, n_key do k[{ 1, 1, j, 1 }] = 1 end
      q[{ 1, 1, 9, 1 }] = inf
    end, function(i) return i == 9 end)
  end)

  it("a query that sees no key gets 0, and NaN where a key it sees is NaN", function()
    each(function(q, _, dtype)
      q[{ 1, 1, 3, 1 }] = nan
      local mask = neap.zeros { n_query, n_key, dtype = dtype }
      for j = 1, n_key do mask[{ 2, j }] = -inf end
      for j = 1, n_key - 1 do mask[{ 3, j }] = -inf end
      return mask
    end, function(i) return i == 3 end)
  end)

  it("all of it NaN gives NaN alone, gradients included", function()
    for _, dtype in ipairs { "f32", "f64" } do
      for _, engine in ipairs { "ref", "blas", "dnnl" } do
        local x = neap.full { 2, 5, 24, value = nan, dtype = dtype }
        local out, grads = run("PackedAttention", { { "qkv", x } }, { heads = 2, causal = true }, engine, neap.ones { 2, 5, 8, dtype = dtype })
        for _, list in ipairs { out[1], grads.qkv } do
          for i, e in ipairs(list) do assert.is_true(is_nan(e), ("%s %s element %d"):format(dtype, engine, i)) end
        end
      end
    end
  end)
end)
