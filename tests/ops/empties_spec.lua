--- What records promise of empty inputs, held by every op, engine and float type. Each size that
-- the inputs of a case have is made 0 in turn; where the op takes that, what is left of its outputs
-- is what `empty` of its record says.
local core = require "neap.core"
local op = require "neap.op"
local cases = require "neap.check.cases"

local function is_nan(x) return x ~= x end

local function count(shape)
  local n = 1
  for _, d in ipairs(shape) do n = n * d end
  return n
end

--- The case with every `size` of its inputs replaced by `by`.
local function resized(case, size, by)
  local inputs = {}
  for i, spec in ipairs(case.inputs) do
    local shape = {}
    for d, n in ipairs(spec and spec.shape or {}) do shape[d] = n == size and by or n end
    inputs[i] = spec and setmetatable({ shape = shape }, { __index = spec })
  end
  return setmetatable({ inputs = inputs }, { __index = case })
end

local function sizes_of(case)
  local seen, list = {}, {}
  for _, spec in ipairs(case.inputs) do
    for _, n in ipairs(spec and spec.shape or {}) do
      if n > 0 and not seen[n] then seen[n], list[#list + 1] = true, n end
    end
  end
  return list
end

--- Runs a case; the outputs as {dtype, shape, elements}. nil and the error where it is refused.
-- What is left of dead bytes is NaN, so that a result nobody wrote shows.
local function run(case, feeds, engine)
  local built, net, outputs = pcall(cases.net_of, case)
  if not built then return nil, net end
  local ok, list = pcall(function()
    local ws <close>, program = cases.run(net, feeds, { engine = engine })
    ws:poison(true)
    program:run()
    if engine ~= "ref" and not cases.uses(program, engine) then return {} end
    local all = {}
    for k, out in ipairs(outputs) do
      local t = ws:fetch(out.name)
      all[k] = { dtype = t.dtype, shape = t.shape, elements = cases.elements(t) }
    end
    return all
  end)
  if not ok then return nil, list end
  return list
end

--- The inputs of `filled`, with what is empty in `feeds` full of `value`, the rest as there.
local function fill(filled, feeds, value)
  local all = {}
  for name, t in pairs(cases.values_of(filled)) do
    local own = feeds[name]
    all[name] = count(own.shape) > 0 and own or t:clone():fill_(value)
  end
  return all
end

local function same_shape(a, b)
  return table.concat(a, ",") == table.concat(b, ",")
end

--- Output elements by what the record says of it.
local holds = {
  --- Of empty inputs nothing; beside others, only what those give.
  none = function(_, got, _, all_empty)
    for _, out in ipairs(got) do
      if all_empty and #out.elements > 0 then return "has elements" end
    end
  end,
  mean = function(_, got, _, all_empty)
    for _, out in ipairs(got) do
      for _, x in ipairs(all_empty and out.elements or {}) do
        if not is_nan(x) and x ~= 0 then return ("is %g"):format(x) end
      end
    end
  end,
  filled = function(case, got)
    for _, x in ipairs(got[1].elements) do
      if x ~= (case.attrs.value or 0) then return ("is %g"):format(x) end
    end
  end,
  identity = function(_, got)
    for _, out in ipairs(got) do
      local n = out.shape[#out.shape]
      for i, x in ipairs(out.elements) do
        if x ~= ((i - 1) % (n * n) % (n + 1) == 0 and 1 or 0) then return ("is %g"):format(x) end
      end
    end
  end,
  refused = function(_, got, _, all_empty)
    for _, out in ipairs(got) do
      if all_empty and #out.elements > 0 then return "was not refused" end
    end
  end,
}

--- What `value` in the place of nothing gives, of one element.
local function like(value)
  return function(case, got, feeds, _, size)
    local filled = resized(case, size, 1)
    local want = run(filled, fill(filled, feeds, value), "ref")
    for k, out in ipairs(want and got or {}) do
      for j, x in ipairs(same_shape(out.shape, want[k].shape) and out.elements or {}) do
        local w = want[k].elements[j]
        local near = x == w or is_nan(x) and is_nan(w)
          or type(x) == "number" and math.abs(x - w) <= 1e-5 * math.max(1, math.abs(w))
        if not near then return ("is %s, of %g it would be %s"):format(x, value, w) end
      end
    end
  end
end
holds.zero, holds.one = like(0), like(1)

local n_checked, n_refused = 0, {}

local function check(record, case, size, dtype, engine)
  local narrow = cases.with_dtype(resized(case, size, 0), dtype)
  local feeds = cases.values_of(narrow)
  local got, err = run(narrow, feeds, engine)
  if not got then
    assert(type(err) ~= "string", tostring(err))
    n_refused[record.name] = n_refused[record.name] or err.code == "shape"
    return
  end
  local all_empty = true
  for _, t in pairs(feeds) do all_empty = all_empty and count(t.shape) == 0 end
  local wrong = holds[record.empty](cases.with_dtype(case, dtype), got, feeds, all_empty, size)
  if wrong then
    error(("%s with every %d made 0, %s by %s: a result %s"):format(case.name, size, dtype, engine,
      wrong), 0)
  end
  for _, out in ipairs(got) do
    for _, x in ipairs(record.empty ~= "mean" and out.elements or {}) do
      if is_nan(x) then error(case.name .. ": NaN where " .. size .. " was made 0", 0) end
      n_checked = n_checked + 1
    end
  end
end

--- The dtypes that a kernel of the engine computes.
local function dtypes_of(record, engine)
  local list = {}
  for _, dtype in ipairs { "f32", "f64", "bf16", "f16" } do
    local computes = false
    for _, kernel in ipairs(record.kernels) do
      computes = computes or kernel.engine == engine and cases.has(kernel.dtypes, dtype)
    end
    if computes then list[#list + 1] = dtype end
  end
  return list
end

describe("an empty input", function()
  for _, name in ipairs(core.op_names()) do
    local record = op.records[name]
    local list = (record.random or record.extent) and {} or cases.cases_of(record)
    if #list > 0 and #record.inputs > 0 then
      it(("of %s: %s"):format(name, record.empty), function()
        for _, case in ipairs(list) do
          for _, size in ipairs(sizes_of(case)) do
            for _, engine in ipairs(cases.engines_of(record)) do
              for _, dtype in ipairs(dtypes_of(record, engine)) do
                check(record, case, size, dtype, engine)
              end
            end
          end
        end
        if record.empty == "refused" then assert.is_true(n_refused[name], "nothing was refused") end
      end)
    end
  end

  it("was tried", function() assert.is_true(n_checked > 10000, n_checked .. " elements") end)
end)
