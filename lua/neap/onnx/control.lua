--- ONNX's control flow: what is known when the net is built is decided then, the rest is an If or a
-- loop of the net; sequences and optionals are resolved while it is built.
-- @module neap.onnx.control
local core = require "neap.core"
local kit = require "neap.onnx.kit"
local op_module = require "neap.op"
local F = kit.F

--- Loops whose number of turns is known are written out up to so many.
local MOST_WRITTEN = 1024
--- Of more turns they are tried as a loop of the net first.
local FEW_TURNS = 16
--- More turns than these no loop of a net counts (the op While).
local MOST_TURNS = 10^9

local function value(x, elem) return { x = x, elem = elem or kit.elem_of[x.dtype] } end

local function graph_of(n, name)
  return n:graph(name) or n:fail("attribute \"%s\" is missing", name)
end

--- A condition as true or false; nil where only a run can tell.
local function decided(v)
  if not kit.is_known(v.x) then return nil end
  local on = kit.reshape(v.x, { -1 }):totable()[1]
  return on == true or on ~= 0 and on ~= false
end

--- The operands of a subgraph's results, in the net that is being built.
local function operands(state, values)
  return kit.map(values, function(v)
    local x = state:operand(v)
    return op_module.is_tensor(x) and state.net:const(x) or x
  end)
end

--- f's results, or none where what it tries can't be: memory that is refused and interruptions are
-- no matter of the file.
local function tried(f, ...)
  local results = table.pack(pcall(f, ...))
  local code = not results[1] and type(results[2]) == "table" and results[2].code
  if code == "memory" or code == "interrupted" then error(results[2], 0) end
  return table.unpack(results, 1, results.n)
end

--- Within f, which builds a branch or body, the state's net is the inner one.
local function within(state, net, f)
  local outer = state.net
  local _ <close> = setmetatable({}, { __close = function() state.net = outer end })
  state.net = net
  return f()
end

local function choose(n)
  local state, on = n.state, decided(n.inputs[1])
  if on ~= nil then
    return table.unpack(state:run_subgraph(graph_of(n, on and "then_branch" or "else_branch"),
      n.env, {}))
  end

  -- Which way is taken only a run can tell: both are built, as branches of an If. What a branch
  -- gives is copied: it may be a value from outside, or one output twice, and an If's outputs are
  -- made in it.
  local elems
  local function branch(name)
    return function(net)
      return within(state, net, function()
        local values = state:run_subgraph(graph_of(n, name), n.env, {})
        elems = kit.map(values, function(v) return v.elem end)
        local results = operands(state, values)
        for i, x in ipairs(results) do results[i] = F.Copy(x) end
        return table.unpack(results)
      end)
    end
  end

  local cond = kit.reshape(kit.cast(state:operand(n.inputs[1]), "bool"), {})
  local results = table.pack(tried(state.net.If, state.net, cond, branch "then_branch",
    branch "else_branch"))
  if not results[1] then
    local err = results[2]
    if type(err) ~= "table" then error(err, 0) end
    -- A branch that these shapes never take: which one is must be known then.
    state:need(n, 1, n.inputs[1], tostring(err.message or err))
  end

  table.remove(results, 1)
  results.n = results.n - 1
  for i = 1, results.n do
    results[i] = { x = results[i], elem = elems[i], from = n.inputs }
  end
  return table.unpack(results, 1, results.n)
end

--- The loop turn by turn, as long as its condition is known.
local function written_out(n, body, trip, states)
  local state, on = n.state, not n:given(2) or decided(n.inputs[2])
  local n_state, rows, turn = #states, {}, 0
  while on and turn < trip do
    if turn >= MOST_WRITTEN then n:fail("more than %d turns of a loop", MOST_WRITTEN) end
    local inputs = { value(core.tensor(turn, "i64")), value(core.tensor(true, "bool")) }
    table.move(states, 1, n_state, 3, inputs)

    local results = state:run_subgraph(body, n.env, inputs)
    -- A condition that only a run can tell ends the writing out: all is a loop of the net then.
    on = decided(results[1])
    if on == nil then return nil end
    states = table.move(results, 2, n_state + 1, 1, {})
    -- Behind the states stands what this turn stacks.
    for k = n_state + 2, #results do
      rows[k - n_state - 1] = rows[k - n_state - 1] or {}
      table.insert(rows[k - n_state - 1], results[k])
    end
    turn = turn + 1
  end

  local out = kit.copy(states)
  for k = 1, #body.outputs - 1 - n_state do
    local list = rows[k] or n:fail "no turn of a loop, whose stacked outputs have no shape then"
    local xs = kit.map(list, function(v)
      local x = state:operand(v)
      return kit.unsqueeze(x, { 1 })
    end)
    out[#out + 1] = value(kit.concat(xs, 1), list[1].elem)
    if not kit.is_known(out[#out].x) then out[#out].from = n.inputs end
  end
  return table.unpack(out)
end

--- A loop of the net: the states are blobs, and what it stacks needs a number of turns, all of
-- which are taken.
local function in_net(n, body, trip, states)
  local state = n.state

  -- The net's loop stacks as many rows as there are turns, so that their number must be known, and
  -- the condition must hold from the first turn to the last.
  local n_stacked = #body.outputs - 1 - #states
  local all = n_stacked > 0 and math.type(trip) == "integer" and trip > 0
    and (not n:given(2) or decided(n.inputs[2]))
  -- What is stacked is as long as there are turns.
  if n_stacked > 0 and not all then
    n:known(1)
    n:known(2)
    n:fail "stacked outputs of a loop whose end only a run can tell"
  end

  local elems = kit.map(states, function(v) return v.elem end)
  local init = operands(state, states)
  local cond = n:given(2) and kit.reshape(kit.cast(operands(state, { n.inputs[2] })[1], "bool"), {})
  local results = table.pack(state.net:Loop { trip = trip, cond = cond or nil, init = init,
    body = function(net, i, ...)
      -- The condition that a body is given always holds: else the turn would not be.
      local inputs = { value(i), value(core.tensor(true, "bool")) }
      for k, x in ipairs { ... } do inputs[k + 2] = value(x, elems[k]) end
      return within(state, net, function()
        local values = state:run_subgraph(body, n.env, inputs)
        if all and not decided(values[1]) then n:fail "a loop that may end before its last turn" end
        for k = #states + 2, #values do elems[k - 1] = values[k].elem end
        local xs = operands(state, values)
        -- Copies, since a result of a body is made in it, and is no other result.
        xs[1] = kit.reshape(xs[1], {})
        for k, x in ipairs(xs) do xs[k] = F.Copy(x) end
        return table.unpack(xs)
      end)
    end })
  local out = {}
  for i = 1, #states + (all and n_stacked or 0) do
    out[i] = { x = results[i], elem = elems[i], from = n.inputs }
  end
  return table.unpack(out)
end

local function loop(n)
  local body, states = graph_of(n, "body"), {}
  for i = 3, #n.row.inputs do states[i - 2] = n.inputs[i] end
  if #body.outputs < 1 + #states then
    n:fail("a body with %d outputs for a condition and %d states", #body.outputs, #states)
  end
  local trip, known = math.huge, true
  if n:given(1) then
    known = kit.is_known(n.inputs[1].x)
    trip = known and n:integer(1) or n.state:operand(n.inputs[1])
    -- A number beyond all runs is none: a `while` of PyTorch's is written with 2^63 - 1.
    if known and trip > MOST_TURNS then trip = math.huge end
  end

  -- Few turns are written out, which folds what each knows of its number. Many are tried as a loop
  -- of the net, and written out where the body asks for what only that knows.
  local begins = not n:given(2) or decided(n.inputs[2])
  if known and begins and math.type(trip) == "integer" and trip > FEW_TURNS and not n.folds then
    -- What a turn must know of its number is known where turns are written out alone.
    local results = table.pack(tried(in_net, n, body, trip, states))
    if results[1] then return table.unpack(results, 2, results.n) end
  end
  if known and begins ~= nil then
    local results = table.pack(written_out(n, body, trip, states))
    if results.n > 0 and results[1] ~= nil or #body.outputs == 1 then
      return table.unpack(results, 1, results.n)
    end
  end
  return in_net(n, body, trip ~= math.huge and trip or nil, states)
end

--- Scan, row by row of its sequences. Up to opset 8 there is a batch in front.
local function scan(n)
  local state, body = n.state, graph_of(n, "body")
  local n_seq, first = n:int("num_scan_inputs", 0), 1
  local batched = n.version < 9
  if batched then first = 2 end

  local n_given = #n.row.inputs - first + 1
  if n_seq < 1 or n_seq > n_given then
    n:fail("num_scan_inputs = %d, expected 1 to %d", n_seq, n_given)
  end
  local n_state = #n.row.inputs - n_seq - first + 1
  local n_out = #body.outputs - n_state
  local function axis_of(name, i, rank)
    local list = n:ints(name)
    return n:axis(list and list[i] or 0, rank)
  end
  local function back(name, i)
    local list = n:ints(name) or n:ints "directions"
    return list ~= nil and list[i] == 1
  end

  local function run(states, sequences)
    -- Written out: each sequence is cut into rows, each turn's results go to the rows of the
    -- outputs, in front where their direction is backwards.
    local rows, length = {}, nil
    for i = 1, n_out do rows[i] = {} end
    for i, v in ipairs(sequences) do
      local x = state:operand(v)
      local d = axis_of("scan_input_axes", i, #x.shape)
      length = x.shape[d]
      if length > MOST_WRITTEN then n:fail("more than %d turns of a scan", MOST_WRITTEN) end
      sequences[i] = { x = x, d = d, elem = v.elem, back = back("scan_input_directions", i) }
    end
    for t = 1, length do
      local inputs = kit.copy(states)
      for i, s in ipairs(sequences) do
        local at = s.back and length + 1 - t or t
        local row = F.Squeeze(kit.part(s.x, s.d, at, 1), { axes = { s.d } })
        local v = value(row, s.elem)
        v.from = not kit.is_known(row) and n.inputs or nil
        inputs[n_state + i] = v
      end
      local results = state:run_subgraph(body, n.env, inputs)
      states = table.move(results, 1, n_state, 1, {})
      for i = 1, n_out do
        table.insert(rows[i], back("scan_output_directions", i) and 1 or #rows[i] + 1,
          results[n_state + i])
      end
    end
    if length == 0 and n_out > 0 then
      n:fail "no turn of a scan, whose stacked outputs have no shape then"
    end
    local out = kit.copy(states)
    for i = 1, n_out do
      local d
      local xs = kit.map(rows[i], function(v)
        local x = state:operand(v)
        d = axis_of("scan_output_axes", i, #x.shape + 1)
        return kit.unsqueeze(x, { d })
      end)
      out[n_state + i] = value(kit.concat(xs, d), rows[i][1].elem)
    end
    return out
  end

  --- The same as a loop of the net, over rows of blobs.
  local function as_loop(states, sequences)
    -- The loop runs along the first dimension, forwards: sequences are turned so, and what comes
    -- out is turned back.
    local seq = kit.map(sequences, function(v, i)
      local x = operands(state, { v })[1]
      local d = axis_of("scan_input_axes", i, #x.shape)
      local order = kit.count(#x.shape)
      table.insert(order, 1, table.remove(order, d))
      x = kit.permute(x, order)
      return back("scan_input_directions", i) and F.Flip(x, { axes = { 1 } }) or x
    end)
    local elems = {}
    local results = table.pack(state.net:Recurrent { seq = seq, init = operands(state, states),
      step = function(net, ...)
        local inputs = kit.map({ ... }, function(x, i)
          return value(x, (states[i] or sequences[i - n_state]).elem)
        end)
        return within(state, net, function()
          local values = state:run_subgraph(body, n.env, inputs)
          for i, v in ipairs(values) do elems[i] = v.elem end
          return table.unpack(kit.map(operands(state, values), function(x) return F.Copy(x) end))
        end)
      end })
    return kit.map(table.move(results, 1, n_state + n_out, 1, {}), function(x, i)
      if i > n_state then
        if back("scan_output_directions", i - n_state) then x = F.Flip(x, { axes = { 1 } }) end
        local rank, order = #x.shape, {}
        local d = axis_of("scan_output_axes", i - n_state, rank)
        for k = 2, rank do order[k - 1] = k end
        table.insert(order, d, 1)
        x = kit.permute(x, order)
      end
      local v = value(x, elems[i])
      v.from = n.inputs
      return v
    end)
  end

  local states, sequences = {}, {}
  for i = first, #n.row.inputs do
    local v = n:needed(n.inputs[i], ("input %d"):format(i))
    table.insert(i < first + n_state and states or sequences, v)
  end
  if not batched then
    -- What a turn must know of its number is known where turns are written out alone.
    local ok, results = tried(function() return not n.folds and as_loop(states, sequences) end)
    return table.unpack(ok and results or run(states, sequences))
  end
  -- Each of the batch by itself.
  local parts = {}
  local function item(v, b)
    local x = state:operand(v)
    return value(F.Squeeze(kit.part(x, 1, b, 1), { axes = { 1 } }), v.elem)
  end
  local n_item = state:operand(sequences[1]).shape[1] or 0
  if n_item == 0 then n:fail "a batch of none" end
  for b = 1, n_item do
    parts[b] = run(kit.map(states, function(v) return item(v, b) end),
      kit.map(sequences, function(v) return item(v, b) end))
  end
  local out = {}
  for i = 1, n_state + n_out do
    local xs = kit.map(parts, function(p) return kit.unsqueeze(state:operand(p[i]), { 1 }) end)
    out[i] = value(kit.concat(xs, 1), parts[1][i].elem)
  end
  return table.unpack(out)
end

-- ---- sequences ----------------------------------------------------------------------------------

local function sequence(n, i)
  local v = n.inputs[i]
  if not v or not v.list then n:fail("input %d is no sequence", i) end
  return v.list
end

--- A position in a sequence of so many items, from 1; up to `last`, which may lie behind them.
local function place(n, i, count, last)
  local at = n:integer(i)
  at = at < 0 and at + count + 1 or at + 1
  if at < 1 or at > (last or count) then n:fail("position %d of %d items", at - 1, count) end
  return at
end

-- ---- the way back -------------------------------------------------------------------------------

--- The values that a list of a subnet's operands is bound to, some of them new.
local function bound_to(n, new, from)
  local list = kit.copy(new)
  for k = from, #n.row.inputs do list[#new + k - from + 1] = n.ins[k] end
  return list
end

--- An input of a subgraph like v, or like its rows.
local function inner(v, rows)
  return { name = rows and "row" or "state", dtype = v.dtype,
    dims = rows and table.move(v.dims, 2, #v.dims, 1, {}) or v.dims }
end

local function write(out)
  function out.If(n)
    -- An If of ONNX gives its branches nothing: they see the values around them.
    local captured = bound_to(n, {}, 2)
    local function branch(attr) return n:graph(attr, captured, {}) end
    return n:node("If", { n.ins[1] }, { then_branch = branch "then_net",
      else_branch = branch "else_net" }, #n.row.outputs)
  end
  out.AsyncIf = out.If

  --- Rows of sequences are a Scan's.
  function out.Recurrent(n)
    local n_state, n_seq = n.attrs.n_state, n.attrs.n_seq
    local inputs = {}
    for k = 1, n_state + n_seq do inputs[k] = inner(n.ins[k], k > n_state) end

    local body = n:graph("step_net", bound_to(n, inputs, n_state + n_seq + 1), inputs)
    return n:node("Scan", table.move(n.ins, 1, n_state + n_seq, 1, {}), { body = body,
      num_scan_inputs = n_seq }, #n.row.outputs)
  end

  --- Rows that are as many as a result has, with zeros behind those there are.
  local function filled_up(n, rows, result)
    if result.unwanted then return rows end
    if not result.dims then n:lacks "the shape of its rows is not known" end
    local zeros = n:node("Expand", { n:number(0, result.dtype), n:shape(result.dims) })
    local all = n:node("Concat", { rows, zeros }, { axis = 0 })
    return n:node("Slice", { all, n:const { 0 }, n:const { result.dims[1] }, n:const { 0 } })
  end

  --- The condition is computed before the first turn, and in each for the next one.
  function out.While(n)
    local n_state = n.attrs.n_state
    local states, inputs = {}, {}
    for k = 1, n_state do states[k], inputs[k] = n.ins[k], inner(n.ins[k]) end
    local function flag(op, v)
      if v.dtype ~= "bool" then v = op:cast(v, "bool") end
      return v.dims and #v.dims > 0 and op:node("Reshape", { v, op:const {} }) or v
    end

    local first = flag(n, n.state:inline(n, "cond_net", bound_to(n, states, n_state + 1))[1])

    -- The body is given its number and the condition, which a While has not, and gives the
    -- condition of the next turn first: cond_net, written out behind body_net, on the new states.
    local turn, on = { name = "turn", dims = {}, dtype = "i64" },
      { name = "on", dims = {}, dtype = "bool" }
    local body = n:graph("body_net", bound_to(n, inputs, n_state + 1),
      table.move(inputs, 1, n_state, 3, { turn, on }), function(op, state, results)
        local after = bound_to(n, table.move(results, 1, n_state, 1, {}), n_state + 1)
        local last = state:inline(setmetatable({ state = n.state, index = n.index, row = n.row },
          getmetatable(n)), "cond_net", after)[1]
        local go_on = flag(op, last)
        if not go_on.dtype then go_on.dtype, go_on.dims = "bool", {} end
        return table.move(results, 1, #results, 2, { go_on })
      end)
    local most = n.attrs.max > 0 and n:const(core.tensor(n.attrs.max, "i64"))
    local results = table.pack(n:node("Loop", table.move(states, 1, n_state, 3, { most, first }),
      { body = body }, #n.row.outputs))

    -- A Loop stacks as many rows as there were turns, a While fills them up with zeros to its most.
    for k = n_state + 1, results.n do results[k] = filled_up(n, results[k], n:result(k)) end
    return table.unpack(results, 1, results.n)
  end
end

return function(op, writers)
  write(writers)
  op.If, op.Loop, op.Scan = choose, loop, scan

  function op.SequenceEmpty() return { list = {} } end
  function op.SequenceConstruct(n)
    local list = {}
    for i = 1, #n.row.inputs do list[i] = n.inputs[i] end
    return { list = list }
  end
  function op.SequenceLength(n) return value(core.tensor(#sequence(n, 1), "i64")) end
  function op.SequenceAt(n)
    local list = sequence(n, 1)
    return list[place(n, 2, #list)]
  end
  function op.SequenceInsert(n)
    local list = kit.copy(sequence(n, 1))
    local at = n:given(3) and place(n, 3, #list, #list + 1) or #list + 1
    table.insert(list, at, n.inputs[2])
    return { list = list }
  end
  function op.SequenceErase(n)
    local list = kit.copy(sequence(n, 1))
    table.remove(list, n:given(2) and place(n, 2, #list) or #list)
    return { list = list }
  end
  function op.ConcatFromSequence(n)
    local xs = kit.map(sequence(n, 1), function(v) return n.state:operand(v) end)
    if #xs == 0 then n:fail "an empty sequence" end
    local rank, axis = #xs[1].shape, n:needed(n:int "axis", "attribute \"axis\"")
    if n:flag "new_axis" then
      local d = n:axis(axis, rank + 1)
      xs = kit.map(xs, function(x) return kit.unsqueeze(x, { d }) end)
      return kit.concat(xs, d)
    end
    return kit.concat(xs, n:axis(axis, rank))
  end
  function op.SplitToSequence(n)
    local x = n:x(1)
    local d, list, from = n:axis(n:int("axis", 0), #x.shape), {}, 1
    local sizes, keep = n:integers(2), n:flag("keepdims", true)

    -- Without sizes each part is one position, kept as a dimension or not; one number is the size
    -- of all parts, of which the last may be smaller.
    if not sizes then sizes = kit.fill(x.shape[d], 1) else keep = true end
    if n:given(2) and #n:known(2).shape == 0 then
      local each, left = sizes[1], x.shape[d]
      if each < 1 then n:fail("parts of %d", each) end
      sizes = {}
      while left > 0 do
        sizes[#sizes + 1] = math.min(each, left)
        left = left - each
      end
    end
    for i, size in ipairs(sizes) do
      local part = kit.part(x, d, from, size)
      list[i] = value(keep and part or F.Squeeze(part, { axes = { d } }), n:elem(1))
      from = from + size
    end
    return { list = list }
  end
  function op.SequenceMap(n)
    local body, list, out = graph_of(n, "body"), sequence(n, 1), {}
    for i = 1, #body.outputs do out[i] = { list = {} } end
    for k = 1, #list do
      local inputs = {}
      for i = 1, #n.row.inputs do
        local v = n.inputs[i]
        inputs[i] = v.list and v.list[k] or v
      end
      for i, v in ipairs(n.state:run_subgraph(body, n.env, inputs)) do out[i].list[k] = v end
    end
    return table.unpack(out)
  end

  -- An optional is what it holds, or { none = true }.
  function op.Optional(n) return n.inputs[1] or { none = true } end
  function op.OptionalHasElement(n)
    local v = n.inputs[1]
    return value(core.tensor(v ~= nil and not v.none, "bool"))
  end
  function op.OptionalGetElement(n)
    if not n.inputs[1] or n.inputs[1].none then n:fail "an optional without an element" end
    return n.inputs[1]
  end
end
