-- Questions that planning again answers: without a layer, another batch, dtype or policy, which
-- batch fits, what keeping costs, what a budget costs in time, curves, and the doctor's advice.
-- Each answer is checked against one computed another way.
local neap = require "neap"
local support = require "support"
local times = require "neap.plan.times"
local nn, raises = neap.nn, support.raises

local function lenet() return (neap.zoo.lenet()) end
local step = { batch = 16, train = true, store = false }

--- The options with others in their place.
local function with(o, changes)
  local out = {}
  for key, value in pairs(o) do out[key] = value end
  for key, value in pairs(changes) do out[key] = value end
  return out
end

--- What a command line prints as JSON.
local function command(words)
  local json = support.shell(("NEAP_DB=off %s %s --json"):format(support.program, words))
  return require("cjson").decode(json)
end

local function same(expected, answer)
  for _, name in ipairs { "arena_bytes", "total_bytes" } do
    assert.are.equal(expected[name], answer[name], name)
  end
end

describe("what would the peak be without layer X?", function()
  it("is what the plan of a net written without it says", function()
    local function mlp(with_norm)
      local layers = { input = { 64 }, nn.Linear { 64, 256 } }
      if with_norm then layers[#layers + 1] = nn.LayerNorm { 256 } end
      layers[#layers + 1] = nn.ReLU()
      layers[#layers + 1] = nn.Linear { 256, 10 }
      return nn.Sequential(layers)
    end
    for _, train in ipairs { true, false } do
      local o = with(step, { train = train, optimizer = train and neap.optim.Adam {} or nil })
      local answer = mlp(true):plan(o):whatif { without = "norm1" }
      same(mlp(false):plan(o), answer)
      assert.are.equal(mlp(true):plan(o).total_bytes - answer.total_bytes, answer.saved_bytes)
    end
  end)

  it("takes a module deep in the tree, several of them, and the command line", function()
    local block = nn.Sequential { nn.Linear { 8, 8 }, nn.Tanh(), name = "first" }
    local model = nn.Sequential { input = { 8 }, block, nn.Linear { 8, 2 } }
    local plain = nn.Sequential { input = { 8 }, nn.Linear { 8, 2 } }
    local plan = model:plan(step)
    same(plain:plan(step), plan:whatif { without = { "first.linear1", "first.tanh1" } })
    same(plain:plan(step), plan:whatif { without = "first" })
    local said = command "plan lenet --train --batch 16 --what-if without=relu1"
    local netfile = require "neap.net.file"
    same(netfile.plan(netfile.load "lenet:16", { train = true }, { store = false })
      :whatif { without = "relu1" }, said)
  end)

  it("says what does not fit any more, and the nearest name", function()
    local plan = lenet():plan(step)
    raises("expects 800 features", plan.whatif, plan, { without = "pool2" })
    raises("did you mean \"relu1\"?", plan.whatif, plan, { without = "relu2" })
    raises("unknown field \"bach\", did you mean \"batch\"?", plan.whatif, plan, { bach = 1 })
    raises("expects what is to change", plan.whatif, plan, {})
    local net = lenet():net { batch = 2 }:plan { store = false }
    raises("plan a model", net.whatif, net, { without = "relu1" })
  end)
end)

describe("what would another batch, policy, layout or engine need?", function()
  it("is what a plan with it from the start says", function()
    local model = lenet()
    local plan = model:plan(step)
    for _, change in ipairs {
      { batch = 5 }, { policy = "none" }, { policy = "name" }, { policy = "pool" },
      { layouts = "plain" }, { engine = "ref" }, { in_place = false }, { executor = "dag" },
      { batch = 3, layouts = "plain" },
    } do
      same(model:plan(with(step, change)), plan:whatif(change))
    end
  end)

  it("holds for nets, whose inputs have the batch, and for trainers", function()
    local net = lenet():net { batch = 4 }
    same(lenet():net { batch = 9 }:plan { store = false },
      net:plan({ store = false }):whatif { batch = 9 })
    local model = lenet()
    local trainer = neap.trainer { model = model, loss = nn.CrossEntropyLoss(),
      optimizer = neap.optim.SGD { lr = 0.1 }, memory = { store = false } }
    local small, large = trainer:plan(4), trainer:plan(8)
    same(large, small:whatif { batch = 8 })
  end)
end)

describe("what does bf16 save?", function()
  it("is what planning with it gives", function()
    local model = lenet()
    for _, dtype in ipairs { "bf16", "f16" } do
      same(model:plan(with(step, { dtype = dtype })), model:plan(step):whatif { dtype = dtype })
    end
  end)

  it("halves activations, and leaves parameters, inputs and labels as they are", function()
    local plan = neap.zoo.resnet18c():plan(step)
    local answer = plan:whatif { dtype = "bf16" }
    assert.are.equal(plan.regions.parameters, answer.parameter_bytes)
    assert.are.equal(plan.regions.state, answer.plan.regions.state)
    assert.is_true(answer.arena_bytes < plan.arena_bytes)
    local n_half, dtypes = 0, {}
    for _, v in ipairs(answer.plan:values()) do
      dtypes[v.blob] = v.dtype
      if v.role == "activation" and v.dtype == "bf16" then n_half = n_half + 1 end
    end
    assert.are.equal("i64", dtypes.y)
    assert.is_true(n_half > 50)
  end)

  it("is taken back by f32", function()
    local plan = lenet():plan(step)
    local half = plan:whatif({ dtype = "bf16" }).plan
    same(plan, half:whatif { dtype = "f32" })
  end)
end)

describe("which batch fits?", function()
  it("is one that fits, and the next does not", function()
    local said = command "plan lenet --train --fit 16MiB"
    local netfile = require "neap.net.file"
    local file = netfile.load "lenet"
    local function total(n)
      return netfile.plan(file, { train = true, batch = n }, { store = false }).total_bytes
    end
    local n = math.tointeger(said.batch) -- JSON knows no integers
    assert.is_true(total(n) <= 16 << 20)
    assert.is_true(total(n + 1) > 16 << 20)
    assert.are.equal(total(n), said.total_bytes)
  end)
end)

describe("what does keep cost?", function()
  it("is the plan with the blob kept, less that without", function()
    local model = lenet()
    for _, blob in ipairs { "conv1", "pool1" } do
      local plan = model:plan(step)
      local kept = model:plan(with(step, { keep = { blob } }))
      local answer = plan:whatif { keep = blob }
      same(kept, answer)
      assert.are.equal(plan.total_bytes - kept.total_bytes, answer.saved_bytes)
    end
    local both = model:plan(with(step, { keep = "conv1" })):whatif { keep = "pool1" }
    same(model:plan(with(step, { keep = { "conv1", "pool1" } })), both)
  end)
end)

describe("how do bytes go with the batch, and with the budget?", function()
  it("is one plan for each batch", function()
    local model = lenet()
    local plan = model:plan(step)
    local limited = { total = plan.total_bytes + 1 } -- as --fit has it: larger batches are refused
    for key, value in pairs(step) do limited[key] = value end
    local rows = model:plan(limited):curve "batch"
    assert.are.same({ "refused", "refused" }, { rows[#rows - 1].size, rows[#rows].size })
    assert.are.equal(plan.total_bytes, rows[#rows - 2].total_bytes)
    local curve = plan:curve("batch", { 1, 7, 32 })
    for i, n in ipairs { 1, 7, 32 } do
      local p = model:plan(with(step, { batch = n }))
      assert.are.equal(n, curve[i].batch)
      assert.are.equal(p.arena_bytes, curve[i].arena_bytes)
      assert.are.equal(p.total_bytes, curve[i].total_bytes)
    end
  end)

  local function chain()
    local layers = { input = { 64 } }
    for _ = 1, 8 do
      layers[#layers + 1] = nn.Linear { 64, 64 }
      layers[#layers + 1] = nn.Tanh()
    end
    return nn.Sequential(layers)
  end

  it("goes down to a budget below which nothing can be had", function()
    local model, o = chain(), with(step, { batch = 512 })
    local plan = model:plan(o)
    local curve = plan:curve "budget"
    assert.is_true(#curve > 2)
    assert.are.equal(plan.arena_bytes, curve[1].arena_bytes)
    local least = curve[#curve].budget_bytes
    for i = 2, #curve do
      local p = model:plan(with(o, { budget = curve[i].budget_bytes }))
      assert.are.equal(p.arena_bytes, curve[i].arena_bytes)
      assert.are.equal(p.n_recomputed, curve[i].recomputed)
      assert.is_true(curve[i].arena_bytes <= curve[i].budget_bytes)
    end
    raises("least", model.plan, model, with(o, { budget = least - 64 }))
  end)

  it("costs, of measured times, those of the ops that run again", function()
    local model, o = chain(), with(step, { batch = 512 })
    local plan, measured, sum = model:plan(o), {}, 0
    for i, op in ipairs(plan:_ops()) do
      op.ns = 1000 + 7 * i
      measured[i], sum = op, sum + op.ns
    end
    local same_ns, known = times.forecast(plan:_ops(), { { rows = measured } })
    assert.are.equal(sum, same_ns)
    assert.are.equal(1, known)
    local less = plan:whatif { budget = plan:curve("budget")[6].budget_bytes, run = false }.plan
    local expected, by_name = sum, {}
    for _, op in ipairs(measured) do by_name[op.name .. op.type .. op.phase] = op.ns end
    local ops = less:_ops()
    for _, op in ipairs(ops) do
      local first = op.recomputes and ops[op.recomputes]
      if first then expected = expected + by_name[first.name .. first.type .. first.phase] end
    end
    assert.is_true(less.n_recomputed > 0)
    assert.are.equal(expected, (times.forecast(ops, { { rows = measured } })))
  end)
end)

describe("the doctor", function()
  it("gives at most five pieces of advice; each applied gives what it says", function()
    for _, o in ipairs {
      step, { batch = 8, policy = "none", in_place = false, keep_all = true, store = false },
      { batch = 8, train = true, policy = "name", keep = { "conv1" }, store = false },
      { batch = 8, train = true, executor = "dag", engine = "ref", store = false },
    } do
      local model = lenet()
      local plan = model:plan(o)
      local advice = plan:doctor()
      assert.is_true(#advice >= 1 and #advice <= 5)
      for i = 1, #advice do
        local row = advice[i]
        -- as it is written: the text is Lua
        local set = assert(load("return { " .. row.option .. " }"))()
        same(model:plan(with(o, set)), row)
        assert.are.equal(plan.total_bytes - row.total_bytes, row.saved_bytes)
        assert.is_true(row.saved_bytes > 0)
        assert.is_false(i > 1 and row.is_free and not advice[i - 1].is_free)
      end
    end
  end)

  it("finds what was turned off, and nothing in a plan that can't be smaller", function()
    local o = { batch = 8, policy = "none", keep_all = true, store = false }
    local said = tostring(lenet():plan(o):doctor())
    assert.is_truthy(said:find("policy = \"offset\"", 1, true))
    assert.is_truthy(said:find("keep_all = false", 1, true))
    local model = nn.Sequential { input = { 2 }, nn.Linear { 2, 512 } }
    local plan = model:plan { batch = 1, store = false }
    assert.are.equal(0, #plan:doctor())
    assert.is_truthy(tostring(plan:doctor()):find("nothing is known that would help", 1, true))
  end)
end)
