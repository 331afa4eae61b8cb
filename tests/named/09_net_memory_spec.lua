-- Point 9, the net memory model: one memory for all batch sizes up to a declared maximum.
local neap = require "neap"
local nn, optim = neap.nn, neap.optim

local function lenet()
  return nn.Sequential { input = { 1, 12, 12 }, seed = 3, nn.Conv2d { 1, 8, kernel = 3 }, nn.BatchNorm2d { 8 }, nn.ReLU(), nn.MaxPool2d { 2 },
    nn.Conv2d { 8, 16, kernel = 3, pad = 1 }, nn.ReLU(), nn.Flatten(), nn.Dropout { 0.25 }, nn.Linear { 400, 32 }, nn.ReLU(), nn.Linear { 32, 10 } }
end

local function training_net(batch)
  local model = lenet()
  return (model:net { batch = batch, train = true, loss = nn.CrossEntropyLoss {}, optimizer = optim.SGD { lr = 0.05, momentum = 0.9 } })
end

local function batch_of(n, k)
  local x, y = neap.zeros { n, 1, 12, 12 }, neap.zeros { n, dtype = "i64" }
  local at = 0.37 * k
  x:apply_(function()
    at = (at + 0.61803398875) % 1
    return 2 * at - 1
  end)
  y:apply_(function()
    at = (at + 0.61803398875) % 1
    return at * 10 // 1
  end)
  return x, y
end

local function feed(ws, n, k)
  local x, y = batch_of(n, k)
  ws:feed("x", x)
  ws:feed("y", y)
  ws:feed("lr", neap.tensor(0.05))
end

--- Engines, algorithms, layouts and threads of a plan's ops: what its bits depend on.
local function choices(plan)
  local out = {}
  for _, op in ipairs(plan:_ops()) do out[#out + 1] = op.name .. " " .. op.type .. " " .. op.engine end
  for _, v in ipairs(plan:_values()) do out[#out + 1] = v.blob .. " " .. v.layout end
  return table.concat(out, "\n")
end

--- Hash of everything that a training step leaves behind.
local function bits(ws)
  local out = {}
  for _, blob in ipairs(ws:_blobs()) do
    if blob.kind == "tensor" and blob.role ~= "input" then out[#out + 1] = blob.name .. " " .. ws:view(blob.name):hash() end
  end
  table.sort(out)
  return table.concat(out, "\n")
end

--- Tensor bytes held once nothing is left to collect: what a finaliser lets go of waits for the next round.
local function held()
  local before
  repeat
    before = neap.memory().held
    collectgarbage()
    collectgarbage()
  until neap.memory().held == before
  return before
end

describe("a declared maximum batch", function()
  it("gives one arena and the same bytes held whichever batches run, in whatever order", function()
    for _, executor in ipairs { "simple", "dag" } do
      local most = 9
      local nets = {}
      for n = 1, most do nets[n] = training_net(n) end
      local ws <close> = neap.workspace { seed = 5, store = false, executor = executor }
      local range <close> = neap.range(nets[most], { store = false, executor = executor })
      local programs, arena, bytes = {}, nil, nil
      for k, n in ipairs { 3, 9, 1, 8, 2, 9, 7, 4, 6, 5, 1, 9 } do
        local x, y = batch_of(n, k) -- of the test's own
        if not programs[n] then
          ws:init(nets[n])
          programs[n] = ws:compile_within(nets[n], range, { store = false, executor = executor })
        end
        ws:feed("x", x)
        ws:feed("y", y)
        ws:feed("lr", neap.tensor(0.05))
        x, y = nil, nil -- luacheck: ignore
        programs[n]:run()
        arena, bytes = arena or ws:arena_bytes(), bytes or held()
        assert.are.equal(arena, ws:arena_bytes())
        assert.are.equal(bytes, held())
        assert.is_true(programs[n].plan:verify())
      end
      for _, p in pairs(programs) do p:close() end
    end
  end)

  it("runs every smaller batch bit for bit as a program planned for that batch with the same choices", function()
    for _, executor in ipairs { "simple", "dag" } do
      for _, engine in ipairs { "ref", "blas", "free" } do
        local memory = { store = false, executor = executor, engine = engine }
        local big, small = training_net(8), training_net(3)
        local range <close> = neap.range(big, memory)
        local within <close> = neap.workspace { seed = 5, store = false }
        local alone <close> = neap.workspace { seed = 5, store = false }
        within:poison(true)
        within:init(big)
        alone:init(small)
        local large <close> = within:compile_within(big, range, memory)
        local a <close> = within:compile_within(small, range, memory)
        local b <close> = alone:compile(small, memory)
        assert.is_true(large ~= nil)
        if engine ~= "free" then assert.are.equal(choices(b.plan), choices(a.plan)) end
        if choices(b.plan) == choices(a.plan) then
          for k = 1, 3 do
            feed(within, 3, k)
            feed(alone, 3, k)
            a:run()
            b:run()
            assert.are.equal(bits(alone), bits(within))
          end
        end
      end
    end
  end)
end)
