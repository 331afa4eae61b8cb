-- Each kind of row is described once (neap.h): every face shows the same columns with the same
-- values, and the manual of the database says of each what the description says.
local neap = require "neap"
local core = require "neap.core"
local cjson = require "cjson"
local report = require "neap.report"
local support = require "support"
local kinds = core.rows()

--- Where the database keeps rows of a kind, and its columns besides: keys, and what no kind of row
-- describes.
local kept = { op = { table = "plan_op", key = "step", besides = { "plan_id" } },
  value = { table = "plan_value", key = "value_no",
    besides = { "plan_id", "clone", "partner", "detail" } } }

--- The same of what a plan has one row of, or a run, by table: the kinds that it keeps.
local tables = {
  plan_op = { "op", besides = kept.op.besides },
  plan_value = { "value", besides = kept.value.besides },
  plan = { "plan", "figures",
    besides = { "plan_id", "uuid", "net_id", "net", "used_no", "n_hit" } },
  run = { "run", besides = { "run_id", "uuid", "plan_id", "machine_id", "starred" } },
  run_op = { "run_op", besides = { "run_id" } },
  kernel_time = { "kernel", besides = { "plan_id", "machine_id", "measured_at" } },
}

local function names_of(columns, wanted)
  local names = {}
  for _, c in ipairs(columns) do
    if wanted == nil or c[wanted] then names[#names + 1] = c.name end
  end
  return names
end

--- Plans that between them have something in every column: layouts of a library, repetitions,
-- memory banks, rewrites, loops.
local function plans()
  local lenet, deep = neap.zoo.lenet(), neap.net "deep"
  local h = deep:input("x", { 64, 32 })
  for i = 1, 12 do
    deep:scope("a" .. i, function()
      h = deep:FC({ h, deep:param("w", { 32, 32 }, { "Xavier" }) }):tanh()
    end)
  end
  deep:gradient((h * h):mean())
  local least = deep:plan { store = false }.arena_bytes
  local fast = neap.bank { "fast", bytes = "2MiB" }
  return {
    lenet:plan { batch = 4, train = true }, lenet:plan { batch = 2 },
    lenet:plan { batch = 4, train = true, banks = { fast } },
    deep:plan { budget = math.floor(0.7 * least) },
  }
end

--- The rows of a kind as a plan gives them.
local rows_of = {
  op = "_ops", value = "_values", bank = "_banks", rewrite = "_rewrites", region = "_regions",
}
local report_of = { op = "ops", value = "values", bank = "banks", rewrite = "rewrites" }

local lua_type = { number = "integer", index = "integer", real = "float", boolean = "boolean",
  text = "string", names = "table", indices = "table", numbers = "table" }
local function type_of(value) return math.type(value) or type(value) end

--- Rows that no plan has: of dry runs, of a workspace's blobs, of a pool that runs short of room,
-- and counts. By kind, with what shows them to people, if it is a report.
local function other_rows()
  local rows = { dry_run = {}, dry_row = {}, dry_layer = {}, dry_slot = {}, blob = {}, pool = {},
    counts = {} }
  local reports = { dry_row = {}, dry_layer = {}, dry_slot = {}, blob = {} }
  local function add(kind, list, shown)
    table.move(list, 1, #list, #rows[kind] + 1, rows[kind])
    if shown then table.insert(reports[kind], { rows = list, report = shown }) end
  end
  local net = neap.zoo.lenet():net { batch = 4, train = true }
  for _, policy in ipairs { "offset", "none" } do
    local memory = { store = false, policy = policy }
    local log, shown = net:plan(memory):_dry_run(net), net:dry_run(memory)
    add("dry_row", log.rows, shown)
    add("dry_layer", log.layers, shown.layers)
    add("dry_slot", log.slots, shown.slots)
    log.rows, log.layers, log.slots = nil, nil, nil
    add("dry_run", { log })
    for name, value in pairs(log) do assert.are.equal(value, shown[name], name) end
  end
  add("counts", { net:_count { store = false } })
  local ws <close> = neap.workspace { seed = 1, store = false }
  local fast = neap.bank { "fast", bytes = "1MiB" }
  local banked <close> = neap.workspace { store = false, banks = { fast } }
  banked:feed("held", neap.rand(4, 4))
  banked:assign("held", "fast")
  add("blob", banked:_blobs(), banked:blobs())
  local deep = neap.net "pooled"
  local h = deep:input("x", { 64, 32 })
  for i = 1, 12 do
    h = deep:FC({ h, deep:param("w" .. i, { 32, 32 }, { "Xavier" }) }):tanh()
  end
  deep:gradient((h * h):mean())
  ws:feed("x", neap.rand(64, 32))
  local free <close> = ws:compile(deep, { executor = "dynamic" })
  free:run()
  local reach = free:pool().reach_bytes
  local program <close> = ws:compile(deep, { executor = "dynamic", budget = reach // 2 })
  program:run()
  add("pool", { free:pool(), program:pool() })
  add("blob", ws:_blobs(), ws:blobs())
  return rows, reports
end

describe("rows", function()
  local db, path

  setup(function()
    db, path = support.open_db()
  end)
  teardown(function()
    support.close_db(db, path)
  end)

  it("have nothing but their columns, of the types that these say", function()
    local seen = {}
    for _, plan in ipairs(plans()) do
      for kind, method in pairs(rows_of) do
        local described = {}
        for _, c in ipairs(kinds[kind]) do described[c.name] = c end
        for _, row in ipairs(plan[method](plan)) do
          for name, value in pairs(row) do
            assert.is_not_nil(described[name], kind .. " has no column " .. name)
            assert.are.equal(lua_type[described[name].type], type_of(value), kind .. "." .. name)
            seen[kind .. "." .. name] = true
          end
        end
      end
    end
    for _, kind in ipairs { "op", "value", "bank", "rewrite", "region" } do
      for _, c in ipairs(kinds[kind]) do
        assert.is_true(seen[kind .. "." .. c.name], kind .. "." .. c.name)
        assert.matches("^%S", c.doc, kind .. "." .. c.name .. " says nothing")
        assert.is_true(c.name:match "_bytes$" == nil or c.unit == "bytes", c.name .. " is of bytes")
        assert.is_true(c.name:match "_ns$" == nil or c.unit == "ns", c.name .. " is of nanoseconds")
      end
    end
  end)

  it("are in tables for people, JSON and CSV as the description says", function()
    for _, plan in ipairs(plans()) do
      for kind, method in pairs(report_of) do
        local r, rows = plan[method](plan), plan[rows_of[kind]](plan)
        assert.are.same(report.columns_of(kind, rows), r:columns())
        for _, name in ipairs(names_of(kinds[kind], "print")) do
          assert.is_true(
            (" " .. table.concat(r:columns(), " ") .. " "):find(" " .. name .. " ", 1, true) ~= nil,
            name)
        end
        local json = cjson.decode(r:json())
        for i, row in ipairs(rows) do assert.are.same(row, (json.rows or json)[i]) end
        assert.are.equal(table.concat(r:columns(), ","), r:csv():match "^[^\r]+")
      end
    end
  end)

  it("of dry runs, blobs, pools and counts have nothing but their columns", function()
    local rows, reports = other_rows()
    for kind, list in pairs(rows) do
      local described, seen = {}, {}
      for _, c in ipairs(kinds[kind]) do described[c.name] = c end
      for _, row in ipairs(list) do
        for name, value in pairs(row) do
          assert.is_not_nil(described[name], kind .. " has no column " .. name)
          assert.are.equal(lua_type[described[name].type], type_of(value), kind .. "." .. name)
          seen[name] = true
        end
      end
      for _, c in ipairs(kinds[kind]) do
        assert.is_true(seen[c.name], kind .. "." .. c.name)
        assert.matches("^%S", c.doc, kind .. "." .. c.name .. " says nothing")
        assert.is_true(c.name:match "_bytes$" == nil or c.unit == "bytes", c.name .. " is of bytes")
      end
    end
    for kind, list in pairs(reports) do
      for _, shown in ipairs(list) do
        assert.are.same(names_of(kinds[kind], "print"), shown.report:columns())
        assert.are.equal(#shown.rows, #shown.report)
        for i, row in ipairs(shown.rows) do
          if row.shape then row.shape = "(" .. table.concat(row.shape, ",") .. ")" end
          assert.are.same(row, shown.report[i])
        end
      end
    end
  end)

  it("are in the database what they are in Lua, column by column", function()
    for _, plan in ipairs(plans()) do
      for kind, k in pairs(kept) do
        local list = plan[rows_of[kind]](plan)
        local stored = assert(
          db:sql(("select * from %s where plan_id = ? order by %s"):format(k.table, k.key),
            { plan.plan_id }))
        assert.are.equal(#list, #stored)
        for i, row in ipairs(list) do
          for _, c in ipairs(kinds[kind]) do
            local want = row[c.name]
            if type(want) == "boolean" then want = want and 1 or 0 end
            if want == nil and c.zero then want = 0 end
            if c.store then assert.are.equal(want, stored[i][c.name], kind .. "." .. c.name) end
          end
        end
      end
    end
  end)

  it("have the tables of the database, and its manual a line for each column", function()
    local file = io.open "db/README.md"
    local manual = file and file:read "a"
    if file then file:close() end
    for name, t in pairs(tables) do
      local columns, want = {}, table.move(t.besides, 1, #t.besides, 1, {})
      for row in db:rows("select name from pragma_table_info(?)", { name }) do
        columns[#columns + 1] = row.name
      end
      for _, kind in ipairs(t) do
        for _, c in ipairs(kinds[kind]) do
          local section = manual and manual:match("\n### " .. name .. ":[^\n]*\n\n(.-)\n\n")
          local line = ("| %s | %s |"):format(c.name, c.doc)
          if c.store then want[#want + 1] = c.name end
          if c.store and manual then
            assert.is_true(section:find(line, 1, true) ~= nil,
              "db/README.md lacks of " .. name .. ": " .. line)
          end
        end
      end
      table.sort(columns)
      table.sort(want)
      assert.are.same(want, columns)
    end
  end)

  it("of figures are the fields of plans and programs, and the row of the plan", function()
    for _, plan in ipairs(plans()) do
      local stored = assert(db:sql("select * from plan where plan_id = ?", { plan.plan_id }))[1]
      local json = cjson.decode(plan:forecast():json())
      for _, c in ipairs(kinds.figures) do
        local value = plan[c.name]
        if not c.run then assert.are.equal(lua_type[c.type], type_of(value), c.name) end
        if c.print and c.type == "real" then
          assert.is_true(math.abs(value - json[c.name]) < 1e-12, c.name)
        end
        if c.print and c.type ~= "real" then assert.are.equal(value, json[c.name], c.name) end
        -- a plan that is cheap to find is planned each time; its row has the first time
        if c.store and c.name ~= "plan_ns" then
          assert.are.equal(type(value) == "boolean" and (value and 1 or 0) or value, stored[c.name],
            c.name)
        end
      end
      assert.is_true(plan.plan_ns > 0 and stored.plan_ns > 0)
    end
    local ws <close> = neap.workspace { seed = 1 }
    local net = neap.net "run"
    net:outputs { net:op("Relu", { net:input("x", { 3, 4 }) }, { "y" }) }
    ws:feed("x", neap.tensor { { 1, 2, 3, 4 }, { 1, 2, 3, 4 }, { 1, 2, 3, 4 } })
    local program = ws:compile(net, { profile = true })
    program:run(3)
    local stats, times = program:stats(), program:times()
    for _, c in ipairs(kinds.figures) do
      assert.are.equal(c.run and lua_type[c.type] or c.name == "plan_id" and "integer" or "nil",
        type_of(stats[c.name]), c.name)
    end
    local run_id = program:record()
    local stored = assert(db:sql("select * from run_op where run_id = ?", { run_id }))
    assert.are.equal(program.plan.n_op, #stored)
    for i = 1, #stored do
      for _, c in ipairs(kinds.run_op) do
        assert.are.equal(lua_type[c.type], type_of(times[i][c.name]), c.name)
        if c.store then assert.are.equal(times[i][c.name], stored[i][c.name], c.name) end
      end
    end
    local row = assert(db:sql("select * from run where run_id = ?", { run_id }))[1]
    for _, name in ipairs { "n_step", "planned_bytes" } do
      assert.are.equal(stats[name], row[name], name)
    end
    assert.are.same({ stats.min_ns, stats.median_ns }, { row.step_min_ns, row.step_median_ns })
  end)

  it("that the manual describes are all that the tables have", function()
    local file = io.open "db/README.md"
    if not file then return end
    local n, manual = 0, file:read "a"
    file:close()
    for row in db:rows "select name from sqlite_schema where type = 'table' and name \z
      not like 'sqlite_%'" do
      local section = assert(manual:match("\n### " .. row.name .. ":[^\n]*\n\n(.-)\n\n"), row.name)
      local described = {}
      for names in section:gmatch "\n| ([^|]+) |" do
        for name in names:gmatch "[%w_]+" do described[name] = true end
      end
      for column in db:rows("select name from pragma_table_xinfo(?)", { row.name }) do
        assert.is_true(described[column.name], row.name .. "." .. column.name)
        described[column.name], n = nil, n + 1
      end
      assert.is_nil(next(described), row.name .. " has no column " .. tostring(next(described)))
    end
    assert.is_true(n > 60)
  end)
end)
