--- Ops that graph alone makes, called by hand with shapes, dtypes, attributes and arities that
-- graph would never give them: each call is refused with a located error, or runs within its
-- operands. (Under `make asan` a read or write out of bounds ends the test.)
local neap = require "neap"
local core = require "neap.core"
local cases = require "neap.check.cases"
local op = require "neap.op"
local support = require "support"

local is_option = { tol = true, grad = true, wrt = true, outputs = true, engines = true }
local codes = { shape = true, attribute = true, dtype = true, graph = true, argument = true }

--- A call as plain data: inputs {shape, dtype, low, high} or false, attributes.
local function parse(record, case)
  local ins, attrs, names = {}, {}, {}
  for i, arg in ipairs(record.inputs) do
    local given = case[arg.name]
    names[arg.name] = true
    if given and type(given[1]) == "table" and type(given[1][1]) == "table" then
      given = given[1]
    end
    local long = given and type(given[1]) == "table"
    ins[i] = given and {
      shape = long and given[1] or { table.unpack(given) }, dtype = given.dtype or arg.dtypes[1],
      low = given.low,
      high = given.high,
    }
      or false
  end
  for key, value in pairs(case) do
    if not names[key] and not is_option[key] then attrs[key] = value end
  end
  while #ins > 0 and not ins[#ins] do ins[#ins] = nil end
  return ins, attrs, case.outputs
end

local function numbers(spec)
  local t = core.eager("Uniform", {}, {
    shape = spec.shape, low = spec.low or 0, high = spec.high or 2, dtype = "f64",
  })
  if spec.dtype ~= "f32" and spec.dtype ~= "f64" then t = core.eager("Floor", { t }, {}) end
  return t:to(spec.dtype)
end

--- Builds, checks and, when that is taken, runs the call. Returns "refused" or "ran"; raises what
-- is not a located error.
local function attempt(record, ins, attrs, n_out, engine)
  local net, blobs, feeds = neap.net(record.name), {}, {}
  local ok, err = pcall(function()
    for i, spec in ipairs(ins) do
      blobs[i] = spec and net:declare("in" .. i, "input", spec.shape, spec.dtype)
      if spec then feeds["in" .. i] = numbers(spec) end
    end
    net:outputs { net:op(record.name, blobs, n_out, attrs) }
    net:check()
  end)
  if not ok then
    assert(type(err) ~= "string" and codes[err.code], ("%s: %s"):format(record.name, tostring(err)))
    assert(
      tostring(err):find(record.name, 1, true) and err.line and err.line:find "gradient_ops_spec",
      tostring(err))
    return "refused"
  end
  local ws <close> = neap.workspace { store = false, engine = engine }
  local ran, fault = pcall(ws.run, ws, net, feeds)
  -- a label out of range is a fault of the data
  assert(ran or codes[fault.code] or fault.code == "data", tostring(fault))
  return ran and "ran" or "refused"
end

local function changed(shape, change)
  local out = { table.unpack(shape) }
  change(out)
  return out
end

--- Shapes near one: a dimension more or less, sizes 0, 1, halved, doubled, one more, one less;
-- dimensions exchanged; nothing.
local function neighbours(shape)
  local list = {
    {}, { 0 }, { 1 }, { 7, 5, 3 }, changed(shape, function(s) table.insert(s, 1, 2) end),
    changed(shape, function(s) s[#s + 1] = 2 end),
    changed(shape, function(s) s[#s] = nil end),
  }
  for d = 1, #shape do
    for _, n in ipairs { 0, 1, shape[d] - 1, shape[d] + 1, shape[d] * 2, shape[d] // 2 } do
      if n >= 0 then list[#list + 1] = changed(shape, function(s) s[d] = n end) end
    end
    if d > 1 then list[#list + 1] = changed(shape, function(s) s[d], s[1] = s[1], s[d] end) end
  end
  return list
end

--- Calls f(ins, attrs) for the case with one thing changed at a time.
local function each_change(ins, attrs, f)
  for i = 1, #ins do
    if ins[i] then
      for _, shape in ipairs(neighbours(ins[i].shape)) do
        local other = { table.unpack(ins) }
        other[i] = setmetatable({ shape = shape }, { __index = ins[i] })
        f(other, attrs)
      end
    end
    for _, dtype in ipairs { "f64", "f16", "i64", "u8", "bool" } do
      local other = { table.unpack(ins) }
      other[i] = ins[i] and setmetatable({ dtype = dtype }, { __index = ins[i] })
      f(other, attrs)
    end
    local other = { table.unpack(ins) }
    other[i] = false
    f(other, attrs)
  end
  for key, value in pairs(attrs) do
    local function with(x)
      local other = {}
      for k, v in pairs(attrs) do other[k] = v end
      other[key] = x
      f(ins, other)
    end
    if type(value) == "table" then
      for _, list in ipairs(neighbours(value)) do with(list) end
      with(changed(value, function(s) s[1] = -1 end))
    elseif math.type(value) == "integer" then
      for _, n in ipairs { 0, 1, -1, value + 1, value * 3, 1 << 40 } do with(n) end
    elseif type(value) == "boolean" then
      with(not value)
    end
  end
end

--- Records without cases, each with one that stands for it.
local extra = {
  MaxPoolGrad = 'return { {dy={2,3,3,3}, stash={{54}, dtype="u8"}, kernel={2}, shape={2,3,6,7}} }',
  MaxPoolTake = 'return { {x={2,3,6,7}, stash={{54}, dtype="u8"}, kernel={2}, shape={2,3,6,7}} }',
  AdaptiveMaxPoolGrad =
    'return { {dy={2,3,3,3}, stash={{54}, dtype="u8"}, output_size={3}, shape={2,3,6,7}} }',
  AdaptiveMaxPoolTake =
    'return { {x={2,3,6,7}, stash={{54}, dtype="u8"}, output_size={3}, shape={2,3,6,7}} }',
}

--- All that graph alone makes; what has subnets can't be called at all.
local checked = {}
for _, name in ipairs(cases.own_names()) do
  local record = op.records[name]
  if record.internal and not record.control then checked[#checked + 1] = name end
end

it("every op that graph alone makes has cases", function()
  assert.is_true(#checked > 40, "the registry gives " .. #checked)
  for _, name in ipairs(checked) do assert(op.records[name].cases or extra[name], name) end
end)

describe("an op that graph alone makes, called by hand with wrong operands, is refused or \z
    stays within them:", function()
  for _, name in ipairs(checked) do
    local record = op.records[name]
    if record then
      it(name, function()
        local own_cases = assert(load(extra[name] or "return " .. record.cases))()
        local n = { refused = 0, ran = 0 }
        for _, case in ipairs(own_cases) do
          local ins, attrs, n_out = parse(record, case)
          for _, engine in ipairs { "ref", support.last_engine() } do
            each_change(ins, attrs, function(changed_ins, changed_attrs)
              local outcome = attempt(record, changed_ins, changed_attrs, n_out, engine)
              n[outcome] = n[outcome] + 1
            end)
          end
        end
        assert.is_true(n.refused > 0, "nothing was refused")
      end)
    end
  end
end)
