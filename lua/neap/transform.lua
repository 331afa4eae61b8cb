--- Functions of tensors as nets, and their derivatives: neap.trace, compile, grad, value_and_grad,
-- vjp, jvp and hessian.
--
--   local slope = neap.grad(function(x) return x:tanh():sum() end)
--   print(slope(neap.linspace(-1, 1, 5)))
--
-- Called on tensors, a transform calls f once for every combination of shapes and dtypes, on blobs
-- of a net of its own, and runs that net from then on. Of what f reads beside its arguments,
-- tensors and the parameters of models are read as they are at each call (what a model would write,
-- running statistics, stays as it is); f is called anew when one of its upvalues (or of the
-- functions among them) is another number, text, boolean, tensor or function than it was. Globals
-- and what lies in tables are taken as they were at the first call. Called on blobs - in another
-- transform, in a module's forward, in a loss - it adds to their net. So transforms nest, and a
-- loss may hold a derivative.
--
-- What is drawn at random within follows neap.seed as all eager ops do: a call draws one number, by
-- which its net draws.
--
-- INVARIANT: a derivative is by arguments alone. f gets an Alias of each, so that what reads the
-- same blob elsewhere has no part in it.
-- @module neap.transform
local core = require "neap.core"
local op = require "neap.op"
local naming = require "neap.net.naming"
local net_module = require "neap.net"
local record = require "neap.inner.record"
local workspace = require "neap.workspace"
local fail = core.fail

local M = {}

-- ---- arguments and results ----------------------------------------------------------------------

local function check_function(f, who)
  local callable = type(f) == "function" or (debug.getmetatable(f) or {}).__call ~= nil
  if not callable then fail(("%s expects a function first, got a %s"):format(who, type(f))) end
end

--- The net that the arguments belong to, or the one that is being built where f may read its blobs;
-- nil where neither is.
local function net_around(args)
  for i = 1, args.n do
    if op.is_blob(args[i]) then return naming.net_within(args[i].net, "an argument") end
  end
  return op.net_being_built()
end

--- Tensors and numbers beside blobs, as blobs.
local function as_blobs(net, args)
  local out = { n = args.n }
  for i = 1, args.n do
    local x = args[i]
    if type(x) == "number" or op.is_tensor(x) then x = net:const(x) end
    out[i] = op.is_blob(x) and x
      or fail(("a transform expects tensors, got a %s as argument %d"):format(type(x), i))
  end
  return out
end

local function is_float(x) return x.dtype == nil or x.dtype:match "^b?f%d" ~= nil end

--- What f gives, as blobs that are no inputs and not twice the same.
local function results_of(net, who, f, args)
  local out = table.pack(f(table.unpack(args, 1, args.n)))
  if out.n == 0 then fail(who .. ": the function gives nothing") end

  -- An output of a net is made by an op of it, under a name of its own: inputs and repeated results
  -- are copied.
  local met = {}
  for k = 1, out.n do
    local y = out[k]
    if type(y) == "number" or op.is_tensor(y) then y = net:const(y) end
    if not op.is_blob(y) then
      fail(("%s: the function gives a %s as result %d, where a tensor is expected"):format(
        who, type(y), k))
    end
    if met[y] or y.role ~= "activation" then y = op.apply("Copy", { y }) end
    out[k], met[y] = y, true
  end
  return out
end

--- Which arguments a gradient is by: those of `wrt`, or else all floating-point ones.
local function positions(wrt, args, who)
  local list, met = {}, {}
  if args.n == 0 then fail(who .. ": the function is called without arguments") end
  if type(wrt) == "number" then wrt = { wrt } end
  if wrt ~= nil and (type(wrt) ~= "table" or #wrt == 0) then
    fail(who .. ": wrt expects the number of an argument, or a list of them")
  end
  -- Integers have no gradient, and are passed over where nobody asked for them.
  for i = 1, wrt and 0 or args.n do
    if is_float(args[i]) then list[#list + 1] = i end
  end
  for _, i in ipairs(wrt or {}) do
    if math.type(i) ~= "integer" or i < 1 or i > args.n then
      fail(("%s: wrt = %s is no argument: there are %d"):format(who, tostring(i), args.n))
    end
    if not is_float(args[i]) then
      fail(("%s: argument %d is %s: only floating-point ones have a gradient"):format(
        who, i, tostring(args[i].dtype)))
    end
    if met[i] then fail(("%s: wrt names argument %d twice"):format(who, i)) end
    list[#list + 1], met[i] = i, true
  end
  if #list == 0 then fail(who .. ": no argument is a floating-point tensor") end
  return list
end

-- ---- in a net -----------------------------------------------------------------------------------

local function aliases(args)
  local out = { n = args.n }
  for i = 1, args.n do out[i] = op.apply("Alias", { args[i] }) end
  return out
end

--- What stands beside y must be like it: broadcasting would count it more than once.
local function check_like(who, what, y, given)
  local function text(t) return ("%s (%s)"):format(t.dtype, table.concat(t.shape, ",")) end
  if text(y) ~= text(given) then
    fail(("%s: %s expects %s, got %s"):format(who, what, text(y), text(given)))
  end
end

--- The sum of all elements of a * b.
local function dot(a, b) return op.apply("Sum", { op.apply("Mul", { a, b }) }) end

--- Gradients of a scalar blob by blobs, in their order; zeros where it does not depend on one.
local function gradients(net, loss, blobs)
  local by_blob, list = net:gradient(loss, { wrt = blobs, allow_unused = true }), {}
  for i, x in ipairs(blobs) do list[i] = by_blob[x] end
  return list
end

--- f's results and the gradients of the first, which is a scalar, by those arguments.
local function derive(net, who, f, args, wrt)
  -- Aliases, so that the derivative is by these uses of the arguments alone.
  local own = aliases(args)
  local out = results_of(net, who, f, own)
  local loss, by = out[1], {}
  local n = 1
  for _, size in ipairs(loss.shape) do n = n * size end
  if n ~= 1 or not is_float(loss) then
    fail(("%s: the function gives %s (%s) first, where one floating-point number is expected; \z
      y:sum() or y:mean() makes one, neap.vjp takes others"):format(
        who, loss.dtype, table.concat(loss.shape, ",")))
  end
  for k, i in ipairs(wrt) do
    by[k] = own[i]
  end
  return out, gradients(net, loss, by)
end

-- ---- on tensors ---------------------------------------------------------------------------------

--- Parameters that f makes would be others in each net.
local function check_no_parameters(net, who)
  for _, row in ipairs(net:_blobs()) do
    if row.role == "parameter" or naming.is_layers_own(net, row.name) then
      fail(("%s: the function makes %s \"%s\", which belongs to no model here; give it as an \z
        argument, or use m:backward"):format(who, row.role, row.name))
    end
  end
end

--- Whether a net draws.
local function is_random(net)
  for _, row in ipairs(net:_ops()) do
    if op.records[row.type].random then return true end
  end
  return false
end

--- What a call draws by: the thread's next number, drawn when it is first asked for.
local function seed_of(draw)
  -- 2^24 seeds: what f32 tells apart.
  draw.seed = draw.seed
    or math.floor(core.eager("Uniform", {}, { shape = {} }):item() * 2 ^ 24)
  return draw.seed
end

--- The net of build(net, blobs) -> results, with inputs like the tensors.
-- @tparam table|nil captured  gets what f reads beside them: {input's name = tensor}
local function net_of(who, xs, build, captured)
  local net, blobs, names = net_module.new(who:gsub("%W", "_")), { n = xs.n }, {}
  for i = 1, xs.n do
    names[i] = xs.n == 1 and "x" or "x" .. i
    blobs[i] = net:input(names[i], xs[i].shape, xs[i].dtype)
  end

  -- From here on tensors that f meets become inputs of this net.
  if captured then net_module.capture(net, captured) end
  local out = naming.inside(net, build, net, blobs)
  net:outputs { table.unpack(out, 1, out.n) }
  return net, names, out
end

--- Numbers as tensors.
local function take_tensors(who, ...)
  local xs = table.pack(...)
  for i = 1, xs.n do
    if type(xs[i]) == "number" then xs[i] = core.tensor(xs[i]) end
    if not op.is_tensor(xs[i]) then
      fail(("%s expects tensors, got a %s as argument %d"):format(who, type(xs[i]), i))
    end
  end
  return xs
end

--- What a function reads as upvalues, and the functions among those: {function, position, value}
-- each.
local function upvalues_of(f, list, seen)
  -- A function of C or of Neap's own has upvalues, too, but none that a user changes.
  local info = type(f) == "function" and debug.getinfo(f, "Su")
  if not info or seen[f] or info.what == "C" or info.source:sub(1, 6) == "=neap:" then
    return list -- C's, or Neap's own
  end
  -- A table's content is not followed (see the head): the table itself stays the same one.
  seen[f] = true
  for i = 1, info.nups do
    local _, value = debug.getupvalue(f, i)
    if type(value) ~= "table" then list[#list + 1] = { f, i, value } end
    upvalues_of(value, list, seen)
  end
  return list
end

--- What of a model its nets follow from: its tree, and whether it trains.
local function model_version(root)
  return ("%d %s"):format(rawget(root, "_version"), rawget(root, "_mode"))
end

--- The models that a net was made with, as they were: {root = version}.
local function versions_of(net)
  local versions = {}
  for root in pairs(net_module.guests(net)) do versions[root] = model_version(root) end
  return versions
end

local function are_same(upvalues, versions)
  for root, version in pairs(versions) do
    if model_version(root) ~= version then return false end
  end

  -- NaN is not itself, but is no change either.
  for _, u in ipairs(upvalues) do
    local _, value = debug.getupvalue(u[1], u[2])
    if not rawequal(value, u[3]) and (value == value or u[3] == u[3]) then return false end
  end
  return true
end

-- Nets that a transform keeps: shapes come and go, and each holds kernels.
local most_nets = 8

--- A function of tensors that runs the net of build(net, blobs) -> results, made anew for each
-- combination of shapes and dtypes, and when what `f` reads has changed: call(draw, ..), where draw
-- is a table that calls which are to draw the same share.
local function compiled(who, f, build)
  local entries, order = {}, {} -- by key; keys, the one used longest ago first
  local function forget(key)
    if entries[key] then entries[key].ws:close() end
    entries[key] = nil
    for i, k in ipairs(order) do
      if k == key then table.remove(order, i) end
    end
  end
  local function make(key, xs)
    local entry = { captured = {} }
    entry.net, entry.names, entry.out = net_of(who, xs, build, entry.captured)
    check_no_parameters(entry.net, who)
    entry.random = is_random(entry.net)

    -- What the net was made of: when one of these changes, it is made anew.
    entry.upvalues, entry.versions = upvalues_of(f, {}, {}), versions_of(entry.net)

    -- The workspace holds the captured parameters' copies and the arena, and goes with the entry.
    entry.ws = workspace.new { store = false, seed = 0 }
    entry.ws:init(entry.net)

    -- Room for the new one: the entry of the same key goes, and the one used longest ago where
    -- there are too many.
    forget(key)
    if #order == most_nets then forget(order[1]) end
    entries[key] = entry
  end
  return function(draw, ...)
    -- Same dtypes and shapes, same net.
    local xs, key = take_tensors(who, ...), {}
    for i = 1, xs.n do key[i] = xs[i].dtype .. "(" .. table.concat(xs[i].shape, ",") .. ")" end
    key = table.concat(key, " ")

    -- The key moves to the end of the order in either case.
    if entries[key] == nil or not are_same(entries[key].upvalues, entries[key].versions) then
      make(key, xs)
      order[#order + 1] = key
    elseif order[#order] ~= key then
      for i, k in ipairs(order) do
        if k == key then order[#order + 1] = table.remove(order, i) end
      end
    end
    local entry, feeds, list = entries[key], {}, {}
    for i = 1, xs.n do feeds[entry.names[i]] = xs[i] end

    -- What is captured is read now: parameters as they are at this call.
    for name, t in pairs(entry.captured) do feeds[name] = op.is_tensor(t) and t or t() end
    if entry.random then entry.ws:_give_draw(seed_of(draw), 0) end
    local results = entry.ws:run(entry.net, feeds)
    for k = 1, entry.out.n do list[k] = results[entry.out[k].name] end
    return table.unpack(list, 1, entry.out.n)
  end
end

--- build(net, args) -> packed results, on blobs in their net, on tensors compiled.
-- @tparam table|nil draw  of calls that are to draw the same
local function lifted(who, f, build, draw)
  local on_tensors = compiled(who, f, build)
  return function(...)
    local args = table.pack(...)
    local net = net_around(args)
    if net == nil then return on_tensors(draw or {}, ...) end
    local out = build(net, as_blobs(net, args))
    return table.unpack(out, 1, out.n)
  end
end

-- ---- transforms ---------------------------------------------------------------------------------

--- neap.trace(f, x, ..) -> net: f as a net, whose inputs, x or x1, x2, .., are like the tensors.
function M.trace(f, ...)
  check_function(f, "neap.trace")
  local net = net_of("neap.trace", take_tensors("neap.trace", ...), function(inner, blobs)
    return results_of(inner, "neap.trace", f, blobs)
  end)
  return net
end

--- neap.compile(f) -> f': the same function, run as a planned net.
function M.compile(f)
  check_function(f, "neap.compile")
  return lifted("neap.compile", f, function(net, args)
    return results_of(net, "neap.compile", f, args)
  end)
end

local wrt_field = { "wrt", "any", says = "the number of an argument, or a list of them",
  unset = "every floating-point argument", doc = "what the gradient is by" }

local grad_record = record.declare("neap.grad", { call = "(f, {})",
  doc = [[A function of the same arguments that gives the gradients of f, whose first result is one
    number: dx, .. in the order of wrt. Nested it gives higher derivatives.]],
  wrt_field, example = "neap.grad(function(x) return x:tanh():sum() end)" })

local value_and_grad_record = record.declare("neap.value_and_grad", { call = "(f, {})",
  doc = [[The same with f's first result in front: value, dx, ..]],
  wrt_field, example = "neap.value_and_grad(function(x) return x:square():sum() end)" })

--- neap.grad(f [, {wrt =}]) -> function(x, ..) -> dx, ..: help(neap.grad).
function M.grad(f, given)
  check_function(f, "neap.grad")
  local wrt = grad_record:read(given).wrt
  return lifted("neap.grad", f, function(net, args)
    local list = positions(wrt, args, "neap.grad")
    local _, grads = derive(net, "neap.grad", f, args, list)
    grads.n = #list
    return grads
  end)
end

--- neap.value_and_grad(f [, {wrt =}]) -> function(x, ..) -> value, dx, ..: help(neap.grad).
function M.value_and_grad(f, given)
  check_function(f, "neap.value_and_grad")
  local wrt = value_and_grad_record:read(given).wrt
  return lifted("neap.value_and_grad", f, function(net, args)
    local list = positions(wrt, args, "neap.value_and_grad")
    local out, grads = derive(net, "neap.value_and_grad", f, args, list)
    return table.pack(out[1], table.unpack(grads, 1, #list))
  end)
end

--- The first half of the arguments, and the second.
local function halves(args)
  local n = args.n // 2
  return table.pack(table.unpack(args, 1, n)), table.pack(table.unpack(args, n + 1, args.n))
end

--- neap.vjp(f, x, ..) -> y, pull: f's value, and pull(dy) -> dx, .., the products of dy with the
-- Jacobians by every argument, which are floating-point tensors. pull runs f once more, and draws
-- what the value's run drew.
function M.vjp(f, ...)
  check_function(f, "neap.vjp")
  local xs = table.pack(...)
  for i = 1, xs.n do -- as they are now, whatever becomes of them
    if op.is_tensor(xs[i]) then xs[i] = xs[i]:clone() end
  end

  -- Both nets draw by one number, so that pull sees the dropout that the value saw.
  local draw = {}
  local value = lifted("neap.vjp", f, function(net, args)
    return results_of(net, "neap.vjp", f, aliases(args))
  end, draw)

  -- The forward again, in a net with the gradient of y times dy: nothing of the value's run is
  -- kept.
  local pull = lifted("neap.vjp", f, function(net, args)
    local dy = args[args.n]
    local own = aliases(table.pack(table.unpack(args, 1, args.n - 1)))
    local y = results_of(net, "neap.vjp", f, own)[1]
    check_like("neap.vjp", "what is pulled back", y, dy)
    local grads = gradients(net, dot(y, dy), own)
    grads.n = #grads
    return grads
  end, draw)
  return value(...), function(dy, ...)
    if dy == nil or select("#", ...) > 0 then
      fail "neap.vjp: pull expects one tensor, like the value"
    end
    local args = table.pack(table.unpack(xs, 1, xs.n))
    args[xs.n + 1] = dy
    return pull(table.unpack(args, 1, xs.n + 1))
  end
end

--- As a list with its length: one tensor is a list of one.
local function as_list(x)
  if type(x) ~= "table" or op.is_blob(x) then return { x, n = 1 } end
  return table.pack(table.unpack(x))
end

--- neap.jvp(f, x, v) -> y, dy: f's value and its derivative along v, a tensor like x; or lists of
-- as many for a function of several arguments. By two gradients: the first is linear in what it is
-- pulled by, and its own gradient by that is the derivative.
function M.jvp(f, x, v)
  check_function(f, "neap.jvp")
  local xs, vs = as_list(x), as_list(v)
  if xs.n ~= vs.n then
    fail(("neap.jvp expects a direction for each argument, got %d for %d"):format(vs.n, xs.n))
  end
  local args = table.pack(table.unpack(xs, 1, xs.n))
  table.move(vs, 1, vs.n, xs.n + 1, args)
  args.n = xs.n + vs.n
  return lifted("neap.jvp", f, function(net, all)
    local at, along = halves(all)
    local own = aliases(at)
    local y = results_of(net, "neap.jvp", f, own)[1]

    -- u stands for what the gradient is pulled by; its value does not matter, since the gradient is
    -- linear in it.
    local u = net:op("Constant", {}, 1, { shape = y.shape, dtype = y.dtype })
    local sum
    for i = 1, own.n do
      check_like("neap.jvp", ("direction %d"):format(i), own[i], along[i])
    end
    for i, g in ipairs(gradients(net, dot(y, u), own)) do
      local term = dot(g, along[i])
      sum = sum and op.apply("Add", { sum, term }) or term
    end
    return table.pack(y, gradients(net, sum, { u })[1])
  end)(table.unpack(args, 1, args.n))
end

local function zeros(shape)
  return core.eager("Constant", {}, { shape = { table.unpack(shape) }, dtype = shape.dtype })
end

--- neap.hessian(f) -> function(x) -> H of shape (x.., x..): the second derivatives of a function of
-- one tensor that gives one number, a run for each element. For small things.
function M.hessian(f)
  check_function(f, "neap.hessian")
  local row = compiled("neap.hessian", f, function(net, args)
    local own = aliases(table.pack(args[1]))
    local _, grads = derive(net, "neap.hessian", f, own, { 1 })
    return table.pack(gradients(net, dot(grads[1], args[2]), { own[1] })[1])
  end)
  return function(...)
    local xs = take_tensors("neap.hessian", ...)
    if xs.n ~= 1 then fail(("neap.hessian expects one tensor, got %d"):format(xs.n)) end
    local x, shape, n = xs[1], {}, 1
    for _, size in ipairs(x.shape) do n = n * size end
    local h, draw = zeros { n, n, dtype = x.dtype }, {}

    -- One row for each element of x: the gradient along it, of the gradient.
    for i = 1, n do
      local e = zeros { n, dtype = x.dtype }
      e[i] = 1
      h[i] = row(draw, x, e:reshape(x.shape)):reshape(n)
    end
    for twice = 0, 1 do table.move(x.shape, 1, #x.shape, twice * #x.shape + 1, shape) end
    return h:reshape(shape)
  end
end

return M
