--- memonger: blob names recycled, net to net.
--
-- A planned net is an ordinary net with renamed blobs: run it under policy `name`, where all
-- versions of one name share one slot. Who may share is asked of the planner (its live ranges, and
-- in a dag what may overlap); the renaming is the net's own; every planned net is compared with the
-- net it came from before it is returned. Roles are data: what is whose gradient stands in the net,
-- so no name's ending means anything.
--
-- All that computes is C (src/memonger, src/pack/slots.c; neap.h has the same functions): here
-- arguments are read and results made into tables.
--
-- A net with a Gradient or Do op is expanded first, so that its backward pass and its scopes have
-- names. Within the backward of a loop (While, Recurrent) nothing has one: its frames and
-- temporaries are left to the planner.
--
-- Names that cross into a subnet are renamed there too. Where all blobs take part, names local to a
-- subnet are recycled within it as well, what it takes and gives being static; a name that a subnet
-- further in has too stays. Positions of ops count from 1; bytes are 64-bit, with dtype and
-- alignment.
-- @usage local planned = neap.memonger.optimize_net(net)
--   ws:run(planned, { x = x }, { policy = "name" })
-- @module neap.memonger
local core = require "neap.core"
local neap = require "neap"
local assignment = require "neap.memonger.assignment"
local op = require "neap.op"
local options = require "neap.inner.options"
local record = require "neap.inner.record"
local report = require "neap.report"
local fail = core.fail
local native, list_of, check, shape_options = core.memonger, assignment.names, assignment.check,
  assignment.shapes
local is_exact = assignment.is_exact
local memonger = {}

for _, name in ipairs {
  "recycler", "can_use_blob", "get_free_blob", "process_op", "get_blob_or_mapped_blob",
  "has_key_in_map", "has_key_in_set", "compute_assignments", "compute_statistics",
} do
  memonger[name] = assignment[name]
end

local function refuse(code, message, blob)
  error(core.error { code = code, message = message, blob = blob })
end

local is_net = op.is_net

local function check_net(net, who)
  if not is_net(net) then fail(who .. " expects a net, got a " .. type(net)) end
  return net
end

--- The net with its backward pass and the bodies of its Do ops written out; itself when there are
-- none.
local function expanded(net, shapes, who)
  return native.written_out(net, shape_options(shapes, who)) or net
end

--- Prefix of new names: "" or "scope/".
local function prefix_of(namescope, who)
  namescope = check(namescope, "string", who .. ": namescope") or ""
  if namescope ~= "" and namescope:sub(-1) ~= "/" then namescope = namescope .. "/" end
  return namescope
end

-- ---- renaming and comparing ---------------------------------------------------------------------

--- Whether two nets compute the same: op by op the same type, device label, attributes (given or by
-- default) and producers of the inputs, in order, subnets included; and what they give, keep and
-- leave in declared blobs. What ops make may be called differently; declared blobs may not. A
-- backward pass, or Do ops, that one of the two has written out (net:expand, whatever memonger
-- plans) is written out in the other too.
-- @return boolean, string where they differ
function memonger.verify_graph_equality(a, b)
  return native.same_graph(check_net(a, "verify_graph_equality"),
    check_net(b, "verify_graph_equality"))
end

--- Whether two nets work in place at the same places, subnets included.
-- @return boolean, string where they differ
function memonger.verify_inplace_blobs(a, b)
  return native.same_in_place(check_net(a, "verify_inplace_blobs"),
    check_net(b, "verify_inplace_blobs"))
end

--- Where two nets differ; nil: they compute the same, in place at the same places.
local function difference(a, b)
  local same, where = native.same_graph(a, b)
  if same then same, where = native.same_in_place(a, b) end
  if not same then return where end
end

local function verified(net, planned)
  local where = difference(net, planned)
  if where then
    refuse("internal", "memonger: the planned net is not the net it came from: " .. where)
  end
  return planned
end

--- assignments as {name = new name}: given so, or as slots, lists of names or ranges, whose last
-- member names the slot.
local function renames_of(assignments, who)
  if type(assignments) ~= "table" then
    fail(("%s expects { old = new } or a list of slots, got %s"):format(
      who, options.shown(assignments)))
  end

  -- Slots and renames go by the type of the key: a list of slots has positions, a mapping has
  -- names.
  local renames, slot_of = {}, {}
  for key, value in pairs(assignments) do
    if type(value) ~= (type(key) == "string" and "string" or "table") then
      fail(("%s expects { old = new } or a list of slots, got %s at %s"):format(
        who, options.shown(value), tostring(key)))
    end
    if type(key) == "string" then
      renames[key] = value
    else
      -- The last member names the slot, unless the slot does itself.
      local last = value[#value]
      local name = value.name or (type(last) == "table" and last.name or last)
      for _, member in ipairs(value) do
        local old = type(member) == "table" and member.name or member
        if type(old) ~= "string" then
          fail(("%s: slot %s has %s, expected names or ranges"):format(
            who, key, options.shown(member)))
        end

        -- In two slots a blob would have two names.
        if slot_of[old] then
          refuse("plan",
            ("%s: \"%s\" is there twice, in slots %s and %s"):format(who, old, slot_of[old], key),
            old)
        end
        renames[old], slot_of[old] = name, key
      end
    end
  end
  return renames
end

--- The net under other names, once it is proved to compute what it computed.
local function applied(net, renames, who)
  -- Declared blobs have names that callers use.
  for old, new in pairs(renames) do
    local blob = old ~= new and net:_blob(old)
    if blob and blob.dtype then
      refuse("plan",
        ("%s: \"%s\" is declared, and keeps its name: net:rename gives it another"):format(
          who, old),
        old)
    end
  end

  -- The net does the renaming by its own rules. That the result computes the same is proved, and
  -- not assumed, since a name shared too early gives a net that is well-formed and wrong.
  local made = net:rename(renames)
  local where = difference(net, made)
  if where then
    refuse("plan",
      ("%s: the renamed net would not compute what net \"%s\" does: %s"):format(
        who, net:name(), where))
  end
  return made
end

--- The net with its blobs renamed, subnets and what they take and give included. A renaming that
-- breaks a rule of the net is refused, and so is one that would change what the net computes: two
-- blobs alive at once under one name, a name that a subnet has for itself, an output, a kept or a
-- declared blob written over.
-- @param net
-- @param assignments {old = new}, or slots: {{range, ..}, ..}, each named by its last member
function memonger.apply_assignments(net, assignments)
  return applied(check_net(net, "apply_assignments"), renames_of(assignments, "apply_assignments"),
    "apply_assignments")
end

local function apply_to(net, assignments, who, types)
  local renames, found, tables = renames_of(assignments, who), false, {}

  -- What comes back beside the net is for the ops of these types alone: how their operands are
  -- called now.
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
    refuse("graph",
      ("%s: net \"%s\" has no %s op"):format(
        who, net:name(), table.concat(options.keys(types), " or ")))
  end
  return applied(net, renames, who), tables
end

--- apply_assignments for a net with AsyncIf ops, whose subnets are renamed with what they take and
-- give.
-- @return net, {op name = {old = new}} of their operands
function memonger.apply_asyncif_blob_assignments(net, assignments)
  return apply_to(net, assignments, "apply_asyncif_blob_assignments", { AsyncIf = true })
end

--- The same for Recurrent ops: step nets are renamed; the tables say how operands are called now.
function memonger.apply_recurrent_blob_assignments(net, assignments)
  return apply_to(net, assignments, "apply_recurrent_blob_assignments", { Recurrent = true })
end

-- ---- the planners -------------------------------------------------------------------------------

--- One recycling: fields of `o` are those of neap_recycle_options. Second result: Report of the
-- slots, with the figures as fields.
local function plan(who, net, o, shapes)
  -- The engine has written out, ordered, shared and compared: the net that comes back is proved.
  local planned, rows, figures = native.share(net, shape_options(shapes, who), o)
  return planned,
    report.new {
      rows = rows,
      columns = { "name", "bytes", "n_blob", "blobs" },
      totals = figures,
      order = { "n_shared", "baseline_bytes", "planned_bytes", "lower_bound_bytes", "saved" },
    }
end

--- Recycles names in a net whose ops may run side by side: a name is shared only along paths, so
-- never by two branches before they join.
-- @param net
-- @param heads blobs that the ops to plan start from; checked. Who comes before whom is read from
--   the net's edges, so more heads change nothing
-- @param op_indices positions of the ops that take part; nil: all
-- @param shareable names that may be shared; nil: all that can be
-- @param namescope prefix of new names, with or without slash
-- @param dont_share names that neither give their bytes nor take others'
-- @param shapes {input = shape} to replace declared ones; false: all blobs count as equally large
-- @return net, Report of the shared blobs
function memonger.compute_blob_recycling_for_dag(
    net, heads, op_indices, shareable, namescope, dont_share, shapes)
  local who = "compute_blob_recycling_for_dag"
  check_net(net, who)
  return plan(who, net,
    {
      dag = true,
      heads = list_of(heads, who .. ": heads"),
      ops = check(op_indices, "table", who .. ": op_indices"),
      shareable = list_of(shareable, who .. ": shareable"),
      prefix = prefix_of(namescope, who),
      dont_share = list_of(dont_share, who .. ": dont_share"),
      unsized = shapes == false,
    },
    shapes or nil)
end

--- Recycles names in definition order: for the `simple` executor.
-- @param net
-- @param static_blobs names to leave alone; outputs, kept and declared blobs are safe without being
--   named
-- @return net, Report of the shared blobs
function memonger.optimize_inference_net(net, static_blobs)
  check_net(net, "optimize_inference_net")
  return plan("optimize_inference_net", net, {
    dont_share = list_of(static_blobs, "optimize_inference_net: static_blobs"),
  })
end

memonger.optimize_inference_fast = memonger.optimize_inference_net

--- The same, safe for the dag executor. Nets with a backward pass are refused: use optimize_net.
-- @param net
-- @param input_blobs names of inputs, checked to be declared
-- @param namescope
function memonger.optimize_inference_for_dag(net, input_blobs, namescope)
  local who = "optimize_inference_for_dag"
  check_net(net, who)
  if net:_is_train() then
    refuse("graph",
      ("optimize_inference_for_dag: net \"%s\" has a backward pass; use optimize_net"):format(
        net:name()))
  end
  for _, name in ipairs(list_of(input_blobs, who .. ": input_blobs") or {}) do
    local blob = net:_blob(name)
    if not blob or not blob.dtype then
      refuse("name", ("optimize_inference_for_dag: \"%s\" is not declared"):format(name), name)
    end
  end
  return plan(who, net, { dag = true, prefix = prefix_of(namescope, who) })
end

local net_options = record.declare("neap.memonger.optimize_net", { call = "(net, {})",
  doc = [[Recycles whatever can be, in nets with or without a backward pass: gives a net and a
    Report of the shared blobs.]],
  { "executor", "choice", "simple", choices = { "simple", "dag" },
    says = '"simple" or "dag", by which names are shared', doc = [[what the net will be run by; in a
      dag, blobs of ops that may run side by side share nothing]] },
  { "dont_share", "any", unset = "none", says = "names", doc = "blobs that keep their names" },
  { "namescope", "any", "", says = "a text", doc = "what the names begin with that may be shared" },
  { "shapes", "table", unset = "as declared",
    doc = "{ input = shape }, where it is another one than declared" },
  { "order", "string", unset = "as the ops stand", says = '"longest_path" or "least_memory"',
    doc = "how the ops are reordered first" },
  { "algo", "choice", "greedy", choices = { "greedy", "exact" },
    doc = "whether names are dealt out by need, or the best way is searched for" },
  { "most_steps", "integer", min = 1, unset = "a million", doc = "steps of the exact search" },
  example = 'neap.memonger.optimize_net(net, { executor = "dag" })' })

--- neap.memonger.optimize_net(net [, { .. }]) -> net, Report: see the record.
function memonger.optimize_net(net, o)
  o = net_options:read(o, "memonger.optimize_net")
  check_net(net, "optimize_net")
  return plan("optimize_net", net, {
    dag = o.executor == "dag",
    dont_share = list_of(o.dont_share, "optimize_net: dont_share"),
    prefix = prefix_of(o.namescope, "optimize_net"),
    order = check(o.order, "string", "optimize_net: order"),
    exact = is_exact(o.algo, "optimize_net"),
    most_steps = o.most_steps,
  }, o.shapes)
end

local grad_options = record.declare("neap.memonger.share_grad_blobs", {
  call = "(net, losses, param_grads, namescope, {})",
  doc = [[Shares the gradients of blobs among each other: gives a net and a Report of the shared
    blobs. Gradients of parameters stay, and those that param_grads names; losses are the heads of
    the backward pass, namescope is a prefix of new names.]],
  { "share_activations", "boolean", false, doc = "whether activations share, too" },
  { "dont_share", "any", unset = "none", says = "names", doc = "blobs that keep their names" },
  { "shapes", "table", unset = "as declared",
    doc = "{ input = shape }, where it is another one than declared" },
  { "dag", "boolean", true, doc = "whether ops that may run side by side share no names" },
  { "keep_last", "integer", 2, min = 0,
    doc = "of activations, how many of the last that are no outputs stay" },
  example = 'neap.memonger.share_grad_blobs(net, { "loss" }, nil, "", { share_activations = true })'
})

--- neap.memonger.share_grad_blobs(net, losses, param_grads, namescope [, { .. }]) -> net, Report:
-- see the record.
function memonger.share_grad_blobs(net, losses, param_grads, namescope, o)
  o = grad_options:read(o, "memonger.share_grad_blobs")
  local who = "share_grad_blobs"
  check_net(net, who)
  local kept = list_of(o.dont_share, who .. ": dont_share") or {}
  for _, name in ipairs(list_of(param_grads, who .. ": param_grads") or {}) do
    kept[#kept + 1] = name
  end
  return plan(who, net, {
    dag = o.dag,
    gradients_only = not o.share_activations,
    keep_last = o.keep_last,
    prefix = prefix_of(namescope, who),
    heads = list_of(losses, who .. ": losses"),
    dont_share = kept,
  }, o.shapes)
end

--- Reorders the ops, then recycles in that order.
-- @param net
-- @param static_blobs names to leave alone
-- @param ordering_function f(net) -> positions, or "plain", "longest_path" (the default),
--   "least_memory"
-- @param blob_sizes {name = bytes} to plan with instead of the real ones
-- @param algo "greedy" or "exact"
-- @param most_steps of the search, for "exact"
-- @return net, assignments (slots, lists of ranges), {blob = its canonical name}
function memonger.optimize_interference(
    net, static_blobs, ordering_function, blob_sizes, algo, most_steps)
  check_net(net, "optimize_interference")
  check(blob_sizes, "table", "optimize_interference: blob_sizes")
  for name, size in pairs(blob_sizes or {}) do
    if type(name) ~= "string" then
      fail("optimize_interference: blob_sizes expects { name = bytes }")
    end
    check(size, "number", ("optimize_interference: blob_sizes: \"%s\""):format(name))
  end

  -- Nothing has a name within a backward pass that is not written out.
  net = expanded(net)
  local order = ordering_function or "longest_path"
  if type(order) == "function" then
    order = check(order(net) or false, "table",
      "optimize_interference: what ordering_function gives")
  else
    order = native.sort(net, check(order, "string", "optimize_interference: ordering_function"))
  end
  local ordered = native.reorder(net, order)

  -- The order decides who is alive with whom: ranges are of the reordered net.
  local ranges = memonger.compute_ranges(ordered)
  for _, range in ipairs(ranges) do
    if blob_sizes then range.size = blob_sizes[range.name] or 1 end
  end
  local assignments = memonger.compute_assignments(ranges, static_blobs, algo, most_steps)
  local renames, canonical = renames_of(assignments, "optimize_interference"), {}

  -- Every range is in a slot, so that the mapping has all names; many keep their own.
  for _, range in ipairs(ranges) do canonical[range.name] = renames[range.name] end
  return verified(ordered, ordered:rename(renames)), assignments, canonical
end

-- ---- ranges and assignments ---------------------------------------------------------------------

--- Live ranges of a net's blobs, from the planner.
-- @return list of {name, defined, used, size, class, dtype, device, role, static}: positions of the
--   first writer (0: before the net) and the last reader
function memonger.compute_ranges(net, shapes)
  local ranges = {}

  -- A recycler into which no op has been put knows the live ranges, and shares nothing.
  local whole = expanded(check_net(net, "compute_ranges"), shapes, "compute_ranges")
  for i, row in ipairs(memonger.recycler(whole, { shapes = shapes }).rows) do
    ranges[i] = {
      name = row.name,
      defined = row.first,
      used = row.last,
      size = row.bytes,
      class = row.class,
      dtype = row.dtype,
      device = row.device,
      role = row.role,
      static = not row.shares,
    }
  end
  return ranges
end

--- The ranges of `slots` as the net has them. Names stand for their ranges; a range with another
-- life is refused.
local function known_ranges(slots, net, shapes)
  -- Lives come from the net. What the caller states of a range must agree with them: an assignment
  -- made for another net, or another order, would pass otherwise.
  local of, known = {}, {}
  for _, range in ipairs(memonger.compute_ranges(net, shapes)) do of[range.name] = range end
  for k, slot in ipairs(slots) do
    known[k] = {}
    for i, given in ipairs(slot) do
      local name = type(given) == "table" and given.name or given
      local range = of[name]
      if not range then
        refuse("name",
          ("verify_assignments: slot %d: net \"%s\" has no blob \"%s\""):format(
            k, net:name(), tostring(name)),
          name)
      end
      for _, field in ipairs { "defined", "used", "class" } do
        if type(given) == "table" and given[field] ~= nil and given[field] ~= range[field] then
          refuse("plan",
            ("verify_assignments: slot %d: \"%s\" has %s = %s, and %s in net \"%s\""):format(
              k, name, field, tostring(given[field]), tostring(range[field]), net:name()),
            name)
        end
      end
      known[k][i] = {
        name = name,
        defined = range.defined,
        used = range.used,
        class = range.class,
        static = range.static,
        size = type(given) == "table" and given.size or range.size,
      }
    end
  end
  return known
end

--- Raises unless each blob is in one slot, those of a slot are of one class with disjoint lives,
-- static ones alone in theirs, and no size is negative.
-- @param assignments slots, lists of ranges; with a net, of names too
-- @param net whose blobs they must be, with the lives that they have there; nil: the ranges are
--   taken as they are
-- @param shapes as for compute_ranges
-- @return true
function memonger.verify_assignments(assignments, net, shapes)
  if net ~= nil then
    assignments = known_ranges(assignments, check_net(net, "verify_assignments"), shapes)
  end
  return assignment.verify(assignments)
end

-- ---- orders -------------------------------------------------------------------------------------

--- An order of the ops that keeps the meaning, names that are written again included.
-- @param net
-- @param kind "plain" (as defined), "longest_path" (sources of longer chains first, each op right
--   before it is needed) or "least_memory" (fewest bytes alive at the peak, or as defined where
--   that is no worse)
-- @return positions: result[i] is the op that runs i-th
function memonger.topological_sort_traversal(net, kind)
  return native.sort(check_net(net, "topological_sort_traversal"),
    check(kind, "string", "topological_sort_traversal: kind") or "plain")
end

--- The ops in an order along the longest path: topological_sort_traversal(net, "longest_path").
function memonger.topological_sort_traversal_longest_path(net)
  return memonger.topological_sort_traversal(net, "longest_path")
end

--- Which op must come before which, by names: {i, j} when op i writes a blob that the later op j
-- reads.
-- @return list of pairs of positions
function memonger.compute_interference_graph(net)
  return native.interference(check_net(net, "compute_interference_graph"))
end

-- ---- sizes --------------------------------------------------------------------------------------

--- Bytes of one blob, inferred through the whole net, with its dtype; not aligned.
function memonger.infer_blob_size(net, blob, shapes)
  local known = check_net(net,
    "infer_blob_size"):_plan(shape_options(shapes, "infer_blob_size") or {})
  local name = type(blob) == "table" and blob.name or blob
  local row = known:_value(name)
  if not row then
    refuse("name",
      ("infer_blob_size: net \"%s\" has no blob \"%s\""):format(net:name(), tostring(name)), name)
  end
  return row.bytes
end

--- Bytes of every blob, from inference: nothing need have run.
-- @return {name = bytes}
function memonger.collect_blob_sizes(net, shapes)
  local sizes = {}
  for _, range in ipairs(memonger.compute_ranges(check_net(net, "collect_blob_sizes"), shapes)) do
    if range.size > 0 then sizes[range.name] = range.size end
  end
  return sizes
end

--- What one or several nets take if nothing but Free gives bytes back. The nets stay as they are.
-- They run in one workspace: a blob that several of them write counts once, at its largest.
-- @param nets net or list of nets, run one after the other
-- @param shapes {input = shape} to replace declared ones
-- @param device count only ops of this label (net:device)
-- @return Report by op type; total_bytes made, high_water_bytes held at once
function memonger.estimate_memory_usage(nets, shapes, device)
  if is_net(nets) then nets = { nets } end
  if type(nets) ~= "table" then
    fail("estimate_memory_usage expects a net or a list of nets, got " .. options.shown(nets))
  end
  check(device, "string", "estimate_memory_usage: device")
  for _, net in ipairs(nets) do check_net(net, "estimate_memory_usage") end
  local rows, total, high = native.estimate(nets, shape_options(shapes, "estimate_memory_usage"),
    device)
  return report.new {
    rows = rows,
    columns = { "type", "bytes" },
    totals = { total_bytes = total, high_water_bytes = high },
    order = { "total_bytes", "high_water_bytes" },
  }
end

-- ---- schema and Free ----------------------------------------------------------------------------

--- Checks every op against its record: arity, attributes, in-place pairs, then shapes and dtypes.
-- An op of unknown type is an error.
-- @param net a net, its text, or a list of ops {type, inputs, outputs, attrs} over declared blobs
--   {input = {name = shape}}
-- @return true; raises with the op's number and name
function memonger.run_schema_check(net)
  -- A text is read as a net; a list of ops is built as one, so that the error has the op's number.
  if type(net) == "string" then net = neap.net_from(net) end
  if type(net) == "table" and not is_net(net) then
    local built = neap.net "schema"
    for name, shape in pairs(net.inputs or {}) do built:input(name, shape) end
    for i, op in ipairs(net) do
      local ok, e = pcall(built.op, built, op[1], op[2], op[3], op[4])
      if not ok then
        refuse(type(e) == "table" and e.code or "graph",
          ("op %d: %s"):format(i, type(e) == "table" and e.message or tostring(e)))
      end
    end
    net = built
  end
  return check_net(net, "run_schema_check"):check()
end

--- Puts one Free behind the last reader of every blob that is made and read in the net and that
-- nobody may ask for.
-- @param net
-- @param keep names to leave alone; outputs, kept and declared blobs, views and what they look at
--   are left alone anyway
-- @param selector f(name) -> whether to free it; nil: all
-- @return net, names that are freed, in order
-- @usage local freed = neap.memonger.release_blobs_when_used(net, { "features" })
function memonger.release_blobs_when_used(net, keep, selector)
  net = expanded(check_net(net, "release_blobs_when_used"))
  check(selector, "function", "release_blobs_when_used: selector")
  local kept = list_of(keep, "release_blobs_when_used: keep") or {}

  -- A function chooses what is freed: what it refuses is added to the names that stay.
  for _, blob in ipairs(selector and net:_blobs() or {}) do
    if not selector(blob.name) then kept[#kept + 1] = blob.name end
  end
  return native.release(net, kept)
end

return require("neap.inner.guard").functions(memonger, "neap.memonger.")
