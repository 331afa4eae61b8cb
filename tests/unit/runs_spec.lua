-- A training is one run in the database, whichever programs make its steps and however it ends; and
-- who ends it without a word is found out by the next process.
local core = require "neap.core"
local neap = require "neap"
local support = require "support"

--- Trains 3 epochs of 3 batches, the last one smaller; what arg[1] says happens at step 5.
local script = [[
local neap = require "neap"
local nn, what = neap.nn, arg[1]
neap.seed(1)
local model = nn.Sequential {
  name = "small", input = { 6 }, nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3),
}
local memory = { dynamic = { executor = "dynamic" }, refused = { budget = 64 } }
local t = neap.trainer {
  model = model,
  optimizer = neap.optim.SGD { lr = 0.1 },
  metrics = "accuracy",
  max_batch = what == "max_batch" and 8 or nil,
  micro = what == "micro" and 2 or nil,
  accumulate = what == "accumulate" and 2 or nil,
  memory = memory[what],
}
local labels = {}
for i = 1, 20 do labels[i] = i % 3 end
local set = neap.data.tensors { x = neap.randn(20, 6), y = neap.tensor(labels, "i64"), batch = 8 }
t:fit(set, { epochs = 3, verbose = 0, valid = what == "valid" and set or nil, on_step = function(r)
  if r.step ~= 5 then return end
  if what == "error" then error "oops" end
  if what == "exit" then os.exit(3) end
  if what == "interrupt" then require("neap.core").interrupt() end
  if what == "terminate" or what == "kill" then
    local word = what == "kill" and "KILL" or "TERM"
    os.execute(("kill -%s $PPID"):format(word))
    while true do end -- until it comes
  end
end })
if what == "later" then error "oops" end
]]

describe("a training in the database", function()
  local folder = os.tmpname()
  setup(function()
    os.remove(folder)
    support.shell("mkdir -p " .. folder)
    local file <close> = assert(io.open(folder .. "/train.lua", "w"))
    file:write(script)
  end)
  teardown(function() support.shell("rm -rf " .. folder) end)

  --- @return the database that a training leaves, its exit code
  local function train(what)
    local path = ("%s/%s.db"):format(folder, what)
    local _, how, code = os.execute(("NEAP_DB=%s %s run %s/train.lua %s >%s/out 2>&1"):format(
      path, support.program, folder, what, folder))
    return assert(neap.db(path)), how == "exit" and code or how .. " " .. code
  end

  for _, what in ipairs { "plain", "max_batch", "micro", "dynamic" } do
    it("is one run that counts its steps: " .. what, function()
      local db <close>, code = train(what)
      assert.equal(0, code)
      local runs = db:sql "select * from run"
      assert.equal(1, #runs)
      assert.equal("finished", runs[1].status)
      assert.equal("small", runs[1].net)
      assert.equal(('["%s"]'):format(what), runs[1].arguments)
      assert.equal("train", runs[1].mode)
      assert.equal(8, runs[1].batch)
      assert.equal(9, runs[1].n_step)
      assert.equal(what ~= "dynamic", runs[1].plan_id ~= nil)
      assert.is_true(runs[1].held_bytes >= runs[1].planned_bytes and runs[1].planned_bytes > 0)
      local metrics = db:sql [[select name, count(*) as n, min(at_step) as a, max(at_step) as b
        from run_metric group by name order by name]]
      local function shown(i)
        local m = metrics[i]
        return ("%s %d: %d-%d"):format(m.name, m.n, m.a, m.b)
      end
      assert.equal("accuracy 9: 1-9", shown(1))
      assert.equal("epoch_accuracy 3: 3-9", shown(2))
      assert.equal("epoch_loss 3: 3-9", shown(3))
      assert.equal("loss 9: 1-9", shown(4))
      assert.equal(9, db:sql("select sum(n_step) as n from run_time")[1].n)
    end)
  end

  it("counts updates where not every batch has one", function()
    local db <close> = train "accumulate"
    local run = db:sql("select n_step, status from run")[1]
    assert.equal(6, run.n_step) -- two of each epoch's three batches
    assert.equal("finished", run.status)
  end)

  it("looks at other data in a run of its own, beside its own", function()
    local db <close> = train "valid"
    assert.equal(9, db:sql("select n_step from run where mode = 'train'")[1].n_step)
    assert.equal(3, db:sql("select count(*) as n from run_metric where name = 'valid_loss'")[1].n)
    assert.equal(0, db:sql("select count(*) as n from run where status <> 'finished'")[1].n)
  end)

  local ends = {
    { what = "error", code = 1, status = "failed", n_step = 5, says = "oops",
      reason = "script" },
    { what = "later", code = 1, status = "finished", n_step = 9 }, -- the training was over
    { what = "exit", code = 3, status = "finished", n_step = 5 },
    { what = "interrupt", code = 130, status = "interrupted", n_step = 5, says = "interrupted" },
    { what = "terminate", code = 143, status = "interrupted", n_step = 5, says = "interrupted" },
    { what = "kill", code = 137, status = "lost" },
    { what = "refused", code = 1, status = "refused", n_step = 0, says = "least arena" },
  }
  for _, e in ipairs(ends) do
    it(("ends by %s as %s"):format(e.what, e.status), function()
      local db <close>, code = train(e.what)
      local runs = db:sql [[select *, error ->> 'message' as message, error ->> 'code' as reason
        from run]]
      assert.is_true(code == e.code or code == "signal " .. e.code - 128, code)
      assert.equal(1, #runs)
      assert.equal(e.status, runs[1].status)
      assert.equal("small", runs[1].net)
      assert.is_not_nil(runs[1].ended_at)
      if e.reason then assert.equal(e.reason, runs[1].reason) end
      if e.n_step then assert.equal(e.n_step, runs[1].n_step) end
      if e.says then
        assert.has_match(e.says, runs[1].message)
      else
        assert.is_nil(runs[1].message)
      end
      if e.what == "refused" then
        local blobs = db:sql [[select error ->> 'least_bytes' as least, error ->> '$.blobs[0].name'
          as first from run]]
        assert.is_true(blobs[1].least > 64)
        assert.equal("relu1", blobs[1].first)
      end
    end)
  end

  it("bears the name of its model, in a call and a look as in a training", function()
    local own <close> = assert(neap.db(folder .. "/named.db"))
    core.use_db(own)
    local function model(name)
      return neap.nn.Sequential { name = name, neap.nn.Linear(3, 2), input = { 3 } }
    end
    for _, name in ipairs { "here", "there" } do
      local m = model(name)
      m(neap.randn(2, 3))
      m:backward(neap.randn(2, 3), neap.randn(2, 2))
      local t = neap.trainer { model = m, optimizer = neap.optim.SGD { lr = 0.1 } }
      t:step { x = neap.randn(4, 3), y = neap.tensor({ 0, 1, 1, 0 }, "i64") }
      t:predict(neap.randn(5, 3))
      t:close()
      m:plan { batch = 6 }
    end
    model(nil)(neap.randn(2, 3))
    core.use_db(false)
    local names = {}
    for i, row in ipairs(own:sql [[select net, count(*) as n from plan group by net order by 1]]) do
      names[i] = row.net .. " " .. row.n
    end
    assert.are.same({ "Sequential 1", "here 4", "here_backward 1", "there 4", "there_backward 1" },
      names)
  end)

  it("fails by whatever a script raises, with its words", function()
    local own <close> = assert(neap.db(folder .. "/raised.db"))
    core.use_db(own)
    local told = { __tostring = function() return "told" end }
    local raising = { __tostring = function() error "no words" end }
    local x, y = neap.randn(4, 3), neap.tensor({ 0, 1, 1, 0 }, "i64")
    local raised = {
      { "none", nil, "(error object is a nil value)" }, { "no", false,
        "(error object is a boolean value)" }, { "number", 42, "42" },
      { "table", {}, "(error object is a table value)" },
      { "fields", { code = "mine", message = "words" }, "words" },
      { "told", setmetatable({}, told), "told" },
      { "raising", setmetatable({}, raising), "(error object is a table value)" },
    }
    for _, r in ipairs(raised) do
      local model = neap.nn.Sequential { name = r[1], neap.nn.Linear(3, 2) }
      local t = neap.trainer { model = model, optimizer = neap.optim.SGD { lr = 0.1 } }
      assert.is_false((pcall(t.fit, t, neap.data.tensors { x = x, y = y, batch = 2 },
        { verbose = 0, on_step = function() error(r[2], 0) end })))
      t:close()
      local run = own:sql([[select status, error ->> 'code' as code, error ->> 'message' as message
        from run where net = :net]], { net = r[1] })[1]
      assert.are.same({ "failed", "script", r[3] }, { run.status, run.code, run.message })
    end
    core.use_db(false)
  end)

  it("is said to be running by its row until it ends", function()
    local path = folder .. "/here.db"
    local own <close> = assert(neap.db(path))
    core.use_db(own)
    local model = neap.nn.Sequential { name = "here", neap.nn.Linear(3, 2) }
    local t = neap.trainer { model = model, optimizer = neap.optim.SGD { lr = 0.1 } }
    local batch = { x = neap.randn(4, 3), y = neap.tensor({ 0, 1, 1, 0 }, "i64") }
    for _ = 1, 3 do t:step(batch) end
    core.use_db(false)
    local function status() return own:sql("select status from run")[1].status end
    assert.equal("running", status())
    t:close()
    assert.equal("finished", status())
    assert.equal(3, own:sql("select n_step from run")[1].n_step)
  end)
end)
