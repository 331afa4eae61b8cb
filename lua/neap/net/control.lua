--- Control flow on nets: builders of ops that own subnets.
--
-- A branch, condition or body is a Lua function that runs once, when the net is built, on a subnet.
-- Outer blobs that it reads are captured; outer blobs that it writes by name are written outside
-- too. INVARIANT: a subnet's declared interface is (captures, results) in the order of the owner's
-- operands.
-- @module neap.net.control
local core = require "neap.core"
local op = require "neap.op"
local naming = require "neap.net.naming"
local scope_flow = require "neap.net.scope_flow"
local fail = core.fail

local Net = core.Net
local state_of, scope_of, handle = naming.state_of, naming.scope_of, require("neap.net.blob").handle
local written, is_known, reader = naming.written, naming.is_known, naming.reader

--- Whether a name that an If or a loop writes is one that it returns: not what scopes leave, nor
-- what a layer keeps for itself.
local function is_shown(net, hidden, name)
  return not hidden[name] and not naming.is_layers_own(net, name)
end

-- ---- subnets ------------------------------------------------------------------------------------

--- Builds a subnet by running f once on it, with handles of its parameters. Returns the subnet and
-- the names f returned.
-- @param params table|nil list of {name =, dtype =, shape =}; without a type it is what the owner
--   gives
local function build_branch(outer, name, f, params)
  -- The subnet lies in the scope that is open around it, and shares parameters as that does: its
  -- names read as if it stood there.
  local sub = outer:_sub(name)
  state_of(sub).outer = outer
  if scope_of(outer) ~= "" then state_of(sub).scopes[1] = scope_of(outer) end
  local partners = state_of(outer).partners
  if partners then state_of(sub).partners = { partners[#partners] } end
  local handles = {}

  -- Parameters with `own` are declared here, in the dtype and shape of what the owner gives: layers
  -- in f ask for shapes.
  for i, param in ipairs(params or {}) do
    if param.own then sub:_declare(param.name, "input", param.shape, param.dtype, nil, false) end
    handles[i] = handle(sub, param.name)
  end
  local results = table.pack(naming.inside(sub, f, sub, table.unpack(handles)))
  local names = {}
  for i = 1, results.n do names[i] = reader(sub, results[i], "a branch") end
  return sub, names
end

--- What a subnet reads from around it, and what it writes: lists in order of first appearance.
local function uses(sub)
  -- A name that was written before it is read is the subnet's own value.
  local reads, writes, defined, seen = {}, {}, {}, {}
  for _, row in ipairs(sub:_ops()) do
    for _, name in ipairs(row.inputs) do
      if name and not defined[name] and not seen[name] then
        seen[name] = true
        reads[#reads + 1] = name
      end
    end
    for _, name in ipairs(row.outputs) do
      if name and not defined[name] then
        defined[name] = true
        writes[#writes + 1] = name
      end
    end
  end
  return reads, writes, defined
end

local function append(to, seen, names, accept)
  for _, name in ipairs(names) do
    if not seen[name] and accept(name) then
      seen[name] = true
      to[#to + 1] = name
    end
  end
end

--- Results of a subnet as blobs of their own: one that is given twice is copied, and a name that is
-- written outside keeps that meaning.
local function own_results(sub, results, by_name)
  local taken, own = {}, {}

  -- A result under a name that is also written outside would be one blob for two operands.
  for _, name in ipairs(by_name) do taken[name] = true end
  for i, name in ipairs(results) do
    own[i] = taken[name] and sub:op("Copy", { name }).name or name
    taken[name] = true
  end
  return own
end

--- A list of { cond, f } pairs, and a last function for when none holds, from pair i on: cond, f, g
-- of an If, whose other branch is an If again.
local cases, choose, results_of

function cases(who, type_name, list, i)
  -- The rest of the list becomes the other branch: an If that stands in it, and is built only
  -- there.
  local pair, after = list[i], list[i + 1]
  if type(pair) ~= "table" or #pair ~= 2 or type(pair[2]) ~= "function" then
    fail(("%s: item %d of the list expects { condition, function }, got a %s"):format(
      who, i, type(pair) == "table" and #pair .. "-item list" or type(pair)))
  end
  if type(after) == "function" and list[i + 2] ~= nil then
    fail(("%s: item %d, for when no condition holds, must be the last"):format(who, i + 1))
  end
  if after == nil or type(after) == "function" then return pair[1], pair[2], after end
  return pair[1], pair[2],
    function(b) return results_of(b, type_name, cases(who, type_name, list, i + 1)) end
end

--- f(name) -> whether a name in a subnet of `net` is that of an outer blob. (A scope stays in its
-- net.)
local function outside_of(net)
  return function(name) return is_known(net, name) and not net:_is_scope(name) end
end

--- The branches of an If as functions, checked; a condition that is a function is built here.
-- @return cond, f, g
local function read_cases(net, who, cond, f, g)
  if type(cond) == "function" then cond = cond(net) end
  if type(f) ~= "function" or (g ~= nil and type(g) ~= "function") then
    fail(who .. " expects (cond, f [, g]), functions that build the branches")
  end
  return cond, f, g
end

--- Builds the branches of an If, one or two. @return list of { sub, results }
local function build_branches(net, who, f, g)
  local branch_name, branches = net:fresh_name "branch", {}
  for i, builder in ipairs { f, g } do
    local sub, results = build_branch(net, branch_name .. (i == 1 and ".then" or ".else"), builder)
    branches[i] = { sub = sub, results = results }
  end
  local first, second = branches[1], branches[2]
  if second and #first.results ~= #second.results then
    fail(("%s: the branches return %d and %d blobs"):format(who, #first.results, #second.results))
  end
  if not second and #first.results > 0 then
    fail(who .. ": a branch that returns blobs needs another one for when the condition is false")
  end
  return branches
end

--- What an If writes by name: outer blobs in any branch; without results also what both branches
-- define under a name that was given; what scopes leave.
local function names_written(branches, hidden, outside)
  local first, second = branches[1], branches[2]
  local function both(name)
    return second.defined[name]
      and not first.sub:_is_scope(name)
      and not naming.is_made_up(first.sub, name)
      and not naming.is_made_up(second.sub, name)
  end
  local names, seen = {}, {}
  for _, b in ipairs(branches) do append(names, seen, b.writes, outside) end
  if second and #first.results == 0 then append(names, seen, first.writes, both) end
  append(names, seen, first.writes, function(name) return hidden[name] end)
  return names
end

--- What an If takes from outside: what is read, results that come from outside, and the old values
-- of what may stay as it is.
local function names_captured(branches, written_names, outside)
  local captures, taken = {}, {}
  for _, b in ipairs(branches) do
    append(captures, taken, b.reads, outside)
    append(captures, taken, b.results, function(name) return not b.defined[name] end)
  end
  append(captures, taken, written_names, outside)
  return captures
end

--- The common part of If and AsyncIf. @return blobs, how many of them are results
function choose(net, type_name, cond, f, g)
  local who = "net:" .. type_name

  -- A list of pairs stands for nested Ifs.
  if type(cond) == "table" and not op.is_blob(cond) then
    if f ~= nil or g ~= nil then
      fail(who .. " expects (cond, f [, g]), or one list of { cond, f } pairs")
    end
    return choose(net, type_name, cases(who, type_name, cond, 1))
  end
  cond, f, g = read_cases(net, who, cond, f, g)
  local branches = build_branches(net, who, f, g)
  local first, second = branches[1], branches[2]

  -- Scopes first: what they leave is written to blobs by ops of the branches, which count below.
  local scopes = scope_flow.leave_branches(net, first.sub, second and second.sub)
  local hidden, outside = scope_flow.hidden(net, scopes), outside_of(net)
  for _, b in ipairs(branches) do b.reads, b.writes, b.defined = uses(b.sub) end
  local written_names = names_written(branches, hidden, outside)
  local captures = names_captured(branches, written_names, outside)

  -- Both branches give the results, then what is written by name, in one order: a branch that
  -- leaves a name alone gives its old value, which it has captured.
  local outs = {}
  for i = 1, #first.results do outs[i] = net:fresh_name(op.snake(type_name)) end
  for _, name in ipairs(written_names) do outs[#outs + 1] = name end
  for _, b in ipairs(branches) do
    local names = own_results(b.sub, b.results, written_names)
    table.move(written_names, 1, #written_names, #names + 1, names)
    b.sub:_interface(captures, names)
  end

  -- Results get names of the scope that is open; what is written by name has its full name.
  local out_names = {}
  for i, name in ipairs(outs) do
    out_names[i] = i <= #first.results and written(net, name) or name
  end
  local ins = { reader(net, cond, type_name), table.unpack(captures) }
  local names = naming.add(net, type_name, ins, out_names,
    { then_net = first.sub, else_net = second and second.sub or nil }, nil, scope_of(net),
    state_of(net).line, state_of(net).device)
  for _, b in ipairs(branches) do naming.keep_subnet(net, b.sub) end
  scope_flow.arrive(net, scopes)

  -- Blobs that only scopes, or a layer's statistics, need are nothing that the caller asked for.
  local blobs = {}
  for _, name in ipairs(names) do
    if is_shown(net, hidden, name) then blobs[#blobs + 1] = handle(net, name) end
  end
  return blobs, #first.results
end

--- What an If inside a branch returns, as that branch's own results: what it writes by name is
-- written, and not returned.
function results_of(net, type_name, ...)
  local blobs, n_result = choose(net, type_name, ...)
  return table.unpack(blobs, 1, n_result)
end

--- net:If(cond, f [, g]) -> blobs: f(sub) builds the branch taken when cond is not zero, g(sub) the
-- other one. What the functions return are the results, equally many; outer blobs that a branch
-- writes by name are written outside too. Without results and with both branches, a name that both
-- write is a result as well.
--
-- Several conditions, looked at one after the other: net:If { { c1, f1 }, { c2, f2 }, g }, or
-- net:If(c1, f1, net:Elif(c2, f2, g)). A condition that is a function is built where it is looked
-- at: what it computes is computed only when those before it are zero.
-- @usage net:If("cond", function(b) return b:Relu "x" end, function(b) return b:Copy "x" end)
function Net:If(cond, f, g) return table.unpack((choose(self, "If", cond, f, g))) end

--- net:Elif(cond, f [, g]) -> the other branch of an If: another condition, looked at when those
-- before it are zero.
-- @usage net:If("low", f, net:Elif(function(b) return b:Lt { "x", "limit" } end, g,
--   net:Elif("high", h, k)))
function Net:Elif(cond, f, g)
  if type(f) ~= "function" or (g ~= nil and type(g) ~= "function") then
    fail("net:Elif expects (cond, f [, g]), as the last argument of net:If")
  end
  return function(b) return results_of(b, "If", cond, f, g) end
end

--- net:AsyncIf(cond, f [, g]) -> blobs: If under another name. In `dag` the branch of either runs
-- on one lane while others run what does not depend on it; in `simple` neither overlaps anything.
-- @usage net:AsyncIf("cond", function(b) return b:Relu "x" end, function(b) return b:Copy "x" end)
function Net:AsyncIf(cond, f, g) return table.unpack((choose(self, "AsyncIf", cond, f, g))) end

-- ---- loops --------------------------------------------------------------------------------------

--- Raises for a field that is not known, with the nearest one.
local function check_fields(who, options, known)
  if type(options) ~= "table" then
    fail(("%s expects one table of options, got a %s"):format(who, type(options)))
  end
  for key in pairs(options) do
    if not known[key] then
      local near
      for name in pairs(known) do
        if type(key) == "string" and name:sub(1, 2) == key:sub(1, 2) then near = name end
      end
      fail(("%s: unknown field \"%s\"%s"):format(
        who, tostring(key), near and (", did you mean \"" .. near .. "\"?") or ""))
    end
  end
end

--- Full names of blobs that a loop takes: names, blobs, tensors or numbers.
local function operands(net, list, who)
  if list == nil then return {} end
  if type(list) ~= "table" or op.is_blob(list) or op.is_tensor(list) then list = { list } end
  local names = {}
  for i, x in ipairs(list) do names[i] = reader(net, x, who) end
  return names
end

--- Parameters of a subnet for blobs of the outer net: named afresh, since several may stand for one
-- blob.
local function parameters(net, names, base, rows)
  local params = {}
  for i, name in ipairs(names) do
    -- A row of a sequence has the sequence's shape without the first dimension, the steps.
    local dtype, shape = net:_type(name)
    if rows and shape then shape = table.move(shape, 2, #shape, 1, {}) end
    -- In a scope a fresh name is one that the scope has not; the subnet sees those without it, too.
    local fresh
    repeat fresh = net:fresh_name(base) until not is_known(net, fresh)
    params[i] = { name = fresh, dtype = dtype, shape = shape, own = true }
  end
  return params
end

--- The condition's subnet, the name it returns, and what it reads; nil where the loop has none.
local function condition(net, spec, name, states, outside)
  if not spec.cond then return nil, {}, {} end

  -- The condition sees the states, gives one flag, and writes nothing outside: it runs once more
  -- than the body.
  local cond, flags = build_branch(net, name, spec.cond, states)
  local reads, writes = uses(cond)
  if #flags ~= 1 then
    fail(("%s: the condition returns %d blobs, expected 1"):format(spec.who, #flags))
  end
  for _, blob in ipairs(writes) do
    if outside(blob) then
      fail(("%s: the condition writes \"%s\", which only the body may"):format(spec.who, blob))
    end
  end
  return cond, flags, reads
end

--- The common part of While and Recurrent.
-- @param spec table {type =, init = names, seq = names, cond = f|nil, step = f, body = attribute of
--   the body's net, attrs =}
-- @return table {final states, stacked rows, blobs written by name}
local function loop(net, spec)
  local loop_name = net:fresh_name(spec.type:lower())

  -- The body is built first: what it returns says how many rows are stacked, and what it writes by
  -- name becomes a state.
  local states, rows = parameters(net, spec.init, "state"), parameters(net, spec.seq, "row", true)
  local outside = outside_of(net)
  local all = table.move(rows, 1, #rows, #states + 1, table.move(states, 1, #states, 1, {}))
  local body, results = build_branch(net, loop_name .. ".body", spec.step, all)
  if #results < #states then
    fail(("%s: there are %d states, the function returns %d blobs: return the next states \z
      first"):format(
        spec.who, #states, #results))
  end
  local cond, flags, cond_reads = condition(net, spec, loop_name .. ".cond", states, outside)

  -- What scopes leave is written to blobs by ops of the body, which count below.
  local scopes = scope_flow.leave_loop(net, spec.who, body, cond)
  local hidden = scope_flow.hidden(net, scopes)
  local reads, writes, defined = uses(body)
  -- Outer blobs that the body writes are states under their own names.
  local by_name, captures, seen = {}, {}, {}
  append(by_name, seen, writes, outside)
  append(captures, seen, reads, outside)
  append(captures, seen, results, function(name) return outside(name) and not defined[name] end)
  append(captures, seen, cond_reads, outside)
  append(captures, seen, flags, outside)

  -- What the body gives, in the order of the op: next states, outer blobs written by name, rows to
  -- stack.
  local own = own_results(body, results, by_name)
  local gives = table.move(own, 1, #states, 1, {})
  table.move(by_name, 1, #by_name, #gives + 1, gives)
  table.move(own, #states + 1, #own, #gives + 1, gives)

  -- What it takes, in the same order: states, the old values of what it writes, rows of the
  -- sequences, and captures. The condition takes the same.
  local takes, ins, outs = {}, {}, {}
  local function take(name, operand)
    takes[#takes + 1] = name
    ins[#ins + 1] = operand
  end
  for i, param in ipairs(states) do take(param.name, spec.init[i]) end
  for _, name in ipairs(by_name) do take(name, name) end
  for i, param in ipairs(rows) do take(param.name, spec.seq[i]) end
  for _, name in ipairs(captures) do take(name, name) end
  local n_state = #states + #by_name
  for i = 1, #gives do
    local is_by_name = i > #states and i <= n_state
    outs[i] = is_by_name and gives[i] or written(net, net:fresh_name(spec.type:lower()))
  end
  body:_interface(takes, gives)
  if cond then cond:_interface(takes, flags) end
  spec.attrs[spec.body], spec.attrs.cond_net, spec.attrs.n_state = body, cond, n_state
  if spec.finish then spec.finish(body, spec.attrs) end
  local names = naming.add(net, spec.type, ins, outs, spec.attrs, nil, scope_of(net),
    state_of(net).line, state_of(net).device)
  naming.keep_subnet(net, body)
  naming.keep_subnet(net, cond)
  scope_flow.arrive(net, scopes)

  -- The op gives final states, blobs written by name, stacked rows; callers get the written ones
  -- last.
  local final, stacked, by_names = {}, {}, {}
  for i, name in ipairs(names) do
    local part = stacked
    if i <= #states then part = final
    elseif i <= n_state then part = by_names end
    if is_shown(net, hidden, name) then part[#part + 1] = handle(net, name) end
  end
  return { final, stacked, by_names }
end

--- Final states, stacked rows, blobs written by name, one after the other.
local function flat(parts)
  local blobs = {}
  for _, part in ipairs(parts) do table.move(part, 1, #part, #blobs + 1, blobs) end
  return table.unpack(blobs)
end

local stopping

local function must_be_function(who, field, f)
  if type(f) ~= "function" then
    fail(("%s: %s must be a function that builds a subnet, got a %s"):format(who, field, type(f)))
  end
end

--- One element, as a scalar of dtype bool.
local function flag_of(b, blob, who)
  if type(blob) == "string" then blob = b:blob(blob) end
  if not op.is_blob(blob) then
    fail(("%s: stop_if returns a blob of one element, got a %s"):format(who, type(blob)))
  end
  return b:op("Cast", { b:op("Reshape", { blob }, nil, { shape = {} }) }, nil, { to = "bool" })
end

--- A While whose first state says whether to stop: the condition is asked only while it doesn't.
function stopping(net, o)
  -- The first state, false, says whether the last iteration asked to stop. Callers know nothing of
  -- it: it is taken from the results.
  local init = operands(net, o.init, "While")
  table.insert(init, 1, net:const(false).name)
  local parts = loop(net, {
    who = "net:While",
    type = "While",
    init = init,
    seq = {},
    body = "body_net",
    attrs = { max = o.max },
    cond = function(b, stopped, ...)
      local states = table.pack(...)
      local function go_on(inner)
        return flag_of(inner, o.cond(inner, table.unpack(states, 1, states.n)), "net:While")
      end
      return (b:If(stopped, function(inner) return inner:const(false) end, go_on))
    end,
    step = function(b, _, ...)
      -- stop_if looks at the next states, so it is built behind the body, in the same net.
      local results = table.pack(o.body(b, ...))
      for i = 1, #init - 1 do
        if type(results[i]) == "string" then results[i] = b:blob(results[i]) end
      end
      local stop = flag_of(b, o.stop_if(b, table.unpack(results, 1, #init - 1)), "net:While")
      return stop, table.unpack(results, 1, results.n)
    end,
  })
  table.remove(parts[1], 1)
  return flat(parts)
end

--- net:While{init = {..}, cond = f, body = g, max = n} -> blobs: as long as cond(b, states..) gives
-- one element that is not zero, body(b, states..) gives the next states, and behind them rows to
-- stack, which need `max`. Outer blobs that the body writes by name are states too. Stops after
-- `max` iterations; a gradient through a loop without max keeps its frames on a stack that grows,
-- and then no budget is granted. No iteration: the states are the initial ones, the rows zero.
-- `stop_if`(b, next states..) looks at what an iteration leaves: where it gives one element that is
-- not zero, the loop ends there, and the condition is not asked again.
-- @param o table {init = blobs, cond = function, body = function, stop_if = function|nil, max =
--   integer|nil}
-- @return blobs final states, stacked rows (max,...), then outer blobs written by name
-- @usage local x = net:While{init = {"x"}, cond = function(b, x) return x:lt(100) end, body =
--   function(b, x) return x * 2 end}
function Net:While(o)
  check_fields("net:While", o, {
    init = true, cond = true, body = true, stop_if = true, max = true,
  })
  must_be_function("net:While", "cond", o.cond)
  must_be_function("net:While", "body", o.body)
  if o.stop_if ~= nil then
    must_be_function("net:While", "stop_if", o.stop_if)
    return stopping(self, o)
  end
  return flat(loop(self, {
    who = "net:While",
    type = "While",
    init = operands(self, o.init, "While"),
    seq = {},
    cond = o.cond,
    step = o.body,
    body = "body_net",
    attrs = { max = o.max },
  }))
end

--- Positions of the step net's ops, from 0, whose outputs are the listed blobs. An op is repeated
-- or not, so all its outputs must be listed.
local function ops_of_blobs(sub, names, who)
  -- C counts ops from 0.
  local listed, found, positions = {}, {}, {}
  for _, name in ipairs(names) do listed[op.is_blob(name) and name.name or name] = true end
  for i, row in ipairs(sub:_ops()) do
    local missing, any
    for _, out in ipairs(row.outputs) do
      if out and listed[out] then any, found[out] = true, true else missing = missing or out end
    end
    if any and missing then
      error(core.error {
        code = "graph",
        blob = missing,
        op = row.type,
        message = ("%s: recompute lists an output of %s, but not its output \"%s\""):format(
          who, row.type, missing),
        hint = "an op is repeated as a whole: list all its outputs or none",
      })
    end
    if any then positions[#positions + 1] = i - 1 end
  end
  for name in pairs(listed) do
    if not found[name] then
      error(core.error {
        code = "name",
        blob = name,
        message = ("%s: recompute: no op of the step makes \"%s\""):format(who, name),
      })
    end
  end
  return positions
end

--- A step that keeps the states of ended sequences and gives zeros for them. The mask's row is the
-- last parameter.
local function masked(step, n_state)
  return function(b, ...)
    local given = table.pack(...)
    local mask = given[given.n]

    -- The step may write over a state: its old value is copied before, for sequences that have
    -- ended.
    local old = naming.keep_old(b, given, n_state)
    local results = table.pack(step(b, table.unpack(given, 1, given.n - 1)))
    for i = 1, results.n do
      local new = type(results[i]) == "string" and b:blob(results[i]) or results[i]
      -- The mask's row is (N): it broadcasts over the dimensions behind the first.
      local axes = {}
      for d = 2, #new.shape do axes[#axes + 1] = d end
      local alive = #axes > 0 and mask:unsqueeze { axes = axes } or mask
      results[i] = b:op("Where", { alive, new, i <= n_state and old[i] or b:const(0, new.dtype) })
    end
    return table.unpack(results, 1, results.n)
  end
end

--- net:Recurrent{seq = {..}, init = {..}, step = f, lengths = blob, recompute = names} -> blobs:
-- step(b, states.., rows..) runs for each row of the sequences (T,...) and gives the next states,
-- and behind them rows that are stacked (T,...).
--
-- Without a gradient two buffers of each state and one frame of temporaries serve all steps. With
-- one, a step keeps what its backward reads; blobs named in `recompute` are made again instead.
-- @param o table {seq = blobs, init = blobs|nil, step = function, lengths = blob (N)|nil, each in
--   [0,T]: a sequence's states stay and its
-- rows are zero past its end (sequences are (T,N,...), states and rows (N,...); outer blobs written
-- by name are not masked), recompute = names|nil}
-- @return blobs final states, stacked rows (T,...), then outer blobs written by name
-- @usage local h, all = net:Recurrent{seq = {"x"}, init = {"h0"}, step = function(b, h, x) local n
--   = (h + x):tanh() return n, n end}
function Net:Recurrent(o)
  check_fields("net:Recurrent", o, {
    init = true, seq = true, step = true, lengths = true, recompute = true,
  })
  must_be_function("net:Recurrent", "step", o.step)
  local init, seq = operands(self, o.init, "Recurrent"), operands(self, o.seq, "Recurrent")
  if #seq == 0 then
    fail("net:Recurrent: seq names no sequence: the number of steps comes from it")
  end
  local step = o.step

  -- SequenceMask (T,N) is one more sequence, whose row the wrapped step takes last.
  if o.lengths then
    seq[#seq + 1] = self:op("SequenceMask", { seq[1], o.lengths }).name
    step = masked(step, #init)
  end
  local recompute = o.recompute
  return flat(loop(self, {
    who = "net:Recurrent",
    type = "Recurrent",
    init = init,
    seq = seq,
    step = step,
    body = "step_net",
    attrs = { n_seq = #seq },
    finish = recompute
      and function(sub, attrs)
        attrs.recompute = ops_of_blobs(sub,
          type(recompute) == "table" and not op.is_blob(recompute) and recompute or { recompute },
          "net:Recurrent")
      end,
  }))
end

--- net:Scan{seq = {..}, init = {..}, body = f, axis = 1} -> blobs: ONNX's Scan, a Recurrent whose
-- rows lie along `axis` of sequences and stacked outputs.
-- @usage local total, sums = net:Scan{seq = {"x"}, init = {"zero"}, body = function(b, s, x) local
--   n = s + x return n, n end}
function Net:Scan(o)
  check_fields("net:Scan", o, { init = true, seq = true, body = true, axis = true })
  must_be_function("net:Scan", "body", o.body)
  local seq, init, axis = operands(self, o.seq, "Scan"), operands(self, o.init, "Scan"), o.axis or 1

  -- The op runs along the first dimension: others are turned to the front, and stacked rows back.
  if axis ~= 1 then
    for i, name in ipairs(seq) do seq[i] = handle(self, name):transpose(1, axis) end
  end
  if axis == 1 then return self:Recurrent { seq = seq, init = init, step = o.body } end

  -- Rows are what the body gives behind the states. Blobs that it writes by name come last, and
  -- stay as they are.
  local n_result
  local out = table.pack(self:Recurrent { seq = seq, init = init, step = function(...)
    local results = table.pack(o.body(...))
    n_result = results.n
    return table.unpack(results, 1, results.n)
  end })
  for i = #init + 1, n_result do out[i] = out[i]:transpose(1, axis) end
  return table.unpack(out, 1, out.n)
end

--- net:Loop{trip = n | blob, cond = blob, init = {..}, body = f, max = n} -> blobs: ONNX's Loop.
-- body(b, i, states..) gets the number of the iteration, from 0 (i64), and gives whether to go on
-- (a blob of one element, or true), the next states, and rows to stack. It ends after `trip`
-- iterations (nil: no limit) or when told; `max` bounds what a blob `trip` may ask for, and is
-- `trip` when that is a number.
-- @return blobs final states, stacked rows (max,...), the number of iterations (i64), then outer
--   blobs written by name
-- @usage local a, b = net:Loop{init = {1, 1}, body = function(n, i, a, b) return b:le(100), b, a +
--   b end}
function Net:Loop(o)
  check_fields("net:Loop", o, { trip = true, cond = true, init = true, body = true, max = true })
  must_be_function("net:Loop", "body", o.body)
  local max, trip = o.max, o.trip
  if math.type(trip) == "integer" and trip < 0 then
    fail(("net:Loop: trip can't be negative, got %d"):format(trip))
  end

  -- A number of iterations is a bound that the op knows; a blob is compared with the counter in
  -- each. No iteration at all needs the comparison too, since the op's bound is at least 1.
  if math.type(trip) == "integer" and trip > 0 then
    max, trip = math.min(max or trip, trip), nil
  elseif trip ~= nil then
    if math.type(trip) == "integer" then trip, max = self:const(0, "i64"), max or 1 end
    trip = handle(self, reader(self, trip, "Loop"))
  end

  -- Two states before the user's: the number of the iteration, and whether to go on.
  local init = { self:const(0, "i64").name, reader(self, o.cond or self:const(true), "Loop") }
  for _, name in ipairs(operands(self, o.init, "Loop")) do init[#init + 1] = name end
  local parts = loop(self, {
    who = "net:Loop",
    type = "While",
    init = init,
    seq = {},
    body = "body_net",
    attrs = { max = max },
    cond = function(b, i, go)
      return trip and b:op("LogicalAnd", { i:lt(trip), go }) or b:op("Copy", { go })
    end,
    step = function(b, i, _, ...)
      local results = table.pack(o.body(b, i, ...))
      local go = results[1] == true and b:const(true) or results[1]
      if not go then
        fail("net:Loop: the body returns first whether to go on: a blob of one element, or true")
      end
      if type(go) == "string" then go = b:blob(go) end
      if go.dtype ~= "bool" then go = go:ne(0) end
      return i + 1, go:reshape {}, table.unpack(results, 2, results.n)
    end,
  })

  -- The flag is dropped, the count comes behind the stacked rows.
  local count = table.remove(parts[1], 1)
  table.remove(parts[1], 1)
  table.insert(parts[2], count)
  return flat(parts)
end

return {}
