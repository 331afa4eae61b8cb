--- What records promise of numbers, held by every op, engine and float type: `nan`, by a NaN put
-- into each input of its cases, and `infinity`, by numbers as large and as small, against f64. What
-- `empty` promises is in empties_spec.lua, what sums promise in sums_spec.lua.
local op = require "neap.op"
local cases = require "neap.check.cases"

local nan, inf = 0 / 0, math.huge
local step = 7.3 -- far enough to change what depends on an element, and nothing that a NaN would

local function is_nan(x) return x ~= x end
local function same(a, b) return a == b and 1 / a == 1 / b or is_nan(a) and is_nan(b) end

local function count(t)
  local n = 1
  for _, d in ipairs(t.shape) do n = n * d end
  return n
end

--- Elements of an input to try: the first and one in the middle.
local function places(t)
  local n = count(t)
  return n == 0 and {} or n < 4 and { 1 } or { 1, (n + 1) // 2 + 1 }
end

local function with(t, place, value)
  local changed = t:clone()
  changed:reshape(-1)[place] = value
  return changed
end

--- A case bound for an engine, to be closed: `feeds`, `outputs`, and called with the name of an
-- input and what replaces it, it gives the outputs as lists. nil where the engine has no kernel.
local Runner = {}
Runner.__index = Runner
function Runner.__close(r) r.ws:close() end
function Runner.__call(r, name, value)
  for input, t in pairs(r.feeds) do r.ws:feed(input, input == name and value or t) end
  r.program:run()
  local lists = {}
  for k, out in ipairs(r.outputs) do lists[k] = cases.elements(r.ws:fetch(out.name)) end
  return lists
end
local function runner(case, engine)
  local net, outputs = cases.net_of(case)
  local feeds = cases.values_of(case)
  local ws, program = cases.run(net, feeds, { engine = engine })
  local r = setmetatable({ outputs = outputs, feeds = feeds, ws = ws, program = program }, Runner)
  if engine == "ref" or cases.uses(program, engine) then return r end
  ws:close()
end

--- One NaN in an input. What depends on the element is told by moving it up and down.
local function check_nan(record, case, engine)
  local r <close> = runner(case, engine)
  if not r then return 0 end
  local before, n_checked = r(), 0
  for i, spec in ipairs(case.inputs) do
    local name = "in" .. i
    for _, place in ipairs(spec and cases.is_float[spec.dtype] and places(r.feeds[name]) or {}) do
      local old = r.feeds[name]:reshape(-1)[place]
      old = type(old) == "number" and old or old:item()
      local ok, after = pcall(r, name, with(r.feeds[name], place, nan))
      -- of what is made of ops, some choices of an attribute may stop
      local stopped = not ok and record.made_of and record.special ~= nil
      if record.nan == "stops" or stopped then
        assert.is_false(ok, "nothing stopped")
        assert.are.equal("data", after.code)
        n_checked = n_checked + 1
      else
        if not ok then error(after) end
        local up = r(name, with(r.feeds[name], place, old + step))
        local down = r(name, with(r.feeds[name], place, old - step))
        for k, out in ipairs(r.outputs) do
          for j, value in ipairs(cases.is_float[out.dtype] and before[k] or {}) do
            local depends = not same(value, up[k][j]) or not same(value, down[k][j])
            local what = ("%s element %d of %s, NaN at %d of %s, by %s"):format(out.dtype, j,
              record.outputs[math.min(k, #record.outputs)].name, place, spec.arg.name, engine)
            n_checked = n_checked + 1
            if depends and record.nan ~= "decides" and not is_nan(after[k][j]) then
              error(what .. ": got " .. after[k][j])
            end
            if not depends and not is_nan(after[k][j]) and not same(value, after[k][j]) then
              error(what .. ": has changed")
            end
            -- a 0 may be what a clip has made of many numbers; of one number alone a constant is
            -- made, like a softmax of one class
            if not depends and is_nan(after[k][j]) and record.nan == "spreads" and value ~= 0
                and count(r.feeds[name]) > 1 then
              error(what .. ": does not depend on it, and is NaN")
            end
          end
        end
      end
    end
  end
  return n_checked
end

--- The cases that take no time: what large ones try is how work is shared out.
local function small_cases(record)
  local list = {}
  for _, case in ipairs(cases.cases_of(record)) do
    local most = 0
    for _, spec in ipairs(case.inputs) do
      local n = 1
      for _, d in ipairs(spec and spec.shape or {}) do n = n * d end
      most = math.max(most, n)
    end
    if most <= 1000 then list[#list + 1] = case end
  end
  return list
end

--- All ops with cases, those that are made of others included, in order.
local names = {}
for name, record in pairs(op.records) do
  if record.cases and not record.control then names[#names + 1] = name end
end
table.sort(names)

--- Engines of an op's own kernels; what is made of ops is looked at by those of ref.
local function engines_of(record)
  return record.made_of and { "ref" } or cases.engines_of(record)
end

describe("a NaN", function()
  local n_checked = 0
  for _, name in ipairs(names) do
    local record = op.records[name]
    local list = record.random and {} or small_cases(record)
    if #list > 0 then
      it(("%s in %s"):format(record.nan, name), function()
        for _, plain in ipairs(list) do
          for _, dtype in ipairs { "f32", "f64" } do
            for _, engine in ipairs(engines_of(record)) do
              local ok, err = pcall(check_nan, record, cases.with_dtype(plain, dtype), engine)
              if not ok then error(("%s: %s"):format(plain.name, err), 0) end
              n_checked = n_checked + err
            end
          end
        end
      end)
    end
  end

  it("was put into all of them", function()
    assert.is_true(n_checked > 100000, n_checked .. " elements were looked at")
  end)

  it("that decides is explained in the record", function()
    for name, record in pairs(op.records) do
      if record.nan == "decides" or record.nan == "stops" then
        assert.is_truthy(record.special, name .. " does not say how")
      end
    end
  end)
end)

--- Infinities, zeros of both signs, denormals and numbers near the largest, in each float input in
-- turn. A result is infinite only where f64's is too large for f32, but where the record says what
-- else it may be.
describe("special numbers", function()
  local tiny, most = 1e-40, 3.4e38 -- the latter nearly all that f32 has
  local large = 0x1p127 -- f32 has no power of two above it
  local largest_f32 = 0x1.fffffep127
  local values = { inf, -inf, 0.0, -0.0, tiny, -tiny, large, -large }

  local function is_infinite(x) return x == inf or x == -inf end

  --- What else than f64's result there may be, by the promise of the kernel: f(got, want, value).
  local allows = {
    exact = function() return false end,
    reaches = function(got, want) return is_nan(got - want) or is_nan(got) or is_nan(want) end,
    overflows = function(got, _, value)
      return math.abs(value) == large and (is_nan(got) or is_infinite(got))
    end,
    vanishes = function(_, _, value) return math.abs(value) == large end,
    blurs = function(_, _, value) return math.abs(value) == large end,
    -- on the way through several ops
    composed = function(got, want, value)
      return math.abs(value) == large
        or math.abs(value) == tiny and (is_nan(got - want) or is_infinite(got))
        or is_infinite(value) and math.abs(got) == largest_f32 and math.abs(want) > most
    end,
  }

  --- What the kernel of an engine that computes f32 promises.
  local function infinity_of(record, engine)
    if record.made_of then return "composed" end
    for _, kernel in ipairs(record.kernels) do
      if kernel.engine == engine and cases.has(kernel.dtypes, "f32") then
        return kernel.infinity
      end
    end
    return record.infinity
  end

  --- f32 as that engine has it beside f64 as ref has it: the same kind of number, and near where
  -- both are finite.
  local function check(record, case, engine)
    local r <close> = runner(cases.with_dtype(case, "f32"), engine)
    if not r then return 0 end
    local oracle <close> = runner(cases.with_dtype(case, "f64"), "ref")
    local allowed = allows[infinity_of(record, engine)]
    local n = 0
    for i, spec in ipairs(case.inputs) do
      local name = "in" .. i
      for _, place in ipairs(spec and cases.is_float[spec.dtype] and places(r.feeds[name]) or {}) do
        for _, value in ipairs(values) do
          local ok, got = pcall(r, name, with(r.feeds[name], place, value))
          local both, want = pcall(oracle, name, with(oracle.feeds[name], place, value))
          -- of what is made of ops, some choices of an attribute may stop
          if not ok or not both then
            assert(record.made_of and record.special and got.code == "data"
              and want.code == "data", got)
          end
          for k, out in ipairs(ok and r.outputs or {}) do
            local largest = 0
            for _, w in ipairs(want[k]) do
              largest = math.max(largest, math.abs(w) <= most and math.abs(w) or 0)
            end
            for j, w in ipairs(cases.is_float[out.dtype] and want[k] or {}) do
              local g = got[k][j]
              n = n + 1
              local near = math.abs(g - w) <= 1e-4 * math.max(largest, 1e-30)
              local over = math.abs(w) > most and g == (w > 0 and inf or -inf)
              if not (near or g == w or is_nan(g) and is_nan(w) or over
                  or allowed(g, w, value)) then
                error(("%s at %d of %s: element %d of %s by %s is %g, f64 has %g"):format(value,
                  place, spec.arg.name, j, record.outputs[math.min(k, #record.outputs)].name,
                  engine, g, w))
              end
            end
          end
        end
      end
    end
    return n
  end

  for _, name in ipairs(names) do
    local record = op.records[name]
    local list = (record.random or record.extent or record.nan == "stops") and {}
      or small_cases(record)
    if #list > 0 then
      it("in " .. name, function()
        for _, case in ipairs(list) do
          for _, engine in ipairs(case.compared and engines_of(record) or { "ref" }) do
            local ok, err = pcall(check, record, case, engine)
            if not ok then error(("%s: %s"):format(case.name, err), 0) end
          end
        end
      end)
    end
  end
end)
