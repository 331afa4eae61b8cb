--- Kernels by type. Every op, backward ops too, in every float dtype that its kernels compute,
-- against f64: the cases of its record; halves by every engine that has them, or that computes them
-- in f32. Outputs are rounded once to the dtype; the tolerance is a
-- few units of its last place, relative to the largest element: bf16 2^-8, f16 2^-11.
local neap = require "neap"
local core = require "neap.core"
local op = require "neap.op"
local cases = require "neap.check.cases"
local support = require "support"

local unit = { f32 = 2 ^ -23, bf16 = 2 ^ -8, f16 = 2 ^ -11 }

--- Whether a kernel of the record computes the dtype, by `engine` if that is given.
local function computes(record, dtype, engine)
  for _, kernel in ipairs(record.kernels) do
    if (engine or kernel.engine) == kernel.engine and cases.has(kernel.dtypes, dtype) then
      return true
    end
  end
  return false
end

--- The case's inputs, rounded to the dtype, in it and in f64.
local function feeds_of(case, dtype)
  local feeds, exact = cases.values_of(cases.with_dtype(case, dtype)), {}
  for name, t in pairs(feeds) do exact[name] = cases.is_float[t.dtype] and t:to "f64" or t end
  return feeds, exact
end

local function run(case, feeds, engine)
  local net, outputs = cases.net_of(case)
  local ws <close> = cases.run(net, feeds, { engine = engine })
  local results = {}
  for k, out in ipairs(outputs) do results[k] = ws:fetch(out.name):clone() end
  return results
end

--- How far `got` is from `want`, relative to the largest finite element of `want`.
local function distance(want, got)
  local a, b, largest, worst = cases.elements(want), cases.elements(got), 0, 0
  for i = 1, #a do
    if math.abs(a[i]) < math.huge then largest = math.max(largest, math.abs(a[i])) end
  end
  for i = 1, #a do
    local same = a[i] == b[i] or a[i] ~= a[i] and b[i] ~= b[i]
    if not same then worst = math.max(worst, math.abs(a[i] - b[i]) / largest) end
    if b[i] ~= b[i] and a[i] == a[i] then worst = math.huge end
  end
  return worst
end

local n_checked = 0

local function check(case, dtype, engine)
  local record = case.record
  local narrow, wide = cases.with_dtype(case, dtype), cases.with_dtype(case, "f64")
  local feeds, exact = feeds_of(case, dtype)
  local got, want = run(narrow, feeds, engine), run(wide, exact, "ref")
  for k, y in ipairs(got) do
    local is_float = cases.is_float[y.dtype]
    assert.same(want[k].shape, y.shape)
    local comparable = not record.random and case.compared
    if is_float and comparable then
      local worst = distance(want[k], y)
      n_checked = n_checked + 1
      if worst > 8 * unit[dtype] + 1e-5 then
        error(("%s in %s by %s: output %d is %.1f units away from f64's"):format(case.name, dtype,
          engine, k, worst / unit[dtype]))
      end
    end
  end
end

describe("float dtypes", function()
  for _, name in ipairs(core.op_names()) do
    local record = op.records[name]
    local list = cases.cases_of(record)
    for _, dtype in ipairs { "f32", "bf16", "f16" } do
      local both = computes(record, dtype) and computes(record, "f64")
      if #list > 0 and both and not record.extent then
        it(("of %s: %s"):format(name, dtype), function()
          for _, engine in ipairs(support.engines()) do
            local asked = engine == "ref" or dtype ~= "f32" and computes(record, dtype, engine)
            for _, case in ipairs(asked and list or {}) do
              if engine == "ref" or case.compared then check(case, dtype, engine) end
            end
          end
        end)
      end
    end
  end

  it("were compared", function() assert.is_true(n_checked > 200, n_checked .. " outputs") end)
end)

describe("a kernel", function()
  it("names the dtypes that it computes", function()
    for name, record in pairs(op.records) do
      for _, kernel in ipairs(record.kernels or {}) do -- none of what is made of other ops
        assert.is_true(#kernel.dtypes > 0, name .. " by " .. kernel.engine)
      end
    end
  end)

  it("of every dtype that an op takes exists, or the error says so before anything runs", function()
    for name, record in pairs(op.records) do
      for _, case in ipairs(cases.cases_of(record)) do
        for _, dtype in ipairs { "bf16", "f16" } do
          local ok, err = pcall(function()
            local net = cases.net_of(cases.with_dtype(case, dtype))
            net:check()
          end)
          if not ok then
            assert(type(err) ~= "string", name .. ": " .. tostring(err))
            assert.are.equal("dtype", err.code, name)
            assert.matches(name, tostring(err), 1, true)
              end
        end
      end
    end
  end)
end)

describe("statistics of bf16 and f16", function()
  it("are f32, wherever an op saves them or takes them", function()
    local n = 0
    for name, record in pairs(op.records) do
      for _, case in ipairs(cases.cases_of(record)) do
        for _, dtype in ipairs { "bf16", "f16" } do
          local ok, net, outputs = pcall(cases.net_of, cases.with_dtype(case, dtype))
          for k, out in ipairs(ok and net and outputs or {}) do
            local arg = record.outputs[math.min(k, #record.outputs)]
            if arg.wide then
              n = n + 1
              assert.are.equal("f32", out.dtype, name .. "." .. arg.name)
            end
          end
        end
      end
    end
    assert.is_true(n >= 10, n .. " outputs")
  end)

  it("leave gradients the digits that they have", function()
    -- far from 0 a rounded mean would be off by more than the spread
    for _, dtype in ipairs { "bf16", "f16" } do
      local function gradient(own)
        local net = neap.net "norm"
        local x = net:declare("x", "parameter", { 4, 64 }, own)
        local y = net:LayerNorm({ x }, { "y", "mean", "rstd" })
        local loss = net:Sum(net:Mul({ y, net:input("dy", { 4, 64 }, own) }, "product"), "loss")
        local g = net:gradient(loss, { wrt = { x } })[x]
        net:outputs { g }
        local ws <close> = neap.workspace { store = false }
        ws:init(net)
        neap.seed(5)
        ws:feed("x", (neap.randn(4, 64) * 3 + 200.5):to(dtype):to(own))
        ws:feed("dy", neap.randn(4, 64):to(dtype):to(own))
        ws:run(net)
        return ws:fetch(g.name):to "f64"
      end
      local want = gradient "f64"
      local off = (gradient(dtype) - want):abs():max():item() / want:abs():max():item()
      assert.is_true(off < unit[dtype], ("%s: %g"):format(dtype, off))
    end
  end)
end)

describe("rows of bf16", function()
  --- Bytes of scratch of an op and its backward, for so many rows.
  local function scratch(build, n)
    local net = neap.net "rows"
    local y, wrt = build(net, n)
    local loss = net:Sum(net:Mul({ y, net:input("dy", y.shape, "bf16") }, "product"), "loss")
    local outs = { loss }
    for _, gradient in pairs(net:gradient(loss, { wrt = wrt })) do outs[#outs + 1] = gradient end
    net:outputs(outs)
    local ws <close> = neap.workspace { store = false }
    ws:init(net)
    local program <close>, bytes = ws:compile(net, { engine = "ref" }), 0
    for _, row in ipairs(program.plan:ops()) do bytes = bytes + row.scratch_bytes end
    return bytes
  end

  local function param(net, name, shape) return net:declare(name, "parameter", shape, "bf16") end
  local builds = {
    Softmax = function(net, n)
      local x = param(net, "x", { n, 64 })
      return net:Softmax({ x }, "y"), { x }
    end,
    LogSoftmax = function(net, n)
      local x = param(net, "x", { n, 64, 5 })
      return net:LogSoftmax({ x }, "y", { axis = 2 }), { x }
    end,
    LayerNorm = function(net, n)
      local x, g, b = param(net, "x", { n, 64 }), param(net, "g", { 64 }), param(net, "b", { 64 })
      return net:LayerNorm({ x, g, b }, { "y", "mean", "rstd" }), { x, g, b }
    end,
    RmsNorm = function(net, n)
      local x, g = param(net, "x", { n, 64 }), param(net, "g", { 64 })
      return net:RmsNorm({ x, g }, { "y", "rstd" }), { x, g }
    end,
    BatchNorm = function(net, n)
      local x, g, b = param(net, "x", { n, 8, 9 }), param(net, "g", { 8 }), param(net, "b", { 8 })
      return net:BatchNorm({ x, g, b }, { "y", "mean", "var" }, { training = true }), { x, g, b }
    end,
    SoftmaxCrossEntropy = function(net, n)
      local x, labels = param(net, "x", { n, 64 }), net:input("labels", { n }, "i64")
      return net:SoftmaxCrossEntropy({ x, labels }, "y", { reduction = "none" }), { x }
    end,
    LRN = function(net, n)
      local x = param(net, "x", { n, 8, 9 })
      return net:LRN({ x }, "y"), { x }
    end,
  }
  for _, pool in ipairs { "MaxPool", "AveragePool", "GlobalAveragePool" } do
    builds[pool] = function(net, n)
      local x = param(net, "x", { n, 3, 8, 8 })
      local o = pool ~= "GlobalAveragePool" and { kernel = 3, stride = 2 } or nil
      return net:op(pool, { x }, { "y" }, o), { x }
    end
  end
  for name, build in pairs(builds) do
    it(("are widened one by one: the scratch of %s does not grow with them"):format(name),
      function()
        assert.are.equal(scratch(build, 64), scratch(build, 4096))
      end)
  end
end)

describe("bf16 and f16", function()
  it("are rounded to nearest even, once", function()
    -- 1 + 2^-8 lies between two bf16, whose neighbours are 1 and 1 + 2^-7
    local x = neap.tensor({ 1, 2 ^ -8, 3 * 2 ^ -8 }, "bf16")
    local y = neap.add(x, neap.tensor({ 1 }, "bf16")):to "f64"
    assert.same({ 2, 1, 1 + 2 ^ -6 }, y:totable())
  end)

  it("add up in more than their own digits", function()
    local x = neap.ones(4096):to "bf16"
    assert.are.equal(4096, neap.sum(x):item())
    assert.are.equal(1, neap.mean(x):item())
  end)

  it("drawn from an interval stay below its end, which rounding would reach", function()
    for _, dtype in ipairs { "bf16", "f16" } do
      neap.seed(1)
      local x = neap.rand { 40000, dtype = dtype }:to "f64"
      assert.is_true(x:max():item() < 1 and x:min():item() >= 0, dtype)
    end
  end)

  it("broadcast, in tiles of any length", function()
    for _, n in ipairs { 1, 255, 256, 257, 1000 } do
      local a = neap.arange(0, n):to "bf16"
      local b = neap.tensor({ { 1 }, { 2 }, { 3 } }, "bf16")
      local got = neap.mul(a, b):to "f64"
      local want = neap.mul(a:to "f64", b:to "f64"):to "bf16":to "f64"
      assert.is_true(got:equal(want), n .. " elements")
    end
  end)
end)

describe("uniform numbers of halves", function()
  local function draw(dtype, low, high)
    local net = neap.net "u"
    net:Uniform({}, "y", { shape = { 100000 }, dtype = dtype, low = low, high = high })
    net:outputs { "y" }
    local ws <close> = neap.workspace { store = false, seed = 1 }
    ws:run(net, {})
    return ws:fetch("y"):to "f32"
  end

  for _, dtype in ipairs { "bf16", "f16" } do
    it("lie in the interval, and as often at its top as below it, in " .. dtype, function()
      for _, range in ipairs { { 0, 1 }, { 0.1, 0.2 }, { -0.3, -0.1 }, { -1, 0 }, { -2, 3 } } do
        local y = draw(dtype, range[1], range[2])
        assert.is_true(y:min():item() >= range[1], "low " .. range[1])
        assert.is_true(y:max():item() < range[2], "high " .. range[2])
        local middle = (range[1] + range[2]) / 2
        assert.is_true(math.abs(y:mean():item() - middle) < 0.005 * (range[2] - range[1]))
      end
      local zeros = 0
      for _, v in ipairs(draw(dtype, 0, 1):totable()) do if v == 0 then zeros = zeros + 1 end end
      assert.is_true(zeros <= 2, zeros .. " zeros")
    end)
  end
end)
