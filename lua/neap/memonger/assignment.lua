--- Who shares with whom: assignments over plain ranges, and the slots of one net filled op by op.
-- Both are part of neap.memonger, which works on whole nets.
-- @module neap.memonger.assignment
local core = require "neap.core"
local op_module = require "neap.op"
local options = require "neap.inner.options"
local record = require "neap.inner.record"
local native, fail = core.memonger, core.fail
local assignment = {}

local function refuse(code, message, blob)
  error(core.error { code = code, message = message, blob = blob })
end

--- Raises unless `value` is nil or of that type.
-- @param what string for the message: "optimize_net: dont_share"
function assignment.check(value, type_name, what)
  if value ~= nil and type(value) ~= type_name then
    fail(("%s expects a %s, got %s"):format(what, type_name, options.shown(value)))
  end
  return value
end

--- A name, a blob, a list of them (of ranges, too: what has a name) or a set, {name = true}, as a
-- sorted list; nil stays nil.
function assignment.names(value, what)
  if op_module.is_blob(value) then return { value.name } end
  if value ~= nil and type(value) ~= "string" and type(value) ~= "table" then
    fail(("%s expects a name, a blob or a list of them, got %s"):format(what, options.shown(value)))
  end

  -- A list has items under numbers, a set has names as keys: both may stand in one table.
  for key, item in pairs(type(value) == "table" and value or {}) do
    local name = type(item) == "table" and item.name or item
    if type(key) == "string" then
      if type(item) ~= "boolean" then
        fail(("%s: unknown field \"%s\"; a set of names is { name = true }"):format(what, key))
      end
    elseif type(name) ~= "string" then
      fail(("%s: item %s expects a name or a blob, got %s"):format(
        what, tostring(key), options.shown(item)))
    end
  end
  return options.names(value)
end
local list_of = assignment.names

--- The options of inference that shapes stand for: other input types than declared. Nil: none.
function assignment.shapes(shapes, who)
  if shapes == nil then return nil end
  assignment.check(shapes, "table", who .. ": shapes")
  for name, shape in pairs(shapes) do
    if type(name) ~= "string" or type(shape) ~= "table" and not op_module.is_tensor(shape) then
      fail(("%s: shapes expects { input = { 16, 32 } }, got %s at %s"):format(
        who, options.shown(shape), tostring(name)))
    end
  end
  return shapes
end

--- Whether the algorithm of that name searches.
function assignment.is_exact(algo, who)
  if algo == nil or algo == "greedy" then return false end
  return algo == "exact"
    or refuse("argument",
      ("%s: algo expects \"greedy\" or \"exact\", got \"%s\""):format(who, tostring(algo)))
end

--- Raises unless `list` is a table of tables; `what` says of what.
local function check_list(list, who, what)
  if type(list) ~= "table" then
    fail(("%s expects a list of %s, got a %s"):format(who, what, type(list)))
  end
  for at, item in pairs(list) do
    if type(item) ~= "table" then
      fail(("%s expects a list of %s, got a %s at %s"):format(who, what, type(item), tostring(at)))
    end
  end
end

local function check_slots(slots, who)
  check_list(slots, who, "slots")
  for _, slot in ipairs(slots) do check_list(slot, who, "slots, which are lists of ranges") end
end

--- Ranges as one list with the slot of each: what C reads.
local function flat(slots)
  local ranges, at = {}, {}
  for k, slot in ipairs(slots) do
    for _, range in ipairs(slot) do
      ranges[#ranges + 1], at[#at + 1] = range, k
    end
  end
  return ranges, at
end

--- Which ranges share a slot: the sum over slots of the largest member is to be small. A range
-- joins a slot only if it is defined strictly after the last use of what is in it.
-- @param ranges list of {name =, defined =, used =, size = 1, class = 1, static = false}, or {name
--   = range}
-- @param static_blobs names that get a slot of their own
-- @param algo "greedy" (the default) or "exact": searched until proved or a limit is reached, then
--   the best so far
-- @param most_steps of the search; a million without it. The same limit gives the same result in
--   every run
-- @return slots, lists of ranges in order of definition; table of statistics, with `proved`
function assignment.compute_assignments(ranges, static_blobs, algo, most_steps)
  local exact = assignment.is_exact(algo, "compute_assignments")
  check_list(ranges, "compute_assignments", "ranges")

  -- Positions in the list come behind those given by name, which get an order by sorting: pairs has
  -- none.
  local list, static = {}, {}
  for _, name in ipairs(list_of(static_blobs, "compute_assignments: static_blobs") or {}) do
    static[name] = true
  end
  for name, range in pairs(ranges) do
    if type(name) == "string" then
      list[#list + 1] = {
        name = name,
        defined = range.defined,
        used = range.used,
        size = range.size,
        class = range.class,
      }
    end
  end
  table.sort(list, function(a, b) return a.name < b.name end)
  table.move(ranges, 1, #ranges, #list + 1, list)

  -- Static ranges have slots of their own and take no part in the search.
  local free, alone, slots = {}, {}, {}
  for _, range in ipairs(list) do
    local to = (range.static or static[range.name]) and alone or free
    to[#to + 1] = range
  end

  -- The engine gives a slot for each range; here they become lists, in order of definition.
  local slot_of, n, proved = native.assign(free, { exact = exact, most_steps = most_steps })
  for k = 1, n do slots[k] = {} end
  for k, range in ipairs(free) do table.insert(slots[slot_of[k]], range) end
  for _, slot in ipairs(slots) do
    table.sort(slot, function(a, b) return a.defined < b.defined end)
  end
  for _, range in ipairs(alone) do slots[#slots + 1] = { range } end
  local statistics = assignment.compute_statistics(slots)
  statistics.proved = proved
  return slots, statistics
end

--- Bytes of an assignment: without sharing, with it, and the most alive at once, which no
-- assignment undercuts.
-- @param assignments slots
-- @return table {baseline_bytes, optimized_bytes, lower_bound_bytes, saved = 1 - optimized /
--   baseline}
function assignment.compute_statistics(assignments)
  check_slots(assignments, "compute_statistics")
  return native.measure(flat(assignments))
end

--- Raises unless each range is in one slot, and those of a slot can share it; true otherwise.
function assignment.verify(slots)
  check_slots(slots, "verify_assignments")
  for k, slot in ipairs(slots) do
    for _, range in ipairs(slot) do
      if range.static and #slot > 1 then
        refuse("plan",
          ("slot %d: \"%s\" is static, and shares with nobody"):format(k, tostring(range.name)),
          range.name)
      end
    end
  end
  native.verify(flat(slots))
  return true
end

-- ---- the state of a recycling: live ranges, slots, mapping --------------------------------------

local recycler_options = record.declare("neap.memonger.recycler", { call = "(net, {})",
  doc = [[What process_op and its kin work on: { net, rows, of = { name = row }, slots, mapping = {
    name = slot } }. A Gradient op that is left in the net gives no names for its work.]],
  { "dag", "boolean", false, doc = "whether ops that may run side by side share no names" },
  { "ops", "table", unset = "all, as they stand", says = "a list of positions",
    doc = "the ops whose blobs take part, in their order" },
  { "shareable", "any", unset = "whatever can be", says = "names, or f(row)",
    doc = "the blobs that may share" },
  { "dont_share", "any", unset = "none", says = "names", doc = "blobs that may not" },
  { "shapes", "table", unset = "as declared",
    doc = "{ input = shape }, where it is another one than declared" },
  { "sized", "boolean", true, doc = "whether the slot that fits best is taken; else any" },
  { "mix_dtypes", "boolean", false, doc = "whether blobs of different dtypes may share" },
  example = 'neap.memonger.recycler(net, { dag = true, dont_share = { "x" } })' })

--- neap.memonger.recycler(net [, { .. }]) -> recycler: see the record.
function assignment.recycler(net, o)
  o = recycler_options:read(o, "memonger.recycler")
  local choose = type(o.shareable) == "function" and o.shareable
  local handle = native.recycle(net, assignment.shapes(o.shapes, "memonger.recycler"), {
    dag = o.dag,
    ops = o.ops,
    shareable = not choose and list_of(o.shareable, "memonger.recycler: shareable") or nil,
    dont_share = list_of(o.dont_share, "memonger.recycler: dont_share"),
    mix_dtypes = o.mix_dtypes,
  })

  -- The engine has lives and interferences; what changes while names are given away is kept here.
  local self = {
    net = net,
    handle = handle,
    rows = handle:blobs(),
    of = {},
    ops = net:_ops(),
    slots = {},
    mapping = {},
    sized = o.sized,
  }

  -- A function of the user's has the last word, but can't let share what the engine found unfit.
  for _, row in ipairs(self.rows) do
    self.of[row.name] = row
    row.shares = row.shares and (not choose or choose(row) and true or false)
  end
  return self
end

local function row_of(recycler, name, who)
  return recycler.of[name]
    or refuse("name", ("%s: the net has no blob \"%s\""):format(who, tostring(name)), name)
end

--- Whether `blob` may live in a slot (list of names, or a slot of the recycler): same device label
-- and dtype, and no member's life overlaps its own.
-- @return boolean
function assignment.can_use_blob(recycler, slot, blob)
  local row = row_of(recycler, blob, "can_use_blob")
  for _, name in ipairs(slot) do
    local other = row_of(recycler, name, "can_use_blob")
    if other ~= row and recycler.handle:conflict(row.index, other.index) then return false end
  end
  return true
end

local function size_of(recycler, row) return recycler.sized and row.bytes or 1 end

--- The slot that fits `blob` best of those it may use: the smallest that is large enough, else the
-- largest; nil when there is none.
-- @return slot (a list of names with its bytes) or nil
function assignment.get_free_blob(recycler, blob)
  -- The engine chooses among slots by their bytes; false stands for one that can't be used.
  local usable = {}
  for i, slot in ipairs(recycler.slots) do
    usable[i] = assignment.can_use_blob(recycler, slot, blob) and slot.bytes
  end
  return recycler.slots[native.best_slot(usable, size_of(recycler, recycler.of[blob]))]
end

--- Of a recycler: gives each output that op number `at` writes first a slot; ops may come in any
-- order. Of a workspace: runs one op on its blobs, as ws:run_op does.
-- @usage neap.memonger.process_op(recycler, 3)
-- @usage neap.memonger.process_op(ws, "Add", { "a", "b" }, "c")
function assignment.process_op(recycler, at, inputs, outputs, attrs)
  if type(recycler) == "userdata" then return recycler:run_op(at, inputs, outputs, attrs) end
  if inputs ~= nil then fail("process_op: a recycler's op is a position, and nothing else") end
  local op = recycler.ops[at]
  if not op then refuse("name", ("process_op: the net has no op %s"):format(tostring(at))) end

  -- First writes alone: a version in place, or a later write, stays under the name that it has.
  for _, name in ipairs(op.outputs) do
    local row = name and recycler.of[name]
    if row and row.shares and not recycler.mapping[name] then
      local slot = assignment.get_free_blob(recycler, name)
      if not slot then
        slot = { bytes = 0 }
        recycler.slots[#recycler.slots + 1] = slot
      end
      slot[#slot + 1] = name
      slot.bytes = math.max(slot.bytes, size_of(recycler, row))
      recycler.mapping[name] = slot
    end
  end
end

--- The name a blob goes by under a mapping {old = new}, else its own.
function assignment.get_blob_or_mapped_blob(mapping, name) return mapping[name] or name end

--- Whether a map (or list of pairs) has a key.
function assignment.has_key_in_map(map, key) return map[key] ~= nil end

--- Whether a set (list of names, or name = true) has a member.
function assignment.has_key_in_set(set, key)
  for _, name in ipairs(list_of(set, "has_key_in_set: set") or {}) do
    if name == key then return true end
  end
  return false
end

return assignment
