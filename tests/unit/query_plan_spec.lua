-- Each canned query, and each view that is asked of a net or a run, finds its rows by an index: no
-- table that has a row for each op, value, reader, step or word is read as a whole, so that answers
-- come as fast from ten thousand runs as from one.
local core = require "neap.core"
local neap = require "neap"
local support = require "support"

-- one row for a plan, a run, a net or a machine: lists of them read all
local small = { plan = true, run = true, net = true, machine = true, machine_peak = true,
  program = true, meta = true }

describe("SQLite's plan", function()
  local db, path
  setup(function()
    db, path = support.open_db()
    local net = neap.net "asked"
    local x = net:input("x", { 4, 8 })
    net:outputs { net:FC({ x, net:param("w", { 8, 8 }, { "Xavier" }) }):relu() }
    local ws <close> = neap.workspace { seed = 1 }
    ws:init(net)
    ws:feed("x", neap.zeros(4, 8))
    local program <close> = ws:compile(net)
    program:run(2)
  end)
  teardown(function()
    support.close_db(db, path)
  end)

  --- What the statement reads as a whole, but for what it has put together itself on the way.
  local function scans(sql, params)
    local list, made, asked = {}, {}, {}
    for name in sql:gsub("%-%-[^\n]*", ""):gmatch ":(%l[%w_]*)" do
      asked[name] = params[name] or 1
    end
    for _, row in ipairs(assert(db:sql("explain query plan " .. sql, asked))) do
      local what, own = row.detail:match "^SCAN (%S+)", row.detail:match "^%u[%u-]+E (%S+)$"
      if own then made[own] = true end
      local is_list = row.detail:find("VIRTUAL TABLE", 1, true) -- of a JSON value
      if what and not made[what] and not is_list then list[#list + 1] = what end
    end
    return list
  end

  --- The table behind each alias of the files, so that a short name tells which table is scanned.
  local tables = {
    o = "packed_op", v = "packed_value", w = "packed_value", a = "packed_value",
    b = "packed_value", e = "plan_read", q = "program_op", u = "program_op", t = "program_op",
    p = "plan", r = "run", m = "machine", n = "net", s = "run", g = "program",
  }

  local function check(what, sql, params, allowed)
    local list = scans(sql, params or {})
    for _, name in ipairs(list) do
      local table_name = tables[name] or name
      local fine = small[table_name] or table_name:find "^%(" or allowed and allowed[table_name]
      assert.is_truthy(fine, ("%s reads all of %s"):format(what, table_name))
    end
  end

  for _, view in ipairs { "v_layer", "v_category", "v_module" } do
    it("of " .. view .. " asks for the newest plan before it reads values", function()
      local at, of_plan, of_values = 0, nil, nil
      for _, row in ipairs(assert(db:sql("explain query plan select * from " .. view
          .. " where net = 'x' and newest"))) do
        at = at + 1
        if row.detail:find("SEARCH p USING INDEX plan_used (net=? AND mode=? AND used_no=?)", 1,
            true) then of_plan = of_plan or at end
        if row.detail:find "^SEARCH v " then of_values = of_values or at end
      end
      assert.is_truthy(of_plan and of_values and of_plan < of_values)
    end)
  end

  it("of canned queries reads no large table as a whole", function()
    local n = 0
    for _, name in ipairs(require("neap.db").queries()) do
      local text = core.embedded("db/queries/" .. name .. ".sql")
      check("query " .. name, text, { net = "asked", blob = "x", mode = "infer" })
      n = n + 1
    end
    assert.is_true(n >= 11)
    for _, kind in ipairs { "plan", "run" } do
      check("asked/" .. kind, core.embedded("db/asked/" .. kind .. ".sql"))
    end
  end)

  it("of views that name a net, a plan or a run does not either", function()
    local of_run = { v_run = true, v_op_time = true, v_program = true }
    local n = 0
    for row in db:rows "select name from sqlite_schema where type = 'view' and name glob 'v_*'" do
      local name, columns = row.name, {}
      for c in db:rows("select name from pragma_table_xinfo(?)", { name }) do
        columns[c.name] = true
      end
      if columns.net then
        local more = name == "v_reuse" and " and a = 'x'" or ""
        check(name .. " of a net", ("select * from %s where net = 'asked' and newest%s"):format(
          name, more))
        check(name .. " of one", ("select * from %s where %s = 1%s"):format(name,
          of_run[name] and "run_id" or "plan_id", more))
        n = n + 1
      end
    end
    assert.is_true(n >= 11)
  end)

  it("of times by op and metrics of a run neither", function()
    check("run_op", "select * from run_op where run_id = 1")
    check("run_metric", "select * from run_metric where run_id = 1 and name = 'loss'")
    check("run_time", "select * from run_time where run_id = 1")
  end)

  it("tells a query that does", function()
    local found = scans("select * from packed_op where flops > 1", {})
    assert.same({ "packed_op" }, found)
  end)
end)
