-- The care of the database's file: merging another one, pruning by age, count and size, and writing
-- rows for other programs.
local neap = require "neap"
local core = require "neap.core"
local support = require "support"
local shell = support.shell

describe("the care of a database", function()
  local folder, path, db

  before_each(function()
    folder = shell "mktemp -d":match "[^\n]+"
    path = folder .. "/a.db"
    db = assert(neap.db(path))
  end)
  after_each(function()
    core.use_db(false)
    db:close()
    os.execute("rm -rf " .. folder)
  end)

  local function net_of(name, n)
    local net = neap.net(name)
    local h = net:input("x", { 4, 8 })
    for i = 1, n or 1 do
      h = net:op("FC", { h, net:param("w" .. i, { 8, 8 }, { "Xavier" }) }, { name .. i })
    end
    net:outputs(h)
    return net
  end

  --- Runs of a net in database `to`, profiled.
  local function run(to, name, n_run, tag)
    core.use_db(to)
    for _ = 1, n_run or 1 do
      local ws <close> = neap.workspace { seed = 1 }
      ws:feed("x", neap.rand(4, 8))
      local program <close> = ws:compile(net_of(name), { profile = true, tag = tag })
      program:run(2)
      program:record()
    end
    core.use_db(false)
  end

  local function one(of, sql, ...)
    return assert(of:sql("select (select " .. sql .. ") as n", { ... }))[1].n
  end
  local function sqlite(file, sql)
    local out, code = shell(("sqlite3 %s \"%s\" 2>&1"):format(file, sql))
    assert.equal(0, code, out)
    return out
  end
  local has_sqlite = shell "command -v sqlite3":match "%S" ~= nil

  --- All that the views say of plans and runs, but for numbers of rows.
  local function content(of)
    local list = {}
    for _, sql in ipairs {
      "select p.uuid, o.step, o.name, o.type, o.layer, o.kernel, o.flops from plan_op o \z
        join plan p using (plan_id)",
      "select p.uuid, v.value_no, v.blob, v.bytes, v.category, v.detail from plan_value v \z
        join plan p using (plan_id)",
      "select p.uuid, e.value_no, e.step from plan_read e join plan p using (plan_id)",
      "select r.uuid, r.net, p.uuid, t.step, t.n_call from run r join run_op t using (run_id) \z
        join plan p using (plan_id)",
      "select r.uuid, t.at_step, t.n_step from run r join run_time t using (run_id)",
      "select name, text from v_net",
    } do
      for _, row in ipairs(assert(of:sql(sql))) do
        local keys, words = {}, {}
        for k in pairs(row) do keys[#keys + 1] = k end
        table.sort(keys)
        for _, k in ipairs(keys) do words[#words + 1] = k .. "=" .. tostring(row[k]) end
        list[#list + 1] = table.concat(words, " ")
      end
    end
    table.sort(list)
    return list
  end

  it("takes over what another file has, once", function()
    local other <close> = assert(neap.db(folder .. "/b.db"))
    run(db, "both")
    run(other, "both", 2)
    run(other, "theirs")
    local want = {}
    for _, of in ipairs { db, other } do
      for _, line in ipairs(content(of)) do want[line] = true end
    end
    assert.same({ 1, 3 }, { db:merge(folder .. "/b.db") })
    -- the plan that both made is the one that was here
    local uuid = one(db, "uuid from plan where net = 'both'")
    local theirs = one(other, "uuid from plan where net = 'both'")
    for _, line in ipairs(content(db)) do
      assert.is_true(want[line] or want[line:gsub(uuid, theirs)] or false, line)
    end
    assert.equal(4, one(db, "count(*) from run"))
    assert.equal(2, one(db, "count(*) from plan"))
    assert.equal(4, one(db, "count(*) from run where plan_id not null"))
    assert.is_true(db:verify().ok)
    local before = content(db)
    assert.same({ 0, 0 }, { db:merge(folder .. "/b.db") })
    assert.same(before, content(db))
    assert.equal(1, one(db, "newest from v_plan where net = 'theirs'"))
  end)

  it("keeps apart plans of one key that differ, and puts uses of both files in order", function()
    if not has_sqlite then pending "sqlite3 is not there" return end
    local path = folder .. "/b.db"
    do
      local other <close> = assert(neap.db(path))
      run(db, "both")
      run(other, "both")
    end
    sqlite(path, "update plan set digest = 'another', used_at = used_at - 1000")
    assert.same({ 1, 1 }, { db:merge(path) })
    assert.equal(2, one(db, "count(*) from plan where net = 'both'"))
    assert.equal(1, one(db, "used_no from plan where digest = 'another'"))
  end)

  it("refuses to merge itself, nothing, and files of others, and is as before", function()
    run(db, "a")
    local before = content(db)
    local file = assert(io.open(folder .. "/text.db", "w"))
    file:write(("no database "):rep(1000))
    file:close()
    for name, pattern in pairs {
      ["a.db"] = "is the database itself", ["none.db"] = "there is no file",
      ["text.db"] = "damaged, or is no database",
    } do
      local n, message, code = db:merge(folder .. "/" .. name)
      assert.is_nil(n)
      assert.matches(pattern, message)
      assert.equal("db", code)
    end
    assert.same(before, content(db))
  end)

  it("leaves tables and views of users alone", function()
    if not has_sqlite then return end
    run(db, "a", 3)
    db:close()
    sqlite(path, "create table mine (run_id references run, words text); insert into mine values \z
      (1, 'best'); create view my_view as select words from mine; \z
      update run set starred = 1 where run_id = 1")
    os.execute(("cp %s %s/b.db"):format(path, folder))
    sqlite(folder .. "/b.db",
      "update mine set words = 'theirs'; update run set uuid = 'x' || uuid")
    db = assert(neap.db(path))
    assert.same({ 0, 3 }, { db:merge(folder .. "/b.db") })
    db:prune { bytes = 0 }
    db:vacuum()
    assert.equal("best", one(db, "group_concat(words) from my_view"))
    assert.equal(2, one(db, "count(*) from run"))
  end)

  it("numbers runs by time, however many there are in one millisecond", function()
    run(db, "a", 40)
    assert.equal(40, one(db, "sum(at = run_id) from \z
      (select run_id, row_number() over (order by uuid) as at from run)"))
  end)

  it("keeps the newest runs, and those that are starred", function()
    if not has_sqlite then return end
    run(db, "a", 5)
    sqlite(path, "update run set starred = 1 where run_id = 2")
    local n_plan, n_run = db:prune { runs = 2 }
    assert.same({ 0, 2 }, { n_plan, n_run })
    assert.equal("2,4,5",
      one(db, "group_concat(run_id) from (select run_id from run order by run_id)"))
    assert.equal(3, one(db, "count(distinct run_id) from run_op"))
  end)

  it("goes down to a size, ops' times first and runs last", function()
    if not has_sqlite then return end
    -- as many as fill more than the one page that a table without rows has, too
    for i = 1, 20 do run(db, "net" .. i) end
    sqlite(path, "update run set starred = 1 where net = 'net1'")
    local all = db:info().bytes
    local n_plan, n_run = db:prune { bytes = all }
    assert.same({ 0, 0 }, { n_plan, n_run })
    assert.equal(20, one(db, "count(distinct run_id) from run_op"))
    -- no file is that small: all goes that may
    local bytes
    n_plan, n_run, bytes = db:prune { bytes = 1 }
    assert.same({ 19, 19 }, { n_plan, n_run })
    assert.equal(0, one(db, "count(*) from plan_cache"))
    assert.equal("net1", one(db, "net from v_run"))
    assert.is_true(one(db, "count(*) from plan_op") > 0 and one(db, "count(*) from run_op") > 0)
    assert.equal(bytes, db:info().bytes)
    assert.is_true(bytes < all)
    assert.is_true(db:verify().ok)
  end)

  it("writes SQL that makes the same database, of all or of a run", function()
    if not has_sqlite then return end
    run(db, "a", 1, "first")
    run(db, "b", 2, "it's")
    for name, given in pairs { all = {}, run = { run = 2 }, tag = { tag = "first" } } do
      local file, copy = ("%s/%s.sql"):format(folder, name), ("%s/%s.db"):format(folder, name)
      given[1] = file
      assert.is_true(assert(db:export(given)) > 10)
      local out, code = shell(("sqlite3 %s < %s 2>&1"):format(copy, file))
      assert.equal(0, code, out)
      local made <close> = assert(neap.db(copy))
      assert.is_true(made:verify().ok)
      if name == "all" then
        assert.same(content(db), content(made))
      else
        assert.equal(1, one(made, "count(*) from v_run"))
        assert.equal(one(db, "uuid from run where run_id = ?", name == "run" and 2 or 1),
          one(made, "uuid from run"))
        assert.is_true(one(made, "count(*) from v_op_time") > 0)
      end
    end
    assert.matches("there is no run with run_id = 77",
      (select(2, db:export { folder .. "/x.sql", run = 77 })))
  end)

  it("writes JSON, and CSV for each table", function()
    run(db, "a", 2)
    assert(db:export { folder .. "/r.json", run = 1 })
    local file = assert(io.open(folder .. "/r.json"))
    local object = require("cjson").decode(file:read "a")
    file:close()
    assert.equal(1, #object.run)
    assert.equal("a", object.run[1].net)
    assert.equal(one(db, "count(*) from run_op where run_id = 1"), #object.program_op)
    assert(db:export { folder .. "/csv" })
    local n = 0
    for line in io.lines(folder .. "/csv/run.csv") do
      n = n + 1
      if n == 1 then assert.matches("^run_id,uuid,", line) end
    end
    assert.equal(3, n)
  end)

  it("writes a file whole or not at all, and no form that it does not know", function()
    run(db, "a", 2)
    assert.matches("knows how to write .txt", (select(2, db:export { folder .. "/rows.txt" })))
    for _, file in ipairs { "/dev/null/x.json", "/dev/null/csv", folder .. "/none/x.sql" } do
      local done, message = db:export { file }
      assert.is_nil(done)
      assert.is_string(message)
    end
    support.write_file(folder .. "/old.json", "as it was")
    local out, code = shell(("sh -c 'trap \"\" XFSZ; ulimit -f 8; exec %s db export %s/old.json \z
      --db %s' 2>&1"):format(support.program, folder, path))
    assert.equal(1, code, out)
    assert.equal("as it was", support.read_file(folder .. "/old.json"))
  end)

  it("asks no database that is not there, and makes none of a mistyped name", function()
    local none = folder .. "/none.db"
    for _, words in ipairs { "sql peak", "sql 'select 1'", "db info", "db prune", "db backup x.db",
      "profile list", "diff run:1 run:2" } do
      local out, code = shell(("%s %s --db %s 2>&1"):format(support.program, words, none))
      assert.equal(1, code, words)
      assert.matches("there is no database", out)
      assert.is_nil(io.open(none))
    end
  end)

  it("of the command line takes what is its own, and nothing in vain", function()
    for _, words in ipairs { "prune --tag foo", "info --days 3", "merge x.db --run 1",
      "vacuum --size 1", "export f.json --days 3" } do
      local out, code = shell(("NEAP_DB=%s/own.db %s db %s 2>&1"):format(folder, support.program,
        words))
      assert.equal(2, code, words)
      assert.is_truthy(out:find("takes no --", 1, true), out)
    end
  end)
end)
