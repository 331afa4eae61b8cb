-- Why this kernel? Those that could run an op are timed, by engine and algorithm; the answers are
-- checked against plans of one engine alone, and against what the rows say.
local core = require "neap.core"
local neap = require "neap"
local support = require "support"
local nn, raises = neap.nn, support.raises

--- A convolution that oneDNN has two algorithms for, where it is there.
local function model()
  return nn.Sequential { name = "wino", input = { 32, 16, 16 },
    nn.Conv2d { 32, 32, kernel = 3, pad = 1 }, nn.ReLU(), nn.MaxPool2d { 2 }, nn.Flatten(),
    nn.Linear { 2048, 10 } }
end

local function step(o)
  local all = { batch = 8, train = true, store = false }
  for key, value in pairs(o or {}) do all[key] = value end
  return all
end

local has_dnnl = pcall(function() model():plan(step { engine = "dnnl" }) end)

--- Rows by step, each a list.
local function by_step(rows)
  local steps = {}
  for _, row in ipairs(rows) do
    steps[row.step] = steps[row.step] or {}
    table.insert(steps[row.step], row)
  end
  return steps
end

describe("which kernel could run an op, and how fast?", function()
  it("is told of every engine, with the plan's own among them", function()
    local plan = model():plan(step())
    local report, ops = plan:kernels(), plan:_ops()
    local steps, taken_ns, n = by_step(report), 0, 0
    for at, rows in pairs(steps) do
      local taken
      for k, row in ipairs(rows) do
        assert.are.equal(k, row.kernel_no)
        assert.are.equal(ops[at].name, row.name)
        assert.is_true(row.min_ns > 0)
        if row.taken then
          assert.is_nil(taken, row.name .. ": one kernel is the plan's")
          taken = row
        end
      end
      assert.are.equal(ops[at].engine, taken.engine)
      assert.are.equal(ops[at].algorithm, taken.algorithm)
      assert.are.equal(ops[at].scratch_bytes, taken.scratch_bytes)
      taken_ns, n = taken_ns + taken.min_ns, n + 1
    end
    assert.are.equal(taken_ns, report.taken_ns)
    assert.are.equal(n, report.n_op)
    assert.is_true(report.fastest_ns <= taken_ns)
    -- Each algorithm once; of a convolution that oneDNN has two for, both.
    local algorithms = {}
    for _, row in ipairs(plan:kernels "conv_1") do
      local word = row.engine .. " " .. (row.algorithm or "")
      assert.is_nil(algorithms[word], word)
      algorithms[word] = true
    end
    if has_dnnl then
      assert.is_true(algorithms["dnnl direct"] and algorithms["dnnl winograd"])
    end
    -- forward, both gradients, and what else has more than one kernel
    local types = {}
    for _, row in ipairs(report) do types[row.type] = true end
    for _, type in ipairs { "Conv", "ConvGradWeight", "MaxPool", "MaxPoolGrad", "FC" } do
      assert.is_true(types[type], type)
    end
  end)

  it("says the scratch that a plan by that engine takes", function()
    local seen = 0
    for _, engine in ipairs { "blas", "ref" } do
      local alone = {}
      for _, o in ipairs(model():plan(step { engine = engine }):_ops()) do alone[o.name] = o end
      for _, row in ipairs(model():plan(step { layouts = "plain" }):kernels()) do
        local o = alone[row.name]
        if o and row.engine == engine and o.engine == engine then
          assert.are.equal(o.scratch_bytes, row.scratch_bytes, row.name)
          seen = seen + 1
        end
      end
    end
    assert.is_true(seen >= 8)
  end)

  it("goes through all of a net: losses, norms, attention, loops, halves, what infers", function()
    local norms = nn.Sequential { name = "norms", input = { 4, 8, 8 },
      nn.Conv2d { 4, 8, kernel = 3, pad = 1 }, nn.BatchNorm2d { 8 }, nn.ReLU(),
      nn.Residual { nn.Conv2d { 8, 8, kernel = 1 }, nn.Dropout { 0.5 } }, nn.AvgPool2d { 2 },
      nn.Flatten(), nn.LayerNorm { 128 }, nn.Linear { 128, 4 } }
    local gpt = neap.zoo.gpt { layers = 1, width = 32, heads = 2, length = 16, vocabulary = 50 }
    for _, case in ipairs {
      { norms, train = true }, { norms }, { norms, train = true, dtype = "bf16" },
      { norms, train = true, policy = "pool" }, { norms, train = true, layouts = "plain" },
      { norms, train = true, dtype = "f16" }, { gpt, train = true }, { gpt },
    } do
      local plan = case[1]:plan { batch = 2, store = false, train = case.train,
        dtype = case.dtype, policy = case.policy, layouts = case.layouts }
      for _, rows in pairs(by_step(plan:kernels())) do
        local n = 0
        for _, row in ipairs(rows) do
          n = n + (row.taken and 1 or 0)
          assert.is_true((row.min_ns == nil) == (row.untimed ~= nil), row.name)
        end
        assert.are.equal(1, n, rows[1].name)
      end
    end
    local rnn = nn.Sequential { name = "rnn", input = { 5, 16 }, nn.LSTM { 16, 16 } }
    local algorithms = {}
    for _, row in ipairs(rnn:plan({ batch = 2, train = true, store = false,
      loss = nn.MseLoss() }):kernels()) do
      if row.type == "LSTM" then algorithms[row.algorithm or row.engine] = true end
    end
    assert.is_true(algorithms.library)
  end)

  it("leaves plan and weights alone, and names what is asked for", function()
    local plan = model():plan(step())
    local before = plan:text()
    local rows = plan:kernels "conv_1"
    assert.are.equal(before, plan:text())
    for _, row in ipairs(rows) do assert.are.equal("conv_1", row.name) end
    assert.is_true(#rows >= 2)
    raises("did you mean \"conv_1\"", function() plan:kernels "conv_2" end)
    raises("name of an op", function() plan:kernels(3) end)
    raises("steps, got", function() plan:_kernels(1000) end)
  end)

  it("is kept beside the plan, and answers why", function()
    local path = os.tmpname()
    os.remove(path)
    local db <close> = assert(neap.db(path))
    core.use_db(db)
    local plan = model():plan { batch = 8, train = true }
    local before = db:query("choices", { net = "wino" })
    for _, row in ipairs(before) do
      assert.is_nil((row.why or ""):find("measured", 1, true))
      assert.is_nil((row.why or ""):find(": 0 times", 1, true)) -- no rival, no figures of one
    end
    local rows = plan:kernels "conv_1"
    local stored = db:query("kernels", { net = "wino" })
    assert.are.equal(#rows, #stored)
    local why = assert(db:sql [[select why from v_choice where newest and name = 'conv_1']])[1].why
    for _, row in ipairs(rows) do
      local ns = row.min_ns
      local words = row.engine .. (row.algorithm and " " .. row.algorithm or "")
        .. (ns < 1000000 and (" %.1f us"):format(ns / 1e3) or (" %.2f ms"):format(ns / 1e6))
      assert.is_truthy(why:find(words, 1, true), why)
    end
    if has_dnnl then
      assert.is_truthy(why:find("winograd", 1, true) and why:find("direct", 1, true), why)
    end
    local said = tostring(plan:explain "conv1")
    assert.is_truthy(said:find("Kernel of conv_1", 1, true) and said:find(why, 1, true), said)
    -- measured again: in place of what was known
    plan:kernels "conv_1"
    assert.are.equal(#rows, #db:query("kernels", { net = "wino" }))
    -- and gone with their plan
    support.shell(("sqlite3 %s 'pragma foreign_keys = on; delete from plan'"):format(path))
    assert.are.equal(0, assert(db:sql "select count(*) as n from kernel_time")[1].n)
    core.use_db(false)
    os.execute("rm -f '" .. path .. "'*")
  end)

  it("is a command, and comes along with a merge", function()
    local folder = os.tmpname()
    os.remove(folder)
    os.execute("mkdir -p " .. folder)
    local function neap_command(words)
      return support.shell(("NEAP_DB=%s/a.db %s %s 2>&1"):format(folder, support.program, words))
    end
    local json = neap_command "profile kernels mlp --train --batch 4 --json"
    local answer = require("cjson").decode(json)
    assert.is_true(#answer.rows >= 4 and answer.n_op >= 2, json)
    assert.is_truthy(neap_command("profile kernels"):find("needs a net", 1, true))
    local merged = support.shell(("NEAP_DB=%s/b.db %s db merge %s/a.db 2>&1"):format(folder,
      support.program, folder))
    local db <close> = assert(neap.db(folder .. "/b.db"))
    assert.are.equal(#answer.rows, assert(db:sql "select count(*) as n from v_kernel")[1].n, merged)
    os.execute("rm -rf " .. folder)
  end)
end)
