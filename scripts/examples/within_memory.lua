-- within_memory: a training step in less memory than its batch asks for, and one memory for all
-- batch sizes. neap run scripts/examples/within_memory.lua [--quick]
local neap = require "neap"
local nn, optim, data = neap.nn, neap.optim, neap.data
local quick = ... == "--quick"

local width, rows = quick and 64 or 512, quick and 96 or 1024
local function model()
  return nn.Sequential {
    input = { 32 }, seed = 1,
    nn.Linear { 32, width }, nn.ReLU(), nn.Linear { width, width }, nn.ReLU(),
    nn.Linear { width, 4 },
  }
end
local x = neap.zeros(rows, 32)
local at = 0
x:apply_(function()
  at = (at + 0.61803398875) % 1
  return 2 * at - 1
end)
local y = (x:narrow(2, 1, 1) * 2 + x:narrow(2, 2, 1)):gt(neap.tensor(0)):to("i64"):reshape(rows)

-- What the classes of bytes are, before and after planning, and the largest batch that three
-- quarters of the planned bytes allow: plans alone, nothing is allocated.
local count = neap.count_memory(model(), { batch = rows, train = true, optimizer = optim.Adam {} })
print(count)
local total = count.after_bytes * 3 // 4
local most = neap.fit_batch(model(), { total = total, train = true, optimizer = optim.Adam {} })
print(("a batch of %d fits %s, %d rows do not"):format(most, neap.bytes(total), most + 1))

-- The same step within that total, by micro-batches: gradients are added up, one update ends the
-- step.
local function trainer(o)
  o.model, o.optimizer, o.seed = model(), optim.Adam { lr = 0.01 }, 2
  return neap.trainer(o)
end
local whole <close> = trainer {}
local parts <close> = trainer { micro = "fit", memory = { total = total } }
print(parts:forecast(rows, { x = x, y = y }))
local a, b
for _ = 1, quick and 5 or 20 do
  a, b = whole:step { x = x, y = y }, parts:step { x = x, y = y }
end
print(("loss of the large batch %.6f, of micro-batches of %d rows %.6f; arenas %s and %s"):format(
  a.loss, parts.micro_fit, b.loss, neap.bytes(whole.ws:arena_bytes()),
  neap.bytes(parts.ws:arena_bytes())))

-- Batches of all sizes in the memory of the largest: the last batch of an epoch, and any other.
local set = data.tensors { x = x, y = y, batch = 40, shuffle = true, seed = 3 }
local t <close> = trainer {}
t:fit(set, { epochs = 1, verbose = 0 })
local before = t.ws:held_bytes()
for n = 1, 40, 3 do t:step { x = x:narrow(1, 1, n), y = y:narrow(1, 1, n) } end
print(("held after batches of 1 to 40 rows: %s, %s more than before"):format(
  neap.bytes(t.ws:held_bytes()), neap.bytes(t.ws:held_bytes() - before)))

-- Caffe's words: which blobs share, before anything runs.
print(model():dry_run { batch = 40, train = true, mem_param = { exclude_blob = { "relu1" } } })
