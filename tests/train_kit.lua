-- What the tests of the trainer share.
local assert = require "luassert"
local neap = require "neap"
local nn, optim, data = neap.nn, neap.optim, neap.data

--- 22 points in two classes that a line parts; batches of 4, the last one of 2.
local function points(o)
  o = o or {}
  local x, y = {}, {}
  for i = 1, 22 do
    x[i] = { math.sin(i), math.cos(1.7 * i), math.sin(0.3 * i) }
    y[i] = x[i][1] + x[i][2] > 0 and 1 or 0
  end
  return data.tensors {
    x = neap.tensor(x),
    y = neap.tensor(y, "i64"),
    batch = o.batch or 4,
    shuffle = true,
    seed = 4,
    map = o.map,
    last = o.last,
  }
end

--- With all that a resumed run has to bring back: dropout, running statistics, momentum or Adam's
-- moments, a schedule.
local function make(o)
  o = o or {}
  local model = nn.Sequential {
    input = { 3 }, seed = 7,
    nn.Linear { 3, 8 }, nn.BatchNorm1d { 8 }, nn.ReLU(), nn.Dropout { 0.2 }, nn.Linear { 8, 2 },
  }
  return neap.trainer {
    model = model, metrics = { "accuracy" }, seed = 11, nan = o.nan, dtype = o.dtype,
    optimizer = o.optimizer or optim.Adam { lr = 0.02 },
    schedule = optim.cosine { 40 }, name = "test", grad_norm = o.grad_norm,
  }
end

local quiet = { epochs = 2, verbose = 0 }
local function with(o)
  for key, value in pairs(quiet) do
    if o[key] == nil then o[key] = value end
  end
  return o
end

--- Everything a checkpoint holds, as tensors.
local function everything(t)
  local path = os.tmpname() .. ".safetensors"
  assert(t:save(path))
  local tensors = assert(neap.load(path))
  os.remove(path)
  return tensors
end

local function assert_same_bits(a, b)
  local x, y, n = everything(a), everything(b), 0
  for name, tensor in pairs(x) do
    n = n + 1
    assert.is_truthy(y[name], name)
    assert.is_true(tensor:equal(y[name]), name .. " differs")
  end
  for name in pairs(y) do assert.is_truthy(x[name], name) end
  assert.is_true(n >= 8)
end

local function losses(t, set, o)
  local list = {}
  o.on_step = function(r) list[#list + 1] = r.loss end
  t:fit(set, o)
  return list
end

return {
  points = points,
  make = make,
  with = with,
  everything = everything,
  assert_same_bits = assert_same_bits,
  losses = losses,
}
