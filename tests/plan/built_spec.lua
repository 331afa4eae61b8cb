--- A net is built once per plan: the graph that a plan is made of is made once, whoever asks for
-- the plan and whatever is tried on the way to it.
local neap = require "neap"
local support = require "support"
local nn, optim = neap.nn, neap.optim

local quiet = { store = false }

local function with(options)
  local out = { store = false }
  for key, value in pairs(options) do out[key] = value end
  return out
end

--- What f() gives, behind how often nets were built and planned meanwhile.
local function counted(f)
  local before = neap.memory()
  local result = f()
  local after = neap.memory()
  return after.n_built - before.n_built, after.n_planned - before.n_planned, result
end

--- f() takes `n` plans, and builds as many nets.
local function builds(n, f)
  local built, planned, result = counted(f)
  assert.are.same({ planned = n, built = n }, { planned = planned, built = built })
  return result
end

local function chain_net()
  local net = neap.net "chain"
  net:input("x", { 8, 16 })
  local h = net:blob "x"
  for k = 1, 6 do
    net:param("w" .. k, { 16, 16 }, { "Xavier" })
    h = net:Tanh(net:FC { h, "w" .. k }, "h" .. k)
  end
  local loss = (h * h):mean()
  net:gradient(loss)
  return net:outputs { loss }
end

--- A loop in a branch, with a backward pass.
local function nested_net()
  local net = neap.net "nested"
  net:input("x", { 24, 8, 16 })
  net:input("c", {}, "bool")
  net:param("h0", { 8, 16 }, { "Xavier" })
  local h = net:If("c", function(sub)
    return sub:Recurrent { seq = { "x" }, init = { "h0" }, step = function(_, h, x)
      local u = (h + x):sigmoid()
      return (u * x + u):tanh()
    end }
  end, function(sub) return sub:Copy "h0" end)
  local loss = (h * h):mean()
  net:gradient(loss)
  return net:outputs { loss }
end

local function model()
  return nn.Sequential {
    input = { 16 },
    nn.Linear { 16, 32 }, nn.ReLU(), nn.Linear { 32, 32 }, nn.ReLU(), nn.Linear { 32, 4 },
  }
end

local function trainer(given)
  given.model, given.loss, given.optimizer = model(), nn.CrossEntropyLoss(), optim.SGD { lr = 0.1 }
  given.memory = given.memory or quiet
  return neap.trainer(given)
end

local function batch(n)
  return { x = neap.randn { n, 16 }, y = neap.zeros { n, dtype = "i64" } }
end

describe("a net is built once", function()
  it("for a plan, and for nothing that is asked of the plan", function()
    local net = chain_net()
    local plan = builds(1, function() return net:plan(quiet) end)
    builds(0, function()
      return tostring(plan:explain()) .. tostring(plan:peak()) .. tostring(plan:values())
        .. tostring(plan:forecast())
    end)
    builds(1, function() return net:forecast(quiet) end)
  end)

  it("whatever a budget tries", function()
    for _, make in ipairs { chain_net, nested_net } do
      local net = make()
      local free = net:plan(quiet)
      local tight = builds(1, function()
        return net:plan(with { budget = free.arena_bytes - 64 })
      end)
      assert.is_true(tight.n_recomputed > 0)
      builds(1, function() return net:plan(with { total = free.total_bytes - 64 }) end)
      local refused = builds(1, function()
        return select(2, pcall(net.plan, net, with { budget = 64, exact = false }))
      end)
      assert.are.equal("budget", refused.code)
    end
  end)

  it("where mem_param names what is kept, and where a dry run shows it", function()
    local net = chain_net()
    builds(1, function() return net:plan(with { mem_param = { exclude_blob = { "w2" } } }) end)
    builds(1, function() return net:dry_run(quiet) end)
  end)

  it("for a model's plan, trained or not", function()
    local m = model()
    m:net { batch = 8, train = true, loss = nn.CrossEntropyLoss() } -- layers learn their widths
    builds(1, function() return m:plan(with { batch = 8 }) end)
    builds(1, function() return m:plan(with { batch = 8, train = true }) end)
    builds(1, function() return m:forecast(with { batch = 8, train = true }) end)
    -- as it is written, and as it is planned
    builds(2, function() return neap.count_memory(m, with { batch = 8, train = true }) end)
  end)

  it("for each batch that fit_batch asks for", function()
    for _, subject in ipairs { chain_net(), model() } do
      local built, planned = counted(function()
        local train = type(subject) ~= "userdata" or nil
        return (neap.fit_batch(subject, with { budget = "64KiB", max = 64, train = train }))
      end)
      assert.is_true(planned > 1)
      assert.are.equal(planned, built)
    end
  end)

  it("for a trainer's steps, forecasts and evaluations", function()
    local t <close> = trainer {}
    builds(1, function() return t:forecast(8, batch(8)) end)
    builds(1, function() return t:step(batch(8)) end)
    builds(0, function() return t:step(batch(8)) end)
    builds(0, function() return t:plan(8) end)
    builds(1, function()
      local all = batch(8)
      return t:evaluate(neap.data.tensors { x = all.x, y = all.y, batch = 8 })
    end)
  end)

  it("for a smaller batch too, whose plan is that of the largest", function()
    local t <close> = trainer {}
    t:step(batch(8))
    local built, planned = counted(function() return t:step(batch(5)) end)
    assert.are.same({ 1, 0 }, { built, planned })
  end)

  it("for the micro-batches, and for the update", function()
    local t <close> = trainer { micro = 4 }
    builds(2, function() return t:step(batch(8)) end)
  end)

  it("for the largest batch of a range; another net is another one", function()
    local net = chain_net()
    local range = neap.range(net, quiet)
    local function built(other, options)
      local ws <close> = neap.workspace()
      return (counted(function() return ws:compile_within(other, range, options or quiet) end))
    end
    assert.are.same({ 0, 0 }, { built(net), built(chain_net()) })
    assert.are.equal(1, built(chain_net(), with { x = { 4, 16 } }))
    net:const(2)
    assert.are.equal(1, built(net))
    -- names that a workspace forwards are kept, and a range has no room for more than its own
    local parent <close> = neap.workspace()
    parent:feed("mid", neap.zeros { 8, 16 })
    local child <close> = parent:child { forward = { h3 = "mid" } }
    assert.has_error(function() child:compile_within(chain_net(), range, quiet) end)
  end)

  it("for a plan that the database knew", function()
    local base = os.tmpname()
    local script <close> = assert(io.open(base, "w"))
    script:write [[
      local neap = require "neap"
      local net = neap.net "stored"
      net:input("x", { 8, 16 })
      net:param("w", { 16, 16 }, { "Xavier" })
      local loss = net:FC { "x", "w" }:tanh():mean()
      net:gradient(loss)
      local before = neap.memory().n_built
      local plan = net:plan()
      print(plan.hit, neap.memory().n_built - before)
    ]]
    script:flush()
    local run = ("NEAP_CACHE=all NEAP_DB=%s.db %s run %s 2>&1"):format(base, support.program, base)
    assert.are.equal("false\t1\n", support.shell(run))
    assert.are.equal("true\t1\n", support.shell(run))
    support.shell(("rm -f %s %s.db*"):format(base, base))
  end)
end)
