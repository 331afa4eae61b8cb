-- Free and Alias: what ends a blob's life, what shares its bytes, and what the live ranges know of
-- both.
local neap = require "neap"
local M = neap.memonger
local support = require "support"
local raises = support.raises

local function run(net, feeds, memory)
  local out = support.run(net, feeds, memory)
  for name, t in pairs(out) do out[name] = t:totable() end
  return out
end

local memories = {
  { policy = "none" },
  { policy = "name" },
  { policy = "offset" },
  { policy = "offset", executor = "dag", threads = 2 },
  { policy = "pool" },
}

--- x -> a -> b -> y with a freed after b.
local function freed_net()
  local net = neap.net "f"
  net:input("x", { 4 })
  net:Relu("x", "a")
  net:Tanh("a", "b")
  net:Free("a", "a")
  net:Sigmoid("b", "y")
  net:outputs { "y" }
  return net
end

describe("Free", function()
  it("takes blobs to wait for and gives the same blobs, or names none", function()
    assert.is_truthy(freed_net():text():find("a = Free(a)", 1, true))
    local net = neap.net "f"
    net:input("x", { 2 })
    net:Relu("x", "a")
    net:Relu("x", "b")
    net:Add({ "a", "b" }, "y")
    net:Free { "a", "b" }
    net:outputs { "y" }
    assert.are.same({ y = { 2, 4 } }, run(net, { x = neap.tensor { 1, 2 } }))
    assert.are.equal(net:text(), neap.net_from(net:text()):text())
    assert.are.equal(net:clone():text(), net:text())
  end)

  it("refuses an output that is not its input, or another number of them", function()
    local net = neap.net "f"
    net:input("x", { 2 })
    net:Relu("x", "a")
    net:Relu("x", "b")
    local before = net:text()
    raises({ "must be its input", "\"a\"", "\"c\"" }, function() net:Free("a", "c") end)
    raises("must be its input", function() net:Free({ "a", "b" }, { "b", "a" }) end)
    raises("as many outputs as inputs", function() net:Free({ "a", "b" }, { "a" }) end)
    raises("expects at least 1 input", function() net:Free({}) end)
    assert.are.equal(before, net:text())
  end)

  it("changes no result, in any policy and schedule", function()
    local x = neap.tensor { -1, 0.5, 2, 3 }
    local plain = neap.net "f"
    plain:input("x", { 4 })
    plain:Sigmoid(plain:Tanh(plain:Relu "x"), "y")
    plain:outputs { "y" }
    local want = run(plain, { x = x }).y
    for _, memory in ipairs(memories) do
      assert.are.same(want, run(freed_net(), { x = x }, memory).y)
    end
  end)

  it("makes reading the blob an error that names the Free and its line", function()
    local net = freed_net()
    local e = raises({ "\"a\"", "free" }, function() net:Relu("a", "z") end)
    assert.is_truthy(tostring(e):find("01_free_alias_spec.lua:%d+"), tostring(e))
    raises("\"a\"", function() net:outputs { "a" } end)
    raises("\"a\"", function() net:keep "a" end)
  end)

  it("leaves the blob in the workspace, untyped: fetching it fails", function()
    local net = freed_net()
    local ws <close> = neap.workspace { seed = 1, store = false }
    ws:run(net, { x = neap.tensor { 1, 2, 3, 4 } })
    local e = raises({ "a", "Free" }, function() ws:fetch "a" end)
    assert.is_truthy(tostring(e):find("01_free_alias_spec.lua:%d+"), tostring(e))
    assert.is_true(#ws:fetch "y" == 4)
  end)

  it("lets the name be written again", function()
    local net = neap.net "f"
    net:input("x", { 2 })
    net:Relu("x", "a")
    net:Relu("a", "b")
    net:Free "a"
    net:Tanh("b", "a")
    net:Relu("a", "y")
    net:outputs { "y" }
    for _, memory in ipairs(memories) do
      assert.are.equal(2, #run(net, { x = neap.tensor { 1, 2 } }, memory).y)
    end
  end)

  it("may name blobs that nothing is made of beside others, with outputs and without", function()
    for _, named in ipairs { false, true } do
      for _, order in ipairs {
        { "a", "dead" }, { "dead", "a" }, { "dead", "a", "more" }, { "dead", "more" },
      } do
        local net = neap.net "f"
        net:input("x", { 4 })
        net:Tanh("x", "a")
        net:Sigmoid("x", "dead")
        net:Abs("x", "more")
        net:Relu("a", "y")
        net:Free(order, named and order or nil)
        net:outputs { "y" }
        for _, memory in ipairs(memories) do
          local got = run(net, { x = neap.tensor { 1, -2, 3, 4 } }, memory).y
          assert.are.same(neap.tensor { 1, -2, 3, 4 }:tanh():relu():totable(), got)
        end
      end
    end
  end)

  it("twice is an error, in one op or in two", function()
    local net = freed_net()
    raises({ "\"a\"", "free" }, function() net:Free "a" end)
    raises("twice", function() net:Free { "b", "b" } end)
  end)

  it("refuses what somebody was promised to find: outputs, kept blobs, \z
      inputs, parameters", function()
    local net = neap.net "f"
    net:input("x", { 2 })
    net:param("w", { 2 })
    net:Add({ "x", "w" }, "a")
    net:Relu("a", "y")
    net:keep "a"
    net:outputs { "y" }
    raises("is an output", function() net:Free "y" end)
    raises("is kept", function() net:Free "a" end)
    raises("is declared", function() net:Free "x" end)
    raises("is declared", function() net:Free "w" end)
  end)

  it("is refused where the backward pass still reads the blob, at the line of \z
      the op that would", function()
    local net = neap.net "early"
    net:Exp(net:param("w", { 3 }, 1), "y")
    local line = debug.getinfo(1, "l").currentline - 1
    net:Sum(net:Tanh "y", "loss")
    net:Free "y"
    net:gradient("loss", { wrt = "w" })
    local fine, err = pcall(net.check, net)
    assert.is_false(fine)
    assert.is_truthy(err.message:find("needs \"y\" after Free \"free_1\" has freed it", 1, true),
      err.message)
    assert.are.equal("01_free_alias_spec.lua:" .. line, err.line)
  end)

  it("has no gradient, and comes after the backward pass has read the blob", function()
    local function net_of(free)
      local net = neap.net "f"
      net:input("x", { 2, 2 })
      net:param("w", { 2, 2 }, 0.5)
      net:FC({ "x", "w" }, "a")
      net:Tanh("a", "b")
      net:Mean("b", "loss")
      net:outputs { "loss" }
      if free == "before" then net:Free "b" end
      net:gradient "loss"
      if free == "after" then net:Free "b" end
      return net
    end
    raises("freed", function() net_of("before"):plan { store = false } end)
    local x = neap.tensor { { 1, 2 }, { 3, 4 } }
    assert.are.same(run(net_of(), { x = x }).loss, run(net_of "after", { x = x }).loss)
    local net = neap.net "f"
    net:input("x", { 2 })
    net:Relu("x", "a")
    net:Free("a", "a")
    raises("\"a\"", function() net:gradient("a", { wrt = { "x" } }) end)
  end)

  it("ends the life: the bytes go to the next blob", function()
    -- Two wide blobs, never alive together once the first is freed; without a reader of its own the
    -- Free is its last use.
    local curve = freed_net():plan({ policy = "offset", engine = "ref", store = false }):curve()
    assert.is_true(curve[#curve].live_bytes <= 64)
    local net = neap.net "bytes"
    net:input("x", { 1024 })
    net:Relu("x", "a")
    net:Sum("a", "s", { axes = { 1 } })
    net:Free "a"
    net:Tanh("x", "b")
    net:Sum("b", "t", { axes = { 1 } })
    net:Add({ "s", "t" }, "y")
    net:outputs { "y" }
    local plan = net:plan { policy = "offset", engine = "ref", store = false }
    assert.is_true(plan.arena_bytes < 2 * 4096)
    assert.is_true(
      M.estimate_memory_usage(net).high_water_bytes < M.estimate_memory_usage(net).total_bytes)
  end)

  it("returns the bytes at once under policy pool: its statistics show it", function()
    local net = neap.net "pool"
    net:input("x", { 1024 })
    net:Relu("x", "a")
    net:Sum("a", "s", { axes = { 1 } })
    net:Tanh("s", "t") -- between the last reader of a and its Free
    net:Free("a", "a")
    net:Exp("t", "u")
    net:Relu("u", "y")
    net:outputs { "y" }
    local ws <close> = neap.workspace { seed = 1, store = false }
    ws:init(net)
    local program <close> = ws:compile(net, { policy = "pool", in_place = false, store = false })
    ws:feed("x", neap.rand(1024))
    program:run()
    local pool, step = program:pool(), {}
    for i, op in ipairs(program.plan:_ops()) do step[op.type] = step[op.type] or i end
    assert.is_true(pool.curve[step.Free] >= 4096, "held until the Free")
    assert.is_true(pool.curve[step.Exp] < 4096, "gone right after it")
    assert.are.equal(0, pool.used_bytes)
  end)

  it("lasts as an order: in a dag the blob is freed behind all its readers", function()
    local net = neap.net "dag"
    net:input("x", { 64 })
    net:Relu("x", "a")
    for i = 1, 4 do net:Tanh("a", "r" .. i) end
    net:Free "a"
    net:AddN({ "r1", "r2", "r3", "r4" }, "y")
    net:outputs { "y" }
    local x = neap.full { 64, value = 0.5 }
    local want = run(net, { x = x }, { policy = "none" }).y
    for _, memory in ipairs(memories) do assert.are.same(want, run(net, { x = x }, memory).y) end
  end)
end)

describe("Alias and every view op", function()
  local views = {
    Alias = function(net) net:Alias("a", "v") end,
    Reshape = function(net) net:Reshape("a", "v", { shape = { 2, 2 } }) end,
    Flatten = function(net) net:Flatten("a", "v", { axis = 1 }) end,
    Unsqueeze = function(net) net:Unsqueeze("a", "v", { axes = { 1 } }) end,
    StopGradient = function(net) net:StopGradient("a", "v") end,
  }
  for name, view in pairs(views) do
    it(name .. " shares its input's bytes, which live until the view has been read, though \z
        the source is freed", function()
      local net = neap.net "view"
      net:input("x", { 4 })
      net:Relu("x", "a")
      view(net)
      net:Tanh("x", "other") -- would take the bytes of a, were they free
      net:Free "a"
      net:Sigmoid("x", "more")
      net:Exp("v", "late")
      net:Reshape("late", "flat", { shape = { 4 } })
      net:AddN({ "flat", "other", "more" }, "y")
      net:outputs { "y" }
      local x = neap.tensor { -1, 0.5, 2, 3 }
      local want = run(net, { x = x }, { policy = "none" }).y
      for i = 1, 4 do
        local v = x[i]
        assert.is_true(math.abs(want[i]
          - (math.exp(math.max(v, 0)) + (1 - 2 / (math.exp(2 * v) + 1)) + 1 / (1 + math.exp(-v))))
          < 1e-5)
      end
      for _, memory in ipairs(memories) do assert.are.same(want, run(net, { x = x }, memory).y) end
      local offset, reason = {}, {}
      local plan = net:plan { policy = "offset", engine = "ref", store = false }
      for _, v in ipairs(plan:_values()) do
        offset[v.blob], reason[v.blob] = v.offset_bytes, v.reason
      end
      assert.are.equal(offset.a, offset.v)
      assert.are.equal("alias", reason.v)
    end)
  end

  it("pass the gradient through", function()
    local net = neap.net "grad"
    net:input("x", { 3 })
    net:Alias("x", "v")
    net:Sum("v", "loss", { axes = { 1 } })
    net:gradient("loss", { wrt = { "x" } })
    net:outputs { "loss", "x_grad" }
    assert.are.same({ 1, 1, 1 }, run(net, { x = neap.tensor { 1, 2, 3 } }).x_grad)
  end)
end)
