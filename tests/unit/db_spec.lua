-- The database as users ask it: by plain SQL after runs of the program, and what happens when the
-- file is in trouble.
local neap = require "neap"
local core = require "neap.core"
local support = require "support"
local program, shell = support.program, support.shell
local folder

--- One step of LeNet's training; output with standard error.
local function bench(path, words)
  return shell(("NEAP_CACHE=all NEAP_DB=%s %s bench lenet:8 --steps 2 %s 2>&1"):format(path,
    program, words or ""))
end

local function rows(db, sql, params) return assert(db:sql(sql, params)) end

describe("the database", function()
  local path, db

  setup(function()
    folder = shell "mktemp -d":match "[^\n]+"
    path = folder .. "/neap.db"
    assert.equal(0, select(2, bench(path)))
    assert.equal(0, select(2, bench(path, "--infer")))
    assert.equal(0, select(2,
      shell(("NEAP_CACHE=all NEAP_PROFILE=1 NEAP_DB=%s %s bench lenet:8 --steps 2"):format(path,
        program))))
    db = assert(neap.db(path))
  end)
  teardown(function()
    if db then db:close() end
    os.execute("chmod -R u+w " .. folder .. "; rm -rf " .. folder)
  end)

  it("has one row a plan; the second run takes it from there", function()
    local plans = rows(db, "select * from v_plan order by plan_id")
    assert.equal(2, #plans)
    assert.equal(1, plans[1].n_hit)
    assert.equal(0, plans[2].n_hit)
    assert.is_true(plans[1].used_at >= plans[1].created_at)
    assert.equal(1, plans[1].newest)
    assert.equal(1.0, plans[1].over_bound)
    assert.equal(1, plans[1].proved)
  end)

  it("takes a value for each parameter of a query", function()
    assert.equal(3, rows(db, "select :a + ? as n", { 1, a = 2 })[1].n)
    for sql, params in pairs {
      ["select :a"] = {}, ["select :a + :b"] = { b = 1 }, ["select :a + ?"] = { 1 },
    } do
      local r, message, code = db:sql(sql, params)
      assert.is_nil(r, sql)
      assert.matches('the parameter ":a" has no value', message, 1, true)
      assert.equal("db", code)
    end
    assert.matches("parameter 2 has no value", select(2, db:sql("select ? + ?", { 1 })), 1, true)
    assert.is_false(pcall(db.rows, db, "select :a"))
    assert.is_true(#db:query "plans" > 0) -- the canned ones' may be left out
    for _, f in ipairs { db.sql, db.rows, db.query } do
      local ok, err = pcall(function() f(db) end)
      assert.is_false(ok)
      assert.matches("db_spec", tostring(err), 1, true)
    end
  end)

  it("says what is live at the peak, to the byte", function()
    -- Bytes are live in steps of 64, where they are laid out.
    local peak = rows(db,
      [[select sum((bytes + 63) / 64 * 64) + (max(scratch_bytes) + 63) / 64 * 64 as bytes,
      max(live_bytes) as live
      from v_peak where net = 'lenet' and mode = 'train' and newest]])[1]
    assert.equal(peak.live, peak.bytes)
    assert.equal(rows(db, "select arena_bytes from v_plan where mode = 'train'")[1].arena_bytes,
      peak.live)
    local first = rows(db,
      "select blob, line from v_peak where mode = 'train' and newest order by bytes desc")[1]
    assert.matches("^conv1", first.blob) -- it or its gradient, as vectors are wide
    assert.matches("^lenet.lua:%d+$", first.line)
  end)

  it("says who lies on the bytes of a blob and why that is safe", function()
    local reuse = rows(db,
      "select b, shared_bytes, why from v_reuse where mode = 'train' and newest and a = 'conv1'")
    assert.is_true(#reuse > 3)
    for i = 1, #reuse do
      local last, first =
        reuse[i].why:match "^conv1 is last read at step (%d+), .* first written at step (%d+)$"
      assert.is_true(math.tointeger(last) < math.tointeger(first), reuse[i].why)
      assert.is_true(reuse[i].shared_bytes > 0)
    end
    assert.equal(0, rows(db, "select count(*) as n from v_reuse where why like '%OVERLAP%'")[1].n)
  end)

  it("says of words that a canned query does not take which it takes", function()
    for says, params in pairs {
      ['did you mean "net"?'] = { nett = "lenet" },
      ["it takes run, net, mode, batch"] = { colour = 1 },
      ["leave out net"] = { net = "lenet", run = 3 },
    } do
      local nothing, message, code = db:query("op_time", params)
      assert.same({ nil, "db" }, { nothing, code })
      assert.matches(says, message, 1, true)
    end
    support.raises("neap profile kernels NET", function() db:query "kernels" end)
    support.raises("neap profile kernels", function() db:query("kernels", { plan = 1 }) end)
  end)

  it("has one row a run, which held what was planned", function()
    local runs = rows(db, "select * from v_run order by run_id")
    assert.equal(3, #runs)
    for i = 1, 3 do
      assert.equal(runs[i].planned_bytes, runs[i].held_bytes)
      assert.is_true(runs[i].resident_bytes > runs[i].held_bytes)
      assert.equal("finished", runs[i].status)
      assert.equal(4, runs[i].n_step)
    end
    assert.equal(0, runs[1].newest)
    assert.equal(1, runs[3].newest)
  end)

  it("has rows per op of each run, and they add up", function()
    assert.same({ 1, 2, 3 }, (function()
      local runs = {}
      for i, r in ipairs(rows(db, "select distinct run_id from run_op order by run_id")) do
        runs[i] = r.run_id
      end
      return runs
    end)())
    local ops = rows(db, "select * from v_op_time where run_id = 3")
    assert.equal(
      rows(db, "select count(*) as n from plan_op o join v_plan p using (plan_id) where \z
        p.mode = 'train'")[1].n, #ops)
    local percent = 0
    for i = 1, #ops do
      assert.equal(3, ops[i].run_id)
      assert.equal(4, ops[i].n_call)
      percent = percent + ops[i].percent
    end
    assert.is_true(math.abs(percent - 100) < 1, percent)
  end)

  it("counts the bytes of layers once", function()
    local sum = rows(db, "select sum(parameter_bytes) as n, sum(peak_bytes) as peak from v_layer \z
      where mode = 'train' and newest")[1]
    local all = rows(db, [[select sum(bytes) as n from plan_value join v_plan using (plan_id)
      where mode = 'train' and role = 'parameter' and value_no = storage_no]])[1].n
    assert.equal(all, sum.n)
    assert.is_true(
      sum.peak <= rows(db, "select arena_bytes from v_plan where mode = 'train'")[1].arena_bytes)
  end)

  it("counts an op that runs again to the layer of the first run, behind an earlier \z
      backward pass too", function()
    local net = neap.net "two"
    local x = net:input("x", { 64, 32 })
    for _, name in ipairs { "a", "b" } do
      local h = x
      for i = 1, 6 do
        net:scope(name .. i, function()
          h = net:FC({ h, net:param("w", { 32, 32 }, { "Xavier" }) }):tanh()
        end)
      end
      net:gradient((h * h):mean())
    end
    local free = net:plan { store = false }
    local own <close> = assert(neap.db(folder .. "/again.db"))
    core.use_db(own)
    net:plan { budget = math.floor(0.7 * free.arena_bytes) }
    core.use_db(false)
    local n = { a = 0, b = 0 }
    for _, r in ipairs(rows(own, [[select o.layer, first.layer as expected from plan_op o
      join plan_op first on first.plan_id = o.plan_id and first.step = o.recomputes]])) do
      assert.equal(r.expected, r.layer)
      local name = r.layer:match "^%a"
      n[name] = n[name] + 1
    end
    assert.is_true(n.a > 0 and n.b > 0, "ops of both passes run again")
  end)

  it("has one plan of a search for the batch that fits", function()
    local own <close> = assert(neap.db(folder .. "/fit.db"))
    core.use_db(own)
    local net = neap.net "fit"
    net:FC({ net:input("x", { 4, 6 }), net:param("w", { 5, 6 }, { "Xavier" }) }, "y")
    local n, plan = neap.fit_batch(net, { total = "64KiB", max = 4000 })
    core.use_db(false)
    assert.is_true(n > 4)
    assert.same({ { batch = n, plan_id = plan.plan_id } },
      { rows(own, "select batch, plan_id from plan")[1] })
    assert.equal(1, rows(own, "select count(*) as n from plan")[1].n)
  end)

  it("looks at plans of the net that was asked for alone", function()
    for _, name in ipairs { "v_peak", "v_layer", "v_blob_life", "v_op_time" } do
      local steps = rows(db, ("explain query plan select * from %s where net = 'lenet' and newest")
        :format(name))
      for i = 1, #steps do
        local what = steps[i].detail
        assert.is_nil(what:match "^SCAN [optv]$", name .. ": " .. what)
        assert.is_nil(what:match "^SCAN packed", name .. ": " .. what)
      end
    end
  end)

  it("calls the run newest that was begun last, though it is closed first", function()
    local own <close> = assert(neap.db(folder .. "/newest.db"))
    core.use_db(own)
    local net = neap.net "twice"
    net:Tanh(net:input("x", { 4 }), "y")
    net:outputs "y"
    local programs = {}
    for i = 1, 3 do
      local ws = neap.workspace {}
      programs[i] = ws:compile(net, { tag = "run" .. i })
      ws:feed("x", neap.rand(4))
      programs[i]:run()
      local from = core.clock()
      while core.clock() - from < 0.005 do end
    end
    for i = 3, 1, -1 do programs[i]:close() end
    core.use_db(false)
    assert.equal("run3", rows(own, "select tag from v_run where newest")[1].tag)
    assert.equal("run3", rows(own, "select tag from run order by uuid desc")[1].tag)
    assert.equal("run3", rows(own, "select tag from run order by run_id desc")[1].tag)
    assert.equal(3, neap.runs({ db = own, last = 1 })[1].run_id)
  end)

  it("asks canned queries of the plan last used among those that have what is asked", function()
    local path = folder .. "/asked.db"
    local own <close> = assert(neap.db(path))
    core.use_db(own)
    local model = neap.zoo.lenet()
    local function plan(o)
      o.name = "asked"
      return model:plan(o)
    end
    local train = plan { batch = 4, train = true }
    local tight = plan { batch = 4, train = true, budget = "1MiB" }
    local by_name = plan { batch = 4, train = true, policy = "name" }
    local plain = plan { batch = 4, train = true, engine = "ref" }
    plan { batch = 8 }
    plan { batch = 2 }
    core.use_db(false)
    local function peak(params)
      local sums, said = {}, own:query("peak", params)
      for _, row in ipairs(said) do
        local key = row.mode .. row.batch
        sums[key] = (sums[key] or 0) + row.bytes
      end
      return sums
    end
    assert.equal(train.arena_bytes,
      peak({ net = "asked", mode = "train", policy = "offset", engine = "free" }).train4)
    assert.equal(tight.arena_bytes, peak({ budget = "1MiB" }).train4)
    assert.equal(by_name.plan_id, own:query("plans", { policy = "name" })[1].plan_id)
    assert.equal(plain.plan_id, own:query("plans", { mode = "train" })[1].plan_id)
    assert.is_nil(peak({ net = "asked", mode = "infer" }).infer8)
    assert.is_truthy(peak({ net = "asked", mode = "infer" }).infer2)
    assert.is_truthy(peak({ batch = 8 }).infer8)
    -- what is not there is no empty answer
    for words, params in pairs {
      ["no plan net=asked batch=9 is stored"] = { net = "asked", batch = 9 },
      ['no net "askde" is stored'] = { net = "askde" },
      ["there is no plan 99999"] = { plan = 99999 },
    } do
      local ok, err = pcall(peak, params)
      assert.is_false(ok, words)
      assert.matches(words, tostring(err), 1, true)
    end
    local _, wrong = pcall(own.query, own, "who_reads", { blob = "conf1", net = "asked" })
    assert.matches('did you mean "conv1"?', tostring(wrong), 1, true)
    -- by its number, and with all it took from the net
    assert.equal(tight.arena_bytes, peak({ plan = tight.plan_id }).train4)
    local readers = own:query("who_reads", { blob = "conv1", plan = tight.plan_id })
    assert.equal("max_pool_1", readers[1].reader)
    -- what is alive at the peak, by category, is what is alive at the peak
    local total, alive = 0, 0
    for _, row in ipairs(own:query("category", { plan = tight.plan_id })) do
      total = total + row.bytes
    end
    for _, row in ipairs(own:query("peak", { plan = tight.plan_id })) do
      alive = alive + row.bytes
    end
    assert.equal(alive + tight:ops()[tight.peak_step].scratch_bytes, total)
    local chosen = own:query("choices", { plan = tight.plan_id })
    assert.equal(#tight:ops(), #chosen)
    for i, op in ipairs(tight:ops()) do
      assert.same({ op.name, op.kernel }, { chosen[i].name, chosen[i].kernel })
    end
    -- a net whose arena is empty comes first, and hides no other
    core.use_db(own)
    local empty = neap.net "a_net_of_no_bytes"
    empty:outputs(empty:Mul({ empty:input("x", { 2 }), empty:input("y", { 2 }) }, "z"))
    empty:plan {}
    core.use_db(false)
    assert.is_truthy(tostring(own:query "peak"):find("asked", 1, true))
    local runs, history = own:query("runs", {}), own:query("history", {})
    assert.equal(#runs, #history)
    local nothing, message, code = own:query("peak", { colour = 3 })
    assert.same({ nil, "db" }, { nothing, code })
    assert.matches("colour", message)
  end)

  it("answers every example of its manual and every canned query", function()
    assert.equal(0, select(2, shell(("NEAP_DB=%s %s profile kernels lenet --train --batch 8 2>&1")
      :format(path, program))))
    assert(db:_note_peak("f32", 1, 1e11))
    local file = io.open "db/README.md"
    if file then
      local n = 0
      for sql in file:read "a":gmatch "`(SELECT [^`]+)`" do
        assert.is_true(#rows(db, sql) > 0, sql)
        n = n + 1
      end
      file:close()
      assert.is_true(n >= 7)
    end
    for _, name in ipairs(require("neap.db").queries()) do
      local text, params = require("neap.core").embedded("db/queries/" .. name .. ".sql"), {}
      for param, value in pairs { net = "lenet", blob = "conv1" } do
        local found_by = param == "net" and text:find ":%l+ a [pr][lu][^\n]*to find it by"
        if found_by or text:find(":" .. param .. "%f[^%w_]") then params[param] = value end
      end
      if name == "losses" then -- no training was recorded here: tests/questions has one
        assert.is_false((pcall(db.query, db, name, params)))
      else
        assert.equal(name ~= "refused", #assert(db:query(name, params)) > 0, name)
      end
    end
  end)

  --- A run with a database in trouble: it succeeds, and exactly one line says what is wrong.
  local function goes_on(where, pattern)
    local out, code = bench(where)
    assert.equal(0, code, out)
    assert.matches("\nlenet:8 +train", out)
    local n = 0
    for line in out:gmatch "[^\n]+" do
      if line:match "^neap: " then
        n = n + 1
        assert.matches(pattern, line)
      end
    end
    assert.equal(1, n, out)
  end

  it("never stops a run: damaged, newer, unreachable or no database", function()
    local file = assert(io.open(folder .. "/bad.db", "wb"))
    file:write(("this is no database at all "):rep(300))
    file:close()
    goes_on(folder .. "/bad.db", "damaged, or is no database")
    os.execute(("cp %s/neap.db %s/new.db"):format(folder, folder))
    if shell("command -v sqlite3") ~= "" then
      os.execute(("sqlite3 %s/new.db 'pragma user_version = 99'"):format(folder))
      goes_on(folder .. "/new.db", "made by a newer Neap")
    end
    goes_on("/proc/none/neap.db", "can't be opened")
    goes_on(folder, "database")
  end)

  it("goes on without room: a limit on file size stands for a full disk", function()
    local out, code = shell(("sh -c 'ulimit -f 40; NEAP_DB=%s/full.db exec %s \z
      bench lenet:8 --steps 2' 2>&1"):format(folder, program))
    assert.equal(0, code, out)
    assert.matches("lenet:8 +train", out)
    assert.matches("neap: [^\n]*full", out)
  end)

  it("is not touched when NEAP_DB is off", function()
    local out, code = bench "off"
    assert.equal(0, code)
    assert.is_nil(out:find("neap: ", 1, true))
    assert.equal("off\n", (shell(("NEAP_DB=off %s db path"):format(program))))
    assert.equal(1, select(2, shell(("NEAP_DB=off %s sql plans 2>&1"):format(program))))
  end)

  it("is used by two processes at once", function()
    local two = folder .. "/two.db"
    local command = ("NEAP_DB=%s %s bench mlp:2 --steps 1 2>&1"):format(two, program)
    local out = shell(("(%s) & (%s); wait"):format(command, command))
    assert.is_nil(out:find("neap: ", 1, true), out)
    local both <close> = assert(neap.db(two))
    assert.equal(2, rows(both, "select count(*) as n from run")[1].n)
    assert.is_true(both:verify().ok)
  end)
end)
