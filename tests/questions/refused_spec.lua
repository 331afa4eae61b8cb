-- Who needs the memory that was refused, and what would do? A refusal says what was asked for, what
-- is alive where most is by module, the lines that made it, and what would fit; and so does the
-- database.
local neap = require "neap"
local support = require "support"
local nn = neap.nn

describe("a refusal", function()
  local db, path
  setup(function()
    db, path = support.open_db()
  end)
  teardown(function()
    support.close_db(db, path)
  end)

  local Block = nn.module { "Block",
    init = function(self, o)
      self.wide, self.back = nn.Linear { o[1], o[2] }, nn.Linear { o[2], o[1] }
    end,
    forward = function(self, x) return self.back(self.wide(x):relu()) + x end,
  }
  local function model()
    return nn.Sequential { name = "refused", input = { 16 }, Block { 16, 512 }, Block { 16, 64 },
      nn.Linear { 16, 4 } }
  end
  local function trainer(memory)
    return neap.trainer { model = model(), loss = nn.CrossEntropyLoss(), memory = memory,
      optimizer = neap.optim.SGD { lr = 0.1 } }
  end
  local function batch(n) return { x = neap.rand(n, 16), y = neap.zeros(n):to "i64" } end

  --- Bytes that are alive where most is, counted from the rows of the plan: of its values, by
  -- storage, and of the op's scratch.
  local function alive(plan)
    local step, by = plan.peak_step, {}
    for _, v in ipairs(plan:_values()) do
      local lives = v.region == "arena" and v.first_step <= step and step <= v.last_step
      if lives then by[v.storage_no] = v.bytes end
    end
    local sum = plan:_ops()[step].scratch_bytes
    for _, bytes in pairs(by) do sum = sum + bytes end
    return sum
  end

  it("of a budget says modules that add up, lines, and what fits", function()
    local free = model():plan { batch = 64, train = true, recompute = false, store = false }
    local err = support.raises("least", function()
      model():plan { batch = 64, train = true, recompute = false, store = false,
        budget = free.arena_bytes // 2 }
    end)
    assert.are.equal("budget", err.code)
    local sum = 0
    for i, m in ipairs(err.modules) do
      sum = sum + m.bytes
      assert.is_true(i == 1 or m.bytes <= err.modules[i - 1].bytes)
      assert.matches("refused_spec.lua:%d+$", m.line)
    end
    assert.are.equal(alive(free), sum)
    for _, b in ipairs(err.blobs) do assert.matches("refused_spec.lua:%d+$", b.line) end
    assert.is_truthy(tostring(err):find("alive where most is: " .. err.modules[1].name, 1, true))
    -- what is said to fit fits, and no more
    require("neap.memory.refusal").say_fits(err)
    local within = { train = true, recompute = false, store = false,
      budget = free.arena_bytes // 2 }
    within.batch = err.fits.batch
    assert.is_true(model():plan(within).arena_bytes <= within.budget)
    within.batch = err.fits.batch + 1
    support.raises("least", function() model():plan(within) end)
    within.batch, within.budget = 64, err.fits.budget
    assert.are.equal(free.arena_bytes, model():plan(within).arena_bytes)
    assert.is_truthy(err.hint:find(("a batch of %d fits"):format(err.fits.batch), 1, true))
  end)

  it("of a training is a run with all of it", function()
    local t <close> = trainer { budget = "4KiB", recompute = false }
    local err = support.raises("least", function() t:step(batch(64)) end)
    local row = assert(db:sql [[select status, net, mode, batch, error ->> 'limit_bytes' as "limit",
      error ->> 'least_bytes' as least, error ->> '$.modules[0].name' as module,
      error ->> '$.modules[0].line' as line, error ->> '$.modules[0].bytes' as bytes,
      error ->> '$.blobs[0].line' as blob_line, error ->> 'hint' as hint from run]])[1]
    assert.are.same({ "refused", "refused", "train", 64, 4096, err.least_bytes, err.modules[1].name,
      err.modules[1].line, err.modules[1].bytes, err.blobs[1].line, err.hint },
      { row.status, row.net, row.mode, row.batch, row.limit, row.least, row.module, row.line,
        row.bytes, row.blob_line, row.hint })
  end)

  it("of a forecast is kept as one that never began", function()
    local file = os.tmpname()
    os.remove(file)
    local function neap_command(words)
      return support.shell(("NEAP_DB=%s %s %s 2>&1"):format(file, support.program, words))
    end
    local _, code = neap_command "plan lenet --train --batch 16 --budget 64KiB --no-store"
    assert.are.equal(1, code)
    local text
    text, code = neap_command "plan lenet:16 --train --budget 64KiB"
    assert.are.equal(1, code)
    local rows = require("cjson").decode((neap_command "sql refused net=lenet mode=train --json"))
    assert.are.equal(1, #rows)
    assert.are.equal(64 * 1024, rows[1].limit_bytes)
    assert.are.equal(16, rows[1].batch)
    local least = math.tointeger(rows[1].least_bytes)
    assert.is_truthy(text:find(("budget = %d would do"):format(least), 1, true), text)
    -- what never began is not the newest run
    assert.is_truthy(neap_command("profile run lenet --train --batch 16 --steps 1"):find "conv_1")
    neap_command "plan lenet:16 --train --budget 64KiB"
    local newest = require("cjson").decode((neap_command
      "sql \"select status from v_run where net = 'lenet' and newest\" --json"))
    assert.are.same({ { status = "finished" } }, newest)
    -- and what it names as the least is met
    assert.are.equal(0, select(2, neap_command(
      ("plan lenet:16 --train --budget %d"):format(least))))
    os.execute("rm -f '" .. file .. "'*")
  end)

  it("of a program has the mode and the batch that were asked for", function()
    local function build(name)
      local net = neap.net(name)
      local x, y = net:input("x", { 8, 16 }), net:input("y", { 8 }, "i64")
      local h = net:Relu { net:FC { x, net:param("w", { 64, 16 }), net:param("b", { 64 }) } }
      return net, net:FC { h, net:param("v", { 4, 64 }), net:param("c", { 4 }) }, y
    end
    local net, out = build "program"
    net:outputs { out }
    local trained, z, y = build "trained"
    trained:gradient(trained:SoftmaxCrossEntropy { z, y })
    local ws <close> = neap.workspace()
    local function refuse(of, options)
      options.budget = 1
      support.raises("least", function() ws:compile(of, options) end)
    end
    refuse(net, {})
    refuse(net, { inputs = { x = { 24, 16 } } })
    refuse(trained, {})
    local rows = assert(db:sql [[select net || ' ' || mode || ' ' || batch as row from run
      where net in ('program', 'trained') order by run_id]])
    local list = {}
    for i = 1, #rows do list[i] = rows[i].row end
    assert.are.same({ "program infer 8", "program infer 24", "trained train 8" }, list)
    assert.are.equal(1, #assert(db:query("refused", { net = "program", batch = 24 })))
  end)

  it("of the system is a run, too, with what was asked for", function()
    if select(2, support.shell "command -v prlimit") ~= 0 then return end
    if support.sanitized then return end -- whose addresses the limit does not leave
    local script = os.tmpname()
    support.write_file(script, [[
      local neap = require "neap"
      local nn = neap.nn
      local wide = function(x) return neap.concat({ x, x, x, x, x, x, x, x }, { axis = 2 }) end
      local model = nn.Sequential { name = "huge", input = { 65536 }, nn.Lambda(wide), nn.Tanh(),
        nn.Linear { 524288, 2 } }
      local t = neap.trainer { model = model, optimizer = neap.optim.SGD { lr = 0.1 } }
      local batch = { x = neap.zeros(256, 65536), y = neap.zeros(256):to "i64" }
      -- room for what is small, and not for an arena of 512 MiB and more
      local vm = io.open "/proc/self/statm":read "n" * 4096
      os.execute(("prlimit --pid $PPID --as=%d"):format(vm + 256 * 2^20 // 1))
      local ok, err = pcall(t.step, t, batch)
      assert(not ok)
      if err.batch then
        t:step { x = neap.zeros(err.batch, 65536), y = neap.zeros(err.batch):to "i64" }
        print("fits", err.batch)
      end
      error(err, 0)
    ]])
    local text, code = support.shell(("NEAP_DB=%s %s run %s 2>&1"):format(path, support.program,
      script))
    os.remove(script)
    assert.are.equal(1, code, text)
    assert.is_truthy(text:find("was refused", 1, true), text)
    -- the batch that is said to fit was trained with, below the limit
    local fits = tonumber(text:match "fits\t(%d+)")
    assert.is_true(fits ~= nil and fits > 0 and fits < 256, text)
    assert.is_truthy(text:find(("a batch of %d fits"):format(fits), 1, true), text)
    local row = assert(db:sql [[select status, error ->> 'request_bytes' as request,
      json_array_length(error -> 'modules') as n_module, error ->> 'hint' as hint
      from run where net = 'huge' and status = 'refused']])[1]
    assert.is_true(row.request >= 256 * 524288 * 4 and row.request < 257 * 524288 * 4)
    assert.is_true(row.n_module > 0)
    assert.is_truthy(row.hint:find(("a batch of %d fits"):format(fits), 1, true), row.hint)
  end)
end)
