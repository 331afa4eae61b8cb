--- Long sums: over a quarter of a million terms, where adding them up one after the other in f32 is
-- 1e-3 off, against the same op in f64. Each is as exact as the record of the op says, by every
-- engine: `sum_error`, and `tol` of a case that is better. The cases are the record's `long_cases`.
local neap = require "neap"
local core = require "neap.core"
local op = require "neap.op"
local cases = require "neap.check.cases"
local support = require "support"

local unit = { f32 = 0, bf16 = 2 ^ -8, f16 = 2 ^ -11 } -- to which a result is rounded besides

--- The float outputs of a case in f64, or nil where the engine has no kernel for it.
local function results(case, dtype, engine, feeds)
  local net, outputs = cases.net_of(cases.with_dtype(case, dtype))
  local ws <close>, program = cases.run(net, feeds, { engine = engine })
  if engine ~= "ref" and not cases.uses(program, engine) then return nil end
  local list = {}
  for k, out in ipairs(outputs) do
    list[k] = cases.is_float[out.dtype] and ws:fetch(out.name):to "f64" or false
  end
  return list
end

--- Each output against f64's, from the same numbers.
local function check(case, dtype, engine)
  local record = case.record
  local feeds, exact = cases.values_of(cases.with_dtype(case, dtype)), {}
  for name, t in pairs(feeds) do exact[name] = cases.is_float[t.dtype] and t:to "f64" or t end
  local got = results(case, dtype, engine, feeds)
  local want = got and results(case, "f64", "ref", exact) or {}
  for k, w in ipairs(want) do
    local arg = record.outputs[k]
    if w and not arg.stash and (not case.of or cases.has(case.of, arg.name)) then
      local largest = w:abs():max():item()
      local worst = (got[k] - w):abs():max():item() / largest
      local allowed = (case.tol or record.sum_error) + unit[dtype]
      if worst > allowed or worst ~= worst then
        error(("%s: %s in %s by %s is %.1e off, allowed %.1e"):format(case.name,
          arg.name, dtype, engine, worst, allowed), 0)
      end
    end
  end
  return #want
end

describe("a long sum", function()
  local n_checked = 0
  for _, name in ipairs(core.op_names()) do
    local record = op.records[name]
    for _, case in ipairs(cases.long_cases_of(record)) do
      it(("in %s, %s, is as right as its record says"):format(name, case.name), function()
        for _, engine in ipairs(case.compared and cases.engines_of(record) or { "ref" }) do
          n_checked = n_checked + check(case, "f32", engine)
        end
      end)
    end
  end

  it("is tried of every op that has one", function()
    assert.is_true(n_checked > 90, n_checked .. " outputs were looked at")
    for name, record in pairs(op.records) do
      -- what is made of other ops adds up by them
      local sums = not record.made_of and record.sum ~= "none"
      assert.are.equal(sums, record.long_cases ~= nil, name)
    end
  end)
end)

describe("a sum of millions", function()
  --- The op in f32 by an engine against f64: within what its record says.
  local function check(type, inputs, attrs, engine)
    local record = op.records[type]
    local function results(dtype, by)
      local net, ins = neap.net "deep", {}
      for i, t in ipairs(inputs) do ins[i] = net:input("in" .. i, t.shape, dtype) end
      local out = net:op(type, ins, 1, attrs)
      net:outputs { out }
      local ws <close> = neap.workspace { store = false }
      for i, t in ipairs(inputs) do ws:feed("in" .. i, t:to(dtype)) end
      local program <close> = ws:compile(net, { engine = by })
      program:run()
      return ws:fetch(out.name):to "f64"
    end
    local want, got = results("f64", "blas"), results("f32", engine)
    local off = (got - want):abs():max():item() / want:abs():max():item()
    assert.is_true(off <= record.sum_error, ("%s by %s is %.1e off"):format(type, engine, off))
  end

  local function tenths(...) return neap.full { value = 0.1, ... } end

  for _, n in ipairs { 2 ^ 20, 2 ^ 22 } do
    it(("in a product is as right as the records say: %d terms"):format(n), function()
      n = n // 1 | 0
      for _, engine in ipairs(support.engines()) do
        if engine ~= "ref" then
          check("MatMul", { tenths(n), tenths(n) }, {}, engine)
          check("MatMul", { tenths(2, n), tenths(n, 2) }, {}, engine)
          check("MatMul", { tenths(n, 2), tenths(n, 3) }, { trans_a = true }, engine)
          check("FC", { tenths(1, n), tenths(2, n) }, {}, engine)
          check("FCGradWeight", { tenths(n, 2), tenths(n, 2) }, {}, engine)
          check("FCGradInput", { tenths(2, n), tenths(n, 2) }, { shape = { 2, 2 } }, engine)
          check("Conv", { tenths(1, n, 1, 1), tenths(2, n, 1, 1) }, {}, engine)
        end
      end
    end)
  end

  it("in a wide product is the same in each of its tiles", function()
    local n = 300000
    neap.seed(3)
    local a, b = neap.randn(130, n), neap.randn(3, n)
    for _, engine in ipairs(support.engines()) do
      local y = neap.net "wide"
      local product = y:MatMul({ y:input("a", a.shape), y:input("b", b.shape) }, "product",
        { trans_b = true })
      y:outputs { product }
      local ws <close> = neap.workspace { store = false }
      ws:feed("a", a)
      ws:feed("b", b)
      local program <close> = ws:compile(y, { engine = engine })
      program:run()
      local got = ws:fetch "product"
      for _, i in ipairs { 1, 128, 129, 130 } do
        for j = 1, 3 do
          local want = (a[i]:to "f64" * b[j]:to "f64"):sum():item()
          assert.is_true(math.abs(got[{ i, j }] - want) < 0.05, ("%s %d %d"):format(engine, i, j))
        end
      end
    end
  end)

  --- BatchNorm behind a convolution, so that oneDNN's is in its blocked layout: the engine of the
  -- norm, and how far the variance of n images is from f64's.
  local function norm(n, runs)
    local c, size = 8, 128
    local net = neap.net "norm"
    local x, w = net:input("x", { n, c, size, size }), net:input("w", { c, c, 1, 1 })
    local gamma, beta = net:input("gamma", { c }), net:input("beta", { c })
    local y = net:Conv({ x, w }, "conv")
    net:BatchNorm({ y, gamma, beta }, { "y", "mean", "var" }, { training = true })
    net:outputs { "mean", "var" }
    local ws <close> = neap.workspace { store = false }
    local program <close> = ws:compile(net)
    local engine
    for _, row in ipairs(program.plan:ops()) do
      if row.type == "BatchNorm" then engine = row.engine end
    end
    if not runs then return engine end
    neap.seed(1)
    local values = neap.rand(n, c, size, size)
    ws:feed("x", values)
    ws:feed("w", neap.eye(c):reshape(c, c, 1, 1))
    ws:feed("gamma", neap.ones(c))
    ws:feed("beta", neap.zeros(c))
    program:run()
    local rows = values:to("f64"):permute(2, 1, 3, 4):reshape(c, -1)
    local mean = rows:mean { axes = { 2 }, keepdim = true }
    local var = (rows - mean):square():mean { axes = { 2 } }
    local got = ws:fetch "var":to "f64"
    return engine, (got - var):abs():max():item() / var:abs():max():item()
  end

  it("in a variance is as right as the record says", function()
    local _, off = norm(64, true)
    assert.is_true(off <= op.records.BatchNorm.sum_error, ("%.1e off"):format(off))
    assert.are_not.equal("dnnl", (norm(256, false)), "which would be 6e-4 off")
  end)
end)
