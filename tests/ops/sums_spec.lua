--- Long sums: over a quarter of a million terms, where adding them up one after the other in f32 is
-- 1e-3 off, against the same op in f64. Each is as exact as the record of the op says, by every
-- engine: `sum_error`, and `tol` of a case that is better. The cases are the record's `long_cases`.
local core = require "neap.core"
local op = require "neap.op"
local cases = require "cases"

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
      assert.are.equal(record.sum ~= "none", record.long_cases ~= nil, name)
    end
  end)
end)
