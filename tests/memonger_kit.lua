-- What the tests of memonger share: nets to recycle, and runs to compare.
local neap = require "neap"
local assert = require "luassert"
local support = require "support"
local filler = support.filler

--- The same numbers for everybody: floats from -1 to 1, integers 0 and 1.
local function numbers(shape, dtype, seed)
  if #shape == 0 then return neap.tensor(0.05, dtype) end
  return filler(seed)(neap.zeros { dtype = dtype, table.unpack(shape) },
    dtype ~= "f32" and dtype ~= "f64" and 2 or nil)
end

--- Bits of all blobs that stay, after two steps.
local function bits(net, memory)
  memory.store, memory.engine = false, memory.engine or "ref"
  local ws <close> = neap.workspace { seed = 3, store = false }
  ws:poison(memory.policy == "name")
  ws:init(net)
  local program <close> = ws:compile(net, memory)
  for step = 1, 2 do
    for i, input in ipairs(net:inputs()) do
      ws:feed(input.name, numbers(input.shape, input.dtype, 0.3 * i + 0.07 * step))
    end
    program:run()
  end
  local found = {}
  for _, row in ipairs(ws:_blobs()) do
    if row.kind == "tensor" and not row.shares then found[row.name] = ws:view(row.name):hash() end
  end
  return found
end

--- Runs both nets and compares what both have; `names` must be among it.
local function assert_same_run(net, planned, names, executor)
  executor = executor or "simple"
  local threads = executor == "dag" and 2 or nil
  local a = bits(net, { policy = "none", executor = executor, threads = threads })
  local b = bits(planned, { policy = "name", executor = executor, threads = threads })
  local n = 0
  for name, hash in pairs(a) do
    if b[name] then
      n = n + 1
      assert.are.equal(hash, b[name], name)
    end
  end
  assert.is_true(n > 1)
  for _, name in ipairs(names) do
    assert.is_truthy(a[name] and b[name], name .. " is not in both runs")
  end
end

local function n_names(net)
  local seen, n = {}, 0
  for _, op in ipairs(net:_ops()) do
    for _, list in ipairs { op.inputs, op.outputs } do
      for _, name in ipairs(list) do
        if name and not seen[name] then
          seen[name] = true
          n = n + 1
        end
      end
    end
  end
  return n
end

local function has_name(net, name)
  for _, op in ipairs(net:_ops()) do
    for _, list in ipairs { op.inputs, op.outputs } do
      for _, other in ipairs(list) do
        if other == name then return true end
      end
    end
  end
  return false
end

--- Sum over names of the bytes a plan by name gives to the arena.
local function arena(net, policy)
  return net:plan({ policy = policy, engine = "ref", store = false }).arena_bytes
end

local function fc(net, x, y, n_out, n_in)
  net:param(y .. "_w", { n_out, n_in }, neap.init.xavier())
  net:param(y .. "_b", { n_out })
  return net:FC({ x, y .. "_w", y .. "_b" }, y)
end

--- x -> n layers of width 8 -> softmax loss.
local function chain(n, o)
  o = o or {}
  local net = neap.net "chain"
  net:input("x", { 4, 8 })
  net:input("label", { 4 }, "i64")
  local at = "x"
  for i = 1, n do
    fc(net, at, "fc" .. i, 8, 8)
    at = "fc" .. i
  end
  net:SoftmaxCrossEntropy({ at, "label" }, "loss")
  net:outputs { "loss" }
  if o.train ~= false then net:gradient "loss" end
  return net
end

return {
  numbers = numbers, bits = bits, assert_same_run = assert_same_run, n_names = n_names,
  has_name = has_name, arena = arena, fc = fc, chain = chain,
}
