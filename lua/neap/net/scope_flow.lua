--- Scopes in branches and loops: what a scope holds there depends on what ran.
--
-- C knows the frames of a scope as far as ops stand in a row (src/net/scope.c). A branch or body
-- that uses a scope of a net around it gets a scope of its own under that name; what can be seen of
-- a scope, whether it has a frame and the locals of the top one, goes in and out as blobs: "s.top"
-- (bool), "s.top/h" for local h. A branch writes them by name, so that If and While treat them as
-- any blob: planned, differentiated, scheduled. Behind the If or While a Do puts the locals back
-- into a frame. INVARIANT: a local is there after an If or a loop when it is there whichever way
-- the run went; any other is an error to read. INVARIANT: what is known of a scope in a net changes
-- by naming.set alone, so that a failed call leaves it as it was.
-- @module neap.net.scope_flow
local core = require "neap.core"
local keys = require("neap.inner.options").keys
local naming = require "neap.net.naming"
local state_of, set = naming.state_of, naming.set

local M = {}

--- What is known of scope `s` in `net`, made at its first use: { sure = it has a frame whatever
-- ran, flag = name of "s.top", carried = {local = blob}, current = {local = whether its blob holds
-- its newest value}, lost = locals that are there on some ways only; and where it belongs to a net
-- around: outer = the next net, changed = locals written here, imported = locals brought in, taken
-- = those of them that are read, pushed = the top frame was made here }. A scope that another net
-- has left in the workspace has a source = {local = {blob =, dtype =, shape =}} in the place of an
-- outer net; one that is left there, exported = the same.
local function record(net, s)
  local state = state_of(net)
  if not state.scope_flow then set(net, state, "scope_flow", {}) end
  if not state.scope_flow[s] then
    local flag = s .. ".top" -- a net that was read from its text has it already
    set(net, state.scope_flow, s, {
      flag = net:_blob(flag) and flag,
      carried = {},
      current = {},
      lost = {},
      changed = {},
      imported = {},
      taken = {},
    })
  end
  return state.scope_flow[s]
end

local function known(net, s)
  local all = state_of(net).scope_flow
  return all and all[s]
end

local function unused(net, base)
  local name, n = base, 1
  while naming.is_known(net, name) do
    n = n + 1
    name = ("%s_%d"):format(base, n)
  end
  return name
end

local function add(net, type_name, ins, outs, attrs)
  return net:_add(type_name, ins, outs, attrs, nil, "", state_of(net).line, state_of(net).device)
end

-- ---- between frames and blobs -------------------------------------------------------------------

--- A Do whose body copies bound blobs to locals (`put`) or locals to bound blobs. pairs: list of {
-- local, blob }.
local function move(net, s, pairs_, put, reuse)
  -- The body is a closed net. Its bound names must be no locals of the frame: "top/1" and so on,
  -- with _ behind where a local is called so.
  local body, inner, where, blobs = net:_sub(net:fresh_name "body", true), {}, {}, {}
  for i, pair in ipairs(pairs_) do
    local name, bound = pair[1], "top/" .. i
    while bound == name do bound = bound .. "_" end
    local from, to = put and bound or name, put and name or bound
    body:_take(from, net:_type(put and pair[2] or net:_local(s, name)))
    add(body, "Copy", { from }, { to })
    inner[i], where[i], blobs[i] = bound, i, pair[2]
  end

  -- With `put` the blobs are read and the scope is written, else the other way round.
  blobs[#blobs + 1] = s
  add(net, "Do", put and blobs or { s }, put and { s } or blobs,
    { net = body, inner_blobs = inner, outer_blobs_idx = where, reuse_workspace = reuse })
  naming.keep_subnet(net, body)
end

--- Whether local `name` is in the top frame of `s` for certain.
-- A local of this net's own; one that another net left in the workspace; one of a net around, whose
-- top frame is still the one that is seen here.
local function has(net, s, name)
  local r = known(net, s)
  if net:_local(s, name) then return true end
  if r and r.source and not r.pushed and r.source[name] then return true end
  return r ~= nil and r.outer ~= nil and not r.pushed and has(r.outer, s, name)
end

local function blob_for(net, s, name)
  local r = record(net, s)
  if not r.carried[name] then set(net, r.carried, name, unused(net, s .. ".top/" .. name)) end
  return r.carried[name]
end

--- The blob of `net` that holds local `name` as it is now.
local function carried(net, s, name)
  local r, blob = record(net, s), blob_for(net, s, name)

  -- As long as nobody writes the local, its blob serves again.
  if r.current[name] then return blob end
  if not net:_local(s, name) then M.import(net, s, name) end
  -- A local that was brought in and is read before it is written: an iteration of a loop needs it
  -- from the one before.
  if r.imported[name] and not r.changed[name] then set(net, r.taken, name, true) end
  move(net, s, { { name, blob } }, false, true)
  set(net, r.current, name, true)
  return blob
end

--- Brings local `name` of the frame that a net around or before left into that of `net`; nil when
-- there is none, else its full name. Asked for names that `net` has no local of yet.
function M.import(net, s, name)
  local r = known(net, s)
  if not r or r.pushed or not has(net, s, name) then return nil end

  -- From the workspace it comes as an input, from a net around as a blob that carries it; either
  -- way a Do puts it into the frame here.
  local blob
  if r.source then
    local left = r.source[name]
    blob = left.blob
    net:_declare(blob, "input", left.shape, left.dtype, nil, false, state_of(net).line)
  else
    blob = carried(r.outer, s, name)
  end
  move(net, s, { { name, blob } }, true, true)
  set(net, r.imported, name, true)
  return net:_local(s, name)
end

--- Raises for a local that is there only if a branch was taken or a loop has run.
function M.check_read(net, s, name)
  local r = known(net, s)

  -- Up to the net whose frame it is.
  while r and r.outer and not r.pushed do r = known(r.outer, s) end
  if not r or not r.lost[name] then return end
  error(core.error {
    code = "graph",
    blob = name,
    hint = "make it on every way, or in a Do before the If or loop",
    message = ("local \"%s\" of scope \"%s\" is there only if a branch was taken or a loop has \z
      run"):format(
      name, s),
  })
end

-- ---- what ops do --------------------------------------------------------------------------------

--- The name of the blob that says whether the scope has a frame, made at its first use.
local function flag_of(net, s)
  local r = record(net, s)
  if not r.flag then
    local flag = unused(net, s .. ".top")
    add(net, "HasScope", { s }, { flag })
    set(net, r, "flag", flag)
  end
  return r.flag
end

local function set_flag(net, flag, value)
  add(net, "Constant", {}, { flag }, { shape = { 1 }, value = value, dtype = "bool" })
end

--- Called before an op of `net` uses scope `s`: one of a net around becomes one here too.
function M.enter(net, s)
  local outer = state_of(net).outer

  -- The nets around come first: the scope must be one of theirs before it can be one here.
  if not s or outer == nil or net:_blob(s) or not net:_is_scope(s) then return end
  M.enter(outer, s)
  local around = record(outer, s)

  -- Whether it has a frame is known, or is read from a flag that the net around has.
  local flag = not around.sure and flag_of(outer, s) or nil
  add(net, "CreateScope", {}, { s })
  local r = record(net, s)
  set(net, r, "outer", outer)
  set(net, r, "sure", around.sure)
  set(net, r, "flag", flag)
end

--- Called after a Do of `net` on scope `s`.
-- @param attrs table of the Do
function M.did(net, s, attrs)
  local r = record(net, s)

  -- A new frame hides the one below: what is known of locals was of that one.
  if not attrs.reuse_workspace then
    set(net, r, "pushed", true)
    set(net, r, "changed", {})
    set(net, r, "current", {})
    set(net, r, "lost", {})
  end

  -- What the body wrote: bound names are blobs outside, unless the frame keeps copies of them.
  local copies, bound = attrs.copy_external_blobs, {}
  for _, name in ipairs(not copies and attrs.inner_blobs or {}) do bound[name] = true end
  local function wrote(name)
    if not name or bound[name] or not net:_local(s, name) then return end
    set(net, r.changed, name, true)
    set(net, r.current, name, nil)
  end
  for _, row in ipairs(attrs.net:_ops()) do
    for _, name in ipairs(row.inputs) do
      if name and r.imported[name] and not r.changed[name] then set(net, r.taken, name, true) end
    end
    for _, name in ipairs(row.outputs) do wrote(name) end
  end
  for _, name in ipairs(copies and attrs.inner_blobs or {}) do wrote(name) end

  -- Behind a Do the scope has a frame, whatever ran before.
  if r.sure then return end
  if r.flag then set_flag(net, r.flag, 1) end
  set(net, r, "sure", true)
end

--- Raises where a branch creates a scope under the name of one that it has used: nobody could tell
-- which is meant.
function M.before_create(net, s)
  local r = known(net, s)
  if r and r.outer then
    error(core.error {
      code = "graph",
      blob = s,
      message = ("CreateScope: \"%s\" is a scope of net \"%s\", around, which has been used here \z
        before"):format(s, r.outer:_name()),
      hint = "give the scope another name, or create it before its first use here",
    })
  end
end

--- Called after CreateScope: the scope is empty.
function M.created(net, s)
  local r = record(net, s)

  -- Later reads of the flag find that the scope is empty.
  if r.flag then set_flag(net, r.flag, 0) end
  set(net, state_of(net).scope_flow, s, nil)
  if r.flag then set(net, record(net, s), "flag", r.flag) end
end

--- What HasScope is here: type, inputs, attributes of an op. Without branches C knows the answer.
function M.has_scope(net, s)
  -- Only where a branch or another net may have changed the answer does it depend on the run.
  local r = s and known(net, s) or s and net:_blob(s .. ".top") and record(net, s)
  if not r or not (r.outer or r.flag) then return "HasScope", { s } end
  if r.sure then return "Constant", {}, { shape = { 1 }, value = 1, dtype = "bool" } end
  return "Copy", { r.flag }
end

-- ---- from net to net ----------------------------------------------------------------------------

local function shared_flag(net, s)
  local name = s .. ".shared"
  if naming.is_known(net, name) then
    core.fail(("scope \"%s\" can't be shared: \"%s\" is a blob of net \"%s\" already"):format(
      s, name, net:_name()))
  end
  net:_declare(name, "state", { 1 }, "bool", { op = "Constant", value = 0 }, false,
    state_of(net).line)
  return name
end

--- Leaves in the workspace what `s` holds here: "s.shared", which lasts from run to run, and
-- "s.shared/h" for local h.
function M.export(net, s)
  local r, flag = record(net, s), unused(net, s .. ".left")
  if r.source then
    core.fail(("net:export_scope: scope \"%s\" came from another net, which leaves it"):format(s))
  end

  -- The flag and the locals are copied to state, which lasts from run to run.
  local type_name, ins, attrs = M.has_scope(net, s)
  add(net, type_name, ins, { flag }, attrs)
  add(net, "Copy", { flag }, { shared_flag(net, s) })
  local list, exported = {}, {}
  for _, name in ipairs(keys(r.changed)) do
    if net:_local(s, name) then list[#list + 1] = { name, s .. ".shared/" .. name } end
  end
  move(net, s, list, false, true)
  for _, pair in ipairs(list) do
    local dtype, shape = net:_type(pair[2])
    net:_keep(pair[2])
    exported[pair[1]] = { blob = pair[2], dtype = dtype, shape = shape }
  end
  set(net, r, "exported", exported)
end

--- Makes `s` in `net` the scope that `from` leaves in the workspace. Its locals become inputs when
-- they are read first.
function M.import_from(net, s, from)
  local other = known(from, s)
  if not other or not other.exported then
    error(core.error {
      code = "graph",
      blob = s,
      message = ("net:import_scope: net \"%s\" does not leave a scope \"%s\""):format(
        from:_name(), s),
      hint = ("call its export_scope(\"%s\") first, when the scope is as others are to see \z
        it"):format(s),
    })
  end

  -- Nothing is read yet: locals come in as inputs when a body asks for them.
  add(net, "CreateScope", {}, { s })
  local flag, r = unused(net, s .. ".top"), record(net, s)
  add(net, "Copy", { shared_flag(net, s) }, { flag })
  set(net, r, "flag", flag)
  set(net, r, "source", other.exported)
end

-- ---- where ways meet ----------------------------------------------------------------------------

--- Scopes of nets around that some of the nets use, in order.
local function used(subs)
  local seen, list = {}, {}
  for _, sub in ipairs(subs) do
    for s, r in pairs(state_of(sub).scope_flow or {}) do
      if r.outer and not seen[s] then
        seen[s] = true
        list[#list + 1] = s
      end
    end
  end
  table.sort(list)
  return list
end

local function type_text(dtype, shape)
  return dtype and ("%s (%s)"):format(dtype, table.concat(shape, ","))
end

--- Raises where a local has other types on two ways, as far as they are known: what reads it behind
-- could not say which it gets.
local function check_types(net, s, name, blob, subs, n, as_before)
  local text = as_before and type_text(net:_type(blob)) or nil
  for i = 1, n do
    local r = subs[i] and known(subs[i], s)
    local other = r and r.changed[name] and type_text(subs[i]:_type(subs[i]:_local(s, name)))
    if other and text and other ~= text then
      error(core.error {
        code = "shape",
        blob = name,
        expected = text,
        got = other,
        hint = "give it another name where it is something else",
        message = ("local \"%s\" of scope \"%s\" is %s on one way through net \"%s\", %s on \z
          another"):format(
          name, s, text, net:_name(), other),
      })
    end
    -- The first way on which the type is known says what it must be on the others.
    text = text or other or nil
  end
end

--- Writes the locals of one scope, as the ways leave them, to blobs of `net`. subs: one net for
-- each way there is; nil: the way on which nothing happens.
local function leave(net, s, subs, n)
  local changed, lost, pushed, sure, moved = {}, {}, false, true, {}

  -- What any way changes, whether any way pushes a frame, and whether all ways leave one.
  for i = 1, n do
    local r = subs[i] and known(subs[i], s)
    for name in pairs(r and r.changed or {}) do changed[name] = true end
    pushed, sure = pushed or r and r.pushed, sure and r and r.sure
  end
  for _, name in ipairs(keys(changed)) do
    -- A local is there behind only if each way writes it or leaves the old one visible.
    local everywhere, somewhere_as_before = true, false
    for i = 1, n do
      local r = subs[i] and known(subs[i], s)
      local writes = r and r.changed[name]
      everywhere = everywhere and (writes or not (r and r.pushed) and has(net, s, name))
      somewhere_as_before = somewhere_as_before or not writes
    end
    if everywhere then
      -- Where some way leaves it as it was, the blob must hold the old value beforehand.
      local blob = somewhere_as_before and carried(net, s, name) or blob_for(net, s, name)
      check_types(net, s, name, blob, subs, n, somewhere_as_before)
      for i = 1, n do
        -- Each way that writes it copies it into the blob, which is then a name that the branch
        -- writes.
        local r = subs[i] and known(subs[i], s)
        if r and r.changed[name] then move(subs[i], s, { { name, blob } }, false, true) end
      end
      moved[#moved + 1] = { name, blob }
    else
      lost[name] = true
    end
  end
  return { scope = s, moved = moved, lost = lost, pushed = pushed, sure = sure }
end

--- Called when the branches of an If are built and before it is added: what `arrive` needs. `other`
-- nil: there is no other branch.
function M.leave_branches(net, first, other)
  local list = {}
  for _, s in ipairs(used { first, other }) do
    list[#list + 1] = leave(net, s, { first, other }, 2)
  end
  return list
end

local function refuse(who, s, name, text, hint)
  error(core.error {
    code = "graph",
    blob = s,
    message = ("%s: local \"%s\" of scope \"%s\" %s"):format(who, name, s, text),
    hint = hint,
  })
end

--- The same for a loop, which may run its body never: what one iteration reads the one before must
-- leave.
function M.leave_loop(net, who, body, cond)
  local list = {}

  -- The condition may read a scope, but neither push a frame nor write what is there: it runs once
  -- more than the body.
  for _, s in ipairs(cond and used { cond } or {}) do
    local r = known(cond, s)
    if r.pushed then
      error(core.error {
        code = "graph",
        blob = s,
        message = ("%s: the condition pushes a frame on scope \"%s\", which only the body \z
          may"):format(
          who, s),
        hint = "read the top frame: reuse = true",
      })
    end
    for _, name in ipairs(keys(r.changed)) do
      if has(net, s, name) then
        refuse(who, s, name, "is written by the condition; only the body may")
      end
    end
  end
  for _, s in ipairs(used { body }) do
    local r = known(body, s)

    -- An iteration that pushes a frame hides the one below: what it reads of that would be missing
    -- in the next one.
    for _, name in ipairs(keys(r.pushed and r.taken or {})) do
      if not r.changed[name] then
        refuse(who, s, name,
          "is read by the body, which leaves a frame without it to the next iteration",
          "make it in the frame that the body pushes")
      end
    end
    for _, sub in ipairs { cond } do
      local reads = known(sub, s)
      for _, name in ipairs(keys(reads and r.pushed and reads.taken or {})) do
        if not r.changed[name] then
          refuse(who, s, name, "is read by the condition, and the body leaves a frame without it")
        end
      end
    end
    -- Two ways: the body ran, or it never did.
    list[#list + 1] = leave(net, s, { body }, 2)
  end
  return list
end

--- Called behind the If or loop: the locals go into a frame of `net`, a new one where a way has
-- pushed one.
function M.arrive(net, list)
  for _, way in ipairs(list) do
    local s, r = way.scope, record(net, way.scope)

    -- The locals go back into a frame: into the top one, or a new one where some way pushed.
    if way.pushed or #way.moved > 0 then move(net, s, way.moved, true, not way.pushed) end
    if way.pushed then
      -- of the frame below, which is the top one on some ways
      for name in pairs(r.changed) do way.lost[name] = true end
      for _, pair in ipairs(way.moved) do way.lost[pair[1]] = nil end
      set(net, r, "pushed", true)
      set(net, r, "changed", {})
      set(net, r, "current", {})
    end
    for _, pair in ipairs(way.moved) do
      set(net, r.changed, pair[1], true)
      set(net, r.current, pair[1], true)
    end
    set(net, r, "lost", way.lost)
    if way.sure then set(net, r, "sure", true) end
  end
end

--- The blobs that only scopes need, as a set: what a branch writes of them is nothing that the user
-- asked for.
function M.hidden(net, list)
  local names = {}
  for _, way in ipairs(list) do
    for _, pair in ipairs(way.moved) do names[pair[2]] = true end
    local r = known(net, way.scope)
    if r and r.flag then names[r.flag] = true end
  end
  return names
end

return M
