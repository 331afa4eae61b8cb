--- memonger: blob names recycled, net to net.
--
-- A planned net is an ordinary net with renamed blobs: run it under policy `name`, where all versions of one name share one
-- slot. Who may share is asked of the planner (its live ranges, and in a dag what may overlap); the renaming is the net's own;
-- every planned net is compared with the net it came from before it is returned. Roles are data: what is whose gradient stands
-- in the net, so no name's ending means anything.
--
-- A net with a Gradient op is expanded first, so that its backward pass has names. With subnets (If, While, Recurrent) it can't
-- be: then its forward names are shared as far as the backward pass leaves them, gradients without a name are left to the
-- planner, and what counts ops (another order, Free, estimates) is refused.
--
-- Names that cross into a subnet are renamed there too. Where all blobs take part, names local to a subnet are recycled within
-- it as well, what it takes and gives being static; a name that a subnet further in has too stays. Positions of ops count from 1; bytes are
-- 64-bit, with dtype and alignment.
-- @usage local planned = neap.memonger.optimize_net(net)
--   ws:run(planned, { x = x }, { policy = "name" })
-- @module neap.memonger
local core = require "neap.core"
local neap = require "neap"
local options = require "neap.options"
local report = require "neap.report"
local native = core.memonger
local none = options.none
local memonger = {}

local function fail(code, message, blob, level) error(core.error { code = code, message = message, blob = blob }, (level or 1) + 1) end

local function is_net(x) return type(x) == "userdata" and x._ops ~= nil end

local function check_net(net, who)
  if not is_net(net) then error(who .. " expects a net, got a " .. type(net), 3) end
  return net
end

--- A list or a name as a set; nil stays nil.
local function set_of(list)
  if list == nil then return nil end
  if type(list) == "string" then list = { list } end
  local set = {}
  for key, value in pairs(list) do
    local name = type(key) == "number" and value or value and key
    if type(name) == "table" then name = name.name end
    if name then set[name] = true end
  end
  return set
end

--- The options of inference that shapes stand for: other input types than declared.
local function shape_options(shapes)
  if type(shapes) ~= "table" then return nil end
  return shapes
end

--- The net with its backward pass and the bodies of its Do ops written out; itself when there are none, or when it has
-- subnets, with which it can't be written out.
-- @return net, true where a Gradient or Do op is left
local function expanded(net, shapes)
  local pseudo, subnets = false, false
  for _, row in ipairs(net:_ops()) do pseudo, subnets = pseudo or row.pseudo, subnets or row.subnets end
  if pseudo and not subnets then return net:expand(shape_options(shapes)) end
  return net, pseudo
end

-- ---- the state of a recycling: live ranges, slots, mapping ---------------------------------------------------------------------

--- Prefix of new names: "" or "scope/".
local function prefix_of(namescope)
  namescope = namescope or ""
  if namescope ~= "" and namescope:sub(-1) ~= "/" then namescope = namescope .. "/" end
  return namescope
end

local classes_mt = { __index = function(t, key)
  t.n = rawget(t, "n") and t.n + 1 or 1
  rawset(t, key, t.n)
  return t.n
end }

--- A recycler: what process_op and its kin work on.
-- @param net a Gradient op that is left in it gives no names for its work
-- @param o table {dag =, ops = positions, shareable = names or f(row), dont_share = names, namescope =, shapes =, sized = true, mix_dtypes = false}
-- @return recycler {net, rows, of = {name = row}, slots, mapping = {name = slot}}
function memonger.recycler(net, o)
  o = options.read("memonger.recycler", { dag = false, ops = none, shareable = none, dont_share = none, namescope = "", shapes = none, sized = true,
    mix_dtypes = false }, o, 2)
  check_net(net, "memonger.recycler")
  local handle = native.recycle(net, shape_options(o.shapes), o.dag)
  local self = { net = net, handle = handle, rows = handle:blobs(), of = {}, ops = net:_ops(), slots = {}, mapping = {}, sized = o.sized,
    inside = not o.ops and not o.shareable, prefix = prefix_of(o.namescope) }
  local in_ops, shareable, kept = nil, o.shareable, set_of(o.dont_share) or {}
  if o.ops then
    in_ops = {}
    for _, at in ipairs(o.ops) do
      if math.type(at) ~= "integer" or not self.ops[at] then fail("name", ("memonger: the net has no op %s"):format(tostring(at)), nil, 3) end
      in_ops[at] = true
    end
  end
  local by_name = type(shareable) ~= "function" and set_of(shareable)
  local classes = setmetatable({}, classes_mt)
  for i, row in ipairs(self.rows) do
    row.index, self.of[row.name] = i, row
    local written_inside = true
    for at = 1, row.first > 0 and in_ops and #self.ops or 0 do
      for _, name in ipairs(self.ops[at].outputs) do
        if name == row.name and not in_ops[at] then written_inside = false end
      end
    end
    local wanted = type(shareable) == "function" and shareable(row) or by_name and by_name[row.name] or shareable == nil
    row.shares = wanted and written_inside and row.one_device and row.first > 0 and not row.fixed and not kept[row.name]
    row.class = classes[row.device .. "|" .. (o.mix_dtypes and "" or row.dtype)]
  end
  for name in pairs(by_name or {}) do
    if not self.of[name] then fail("name", ("memonger: shareable: the net has no blob \"%s\""):format(name), name, 3) end
  end
  for name in pairs(kept) do
    if not self.of[name] then fail("name", ("memonger: dont_share: the net has no blob \"%s\""):format(name), name, 3) end
  end
  return self
end

--- Whether `blob` may live in a slot (list of names, or a slot of the recycler): same device and dtype, and no member's life
-- overlaps its own.
-- @return boolean
function memonger.can_use_blob(recycler, slot, blob)
  local row = recycler.of[blob]
  if not row then fail("name", ("can_use_blob: the net has no blob \"%s\""):format(tostring(blob)), blob, 2) end
  for _, name in ipairs(slot) do
    local other = recycler.of[name]
    if not other then fail("name", ("can_use_blob: the net has no blob \"%s\""):format(tostring(name)), name, 2) end
    if other ~= row and (other.class ~= row.class or recycler.handle:conflict(row.index, other.index)) then return false end
  end
  return true
end

local function size_of(recycler, row) return recycler.sized and row.bytes or 1 end

--- The slot that fits `blob` best of those it may use: the smallest that is large enough, else the largest; nil when there is none.
-- @return slot (a list of names with its bytes) or nil
function memonger.get_free_blob(recycler, blob)
  local usable = {}
  for i, slot in ipairs(recycler.slots) do usable[i] = memonger.can_use_blob(recycler, slot, blob) and slot.bytes end
  return recycler.slots[native.best_slot(usable, size_of(recycler, recycler.of[blob]))]
end

local function join_slot(recycler, slot, row)
  if not slot then
    slot = { bytes = 0 }
    recycler.slots[#recycler.slots + 1] = slot
  end
  slot[#slot + 1] = row.name
  slot.bytes = math.max(slot.bytes, size_of(recycler, row))
  recycler.mapping[row.name] = slot
end

--- Gives each output that op number `at` writes first a slot. Ops may come in any order.
function memonger.process_op(recycler, at)
  local op = recycler.ops[at]
  if not op then fail("name", ("process_op: the net has no op %s"):format(tostring(at)), nil, 2) end
  for _, name in ipairs(op.outputs) do
    local row = name and recycler.of[name]
    if row and row.shares and not recycler.mapping[name] then join_slot(recycler, memonger.get_free_blob(recycler, name), row) end
  end
end

--- The name a blob goes by: its slot's, else its own. slot names are given by `renames`.
function memonger.get_blob_or_mapped_blob(recycler, name)
  local mapping = recycler.renames or recycler
  return mapping[name] or name
end

--- Whether a map (or list of pairs) has a key.
function memonger.has_key_in_map(map, key) return map[key] ~= nil end

--- Whether a set (list of names, or name = true) has a member.
function memonger.has_key_in_set(set, key) return (set_of(set) or {})[key] == true end

--- All slots at once, by the planner's assignment.
local function assign_all(recycler, o)
  local items, rows = {}, {}
  for i, row in ipairs(recycler.rows) do
    if row.shares then
      rows[#rows + 1] = row
      items[#items + 1] = { bytes = size_of(recycler, row), class = row.class, first = row.first, last = row.last, blob = i }
    end
  end
  local slot_of, _, n, proved = native.assign(items, o.algo == "exact", o.time_limit, recycler.handle)
  recycler.slots, recycler.mapping, recycler.proved = {}, {}, proved
  for k = 1, n do recycler.slots[k] = { bytes = 0 } end
  for k, row in ipairs(rows) do join_slot(recycler, recycler.slots[slot_of[k]], row) end
end

--- The net under new names, from the slots; the planner names them and proves that the net computes the same.
local function apply_slots(recycler)
  local slot_of = {}
  for i = 1, #recycler.rows do slot_of[i] = 0 end
  for k, slot in ipairs(recycler.slots) do
    for _, name in ipairs(slot) do slot_of[recycler.of[name].index] = k end
  end
  local planned, names = recycler.handle:apply(slot_of, #recycler.slots, recycler.prefix, recycler.inside)
  recycler.renames = {}
  for k, slot in ipairs(recycler.slots) do
    slot.name = names[k] or slot[1]
    for _, name in ipairs(slot) do recycler.renames[name] = slot.name end
  end
  return planned
end

-- ---- renaming and comparing ------------------------------------------------------------------------------------------------------

--- The copy of a net with changes: {renames = {old = new}, order = positions, freed = names, free_after = positions}.
local function edited(net, o)
  local from, to = {}, {}
  for name in pairs(o.renames or {}) do from[#from + 1] = name end
  table.sort(from)
  for i, name in ipairs(from) do to[i] = o.renames[name] end
  return native.edit(net, from, to, o.order, o.freed or {}, o.free_after or {})
end

--- Whether two nets compute the same: op by op the same type, device and producers of the inputs, subnets included.
-- @return boolean, string where they differ
function memonger.verify_graph_equality(a, b) return native.same_graph(check_net(a, "verify_graph_equality"), check_net(b, "verify_graph_equality")) end

--- Whether two nets work in place at the same places, subnets included.
-- @return boolean, string where they differ
function memonger.verify_inplace_blobs(a, b) return native.same_in_place(check_net(a, "verify_inplace_blobs"), check_net(b, "verify_inplace_blobs")) end

local function verified(net, planned)
  local same, where = native.same_graph(net, planned)
  if same then same, where = native.same_in_place(net, planned) end
  if not same then fail("internal", "memonger: the planned net is not the net it came from: " .. where) end
  return planned
end

--- assignments as {name = new name}: given so, or as slots, lists of names or ranges, whose last member names the slot.
local function renames_of(assignments)
  local renames = {}
  for key, value in pairs(assignments) do
    if type(key) == "string" then
      renames[key] = value
    else
      local last = value[#value]
      local name = value.name or (type(last) == "table" and last.name or last)
      for _, member in ipairs(value) do renames[type(member) == "table" and member.name or member] = name end
    end
  end
  return renames
end

--- The net with its blobs renamed, subnets and what they take and give included. A renaming that breaks a rule of the net is
-- refused.
-- @param net
-- @param assignments {old = new}, or slots: {{range, ..}, ..}, each named by its last member
function memonger.apply_assignments(net, assignments)
  return edited(check_net(net, "apply_assignments"), { renames = renames_of(assignments) })
end

local function apply_to(net, assignments, who, types)
  local renames, found, tables = renames_of(assignments), false, {}
  for _, row in ipairs(check_net(net, who)._ops(net)) do
    if types[row.type] then
      found = true
      local changed = {}
      for _, list in ipairs { row.inputs, row.outputs } do
        for _, name in ipairs(list) do
          if name and renames[name] and renames[name] ~= name then changed[name] = renames[name] end
        end
      end
      tables[row.name] = changed
    end
  end
  if not found then
    local names = {}
    for name in pairs(types) do names[#names + 1] = name end
    table.sort(names)
    fail("graph", ("%s: net \"%s\" has no %s op"):format(who, net:name(), table.concat(names, " or ")), nil, 3)
  end
  return edited(net, { renames = renames }), tables
end

--- apply_assignments for a net with AsyncIf ops, whose subnets are renamed with what they take and give.
-- @return net, {op name = {old = new}} of their operands
function memonger.apply_asyncif_blob_assignments(net, assignments)
  return apply_to(net, assignments, "apply_asyncif_blob_assignments", { AsyncIf = true })
end

--- The same for Recurrent ops: step nets are renamed; the tables say how operands are called now.
function memonger.apply_recurrent_blob_assignments(net, assignments)
  return apply_to(net, assignments, "apply_recurrent_blob_assignments", { Recurrent = true })
end

-- ---- the planners ------------------------------------------------------------------------------------------------------------------

--- Figures of a recycler whose slots are assigned: bytes of the transient blobs without sharing, with it, the most alive at
-- once (gradients without a name included, where a Gradient op is left); saved = 1 - planned / baseline.
local function statistics_of(recycler)
  local figures, planned, n = recycler.handle:figures(), 0, 0
  for _, row in ipairs(recycler.rows) do
    if not row.fixed and row.first > 0 and not recycler.mapping[row.name] then planned = planned + row.bytes end
  end
  for _, slot in ipairs(recycler.slots) do
    local bytes = 0
    for _, name in ipairs(slot) do bytes = math.max(bytes, recycler.of[name].bytes) end
    planned = planned + bytes
    if #slot > 1 then n = n + 1 end
  end
  return { baseline_bytes = figures.baseline_bytes, planned_bytes = planned, lower_bound_bytes = figures.lower_bound_bytes, n_shared = n,
    n_slot = #recycler.slots, saved = figures.baseline_bytes > 0 and 1 - planned / figures.baseline_bytes or 0, proved = recycler.proved }
end

--- Assigns, renames, compares. Second result: Report of the slots, with the statistics as fields.
local function plan(net, o, algorithm)
  local recycler = memonger.recycler(net, o)
  assign_all(recycler, algorithm or {})
  local planned = apply_slots(recycler)
  local rows = {}
  for _, slot in ipairs(recycler.slots) do
    if #slot > 1 then rows[#rows + 1] = { name = slot.name, bytes = slot.bytes, n_blob = #slot, blobs = table.concat(slot, " ") } end
  end
  return planned, report.new { rows = rows, columns = { "name", "bytes", "n_blob", "blobs" }, totals = statistics_of(recycler),
    order = { "n_shared", "baseline_bytes", "planned_bytes", "lower_bound_bytes", "saved" } }
end

--- Recycles names in a net whose ops may run side by side: a name is shared only along paths, so never by two branches before
-- they join.
-- @param net
-- @param heads blobs that the ops to plan start from; checked. Who comes before whom is read from the net's edges, so more heads
--   change nothing
-- @param op_indices positions of the ops that take part; nil: all
-- @param shareable names that may be shared; nil: all that can be
-- @param namescope prefix of new names, with or without slash
-- @param dont_share names that neither give their bytes nor take others'
-- @param shapes {input = shape} to replace declared ones; false: all blobs count as equally large
-- @return net, Report of the shared blobs
function memonger.compute_blob_recycling_for_dag(net, heads, op_indices, shareable, namescope, dont_share, shapes)
  check_net(net, "compute_blob_recycling_for_dag")
  net = expanded(net, shapes)
  for name in pairs(set_of(heads) or {}) do
    if not net:_blob(name) then fail("name", ("compute_blob_recycling_for_dag: heads: the net has no blob \"%s\""):format(name), name, 2) end
  end
  return plan(net, { dag = true, ops = op_indices, shareable = shareable, namescope = namescope, dont_share = dont_share, shapes = shapes or nil,
    sized = shapes ~= false })
end

--- Recycles names in definition order: for the `simple` executor.
-- @param net
-- @param static_blobs names to leave alone; outputs, kept and declared blobs are safe without being named
-- @return net, Report of the shared blobs
function memonger.optimize_inference_net(net, static_blobs)
  check_net(net, "optimize_inference_net")
  return plan(expanded(net), { dont_share = static_blobs })
end

memonger.optimize_inference_fast = memonger.optimize_inference_net

--- The same, safe for the dag executor. Nets with a backward pass are refused: use optimize_net.
-- @param net
-- @param input_blobs names of inputs, checked to be declared
-- @param namescope
function memonger.optimize_inference_for_dag(net, input_blobs, namescope)
  check_net(net, "optimize_inference_for_dag")
  if net:_is_train() then fail("graph", ("optimize_inference_for_dag: net \"%s\" has a backward pass; use optimize_net"):format(net:name()), nil, 2) end
  for name in pairs(set_of(input_blobs) or {}) do
    local blob = net:_blob(name)
    if not blob or not blob.dtype then fail("name", ("optimize_inference_for_dag: \"%s\" is not declared"):format(name), name, 2) end
  end
  return plan(net, { dag = true, namescope = namescope })
end

--- Recycles whatever can be, in nets with or without a backward pass. With a Gradient op and subnets: what the backward pass
-- does not read, and then `order` is refused.
-- @param net
-- @param o table {executor = "simple" | "dag", dont_share =, namescope =, shapes =, order = nil | "longest_path" | "least_memory",
--   algo = "greedy" | "exact", time_limit = seconds}
-- @return net, Report of the shared blobs
-- @usage local planned, slots = neap.memonger.optimize_net(net); print(slots)
function memonger.optimize_net(net, o)
  o = options.read("memonger.optimize_net", { executor = "simple", dont_share = none, namescope = "", shapes = none, order = none, algo = "greedy",
    time_limit = 1 }, o, 2)
  check_net(net, "optimize_net")
  net = expanded(net, o.shapes)
  if o.order then net = edited(net, { order = memonger.topological_sort_traversal(net, o.order) }) end
  return plan(net, { dag = o.executor == "dag", dont_share = o.dont_share, namescope = o.namescope, shapes = o.shapes }, o)
end

--- Shares the gradients of blobs among each other, and activations too if asked. Gradients of parameters stay. In a net with
-- subnets only gradients that the net asks for by name are blobs; without share_activations there may be nothing to share.
-- @param net
-- @param losses heads of the backward pass, checked
-- @param param_grads names that are not shared, besides those of parameters
-- @param namescope prefix of new names
-- @param o table {share_activations = false, dont_share =, shapes =, dag = true, keep_last = 2}: of activations, the last `keep_last` that are not
--   outputs stay
-- @return net, Report of the shared blobs
function memonger.share_grad_blobs(net, losses, param_grads, namescope, o)
  o = options.read("memonger.share_grad_blobs", { share_activations = false, dont_share = none, shapes = none, dag = true, keep_last = 2 }, o, 2)
  check_net(net, "share_grad_blobs")
  net = expanded(net, o.shapes)
  for name in pairs(set_of(losses) or {}) do
    if not net:_blob(name) then fail("name", ("share_grad_blobs: losses: the net has no blob \"%s\""):format(name), name, 2) end
  end
  local kept, backward, last = set_of(o.dont_share) or {}, {}, {}
  for name in pairs(set_of(param_grads) or {}) do kept[name] = true end
  for _, op in ipairs(net:_ops()) do
    for _, name in ipairs(op.outputs) do
      if name and op.backward then backward[name] = true end
    end
    -- What an op with parameters gives is an activation of a layer; the last ones are what people look at.
    local has_parameter = false
    for _, name in ipairs(op.inputs) do has_parameter = has_parameter or (name and net:_blob(name) or {}).role == "parameter" end
    if has_parameter and not op.backward and op.outputs[1] then last[#last + 1] = op.outputs[1] end
  end
  for i = #last, math.max(#last - o.keep_last + 1, 1), -1 do kept[last[i]] = true end
  local function shareable(row) return backward[row.name] or row.gradient_of ~= nil or o.share_activations end
  return plan(net, { dag = o.dag, shareable = shareable, namescope = namescope, dont_share = kept, shapes = o.shapes })
end

--- Reorders the ops, then recycles in that order.
-- @param net
-- @param static_blobs names to leave alone
-- @param ordering_function f(net) -> positions, or "plain", "longest_path" (the default), "least_memory"
-- @param blob_sizes {name = bytes} to plan with instead of the real ones
-- @param algo "greedy" or "exact"
-- @param time_limit seconds for "exact"
-- @return net, assignments (slots, lists of ranges), {blob = its canonical name}
function memonger.optimize_interference(net, static_blobs, ordering_function, blob_sizes, algo, time_limit)
  check_net(net, "optimize_interference")
  net = expanded(net)
  local order = ordering_function or "longest_path"
  order = type(order) == "function" and order(net) or memonger.topological_sort_traversal(net, order)
  local ordered = edited(net, { order = order })
  local recycler = memonger.recycler(ordered, { dont_share = static_blobs })
  local ranges = {}
  for _, row in ipairs(recycler.rows) do
    local bytes = blob_sizes and (blob_sizes[row.name] or 1) or row.bytes
    ranges[#ranges + 1] = { name = row.name, defined = row.first, used = row.last, size = bytes, class = row.class, static = not row.shares }
  end
  local assignments = memonger.compute_assignments(ranges, nil, algo, time_limit)
  local renames = {}
  for _, slot in ipairs(assignments) do
    for _, range in ipairs(slot) do renames[range.name] = slot[#slot].name end
  end
  for name, to in pairs(renames) do
    if name == to then renames[name] = nil end
  end
  local canonical = {}
  for _, row in ipairs(recycler.rows) do canonical[row.name] = renames[row.name] or row.name end
  return verified(ordered, edited(ordered, { renames = renames })), assignments, canonical
end

-- ---- ranges and assignments ----------------------------------------------------------------------------------------------------------

--- Live ranges of a net's blobs, from the planner.
-- @return list of {name, defined, used, size, dtype, device, role, static}: positions of the first writer (0: before the net)
--   and the last reader
function memonger.compute_ranges(net, shapes)
  local recycler = memonger.recycler(expanded(check_net(net, "compute_ranges"), shapes), { shapes = shapes })
  local ranges = {}
  for i, row in ipairs(recycler.rows) do
    ranges[i] = { name = row.name, defined = row.first, used = row.last, size = row.bytes, class = row.class, dtype = row.dtype, device = row.device,
      role = row.role, static = not row.shares }
  end
  return ranges
end

local algorithms = { greedy = true, exact = true }

--- Which ranges share a slot: the sum over slots of the largest member is to be small. A range joins a slot only if it is
-- defined strictly after the last use of what is in it.
-- @param ranges list of {name =, defined =, used =, size = 1, class = 1, static = false}, or {name = range}
-- @param static_blobs names that get a slot of their own
-- @param algo "greedy" (the default) or "exact": searched until proved or out of time, then the best so far
-- @param time_limit seconds
-- @return slots, lists of ranges in order of definition; Report of statistics
function memonger.compute_assignments(ranges, static_blobs, algo, time_limit)
  algo = algo or "greedy"
  if not algorithms[algo] then fail("argument", ("compute_assignments: algo expects \"greedy\" or \"exact\", got \"%s\""):format(tostring(algo)), nil, 2) end
  local list, static = {}, set_of(static_blobs) or {}
  for name, range in pairs(ranges) do
    if type(name) == "string" then list[#list + 1] = { name = name, defined = range.defined, used = range.used, size = range.size, class = range.class } end
  end
  table.sort(list, function(a, b) return a.name < b.name end)
  table.move(ranges, 1, #ranges, #list + 1, list)
  local items, rows, slots = {}, {}, {}
  for i, range in ipairs(list) do
    if not range.static and not static[range.name] then
      rows[#rows + 1] = range
      items[#items + 1] = { bytes = range.size or 1, class = range.class or 1, first = range.defined, last = math.max(range.used, range.defined), blob = i }
    end
  end
  local slot_of, _, n, proved = native.assign(items, algo == "exact", time_limit or 1)
  for k = 1, n do slots[k] = {} end
  for k, range in ipairs(rows) do table.insert(slots[slot_of[k]], range) end
  for _, slot in ipairs(slots) do
    table.sort(slot, function(a, b) return a.defined < b.defined end)
  end
  for _, range in ipairs(list) do
    if range.static or static[range.name] then slots[#slots + 1] = { range } end
  end
  local statistics = memonger.compute_statistics(slots)
  statistics.proved = proved
  return slots, statistics
end

--- Bytes of an assignment: without sharing, with it, and the most alive at once, which no assignment undercuts.
-- @param assignments slots
-- @return table {baseline_bytes, optimized_bytes, lower_bound_bytes, saved = 1 - optimized / baseline}
function memonger.compute_statistics(assignments)
  local baseline, planned, events, least = 0, 0, {}, 0
  for _, slot in ipairs(assignments) do
    local most = 0
    for _, range in ipairs(slot) do
      local size = range.size or 1
      baseline, most = baseline + size, math.max(most, size)
      events[#events + 1] = { at = range.defined, size = size }
      events[#events + 1] = { at = math.max(range.used, range.defined) + 1, size = -size }
    end
    planned = planned + most
  end
  table.sort(events, function(a, b)
    if a.at ~= b.at then return a.at < b.at end
    return a.size < b.size
  end)
  local now = 0
  for _, event in ipairs(events) do
    now = now + event.size
    least = math.max(least, now)
  end
  return { baseline_bytes = baseline, optimized_bytes = planned, lower_bound_bytes = least, saved = baseline > 0 and 1 - planned / baseline or 0 }
end

--- Raises unless the ranges of each slot are disjoint, and in order of definition.
-- @return true
function memonger.verify_assignments(assignments)
  for k, slot in ipairs(assignments) do
    local sorted = table.move(slot, 1, #slot, 1, {})
    table.sort(sorted, function(a, b) return a.defined < b.defined end)
    for i = 2, #sorted do
      local a, b = sorted[i - 1], sorted[i]
      if b.defined <= math.max(a.used, a.defined) then
        fail("plan", ("slot %d: \"%s\" (ops %d to %d) is alive when \"%s\" is defined (op %d)"):format(k, a.name, a.defined, a.used, b.name, b.defined),
          b.name, 2)
      end
    end
  end
  return true
end

-- ---- orders --------------------------------------------------------------------------------------------------------------------------------

--- An order of the ops that keeps the meaning, names that are written again included.
-- @param net
-- @param kind "plain" (as defined), "longest_path" (sources of longer chains first, each op right before it is needed) or
--   "least_memory" (fewest bytes alive at the peak, or as defined where that is no worse)
-- @return positions: result[i] is the op that runs i-th
function memonger.topological_sort_traversal(net, kind)
  return native.recycle(check_net(net, "topological_sort_traversal"), nil, false):sort(kind or "plain")
end

function memonger.topological_sort_traversal_longest_path(net) return memonger.topological_sort_traversal(net, "longest_path") end

--- Which op must come before which, by names: {i, j} when op i writes a blob that the later op j reads.
-- @return list of pairs of positions
function memonger.compute_interference_graph(net) return native.interference(check_net(net, "compute_interference_graph")) end

-- ---- sizes ---------------------------------------------------------------------------------------------------------------------------------

--- Bytes of one blob, inferred through the whole net, with its dtype; not aligned.
function memonger.infer_blob_size(net, blob, shapes)
  local known = check_net(net, "infer_blob_size"):_plan(shape_options(shapes) or {})
  local name = type(blob) == "table" and blob.name or blob
  local row = known:_value(name)
  if not row then fail("name", ("infer_blob_size: net \"%s\" has no blob \"%s\""):format(net:name(), tostring(name)), name, 2) end
  return row.bytes
end

--- Bytes of every blob, from inference: nothing need have run.
-- @return {name = bytes}
function memonger.collect_blob_sizes(net, shapes)
  local sizes = {}
  for _, row in ipairs(native.recycle(expanded(check_net(net, "collect_blob_sizes"), shapes), shape_options(shapes), false):blobs()) do
    if row.bytes > 0 then sizes[row.name] = row.bytes end
  end
  return sizes
end

--- What one or several nets take if nothing but Free gives bytes back. The nets stay as they are.
-- @param nets net or list of nets, run one after the other
-- @param shapes {input = shape} to replace declared ones
-- @param device count only ops of this device
-- @return Report by op type; total_bytes made, high_water_bytes held at once
function memonger.estimate_memory_usage(nets, shapes, device)
  if is_net(nets) then nets = { nets } end
  local by_type, total, high, held = {}, 0, 0, 0
  for _, net in ipairs(nets) do
    net = expanded(check_net(net, "estimate_memory_usage"), shapes)
    local made_total, made_high, made = native.recycle(net, shape_options(shapes), false):estimate()
    high, held = math.max(high, held + made_high), held + made_total
    for i, op in ipairs(net:_ops()) do
      if device == nil or (op.device or "") == device then
        by_type[op.type] = (by_type[op.type] or 0) + made[i]
        total = total + made[i]
      end
    end
  end
  local rows = {}
  for name, bytes in pairs(by_type) do
    if bytes > 0 then rows[#rows + 1] = { type = name, bytes = bytes } end
  end
  table.sort(rows, function(a, b)
    if a.bytes ~= b.bytes then return a.bytes > b.bytes end
    return a.type < b.type
  end)
  return report.new { rows = rows, columns = { "type", "bytes" }, totals = { total_bytes = total, high_water_bytes = high },
    order = { "total_bytes", "high_water_bytes" } }
end

-- ---- schema and Free -------------------------------------------------------------------------------------------------------------------------

--- Checks every op against its record: arity, attributes, in-place pairs, then shapes and dtypes. An op of unknown type is an
-- error.
-- @param net a net, its text, or a list of ops {type, inputs, outputs, attrs} over declared blobs {input = {name = shape}}
-- @return true; raises with the op's number and name
function memonger.run_schema_check(net)
  if type(net) == "string" then net = neap.net_from(net) end
  if type(net) == "table" and not is_net(net) then
    local built = neap.net "schema"
    for name, shape in pairs(net.inputs or {}) do built:input(name, shape) end
    for i, op in ipairs(net) do
      local ok, e = pcall(built.op, built, op[1], op[2], op[3], op[4])
      if not ok then fail(type(e) == "table" and e.code or "graph", ("op %d: %s"):format(i, type(e) == "table" and e.message or tostring(e)), nil, 2) end
    end
    net = built
  end
  check_net(net, "run_schema_check"):clone()
  return net:check()
end

--- Puts one Free behind the last reader of every blob that is made and read in the net and that nobody may ask for.
-- @param net
-- @param keep names to leave alone; outputs, kept and declared blobs, views and what they look at are left alone anyway
-- @param selector f(name) -> whether to free it; nil: all
-- @return net, names that are freed, in order
-- @usage local freed = neap.memonger.release_blobs_when_used(net, { "features" })
function memonger.release_blobs_when_used(net, keep, selector)
  local pseudo
  net, pseudo = expanded(check_net(net, "release_blobs_when_used"))
  if pseudo then fail("graph", ("release_blobs_when_used: net \"%s\" has subnets and a Gradient or Do op, which reads later"):format(net:name()), nil, 2) end
  local recycler, kept = memonger.recycler(net), set_of(keep) or {}
  local read, freed_already, first_read = {}, {}, {}
  for i, op in ipairs(recycler.ops) do
    for _, name in ipairs(op.inputs) do
      if name then
        first_read[name] = first_read[name] or i
        if op.type == "Free" then freed_already[name] = true else read[name] = i end
      end
    end
  end
  local freed, after = {}, {}
  for _, row in ipairs(recycler.rows) do
    local name = row.name
    local last_write = 0
    for i, op in ipairs(recycler.ops) do
      for _, out in ipairs(op.outputs) do
        if out == name then last_write = i end
      end
    end
    if row.first > 0 and not row.fixed and not row.view and read[name] and read[name] >= last_write and row.first < first_read[name] and not kept[name]
      and not freed_already[name] and (selector == nil or selector(name)) then
      freed[#freed + 1], after[#after + 1] = name, math.max(read[name], row.last)
    end
  end
  return edited(net, { freed = freed, free_after = after }), freed
end

return memonger
