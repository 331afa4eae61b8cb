--- neap.check.op: one op by the cases of its record.
--
-- Each case is run planned, at once, and in f64 differentiated, once and twice, against
-- differences: what the tests do for all ops of Neap's, for one of a user's.
-- @module neap.check.op
local cases = require "neap.check.cases"
local core = require "neap.core"
local differences = require "neap.check.differences"
local op = require "neap.op"
local report = require "neap.report"
local fail = core.fail

local M = {}

local function type_text(t) return ("%s (%s)"):format(t.dtype, table.concat(t.shape, ",")) end

--- The outputs have the types that were inferred, and the bits of a run at once.
local function check_run(case)
  local net, outputs = cases.net_of(case)
  local feeds = cases.values_of(case)
  local ws <close> = cases.run(net, feeds)
  local ins = {}
  for i = 1, #case.inputs do ins[i] = feeds["in" .. i] or false end

  -- An op that draws, or writes over its inputs, gives other bits at once: only types are compared.
  local apart = case.record.random or #case.record.enforced > 0
  local at_once = apart and {}
    or table.pack(op.apply(case.record.name, ins, case.attrs, case.n_out))
  for k, out in ipairs(outputs) do
    local got = ws:fetch(out.name)
    if not case.record.extent and type_text(got) ~= type_text(out) then
      error(("output %d is %s, infer said %s"):format(k, type_text(got), type_text(out)), 0)
    end
    if at_once[k] and got:hash() ~= at_once[k]:contiguous():hash() then
      error(("output %d has other bits in a net than at once"):format(k), 0)
    end
  end
end

--- "same", "none" where there is nothing to differentiate, or what is wrong.
local function compared(case, make_net)
  local ok, n = pcall(differences.check, cases.with_dtype(case, "f64"), "ref", make_net)
  if ok then return n and n > 0 and "same" or "none" end
  local text = tostring(n)
  -- That there is no second gradient is said by the op's page, and no fault of it.
  if make_net == differences.twice_net and text:find("no gradient is defined", 1, true) then
    return "none"
  end
  return text
end

--- What M.check does; operands are drawn by a seed.
local function checked(name)
  local record = type(name) == "string" and op.records[name]
  if not record then
    local near = type(name) == "string" and op.suggest(name)
    fail(("neap.check.op expects the name of an op, got %s%s"):format(
      type(name) == "string" and ('"%s"'):format(name) or "a " .. type(name),
      near and (', did you mean "%s"?'):format(near) or ""))
  end
  local list = cases.cases_of(record)
  if #list == 0 then
    fail(("neap.check.op: the record of %s has no cases%s"):format(name,
      record.control and ", since it works in nets alone" or ""))
  end
  local rows, different = {}, nil

  -- Three looks at each case: its run, its gradient, and the gradient of that.
  for i, case in ipairs(list) do
    local ok, err = pcall(check_run, case)
    local row = { case = i, run = ok and "same" or tostring(err),
      gradient = compared(case, differences.loss_net),
      second = compared(case, differences.twice_net) }
    row.same = true
    for _, key in ipairs { "run", "gradient", "second" } do
      if row[key] ~= "same" and row[key] ~= "none" then
        row.same = false
        different = different or ("case %d, %s: %s"):format(i, key, row[key])
      end
    end
    rows[i] = row
  end
  return report.new { rows = rows, columns = { "case", "run", "gradient", "second", "same" },
    totals = { same = different == nil, n_case = #rows, different = different },
    order = { "same", "n_case", "different" } }
end

--- neap.check.op(name) -> Report of the op's cases: what a run gives, and its gradients, once and
-- twice, against differences in f64; "same", "none", or what is wrong. Fields same (bool), n_case
-- and different (the first).
-- @usage assert(neap.check.op("Softmax").same)
function M.check(name)
  -- What the caller draws goes on as if nothing had been drawn.
  return require("neap").with({ seed = 0 }, checked, name)
end

return M
