--- Every op, planned with sizes and attributes that no machine has room for: each net is refused
-- with a located error, or its plan holds what it says; what comes out small is run. (Under `make
-- asan` a number that leaves its range ends the test.)
local neap = require "neap"
local op = require "neap.op"
local support = require "support"

local extremes = {
  0, -1, 1 << 31, (1 << 31) - 1, 1 << 32, 1 << 45, 1 << 62, math.maxinteger, math.mininteger,
}
local numbers = { 0.0, -1.0, 2.0 ^ 31, 2.0 ^ 62, -2.0 ^ 63, 1e300, -1e300, math.huge, 0 / 0 }
local is_option = { tol = true, grad = true, wrt = true, outputs = true, engines = true }
local item_bytes = {
  f32 = 4, f64 = 8, bf16 = 2, f16 = 2, i8 = 1, u8 = 1, i16 = 2, u16 = 2, i32 = 4, i64 = 8, bool = 1,
}

--- A case as plain data: inputs {shape, dtype} or false, attributes, how many outputs.
local function parse(record, case)
  local ins, attrs, names = {}, {}, {}
  for i, arg in ipairs(record.inputs) do
    local given = case[arg.name]
    names[arg.name] = true
    local several = given
      and arg.variadic
      and type(given[1]) == "table"
      and (type(given[2]) == "table" or type(given[1][1]) == "table")
    for k, one in ipairs(several and given or { given or false }) do
      local long = one and type(one[1]) == "table"
      ins[i + k - 1] = one
        and { shape = long and one[1] or { table.unpack(one) }, dtype = one.dtype or arg.dtypes[1] }
    end
  end
  for key, value in pairs(case) do
    if not names[key] and not is_option[key] then attrs[key] = value end
  end
  while #ins > 0 and not ins[#ins] do ins[#ins] = nil end
  return { ins = ins, attrs = attrs, n_out = case.outputs }
end

local function with(t, key, value)
  local copy = {}
  for k, v in pairs(t) do copy[k] = v end
  copy[key] = value
  return copy
end

--- Calls f(call) with one number after the other made extreme: each size of each input, then all of
-- it; each attribute, and each item of it.
local function each_extreme(record, call, f)
  for i, input in ipairs(call.ins) do
    for d = 1, input and #input.shape or 0 do
      for _, n in ipairs(extremes) do
        f(with(call, "ins", with(call.ins, i, with(input, "shape", with(input.shape, d, n)))))
      end
    end
    -- all inputs of the same sizes, and larger together
    for _, n in ipairs(input and #input.shape > 0 and { 1 << 23, 1 << 32, 1 << 62 } or {}) do
      local ins = {}
      for k, other in ipairs(call.ins) do
        ins[k] = other
          and with(other, "shape", #other.shape > 0 and with(other.shape, 1, n) or other.shape)
      end
      if i == 1 then f(with(call, "ins", ins)) end
    end
  end
  for _, attr in ipairs(record.attrs) do
    local function try(value) f(with(call, "attrs", with(call.attrs, attr.name, value))) end
    local list = type(call.attrs[attr.name]) == "table" and call.attrs[attr.name] or nil
    if attr.type == "int" or attr.type == "axis" then
      for _, n in ipairs(extremes) do try(n) end
    elseif attr.type == "float" then
      for _, n in ipairs(numbers) do try(n) end
    elseif attr.type == "ints" or attr.type == "axes" then
      for _, n in ipairs(extremes) do
        try { n }
        try { n, n }
        for d = 1, list and #list or 0 do try(with(list, d, n)) end
      end
    end
  end
end

--- What the words of a plan's row, "(2,3)", say as elements, in floating point: nothing wraps
-- around there.
local function elements(shape)
  local n = 1.0
  for d in shape:gmatch "%d+" do n = n * tonumber(d) end
  return n
end

--- The figures of a plan against each other: bytes are enough for the elements, and what lies in
-- the arena lies inside.
local function check_plan(plan, what)
  assert(plan:verify(), what)
  for _, row in ipairs(plan:_values()) do
    local least = elements(row.shape) * item_bytes[row.dtype]
    assert(row.bytes >= least,
      ("%s: %s %s %s has %d bytes"):format(what, row.blob, row.dtype, row.shape, row.bytes))
    assert(
      not row.offset_bytes
        or row.offset_bytes >= 0 and row.offset_bytes + row.bytes <= plan.arena_bytes,
      ("%s: %s reaches to %d + %d of an arena of %d"):format(what, row.blob, row.offset_bytes or 0,
        row.bytes, plan.arena_bytes))
  end
end

--- Runs what is small enough, on ones, in kernels that then have the attributes' numbers; what the
-- data makes impossible is a fault of theirs.
local function run_small(net, plan, call, memory)
  local bytes = plan.arena_bytes
  for _, row in ipairs(plan:_values()) do bytes = bytes + row.bytes end
  if bytes > 1 << 16 then return end
  local ws <close> = neap.workspace { store = false, seed = 1 }
  local ok, err = pcall(function()
    for i, input in ipairs(call.ins) do
      if input then ws:feed("in" .. i, neap.ones(with(input.shape, "dtype", input.dtype))) end
    end
    ws:init(net)
    ws:compile(net, memory):run()
  end)
  assert(ok or type(err) == "table" and err.code == "data", tostring(err))
end

local is_float = { f32 = true, f64 = true }

--- The net of one call, checked op by op as it is made, then planned, with the backward pass when
-- that is asked for: "refused" or "planned".
local function attempt(record, call, memory, train)
  local net, blobs, wrt = neap.net(record.name), {}, {}
  local ok, plan = pcall(function()
    for i, input in ipairs(call.ins) do
      local role = #record.enforced > 0 and "state"
        or train and input and is_float[input.dtype] and "parameter"
        or "input"
      blobs[i] = input and net:declare("in" .. i, role, input.shape, input.dtype)
      if role == "parameter" then wrt[#wrt + 1] = blobs[i] end
    end
    local outs
    if #record.enforced > 0 then
      outs = {}
      for _, pair in ipairs(record.enforced) do
        outs[pair[2]] = blobs[pair[1]] and blobs[pair[1]].name
      end
    end
    local made = { net:op(record.name, blobs, outs or call.n_out, call.attrs) }
    if train then net:gradient(net:op("Sum", { made[1] }, 1, {}), { wrt = wrt }) end
    if #record.enforced == 0 then net:outputs(made) end
    return net:plan(memory)
  end)
  if ok then
    check_plan(plan, record.name)
    if not train then run_small(net, plan, call, memory) end
    return "planned"
  end
  local line = type(plan) == "table" and plan.line or tostring(plan)
  assert(line:find("sizes_spec.lua:", 1, true),
    ("%s: not located: %s"):format(record.name, tostring(plan)))
  assert(type(plan) == "string" or plan.code ~= "internal",
    ("%s: %s"):format(record.name, tostring(plan)))
  return "refused"
end

local checked = {}
for name, record in pairs(op.records) do
  if record.cases and not record.control then checked[#checked + 1] = name end
end
table.sort(checked)

describe("with sizes and attributes beyond any machine an op is refused where it stands, or its \z
    plan holds its blobs:", function()
  for _, name in ipairs(checked) do
    it(name, function()
      local record, n = op.records[name], { refused = 0, planned = 0, trained = 0 }
      for _, case in ipairs(assert(load("return " .. record.cases, name))()) do
        for _, engine in ipairs(support.engines()) do
          local memory = {
            store = false, engine = engine, executor = record.extent and "dynamic" or nil,
          }
          each_extreme(record, parse(record, case), function(call)
            local outcome = attempt(record, call, memory)
            n[outcome] = n[outcome] + 1
            local trains =
              record.gradient and not record.no_grad and #record.enforced == 0 and not record.extent
            if outcome == "planned" and trains and #call.ins > 0 then
              outcome = attempt(record, call, memory, true)
              n.trained = n.trained + (outcome == "planned" and 1 or 0)
            end
          end)
        end
      end
      assert.is_true(n.refused + n.planned > 0 or #record.inputs + #record.attrs == 0)
    end)
  end
end)
