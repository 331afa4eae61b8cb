--- The cases of op records: what is written there, as nets, inputs and runs.
--
-- A case maps inputs to {2,3} or {{2,3}, dtype =, low =, high =}, of a variadic input to a list of
-- those; the other keys are attributes, but for `outputs` (how many), `tol` (relative tolerance of
-- engines against ref), `engines = false` (they differ, because drawn inputs do not belong together
-- as those of a real backward do), `grad = false` (no finite differences) and `wrt = {"x"}` (finite
-- differences of these inputs only: the others are constants to the backward). Numbers are drawn
-- uniformly from low to high, -1.5 to 1.5 when nothing is said; integers stay below high; `eye` is
-- added on the diagonals of matrices. In the
-- cases of long sums they are 0.1 when nothing is said, `tol` is how exact f32 is beside f64, and
-- `of = {"dv"}` the outputs that are looked at.
-- @module neap.check.cases
local neap = require "neap"
local core = require "neap.core"
local dtypes = require "neap.inner.dtypes"
local op = require "neap.op"

local M = {}

local default_tolerance = 1e-5 -- f32, relative to the largest absolute value

local is_option = { tol = true, grad = true, wrt = true, outputs = true, engines = true, of = true }
M.is_float = dtypes.is_float

-- ---- cases --------------------------------------------------------------------------------------

function M.has(list, x)
  for _, y in ipairs(list) do
    if x == y then return true end
  end
  return false
end

local function can_be_had(engine)
  for _, row in ipairs(core.engines) do
    if row.name == engine then return row.missing == nil end
  end
end

--- Names of the engines that have a kernel of an op and can be had in this build.
function M.engines_of(record)
  local names = {}
  for _, engine in ipairs(record.engines) do
    if can_be_had(engine) then names[#names + 1] = engine end
  end
  return names
end

--- {shape, dtype, low, high} of what a case says about one input.
local function spec_of(arg, given, low, high)
  -- A list of sizes is the shape alone; a list whose first item is a list has more to say.
  local long = type(given[1]) == "table"
  local dtype = given.dtype or M.has(arg.dtypes, "f32") and "f32" or arg.dtypes[1]
  return { arg = arg, shape = long and given[1] or given, dtype = dtype, eye = given.eye,
    low = given.low or low, high = given.high or high }
end

--- Inputs by position (false where absent) and attributes of one case.
local function parse(record, case, low, high)
  local inputs, attrs, names = {}, {}, {}
  for i, arg in ipairs(record.inputs) do
    local given = case[arg.name]
    names[arg.name] = true

    -- One operand of a variadic input is written like any other; several are a list of those.
    if given and arg.variadic and type(given[1]) == "table" and (type(given[2]) == "table"
        or type(given[1][1]) == "table") then
      for _, one in ipairs(given) do inputs[#inputs + 1] = spec_of(arg, one, low, high) end
    else
      inputs[i] = given and spec_of(arg, given, low, high) or false
    end
  end

  -- Inputs left out at the end are none; one in the middle is an absent operand.
  while #inputs > 0 and not inputs[#inputs] do inputs[#inputs] = nil end
  for key, value in pairs(case) do
    if not names[key] and not is_option[key] then attrs[key] = value end
  end
  return { record = record, inputs = inputs, attrs = attrs,
    tolerance = case.tol or default_tolerance, tol = case.tol, differentiable = case.grad ~= false,
    wrt = case.wrt, of = case.of, n_out = case.outputs, compared = case.engines ~= false }
end

local function parse_all(record, text, low, high)
  local list = {}
  if not text or record.control then return list end
  for i, case in ipairs(assert(load("return " .. text, record.name))()) do
    list[i] = parse(record, case, low, high)
    list[i].name = ("case %d"):format(i)
  end
  return list
end

--- All cases of a record, with a name each.
function M.cases_of(record) return parse_all(record, record.cases, -1.5, 1.5) end

--- Those of its long sums.
function M.long_cases_of(record) return parse_all(record, record.long_cases, 0.1, 0.1) end

--- A case in which every floating input has `dtype`; wide ones have f32 beside halves.
function M.with_dtype(case, dtype)
  local inputs = {}

  -- An input that is wide is f32 beside halves (sums, statistics); one that does not take the dtype
  -- keeps its own.
  local wide = (dtype == "bf16" or dtype == "f16") and "f32" or dtype
  for i, spec in ipairs(case.inputs) do
    local own = spec and (spec.arg.wide and wide or dtype)
    local takes = spec and M.is_float[spec.dtype] and M.has(spec.arg.dtypes, own)
    inputs[i] = spec and setmetatable({ dtype = takes and own or spec.dtype }, { __index = spec })
  end
  return setmetatable({ inputs = inputs }, { __index = case })
end

--- The same numbers at each call, whatever the dtype.
function M.values_of(case)
  local feeds = {}

  -- One seed, and all numbers as f64: a cast gives the same numbers in every dtype.
  neap.seed(1234)
  for i, spec in ipairs(case.inputs) do
    if spec then
      local options = { low = spec.low, high = spec.high, dtype = "f64" }
      if spec.dtype == "bool" then options.low, options.high = 0, 2 end
      for d, n in ipairs(spec.shape) do options[d] = n end
      if #spec.shape == 0 then options.shape = {} end
      local drawn
      if spec.low == spec.high then
        drawn = core.eager("Constant", {}, { shape = spec.shape, value = spec.low, dtype = "f64" })
      else
        drawn = core.eager("Uniform", {}, { shape = spec.shape, low = options.low,
          high = options.high, dtype = "f64" })
      end
      if not M.is_float[spec.dtype] then drawn = core.eager("Floor", { drawn }, {}) end
      if spec.eye and #spec.shape > 1 then
        drawn = drawn + neap.eye(spec.shape[#spec.shape]):to "f64" * spec.eye
      end
      feeds["in" .. i] = drawn:to(spec.dtype)
    end
  end
  return feeds
end

-- ---- nets of one op -----------------------------------------------------------------------------

--- The output that must be written over an input, by output.
function M.enforced_of(record)
  local input_of = {}
  for _, pair in ipairs(record.enforced) do input_of[pair[2]] = pair[1] end
  return input_of
end

--- Names of Neap's own ops: those of scripts say in which line they are.
function M.own_names()
  local names = {}
  for _, name in ipairs(core.op_names()) do
    if not (op.records[name].source or ""):find ":%d+$" then names[#names + 1] = name end
  end
  return names
end

--- Names of the outputs of an op that writes over some of its inputs: theirs, and of its own what
-- writes over none. Nil for other ops.
-- @param ins blobs by position
function M.overwritten(record, ins)
  if #record.enforced == 0 then return nil end
  local enforced, outs = M.enforced_of(record), {}
  for k = 1, #record.outputs do
    local input = enforced[k] and ins[enforced[k]]
    outs[k] = input and input.name or not enforced[k] and "out" .. k or nil
  end
  return outs
end

--- Declares the inputs, as `role`, and adds the op once. Returns net, outputs, inputs by position.
function M.net_of(case, role)
  local record = case.record
  local net, ins = neap.net(record.name), {}
  for i, spec in ipairs(case.inputs) do
    ins[i] = spec and net:declare("in" .. i, #record.enforced > 0 and "state" or role or "input",
      spec.shape, spec.dtype)
  end

  -- An op that writes over its inputs has them as state, under the same names.
  local outs = M.overwritten(record, ins)
  local outputs = { net:op(record.name, ins, outs or case.n_out, case.attrs) }
  local enforced = M.enforced_of(record)
  -- What is written over an input is no output of the net: it is read from the state.
  local own = {}
  for k, blob in ipairs(outputs) do
    if not ins[enforced[k]] then own[#own + 1] = blob end
  end
  if #own > 0 then net:outputs(own) end
  return net, outputs, ins
end

--- A workspace in which a net has run once. Random ops draw the same numbers each time. A net is
-- named after its op: one whose length depends on data can't be planned.
function M.run(net, feeds, memory)
  if op.records[net:name()].extent then
    memory = { executor = "dynamic", engine = memory and memory.engine }
  end
  local ws = neap.workspace { store = false, seed = 7 }
  ws:init(net)
  for name, t in pairs(feeds) do ws:feed(name, t) end
  local program = ws:compile(net, memory)
  program:run()
  return ws, program
end

function M.elements(t) return (t.dtype == "bool" and t:to "u8" or t):reshape(-1):totable() end

--- Whether the op, or its backward, has a kernel of the engine in this program.
function M.uses(program, engine)
  for _, row in ipairs(program.plan:ops()) do
    if row.engine == engine then return true end
  end
  return false
end

return M
