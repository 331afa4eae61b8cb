-- Every memory option through every face, read back from what the database has of the plan that
-- came of it.
local neap = require "neap"
local cjson = require "cjson"
local memory_options = require "neap.memory.options"
local support = require "support"
local program, shell, raises = support.program, support.shell, support.raises

local MIB = 1 << 20
local bank = neap.bank { "fast", bytes = "2MiB" }

--- What each option is set to, with others that give it a meaning, and what the row of the plan
-- shows of it: a field of its options as JSON, or of the row. `words`: the same on the command
-- line. An option that has none here fails.
local set = {
  budget = { "64KiB", shows = 65536, words = "--budget 64KiB" },
  total = { "64MiB", shows = 64 * MIB, words = "--total 64MiB" },
  soft = { "3MiB", with = { policy = "pool" }, shows = 3 * MIB },
  policy = { "name", shows = "name", words = "--policy name" },
  executor = { "dag", shows = "dag", words = "--executor dag" },
  recompute = { false, shows = false, words = "--no-recompute" },
  exact = {
    false,
    with = { executor = "dag", threads = 2 }, shows = false,
    words = "--no-exact --executor dag --threads 2",
  },
  in_place = { false, shows = false, words = "--no-in-place" },
  fuse = { "pool", shows = "pool", words = "--fuse pool" },
  rewrite = { false, shows = false, words = "--no-rewrite" },
  dtype = { "bf16", shows = "bf16", words = "--dtype bf16" },
  engine = { "ref", shows = "ref", words = "--engine ref" },
  layouts = { "plain", shows = "plain", words = "--layouts plain" },
  threads = { 1, shows = 1, words = "--threads 1" },
  search = { 77, shows = 77, words = "--search 77" },
  keep = { { "h" }, shows = { "h" }, words = "--keep h" },
  keep_all = { true, shows = true, words = "--keep-all" },
  banks = {
    { bank },
    shows = { { name = "fast", bytes = 2 * MIB, kind = "ordinary" } }, words = "--banks fast=2MiB",
  },
  mem_param = { { debug_info = true }, field = "policy", shows = "none" },
  inputs = { { x = { 5, 4 } }, column = "batch", shows = 5, words = "--inputs x=5,4" },
  max_batch = { 9, column = "batch", shows = 9, words = "--max-batch 9" },
  profile = { true, shows = true },
  store = { false, absent = true, words = "--no-store" },
  tag = { "here", shows = "here" },
}

local count = 0

--- A net that the database does not know.
local function fresh_net()
  count = count + 1
  local net = neap.net("net" .. count)
  local x = net:input("x", { 3, 4 })
  local w = net:param("w", { 6, 4 }, neap.init.xavier {})
  local h = net:op("FC", { x, w }, { "h" })
  net:outputs { net:op("Relu", { h }, { "y" }) }
  return net
end

local function options_of(case, name)
  local memory = { [name] = case[1] }
  for key, value in pairs(case.with or {}) do memory[key] = value end
  return memory
end

--- The same with a face's own fields.
local function with(memory, fields)
  for key, value in pairs(fields) do memory[key] = value end
  return memory
end

local function a_model()
  return neap.nn.Sequential { input = { 4 }, neap.nn.Linear { 4, 6 }, neap.nn.ReLU() }
end

--- Each face plans something with the options. `face`: as the table of options calls it.
local faces = {
  { "net:plan", "lua", function(o) fresh_net():plan(o) end },
  { "net:forecast", "lua", function(o) fresh_net():forecast(o) end },
  { "net:dry_run", "lua", function(o) fresh_net():dry_run(o) end },
  {
    "ws:compile", "lua",
    function(o) neap.workspace { seed = 1 }:compile(fresh_net(), o):close() end,
  },
  { "ws:run", "lua", function(o)
    neap.workspace { seed = 1 }:run(fresh_net(),
      { x = neap.rand(table.unpack(o.inputs and o.inputs.x or { 3, 4 })) }, o)
  end },
  {
    "m:plan", "lua",
    function(o) a_model():plan(with(o, { batch = 3, name = "model" .. count })) end,
  },
  {
    "neap.workspace", "workspace",
    function(o) neap.workspace(with(o, { seed = 1 })):compile(fresh_net()):close() end,
  },
  {
    "neap.fit_batch", "fit",
    function(o) neap.fit_batch(fresh_net(), with(o, { total = o.total or "64MiB", max = 4 })) end,
  },
  { "neap.trainer", "trainer", function(o)
    local t <close> = neap.trainer {
      model = a_model(),
      optimizer = neap.optim.SGD { lr = 0.1 },
      memory = o,
      name = "model" .. count,
      seed = 1,
    }
    t:step { x = neap.rand(3, 4), y = neap.tensor({ 0, 1, 2 }, "i64") }
  end },
}

-- What a face means otherwise, or does not plan with: a workspace's limits are of all that it
-- holds, and names of a model's blobs are its own.
local elsewhere = {
  ["neap.workspace"] = { budget = true, total = true, keep = true },
  ["neap.trainer"] = { keep = true, fuse = true },
  ["m:plan"] = { inputs = true, keep = true },
}

describe("the table of memory options", function()
  local folder, db

  setup(function()
    folder = shell "mktemp -d":match "[^\n]+"
    db = assert(neap.db(folder .. "/neap.db"))
    neap.use_db(db)
  end)
  teardown(function()
    neap.use_db(false)
    db:close()
    os.execute("rm -rf " .. folder)
  end)

  --- The plans that were stored since the plan of number `last`.
  local function plans_since(from, last)
    return assert(
      from:sql("select plan_id, options, batch from plan where plan_id > :last order by plan_id",
        { last = last }))
  end
  local function last_plan(from)
    return assert(from:sql "select coalesce(max(plan_id), 0) as id from plan")[1].id
  end

  --- Whether one of the rows shows what the option was set to.
  local function is_shown(case, name, rows)
    if case.absent then return #rows == 0 end
    for _, row in ipairs(rows) do
      local got = case.column and row[case.column] or cjson.decode(row.options)[case.field or name]
      if pcall(assert.are.same, case.shows, got) then return true end
    end
    return false
  end

  it("has a test for each option, and each says what it is", function()
    for _, record in ipairs(memory_options.records) do
      assert.is_truthy(record.doc and #record.doc > 10, record.name)
      if record.faces.lua then
        assert.is_truthy(set[record.name], record.name .. " is not tested here")
      end
    end
    for name in pairs(set) do assert.is_truthy(memory_options.records[name], name) end
  end)

  for _, face in ipairs(faces) do
    local who, kind, plan = table.unpack(face)
    it(("is read whole by %s"):format(who), function()
      local n = 0
      for _, record in ipairs(memory_options.records) do
        local name, case = record.name, set[record.name]
        if not record.faces[kind] then
          raises(name, plan, { [name] = case and case[1] or "mean" })
        elseif not (elsewhere[who] or {})[name] then
          count = count + 1
          local last = last_plan(db)
          plan(options_of(case, name))
          assert.is_true(is_shown(case, name, plans_since(db, last)),
            ("%s does not obey %s"):format(who, name))
          n = n + 1
        end
      end
      assert.is_true(n > 10)
    end)
  end

  it("is what neap.help and neap help show of options", function()
    local text = require("neap.help").by_name "options"
    for _, record in ipairs(memory_options.records) do
      if record.faces.lua then
        assert.is_truthy(text:find("\n  " .. record.name .. " ", 1, true), record.name)
      end
    end
    assert.are.equal(text .. "\n", (shell(program .. " help options")))
  end)

  it("is read whole by neap plan, whose help has every option", function()
    local help = shell(program .. " plan --help")
    local own = folder .. "/command.db"
    for i, record in ipairs(memory_options.records) do
      local flag = "--" .. (record.default == "true" and record.type == "switch" and "no-" or "")
        .. record.name:gsub("_", "-")
      assert.are.equal(record.faces.command or false,
        help:find(flag:gsub("%-", "%%-") .. "[^%w%-]") ~= nil, flag)
      if record.faces.command then
        support.write_file(("%s/net%d.lua"):format(folder, i), ([[
          local net = require "neap".net "file%d"
          local h = net:op("FC", { net:input("x", { 3, 4 }), net:param("w", { 6, 4 }) }, { "h" })
          net:outputs { net:op("Relu", { h }, { "y" }) }
          return net]]):format(i))
        local file <close> = assert(neap.db(own))
        local case, last = set[record.name], last_plan(file)
        local out, code = shell(
          ("NEAP_DB=%s %s plan %s/net%d.lua %s 2>&1"):format(own, program, folder, i, case.words))
        assert.are.equal(0, code, out)
        assert.is_true(is_shown(case, record.name, plans_since(file, last)),
          "neap plan does not obey " .. case.words)
      end
    end
  end)

  it("holds for m:memory, whose layers are planned apart", function()
    for _, record in ipairs(memory_options.records) do
      local case = set[record.name]
      if record.faces.layers and record.name ~= "soft" and record.name ~= "keep" and record.name
          ~= "budget" then
        local memory = a_model():memory(options_of(case, record.name))
        assert.are.same({ 3, 6 }, memory:forward(neap.rand(3, 4)).shape, record.name)
      elseif not record.faces.layers then
        local model = a_model()
        raises(record.name, model.memory, model, { [record.name] = case and case[1] or "mean" })
      end
    end
  end)

  it("refuses unknown names, words and numbers alike at every face, with the nearest", function()
    for _, face in ipairs(faces) do
      raises({ "recompute" }, face[3], { recompte = false })
      raises({ "policy expects none, name, offset or pool", "got \"ofset\"" }, face[3],
        { policy = "ofset" })
      raises("threads expects a number from 1 to 4096", face[3], { threads = 4097 })
      raises("recompute expects true or false", face[3], { recompute = 1 })
    end
  end)

  it("are taken by neap bench, neap profile run and check.plan, and passed on \z
      as they were given", function()
    for _, verb in ipairs { "bench", "profile" } do
      for _, record in ipairs(memory_options.records) do
        local case = set[record.name]
        if record.faces.command then
          local words = { verb, verb == "profile" and "run" or nil }
          for word in case.words:gmatch "%S+" do words[#words + 1] = word end
          local ok, args = require("neap.cli").parser():pparse(words)
          assert.is_true(ok, verb .. " " .. case.words .. ": " .. tostring(args))
          local again = " " .. table.concat(memory_options.words(args), " ") .. " "
          for word in case.words:gmatch "%-%-%S+ ?[^%s-]*" do
            assert.is_true(again:find(" " .. word:gsub(" $", "") .. " ", 1, true) ~= nil, again)
          end
        end
      end
    end
    local net = fresh_net()
    for name, case in pairs(set) do
      if name ~= "inputs" and name ~= "max_batch" and name ~= "store" then
        local given = options_of(case, name)
        given.steps, given.count_steps = 1, 0
        if given.keep_all == nil and given.banks == nil then
          local r = neap.check.plan(net, given)
          -- other kernels may be chosen where they need not be the same ones
          assert.is_true(r.n_blob > 0 and (r.same or name == "exact"), name)
        end
      end
    end
    raises('did you mean "budget"?', neap.check.plan, net, { budgt = 1 })
  end)

  it("takes a budget in percent of the plan without one, a fraction of a percent too", function()
    local m = neap.zoo.lenet()
    assert.are.equal(360 << 10, m:plan({ batch = 4, store = false }).arena_bytes)
    raises("the budget 315.0 KiB", m.plan, m, { batch = 4, budget = "87.5%", store = false })
    for _, text in ipairs { "%", "87,5%", "0%", "101%", "nan%", ("9"):rep(40) .. "%" } do
      raises("budget expects bytes", m.plan, m, { batch = 4, budget = text })
    end
  end)
end)
