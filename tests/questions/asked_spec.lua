-- The questions of `neap help questions`, asked as they stand there, in a folder with a database of
-- a few trainings. Each answer is checked against one that was found another way: by planning
-- again, by counting, by SQL of its own on the tables.
local cjson = require "cjson"
local neap = require "neap"
local netfile = require "neap.net.file"
local questions = require "neap.help.questions"
local support = require "support"

local folder, file

-- Two trainings of one net under two commits, of which the second learns faster, and one that does
-- not fit.
local script = [[
local neap = require "neap"
local model, loss = neap.zoo.lenet(), neap.nn.CrossEntropyLoss()
local lr, budget = tonumber(arg[1]), arg[2]
neap.seed(7)
local t = neap.trainer { model = model, loss = loss, seed = 7,
  optimizer = neap.optim.SGD { lr = lr, momentum = 0.9 }, memory = { budget = budget } }
local x, y = neap.rand(32, 1, 28, 28), neap.zeros { 32, dtype = "i64" }
t:fit(neap.data.tensors { x = x, y = y, batch = 16 }, { epochs = 2, verbose = 0 })
]]

local function neap_command(words, database)
  return support.shell(("cd %s/it && NEAP_DB=%s %s %s 2>&1"):format(folder, database or file,
    support.program, words))
end

local function commit(name)
  support.write_file(folder .. "/.git/refs/heads/trunk", name:rep(10) .. "\n")
end

setup(function()
  support.program = support.shell("realpath " .. support.program):gsub("\n", "")
  folder = os.tmpname()
  os.remove(folder)
  file = folder .. "/it/neap.db"
  support.shell(("mkdir -p %s/.git/refs/heads %s/it"):format(folder, folder))
  support.write_file(folder .. "/.git/HEAD", "ref: refs/heads/trunk\n")
  support.write_file(folder .. "/it/train.lua", script)
  commit "abc1"
  neap_command "run train.lua 0.001"
  commit "def4"
  neap_command "run train.lua 0.01"
  neap_command "run train.lua 0.01 1MiB"
  neap_command "profile run lenet --train --steps 3"
  neap_command "profile run gpt --train --batch 1 --steps 1"
  neap_command("profile run mlp --steps 2", folder .. "/it/other.db")
end)

teardown(function() support.shell("rm -rf " .. folder) end)

--- A plan of the zoo made here, for answers of the command line.
local function plan_of(name, o, train)
  o = o or {}
  o.store = false
  return netfile.plan(netfile.load(name), { train = train ~= false }, o)
end

--- A number of JSON as an integer.
local function whole(n) return assert(math.tointeger(n)) end

--- Rows of SQL on the tables.
local function rows_of(sql)
  local db <close> = assert(neap.db(file))
  return assert(db:sql(sql))
end


local function near(expected, got, share)
  assert.is_true(math.abs(expected - got) <= share * math.abs(expected),
    ("expected %g, got %g"):format(expected, got))
end

--- The ops of a step of a stored plan of lenet, measured: step, median_ns and the rest.
local measured = [[select o.*, t.median_ns, t.min_ns from run_op t join run r using (run_id)
  join plan_op o on o.plan_id = r.plan_id and o.step = t.step
  where r.run_id = 4 order by t.median_ns desc, o.step]]

-- By the question's id: what its answer must be. `a` is the JSON, or the text where there is none.
local checks = {}

function checks.peak(a)
  -- counted here: what lives at each step, of the values of a plan made anew
  local plan = plan_of "lenet"
  local live = {}
  for _, v in ipairs(plan:_values()) do
    if v.region == "arena" and v.storage_no == v.value_no then
      local last = v.last_step
      for _, w in ipairs(plan:_values()) do
        if w.storage_no == v.storage_no then last = math.max(last, w.last_step) end
      end
      for k = math.max(v.first_step, 1), last do
        live[k] = (live[k] or 0) + (v.bytes + 63) // 64 * 64
      end
    end
  end
  local most, step = 0, 0
  for k, o in ipairs(plan:_ops()) do
    local bytes = (live[k] or 0) + (o.scratch_bytes + 63) // 64 * 64
    if bytes > most then most, step = bytes, k end
  end
  assert.are.equal(step, a.peak_step)
  assert.are.equal(most, a.arena_bytes)
  local op = plan:_ops()[step]
  assert.is_truthy(a.text:find(op.name, 1, true) and a.text:find(op.line, 1, true), a.text)
  local sum = (op.scratch_bytes + 63) // 64 * 64
  for _, row in ipairs(a.rows) do sum = sum + (row.bytes + 63) // 64 * 64 end
  assert.are.equal(most, sum)
end

function checks.without(a)
  -- ReLU's parameters are none; its values are those that go
  local plan = plan_of "lenet"
  assert.are.equal(plan.regions.parameters, a.parameter_bytes)
  assert.is_true(a.total_bytes <= plan.total_bytes)
  assert.are.equal(plan.total_bytes - a.total_bytes, a.saved_bytes)
end

function checks.why(a)
  local plan = plan_of "lenet"
  local p, c = plan:_value "pool1", plan:_value "conv2"
  local apart = p.first_step <= c.last_step and c.first_step <= p.last_step
  assert.is_true(apart and not a.together)
  assert.is_truthy(a.text:find(("both are needed in steps %d-%d"):format(
    math.max(p.first_step, c.first_step), math.min(p.last_step, c.last_step)), 1, true), a.text)
end

function checks.before_after(a)
  local p = plan_of("lenet"):_value "pool1"
  local found = 0
  for _, v in ipairs(plan_of("lenet"):_values()) do
    if v.region == "arena" and v.storage_no ~= p.storage_no and v.bytes > 0
        and v.offset_bytes < p.offset_bytes + p.bytes
        and p.offset_bytes < v.offset_bytes + v.bytes then
      local is_before = v.last_step < p.first_step
      assert.is_true(is_before or v.first_step > p.last_step, v.blob)
      local side = is_before and "before it" or "after it"
      found = found + (a.text:find(v.blob .. " (steps", 1, true) and a.text:find(side, 1, true)
        and 1 or 0)
    end
  end
  assert.is_true(found >= 1, a.text)
end

function checks.plan_diff(a)
  local before, after = plan_of "lenet:32", plan_of "lenet:64"
  assert.are.equal(before.total_bytes, a.before_bytes)
  assert.are.equal(after.total_bytes, a.after_bytes)
  local sum = 0
  for _, row in ipairs(a.rows) do sum = sum + row.change_bytes end
  assert.are.equal(after.total_bytes - before.total_bytes, sum)
  assert.is_truthy(a.before:find("training, batch 32", 1, true), a.before)
end

function checks.run_diff(a)
  local runs = rows_of "select * from run where run_id in (1, 2) order by run_id"
  assert.are.equal(runs[1].planned_bytes, a.before_bytes)
  assert.are.equal(runs[2].planned_bytes, a.after_bytes)
  assert.are.equal(runs[1].step_median_ns, a.before_ns)
  near(100 * (runs[2].step_median_ns / runs[1].step_median_ns - 1), a.time_percent, 1e-6)
end

function checks.slowest(a)
  local slowest = rows_of(measured)[1]
  assert.are.equal(slowest.name, a[1].name)
  assert.are.equal(slowest.median_ns, a[1].median_ns)
  local show = cjson.decode((neap_command "profile show 4 --json"))
  assert.are.equal(slowest.name, show[1].op) -- the same in every face
end

function checks.rates(a)
  local by_step = {}
  for _, o in ipairs(rows_of(measured)) do by_step[o.step] = o end
  local n = 0
  for _, row in ipairs(a) do
    local o = by_step[row.step]
    assert.is_true(math.abs(o.flops / o.median_ns - row.gflop_per_s) < 0.051, row.name)
    assert.is_true(math.abs((o.read_bytes + o.write_bytes) / o.median_ns - row.gbyte_per_s) < 0.051,
      row.name)
    if row.name == "conv_1" then -- 64 images of 20 times 24 x 24, 25 products and sums for each
      assert.are.equal(2 * 64 * 20 * 24 * 24 * 25, o.flops)
      n = n + 1
    end
  end
  assert.are.equal(1, n)
end

function checks.layers(a)
  local ns, total, found = {}, 0, 0
  for _, o in ipairs(rows_of(measured)) do
    ns[o.layer], total = (ns[o.layer] or 0) + o.median_ns, total + o.median_ns
  end
  local parameters = 0
  for _, row in ipairs(a) do
    parameters = parameters + row.parameter_bytes
    if row.layer == "conv1" then
      assert.are.equal(4 * (20 * 25 + 20), row.parameter_bytes)
      assert.are.equal(ns.conv1, row.median_ns)
      near(100 * ns.conv1 / total, row.time_percent, 0.01)
      found = found + 1
    end
  end
  assert.are.equal(1, found)
  assert.are.equal(4 * (20 * 25 + 20 + 50 * 20 * 25 + 50 + 500 * 800 + 500 + 10 * 500 + 10),
    parameters)
end

function checks.scratch(a)
  local plan, total, scratch = plan_of "lenet", 0, 0
  for _, row in ipairs(a) do
    total = total + row.bytes
    if row.category == "scratch" then scratch = row.bytes end
  end
  assert.are.equal(plan:_ops()[plan.peak_step].scratch_bytes, scratch)
  assert.is_true(total <= plan.arena_bytes and total > plan.arena_bytes - 64 * 8)
end

function checks.bf16(a)
  local plan = plan_of "gpt:1"
  assert.are.equal(plan.regions.parameters, a.parameter_bytes) -- masters stay f32
  assert.are.equal(plan_of("gpt:1", { dtype = "bf16" }).total_bytes, a.total_bytes)
  assert.are.equal(plan.total_bytes - a.total_bytes, a.saved_bytes)
  assert.is_true(a.saved_bytes > 0)
end

function checks.fit(a)
  local limit = 20 * 1024 * 1024
  assert.is_true(plan_of("lenet:" .. whole(a.batch)).total_bytes <= limit)
  assert.is_true(plan_of("lenet:" .. whole(a.batch) + 1).total_bytes > limit)
end

function checks.keep(a)
  local plan, kept = plan_of "lenet", plan_of("lenet", { keep = "pool1" })
  assert.are.equal(kept.total_bytes - plan.total_bytes, -a.saved_bytes)
  assert.are.equal(4 * 64 * 20 * 12 * 12, kept.regions.io - plan.regions.io) -- its own bytes
end

function checks.budget(a)
  assert.are.equal(1, a.batch)
  assert.is_true(#a.rows >= 3)
  for i, row in ipairs(a.rows) do
    assert.is_true(row.arena_bytes <= row.budget_bytes)
    if i > 1 then assert.is_true(row.time_ns >= a.rows[1].time_ns) end
  end
  local last = a.rows[#a.rows]
  local plan = plan_of("gpt:1", { budget = whole(last.budget_bytes) })
  assert.are.equal(plan.n_recomputed, last.recomputed)
  local ok = pcall(plan_of, "gpt:1", { budget = whole(last.budget_bytes) - 64 })
  assert.is_false(ok)
end

function checks.curve(a)
  for _, i in ipairs { 1, #a.rows } do
    assert.are.equal(plan_of("lenet:" .. whole(a.rows[i].batch)).total_bytes, a.rows[i].total_bytes)
  end
end

function checks.history(a)
  local commits = {}
  for _, row in ipairs(a) do
    if row.batch == 16 then commits[#commits + 1] = row.commit_id end
  end
  assert.are.same({ ("abc1"):rep(10):sub(1, 10), ("def4"):rep(10):sub(1, 10),
    ("def4"):rep(10):sub(1, 10) }, commits)
end

function checks.fragmentation(a)
  local plan, row = plan_of "lenet", a[1]
  for _, each in ipairs(a) do if each.batch == 64 then row = each end end
  assert.are.equal(plan.arena_bytes, row.arena_bytes)
  assert.are.equal(plan.arena_bytes - plan.lower_bound_bytes, row.gap_bytes)
end

function checks.policies(a)
  local seen = {}
  for _, row in ipairs(a.rows) do
    seen[row.policy] = true
    assert.are.equal(plan_of("lenet", { policy = row.policy }).arena_bytes, row.arena_bytes)
  end
  assert.is_true(seen.offset and seen.name and seen.none and seen.pool)
end

function checks.kernels(a)
  local ops, n = plan_of("lenet"):_ops(), 0
  for _, row in ipairs(a) do
    if row.mode == "train" and row.batch == 64 then
      assert.are.equal(ops[row.step].kernel, row.kernel)
      if row.type:find "^Conv" then
        n = n + 1
        assert.is_truthy(row.why and #row.why > 10, row.name)
        -- of a kernel without a rival nothing is said of one
        assert.is_nil(row.why:find("; :", 1, true), row.why)
      end
    end
  end
  assert.is_true(n >= 4)
end

function checks.reorders(a)
  local n = 0
  for _, o in ipairs(plan_of("lenet"):_ops()) do n = n + (o.type == "Reorder" and 1 or 0) end
  assert.are.equal(n, #a)
  for _, row in ipairs(a) do assert.is_truthy(row.why:find "reads" or row.why:find "writes") end
end

function checks.timeline()
  local text = assert(support.read_file(folder .. "/it/lenet.json"))
  local n = {}
  for _, e in ipairs(cjson.decode(text).traceEvents) do
    if e.ph == "X" then n[e.name] = (n[e.name] or 0) + 1 end
  end
  for _, o in ipairs(plan_of("lenet"):_ops()) do assert.is_truthy(n[o.name], o.name) end
end

function checks.roofline(a)
  assert.is_truthy(a:find("lenet.html", 1, true), a)
  local page = assert(support.read_file(folder .. "/it/lenet.html"))
  assert.is_truthy(page:find("conv_1.ConvGradWeight", 1, true) and page:find "[Rr]oofline")
end

function checks.losses(a)
  local rows = rows_of [[select * from run_metric where run_id = 2 and name = 'loss'
    order by at_step]]
  local got = {}
  for _, row in ipairs(a) do
    assert.are.equal(2, row.run_id) -- the newest that has any
    if row.name == "loss" then got[#got + 1] = row.value end
  end
  assert.are.equal(4, #got) -- two epochs of two batches
  for i, row in ipairs(rows) do near(row.value, got[i], 1e-12) end
  assert.is_true(got[4] < got[1])
end

function checks.trainings(a)
  local by_run = {}
  for _, row in ipairs(a) do by_run[row.run_id] = row end
  assert.are.equal('["0.001"]', by_run[1].arguments)
  assert.are.equal(by_run[1].seed, by_run[2].seed)
  near(by_run[1].first_loss, by_run[2].first_loss, 1e-6) -- the same numbers to begin with
  assert.is_true(by_run[2].last_loss < by_run[1].last_loss)
end

function checks.size(a)
  assert.are.equal(a.bytes, #assert(support.read_file(file)))
end

function checks.merge(a)
  assert.are.equal(1, a.n_run)
  assert.are.equal(1, rows_of("select count(*) as n from run where net = 'mlp'")[1].n)
  local again = cjson.decode((neap_command "db merge other.db --json"))
  assert.are.equal(0, again.n_run)
end

function checks.refused(a)
  assert.are.equal(1, #a)
  assert.are.equal(1024 * 1024, a[1].limit_bytes)
  local least = a[1].least_bytes
  assert.is_true(plan_of("lenet:16", { budget = least }).arena_bytes <= least)
  assert.is_false((pcall(plan_of, "lenet:16", { budget = least - 64 })))
  assert.is_truthy(a[1].in_the_way:find "conv1")
end

function checks.readers(a)
  -- of the plan of 64 rows in training, whose ops name what they read
  local readers = {}
  for _, o in ipairs(plan_of("lenet"):_ops()) do
    for _, name in ipairs(o.inputs) do
      if name == "pool1" then readers[#readers + 1] = o.name end
    end
  end
  local got = {}
  for _, row in ipairs(a) do
    if row.mode == "train" then got[#got + 1] = row.reader end
  end
  assert.are.same(readers, got)
end

-- What prints no JSON.
local prints_text = { timeline = true, roofline = true }

describe("one asks, in one line:", function()
  for _, question in ipairs(questions) do
    local id, words, command = table.unpack(question)
    it(words, function()
      local check = assert(checks[id], "no check of " .. id)
      local text, code = neap_command(assert(command:match "^neap (.*)$")
        .. (prints_text[id] and "" or " --json"))
      assert.are.equal(0, code, text)
      check(prints_text[id] and text or cjson.decode(text))
    end)
  end

  it("and there are 28 of them, on a page of their own", function()
    assert.are.equal(28, #questions)
    local page = neap_command "help questions"
    for _, question in ipairs(questions) do
      assert.is_truthy(page:find(question[3], 1, true), question[3])
    end
  end)
end)
