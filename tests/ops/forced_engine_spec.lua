--- A forced engine is used for every op that has a kernel of it, also where free choice prefers
-- another.
local neap = require "neap"
local support = require "support"

local has_dnnl = support.has_engine "dnnl"

--- Conv, Relu, a residual sum of three and its backward; 20 channels, which fill no block of 8 or
-- 16.
local function net_of()
  local net = neap.net "forced"
  local x = net:input("x", { 2, 20, 6, 6 })
  local w = net:param("w", { 20, 20, 3, 3 }, neap.init.xavier())
  local a = net:Conv({ x, w }, "a", { pad = 1 })
  local b = net:Relu(a, "b")
  local c = net:AddN({ a, b, x }, "c")
  local d = net:Conv({ net:Relu(c, "r"), w }, "d", { pad = 1 })
  local loss = net:Sum(net:Mul({ d, d }, "square"), "loss")
  local grads = net:gradient(loss, { wrt = { x, w } })
  net:Copy(grads[x], "dx")
  net:Copy(grads[w], "dw")
  net:outputs { loss, d, "dx", "dw" }
  return net
end

local function engines_of(program)
  local engines = {}
  for _, row in ipairs(program.plan:ops()) do
    engines[row.type] = engines[row.type] or row.engine
    if engines[row.type] ~= row.engine then engines[row.type] = "several" end
  end
  return engines
end

local function run(memory)
  local ws = neap.workspace { store = false, seed = 3 }
  local net = net_of()
  ws:init(net)
  neap.seed(5)
  ws:feed("x", neap.randn { 2, 20, 6, 6 })
  local program = ws:compile(net, memory)
  program:run()
  return ws, program
end

describe("engine = \"dnnl\"", function()
  if not has_dnnl then
    pending "this Neap is built without oneDNN"
    return
  end

  it("runs Relu, AddN and the backward of Relu by oneDNN, in blocked layouts too; free \z
      choice takes ref", function()
    local free <close>, program = run()
    local engines = engines_of(program)
    assert.are.equal("ref ref ref",
      table.concat({ engines.Relu, engines.ReluGrad, engines.AddN }, " "))
    local forced <close>, other = run { engine = "dnnl" }
    engines = engines_of(other)
    assert.are.equal("dnnl dnnl dnnl",
      table.concat({ engines.Relu, engines.ReluGrad, engines.AddN }, " "))
    local ref <close> = run { engine = "ref" }
    for _, name in ipairs { "d", "dx", "dw" } do
      assert.is_true(ref:fetch(name):close(forced:fetch(name), { rtol = 1e-4, atol = 1e-3 }), name)
      assert.is_true(ref:fetch(name):close(free:fetch(name), { rtol = 1e-4, atol = 1e-3 }), name)
    end
  end)

  it("gives the same bits planned and unplanned, over any of AddN's inputs", function()
    local planned <close> = run { engine = "dnnl" }
    local unplanned <close> = run { engine = "dnnl", policy = "none" }
    for _, name in ipairs { "d", "dx", "dw" } do
      assert.is_true(planned:fetch(name):equal(unplanned:fetch(name)), name)
    end
    for written = 1, 3 do
      local net, ins = neap.net "sum", {}
      for i = 1, 3 do ins[i] = net:Copy(net:input("in" .. i, { 37 }), "copy" .. i) end
      net:AddN(ins, ins[written])
      net:Copy(ins[written], "y")
      net:outputs { "y" }
      local ws <close> = neap.workspace { store = false }
      local sum
      for i = 1, 3 do
        local t = neap.arange(i, i * 38, i)
        ws:feed("in" .. i, t)
        sum = sum and sum + t or t
      end
      ws:compile(net, { engine = "dnnl" }):run()
      assert.is_true(ws:fetch("y"):equal(sum), "over input " .. written)
    end
  end)

  it("keeps a NaN that Relu reads, as ref does, and maps -inf to 0 and inf to itself", function()
    for _, engine in ipairs { "ref", "dnnl" } do
      local net = neap.net "nan"
      net:Relu(net:input("x", { 40 }), "y")
      local ws <close> = neap.workspace { store = false }
      local x = neap.full { 40, value = -1 }
      x[2], x[3], x[4], x[5], x[39] = 0 / 0, 1 / 0, -1 / 0, 2.5, 0 / 0
      ws:feed("x", x)
      local program = ws:compile(net, { engine = engine })
      program:run()
      assert.are.equal(engine, program.plan:ops()[1].engine)
      local y = ws:fetch "y"
      for i = 1, 40 do
        local want = math.max(x:at(i), 0)
        if x:at(i) ~= x:at(i) then
          assert.is_true(y:at(i) ~= y:at(i), engine .. " loses the NaN of element " .. i)
        else
          assert.are.equal(want, y:at(i), engine .. " at element " .. i)
        end
      end
    end
  end)
end)
