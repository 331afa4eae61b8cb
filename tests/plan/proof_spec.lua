-- What a plan promises, on the benchmark nets: the planned run gives the bits of the unplanned one,
-- the bytes held are the bytes foretold, nothing is allocated between steps, and the arena is as
-- small as its lower bound. Small batches; the full ones are scripts/bench/proof.lua's.
local neap = require "neap"
local netfile = require "neap.net.file"
local support = require "support"
local settle = support.settle

--- A GPT of two short blocks; the full one is in the script.
local function gpt()
  local file = netfile.load("gpt:2", nil, { layers = 2, width = 32, heads = 4, length = 16 })
  file.batch = 2
  return file
end

local function holds(name, what, o)
  local r = neap.check.plan(what, o)
  assert.is_true(r.same_choices, name .. ": the planned run has other kernels")
  assert.is_nil(r.different, name .. ": not the unplanned run's bits")
  assert.is_true(r.same and r.n_blob > 1)
  assert.are.equal(0, r.allocations, name .. ": allocations in a step")
  assert.are.equal(r.forecast_bytes, r.held_bytes, name .. ": bytes held")
  return r
end

local function is_tight(name, r)
  assert.is_true(r.proved, name .. ": the arena is not proved to be the least")
  assert.is_true(r.arena_bytes <= 1.02 * r.lower_bound_bytes, name)
end

for _, mode in ipairs { "train", "infer" } do
  describe("planned equals unplanned in " .. mode .. ":", function()
    local train = mode == "train"
    for _, name in ipairs { "mlp:4", "lenet:4", "resnet18c:2", "gpt" } do
      it(name, function()
        local what = name == "gpt" and gpt() or name
        is_tight(name, holds(name, what, { train = train, count_steps = 10 }))
        if name ~= "resnet18c:2" then
          holds(name .. " by name", what, { train = train, policy = "name", poison = true })
          holds(name .. " poisoned", what, { train = train, poison = true })
        end
        holds(name .. " as a dag", what, {
          train = train, executor = "dag", threads = 2, poison = true,
        })
      end)
    end
    if train then
      it("resnet50:1", function()
        is_tight("resnet50", holds("resnet50", "resnet50:1", { steps = 2, count_steps = 2 }))
      end)
    else
      it("vgg16:1", function()
        is_tight("vgg16", holds("vgg16", "vgg16:1", { train = false, steps = 2, count_steps = 2 }))
      end)
    end
  end)
end

--- Small enough to be trained a step or two here. VGG's parameters take half a GiB, three times in
-- training, whatever the batch: one
--- of the two stands for both.
local small = { gpt = gpt, vgg16 = false, resnet110 = "resnet110:2" }

describe("a dag of two threads gives the bits of executor simple in training, and \z
    has its kernels:", function()
  for _, name in ipairs(support.nets) do
    local what = small[name] == nil and name .. ":1" or small[name]
    if what then
      it(name, function()
        if type(what) == "function" then what = what() end
        holds(name, what, {
          executor = "dag", threads = 2, steps = 1, count_steps = 1, poison = true,
        })
      end)
    end
  end

  it("and a trainer, whose batches share a plan, says as well what exact = \z
      false has changed", function()
    local model = neap.nn.Sequential {
      input = { 144 }, neap.nn.Linear { 144, 64 }, neap.nn.Linear { 64, 3 },
    }
    local t = neap.trainer {
      model = model, optimizer = neap.optim.SGD { lr = 0.01 }, loss = neap.nn.CrossEntropyLoss {},
      seed = 4,
      memory = { executor = "dag", threads = 2, exact = false },
    }
    t:step { x = neap.randn(64, 144), y = neap.zeros { 64, dtype = "i64" } }
    assert.is_true(t:plan().n_changed > 0)
  end)

  it("but where exact = false allows one thread an op, which says what has changed", function()
    local net = netfile.build(netfile.load "lenet:4", { train = true })
    local o = { executor = "dag", threads = 2, store = false }
    assert.are.equal(0, net:plan(o).n_changed)
    o.exact = false
    local plan, changed = net:plan(o), {}
    for _, op in ipairs(plan:ops()) do if op.changed then changed[#changed + 1] = op.name end end
    assert.are.equal(plan.n_changed, #changed)
    assert.is_true(#changed > 0 and #changed < plan.n_op)
    -- What splits no sum among threads has not changed.
    for _, op in ipairs(plan:ops()) do
      assert.is_false(
        op.changed and (op.type == "SGD" or op.type == "Relu" or op.type == "Reorder"), op.type)
    end
    local text = plan:explain()
    assert.is_truthy(tostring(text):find(
      ('other kernels than executor "simple" has, so other bits: %d of %d ops: '):format(#changed,
        plan.n_op), 1, true))
    assert.is_truthy(tostring(text):find(changed[1], 1, true))
    o.threads = 1
    assert.are.equal(0, net:plan(o).n_changed)
    local r = neap.check.plan("lenet:4", { executor = "dag", threads = 2, exact = false })
    assert.is_true(r.n_changed > 0 and not r.same_choices)
  end)
end)

describe("the comparison", function()
  it("sees one unplanned byte", function()
    local net = netfile.build(netfile.load "mlp:4", { train = true })
    settle()
    local before = neap.memory().held
    local ws <close> = neap.workspace { seed = 1, store = false }
    ws:init(net)
    local program <close> = ws:compile(net, { store = false })
    ws:feed("x", neap.zeros(table.unpack(net:inputs()[1].shape)))
    ws:feed("y", neap.zeros { 4, dtype = "i64" })
    ws:feed("lr", 0.01)
    program:run(2)
    settle()
    assert.are.equal(program.plan.total_bytes, neap.memory().held - before)
    local stray = neap.zeros { 1, dtype = "u8" }
    settle()
    assert.are.equal(program.plan.total_bytes + 1, neap.memory().held - before)
    assert.are.equal(1, stray:n_bytes())
  end)

  it("sees one bit that differs", function()
    local x = neap.tensor { 1, 0, 3 }
    local y = x:clone()
    assert.are.equal(x:hash(), y:hash())
    y:set(-0.0, 2)
    assert.is_true(x:equal(y))
    assert.are_not.equal(x:hash(), y:hash())
  end)

  it("sees another seed", function()
    local file = netfile.load "mlp:4"
    local nn = neap.nn
    file.model = nn.Sequential {
      input = { 8 }, nn.Linear { 8, 8 }, nn.Dropout { 0.5 }, nn.Linear { 8, 2 },
    }
    assert.is_true(neap.check.plan(file, { n_class = 2 }).same)
  end)
end)

describe("the arena of ResNet-50 in training, batch 16,", function()
  it("is at most 42 % of the baseline", function()
    local net = netfile.build(netfile.load "resnet50:16", { train = true })
    local plan = net:plan { store = false }
    assert.is_true(plan.proved)
    assert.is_true(plan.arena_bytes <= 0.42 * plan.baseline_bytes,
      ("%.1f %%"):format(100 * plan.arena_bytes / plan.baseline_bytes))
  end)
end)
