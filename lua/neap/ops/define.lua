--- Ops of users: neap.op { .. } and neap.load_ops.
--
--   neap.op { "Cube",
--     inputs = { "x" }, outputs = { "y" },
--     attrs = { { "scale", "number", 1, doc = "a factor" } },
--     run = function(o, x) return x * x * x * o.scale end,
--     grad = function(o, x, y, dy) return dy * x * x * (3 * o.scale) end,
--     cases = "{ {x={2,3}}, {x={4}, scale=2} }" }
--
-- is an op like any other from then on: net:Cube, neap.cube(x), x:cube { scale = 2 }, help, plans,
-- gradients, neap.check.op "Cube". `run` gets the attributes and copies of the inputs, and gives
-- the outputs as tensors; it runs on the calling thread, nothing runs beside it, and what it
-- allocates no plan counts. `grad` is written in other ops, so that it has gradients itself, and
-- runs once when a net is planned. An op that is made of others says `of = function(o, x) .. end`
-- alone (neap.ops.compose): it needs none of the others, and costs nothing that its parts don't.
-- @module neap.ops.define
local compose = require "neap.ops.compose"
local core = require "neap.core"
local naming = require "neap.net.naming"
local net_module = require "neap.net"
local op = require "neap.op"
local record = require "neap.inner.record"
local fail = core.fail

local M = {}

local op_record = record.declare("neap.op", {
  doc = [[Makes an op known: to nets, tensors, blobs, help, plans, neap.check.op. A function gets
    the attributes as a table first.]],
  positions = { "name" },
  { "name", "name", required = true, doc = 'what it is called: "Cube", and x:cube()' },
  { "inputs", "table", required = true,
    doc = [[{ "x", { "w", "what it is", optional = true, dtypes = "integer" } }; dtypes are float
      (where nothing is said), integer, number, bool, any, or a list; variadic = true for the last:
      any number, in a list]] },
  { "outputs", "table", required = true, doc = 'the same: { "y" }' },
  { "attrs", "table", unset = "none",
    doc = [[options, as { "scale", "number", 1, doc = "a factor", min = 0 }: of type number,
      integer, boolean, choice (with choices), axis, axes, shape or dtype]] },
  { "run", "function", unset = "made of other ops: of",
    doc = [[(o, x, ..) -> y, ..: tensors; called on the calling thread in each run. It must depend
      on nothing else, and change nothing]] },
  { "infer", "function", unset = "outputs are like the first input",
    doc = [[(o, x, ..) -> { dtype =, shape = }, ..: the outputs' types; x is such a table, and
      may be given back]] },
  { "grad", "function|string|boolean", unset = "asking for one is an error",
    doc = [[(o, x, .., y, .., dy, ..) -> dx, ..: written in ops, nil where there is none; or a text,
      "d.x = d.y * x * 2"; false: nothing depends on the inputs smoothly, no gradient flows]] },
  { "run_grad", "function", unset = "grad",
    doc = "the same as grad on tensors, in each run: this gradient has none itself" },
  { "cost", "function", unset = "none", doc = "(o, x, ..) -> floating-point operations of a run" },
  { "of", "function", unset = "run",
    doc = "(o, x, ..) -> y, ..: what it is made of, in other ops" },
  { "exact", "boolean", false,
    doc = "with of: it only moves elements; else halves are computed in f32 and rounded once" },
  { "cases", "string", unset = "none", doc = [[what neap.check.op tries, as Lua: "{ {x={2,3}},
      {x={{4}, low=0, high=1}, scale=2} }"]] },
  { "summary", "string", unset = "where it was defined", doc = "what it does, in one sentence" },
  { "math", "string", unset = "none", doc = 'one line, "y = x^3"' },
  { "example", "string", unset = "a call", doc = "Lua that uses it" },
  { "source", "string", unset = "where it was defined", doc = "where it is described" },
  example = [[neap.op { "Cube", inputs = { "x" }, outputs = { "y" },
    run = function(o, x) return x * x * x end, grad = "d.x = d.y * x * x * 3" }]],
})

-- ---- the record ---------------------------------------------------------------------------------

-- Words of Lua, and what is no method of tensors and blobs but a field.
local reserved = {}
for word in ("and break do else elseif end false for function goto if in local nil not or repeat \z
  return then true until while shape dtype name role net"):gmatch "%a+" do
  reserved[word] = true
end

--- Raises unless an op may be called so: what it is called in lower case must be free, too.
local function check_name(name)
  local low = op.snake(name)
  if op.records[name] or rawget(core.Net, name) then
    fail(("neap.op: \"%s\" is the name of %s already"):format(name,
      op.records[name] and "an op" or "a method of nets"))
  end
  local neap = require "neap"
  if reserved[low] or op.functions[low] or rawget(core.Tensor, low) ~= nil
    or rawget(neap, low) ~= nil then
    fail(("neap.op: \"%s\" would be \"%s\" as a function, which is %s"):format(name, low,
      reserved[low] and "taken" or "there already"))
  end
end

--- Raises for a field by name in what is a list: pairs have no order, so nothing would read it.
local function check_list(who, what, list, of)
  for key in pairs(list) do
    if math.type(key) ~= "integer" then
      fail(("%s: %s is a list of %s: nothing reads its field \"%s\""):format(who, what, of,
        tostring(key)))
    end
  end
end

--- Operands as compose has them: { name, doc, dtypes =, .. }.
local function operands(who, list, what)
  local out = {}
  check_list(who, what, list, "names, or { name, doc }")
  if #list == 0 then fail(("%s: %s is a list of names, { \"x\" }"):format(who, what)) end
  for i, x in ipairs(list) do
    if type(x) == "string" then x = { x } end
    if type(x) ~= "table" or type(x[1]) ~= "string" then
      fail(("%s: %s[%d] expects a name, or { name, doc }"):format(who, what, i))
    end
    for key in pairs(x) do
      if key ~= 1 and key ~= 2 and key ~= "dtypes" and key ~= "optional" and key ~= "variadic" then
        fail(("%s: %s[%d] has an unknown field \"%s\""):format(who, what, i, tostring(key)))
      end
    end
    out[i] = { x[1], x[2] or (what == "inputs" and "an input" or "an output"),
      dtypes = x.dtypes or "float", optional = x.optional, variadic = x.variadic }
  end
  return out
end

-- ---- what C calls -------------------------------------------------------------------------------

--- Inputs as the user's functions get them: absent ones nil, those of a variadic one in a list.
local function spread(r, list)
  local n, out = #r.inputs, {}
  for i = 1, n do out[i] = list[i] or nil end
  if r.inputs[n].variadic then out[n] = table.move(list, n, #list, 1, {}) end
  return out, n
end

local function type_text(t) return ("%s (%s)"):format(t.dtype, table.concat(t.shape, ",")) end

local function name_of(list, i) return list[math.min(i, #list)].name end

--- The types of the outputs, checked.
-- What infer says, or the first input's type for all outputs.
local function infer_types(r, o, types, n_out)
  local args, n = spread(r, types)
  local out = r.infer and table.pack(r.infer(o, table.unpack(args, 1, n)))
    or { n = n_out, types[1] or false }
  for k = 1, n_out do
    -- Without infer all outputs have the first input's type.
    local t = out[k] or not r.infer and out[1]
    if type(t) ~= "table" or not record.is("shape", t.shape) then
      fail(("%s: infer gives no { dtype =, shape = } for %s"):format(r.name,
        name_of(r.outputs, k)))
    end
    local dtype = t.dtype or types[1] and types[1].dtype
    if not record.is("dtype", dtype) then
      fail(("%s: infer says that %s is of dtype %s, which there is not"):format(r.name,
        name_of(r.outputs, k), tostring(dtype)))
    end
    out[k] = { dtype = dtype, shape = t.shape }
  end
  return out
end

--- What the script gives as its cost.
local function cost_of(r, o, types)
  local args, n = spread(r, types)
  local flops = r.cost(o, table.unpack(args, 1, n))
  if type(flops) ~= "number" or flops ~= flops or flops < 0
    or flops == math.huge then
    fail(("%s: cost gives %s, expected a number"):format(r.name, tostring(flops)))
  end
  return flops
end

--- The outputs of a run, checked against what infer said.
local function run(r, o, tensors, types)
  local args, n = spread(r, tensors)
  local out = table.pack(r.run(o, table.unpack(args, 1, n)))

  -- A number will do for a scalar. The dtypes and shapes are those that the plan has bytes for.
  for k, t in ipairs(types) do
    local y = out[k]
    if type(y) == "number" and #t.shape == 0 then y = core.tensor(y, t.dtype) end
    if not op.is_tensor(y) then
      fail(("%s: run gives a %s as %s, expected a tensor"):format(r.name, type(y),
        name_of(r.outputs, k)))
    end
    if type_text(y) ~= type_text(t) then
      fail(("%s: run gives %s as %s, expected %s"):format(r.name, type_text(y),
        name_of(r.outputs, k), type_text(t)))
    end
    out[k] = y
  end
  return out
end

--- A net of the gradient: its arguments are in1, .., out1, .., dout1, .. Gives the names of the
-- results, false where there is none.
local function gradient_net(r, o, ins, outs, douts, want)
  local net = net_module.new(r.name .. "_grad")
  local function declared(prefix, types)
    local blobs = {}
    for i, t in ipairs(types) do
      blobs[i] = t and net:input(prefix .. i, t.shape, t.dtype) or false
    end
    return blobs
  end

  -- Arguments in the order of the record of `grad`: inputs, outputs, gradients of outputs.
  local blobs = declared("in", ins)
  local args, n = spread(r, blobs)
  for _, list in ipairs { declared("out", outs), declared("dout", douts) } do
    for k = 1, #outs do args[n + k] = list[k] or nil end
    n = n + #outs
  end

  -- The user's function builds ops, as in any net; numbers and tensors that it gives become
  -- constants.
  local given = table.pack(naming.inside(net, function()
    return r.grad(o, table.unpack(args, 1, n))
  end))
  -- Gradients of a variadic input come as a list.
  local last = #r.inputs
  if r.inputs[last].variadic and type(given[last]) == "table" and not op.is_blob(given[last]) then
    given = table.move(given[last], 1, #ins - last + 1, last, given)
  end
  local names = {}
  -- A gradient that nobody wants is dropped: its ops have no reader then.
  for i, x in ipairs(ins) do
    local dx = given[i]
    if type(dx) == "number" or op.is_tensor(dx) then dx = net:const(dx, x and x.dtype) end
    if dx and not op.is_blob(dx) then
      fail(("%s: grad gives a %s as the gradient of %s"):format(r.name, type(dx),
        name_of(r.inputs, i)))
    end
    if dx and want[i] and type_text(dx) ~= type_text(x) then
      fail(("%s: grad gives %s as the gradient of %s, which is %s"):format(r.name, type_text(dx),
        name_of(r.inputs, i), type_text(x)))
    end
    names[i] = dx and want[i] and dx.name or false
  end
  return net, names
end

--- The functions that C calls, by the user's own. `options` reads the attributes.
local function functions_of(r, options)
  local f = {}
  function f.infer(attrs, types, n_out)
    local o = options:read(attrs)
    if r.cost then cost_of(r, o, types) end -- here a failure can be told
    return infer_types(r, o, types, n_out)
  end
  function f.run(attrs, tensors, types) return run(r, options:read(attrs), tensors, types) end
  if type(r.grad) == "function" then
    function f.grad(attrs, ...) return gradient_net(r, options:read(attrs), ...) end
  end
  if r.cost then
    function f.cost(attrs, types) return cost_of(r, options:read(attrs), types) end
  end
  return f
end

-- ---- definitions --------------------------------------------------------------------------------

--- Makes an op known that the script's functions compute.
-- @param r table: name, inputs, outputs, fields and functions
local function define_run(r, where)
  local options = record.new(r.name, r.fields)
  local inputs, outputs = compose.operands(r.inputs), compose.operands(r.outputs)

  -- The user's functions see attributes by name; C knows them by the record.
  local own = { name = r.name, inputs = inputs, outputs = outputs, run = r.run, infer = r.infer,
    grad = r.grad, cost = r.cost }
  local made = functions_of(own, options)
  made.name, made.summary, made.math = r.name, r.summary, r.math
  made.example, made.source, made.cases = r.example, r.source, r.cases
  made.inputs, made.outputs, made.attrs = inputs, outputs, compose.attrs(options.fields)
  made.internal, made.no_grad = r.internal == true, r.grad == false
  made.grad_formula = type(r.grad) == "string" and r.grad or nil
  core.define_op(made, where)
  op.define(core.record(r.name))
end

--- The op that run_grad runs, and the gradient that calls it.
local function backward_op(r, where)
  local back = { name = r.name .. "Grad", fields = r.fields, internal = true, outputs = {},
    summary = "Backward of " .. r.name .. ".", math = r.math, example = r.example,
    source = r.source }

  -- Only inputs of floats alone have gradients: those are the backward op's outputs.
  local by, n_in = {}, #r.inputs
  for i, x in ipairs(r.inputs) do
    if x.variadic then fail(r.name .. ": run_grad goes with a fixed number of inputs; use grad") end
    if x.dtypes == "float" then
      by[#by + 1] = i
      back.outputs[#by] = { "d" .. x[1], "gradient of " .. x[1] }
    end
  end
  if #by == 0 then fail(r.name .. ": run_grad: no input is of floats alone") end

  -- It reads what the forward read and gave, and the gradients of the outputs, some of which may be
  -- missing.
  back.inputs = table.move(r.inputs, 1, n_in, 1, {})
  for _, y in ipairs(r.outputs) do back.inputs[#back.inputs + 1] = y end
  for _, y in ipairs(r.outputs) do
    back.inputs[#back.inputs + 1] = { "d_" .. y[1], "gradient of " .. y[1], optional = true,
      dtypes = y.dtypes }
  end

  -- A gradient is like its input; a missing input has none, and an empty tensor stands for it.
  function back.infer(_, ...)
    local types, out = table.pack(...), {}
    for k, i in ipairs(by) do out[k] = types[i] or { shape = { 0 }, dtype = "f32" } end
    return table.unpack(out)
  end
  function back.run(o, ...)
    local all, out, xs = table.pack(r.run_grad(o, ...)), {}, table.pack(...)
    for k, i in ipairs(by) do
      out[k] = all[i] or (xs[i] and xs[i] * 0 or core.zeros { 0 })
    end
    return table.unpack(out)
  end
  define_run(back, where)

  -- The gradient of the forward op calls the backward op, and puts its results to the inputs that
  -- they are of.
  return function(o, ...)
    local given, list, dx = table.pack(...), {}, {}
    for i = 1, #back.inputs do list[i] = given[i] or false end
    local out = table.pack(op.apply(back.name, list, o, #by))
    for k, i in ipairs(by) do dx[i] = given[i] and out[k] or nil end
    return table.unpack(dx, 1, n_in)
  end
end

--- "x, w" of a list of operands.
local function names(list)
  local out = {}
  for i, x in ipairs(list) do out[i] = type(x) == "table" and x[1] or x end
  return table.concat(out, ", ")
end

--- The attributes that a list of fields declares.
local function fields_of(who, attrs)
  local fields, positions = {}, {}
  check_list(who, "attrs", attrs, "{ name, type, default, doc = }")
  for i, f in ipairs(attrs) do
    if type(f) ~= "table" or type(f[1]) ~= "string" or type(f[2]) ~= "string" then
      fail(("%s: attrs[%d] expects { name, type, default, doc = }"):format(who, i))
    end
    fields[i], positions[i] = f, f[1]
    f.doc = f.doc or f[1]
    if f[3] == nil and not f.required then f.unset = f.unset or "as the op says" end
  end
  fields.positions = positions
  return fields
end

--- neap.op { .. }: see the record.
function M.op(given)
  local o = op_record:read(given)
  local name, where = o.name, core.line()
  local who = ("neap.op \"%s\""):format(name)
  if not name:match "^%u%w*$" then
    fail(who .. ": a name begins with a capital, letters and digits follow")
  end
  check_name(name)

  -- Either the script computes (run), or other ops do (of): what belongs to one way is refused with
  -- the other.
  if (o.of == nil) == (o.run == nil) then
    fail(who .. (o.of and ": of and run exclude each other" or ": one of run and of is expected"))
  end
  for _, field in ipairs(o.of and { "infer", "grad", "run_grad", "cost" } or {}) do
    if o[field] ~= nil then fail(("%s: with of there is no %s"):format(who, field)) end
  end
  if o.exact and o.run then fail(who .. ": exact goes with of") end
  if o.grad ~= nil and o.run_grad then fail(who .. ": grad and run_grad exclude each other") end
  if o.grad == true then fail(who .. ": grad expects a function, a text or false") end
  local r = { name = name, inputs = operands(who, o.inputs, "inputs"),
    outputs = operands(who, o.outputs, "outputs"), fields = fields_of(who, o.attrs or {}),
    run = o.run, infer = o.infer, grad = o.grad, run_grad = o.run_grad, cost = o.cost,
    summary = o.summary or "An op of " .. where .. ".", math = o.math
      or ("%s = %s(%s)"):format(names(o.outputs), name, names(o.inputs)),
    example = o.example or ("neap.%s(%s)"):format(op.snake(name), names(o.inputs)),
    source = o.source or where, cases = o.cases }

  -- Made of ops it is a record of compose's, else one of C's that calls back.
  if o.of then
    local spec = table.move(r.fields, 1, #r.fields, 2, r)
    spec[1], spec.of, spec.exact = name, o.of, o.exact
    compose.define(spec)
  else
    if r.run_grad then r.grad = backward_op(r, where) end
    define_run(r, where)
  end
end

--- neap.load_ops(path) -> names of the ops of a plugin, a shared library written by neap/record.h;
-- or nil, message, code for a file that can't be loaded.
function M.load_ops(path)
  -- The library's names are checked before C takes its records.
  local function check(name)
    if not op.records[name] then check_name(name) end
  end
  local names, message, code = core.load_ops(path, check)
  if not names then return nil, message, code end
  for _, name in ipairs(names) do
    if not op.records[name] then op.define(core.record(name)) end
  end
  return names
end

return M
