--- Recomputation: what a budget has no room to keep for the backward pass is made again there.
local neap = require "neap"
local netfile = require "neap.net.file"
local support = require "support"

local raises = support.raises

--- The training net of the zoo, e.g. "gpt:2".
local function training(name) return (netfile.build(netfile.load(name), { train = true })) end

--- n layers of FC and Tanh, each as wide as the next: what the backward holds is n activations of
-- `unit` bytes.
local function chain(n)
  local net = neap.net "chain"
  local h = net:input("x", { 64, 32 })
  for i = 1, n do
    h = net:FC({ h, net:param("w" .. i, { 32, 32 }, { "Xavier" }) }, "s" .. i):tanh()
  end
  local loss = (h * h):mean()
  local rate = net:const(0.1)
  for parameter, gradient in pairs(net:gradient(loss)) do
    net:op("Sgd", { parameter, gradient, rate }, { parameter })
  end
  net:outputs { loss }
  return net, 64 * 32 * 4
end

describe("recomputation", function()
  for _, case in ipairs {
    { "chargpt:2", 0.5 }, { "chargpt:2", 0.4 }, { "squeezenet1_1:1", 0.6 }, { "resnet110:1", 0.3 },
  } do
    local name, share = table.unpack(case)
    it(("trains %s in %.0f %% of its arena to the same bits, in the bytes foretold, \z
      without allocation"):format(name, 100 * share), function()
      local free = training(name):plan { store = false }
      local budget = math.floor(share * free.arena_bytes)
      local r = neap.check.plan(name, { train = true, budget = budget, poison = true, steps = 2 })
      assert.is_true(r.same, r.different)
      assert.is_true(r.n_recomputed > 0)
      assert.is_true(r.arena_bytes <= budget)
      assert.are.equal(r.forecast_bytes, r.held_bytes)
      assert.are.equal(0, r.allocations)
    end)
  end

  it("draws in a repeated Dropout the mask of the first run", function()
    local function net_of()
      local net = neap.net "dropout"
      local h = net:input("x", { 64, 32 })
      for i = 1, 8 do
        h =
          net:FC({ h, net:param("w" .. i, { 32, 32 }, { "Xavier" }) }):tanh():dropout { rate = 0.5 }
      end
      local loss, rate = (h * h):mean(), net:const(0.1)
      for parameter, gradient in pairs(net:gradient(loss)) do
        net:op("Sgd", { parameter, gradient, rate }, { parameter })
      end
      return net:outputs { loss }
    end
    local net = net_of()
    local free = net:plan { store = false }
    local r = neap.check.plan(net, { budget = math.floor(0.6 * free.arena_bytes), poison = true })
    assert.is_true(r.same, r.different)
    local again = false
    for _, op in ipairs(
      net:plan { budget = math.floor(0.6 * free.arena_bytes), store = false }:ops()) do
      again = again or (op.type == "Dropout" and op.recomputes ~= nil)
    end
    assert.is_true(again)
  end)

  it("needs of the order of sqrt(n) for a chain of n layers, with at most one \z
      more forward pass", function()
    for _, n in ipairs { 16, 64, 144 } do
      local net, unit = chain(n)
      local least =
        raises("least arena", net.plan, net, { budget = unit, store = false }).least_bytes
      assert.is_true(net:plan({ store = false }).arena_bytes >= n * unit)
      assert.is_true(least <= 2 * math.sqrt(n) * unit,
        ("%d layers: %.1f units"):format(n, least / unit))
      local tight = net:plan { budget = least, store = false }
      assert.are.equal(least, tight.arena_bytes)
      assert.is_true(tight.n_recomputed <= 2 * n)
      assert.is_true(tight.recomputed_work <= 1 / 3)
    end
  end)

  it("never exceeds its budget, and never takes more memory for less budget", function()
    for _, case in ipairs {
      { "chargpt:2", true }, { "squeezenet1_1:1", true }, { "googlenet:1", false },
    } do
      local name, exact = table.unpack(case)
      local net = training(name)
      local free = net:plan { store = false }
      local before, refused = free.arena_bytes, false
      for percent = 96, 16, -8 do
        local budget = free.arena_bytes * percent // 100
        local ok, plan = pcall(net.plan, net, { budget = budget, exact = exact, store = false })
        if ok then
          assert.is_false(refused, "a smaller budget was met after a larger one was refused")
          assert.is_true(plan.arena_bytes <= budget)
          assert.is_true(plan.arena_bytes <= before,
            ("%s at %d %%: %d after %d"):format(name, percent, plan.arena_bytes, before))
          before = plan.arena_bytes
        else
          refused = true
          assert.are.equal("budget", plan.code)
          assert.is_true(plan.least_bytes > budget and plan.least_bytes <= before)
        end
      end
      assert.is_true(before < 0.75 * free.arena_bytes and refused)
    end
  end)

  it("repeats nothing where the budget has room, and nothing at all when \z
      it is switched off", function()
    local net = training "chargpt:2"
    local free = net:plan { store = false }
    assert.are.equal(0, free.n_recomputed)
    assert.are.equal(0, net:plan({ budget = free.arena_bytes, store = false }).n_recomputed)
    local e = raises("least arena", net.plan, net, {
      budget = free.arena_bytes // 2, recompute = false, store = false,
    })
    assert.are.equal(free.arena_bytes, e.least_bytes)
    raises("recompute expects true or false", net.plan, net, { recompute = "all", store = false })
  end)

  it("repeats nothing where kernels of less scratch alone meet the budget", function()
    local net, memory = neap.net "scratch", { engine = "blas", exact = false, store = false }
    local image = net:Conv({ net:input("x", { 1, 8, 32, 32 }), net:param("k", { 2, 8, 3, 3 }) },
      "c", { kernel = { 3, 3 }, stride = { 3, 3 } })
    local h = net:Flatten(image, "h0")
    for i = 1, 8 do h = net:FC({ h, net:param("w" .. i, { 200, 200 }) }, "s" .. i):tanh() end
    net:gradient(h:mean())
    local free = net:plan(memory)
    memory.budget = free.arena_bytes // 2 -- most of it are the columns of the convolution's matrix
    local fewer = net:plan(memory)
    assert.is_true(fewer.n_changed > 0 and fewer.arena_bytes <= memory.budget)
    assert.are.equal(0, fewer.n_recomputed)
    memory.budget = fewer.arena_bytes - 1
    assert.is_true(net:plan(memory).n_recomputed > 0)
  end)

  it("needs one order of steps: in a dag nothing is repeated, and the refusal \z
      names the way out", function()
    local net = training "chargpt:2"
    local free = net:plan { executor = "dag", store = false }
    local e = raises("least arena", net.plan, net, {
      executor = "dag", budget = free.arena_bytes // 2, store = false,
    })
    assert.is_truthy(e.hint:find("executor = \"simple\" could recompute", 1, true))
    assert.is_true(net:plan({ budget = free.arena_bytes // 2, store = false }).n_recomputed > 0)
  end)

  it("leaves alone what must not run twice: updates, running statistics, \z
      ops with subnets", function()
    local net = training "resnet110:1"
    local free = net:plan { store = false }
    local once, n, found = { Sgd = true, RunningAverage = true, If = true, While = true }, 0, {}
    for _, op in ipairs(net:plan({ budget = free.arena_bytes * 3 // 10, store = false }):ops()) do
      found[op.type] = true
      if op.recomputes then
        n = n + 1
        assert.are.equal("backward", op.phase)
        assert.is_nil(once[op.type], op.type)
      end
    end
    assert.is_true(n > 0 and found.Sgd and found.RunningAverage)
  end)

  it("is told in words, by op, and for a blob that is not kept", function()
    local net = training "chargpt:2"
    local free = net:plan { store = false }
    local plan = net:plan { budget = free.arena_bytes // 2, store = false }
    assert.is_truthy(tostring(plan:explain()):match "recomputed: %d+ of %d+ ops run again in the \z
      backward pass, about %d+ %% more work")
    local told = 0
    for _, op in ipairs(plan:ops()) do
      if op.recomputes then
        told = told + 1
        local first = plan:ops()[op.recomputes]
        assert.are.equal(first.name, op.name)
        assert.is_truthy(tostring(plan:explain(first.outputs[1])):find(
          "not kept for the backward pass, which makes it again", 1, true))
      end
    end
    assert.are.equal(plan.n_recomputed, told)
  end)

  it("is drawn: steps and ops that run again have a colour of their own", function()
    local net = training "chargpt:2"
    local plan = net:plan { budget = net:plan({ store = false }).arena_bytes // 2, store = false }
    local path = os.tmpname()
    assert(plan:svg(path .. ".svg"))
    local svg, dot = support.read_file(path .. ".svg"), plan:dot()
    os.remove(path)
    os.remove(path .. ".svg")
    assert.is_truthy(svg:find(">recomputed</text>", 1, true))
    assert.is_truthy(dot:find("run again for the backward pass yellow", 1, true))
    assert.are.equal(plan.n_recomputed,
      select(2, dot:gsub("shape=box style=filled fillcolor=\"#f6e3b4\"", "")))
    assert.is_nil(net:plan({ store = false }):dot():find("run again", 1, true))
  end)

  it("comes back from the database: the same plan, and rows that say what is \z
      repeated and why", function()
    local path, script = os.tmpname(), os.tmpname()
    local file <close> = assert(io.open(script, "w"))
    file:write [[
      local neap, netfile = require "neap", require "neap.net.file"
      local net = netfile.build(netfile.load "chargpt:2", { train = true })
      local budget = net:plan({}).arena_bytes // 2
      for _ = 1, 2 do
        local plan = net:plan { budget = budget }
        print(plan.hit, plan.n_recomputed, plan.arena_bytes)
      end]]
    file:flush()
    local lines = {}
    local command = ("NEAP_CACHE=all NEAP_DB=%s %s run %s"):format(path, support.program, script)
    for line in support.shell(command):gmatch "[^\n]+" do lines[#lines + 1] = line end
    local db <close> = assert(neap.db(path))
    local rows = assert(
      db:sql"SELECT count(*) AS n, min(reason) AS reason FROM plan_op WHERE recomputes IS NOT NULL")
    os.remove(path)
    os.remove(script)
    assert.are.equal((lines[1]:gsub("^false", "true")), lines[2])
    assert.are.equal(rows[1].n, math.tointeger(lines[1]:match "^false%s+(%d+)"))
    assert.is_truthy(rows[1].reason:match "no room to keep .+ from step %d+")
  end)

  it("holds over a range of batch sizes in one memory", function()
    local net = training "chargpt:4"
    local free = net:plan { store = false }
    local ws <close> = neap.workspace { seed = 1, store = false }
    ws:init(net)
    local memory, held = { budget = free.arena_bytes // 2, max_batch = 4, store = false }, nil
    for _, rows in ipairs { 4, 1, 3, 2 } do
      for _, input in ipairs(net:inputs()) do
        local shape = table.move(input.shape, 1, #input.shape, 1, {})
        if #shape > 0 then shape[1] = rows end
        memory[input.name] = shape
        ws:feed(input.name, neap.zeros { dtype = input.dtype, table.unpack(shape) })
      end
      local program <close> = ws:compile(net, memory)
      program:run()
      assert.is_true(program.plan.n_recomputed > 0)
      assert.is_true(ws:arena_bytes() <= free.arena_bytes // 2)
      held = held or ws:arena_bytes()
      assert.are.equal(held, ws:arena_bytes())
    end
  end)
end)
