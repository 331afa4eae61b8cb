--- Ops that are made of other ops, each by one record:
--
--   compose.define { "HuberLoss", summary = "..", math = "..", example = "..", source = "..",
--     inputs = { { "x", "prediction" }, { "target", "shape of x" } },
--     outputs = { { "loss", "scalar" } },
--     { "delta", "number", 1, above = 0, doc = "where the square ends" },
--     cases = "{ {x={4,5}, target={4,5}} }",
--     of = function(o, x, target) .. return loss end }
--
-- They are called as those of C are: net:HuberLoss({"x", "t"}, "loss", {delta = 2}),
-- neap.huber_loss(x, t), x:huber_loss(t, {delta = 2}), on blobs and tensors alike. On a net the
-- call adds the ops that `of` asks for, so that gradients, fusion, plans and files need nothing
-- new; they stand in a scope of their own, under the op's name.
--
-- A record's options are fields as in neap.inner.record. An input is { name, doc, dtypes =,
-- optional =, variadic = }: dtypes are one of the words below, floats where nothing is said; a
-- variadic one comes to `of` as a list. `exact = true`: the op only moves elements; else halves are
-- computed in f32 and rounded once, at the end, so that no digits are lost on the way. `once`: its
-- gradient has none, since it is made of a loop. `extent`: how long its output is depends on data.
-- `nan` is a word of neap_nan (neap/record.h) where a NaN does other than spread, and `special`
-- says what; infinities and empties give what the ops within make of them.
-- `cases` are as in the records of C.
--
-- INVARIANT: `of` sees nothing but its operands and options, and so gives the same net each time.
-- @module neap.ops.compose
local core = require "neap.core"
local dtypes = require "neap.inner.dtypes"
local lists = require "neap.inner.lists"
local op = require "neap.op"
local record = require "neap.inner.record"
local fail = core.fail

local compose = {}

local function joined(a, b) return table.move(b, 1, #b, #a + 1, lists.copy(a)) end

local words = { float = dtypes.floats, integer = dtypes.integers, bool = { "bool" } }
words.number = joined(words.float, words.integer)
words.any = joined(words.number, words.bool)
local is_half = { bf16 = true, f16 = true }

-- ---- the record, in the words of those of C -----------------------------------------------------

function compose.operands(list)
  local out = {}
  for i, spec in ipairs(list) do
    out[i] = { name = spec[1], doc = spec[2], optional = spec.optional == true,
      variadic = spec.variadic == true, stash = false, wide = false,
      dtypes = type(spec.dtypes) == "table" and spec.dtypes or words[spec.dtypes or "float"]
        or fail(("dtypes = \"%s\" of %s is none of float, integer, number, bool, any"):format(
          tostring(spec.dtypes), spec[1])) }
  end
  return out
end

-- Types of attributes by those of options.
local type_of_option = { number = "float", integer = "int", boolean = "bool", choice = "enum",
  axis = "axis", axes = "axes", shape = "ints", dtype = "dtype", string = "string" }

function compose.attrs(fields)
  local out = {}
  for i, f in ipairs(fields) do
    out[i] = { name = f.name, doc = f.doc, type = type_of_option[f.type:match "%a+"] or f.type,
      choices = f.choices and table.concat(f.choices, "|"), required = f.required == true,
      default = f.default, least = f.min, most = f.max }
  end
  return out
end

local function check_record(spec)
  for _, field in ipairs { "summary", "math", "example", "source", "inputs", "outputs", "of" } do
    if spec[field] == nil then fail(("op %s: its record has no %s"):format(spec[1], field)) end
  end
  if op.records[spec[1]] then fail(("an op is called %s already"):format(spec[1])) end
end

--- Makes the op known: to nets, tensors, blobs, neap, help and `neap ops`.
-- @param spec table, see above
function compose.define(spec)
  check_record(spec)

  -- The fields of the record are positions, too, as attributes of C's ops are.
  local name, fields, positions = spec[1], table.move(spec, 2, #spec, 1, {}), {}
  for i, field in ipairs(fields) do positions[i] = field[1] end
  fields.positions = positions
  local options = record.new(name, fields)
  op.define { name = name, summary = spec.summary, math = spec.math, example = spec.example,
    source = spec.source, inputs = compose.operands(spec.inputs),
    outputs = compose.operands(spec.outputs),
    attrs = compose.attrs(options.fields), enforced = {}, engines = {}, internal = false,
    control = false, gradient = not spec.no_grad, no_grad = spec.no_grad, cases = spec.cases,
    made_of = spec.of, options = options, exact = spec.exact == true, once = spec.once == true,
    extent = spec.extent == true, nan = spec.nan or "spreads", special = spec.special }
end

-- ---- calls --------------------------------------------------------------------------------------

local function has(list, x)
  for _, y in ipairs(list) do
    if x == y then return true end
  end
  return false
end

local function one_of(list)
  return #list == 1 and list[1]
    or table.concat(list, ", ", 1, #list - 1) .. " or " .. list[#list]
end

--- Raises unless the operands are as many, and of such dtypes, as the record says.
local function check_inputs(r, inputs)
  local declared = r.inputs
  local last = declared[#declared]
  if #inputs > #declared and not last.variadic then
    fail(("%s takes %d input%s, got %d"):format(r.name, #declared, #declared == 1 and "" or "s",
      #inputs))
  end
  -- Every input that is there has a dtype of its list; one that is missing may be.
  for i = 1, math.max(#inputs, #declared) do
    local spec, x = declared[math.min(i, #declared)], inputs[i]
    if x and not has(spec.dtypes, x.dtype) then
      fail(("%s: %s is %s, expected %s"):format(r.name, spec.name, tostring(x.dtype),
        one_of(spec.dtypes)))
    elseif not x and not spec.optional then
      fail(("%s: input %d, \"%s\", is missing"):format(r.name, i, spec.name))
    end
  end
end

--- The half that results are rounded to, nil where none are: that of the first float among the
-- inputs.
local function half_of(r, inputs)
  if r.exact then return nil end
  for _, x in ipairs(inputs) do
    if x and has(words.float, x.dtype) then return is_half[x.dtype] and x.dtype or nil end
  end
end

--- Whole numbers as integers, so that 2.0 is an axis, as it is for C's ops.
local function whole(v)
  if type(v) == "number" then return math.tointeger(v) or v end
  if type(v) ~= "table" or getmetatable(v) ~= nil then return v end
  local out = {}
  for key, item in pairs(v) do out[key] = whole(item) end
  return out
end

--- The results of an op on operands, in a list. All are tensors, or blobs of one net.
-- @param r its record
-- @param inputs false where absent
-- @param attrs as the user gave them
function compose.call(r, inputs, attrs)
  local o = r.options:read(whole(attrs))
  check_inputs(r, inputs)

  -- Halves: in f32 inside, rounded once at the end.
  local half, n, args = half_of(r, inputs), #r.inputs, {}
  for i, x in ipairs(inputs) do
    args[i] = x and half and is_half[x.dtype] and x:to "f32" or x
  end
  -- A variadic input is a list, an absent one nil.
  if r.inputs[n].variadic then
    args[n] = table.move(args, n, #args, 1, {})
  end
  for i = 1, n do args[i] = args[i] or nil end

  -- What comes out has the half of the inputs; integers and flags stay.
  local out = table.pack(r.made_of(o, table.unpack(args, 1, n)))
  for i, y in ipairs(out) do
    out[i] = half and y.dtype == "f32" and y:to(half) or y
  end
  return out
end

--- The op's page, laid out as those of C's ops.
function compose.text(r)
  local lines = { r.name .. ": " .. r.summary, "  " .. r.math }
  local function add(name, text)
    lines[#lines + 1] = record.wrapped(text, ("  %-10s   "):format(name), (" "):rep(15))
  end
  for _, side in ipairs { "inputs", "outputs" } do
    lines[#lines + 1] = side
    for _, x in ipairs(r[side]) do
      local kind = x.variadic and "; any number" or x.optional and "; may be left out" or ""
      add(x.name, x.doc .. kind)
    end
  end
  if #r.attrs > 0 then lines[#lines + 1] = "attributes" end
  for _, f in ipairs(r.options.fields) do
    add(f.name, ("%s, %s: %s"):format(record.expectation(f), record.otherwise(f), f.doc))
  end
  for i, x in ipairs(r.inputs) do
    if i == 1 then lines[#lines + 1] = "dtypes" end
    add(x.name, table.concat(x.dtypes, ", "))
  end
  if r.special then
    lines[#lines + 1] = "numbers"
    add("special", r.special)
  end
  lines[#lines + 1] = "made of other ops" .. (r.gradient and ", whose gradients it has" or "")
  lines[#lines + 1] = "example\n  " .. r.example .. "\nsource\n  " .. r.source
  return table.concat(lines, "\n") .. "\n"
end

op.set_composed(compose.call, compose.text)

return compose
