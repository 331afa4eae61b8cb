--- Every op, tested from the `cases` of its record and nothing else: what is written there is what
-- is run (see lua/neap/check/cases.lua).
local neap = require "neap"
local core = require "neap.core"
local op = require "neap.op"
local cases = require "neap.check.cases"
local differences = require "neap.check.differences"

local has = cases.has
local with_dtype, values_of = cases.with_dtype, cases.values_of
local cases_of, net_of, run = cases.cases_of, cases.net_of, cases.run
local elements, uses = cases.elements, cases.uses

local function type_text(t) return ("%s (%s)"):format(t.dtype, table.concat(t.shape, ",")) end

--- Equal bits, but for the payload of a NaN.
local function assert_same(want, got, what)
  assert.are.equal(type_text(want), type_text(got), what)
  local a, b = elements(want), elements(got)
  for i = 1, #a do
    local same = a[i] == b[i] and 1 / a[i] == 1 / b[i] or a[i] ~= a[i] and b[i] ~= b[i]
    if not same then
      error(("%s differs at element %d: expected %s, got %s"):format(what, i, a[i], b[i]), 2)
    end
  end
end

local function assert_near(want, got, relative, what)
  assert.are.equal(type_text(want), type_text(got), what)
  local a, b, largest = elements(want), elements(got), 0
  for i = 1, #a do
    if math.abs(a[i]) < math.huge then largest = math.max(largest, math.abs(a[i])) end
  end
  for i = 1, #a do
    local near =
      a[i] == b[i] or math.abs(a[i] - b[i]) <= relative * largest or a[i] ~= a[i] and b[i] ~= b[i]
    if not near then
      error(("%s differs at element %d: expected %s, got %s"):format(what, i, a[i], b[i]), 2)
    end
  end
end

--- Forward and gradient of an engine in f32 against ref.
local function check_engine(case, engine)
  if not case.compared then return false end
  local net, loss, grads, constants = differences.loss_net(case)
  if not net then
    net, grads, constants = net_of(case), {}, {}
  end
  local feeds = differences.merged(values_of(case), constants)
  local ws <close>, program = run(net, feeds, { engine = engine })
  if not uses(program, engine) then return false end
  local ref <close> = run(net, feeds, { engine = "ref" })
  for _, name in ipairs(net:outputs()) do -- the loss is a sum that may cancel
    if name ~= loss then
      assert_near(ref:fetch(name), ws:fetch(name), case.tolerance, name .. " by " .. engine)
    end
  end
  for name, gradient in pairs(grads) do
    assert_near(ref:fetch(gradient), ws:fetch(gradient), case.tolerance,
      ("gradient of %s by %s"):format(name, engine))
  end
  return true
end

--- Shapes and places
-- -------------------------------------------------------------------------------------------------

--- What the net says of an output before it runs is what is there after it; the op run at once
-- gives the same bits.
local function check_types(case)
  local net, outputs = net_of(case)
  local feeds = values_of(case)
  local ws <close> = run(net, feeds)
  local ins = {}
  for i = 1, #case.inputs do ins[i] = feeds["in" .. i] or false end
  if #case.record.enforced > 0 then -- writes what it reads, in nets only
    for _, out in ipairs(outputs) do
      assert.are.equal(type_text(out), type_text(ws:fetch(out.name)), out.name)
    end
    return
  end
  local at_once = case.record.random and {}
    or { core.eager(case.record.name, ins, case.attrs, case.n_out) }
  for k, out in ipairs(outputs) do
    local got = ws:fetch(out.name)
    if case.record.extent then -- inferred is a bound
      assert.are.equal(out.dtype, got.dtype)
      for d, n in ipairs(got.shape) do
        assert.is_true(n <= out.shape[d], out.name .. " is longer than inferred")
      end
    else
      assert.are.equal(type_text(out), type_text(got), "inferred and computed type of " .. out.name)
    end
    if not case.record.random then assert_same(got, at_once[k], out.name .. " run at once") end
  end
end

--- Copies of the inputs go through the op, whose output `pair[2]` is written over input `pair[1]`
-- by name, or not. Returns the net and the names of the results.
local function place_net(case, pair, in_place)
  local record, net, ins, outs, results = case.record, neap.net(case.record.name), {}, {}, {}
  for i, spec in ipairs(case.inputs) do
    ins[i] = spec and net:op("Copy", { net:declare("in" .. i, "input", spec.shape, spec.dtype) },
      { "copy" .. i }, {})
  end
  local n_out = case.n_out or 0
  for _, arg in ipairs(case.n_out and {} or record.outputs) do
    n_out = n_out + (arg.optional and 0 or 1)
  end
  for k = 1, math.max(n_out, pair[2]) do
    outs[k] = in_place and k == pair[2] and "copy" .. pair[1] or "out" .. k
  end
  for k, out in ipairs { net:op(record.name, ins, outs, case.attrs) } do
    local arg = record.outputs[k] or record.outputs[#record.outputs]
    if not arg.stash then -- a stash is its backward's alone: in no blob
      results[#results + 1] = "result" .. k
      net:op("Copy", { out }, { "result" .. k }, {})
    end
  end
  net:outputs(results)
  return net, results
end

--- In place gives the bits of out of place, dead bytes poisoned. Returns whether the planner did
-- put one over the other.
local function check_in_place(case, pair)
  if not case.inputs[pair[1]] then return nil end
  local feeds = values_of(case)
  local apart, results = place_net(case, pair, false)
  local over = place_net(case, pair, true)
  local first <close> = run(apart, feeds, { policy = "none" })
  local second = neap.workspace { store = false, seed = 7 }
  second:poison(true)
  second:init(over)
  for name, t in pairs(feeds) do second:feed(name, t) end
  local program = second:compile(over)
  program:run()
  for k, name in ipairs(results) do
    assert_same(first:fetch(name), second:fetch(name), ("output %d in place"):format(k))
  end
  local offsets, n = {}, 0
  for _, row in ipairs(program.plan:values()) do
    if row.blob == "copy" .. pair[1] and row.bytes > 0 then
      n = n + 1
      offsets[n] = row.offset_bytes
    end
  end
  return n == 2 and offsets[1] == offsets[2]
end

--- Errors
-- -------------------------------------------------------------------------------------------------

--- Builds and checks a net of the op; the error that it raises, or nil.
local function error_of(case, change)
  local ok, err = pcall(function()
    local net, ins = neap.net(case.record.name), {}
    for i, spec in ipairs(case.inputs) do
      ins[i] = spec and { "in" .. i, spec.shape, spec.dtype } or false
    end
    local attrs = {}
    for key, value in pairs(case.attrs) do attrs[key] = value end
    change(ins, attrs)
    for i, one in ipairs(ins) do
      ins[i] = one
        and net:declare(one[1], #case.record.enforced > 0 and "state" or "input", one[2], one[3])
    end
    local outs = cases.overwritten(case.record, ins)
    local outputs = { net:op(case.record.name, ins, outs or case.n_out, attrs) }
    if not outs then net:outputs(outputs) end
    net:check()
  end)
  if not ok then return err end
end

--- The error is one of ours with that code, and says which op and where.
local function assert_error(err, code, record, what)
  assert(err, what .. " raised nothing")
  assert(type(err) ~= "string", ("%s raised a bare string: %s"):format(what, tostring(err)))
  assert.are.equal(code, err.code, ("%s: %s"):format(what, tostring(err)))
  assert(tostring(err):find(record.name, 1, true),
    ("%s does not name the op: %s"):format(what, tostring(err)))
  assert(err.line and err.line:find("records_spec.lua:%d"),
    ("%s is not located: %s"):format(what, tostring(err.line)))
end

local function check_arity(case)
  local record, last = case.record, case.record.inputs[#case.record.inputs]
  local n_required = 0
  for _, arg in ipairs(record.inputs) do n_required = n_required + (arg.optional and 0 or 1) end
  if n_required > 0 then
    assert_error(error_of(case, function(ins)
      for i = #ins, n_required, -1 do ins[i] = nil end
    end), "graph", record, "an input too few")
    assert_error(error_of(case, function(ins) ins[1] = false end), "graph", record,
      "a first input left out")
  end
  if not (last and last.variadic) then
    assert_error(error_of(case, function(ins)
      for i = 1, #record.inputs + 1 do ins[i] = ins[i] or { "more" .. i, { 2 }, "f32" } end
    end), "graph", record, "an input too many")
  end
end

local function check_dtypes(case)
  for i, spec in ipairs(case.inputs) do
    for _, dtype in ipairs { "bool", "u8", "i64", "f32", "f64" } do
      if spec and not has(spec.arg.dtypes, dtype) then
        local err = error_of(case, function(ins) ins[i][3] = dtype end)
        assert_error(err, "dtype", case.record, ("%s of dtype %s"):format(spec.arg.name, dtype))
      end
    end
  end
end

--- Each input with a dimension more, one less, and each of its sizes one larger: the op takes it,
-- or says SHAPE.
local function check_shapes(case)
  local function try(i, shape)
    local err = error_of(case, function(ins) ins[i][2] = shape end)
    if err then
      local what = ("%s (%s)"):format(case.inputs[i].arg.name, table.concat(shape, ","))
      -- an axis may be out of range now
      assert_error(err, err.code == "attribute" and "attribute" or "shape", case.record, what)
    end
  end
  for i, spec in ipairs(case.inputs) do
    local n = spec and #spec.shape or 0
    if spec then try(i, table.move(spec.shape, 1, n, 1, { [n + 1] = 3 })) end
    if n > 0 then try(i, table.move(spec.shape, 1, n - 1, 1, {})) end
    for d = 1, n do
      local shape = table.move(spec.shape, 1, n, 1, {})
      shape[d] = shape[d] + 1
      try(i, shape)
    end
  end
end

local function check_attributes(case)
  local record = case.record
  local function expect(key, value, what)
    assert_error(error_of(case, function(_, attrs) attrs[key] = value end), "attribute", record,
      ("%s = %s"):format(key, what or tostring(value)))
  end
  expect("no_such_attribute", 1)
  for _, attr in ipairs(record.attrs) do
    local is_list = attr.type == "ints" or attr.type == "floats" or attr.type == "axes"
    if attr.required then expect(attr.name, nil, "nothing") end
    if attr.type ~= "net" then expect(attr.name, print, "a function") end
    if attr.type == "enum" then expect(attr.name, "no such choice") end
    if attr.type == "int" then expect(attr.name, 1.5) end
    if attr.type == "axis" then
      expect(attr.name, 0)
      expect(attr.name, 99)
    end
    for _, bound in ipairs {
      attr.least and attr.least - 1 or false, attr.most and attr.most + 1 or false,
    } do
      if bound and math.abs(bound) < 2 ^ 52 then
        if attr.type ~= "float" and attr.type ~= "floats" then bound = math.tointeger(bound) end
        expect(attr.name, is_list and { bound } or bound, tostring(bound))
      end
    end
  end
end

--- All records
-- -------------------------------------------------------------------------------------------------

local n_in_place, n_difference, compared = 0, 0, {}

for _, name in ipairs(cases.own_names()) do
  local record = op.records[name]
  local list = cases_of(record)
  if #list > 0 then
    describe(name, function()
      local function each(what, f)
        it(what, function()
          for _, case in ipairs(list) do
            local ok, err = xpcall(f, function(e) return tostring(e) end, case)
            if not ok then error(("%s: %s"):format(case.name, err), 0) end
          end
        end)
      end
      each("has the types that it infers, in nets and at once", check_types)
      if record.gradient and not record.no_grad and not record.internal then
        for _, engine in ipairs(cases.engines_of(record)) do
          each("has the gradient that differences show, by " .. engine, function(case)
            n_difference = n_difference
              + (differences.check(with_dtype(case, "f64"), engine, differences.loss_net) or 0)
          end)
        end
      end
      for _, engine in ipairs(cases.engines_of(record)) do
        if engine ~= "ref" then
          each("is near ref by " .. engine, function(case)
            if check_engine(case, engine) then compared[name .. " by " .. engine] = true end
          end)
        end
      end
      for _, pair in ipairs(record.inplace) do
        each(("gives the same bits in place, %s over %s"):format(record.outputs[pair[2]].name,
          record.inputs[pair[1]].name), function(case)
          if check_in_place(case, pair) then n_in_place = n_in_place + 1 end
        end)
      end
      it("refuses too few and too many inputs", function() check_arity(list[1]) end)
      it("refuses dtypes that its record does not list", function() check_dtypes(list[1]) end)
      each("takes or refuses other shapes, and says which", check_shapes)
      it("refuses unknown, missing, mistyped and out-of-range attributes", function()
        check_attributes(list[1])
      end)
    end)
  end
end

describe("the cases of all records", function()
  it("reach derivatives, each engine of each op, and in-place pairs that \z
      the planner used", function()
    assert.is_true(n_in_place >= 150, "only " .. n_in_place .. " pairs were put in place")
    assert.is_true(n_difference >= 500, "only " .. n_difference .. " derivatives were compared")
    local missed = {}
    for name, record in pairs(op.records) do
      for _, engine in ipairs(record.internal and {} or cases.engines_of(record)) do
        if engine ~= "ref" and not compared[name .. " by " .. engine] then
          missed[#missed + 1] = name .. " by " .. engine
        end
      end
    end
    table.sort(missed)
    assert.are.equal("", table.concat(missed, ", "), "kernels that no case reached")
  end)
end)
